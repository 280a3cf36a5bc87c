//! Alerts: quotas that cross thresholds are told to webhooks, once per crossing.
//!
//! Every gateway watches the tenants that call there (`watch`), so nothing has to be known of those that do not; a crossing
//! is written by whoever is first. Of the gateways that share a journal one delivers (`deliver`), as long as it lives.
//! Invariants: an event's id is made of what it tells, so it is the same whoever writes it; it is written together with what
//! is to be delivered, and delivered at least once, always under that id.
//! When the engine or the store is away: it is told in a metric and now and then in the log, and looked at again later.

mod deliver;
mod watch;

pub(crate) use deliver::Deliver;
pub(crate) use watch::Watch;
