//! Traces: what a call was, told to those who watch; one span per call and one per try at a provider.
//!
//! Invariants: where no collector is configured there is no [`Tracer`], and a call costs nothing for it. A call that is
//! not sampled costs a few random numbers. Finished calls wait in a bounded queue; past the bound they are dropped and
//! counted, so a collector that is slow or dead delays no call. No prompt, answer, key or header value is ever an
//! attribute, and every text that comes from outside is cut to [`TEXT_MAX`].

mod attributes;
mod call;
mod context;
mod tracer;

pub use attributes::{AttributeDoc, Key, TEXT_MAX, Value};
pub use call::{ATTEMPTS_MAX, CallTrace};
pub use context::{Context, STATE_MAX, SpanId, TraceId};
pub use tracer::{ONE, Span, SpanKind, Tracer, TracerSettings};
