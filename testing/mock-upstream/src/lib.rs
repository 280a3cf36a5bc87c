//! A fake provider for tests: every surface of both dialects, scripted down to the single write, with a record of its own.
//!
//! Invariants: how a call is answered depends only on the script chosen for it and on its body; the record is kept from
//! what left through the socket, never from what the gateway says. It speaks HTTP/1.1 on a bare socket instead of using
//! a library, because a library's buffers hide which byte has left and when the peer was gone.
//! Never ships in the gateway's data path; knows nothing of any other room.
//!
//! A script is chosen in this order: the call's own (header `x-mock-script`, `metadata.mock`, or `user` /
//! `metadata.user_id` starting with `mock:`, each with a script as JSON), that of its model, the next in the queue, the
//! default.

mod ask;
mod control;
mod generate;
mod http;
mod plan;
mod play;
mod record;
mod script;
mod serve;
mod surfaces;
mod upstream;
mod usage;

pub use record::{Afterwards, CALLS_KEPT_MAX, Dialect, Ending, Recorded, Totals, Usage};
pub use script::{Answer, ErrorBody, Framing, Generate, LineEnd, Script, Step, ToolCall, UsageMode};
pub use upstream::{MockUpstream, QUEUE_MAX};
