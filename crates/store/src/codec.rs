//! Entry bodies as bytes: a compact JSON twin of [`EntryBody`] with short keys, absent meaning default.
//!
//! Invariants: what is encoded decodes to the same body within the bounds; an encoded body has at most [`BODY_MAX`]
//! bytes, a context at most `CONTEXT_MAX`. A key is never reused for another meaning; unknown keys of this version are
//! skipped, another version is an error.

use std::borrow::Cow;

use serde::Deserialize;

use crate::{Ending, EntryBody, Figures, Flags, Hold, LADDER_MAX, Lapse, Line, Name, Overrun, Side, Usage};

/// Longest encoded body, in bytes.
pub const BODY_MAX: usize = 2048;

pub(crate) const VERSION: u8 = 1;

/// A body that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    #[error("the entry's body is longer than {BODY_MAX} bytes")]
    TooLong,
    #[error("the entry's body has version {0}, known is {VERSION}")]
    Version(u8),
    #[error("the entry's body is damaged at byte {0}")]
    Damaged(usize),
}

impl EntryBody {
    /// Reads what `encode` or `context` wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        if bytes.len() > BODY_MAX {
            return Err(CodecError::TooLong);
        }
        if bytes.first() != Some(&b'{') {
            return Err(CodecError::Damaged(0));
        }
        let twin: Twin<'_> =
            serde_json::from_slice(bytes).map_err(|e| CodecError::Damaged(e.column().saturating_sub(1)))?;
        if twin.v == VERSION { Ok(twin.body()) } else { Err(CodecError::Version(twin.v)) }
    }
}

/// The stored form; members are named as their keys.
#[derive(Deserialize)]
struct Twin<'a> {
    v: u8,
    #[serde(default)]
    s: u8,
    #[serde(borrow, default)]
    r: Cow<'a, str>,
    #[serde(borrow, default)]
    t: Cow<'a, str>,
    #[serde(borrow, default)]
    p: Cow<'a, str>,
    #[serde(borrow, default)]
    k: Cow<'a, str>,
    #[serde(borrow, default)]
    b: Cow<'a, str>,
    #[serde(borrow, default)]
    u: Cow<'a, str>,
    /// Absent when equal to `m`.
    #[serde(borrow, default)]
    ma: Option<Cow<'a, str>>,
    /// Absent when equal to `m`.
    #[serde(borrow, default)]
    mp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    m: Cow<'a, str>,
    #[serde(borrow, default)]
    o: Cow<'a, str>,
    #[serde(default)]
    ui: i64,
    #[serde(default)]
    uc: i64,
    #[serde(default)]
    uw: i64,
    #[serde(default)]
    uh: i64,
    #[serde(default)]
    uo: i64,
    #[serde(default)]
    ur: i64,
    #[serde(default)]
    ai: i64,
    #[serde(default)]
    ao: i64,
    #[serde(default)]
    im: i64,
    #[serde(default)]
    ws: i64,
    #[serde(default)]
    c: i64,
    #[serde(default)]
    pv: u64,
    #[serde(default)]
    hi: u64,
    #[serde(default)]
    he: u64,
    #[serde(default)]
    hw: u64,
    #[serde(default)]
    hc: u64,
    #[serde(default)]
    hd: u64,
    #[serde(default)]
    hx: bool,
    /// Account, base, per output.
    #[serde(default)]
    lo: Option<(u64, u64, u64)>,
    #[serde(default)]
    lc: Option<(u64, u64, u64)>,
    #[serde(default)]
    f: u8,
    #[serde(default)]
    e: u8,
    #[serde(default)]
    x: u64,
    #[serde(default)]
    xc: u64,
    #[serde(borrow, default)]
    l: Vec<Cow<'a, str>>,
    #[serde(default)]
    d: u32,
    #[serde(default)]
    df: Option<u32>,
    #[serde(default)]
    n: u16,
    #[serde(default)]
    g: u8,
}

fn line((account, base, per_output): (u64, u64, u64)) -> Line {
    Line { account, base, per_output }
}

impl Twin<'_> {
    fn body(self) -> EntryBody {
        let name = |text: Cow<'_, str>| Name::from(text);
        let model_used = name(self.m);
        EntryBody {
            side: Side::of(self.s),
            request_id: name(self.r),
            tenant: name(self.t),
            project: name(self.p),
            key: name(self.k),
            service: name(self.b),
            user: name(self.u),
            model_asked: self.ma.map_or_else(|| Name::clone(&model_used), name),
            model_priced: self.mp.map_or_else(|| Name::clone(&model_used), name),
            model_used,
            pool: name(self.o),
            usage: Usage {
                input: self.ui,
                cached: self.uc,
                cache_write: self.uw,
                cache_write_1h: self.uh,
                output: self.uo,
                reasoning: self.ur,
                audio_input: self.ai,
                audio_output: self.ao,
                image_input: self.im,
                web_searches: self.ws,
            },
            cost_nano: self.c,
            price_version: self.pv,
            hold: Hold {
                input_llm_tokens: self.hi,
                expected_llm_tokens: self.he,
                worst_llm_tokens: self.hw,
                expected_cost_nano: self.hc,
                worst_cost_nano: self.hd,
                charged_on_expiry: self.hx,
            },
            lapse: Lapse { output: self.lo.map(line), cost: self.lc.map(line) },
            figures: Figures::of(self.f),
            ending: Ending::of(self.e),
            overrun: Overrun { llm_tokens: self.x, cost_nano: self.xc },
            ladder: self.l.into_iter().take(LADDER_MAX).map(name).collect(),
            latency_ms: self.d,
            ttft_ms: self.df,
            attempts: self.n,
            flags: Flags::of(self.g),
        }
    }
}
