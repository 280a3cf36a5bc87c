//! What a run came across; a run that met nothing proves nothing.

use tollbook_engine::ledger::{Denial, DenyKind};

macro_rules! stats {
    ($($(#[$note:meta])* $name:ident)+) => {
        /// Counters of one run, or of many.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Stats {
            $($(#[$note])* pub $name: u64,)+
        }

        impl Stats {
            /// All counters by name.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }

            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

stats! {
    verbs
    calls
    admits
    denied_too_large
    denied_exhausted
    denied_spent
    denied_firm
    denied_likely
    denials_counted
    /// Calls that their tenant admitted and their pool did not.
    denied_by_pool
    shadow_denied
    recalendars
    repeats
    repeats_ended
    conflicts
    renewals
    growth_decided
    growth_short
    growth_forced
    /// Legs on forecast accounts.
    planned
    inputs_corrected
    outgrown
    progress
    progress_repeated
    /// llm_tokens of batches for seconds that had left, or that would have gone below zero.
    progress_lost
    stopped_at_limit
    rebooks
    rebooks_denied
    retries
    settles
    releases
    overruns
    requests_given_back
    /// Requests that could not be given back: their bucket had gone.
    requests_gone
    expired_door
    expired_sent
    expired_charged
    not_due
    late_settles
    late_releases
    claims_too_late
    unbooked_old
    unbooked_unknown
    learned
    adjusts
    adjusts_repeated
    openings
    requests_lost
    replies_lost
    delivered_twice
    delivered_slowly
    engine_away
    engine_kills
    engine_restarts
    journal_full
    gateway_crashes
    gateway_stops
    gateway_stalls
    spooled
    unspooled
    clock_forward
    clock_back
    clock_back_far
    ceilings_changed
    hints_probed
    sweeps
    drained
    drains_torn
    /// Real gateways: calls whose journal equals the provider's record.
    calls_journaled
    /// Known too late, and kept apart.
    calls_unbooked
    /// Their gateway died with their outcome.
    calls_died
}

impl Stats {
    pub(crate) fn denied(&mut self, denial: &Denial) {
        match denial.binding.kind {
            DenyKind::TooLarge => self.denied_too_large += 1,
            DenyKind::Exhausted => self.denied_exhausted += 1,
            DenyKind::Spent(_) => self.denied_spent += 1,
            DenyKind::Busy(_) if denial.firm => self.denied_firm += 1,
            DenyKind::Busy(_) => self.denied_likely += 1,
        }
    }

    /// Names of what never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        self.all().into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }
}
