//! How calls are held, and when they stop to wait for the book, as it is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::{Size, Span};

/// How calls are booked. The defaults suit nearly everyone; tests make them shorter.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calls {
    /// Life of a hold until its call is sent; what is not sent by then is given back.
    pub door_life: Span,
    /// Life that a renewal gives; so long are the holds of a dead gateway kept.
    pub renewed_life: Span,
    /// Pause between two renewals; less than half of `renewed_life`.
    pub renew_every: Span,
    /// Pause between two batches that tell limits booked by forecast how streams go; 30 s at most.
    pub flush_every: Span,
    /// Longest a decision may take; after it the book counts as away.
    pub decide_within: Span,
    /// Longest one settlement may take; after it, it is repeated.
    pub settle_within: Span,
    /// Outcomes of calls that wait in memory to be settled; more go into the spool file.
    pub settle_queue_max: u32,
    /// Largest spool file; full, it closes the door to all calls until some of it is settled. As much again is for what finds
    /// no room in `vouchers_max`.
    pub spool_max: Size,
    /// With a shared book: memory for what its store may lose, until the journal has it; more goes to disk.
    pub vouchers_max: Size,
    /// With a shared book: longest a call waits while its part of a lost store is made whole. Then, and at once when one has
    /// waited so in vain, it is treated as when the book is away (`when_away`).
    pub lost_wait: Span,
    /// Texts counted exactly at once, beside the calls; more are estimated.
    pub count_jobs_max: u32,
    /// Bytes of bodies counted exactly at once; those of a model with a `tokenizer` count ten times. More are estimated.
    pub count_bytes_max: Size,
    /// When the book is not waited for any more.
    pub breaker: Breaker,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            door_life: Span::from_secs(15),
            renewed_life: Span::from_secs(60),
            renew_every: Span::from_secs(5),
            flush_every: Span::from_secs(2),
            decide_within: Span::from_millis(500),
            settle_within: Span::from_secs(2),
            settle_queue_max: 16_384,
            spool_max: Size(256 << 20),
            vouchers_max: Size(128 << 20),
            lost_wait: Span::from_secs(1),
            count_jobs_max: 2,
            count_bytes_max: Size(16 << 20),
            breaker: Breaker::default(),
        }
    }
}

/// When calls stop to wait for the book, until a probe, once a second, is answered well. Every shard of the book has a breaker,
/// and the whole of it has one, which opens for failures in a row alone.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Breaker {
    /// It opens after so many failures in a row, 1 to 1,000 ...
    pub failures: u32,
    /// ... or when of so many bookings, 1 to 64 ...
    pub of_last: u32,
    /// ... so many in a hundred failed or were slow, 1 to 100.
    pub share: u32,
    /// From here on a booking is slow.
    pub slow: Span,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures: 5, of_last: 32, share: 75, slow: Span::from_millis(200) }
    }
}
