//! The books that stand in for the shared one while it is away: one for each shard, in this process.
//!
//! Invariants: a local book is the pure ledger with the call's own legs, where a limit that is `local` has its share of
//! the ceiling and every other one only looks on; its reservations bear ids of their own ([`local_id`]), which no engine
//! was ever asked with. What was asked is kept until the call ends, so that its truth can be posted to the shared book.
//! A reservation here lives until its Ticket ends it, which it always does: nothing expires, nothing is renewed.
//! A book is empty at first and is dropped once its calls have ended and it was not used for a while. When this process
//! dies the books die with it, and their calls are in no book.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollbook_engine::{Claim, ReserveCall, Shard};
use tollbook_ledger::event::{Event, Pruned};
use tollbook_ledger::{
    Attempt, Book, Full, Growth, Leg, Log, Micros, Progress, Refusal, Release, ReleaseWhy, Renew, Renewed,
    ReservationId, Settle, Verdict,
};
use tollbook_telemetry::Metrics;

/// A book that was not used for so long, and has no calls, is dropped: the windows that it knew are over.
const KEPT: Duration = Duration::from_mins(1);
/// Longer than any call.
const LIFE: Micros = 1 << 50;
/// Ended reservations that a book remembers: each ends once, so none is needed.
const TOMBS_MAX: usize = 64;
/// Things looked at in one tidying of one book.
const TIDY_MAX: usize = 1_024;
/// Set in ids of reservations of local books; the counter in the lower half never gets that far.
const LOCAL_BIT: u128 = 1 << 62;

/// The id of a reservation in a local book, made of the one that the shared book may know.
pub(crate) fn local_id(id: ReservationId) -> ReservationId {
    ReservationId(id.0 | LOCAL_BIT)
}

/// The id that a call's further reservations are made of.
pub(crate) fn base_id(id: ReservationId) -> ReservationId {
    ReservationId(id.0 & !LOCAL_BIT)
}

pub(crate) fn is_local(id: ReservationId) -> bool {
    id.0 & LOCAL_BIT != 0
}

/// Nothing is kept on disk.
struct Unlogged;

impl Log for Unlogged {
    fn append(&mut self, _: &Event<'_>) -> Result<(), Full> {
        Ok(())
    }
}

struct LocalBook {
    book: Book,
    /// As the shared book would have been asked, by what stands here.
    asked: HashMap<(ReservationId, Attempt), ReserveCall>,
    used: Instant,
}

/// How a call of a local book ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LocalEnd<'a> {
    Used { actual: &'a [u64], landed: u64, learn: Option<u64> },
    Released(ReleaseWhy),
}

/// All local books of a gateway.
pub(crate) struct Local {
    metrics: Arc<Metrics>,
    books: Mutex<BTreeMap<Shard, LocalBook>>,
}

impl Local {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, books: Mutex::default() }
    }

    /// Decides a call, whose id is a local one, by `legs`; `asked` is what it really asks for.
    pub(crate) fn reserve(
        &self,
        now: Micros,
        asked: ReserveCall,
        legs: Vec<Leg>,
    ) -> Result<Verdict, Refusal> {
        let mut books = self.lock();
        let local = books.entry(asked.shard).or_insert_with(|| LocalBook {
            book: Book::new(),
            asked: HashMap::new(),
            used: Instant::now(),
        });
        local.used = Instant::now();
        let command = tollbook_ledger::Reserve { life: LIFE, legs, ..asked.reserve.clone() };
        let verdict = local.book.reserve(now, &command, &mut Unlogged)?;
        if let Verdict::Admit(_) = verdict {
            local.asked.insert((asked.reserve.id, asked.reserve.attempt), asked);
            self.show(&books);
        }
        Ok(verdict)
    }

    /// Ends a call; what was asked for it, if it is one of these.
    pub(crate) fn end(&self, now: Micros, claim: Claim, end: LocalEnd<'_>) -> Option<ReserveCall> {
        let mut books = self.lock();
        let local = books.get_mut(&claim.shard)?;
        let asked = local.asked.remove(&(claim.id, claim.attempt))?;
        local.used = Instant::now();
        let Claim { id, attempt, .. } = claim;
        let ended = match end {
            LocalEnd::Used { actual, landed, learn } => {
                let settle = Settle { id, attempt, actual: actual.to_vec(), landed, learn };
                local.book.settle(now, &settle, &mut Unlogged)
            }
            LocalEnd::Released(why) => local.book.release(now, &Release { id, attempt, why }, &mut Unlogged),
        };
        if let Err(refusal) = ended {
            // Amounts above all bounds: the local hold stands until the book is dropped.
            tracing::error!(%refusal, "a local book refused an end");
        }
        forget(&mut local.book, now);
        self.show(&books);
        Some(asked)
    }

    pub(crate) fn renew(&self, now: Micros, claim: Claim, growth: Growth, outgrown: Option<u64>) -> Renewed {
        let mut books = self.lock();
        let Some(local) = books.get_mut(&claim.shard) else { return Renewed::Unknown };
        let Claim { id, attempt, .. } = claim;
        let renew = Renew { id, attempt, life: LIFE, sent: true, growth, outgrown };
        local.book.renew(now, &renew, &mut Unlogged).unwrap_or(Renewed::Unknown)
    }

    pub(crate) fn progress(&self, now: Micros, shard: Shard, batches: &[Progress]) {
        if let Some(local) = self.lock().get_mut(&shard)
            && let Err(refusal) = local.book.progress(now, batches, &mut Unlogged)
        {
            tracing::error!(%refusal, "a local book refused what streams do");
        }
    }

    /// Forgets what is over, and books without calls that are not needed any more.
    pub(crate) fn tidy(&self, now: Micros, is_away: impl Fn(Shard) -> bool) {
        let mut books = self.lock();
        books.retain(|shard, local| {
            // Nothing can be refused where nothing is logged.
            let _pruned = local.book.prune(now, TIDY_MAX, &mut Unlogged);
            !local.asked.is_empty() || is_away(*shard) || local.used.elapsed() < KEPT
        });
        self.show(&books);
    }

    fn show(&self, books: &BTreeMap<Shard, LocalBook>) {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.metrics.away_books.set((), count(books.len()));
        self.metrics.away_calls.set((), count(books.values().map(|local| local.asked.len()).sum()));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Shard, LocalBook>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the oldest of the ended reservations.
fn forget(book: &mut Book, now: Micros) {
    let (_, tombs, _) = book.sizes();
    let Ok(tombstones) = u32::try_from(tombs.saturating_sub(TOMBS_MAX)) else { return };
    if tombstones > 0 {
        let (estimators, accounts, trimmed) = (&[], &[], &[]);
        book.apply(&Event::Pruned(Pruned { now, tombstones, adjusts: 0, estimators, accounts, trimmed }));
    }
}

#[cfg(test)]
mod tests {
    use tollbook_ledger::{
        AccountId, Estimator, Hold, Limit, LimitId, Measure, OnExpiry, Periods, Profile, Reserve, Shape,
        SubjectId,
    };

    use super::*;

    const NOW: Micros = 1_800_000_000_000_000;

    fn call(n: u128) -> ReserveCall {
        let leg = Leg {
            account: AccountId { subject: SubjectId(1), name: 1 },
            measure: Measure::Concurrency,
            shape: Shape::Concurrency,
            periods: Periods::None,
            base: 1_000,
            per_output: 0,
            cap: 0,
            worst: 1,
            estimator: Estimator::Capped,
            refund_failed: false,
            limits: vec![Limit {
                id: LimitId(0),
                ceiling: 3,
                hard: false,
                shadow: false,
                count_denied: false,
                hold: Hold::Expected,
                on_expiry: OnExpiry::Release,
            }],
        };
        let id = local_id(ReservationId(n));
        let profile = Profile::default();
        let reserve = Reserve { id, attempt: 0, life: 1, profile, legs: vec![leg], context: Vec::new() };
        ReserveCall { shard: Shard(5), reserve, class: 0, waiting: false }
    }

    fn reserve(local: &Local, now: Micros, n: u128) -> bool {
        let call = call(n);
        let legs = call.reserve.legs.clone();
        matches!(local.reserve(now, call, legs).unwrap(), Verdict::Admit(_))
    }

    fn end(local: &Local, now: Micros, n: u128) -> Option<ReserveCall> {
        let claim = Claim { shard: Shard(5), id: local_id(ReservationId(n)), attempt: 0 };
        local.end(now, claim, LocalEnd::Used { actual: &[0], landed: 0, learn: None })
    }

    #[test]
    fn ids_of_local_books_are_their_own() {
        let id = ReservationId(7 << 64 | 9);
        assert!(!is_local(id) && is_local(local_id(id)));
        assert_eq!(base_id(local_id(id)), id);
        assert!(!is_local(ReservationId(id.0 | 1 << 63)), "a pool's id is none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_book_holds_what_it_admits_until_its_call_ends_however_long_that_is() {
        let local = Local::new(Arc::new(Metrics::new()));
        let admitted = (0..5).filter(|n| reserve(&local, NOW, *n)).count();
        assert_eq!(admitted, 3);
        let much_later = NOW + 86_400_000_000;
        local.tidy(much_later, |_| false);
        assert!(!reserve(&local, much_later, 6), "nothing expires");
        assert_eq!(end(&local, much_later, 0).unwrap().reserve.life, 1, "as it was asked");
        assert!(end(&local, much_later, 0).is_none(), "once");
        assert!(reserve(&local, much_later, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_book_goes_when_its_calls_have_ended_and_the_shared_one_is_back() {
        let metrics = Arc::new(Metrics::new());
        let local = Local::new(Arc::clone(&metrics));
        assert!(reserve(&local, NOW, 1));
        tokio::time::sleep(KEPT).await;
        local.tidy(NOW, |_| false);
        assert_eq!((metrics.away_books.get(()), metrics.away_calls.get(())), (1, 1), "it has a call");
        end(&local, NOW, 1);
        local.tidy(NOW, |_| false);
        assert_eq!((metrics.away_books.get(()), metrics.away_calls.get(())), (1, 0), "it was used just now");
        tokio::time::sleep(KEPT).await;
        local.tidy(NOW, |_| true);
        assert_eq!(metrics.away_books.get(()), 1, "the shared one is away");
        local.tidy(NOW, |_| false);
        assert_eq!(metrics.away_books.get(()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn ended_calls_take_no_room() {
        let local = Local::new(Arc::new(Metrics::new()));
        for n in 0..10_000 {
            assert!(reserve(&local, NOW + u64::try_from(n).unwrap(), n));
            end(&local, NOW, n).unwrap();
        }
        let books = local.lock();
        let (live, tombs, _) = books[&Shard(5)].book.sizes();
        assert!(live == 0 && tombs <= TOMBS_MAX, "{live} {tombs}");
    }
}
