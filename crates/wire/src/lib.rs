//! The wire: request and answer shapes of the OpenAI and Anthropic dialects, and their event streams.
//!
//! Role: bytes in, facts and events out. Requests are read (`decode_request`) and changed by splices (`edits`);
//! answers are metered from a copy (`StreamRelay`, `read_usage`); what the gateway itself says is written here.
//! Invariants: bytes are forwarded as they came but for documented edits; every number from outside is bounded;
//! time is linear in the input and memory per stream is bounded; no input panics.
//! Knows no sockets, no runtime, no clock and no money.

mod answer;
mod body;
mod classes;
mod content;
mod error;
mod hosted;
mod instant;
mod items;
mod json;
mod media;
mod meter;
mod meter_responses;
mod models;
mod names;
mod number;
mod passed;
mod passed_usage;
mod problem;
mod refusal;
mod relay;
mod request;
mod skim;
mod spelling;
mod splice;
mod sse;
mod surface;
mod usage;
mod usage_anthropic;
mod usage_openai;

pub use answer::{StopUsage, broken_stream, done_marker, keepalive, stop_at_limit};
pub use body::{BodyMeter, read_usage};
pub use classes::Classes;
pub use content::{Content, IMAGES_MAX};
pub use error::{At, DecodeError, Side};
pub use hosted::{HostedCalls, HostedTool, HostedTools};
pub use json::DEPTH_MAX;
pub use media::{Detail, Image, SIDE_MAX};
pub use meter::{Meter, Seen, UpstreamErrorFacts};
pub use models::{model_body, models_body};
pub use names::{Names, read_names};
pub use number::USAGE_FIELD_MAX;
pub use passed::{FORM_PARTS_MAX, PART_HEAD_MAX, Passed, decode_passed};
pub use passed_usage::PassedMeter;
pub use problem::{ErrorDetail, ErrorKind, error_body, error_event};
pub use refusal::{Refusal, RefusalClass, WAIT_MS_MAX, classify_refusal};
pub use relay::{StreamEnd, StreamError, StreamRelay};
pub use request::{
    CHOICES_MAX, COMPLETIONS_CAP_UNSAID, MODEL_BYTES_MAX, OUTPUT_CAP_MAX, Request, decode_request, visit_text,
};
pub use splice::{Changes, Edit, apply_edits, edited_len, edits};
pub use sse::{EVENT_BYTES_MAX, SseEvent, SseItem, SseReader};
pub use surface::{Dialect, Surface, Surfaces};
pub use usage::{Anomalies, Usage};
