//! What an account is named by, and the shapes it can have.
//!
//! An account is named by subject, measure, shape, booking, window or period with zone and anchor, model qualifier and
//! meter, never by a limit's id: recreating a limit gives no second budget.

use crate::units::Micros;

/// Digest of a subject's kind and id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubjectId(pub u64);

/// An account's name as digests: the subject, and everything else that distinguishes its accounts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AccountId {
    pub subject: SubjectId,
    pub name: u64,
}

/// What an account counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Measure {
    /// Calls; known at the door, so posted at reserve (L6).
    Requests,
    /// Input plus output llm_tokens.
    Tokens,
    InputTokens,
    OutputTokens,
    /// Nano-currency.
    Cost,
    /// Calls in flight; held only.
    Concurrency,
}

/// How the buckets of a rate window are summed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Weights {
    /// Every bucket whole; the guarantee is one-sided.
    Whole,
    /// The oldest bucket by the part of it still inside the window.
    Oldest,
    /// A bucket of age `a` (newest 0) counts (n − a) / n of its amount.
    Decay,
}

/// The form of an account. `Rate` is booked as held: a hold stays until the call ends, then the truth is posted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shape {
    /// A ring of `buckets` buckets of `width` each, addressed by ⌊now / width⌋; the sum runs over all of them.
    Rate { buckets: u8, width: Micros, weights: Weights },
    /// A rate over `window` seconds in buckets of a second, booked by when llm_tokens land: input at the door, output as
    /// it is planned to stream, plan replaced by fact in batches. `strict` counts the oldest bucket whole.
    Forecast { window: u8, strict: bool },
    /// One amount per calendar period; which period is named by the leg (L12).
    Quota,
    /// Held only.
    Concurrency,
}
