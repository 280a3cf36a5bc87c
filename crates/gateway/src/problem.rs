//! What the client is told when a call is not served: one place where refusals meet HTTP.
//!
//! Statuses, codes and hints follow the SDKs' rules: a rate refusal carries whole seconds and milliseconds to wait, what
//! waiting cannot help carries `x-should-retry: false`; 408 and 409 are never used, because SDKs repeat them.
//! The text says which limit refused and with which figures; it never quotes a provider's account or a secret.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode, header};
use tollbook_admission::{DenyKind, Figures, LimitRefusal, Measure, Refused};
use tollbook_wire::{Dialect, ErrorDetail, ErrorKind};

use crate::body::OutBody;
use crate::figures;
use crate::headers::value;

/// Above this a hint makes SDKs sleep too long or not at all: they are told not to retry.
const HINT_MAX: Duration = Duration::from_secs(60);
/// `Retry-After` is told up to here.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// A refusal or failure on its way to the client.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: ErrorKind,
    pub(crate) status: StatusCode,
    /// OpenAI's `type` where it is not the kind's own.
    pub(crate) type_: Option<&'static str>,
    pub(crate) code: Option<&'static str>,
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    pub(crate) retry: Retry,
    pub(crate) figures: Option<Box<Figures>>,
    /// UTC seconds at which a quota starts anew.
    pub(crate) reset_at: Option<u64>,
}

/// What the client should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The status speaks for itself.
    Unsaid,
    After(Duration),
    /// Waiting does not help soon; if ever, after this.
    Never(Option<Duration>),
}

impl Problem {
    pub(crate) fn new(kind: ErrorKind, status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            kind,
            status,
            type_: None,
            code: None,
            param: None,
            message: message.into(),
            retry: Retry::Unsaid,
            figures: None,
            reset_at: None,
        }
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, StatusCode::BAD_REQUEST, message)
    }

    /// The engine or the gateway itself cannot serve now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        let after = Retry::After(Duration::from_secs(1));
        Self::new(ErrorKind::Unavailable, StatusCode::SERVICE_UNAVAILABLE, message).retry(after)
    }

    /// The provider failed.
    pub(crate) fn upstream(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Upstream, StatusCode::BAD_GATEWAY, message).code("upstream_error")
    }

    /// The answer in the client's dialect.
    pub(crate) fn respond(self, dialect: Dialect, request_id: &str) -> Response<OutBody> {
        let detail = ErrorDetail { kind: self.type_, code: self.code, param: self.param.as_deref() };
        let body = tollbook_wire::error_body(dialect, self.kind, detail, &self.message, request_id);
        let mut response = json(self.status, body, request_id);
        let out = response.headers_mut();
        self.retry.write(out);
        if let Some(figures) = &self.figures {
            figures::write(out, dialect, figures, self.reset_at);
        }
        if let Some(at) = self.reset_at {
            out.insert(HeaderName::from_static("x-tollbook-reset"), value(&figures::rfc3339(at)));
        }
        response
    }
}

/// A JSON answer with its request id.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>, request_id: &str) -> Response<OutBody> {
    let mut response = Response::new(OutBody::full(body));
    *response.status_mut() = status;
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    figures::write_request_id(out, request_id);
    response
}

impl Retry {
    /// Whole seconds are rounded up and at least one; milliseconds are exact.
    fn write(self, out: &mut HeaderMap) {
        let (after, refuse) = match self {
            Self::Unsaid => return,
            Self::After(after) => (Some(after), after > HINT_MAX),
            Self::Never(after) => (after, true),
        };
        if let Some(after) = after.filter(|after| *after <= RETRY_AFTER_MAX) {
            let millis = after.as_millis().max(1);
            let seconds = millis.div_ceil(1000);
            out.insert(header::RETRY_AFTER, value(&seconds.to_string()));
            if !refuse {
                out.insert(HeaderName::from_static("retry-after-ms"), value(&millis.to_string()));
            }
        }
        if refuse {
            out.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
        }
    }
}

impl Problem {
    /// Renders what admission refused.
    pub(crate) fn refused(refused: Refused, dialect: Dialect, jitter: u16) -> Self {
        match refused {
            Refused::NoApiKey => unauthorized(
                "no API key was shown; send it as `Authorization: Bearer …` or as `x-api-key`",
                "missing_api_key",
            ),
            Refused::BadApiKey => unauthorized("the API key is not valid", "invalid_api_key"),
            Refused::AddressForbidden => {
                let text = "the API key may not be used from this address";
                Self::new(ErrorKind::Permission, StatusCode::FORBIDDEN, text).code("address_not_allowed")
            }
            Refused::KeysBehind => {
                let text =
                    "this gateway does not know the API key, and cannot look for newer ones at the moment";
                Self::unavailable(text.to_owned()).code("keys_unavailable")
            }
            Refused::ModelUnknown(model) => {
                let text = format!(
                    "the model `{}` does not exist; GET /v1/models lists those that do",
                    shown(&model)
                );
                Self::new(ErrorKind::NotFound, StatusCode::NOT_FOUND, text).code("model_not_found")
            }
            Refused::ModelForbidden(model) => {
                let text = format!("the model `{}` is not open to this API key", shown(&model));
                Self::new(ErrorKind::Permission, StatusCode::FORBIDDEN, text).code("model_not_allowed")
            }
            Refused::UserDisabled => {
                let text = "the end user that the call names is disabled";
                Self::new(ErrorKind::Permission, StatusCode::FORBIDDEN, text).code("user_disabled")
            }
            Refused::BadSubject(text) => Self::invalid(text).code("invalid_subject"),
            Refused::Unpriced(model) => {
                let text = format!(
                    "the model `{}` has no price, and a budget of this call counts cost",
                    shown(&model)
                );
                Self::new(ErrorKind::InvalidRequest, StatusCode::BAD_REQUEST, text)
                    .code("model_unpriced")
                    .retry(Retry::Never(None))
            }
            Refused::UnpricedTool(tool) => {
                let text = format!(
                    "the hosted tool `{tool}` has no fee in the price of this model, and a budget of this call counts cost"
                );
                Self::new(ErrorKind::InvalidRequest, StatusCode::BAD_REQUEST, text)
                    .code("tool_unpriced")
                    .retry(Retry::Never(None))
            }
            Refused::WrongDialect(model) => {
                let text = format!("the model `{}` is not served on this path", shown(&model));
                Self::invalid(text).code("model_not_on_path")
            }
            Refused::Unmetered => {
                let text = "what this path starts is billed later and cannot be counted against the limits of this API key";
                Self::new(ErrorKind::Permission, StatusCode::FORBIDDEN, text)
                    .code("path_not_metered")
                    .retry(Retry::Never(None))
            }
            Refused::Immense => {
                let text = "the request's demand is larger than any limit can hold";
                Self::new(ErrorKind::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, text)
                    .code("request_too_large")
                    .retry(Retry::Never(None))
            }
            Refused::Limit(limit) => Self::limit(&limit, dialect, jitter),
            Refused::Away { limit } => {
                let text = "limits cannot be checked at the moment";
                let text = limit.map_or_else(|| text.to_owned(), |name| format!("{text} (`{name}`)"));
                Self::unavailable(text).code("ledger_unavailable")
            }
            Refused::Stopping => Self::unavailable("the gateway is shutting down").code("shutting_down"),
            Refused::Internal => {
                Self::new(ErrorKind::Internal, StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed")
                    .code("internal_error")
                    .retry(Retry::After(Duration::from_secs(1)))
            }
        }
    }

    fn limit(limit: &LimitRefusal, dialect: Dialect, jitter: u16) -> Self {
        let figures = Some(Box::new(limit.figures));
        if limit.kind == DenyKind::TooLarge {
            let mut text =
                format!("the request asks for {}, more than the whole limit", amount(limit, limit.demand));
            push_standing(&mut text, limit);
            let mut problem = Self::new(ErrorKind::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, text)
                .code("request_too_large")
                .retry(Retry::Never(None));
            problem.figures = figures;
            return problem;
        }
        if limit.hard && limit.is_spent() {
            let mut problem = Self::spent(limit, dialect);
            problem.figures = figures;
            return problem;
        }
        let after = limit.wait().map(|after| jittered(Duration::from_micros(after), jitter));
        let mut text = format!("rate limit reached for {} on {}", limit.subject, measure(limit));
        push_standing(&mut text, limit);
        if let Some(after) = after {
            let _ = write!(text, ". Please try again in {}.{:03}s.", after.as_secs(), after.subsec_millis());
        }
        let mut problem = Self::new(ErrorKind::RateLimit, StatusCode::TOO_MANY_REQUESTS, text)
            .code("rate_limit_exceeded")
            .retry(after.map_or(Retry::Never(None), Retry::After));
        problem.type_ = Some(match limit.measure {
            Measure::Requests | Measure::Concurrency => "requests",
            Measure::Tokens | Measure::InputTokens | Measure::OutputTokens | Measure::Cost => "tokens",
        });
        problem.figures = figures;
        problem
    }

    /// A hard quota that is used up: not a matter of waiting a little.
    fn spent(limit: &LimitRefusal, dialect: Dialect) -> Self {
        let mut text = format!("the {} quota of {} is used up", measure(limit), limit.subject);
        push_standing(&mut text, limit);
        let after = limit.wait().map(Duration::from_micros);
        let reset_at = limit.wait().map(|after| limit.now.saturating_add(after).div_ceil(1_000_000));
        match reset_at {
            Some(at) => drop(write!(text, "; it starts anew at {}", figures::rfc3339(at))),
            None => text.push_str("; it does not start anew by itself"),
        }
        let status = match dialect {
            Dialect::OpenAi => StatusCode::TOO_MANY_REQUESTS,
            Dialect::Anthropic => StatusCode::PAYMENT_REQUIRED,
        };
        let mut problem = Self::new(ErrorKind::InsufficientQuota, status, text)
            .code("insufficient_quota")
            .retry(Retry::Never(after));
        problem.reset_at = reset_at;
        problem
    }
}

fn unauthorized(text: &'static str, code: &'static str) -> Problem {
    Problem::new(ErrorKind::Authentication, StatusCode::UNAUTHORIZED, text).code(code)
}

/// A name from a client, short and printable.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

fn measure(limit: &LimitRefusal) -> String {
    format!("{} {}", word(limit.measure), limit.span)
}

fn word(measure: Measure) -> &'static str {
    match measure {
        Measure::Requests => "requests",
        Measure::Tokens => "tokens",
        Measure::InputTokens => "input tokens",
        Measure::OutputTokens => "output tokens",
        Measure::Cost => "cost",
        Measure::Concurrency => "calls",
    }
}

/// An amount for people: cost in currency units, exact.
fn amount(limit: &LimitRefusal, units: u64) -> String {
    match limit.measure {
        Measure::Cost => format!("{}.{:09}", units / 1_000_000_000, units % 1_000_000_000),
        other => format!("{units} {}", word(other)),
    }
}

/// Writing to a String cannot fail.
fn push_standing(text: &mut String, limit: &LimitRefusal) {
    let plain = |units: i64| match limit.measure {
        Measure::Cost => amount(limit, u64::try_from(units).unwrap_or(0)),
        _ => units.to_string(),
    };
    let ceiling = plain(i64::try_from(limit.ceiling).unwrap_or(i64::MAX));
    let demand = plain(i64::try_from(limit.demand).unwrap_or(i64::MAX));
    let (posted, held) = (plain(limit.posted), plain(limit.held));
    let _ =
        write!(text, " (`{}`): limit {ceiling}, used {posted}, held {held}, requested {demand}", limit.limit);
    if limit.measure == Measure::Cost {
        text.push_str(" in units of the price list's currency");
    }
}

/// Adds 0–20 % to a wait, so that clients told at one moment do not come back at one moment. `jitter` is any number.
fn jittered(after: Duration, jitter: u16) -> Duration {
    let share = u64::from(jitter) * 200 / u64::from(u16::MAX);
    let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(micros.saturating_add(micros / 1000 * share)).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_whole_seconds_rounded_up_and_never_zero() {
        for (millis, seconds) in [(0, "1"), (1, "1"), (999, "1"), (1000, "1"), (1001, "2"), (37_200, "38")] {
            let mut out = HeaderMap::new();
            Retry::After(Duration::from_millis(millis)).write(&mut out);
            assert_eq!(out[header::RETRY_AFTER], seconds);
            assert_eq!(out["retry-after-ms"], millis.max(1).to_string());
            assert!(!out.contains_key("x-should-retry"));
        }
    }

    #[test]
    fn b153_long_waits_tell_clients_not_to_retry() {
        let mut out = HeaderMap::new();
        Retry::After(Duration::from_secs(61)).write(&mut out);
        assert_eq!(out["x-should-retry"], "false");
        assert_eq!(out[header::RETRY_AFTER], "61");
        assert!(!out.contains_key("retry-after-ms"));
        let mut out = HeaderMap::new();
        Retry::Never(Some(Duration::from_secs(9 * 86_400))).write(&mut out);
        assert_eq!(out["x-should-retry"], "false");
        assert!(!out.contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn jitter_adds_at_most_a_fifth_and_never_shortens() {
        let after = Duration::from_millis(1500);
        assert_eq!(jittered(after, 0), after);
        assert_eq!(jittered(after, u16::MAX), Duration::from_millis(1800));
    }
}
