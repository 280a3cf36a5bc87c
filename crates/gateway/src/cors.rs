//! CORS: which pages in a browser may read answers. Off unless origins are configured.
//!
//! A preflight is answered here, without a key and without a trace in any account. Every other answer to an allowed
//! origin (refusals too) says that it may be read, and which headers. Cookies are never asked for: keys are the
//! credential, so `Access-Control-Allow-Credentials` is never sent. Other origins get no such header, which is a no; that
//! the answer depends on the origin is told to all, for the caches between.

use std::collections::BTreeSet;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};

use crate::body::OutBody;
use crate::config;
use crate::headers::value;

/// Longest list of headers a preflight may ask for.
const ASKED_MAX: usize = 4096;
/// The methods of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Methods {
    /// Those of every path the gateway knows by itself.
    Usual,
    /// Those of paths an operator opened.
    All,
}

impl Methods {
    fn value(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Usual => "GET, HEAD, POST, DELETE",
            Self::All => "GET, HEAD, POST, PUT, PATCH, DELETE",
        })
    }
}
/// Headers of ours that a page may read; the ones SDKs look at.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, request-id, retry-after, retry-after-ms, x-should-retry, x-tollbook-reset, ratelimit, \
     ratelimit-policy, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
     x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
     anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, \
     anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, anthropic-ratelimit-tokens-remaining, \
     anthropic-ratelimit-tokens-reset, anthropic-ratelimit-input-tokens-limit, \
     anthropic-ratelimit-input-tokens-remaining, anthropic-ratelimit-input-tokens-reset, \
     anthropic-ratelimit-output-tokens-limit, anthropic-ratelimit-output-tokens-remaining, \
     anthropic-ratelimit-output-tokens-reset",
);

/// The origins that are let in.
#[derive(Debug)]
pub(crate) struct Cors {
    any: bool,
    origins: BTreeSet<String>,
    max_age: HeaderValue,
}

/// What an answer has to say.
#[derive(Debug)]
pub(crate) enum Allowed {
    /// The page may read it.
    Origin(HeaderValue),
    /// Every page may.
    Any,
    /// Nothing; but another origin would have been told another thing, which a cache must know.
    No,
}

impl Cors {
    pub(crate) fn new(given: &config::Cors) -> Self {
        Self {
            any: given.origins.iter().any(|origin| origin == "*"),
            origins: given.origins.iter().map(|origin| origin.to_ascii_lowercase()).collect(),
            max_age: age(given.max_age),
        }
    }

    /// Whether a request comes from an allowed origin.
    pub(crate) fn allows(&self, headers: &HeaderMap) -> Allowed {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return if self.any { Allowed::Any } else { Allowed::No };
        };
        if self.any {
            return Allowed::Any;
        }
        let known = origin.to_str().is_ok_and(|o| self.origins.contains(&o.to_ascii_lowercase()));
        if known { Allowed::Origin(origin.clone()) } else { Allowed::No }
    }

    /// The answer to a preflight; `None` if the request is none.
    pub(crate) fn preflight<B>(
        &self,
        request: &Request<B>,
        methods: impl FnOnce() -> Methods,
    ) -> Option<Response<OutBody>> {
        let headers = request.headers();
        let preflight = *request.method() == Method::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !preflight {
            return None;
        }
        let mut response = Response::new(OutBody::full(""));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let out = response.headers_mut();
        out.insert(
            header::VARY,
            HeaderValue::from_static("origin, access-control-request-method, access-control-request-headers"),
        );
        if let Some(origin) = self.allows(headers).origin() {
            out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            out.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods().value());
            out.insert(header::ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
            if let Some(asked) = asked(headers) {
                out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
            }
        }
        Some(response)
    }
}

impl Allowed {
    fn origin(&self) -> Option<HeaderValue> {
        match self {
            Self::Origin(origin) => Some(origin.clone()),
            Self::Any => Some(HeaderValue::from_static("*")),
            Self::No => None,
        }
    }

    /// Says on any answer whether it may be read, and that this depends on who asks.
    pub(crate) fn write(&self, out: &mut HeaderMap) {
        if let Some(origin) = self.origin() {
            out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            out.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        if !matches!(self, Self::Any) {
            out.append(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

/// The headers a preflight asks for, given back in our spelling: names and nothing else.
fn asked(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut names: Vec<HeaderName> = Vec::new();
    let mut length = 0_usize;
    for line in headers.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        for name in line.to_str().ok()?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            length = length.saturating_add(name.len()).saturating_add(2);
            if length > ASKED_MAX {
                return None;
            }
            names.push(HeaderName::from_bytes(name.as_bytes()).ok()?);
        }
    }
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    (!names.is_empty()).then(|| value(&names.join(", ")))
}

fn age(age: Duration) -> HeaderValue {
    HeaderValue::from(age.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str]) -> Cors {
        let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        Cors::new(&config::Cors { origins, max_age: Duration::from_secs(600) })
    }

    fn preflight(origin: &str, asked: &str) -> Request<()> {
        Request::options("/v1/chat/completions")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", asked)
            .body(())
            .unwrap()
    }

    #[test]
    fn an_origin_is_compared_whole() {
        let cors = cors(&["https://app.example.com"]);
        for (origin, allowed) in [
            ("https://app.example.com", true),
            ("HTTPS://App.Example.com", true),
            ("http://app.example.com", false),
            ("https://app.example.com.evil.org", false),
            ("https://app.example.com:8443", false),
            ("null", false),
            ("*", false),
        ] {
            let answer = cors.preflight(&preflight(origin, "authorization"), || Methods::Usual).unwrap();
            assert_eq!(answer.headers().contains_key("access-control-allow-origin"), allowed, "{origin}");
            assert!(!answer.headers().contains_key("access-control-allow-credentials"));
        }
    }

    #[test]
    fn asked_headers_are_names_and_bounded() {
        let cors = cors(&["*"]);
        let told = |asked: &str| {
            let answer = cors.preflight(&preflight("https://x", asked), || Methods::Usual).unwrap();
            answer.headers().get("access-control-allow-headers").map(|v| v.to_str().unwrap().to_owned())
        };
        let names = "Authorization,content-type, x-stainless-lang";
        assert_eq!(told(names).as_deref(), Some("authorization, content-type, x-stainless-lang"));
        assert_eq!(told("a b"), None);
        assert_eq!(told(""), None);
        let fits = vec!["a"; ASKED_MAX / 3].join(",");
        assert!(told(&fits).is_some());
        assert_eq!(told(&format!("{fits},a")), None);
    }
}
