//! Errors that the gateway itself answers, in the client's dialect, as a body or as a streaming event.
//!
//! Invariants: every error is JSON of the dialect's own shape; its type is never null and never a word like
//! "None"; the status, type and code of one kind always agree (B148, B149). Texts are escaped, never trusted.

use serde::Serialize;

use crate::surface::Dialect;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    InvalidRequest,
    Authentication,
    Permission,
    NotFound,
    MethodNotAllowed,
    /// The body, or one request's demand, is larger than can ever pass.
    TooLarge,
    RateLimit,
    /// A budget or hard quota is spent.
    InsufficientQuota,
    /// Nothing wrong with the request: too much is going on.
    Overloaded,
    /// The upstream's answer cannot be used.
    Upstream,
    /// The gateway cannot decide just now.
    Unavailable,
    Timeout,
    Internal,
    /// A stream ended before its answer did.
    StreamIncomplete,
}

/// What replaces a kind's own words; `None` keeps them.
#[derive(Debug, Clone, Copy, Default)]
pub struct ErrorDetail<'a> {
    /// OpenAI `error.type`, e.g. `tokens` or `requests` on a rate refusal.
    pub kind: Option<&'a str>,
    /// OpenAI `error.code`.
    pub code: Option<&'a str>,
    /// OpenAI `error.param`.
    pub param: Option<&'a str>,
}

impl ErrorKind {
    pub const ALL: [Self; 14] = [
        Self::InvalidRequest,
        Self::Authentication,
        Self::Permission,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::TooLarge,
        Self::RateLimit,
        Self::InsufficientQuota,
        Self::Overloaded,
        Self::Upstream,
        Self::Unavailable,
        Self::Timeout,
        Self::Internal,
        Self::StreamIncomplete,
    ];

    /// The HTTP status that goes with it.
    pub fn status(self, dialect: Dialect) -> u16 {
        match (self, dialect) {
            (Self::InvalidRequest, _) => 400,
            (Self::Authentication, _) => 401,
            (Self::InsufficientQuota, Dialect::Anthropic) => 402,
            (Self::Permission, _) => 403,
            (Self::NotFound, _) => 404,
            (Self::MethodNotAllowed, _) => 405,
            (Self::TooLarge, _) => 413,
            (Self::RateLimit, _) | (Self::InsufficientQuota, Dialect::OpenAi) => 429,
            (Self::Internal, _) => 500,
            (Self::Upstream | Self::StreamIncomplete, _) => 502,
            (Self::Overloaded, Dialect::OpenAi) | (Self::Unavailable, _) => 503,
            (Self::Timeout, _) => 504,
            (Self::Overloaded, Dialect::Anthropic) => 529,
        }
    }

    /// Anthropic `error.type`.
    pub fn anthropic_type(self) -> &'static str {
        match self {
            Self::InvalidRequest | Self::MethodNotAllowed => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::Permission => "permission_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::RateLimit => "rate_limit_error",
            Self::InsufficientQuota => "billing_error",
            Self::Overloaded | Self::Unavailable => "overloaded_error",
            Self::Timeout => "timeout_error",
            Self::Upstream | Self::Internal | Self::StreamIncomplete => "api_error",
        }
    }

    /// OpenAI `error.type`.
    pub fn openai_type(self) -> &'static str {
        self.openai_words().0
    }

    /// OpenAI `error.type` and `error.code`.
    fn openai_words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::InvalidRequest => ("invalid_request_error", None),
            Self::Authentication => ("invalid_request_error", Some("invalid_api_key")),
            Self::Permission => ("invalid_request_error", Some("permission_denied")),
            Self::NotFound => ("invalid_request_error", Some("not_found")),
            Self::MethodNotAllowed => ("invalid_request_error", Some("method_not_allowed")),
            Self::TooLarge => ("invalid_request_error", Some("request_too_large")),
            Self::RateLimit => ("requests", Some("rate_limit_exceeded")),
            Self::InsufficientQuota => ("insufficient_quota", Some("insufficient_quota")),
            Self::Overloaded => ("server_error", Some("overloaded")),
            Self::Upstream => ("server_error", Some("upstream_error")),
            Self::Unavailable => ("server_error", Some("service_unavailable")),
            Self::Timeout => ("server_error", Some("timeout")),
            Self::Internal => ("server_error", Some("internal_error")),
            Self::StreamIncomplete => ("server_error", Some("stream_incomplete")),
        }
    }
}

#[derive(Serialize)]
struct OpenAiBody<'a> {
    error: OpenAiError<'a>,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

#[derive(Serialize)]
struct AnthropicBody<'a> {
    r#type: &'static str,
    error: AnthropicError<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    r#type: &'static str,
    message: &'a str,
}

/// The body of an error answer.
pub fn error_body(
    dialect: Dialect,
    kind: ErrorKind,
    detail: ErrorDetail<'_>,
    message: &str,
    request_id: &str,
) -> Vec<u8> {
    match dialect {
        Dialect::OpenAi => {
            let (own_kind, own_code) = kind.openai_words();
            json(&OpenAiBody {
                error: OpenAiError {
                    message,
                    r#type: detail.kind.unwrap_or(own_kind),
                    param: detail.param,
                    code: detail.code.or(own_code),
                },
            })
        }
        Dialect::Anthropic => json(&AnthropicBody {
            r#type: "error",
            error: AnthropicError { r#type: kind.anthropic_type(), message },
            request_id,
        }),
    }
}

/// The same error as the dialect's event in a stream that has begun.
pub fn error_event(
    dialect: Dialect,
    kind: ErrorKind,
    detail: ErrorDetail<'_>,
    message: &str,
    request_id: &str,
) -> Vec<u8> {
    let name: &[u8] = match dialect {
        Dialect::OpenAi => b"",
        Dialect::Anthropic => b"event: error\n",
    };
    [name, b"data: ", &error_body(dialect, kind, detail, message, request_id), b"\n\n"].concat()
}

/// JSON of our own shapes, which always has a text form.
pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
