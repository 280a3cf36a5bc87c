//! W3C trace context: which trace a call belongs to.
//!
//! What a client sends is checked to the letter; anything else counts as nothing. A `tracestate` is carried on as it
//! came, up to a bound, and only beside a valid `traceparent`.

use std::fmt;

/// Longest `tracestate` that is carried on.
pub const STATE_MAX: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// A place in a trace: whose child the next span is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Context {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: bool,
    pub state: Option<Box<str>>,
}

impl Context {
    /// Reads `traceparent`, and `tracestate` if it is fit to be carried on.
    pub fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let parent = parent.trim_ascii();
        let (version, rest) = parent.split_at_checked(2)?;
        let version = byte(version)?;
        let mut parts = rest.strip_prefix('-')?.splitn(4, '-');
        let (trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?);
        // A later version may add fields behind these; this one may not, and 255 is none.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let trace = TraceId(bytes(trace)?);
        let span = SpanId(bytes(span)?);
        let [flags] = bytes(flags)?;
        if trace.0 == [0; 16] || span.0 == [0; 8] {
            return None;
        }
        let state = state.filter(|state| fit(state)).map(Box::from);
        Some(Self { trace, span, sampled: flags & 1 == 1, state })
    }

    /// As the header `traceparent`.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-0{}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// Printable ASCII, not empty, within the bound.
fn fit(state: &str) -> bool {
    (1..=STATE_MAX).contains(&state.len()) && state.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
}

/// Exactly as many bytes as the array has, in lower-case hexadecimal.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N * 2 {
        return None;
    }
    let mut out = [0; N];
    for (index, slot) in out.iter_mut().enumerate() {
        *slot = byte(text.get(index * 2..index * 2 + 2)?)?;
    }
    Some(out)
}

fn byte(text: &str) -> Option<u8> {
    let lower = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if lower && text.len() == 2 { u8::from_str_radix(text, 16).ok() } else { None }
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Both ids are shown as the header writes them.
macro_rules! shown_in_hex {
    ($($kind:ident),+) => { $(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }

        impl fmt::Debug for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }
    )+ };
}

shown_in_hex!(TraceId, SpanId);

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_read_is_what_is_written() {
        let context = Context::read(GOOD, Some("vendor=1")).unwrap();
        assert_eq!(context.traceparent(), GOOD);
        assert!(context.sampled);
        assert_eq!(context.state.as_deref(), Some("vendor=1"));
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let unsampled = GOOD.replace("-01", "-00");
        assert!(!Context::read(&unsampled, None).unwrap().sampled);
    }

    #[test]
    fn a_later_version_may_say_more() {
        let later = GOOD.replacen("00", "01", 1);
        assert!(Context::read(&later, None).is_some());
        assert!(Context::read(&format!("{later}-more-of-it"), None).is_some());
    }

    #[test]
    fn anything_else_is_nothing() {
        let zeros = "0".repeat(16);
        let rows = [
            String::new(),
            "00".to_owned(),
            "é0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "ff", 1),
            GOOD.replace("-01", ""),
            GOOD.replace("-01", "-1"),
            GOOD.replace("-01", "-01-x"),
            GOOD.replace("4736", "473"),
            GOOD.replace("02b7", "02b7a"),
            GOOD.replace("4bf9", "4bg9"),
            GOOD.replace("4bf9", "+bf9"),
            GOOD.replace("00f067aa0ba902b7", &zeros),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros.repeat(2)),
            GOOD.replace('-', "_"),
        ];
        for row in rows {
            assert_eq!(Context::read(&row, None), None, "{row}");
        }
    }

    #[test]
    fn a_state_is_carried_up_to_its_bound() {
        let state = |text: &str| Context::read(GOOD, Some(text)).unwrap().state;
        assert!(state(&"a".repeat(STATE_MAX)).is_some());
        assert_eq!(state(&"a".repeat(STATE_MAX + 1)), None);
        assert_eq!(state(""), None);
        assert_eq!(state("a=\u{7f}"), None);
        assert_eq!(state("a=é"), None);
    }
}
