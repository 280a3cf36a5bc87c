//! Openings: a quota added in mid-period starts from what the journal has of that period (L16).
//!
//! The amount is what the subject's calls of the period used that did not post to the account themselves, less what
//! earlier rounds opened it with, also of openings before it was away for a while. So any number of runs ends with the same balance; runs after the first catch calls
//! that were in flight, without the new leg, when the quota was added.
//! Invariants: the journal is drained before it is asked; every round has its own adjust id, and a round that is in the
//! journal is not made again, even when the engine has forgotten the id.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_engine::{AdjustCall, Cursor, Engine, LostShards, Shard};
use tollbook_ledger::units::SECOND;
use tollbook_ledger::{self as ledger, AMOUNT_MAX, AccountId, Measure, Micros, ReservationId};
use tollbook_store::{Ending, EntryBody, Figures, Journal, Name, PAGE_MAX, Span, UsageQuery, UsageSum};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Job;

use crate::pace::{Pace, pause};
use crate::{Drain, JobError};

/// Most openings of one list.
pub const OPENINGS_MAX: usize = 10_000;
/// When openings are made, counted from the start: at once, and when calls of before have ended or expired.
pub const OPENINGS_ROUNDS: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(90), Duration::from_mins(15), Duration::from_hours(1)];
/// Calls admitted this long after a list was made carry its quotas themselves, so later rounds need not look at them.
const KNOWN_BY_ALL: Micros = 60 * SECOND;
/// Most adjusting entries one opening may take; more than runs of a process, fewer than would hide a mistake.
const ADJUSTS_MAX: u128 = 64;
/// How long an opening waits for a shard that is lost, or was never used.
const WHOLE_WITHIN: Duration = Duration::from_secs(2);
/// Most users told by [`users`].
const USERS_MAX: usize = 100_000;

/// What an account counts, from a sum of usage.
pub type OpeningAmount = Arc<dyn Fn(&UsageSum) -> u64 + Send + Sync>;

/// One quota to open.
#[derive(Clone)]
pub struct Opening {
    /// Id of its first adjust; later rounds count up from it.
    pub id: u128,
    /// Ids of first adjusts by which the same account was opened for this period before it was away for a while.
    pub before: Vec<u128>,
    pub shard: Shard,
    pub account: AccountId,
    pub measure: Measure,
    /// Start of the period, UTC seconds; 0 for lifetime.
    pub period: u64,
    /// End of the period, UTC seconds; `u64::MAX` for lifetime.
    pub end: u64,
    /// Whose calls; `admitted` and `without` are set by the job.
    pub calls: UsageQuery,
    /// The account's meter applied to a sum.
    pub amount: OpeningAmount,
}

/// What one run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// Accounts whose balance changed.
    pub adjusted: u64,
    /// Accounts that had what they should have.
    pub unchanged: u64,
}

/// Opens quotas.
pub struct Openings {
    engine: Arc<dyn Engine>,
    journal: Arc<dyn Journal>,
    drain: Arc<Drain>,
    metrics: Arc<Metrics>,
    lost: Option<Arc<LostShards>>,
}

impl Openings {
    pub fn new(
        engine: Arc<dyn Engine>,
        journal: Arc<dyn Journal>,
        drain: Arc<Drain>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { engine, journal, drain, metrics, lost: None }
    }

    /// Over a book that can be lost: a shard that is, is told, and waited for.
    #[must_use]
    pub fn telling(self, lost: Arc<LostShards>) -> Self {
        Self { lost: Some(lost), ..self }
    }

    /// Brings every account of the list to what it should have.
    pub async fn once(&self, list: &[Opening]) -> Result<Opened, JobError> {
        self.once_before(list, Micros::MAX).await
    }

    /// The same, looking only at calls admitted before `until` (engine time).
    pub async fn once_before(&self, list: &[Opening], until: Micros) -> Result<Opened, JobError> {
        let mut opened = Opened::default();
        if list.is_empty() {
            return Ok(opened);
        }
        // Adjusts of earlier rounds and calls that have ended must be in the journal before it is summed.
        while self.drain.once().await?.more {}
        for opening in list.iter().take(OPENINGS_MAX) {
            if self.open(opening, until).await? {
                opened.adjusted += 1;
            } else {
                opened.unchanged += 1;
            }
        }
        Ok(opened)
    }

    /// Makes the rounds of a list, or stops early when told to.
    pub async fn run(&self, list: &[Opening], stop: watch::Receiver<bool>) {
        self.run_telling(list, || {}, stop).await;
    }

    /// The same; tells when the first round is made.
    pub async fn run_telling(
        &self,
        list: &[Opening],
        first: impl FnOnce() + Send,
        mut stop: watch::Receiver<bool>,
    ) {
        if list.is_empty() {
            return;
        }
        let mut pace = Pace::new(Job::Openings, Duration::ZERO);
        let start = tokio::time::Instant::now();
        let (mut until, mut first) = (None, Some(first));
        for round in OPENINGS_ROUNDS {
            let mut wait = round.saturating_sub(start.elapsed());
            loop {
                if pause(wait, &mut stop).await {
                    return;
                }
                let result = self.round_of(list, &mut until).await;
                wait = pace.after(result.as_ref().map(|_| ()), &self.metrics);
                if result.is_ok() {
                    if let Some(first) = first.take() {
                        first();
                    }
                    break;
                }
            }
        }
    }

    /// One round; the first one that reaches the engine sets `until`, which the later ones keep.
    async fn round_of(&self, list: &[Opening], until: &mut Option<Micros>) -> Result<Opened, JobError> {
        let until = if let Some(until) = *until {
            until
        } else {
            // Answered by any book, also by one that has lost its accounts.
            let now = self.engine.journal_read(Shard(0), Cursor(0), 1).await?.now;
            *until.insert(now.saturating_add(KNOWN_BY_ALL))
        };
        self.once_before(list, until).await
    }

    /// Makes the rounds of the newest list; a newer one takes the place of one under way.
    pub async fn follow(
        &self,
        mut lists: watch::Receiver<Arc<Vec<Opening>>>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let list = Arc::clone(&lists.borrow_and_update());
            let told = stop.clone();
            let rounds = async {
                self.run(&list, told).await;
                std::future::pending::<()>().await;
            };
            let next = tokio::select! {
                () = rounds => false,
                changed = lists.changed() => changed.is_ok(),
                // A sender that is gone cannot tell any more: that is a stop too.
                _ = stop.wait_for(|stop| *stop) => false,
            };
            if !next {
                return;
            }
        }
    }

    /// Whether the account's balance was changed.
    async fn open(&self, opening: &Opening, until: Micros) -> Result<bool, JobError> {
        if self.is_past(opening).await? {
            return Ok(false);
        }
        let calls = UsageQuery {
            admitted: Span {
                from: opening.period.saturating_mul(SECOND),
                to: opening.end.saturating_mul(SECOND).min(until),
            },
            without: Some(opening.account),
            ..opening.calls.clone()
        };
        let sum = self.journal.usage_sum(&calls).await?;
        let should = (opening.amount)(&sum).min(AMOUNT_MAX).cast_signed();
        let (mut has, next) = self.rounds(opening.id).await?;
        for id in &opening.before {
            has = has.saturating_add(self.rounds(*id).await?.0);
        }
        let delta = should.saturating_sub(has);
        let Some(id) = next.filter(|_| delta != 0) else { return Ok(false) };
        let adjust = ledger::Adjust {
            id,
            account: opening.account,
            period: opening.period,
            delta,
            opening: Some(ledger::Opening { measure: opening.measure, end: opening.end }),
        };
        let call = AdjustCall { shard: opening.shard, adjust, entry: entry(opening).encode() };
        let first = self.engine.adjust(&call).await;
        let (Err(error), Some(lost)) = (&first, &self.lost) else { return Ok(first?.value) };
        if lost.met(opening.shard, error) && lost.wait(opening.shard, WHOLE_WITHIN).await {
            return Ok(self.engine.adjust(&call).await?.value);
        }
        Ok(first?.value)
    }

    /// It was opened, and calls of its period have gone from the journal since: what is left of them, and of the rounds, is no
    /// sum to go by, so it stays as it is. If it was not opened, it is opened with what is left.
    async fn is_past(&self, opening: &Opening) -> Result<bool, JobError> {
        let since = self.journal.kept_since().await?;
        if opening.period.saturating_mul(SECOND) >= since {
            return Ok(false);
        }
        for first in opening.before.iter().chain([&opening.id]) {
            if self.journal.was_written(ReservationId(*first)).await? {
                return Ok(true);
            }
        }
        tracing::warn!(
            account = format!("{:016x}:{:016x}", opening.account.subject.0, opening.account.name),
            kept_since = since / SECOND,
            "a quota begins before the first day that the journal keeps; it is opened with what is kept"
        );
        Ok(false)
    }

    /// What the rounds from this first id on have posted, and the id of the next one.
    async fn rounds(&self, first: u128) -> Result<(i64, Option<u128>), JobError> {
        let mut has = 0_i64;
        for round in 0..ADJUSTS_MAX {
            let id = first.wrapping_add(round);
            let entries = self.journal.by_reservation(ReservationId(id)).await?;
            if entries.is_empty() {
                return Ok((has, Some(id)));
            }
            let posted = entries.iter().flat_map(|entry| &entry.posted);
            has = posted.fold(has, |sum, posted| sum.saturating_add(posted.amount));
        }
        tracing::warn!(opening = format!("{first:032x}"), "an opening took too many adjusting entries");
        Ok((has, None))
    }
}

/// End users of a tenant that had calls admitted within a span, for limits that cover each user.
pub async fn users(journal: &dyn Journal, tenant: &Name, admitted: Span) -> Result<Vec<Name>, JobError> {
    let mut all: Vec<Name> = Vec::new();
    loop {
        let after = all.last().cloned().unwrap_or_default();
        let page = journal.users(tenant, admitted, &after, PAGE_MAX).await?;
        let full = page.len() == PAGE_MAX;
        all.extend(page);
        if !full || all.len() >= USERS_MAX {
            return Ok(all);
        }
    }
}

/// The adjusting entry: no usage, which the calls' own entries have already.
fn entry(opening: &Opening) -> EntryBody {
    let calls = &opening.calls;
    EntryBody {
        side: calls.side,
        tenant: Name::clone(&calls.tenant),
        project: Name::clone(&calls.project),
        key: Name::clone(&calls.key),
        service: Name::clone(&calls.service),
        user: Name::clone(&calls.user),
        model_used: Name::clone(&calls.model),
        pool: Name::clone(&calls.pool),
        figures: Figures::Adjusted,
        ending: Ending::Adjusted,
        ..EntryBody::default()
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("id", &self.id)
            .field("shard", &self.shard)
            .field("account", &self.account)
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Openings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Openings").finish_non_exhaustive()
    }
}
