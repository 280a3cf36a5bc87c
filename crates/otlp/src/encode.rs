//! A batch of spans as OTLP's `ExportTraceServiceRequest`, and what its answer says.
//!
//! Field numbers are those of `opentelemetry/proto/trace/v1`; a test decodes what is written here with the published
//! definitions.

use tollbook_telemetry::trace::{Span, SpanKind, Value};

use crate::protobuf::{Field, Writer, next};

/// Who sends: the same for every batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource {
    pub service: String,
    /// Differs between processes.
    pub instance: String,
    pub version: &'static str,
}

/// What instruments: the scope of all spans.
const SCOPE: &str = "tollbook";
/// The conventions that the attributes follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// `Status.code` of a span that failed.
const STATUS_ERROR: u64 = 2;
/// `Span.flags`: sampled; whether the parent is remote is known; it is.
const FLAG_SAMPLED: u32 = 0x01;
const FLAG_KNOWN: u32 = 0x100;
const FLAG_REMOTE: u32 = 0x200;

/// One request with all the spans.
pub fn encode(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let mut request = Writer::default();
    request.message(1, |out| {
        out.message(1, |out| {
            for (key, value) in [
                ("service.name", resource.service.as_str()),
                ("service.instance.id", &resource.instance),
                ("service.version", resource.version),
            ] {
                out.message(1, |out| pair(out, key, |out| out.bytes(1, value.as_bytes())));
            }
        });
        out.message(2, |out| {
            out.message(1, |out| {
                out.bytes(1, SCOPE.as_bytes());
                out.bytes(2, resource.version.as_bytes());
            });
            for each in spans {
                out.message(2, |out| span(out, each));
            }
            out.bytes(3, SCHEMA.as_bytes());
        });
        out.bytes(3, SCHEMA.as_bytes());
    });
    request.finish()
}

fn span(out: &mut Writer, span: &Span) {
    out.bytes(1, &span.trace.0);
    out.bytes(2, &span.id.0);
    if let Some(state) = &span.state {
        out.bytes(3, state.as_bytes());
    }
    if let Some(parent) = &span.parent {
        out.bytes(4, &parent.0);
    }
    out.bytes(5, span.name.as_bytes());
    out.varint(
        6,
        match span.kind {
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
    );
    out.fixed64(7, span.began);
    out.fixed64(8, span.ended);
    for (key, value) in &span.attributes {
        out.message(9, |out| pair(out, key.name(), |out| any(out, value)));
    }
    if span.failed {
        out.message(15, |out| out.varint(3, STATUS_ERROR));
    }
    let remote = if span.remote { FLAG_REMOTE } else { 0 };
    out.fixed32(16, FLAG_SAMPLED | FLAG_KNOWN | remote);
}

fn pair(out: &mut Writer, key: &str, value: impl FnOnce(&mut Writer)) {
    out.bytes(1, key.as_bytes());
    out.message(2, value);
}

fn any(out: &mut Writer, value: &Value) {
    match value {
        Value::Word(word) => out.bytes(1, word.as_bytes()),
        Value::Text(text) => out.bytes(1, text.as_bytes()),
        Value::Flag(flag) => out.varint(2, u64::from(*flag)),
        // Two's complement, as the format wants it.
        Value::Number(number) => out.varint(3, number.cast_unsigned()),
        Value::Words(words) => out.message(5, |out| {
            for word in words {
                out.message(1, |out| out.bytes(1, word.as_bytes()));
            }
        }),
    }
}

/// How many spans an answer says the collector did not take.
pub(crate) fn rejected(mut answer: &[u8]) -> u64 {
    let mut rejected = 0;
    while let Some(field) = next(&mut answer) {
        let Field::Bytes(1, mut partial) = field else { continue };
        while let Some(field) = next(&mut partial) {
            if let Field::Number(1, count) = field {
                rejected = count;
            }
        }
    }
    rejected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_success_tells_what_was_refused() {
        let mut answer = Writer::default();
        answer.message(1, |out| {
            out.varint(1, 3);
            out.bytes(2, b"too old");
        });
        assert_eq!(rejected(&answer.finish()), 3);
        assert_eq!(rejected(b""), 0);
        assert_eq!(rejected(b"\x0a\x00"), 0);
        assert_eq!(rejected(b"<html>"), 0);
    }
}
