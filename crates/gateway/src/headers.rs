//! Header hygiene, both ways.
//!
//! What goes upstream: end-to-end headers of the client without hop-by-hop fields, credentials, encodings and our own
//! controls; then our credential. What comes back: the upstream's end-to-end headers without hop-by-hop fields, its
//! account's limits (they describe the operator) and its retry hints (ours are computed).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Fields that describe one connection, never forwarded (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Request fields that never reach a provider: credentials, framing, encodings, forwarding facts.
const REQUEST_DROPPED: [&str; 23] = [
    "host",
    "content-length",
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "cookie",
    "accept-encoding",
    "content-encoding",
    "expect",
    "forwarded",
    "x-forwarded-for",
    "x-real-ip",
    "http2-settings",
    // These would steer the operator's account or the request's meaning there.
    "openai-organization",
    "openai-project",
    "ocp-apim-subscription-key",
    "x-http-method-override",
    "x-original-url",
    "via",
    // Whose trace a call belongs to is told where the upstream's configuration says so; baggage is for nobody outside.
    "traceparent",
    "tracestate",
    "baggage",
];

/// Response fields that describe the operator's account or would mislead the client.
const RESPONSE_DROPPED: [&str; 13] = [
    "content-length",
    "content-encoding",
    "set-cookie",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-request-id",
    "request-id",
    // These speak of the provider's origin, not of ours.
    "alt-svc",
    "strict-transport-security",
    "location",
    "server",
    "via",
];

/// Prefixes of response fields that describe the operator's account, or speak to pages of another origin.
const RESPONSE_DROPPED_PREFIXES: [&str; 7] = [
    "access-control-",
    "x-tollbook-",
    "x-ratelimit-",
    "anthropic-ratelimit-",
    "anthropic-organization",
    "openai-organization",
    "ratelimit",
];

/// The client's headers as they may go upstream.
pub(crate) fn for_upstream(client: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(client);
    let mut out = HeaderMap::with_capacity(client.len());
    for (name, value) in client {
        let text = name.as_str();
        let dropped = HOP_BY_HOP.contains(&text)
            || REQUEST_DROPPED.contains(&text)
            || text.starts_with("x-tollbook-")
            || text.starts_with("x-forwarded-")
            || named.iter().any(|n| n == text);
        if !dropped {
            out.append(name, value.clone());
        }
    }
    out
}

/// The upstream's headers as they may go to the client.
pub(crate) fn for_client(upstream: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(upstream);
    let mut out = HeaderMap::with_capacity(upstream.len() + 16);
    for (name, value) in upstream {
        let text = name.as_str();
        let dropped = HOP_BY_HOP.contains(&text)
            || RESPONSE_DROPPED.contains(&text)
            || RESPONSE_DROPPED_PREFIXES.iter().any(|p| text.starts_with(p))
            || named.iter().any(|n| n == text);
        if !dropped {
            out.append(name, value.clone());
        }
    }
    out
}

/// Names listed in `Connection`, in lower case.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(|n| n.trim().to_ascii_lowercase())
        .filter(|n| !n.is_empty())
        .collect()
}

/// The query that may go upstream: without parameters that carry credentials.
pub(crate) fn query_for_upstream(query: Option<&str>) -> Option<String> {
    const CREDENTIALS: [&str; 4] = ["key", "api_key", "api-key", "access_token"];
    let kept: Vec<&str> = query?
        .split('&')
        .filter(|pair| {
            let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
            // An encoded name can hide any other.
            !name.is_empty() && !name.contains('%') && !CREDENTIALS.contains(&name.as_str())
        })
        .collect();
    if kept.is_empty() { None } else { Some(kept.join("&")) }
}

/// What a client showed as its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown<'a> {
    Nothing,
    ApiKey(&'a str),
    /// Two different keys, or a header that cannot be read.
    Contradiction,
}

/// The key shown in `Authorization: Bearer` or `x-api-key`; both may be sent if they agree (B142, B143).
pub(crate) fn shown_api_key(headers: &HeaderMap) -> Shown<'_> {
    let mut shown: Option<&str> = None;
    let bearers = headers.get_all(header::AUTHORIZATION).iter().map(bearer);
    let plain = headers.get_all("x-api-key").iter().map(|v| v.to_str().ok().map(str::trim));
    for value in bearers.chain(plain) {
        match (value, shown) {
            (None | Some(""), _) => return Shown::Contradiction,
            (Some(new), None) => shown = Some(new),
            (Some(new), Some(old)) if new == old => {}
            (Some(_), Some(_)) => return Shown::Contradiction,
        }
    }
    shown.map_or(Shown::Nothing, Shown::ApiKey)
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?.trim();
    let (scheme, rest) = text.split_once([' ', '\t'])?;
    scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
}

/// A header value of our own making; what cannot be one becomes empty.
pub(crate) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A static name for an own header.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn b134_hop_by_hop_fields_and_those_named_stay_here() {
        let up = headers(&[
            ("connection", "close, X-Drop"),
            ("x-drop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("x-kept", "1"),
        ]);
        let out = for_client(&up);
        assert_eq!(out.len(), 1);
        assert_eq!(out["x-kept"], "1");
        let down = headers(&[
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", "h2c"),
            ("http2-settings", "AA"),
        ]);
        assert!(for_upstream(&down).is_empty());
    }

    #[test]
    fn b141_no_credential_of_the_client_goes_upstream() {
        let client = headers(&[
            ("authorization", "Bearer k"),
            ("x-api-key", "k"),
            ("api-key", "k"),
            ("cookie", "a=k"),
            ("x-tollbook-service", "chat"),
            ("x-tollbook-task", "titles"),
            ("anthropic-version", "2023-06-01"),
        ]);
        let out = for_upstream(&client);
        assert_eq!(out.len(), 1);
        assert_eq!(out["anthropic-version"], "2023-06-01");
        assert_eq!(query_for_upstream(Some("key=k&beta=true&API_KEY=k")), Some("beta=true".to_owned()));
        assert_eq!(query_for_upstream(Some("key=k")), None);
        assert_eq!(query_for_upstream(Some("%6bey=k&api%5Fkey=k&beta=true")), Some("beta=true".to_owned()));
    }

    #[test]
    fn b142_b143_spellings_of_a_key() {
        for text in ["Bearer k", "bearer  k", "BEARER k ", "Bearer\tk"] {
            let map: HeaderMap =
                [(header::AUTHORIZATION, HeaderValue::from_static(text))].into_iter().collect();
            assert_eq!(shown_api_key(&map), Shown::ApiKey("k"), "{text:?}");
        }
        for text in ["x Bearer k", "k", "Basic k", "Bearer", "Bearer "] {
            let map: HeaderMap =
                [(header::AUTHORIZATION, HeaderValue::from_static(text))].into_iter().collect();
            assert_eq!(shown_api_key(&map), Shown::Contradiction, "{text:?}");
        }
        assert_eq!(shown_api_key(&headers(&[("x-api-key", "k")])), Shown::ApiKey("k"));
        assert_eq!(
            shown_api_key(&headers(&[("authorization", "Bearer k"), ("x-api-key", "k")])),
            Shown::ApiKey("k")
        );
        assert_eq!(
            shown_api_key(&headers(&[("authorization", "Bearer k"), ("x-api-key", "j")])),
            Shown::Contradiction
        );
        assert_eq!(shown_api_key(&HeaderMap::new()), Shown::Nothing);
    }
}
