//! What an upstream's refusal means for the call: try the target again, give up, or hand it to the client.
//!
//! The operator's account is the operator's business: its credentials, quotas and hints are never quoted. What the client
//! itself did wrong (400, 404, 413, 422 …) it is told in the provider's words.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tollbook_admission::{Ending, Outcome};
use tollbook_wire::{Dialect, ErrorKind, RefusalClass, Surface, UpstreamErrorFacts};

use crate::figures;
use crate::problem::{Problem, Retry};
use crate::upstream::{SendError, Upstream};
use crate::whole::ErrorAnswer;

/// Pause before a retry when the upstream gave no hint.
const PAUSE: Duration = Duration::from_millis(250);
/// Told to the client when an overloaded upstream gave no hint.
const OVERLOAD_HINT: Duration = Duration::from_secs(2);
/// Longest hint that is passed on.
const HINT_MAX: Duration = Duration::from_secs(60);

/// What becomes of a refused call.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The same target may be tried again after `pause`; if not, the client gets `problem`.
    Retry {
        pause: Duration,
        problem: Problem,
    },
    Give {
        problem: Problem,
    },
    /// The client's own mistake, in the provider's words.
    Pass {
        status: StatusCode,
        body: Bytes,
    },
}

/// Judges a complete error answer.
pub(crate) fn judge(surface: Surface, from: &Upstream, error: ErrorAnswer) -> Verdict {
    let ErrorAnswer { status, head, body } = error;
    let names_our_key = from.is_named_in(&body);
    let upstream = from.config.dialect;
    let lines: Vec<(&str, &str)> =
        head.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
    let now_ms = figures::wall_seconds().saturating_mul(1000);
    let refusal = tollbook_wire::classify_refusal(upstream, status.as_u16(), &lines, &body, now_ms);
    let wait = refusal.wait_ms.map(Duration::from_millis);
    match refusal.class {
        RefusalClass::Wait | RefusalClass::Ramp => {
            let problem =
                busy("the provider's rate limit for this model is reached", wait.unwrap_or(OVERLOAD_HINT));
            Verdict::Retry { pause: wait.unwrap_or(PAUSE), problem }
        }
        RefusalClass::Overload => {
            let mut problem =
                Problem::new(ErrorKind::Overloaded, overloaded(surface), "the provider is overloaded");
            problem.retry = Retry::After(wait.unwrap_or(OVERLOAD_HINT).min(HINT_MAX));
            Verdict::Retry { pause: wait.unwrap_or(PAUSE), problem: problem.code("upstream_overloaded") }
        }
        RefusalClass::ExhaustedUntil | RefusalClass::Permanent => {
            let problem = Problem::new(
                ErrorKind::Unavailable,
                StatusCode::SERVICE_UNAVAILABLE,
                "the provider's account for this model is exhausted; the operator has been told",
            );
            Verdict::Give { problem: problem.code("upstream_exhausted").retry(Retry::Never(None)) }
        }
        RefusalClass::TooLarge | RefusalClass::Other => other(surface, upstream, status, body, names_our_key),
    }
}

fn other(
    surface: Surface,
    upstream: Dialect,
    status: StatusCode,
    body: Bytes,
    names_our_key: bool,
) -> Verdict {
    match status.as_u16() {
        // Wherever it leads: the credential and the prompt go to the configured address and nowhere else.
        300..=399 => Verdict::Give {
            problem: Problem::upstream("the provider answered with a redirect, which is not followed")
                .retry(Retry::Never(None)),
        },
        401 | 403 => {
            let problem = Problem::upstream("the provider does not accept the gateway's own credential");
            Verdict::Give { problem: problem.retry(Retry::Never(None)) }
        }
        400..=499 => {
            let json = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
            // 408 and 409 would make SDKs repeat what cannot be served.
            let status = if matches!(status.as_u16(), 408 | 409) { StatusCode::BAD_REQUEST } else { status };
            if json && upstream == surface.dialect() && !names_our_key {
                return Verdict::Pass { status, body };
            }
            let problem = Problem::new(ErrorKind::InvalidRequest, status, "the provider refused the request");
            Verdict::Give { problem: problem.code("upstream_refused") }
        }
        _ => {
            let problem = Problem::upstream(format!("the provider failed with status {}", status.as_u16()));
            Verdict::Retry { pause: PAUSE, problem: problem.retry(Retry::After(Duration::from_secs(1))) }
        }
    }
}

/// The status by which a dialect says that a provider is overloaded.
fn overloaded(surface: Surface) -> StatusCode {
    match surface.dialect() {
        Dialect::OpenAi => StatusCode::SERVICE_UNAVAILABLE,
        Dialect::Anthropic => StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
    }
}

fn busy(text: &str, wait: Duration) -> Problem {
    Problem::new(ErrorKind::RateLimit, StatusCode::TOO_MANY_REQUESTS, text)
        .code("rate_limit_exceeded")
        .retry(Retry::After(wait.min(HINT_MAX)))
}

/// Judges a try that got no answer: the pause before another, what the client is told, how the call ended.
pub(crate) fn judge_send(error: &SendError) -> (Option<Duration>, Problem, Outcome) {
    match error {
        SendError::NeverSent(text, _) => {
            let problem = Problem::upstream(*text).retry(Retry::After(Duration::from_secs(1)));
            (Some(PAUSE), problem, Outcome::never_sent())
        }
        // The provider may be working on it: a second try could be paid for twice.
        SendError::Cut(text, _) => (None, Problem::upstream(*text), Outcome::buffered_cut(Ending::Reset)),
        SendError::Timeout => {
            let problem = Problem::new(
                ErrorKind::Timeout,
                StatusCode::GATEWAY_TIMEOUT,
                "the provider did not answer in time",
            );
            (None, problem.code("upstream_timeout"), Outcome::buffered_cut(Ending::Timeout))
        }
    }
}

/// An error that came under a 200 before anything else did.
pub(crate) fn error_in_200(error: &UpstreamErrorFacts) -> Problem {
    let busy_words = ["overloaded", "rate_limit", "server_error", "unavailable", "engine_overloaded"];
    let busy = busy_words.iter().any(|w| error.kind.contains(w) || error.code.contains(w));
    if busy {
        let after = Retry::After(OVERLOAD_HINT);
        return Problem::new(
            ErrorKind::Overloaded,
            StatusCode::SERVICE_UNAVAILABLE,
            "the provider is overloaded",
        )
        .code("upstream_overloaded")
        .retry(after);
    }
    Problem::upstream("the provider answered with an error")
}
