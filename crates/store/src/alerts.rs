//! Which thresholds were crossed, and what is told of it to whom.
//!
//! Invariants: a crossing is written once, by whoever is first, together with what is to be delivered of it: two gateways,
//! a restart or a kill cannot tell it twice under different ids. What is to be delivered stays until it is delivered, given
//! up or too old. Plain data: what a threshold means and what a body says is known to whoever writes it.

use crate::Answer;

/// Longest id of a webhook, a threshold or an event, in bytes.
pub const ALERT_ID_MAX: usize = 128;
/// Longest body of an event, in bytes.
pub const ALERT_BODY_MAX: usize = 16 << 10;
/// Most that one question returns, and most that one crossing is told to.
pub const ALERTS_MAX: usize = 1_000;

/// A threshold of an account in a period, and whether it is crossed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlertMark {
    /// Whose account it is.
    pub tenant: String,
    pub account: String,
    /// Where the period begins, UTC seconds.
    pub period: u64,
    pub threshold: String,
    /// Counts the crossings, from 1.
    pub turn: u64,
    /// False: it was, and the account has come back from it.
    pub crossed: bool,
}

/// Something that is told to one webhook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    pub webhook: String,
    /// The event's; the same for all webhooks, and at every try.
    pub id: String,
    pub body: String,
    /// Unix milliseconds of the clock of whoever wrote it.
    pub created_at: u64,
    /// Tries that have failed.
    pub tries: u32,
}

/// What became of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Delivered,
    GivenUp,
    /// It is tried again at this time, Unix milliseconds.
    Again(u64),
}

/// Keeps crossings and deliveries. Object safe. Every call may be repeated.
pub trait Alerts: Send + Sync + 'static {
    /// A page of what is known of a tenant's thresholds and is not over at `now` (UTC seconds), in the order of account,
    /// period and threshold: [`ALERTS_MAX`] of it at most, those after `after`.
    fn alert_marks<'a>(
        &'a self,
        tenant: &'a str,
        now: u64,
        after: Option<&'a AlertMark>,
    ) -> Answer<'a, Vec<AlertMark>>;
    /// Writes that a threshold is crossed for the `turn`th time, and what is to be delivered of it. False where somebody
    /// else has done so, or the turn before has not ended: then nothing is written. `until`: UTC seconds from which it may
    /// be forgotten.
    fn alert_cross<'a>(
        &'a self,
        mark: &'a AlertMark,
        until: u64,
        deliveries: &'a [Delivery],
    ) -> Answer<'a, bool>;
    /// Writes that the account has come back from it: the next crossing is another turn. False where it had.
    fn alert_rearm<'a>(&'a self, mark: &'a AlertMark) -> Answer<'a, bool>;
    /// What is to be delivered to a webhook by `now` (Unix milliseconds), what waits for longest first.
    fn deliveries_due<'a>(&'a self, webhook: &'a str, now: u64, most: usize) -> Answer<'a, Vec<Delivery>>;
    /// Writes what became of a try. Nothing where the delivery has ended.
    fn delivery_told<'a>(&'a self, webhook: &'a str, id: &'a str, told: Told) -> Answer<'a, ()>;
    /// How many deliveries wait.
    fn deliveries_waiting(&self) -> Answer<'_, u64>;
    /// Forgets crossings whose time is over at `now` (UTC seconds) and deliveries from before `since` (Unix milliseconds),
    /// whatever became of them.
    fn alerts_forget(&self, now: u64, since: u64) -> Answer<'_, ()>;
}
