//! Limit headers in the client's dialect, and the IETF fields beside them.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tollbook_admission::{Figure, Figures};
use tollbook_wire::Dialect;

use crate::headers::{X_REQUEST_ID, value};

/// Names of one figure's three fields, and its name in the IETF fields. Constants: no name is checked at run time.
struct Names {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
    short: &'static str,
}

const OPENAI_REQUESTS: Names = Names {
    limit: HeaderName::from_static("x-ratelimit-limit-requests"),
    remaining: HeaderName::from_static("x-ratelimit-remaining-requests"),
    reset: HeaderName::from_static("x-ratelimit-reset-requests"),
    short: "requests",
};
const OPENAI_LLM_TOKENS: Names = Names {
    limit: HeaderName::from_static("x-ratelimit-limit-tokens"),
    remaining: HeaderName::from_static("x-ratelimit-remaining-tokens"),
    reset: HeaderName::from_static("x-ratelimit-reset-tokens"),
    short: "tokens",
};
const ANTHROPIC_REQUESTS: Names = Names {
    limit: HeaderName::from_static("anthropic-ratelimit-requests-limit"),
    remaining: HeaderName::from_static("anthropic-ratelimit-requests-remaining"),
    reset: HeaderName::from_static("anthropic-ratelimit-requests-reset"),
    short: "requests",
};
const ANTHROPIC_LLM_TOKENS: Names = Names {
    limit: HeaderName::from_static("anthropic-ratelimit-tokens-limit"),
    remaining: HeaderName::from_static("anthropic-ratelimit-tokens-remaining"),
    reset: HeaderName::from_static("anthropic-ratelimit-tokens-reset"),
    short: "tokens",
};
const ANTHROPIC_INPUT: Names = Names {
    limit: HeaderName::from_static("anthropic-ratelimit-input-tokens-limit"),
    remaining: HeaderName::from_static("anthropic-ratelimit-input-tokens-remaining"),
    reset: HeaderName::from_static("anthropic-ratelimit-input-tokens-reset"),
    short: "input-tokens",
};
const ANTHROPIC_OUTPUT: Names = Names {
    limit: HeaderName::from_static("anthropic-ratelimit-output-tokens-limit"),
    remaining: HeaderName::from_static("anthropic-ratelimit-output-tokens-remaining"),
    reset: HeaderName::from_static("anthropic-ratelimit-output-tokens-reset"),
    short: "output-tokens",
};
/// The book was away when the call was decided.
const DEGRADED: HeaderName = HeaderName::from_static("x-tollbook-degraded");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Requests and llm_tokens as OpenAI names them.
fn openai(figures: &Figures) -> [Option<(Names, Figure)>; 2] {
    [figures.requests.map(|f| (OPENAI_REQUESTS, f)), figures.llm_tokens.map(|f| (OPENAI_LLM_TOKENS, f))]
}

/// The same and the two sides, as Anthropic names them.
fn anthropic(figures: &Figures) -> [Option<(Names, Figure)>; 4] {
    [
        figures.requests.map(|f| (ANTHROPIC_REQUESTS, f)),
        figures.llm_tokens.map(|f| (ANTHROPIC_LLM_TOKENS, f)),
        figures.input_llm_tokens.map(|f| (ANTHROPIC_INPUT, f)),
        figures.output_llm_tokens.map(|f| (ANTHROPIC_OUTPUT, f)),
    ]
}

/// Writes every figure there is. `at`: the time to count RFC 3339 resets from, UTC seconds; now if absent.
pub(crate) fn write(out: &mut HeaderMap, dialect: Dialect, figures: &Figures, at: Option<u64>) {
    if let Some(degraded) = figures.degraded {
        out.insert(DEGRADED, HeaderValue::from_static(degraded.word()));
    }
    let mut ietf = String::with_capacity(96);
    let mut policy = String::with_capacity(96);
    match dialect {
        Dialect::OpenAi => {
            for (names, figure) in openai(figures).into_iter().flatten() {
                let reset = go_duration(Duration::from_micros(figure.reset));
                write_one(out, &mut ietf, &mut policy, names, figure, reset);
            }
        }
        Dialect::Anthropic => {
            let now = at.unwrap_or_else(wall_seconds);
            for (names, figure) in anthropic(figures).into_iter().flatten() {
                let reset = rfc3339(now.saturating_add(figure.reset.div_ceil(1_000_000)));
                write_one(out, &mut ietf, &mut policy, names, figure, reset);
            }
        }
    }
    if !ietf.is_empty() {
        out.insert(RATE_LIMIT, owned(ietf));
        out.insert(RATE_LIMIT_POLICY, owned(policy));
    }
}

fn write_one(
    out: &mut HeaderMap,
    ietf: &mut String,
    policy: &mut String,
    names: Names,
    figure: Figure,
    reset: String,
) {
    out.insert(names.limit, HeaderValue::from(figure.ceiling));
    out.insert(names.remaining, HeaderValue::from(figure.remaining));
    out.insert(names.reset, owned(reset));
    let seconds = figure.reset.div_ceil(1_000_000);
    for list in [&mut *ietf, &mut *policy] {
        list.push_str(if list.is_empty() { "\"" } else { ", \"" });
        list.push_str(names.short);
        list.push('"');
    }
    push_pair(ietf, ";r=", figure.remaining);
    push_pair(ietf, ";t=", seconds);
    push_pair(policy, ";q=", figure.ceiling);
    if figure.window > 0 {
        push_pair(policy, ";w=", figure.window / 1_000_000);
    }
}

/// A name and a number, without the formatting machinery: this runs for every call.
fn push_pair(out: &mut String, name: &str, number: u64) {
    out.push_str(name);
    out.push_str(itoa::Buffer::new().format(number));
}

/// A header value of text made here, without a copy.
fn owned(text: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The request id under both names clients look for.
pub(crate) fn write_request_id(out: &mut HeaderMap, request_id: &str) {
    let id = value(request_id);
    out.insert(REQUEST_ID, id.clone());
    out.insert(X_REQUEST_ID, id);
}

/// A duration as OpenAI writes it: `20ms`, `1.5s`, `6m0s`, `2h15m0s`.
fn go_duration(span: Duration) -> String {
    let millis = span.as_millis();
    let mut out = String::with_capacity(16);
    if millis < 1000 {
        push_pair(&mut out, "", u64::try_from(millis).unwrap_or(u64::MAX));
        out.push_str("ms");
        return out;
    }
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, rest) = (millis / 1000 % 60, millis % 1000);
    if hours > 0 {
        let _ = write!(out, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(out, "{minutes}m");
    }
    let _ = write!(out, "{seconds}");
    if rest > 0 {
        let _ = write!(out, ".{rest:03}");
        out.truncate(out.trim_end_matches('0').len());
    }
    out.push('s');
    out
}

/// UTC seconds as RFC 3339.
pub(crate) fn rfc3339(seconds: u64) -> String {
    i64::try_from(seconds)
        .ok()
        .and_then(|s| jiff::Timestamp::from_second(s).ok())
        .map_or_else(|| "9999-12-31T23:59:59Z".to_owned(), |t| t.to_string())
}

/// The wall clock, for dates clients read; no limit is decided by it.
#[allow(clippy::disallowed_methods, reason = "a date for people and headers, not an input to a decision")]
pub(crate) fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_openais() {
        let cases = [
            (20, "20ms"),
            (1000, "1s"),
            (1500, "1.5s"),
            (90_500, "1m30.5s"),
            (360_000, "6m0s"),
            (8_100_000, "2h15m0s"),
        ];
        for (millis, text) in cases {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn both_dialects_tell_the_same_figures() {
        let figure = Figure { ceiling: 10, remaining: 3, reset: 1_500_000, window: 60_000_000 };
        let figures = Figures { requests: Some(figure), ..Figures::default() };
        let mut out = HeaderMap::new();
        write(&mut out, Dialect::OpenAi, &figures, None);
        assert_eq!(out["x-ratelimit-limit-requests"], "10");
        assert_eq!(out["x-ratelimit-remaining-requests"], "3");
        assert_eq!(out["x-ratelimit-reset-requests"], "1.5s");
        assert_eq!(out["ratelimit"], "\"requests\";r=3;t=2");
        assert_eq!(out["ratelimit-policy"], "\"requests\";q=10;w=60");
        assert!(!out.contains_key("x-ratelimit-limit-tokens"));
        let mut out = HeaderMap::new();
        write(&mut out, Dialect::Anthropic, &figures, Some(0));
        assert_eq!(out["anthropic-ratelimit-requests-reset"], "1970-01-01T00:00:02Z");
    }
}
