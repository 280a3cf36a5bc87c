//! Journal entries: what one attempt of one call was charged, and why.
//!
//! Invariants: bodies carry the truth of an attempt, never negative; an entry of seq ≥ 1 carries the signed difference
//! to the entries before it, so plain sums over entries are right. Ids only: no key's secret, no prompt, no answer.

use std::sync::Arc;

use tollbook_ledger::{AMOUNT_MAX, Attempt, Micros, Posted, ReservationId};

use crate::Day;

/// An id or a configured name; empty means there is none. Cheap to clone.
pub type Name = Arc<str>;

/// Longest id or name an entry carries, in bytes; configuration refuses longer ones, encoding cuts them.
pub const NAME_MAX: usize = 64;
/// Longest request id, in bytes; the gateway makes them.
pub const REQUEST_ID_MAX: usize = 40;
/// Most ladder steps an entry tells.
pub const LADDER_MAX: usize = 8;

/// Which of a call's two reservations an entry ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Side {
    #[default]
    Tenant,
    Pool,
    /// The record's body could not be read; see [`Flags::damaged`].
    Unreadable,
}

/// What makes an entry unique.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryKey {
    pub reservation: ReservationId,
    pub side: Side,
    pub attempt: Attempt,
    /// 0 the end of the attempt, 1.. corrections.
    pub seq: u16,
    /// Unbooked entries are kept apart: they are in no total and no sum (L8).
    pub unbooked: bool,
}

/// The verb that wrote an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Origin {
    #[default]
    Settled,
    Released,
    Expired,
    Rebooked,
    /// A late settle or release, after an expiry (L8).
    Late,
    Adjusted,
    /// A claim for an id the engine no longer knew; no account changed (L8).
    Unbooked,
}

/// One line of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub reservation: ReservationId,
    pub attempt: Attempt,
    pub seq: u16,
    pub origin: Origin,
    /// Engine time of the admission; 0 when unknown.
    pub admitted_at: Micros,
    /// Engine time of the end.
    pub ended_at: Micros,
    /// Calls this entry adds to the tenant's or pool's count of requests.
    pub requests: i64,
    /// What was posted to quotas; rebuilding an account sums these.
    pub posted: Vec<Posted>,
    /// What the caller wrote; in a correction, `usage` and `cost_nano` are signed differences.
    pub body: EntryBody,
}

/// What the caller of settle, release, rebook and adjust writes; the engine carries it as bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryBody {
    pub side: Side,
    pub request_id: Name,
    pub tenant: Name,
    pub project: Name,
    /// The key's id, never its secret.
    pub key: Name,
    pub service: Name,
    pub user: Name,
    /// As the client wrote it.
    pub model_asked: Name,
    /// Whose price was taken.
    pub model_priced: Name,
    /// The configured model that was called.
    pub model_used: Name,
    pub pool: Name,
    pub usage: Usage,
    pub cost_nano: i64,
    /// Version of the price book that hold, settle and journal used; 0 for none.
    pub price_version: u64,
    pub hold: Hold,
    /// In a context alone: how an expiry's postings tell what it charged.
    pub lapse: Lapse,
    pub figures: Figures,
    pub ending: Ending,
    pub overrun: Overrun,
    /// Steps of the overload ladder that were taken, at most [`LADDER_MAX`]; of an entry that an operator posted, who it was
    /// and why.
    pub ladder: Vec<Name>,
    /// From acceptance to the last byte.
    pub latency_ms: u32,
    /// From acceptance to the first output byte.
    pub ttft_ms: Option<u32>,
    /// Times the call was sent upstream.
    pub attempts: u16,
    pub flags: Flags,
}

/// Usage by part. `input` includes cached and written parts, `output` includes reasoning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub input: i64,
    pub cached: i64,
    pub cache_write: i64,
    /// The part of `cache_write` that is kept for an hour.
    pub cache_write_1h: i64,
    pub output: i64,
    pub reasoning: i64,
    pub audio_input: i64,
    pub audio_output: i64,
    pub image_input: i64,
    pub web_searches: i64,
}

/// What was held at the door.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hold {
    /// Input counted or estimated; part of the two below.
    pub input_llm_tokens: u64,
    pub expected_llm_tokens: u64,
    pub worst_llm_tokens: u64,
    pub expected_cost_nano: u64,
    pub worst_cost_nano: u64,
    /// A quota of the call charges its expected demand if the reservation expires.
    pub charged_on_expiry: bool,
}

/// Which of the amounts that an expiry posts tell what was expected of a call. The expected output is learned in the
/// engine, so nobody knew it when the context was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lapse {
    /// Of a charged quota whose amount grows with the output.
    pub output: Option<Line>,
    /// Of an account that counts cost.
    pub cost: Option<Line>,
}

/// An account's amount as a function of the output: ⌈(base + per_output × output) / 1000⌉.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Name of the account, without its subject.
    pub account: u64,
    pub base: u64,
    pub per_output: u64,
}

impl Line {
    pub fn amount(&self, output: u64) -> u64 {
        self.base.saturating_add(self.per_output.saturating_mul(output)).div_ceil(1000)
    }

    /// The largest output that has this amount; `None` where the amount does not depend on it.
    pub fn output(&self, amount: u64) -> Option<u64> {
        amount.saturating_mul(1000).saturating_sub(self.base).checked_div(self.per_output)
    }
}

/// Posted above what was last decided for the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overrun {
    pub llm_tokens: u64,
    pub cost_nano: u64,
}

/// Where the figures come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Figures {
    /// The provider's usage object.
    #[default]
    Reported,
    /// Counted by the gateway: input count and streamed output.
    Metered,
    /// Counted up to where the stream was cut.
    Partial,
    /// Never known; the estimate stands.
    Unknown,
    /// Charged by expiry.
    Expired,
    /// Written by an operator or a job.
    Adjusted,
    /// Nothing was charged: the provider refused.
    Nothing,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Ending {
    #[default]
    Complete,
    /// It never left the gateway.
    NeverSent,
    /// The provider's complete error.
    UpstreamError,
    /// The upstream connection broke.
    Reset,
    /// The upstream closed in good order, without a terminal event.
    Truncated,
    ClientGone,
    Timeout,
    /// A hard limit was used up in mid-stream (L9).
    StoppedAtLimit,
    /// The gateway was shutting down.
    Shutdown,
    /// The hold's life was over.
    Expired,
    /// No call: an adjusting entry.
    Adjusted,
}

/// Facts that a report must not hide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// No price was known.
    pub unpriced: bool,
    /// Admitted or settled while a part of the system was away.
    pub degraded: bool,
    /// Names were cut or left out to stay within bounds.
    pub shortened: bool,
    /// The body could not be read; only the engine's part is known.
    pub damaged: bool,
}

impl Entry {
    pub fn key(&self) -> EntryKey {
        EntryKey {
            reservation: self.reservation,
            side: self.body.side,
            attempt: self.attempt,
            seq: self.seq,
            unbooked: self.is_unbooked(),
        }
    }

    pub fn is_unbooked(&self) -> bool {
        self.origin == Origin::Unbooked
    }

    /// The UTC day the entry counts for: that of the admission, so that a correction meets what it corrects.
    pub fn day(&self) -> Day {
        Day::of(if self.admitted_at == 0 { self.ended_at } else { self.admitted_at })
    }
}

impl Usage {
    /// Part by part, saturating.
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, i64::saturating_add)
    }

    /// Part by part, saturating.
    pub fn minus(&self, other: &Self) -> Self {
        self.zip(other, i64::saturating_sub)
    }

    /// Input and output.
    pub fn llm_tokens(&self) -> i64 {
        self.input.saturating_add(self.output)
    }

    fn zip(&self, other: &Self, f: fn(i64, i64) -> i64) -> Self {
        Self {
            input: f(self.input, other.input),
            cached: f(self.cached, other.cached),
            cache_write: f(self.cache_write, other.cache_write),
            cache_write_1h: f(self.cache_write_1h, other.cache_write_1h),
            output: f(self.output, other.output),
            reasoning: f(self.reasoning, other.reasoning),
            audio_input: f(self.audio_input, other.audio_input),
            audio_output: f(self.audio_output, other.audio_output),
            image_input: f(self.image_input, other.image_input),
            web_searches: f(self.web_searches, other.web_searches),
        }
    }
}

/// An amount as entries carry it; above 2^53 − 1 it is cut (L13).
pub fn signed(amount: u64) -> i64 {
    amount.min(AMOUNT_MAX).cast_signed()
}
