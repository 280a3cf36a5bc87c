//! Every error that the gateway answers with instead of a provider, for the documentation.
//!
//! A test reads the gateway's source: a code that is missing here, or here and not there, fails it.

use serde_json::{Value, json};
use tollbook_wire::{Dialect, ErrorKind};

/// One code, as OpenAI's clients see it in `error.code`; Anthropic's see the kind's type.
struct ErrorDoc {
    code: &'static str,
    kind: ErrorKind,
    meaning: &'static str,
}

const fn doc(code: &'static str, kind: ErrorKind, meaning: &'static str) -> ErrorDoc {
    ErrorDoc { code, kind, meaning }
}

const ERRORS: [ErrorDoc; 31] = [
    doc("missing_api_key", ErrorKind::Authentication, "No key was shown."),
    doc(
        "invalid_api_key",
        ErrorKind::Authentication,
        "The key is unknown, disabled or expired, or two different ones were shown.",
    ),
    doc("model_not_found", ErrorKind::NotFound, "There is no such model."),
    doc("model_not_allowed", ErrorKind::Permission, "The model exists, but not for this key."),
    doc("address_not_allowed", ErrorKind::Permission, "The key may not be used from this address."),
    doc(
        "model_not_on_path",
        ErrorKind::InvalidRequest,
        "The model speaks the other dialect, or `surfaces` keeps it off this path.",
    ),
    doc("model_unpriced", ErrorKind::InvalidRequest, "A budget binds the call, and the model has no price."),
    doc(
        "tool_unpriced",
        ErrorKind::InvalidRequest,
        "A budget binds the call, and a tool that it lets the provider run has no fee in the model's price.",
    ),
    doc(
        "invalid_subject",
        ErrorKind::InvalidRequest,
        "The service or end user that a header names cannot be one.",
    ),
    doc("user_disabled", ErrorKind::Permission, "The end user that the call names is disabled."),
    doc("invalid_task", ErrorKind::InvalidRequest, "The header `x-tollbook-task` is no task's tag."),
    doc(
        "request_too_large",
        ErrorKind::TooLarge,
        "The body, or what the call may use, is larger than can ever pass.",
    ),
    doc("request_timeout", ErrorKind::InvalidRequest, "The body did not arrive in time."),
    doc(
        "rate_limit_exceeded",
        ErrorKind::RateLimit,
        "A limit is reached; the hint says when to come back. Providers' own limits are told with it too.",
    ),
    doc(
        "too_many_streams",
        ErrorKind::RateLimit,
        "The key has as many streams open as `http.streams_per_key_max` lets it.",
    ),
    doc(
        "insufficient_quota",
        ErrorKind::InsufficientQuota,
        "A hard quota or budget is used up; waiting a little does not help.",
    ),
    doc("ledger_unavailable", ErrorKind::Unavailable, "Limits cannot be checked at the moment."),
    doc("overloaded", ErrorKind::Unavailable, "All request bodies together are at their bound; come again."),
    doc(
        "keys_unavailable",
        ErrorKind::Unavailable,
        "The key is unknown here and may be new: what operators changed last cannot be read, or does not fit this gateway's file.",
    ),
    doc("shutting_down", ErrorKind::Unavailable, "The gateway is stopping."),
    doc("internal_error", ErrorKind::Internal, "The gateway's own fault; its log knows more."),
    doc("not_found", ErrorKind::NotFound, "There is nothing at this path."),
    doc(
        "path_not_metered",
        ErrorKind::Permission,
        "The path starts what the provider bills later; it is closed to keys bound to models, llm_tokens or cost.",
    ),
    doc(
        "realtime_not_served",
        ErrorKind::InvalidRequest,
        "WebSocket and realtime connections are not served.",
    ),
    doc(
        "malformed_request",
        ErrorKind::InvalidRequest,
        "The request's head could be read in two ways, or is too large.",
    ),
    doc("method_not_allowed", ErrorKind::MethodNotAllowed, "The path takes another method."),
    doc("upstream_error", ErrorKind::Upstream, "The provider failed, or its answer cannot be used."),
    doc("upstream_exhausted", ErrorKind::Unavailable, "Our account with the provider is used up."),
    doc("upstream_overloaded", ErrorKind::Overloaded, "The provider is overloaded."),
    doc(
        "upstream_refused",
        ErrorKind::InvalidRequest,
        "The provider refused the request; its status is passed on.",
    ),
    doc("upstream_timeout", ErrorKind::Timeout, "The provider did not answer in time."),
];

/// The list as `tollbook errors-list` prints it.
pub(crate) fn list() -> Value {
    let entry = |error: &ErrorDoc| {
        let (openai, anthropic) = (error.kind.status(Dialect::OpenAi), error.kind.status(Dialect::Anthropic));
        let status =
            if openai == anthropic { openai.to_string() } else { format!("{openai}, Anthropic {anthropic}") };
        json!({
            "code": error.code, "status": status, "openai": error.kind.openai_type(),
            "anthropic": error.kind.anthropic_type(), "meaning": error.meaning,
        })
    };
    ERRORS.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_of_the_gateway_is_told_and_no_other() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/src");
        let mut used = BTreeSet::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for after in text.split(".code(\"").skip(1) {
                used.insert(after.split('"').next().unwrap().to_owned());
            }
            // The two that are passed on as an argument.
            for code in ["missing_api_key", "invalid_api_key"] {
                if text.contains(&format!("\"{code}\"")) {
                    used.insert(code.to_owned());
                }
            }
        }
        let told: BTreeSet<String> = ERRORS.iter().map(|error| error.code.to_owned()).collect();
        assert_eq!(told, used);
    }
}
