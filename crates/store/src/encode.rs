//! Writing entry bodies: the JSON of `codec`, written by hand because every call pays for it four times.
//!
//! Names are cut at their bounds; when the whole is too long all the same, the least needed names are left out, one by
//! one, and the body says so.

use tollbook_ledger::units::CONTEXT_MAX;

use crate::codec::{BODY_MAX, VERSION};
use crate::{EntryBody, Flags, LADDER_MAX, NAME_MAX, Name, REQUEST_ID_MAX};

/// A member's key with what stands around it.
macro_rules! key {
    ($key:literal) => {
        concat!(",\"", $key, "\":")
    };
}

/// Capacity that most bodies fit.
const USUAL: usize = 512;

impl EntryBody {
    /// The bytes to hand to settle, release, rebook or adjust; at most [`BODY_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        within(BODY_MAX, |left_out| {
            let mut line = Line::begin();
            let shortened = line.who(self, left_out) | line.ladder(self, left_out);
            line.outcome(self);
            line.end(Flags { shortened: self.flags.shortened | shortened, ..self.flags })
        })
    }

    /// The shorter bytes a reservation carries for its expiry: who, what and the hold, but no outcome; at most
    /// `CONTEXT_MAX`.
    pub fn context(&self) -> Vec<u8> {
        within(CONTEXT_MAX, |left_out| {
            let mut line = Line::begin();
            let shortened = line.who(self, left_out);
            if left_out < LAPSE_LEFT_OUT {
                line.lapse(key!("lo"), self.lapse.output);
                line.lapse(key!("lc"), self.lapse.cost);
            }
            line.end(Flags { shortened: self.flags.shortened | shortened, ..self.flags })
        })
    }
}

/// How many of the steps of [`Line::who`] are left out; 0 in any ordinary call.
type LeftOut = u8;

/// Most steps; with all of them only numbers are left, which fit any bound.
const LEFT_OUT_MAX: LeftOut = 11;

/// The step that leaves out how an expiry tells its charge, with the user: a guess stands in for it.
const LAPSE_LEFT_OUT: LeftOut = 4;

/// Leaves out more until the bytes fit.
fn within(max: usize, write: impl Fn(LeftOut) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = write(0);
    for left_out in 1..=LEFT_OUT_MAX {
        if bytes.len() <= max {
            break;
        }
        bytes = write(left_out);
    }
    bytes
}

/// One JSON object under way.
struct Line(Vec<u8>);

impl Line {
    fn begin() -> Self {
        let mut line = Self(Vec::with_capacity(USUAL));
        line.0.extend_from_slice(b"{\"v\":");
        line.digits(u64::from(VERSION));
        line
    }

    fn end(mut self, flags: Flags) -> Vec<u8> {
        self.number(key!("g"), u64::from(flags.bits()));
        self.0.push(b'}');
        self.0
    }

    /// Who is charged, for what, and what was held. True if a name was cut or left out. What identifies the charge is
    /// left out last.
    fn who(&mut self, body: &EntryBody, left_out: LeftOut) -> bool {
        let mut cut = false;
        let mut name = |key, text: &Name, max, step: LeftOut| {
            cut |= self.name(key, text, max, left_out >= step);
        };
        name(key!("r"), &body.request_id, REQUEST_ID_MAX, 7);
        name(key!("t"), &body.tenant, NAME_MAX, 11);
        name(key!("p"), &body.project, NAME_MAX, 5);
        name(key!("k"), &body.key, NAME_MAX, 10);
        name(key!("b"), &body.service, NAME_MAX, 6);
        name(key!("u"), &body.user, NAME_MAX, 4);
        name(key!("m"), &body.model_used, NAME_MAX, 9);
        name(key!("o"), &body.pool, NAME_MAX, 8);
        for (key, model, step) in [(key!("ma"), &body.model_asked, 2), (key!("mp"), &body.model_priced, 3)] {
            // The three models are one in most calls; one is written then. An empty one differs from absent.
            if model != &body.model_used {
                cut |= self.other_name(key, model, left_out >= step);
            }
        }
        let hold = &body.hold;
        self.number(key!("s"), u64::from(body.side.code()));
        self.number(key!("pv"), body.price_version);
        self.number(key!("hi"), hold.input_llm_tokens);
        self.number(key!("he"), hold.expected_llm_tokens);
        self.number(key!("hw"), hold.worst_llm_tokens);
        self.number(key!("hc"), hold.expected_cost_nano);
        self.number(key!("hd"), hold.worst_cost_nano);
        if hold.charged_on_expiry {
            self.key(key!("hx"));
            self.0.extend_from_slice(b"true");
        }
        self.number(key!("n"), u64::from(body.attempts));
        cut
    }

    fn lapse(&mut self, key: &str, line: Option<crate::Line>) {
        let Some(crate::Line { account, base, per_output }) = line else { return };
        self.key(key);
        for (start, number) in [(b'[', account), (b',', base), (b',', per_output)] {
            self.0.push(start);
            self.digits(number);
        }
        self.0.push(b']');
    }

    /// What the call used and how it ended.
    fn outcome(&mut self, body: &EntryBody) {
        let usage = &body.usage;
        self.signed(key!("ui"), usage.input);
        self.signed(key!("uc"), usage.cached);
        self.signed(key!("uw"), usage.cache_write);
        self.signed(key!("uh"), usage.cache_write_1h);
        self.signed(key!("uo"), usage.output);
        self.signed(key!("ur"), usage.reasoning);
        self.signed(key!("ai"), usage.audio_input);
        self.signed(key!("ao"), usage.audio_output);
        self.signed(key!("im"), usage.image_input);
        self.signed(key!("ws"), usage.web_searches);
        self.signed(key!("c"), body.cost_nano);
        self.number(key!("f"), u64::from(body.figures.code()));
        self.number(key!("e"), u64::from(body.ending.code()));
        self.number(key!("x"), body.overrun.llm_tokens);
        self.number(key!("xc"), body.overrun.cost_nano);
        self.number(key!("d"), u64::from(body.latency_ms));
        if let Some(ms) = body.ttft_ms {
            self.key(key!("df"));
            self.digits(u64::from(ms));
        }
    }

    fn ladder(&mut self, body: &EntryBody, left_out: LeftOut) -> bool {
        if body.ladder.is_empty() {
            return false;
        }
        if left_out >= 1 {
            return true;
        }
        self.key(key!("l"));
        let mut cut = body.ladder.len() > LADDER_MAX;
        for (i, step) in body.ladder.iter().take(LADDER_MAX).enumerate() {
            self.0.push(if i == 0 { b'[' } else { b',' });
            cut |= self.text(step, NAME_MAX);
        }
        self.0.push(b']');
        cut
    }

    /// A member that is absent when empty. True if it was cut or left out.
    fn name(&mut self, key: &str, text: &Name, max: usize, left_out: bool) -> bool {
        if text.is_empty() || left_out {
            return !text.is_empty();
        }
        self.key(key);
        self.text(text, max)
    }

    /// A member that is absent when it equals another.
    fn other_name(&mut self, key: &str, text: &Name, left_out: bool) -> bool {
        if left_out {
            return true;
        }
        self.key(key);
        self.text(text, NAME_MAX)
    }

    /// A member that is absent when zero.
    fn number(&mut self, key: &str, value: u64) {
        if value != 0 {
            self.key(key);
            self.digits(value);
        }
    }

    fn signed(&mut self, key: &str, value: i64) {
        if value != 0 {
            self.key(key);
            if value < 0 {
                self.0.push(b'-');
            }
            self.digits(value.unsigned_abs());
        }
    }

    fn key(&mut self, key: &str) {
        self.0.extend_from_slice(key.as_bytes());
    }

    /// A JSON string of at most `max` bytes of `text`; true if it was cut.
    fn text(&mut self, text: &str, max: usize) -> bool {
        let kept = text.get(..text.floor_char_boundary(max)).unwrap_or_default();
        self.0.push(b'"');
        // Without a way out in the middle, so that it is a few wide steps.
        if kept.bytes().fold(false, |any, byte| any | is_escaped(byte)) {
            self.escaped(kept);
        } else {
            self.0.extend_from_slice(kept.as_bytes());
        }
        self.0.push(b'"');
        kept.len() < text.len()
    }

    #[cold]
    fn escaped(&mut self, text: &str) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.0.extend_from_slice(&[b'\\', byte]),
                control if is_escaped(control) => {
                    let hex = |n: u8| HEX.get(usize::from(n & 15)).copied().unwrap_or(b'0');
                    self.0.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(control >> 4), hex(control)]);
                }
                plain => self.0.push(plain),
            }
        }
    }

    fn digits(&mut self, mut value: u64) {
        // The largest value has twenty digits.
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
            (value, first) = (value / 10, at);
            if value == 0 {
                break;
            }
        }
        self.0.extend_from_slice(digits.get(first..).unwrap_or_default());
    }
}

/// What JSON does not allow inside a string.
fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}
