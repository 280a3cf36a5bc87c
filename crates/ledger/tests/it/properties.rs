//! Properties over random commands: the book against the model, conservation, no over-admission, idempotence, firm
//! hints, replay, totality.

use proptest::prelude::*;
use tollbook_ledger::{
    Adjust, Attempt, Book, DenyKind, Due, Event, ExpireOne, Full, Growth, Log, Measure, Met, Micros, Opening,
    Rebook, Refusal, Release, ReleaseWhy, Renew, ReservationId, SECOND, Settle, Shape, Verdict,
};

use crate::book_desk::{Follower, rebuilt};
use crate::model::Model;
use crate::random::{
    ACCOUNTS, LIFETIME, START, Step, account, cases, demands, pause, progress, reserve, step,
};

/// A book, the fold of its events, and the model.
#[derive(Default)]
struct Three {
    book: Book,
    log: Follower,
    model: Model,
    now: Micros,
    /// The next step of the check that goes on beside the verbs.
    check: u64,
}

impl Three {
    fn new() -> Self {
        Self { now: START, ..Self::default() }
    }

    /// Run one step over all; any difference panics.
    fn run(&mut self, step: &Step) {
        let now = self.now;
        match step {
            Step::Reserve { id, attempt, life, demands } => {
                let cmd = reserve(now, *id, *attempt, *life, demands);
                let answer = self.book.reserve(now, &cmd, &mut self.log).expect("well formed");
                assert_eq!(sorted(answer), sorted(self.model.reserve(now, &cmd)));
            }
            Step::Rebook { id, attempt, used, demands } => {
                let reserve = reserve(now, *id, *attempt, 15, demands);
                let legs = self.legs(*id, *attempt - 1);
                let actual = used.as_ref().map(|used| used[..legs].to_vec());
                let cmd = Rebook { ended: *attempt - 1, actual, landed: 5, reserve };
                let (verdict, settled) = self.book.rebook(now, &cmd, &mut self.log).expect("well formed");
                let (expected, ended) = self.model.rebook(now, &cmd);
                assert_eq!((sorted(verdict), settled), (sorted(expected), ended));
            }
            Step::Renew { id, attempt, life, sent, output, outgrown } => {
                let growth = output.map_or(Growth::Unchanged, Growth::Output);
                let (id, attempt, life, sent) = (ReservationId(*id), *attempt, life * SECOND, *sent);
                let cmd = Renew { id, attempt, life, sent, growth, outgrown: *outgrown };
                assert_eq!(self.book.renew(now, &cmd, &mut self.log), Ok(self.model.renew(now, &cmd)));
            }
            Step::Settle { id, attempt, actual, learn } => {
                let actual = actual[..self.legs(*id, *attempt)].to_vec();
                let cmd = settle((*id, *attempt), actual, *learn);
                assert_eq!(self.book.settle(now, &cmd, &mut self.log), Ok(self.model.settle(now, &cmd)));
            }
            Step::Release { id, attempt, never } => {
                let why = if *never { ReleaseWhy::NeverSent } else { ReleaseWhy::Failed };
                let cmd = Release { id: ReservationId(*id), attempt: *attempt, why };
                assert_eq!(self.book.release(now, &cmd, &mut self.log), Ok(self.model.release(now, &cmd)));
            }
            Step::Expire { id, attempt } => self.expire(ReservationId(*id), *attempt),
            Step::ExpireDue => {
                for Due { id, attempt } in self.book.due(now, 16) {
                    self.expire(id, attempt);
                }
            }
            Step::Progress { gateway, account, seq, back, deltas } => {
                let cmd = progress(now, (*gateway, *account, *seq, *back), deltas);
                self.model.progress(now, &cmd);
                assert_eq!(self.book.progress(now, &[cmd], &mut self.log), Ok(()));
            }
            Step::Adjust { id, account, back, delta, open } => {
                self.adjust(*id, *account, *back, *delta, *open);
            }
        }
        self.audit();
    }

    fn expire(&mut self, id: ReservationId, attempt: u16) {
        let cmd = ExpireOne { id, attempt };
        assert_eq!(self.book.expire(self.now, &cmd, &mut self.log), Ok(self.model.expire(self.now, &cmd)));
    }

    fn adjust(&mut self, id: u128, index: usize, back: u64, delta: i64, open: bool) {
        let lifetime = index == LIFETIME;
        let period = if lifetime { 0 } else { (self.now / SECOND / 60 - back) * 60 };
        let end = if lifetime { u64::MAX } else { period + 60 };
        let opening = open.then_some(Opening { measure: ACCOUNTS[index].0, end });
        let cmd = Adjust { id, account: account(index), period, delta, opening };
        let answer = self.book.adjust(self.now, &cmd, &mut self.log);
        assert_eq!(answer, self.model.adjust(self.now, &cmd).ok_or(Refusal::NoSuchQuota));
    }

    /// Legs of a call, live or expired: a settle has to bring as many amounts.
    fn legs(&self, id: u128, attempt: u16) -> usize {
        let mut legs = 6;
        self.book.inspect_reservation(ReservationId(id), &mut |row| match row {
            Event::Live(row) if row.attempt == attempt => legs = row.legs.len(),
            Event::Tombstone(row) if row.attempt == attempt => legs = usize::from(row.legs),
            _ => {}
        });
        legs
    }

    /// Conservation, drift, replay, dump.
    fn audit(&mut self) {
        let now = self.now;
        for account in self.model.accounts() {
            let book = self.book.balance(now, account).expect("the model has it");
            if book.shape != Shape::Quota {
                let sums = (self.model.posted(account, now, 0), self.model.held(account, now, 0));
                assert_eq!((book.posted, book.held), sums, "{account:?}");
            }
        }
        for (account, start) in self.model.periods() {
            let sums = (self.model.posted(account, now, start), self.model.held(account, now, start));
            assert_eq!(self.book.period(account, start), Some(sums), "{account:?} {start}");
        }
        let mut due = self.book.due(now, 16);
        due.sort_unstable();
        let mut expected = self.model.due(now, 16);
        expected.sort_unstable();
        assert_eq!(due, expected);
        assert_eq!(self.book.drift(0, u32::MAX), (Vec::new(), None));
        let (found, next) = self.book.audit(self.check, 2);
        assert_eq!(found, Vec::new());
        self.check = next.unwrap_or(0);
        assert!(self.book == self.log.book, "the fold of the events is another book");
        assert!(rebuilt(&self.book) == self.book, "the dump is another book");
        assert_eq!(self.book.alarms().misfits, 0);
    }
}

/// Due holds of one second come in any order.
fn sorted(mut verdict: Verdict) -> Verdict {
    if let Verdict::Deny(denial) = &mut verdict {
        denial.due.sort_unstable();
    }
    verdict
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn the_book_answers_as_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let mut three = Three::new();
        for (pause, step) in steps {
            // Past 90 min the book drops old periods, which the model does not know.
            if three.now + pause < START + 5_300 * SECOND {
                three.now += pause;
            }
            three.run(&step);
        }
    }

    /// A repeat of any verb at the same time changes nothing.
    #[test]
    fn l02_l03_every_verb_is_idempotent(steps in prop::collection::vec(step(), 1..50)) {
        let mut three = Three::new();
        for (pause, step) in steps {
            three.now += pause.min(60 * SECOND);
            three.run(&step);
            let before = three.book.clone();
            three.run(&step);
            prop_assert!(three.book == before, "{step:?} changed the book twice");
        }
    }

    /// A firm denial is admitted exactly then, and denied a bucket before.
    #[test]
    fn l14_firm_hints_are_kept(
        steps in prop::collection::vec(step(), 1..50),
        pause in pause(),
        asked in demands(false),
    ) {
        let mut three = Three::new();
        for (pause, step) in steps {
            three.now += pause.min(20 * SECOND);
            three.run(&step);
        }
        three.now += pause;
        let ask = |book: &Book, now: Micros| {
            let cmd = reserve(now, 99, 0, 15, &asked);
            book.clone().reserve(now, &cmd, &mut Follower::default()).expect("well formed")
        };
        if let Verdict::Deny(denial) = ask(&three.book, three.now)
            && denial.firm
        {
            let (DenyKind::Busy(wait) | DenyKind::Spent(wait)) = denial.binding.kind else {
                panic!("never is not firm");
            };
            prop_assert!(wait.firm);
            let then = three.now + wait.after;
            prop_assert!(matches!(ask(&three.book, then), Verdict::Admit(_)), "not admitted after {wait:?}");
            let bucket = match ACCOUNTS[asked[denial.binding.leg].account].1 {
                Shape::Rate { width, .. } => width,
                // What is planned makes windows fuller as time goes on: only whole seconds were looked at.
                Shape::Forecast { .. } => {
                    for second in 1..wait.after / SECOND {
                        let early = ask(&three.book, three.now + second * SECOND);
                        prop_assert!(matches!(early, Verdict::Deny(_)), "admitted after {second} s of {wait:?}");
                    }
                    return Ok(());
                }
                _ => 0,
            };
            if wait.after > bucket + 1 {
                let early = ask(&three.book, then - bucket - 1);
                prop_assert!(matches!(early, Verdict::Deny(_)), "admitted a bucket before {wait:?}");
            }
        }
    }

    /// With fixed ceilings and no call using more than it holds, no account is ever above its ceiling.
    #[test]
    fn l01_nothing_is_over_admitted(
        ceilings in prop::collection::vec(1_u64..150, ACCOUNTS.len()),
        steps in prop::collection::vec((pause(), 0_u8..4, 1_u128..9, demands(false), 0_u64..=100), 1..80),
    ) {
        let (mut book, mut log, mut now) = (Book::new(), Follower::default(), START);
        for (pause, what, id, mut asked, share) in steps {
            now += pause.min(30 * SECOND);
            for demand in &mut asked {
                demand.limits.truncate(1);
                demand.limits[0].ceiling = ceilings[demand.account];
            }
            let (id, attempt) = (ReservationId(id), 0);
            match what {
                0 | 1 => {
                    let cmd = reserve(now, id.0, attempt, 20, &asked);
                    book.reserve(now, &cmd, &mut log).expect("well formed");
                }
                2 => {
                    let mut held: Option<Vec<u64>> = None;
                    book.inspect_reservation(id, &mut |row| if let Event::Live(row) = row {
                        held = Some(row.legs.iter().map(|leg| leg.held * share / 100).collect());
                    });
                    if let Some(actual) = held {
                        book.settle(now, &Settle { id, attempt, actual, landed: 0, learn: Some(share) }, &mut log)
                            .expect("well formed");
                    }
                }
                _ => {
                    book.expire(now, &ExpireOne { id, attempt }, &mut log).expect("well formed");
                }
            }
            for (index, ceiling) in ceilings.iter().enumerate() {
                if let Some(balance) = book.balance(now, account(index))
                    // The oldest second by its part left is why some headroom is kept: it is no bound (see `strict`).
                    && !matches!(balance.shape, Shape::Forecast { strict: false, .. })
                {
                    let sum = balance.posted + balance.held;
                    prop_assert!(sum <= i64::try_from(*ceiling).unwrap(), "{balance:?} over {ceiling}");
                }
            }
        }
    }

    /// Requests and concurrency never pass a ceiling at the moment they are admitted, whatever else happens.
    #[test]
    fn l01_requests_and_calls_are_never_over_admitted(steps in prop::collection::vec(step(), 1..60)) {
        let mut three = Three::new();
        for (pause, step) in steps {
            three.now += pause.min(20 * SECOND);
            let Step::Reserve { id, attempt, life, demands } = &step else {
                three.run(&step);
                continue;
            };
            let was_live = three.book.state(three.now, ReservationId(*id), *attempt) == Met::Held;
            three.run(&step);
            let cmd = reserve(three.now, *id, *attempt, *life, demands);
            let Ok(Verdict::Admit(receipt)) = three.book.reserve(three.now, &cmd, &mut three.log) else { continue };
            for (leg, receipt) in cmd.legs.iter().zip(&receipt.legs).filter(|_| !was_live) {
                let counts_calls = matches!(leg.measure, Measure::Requests | Measure::Concurrency);
                let enforced = leg.limits.iter().filter(|limit| !limit.shadow).map(|limit| limit.ceiling).min();
                if let (true, Some(ceiling)) = (counts_calls, enforced) {
                    let sum = receipt.posted + receipt.held_total;
                    prop_assert!(sum <= i64::try_from(ceiling).unwrap(), "{receipt:?}");
                }
            }
        }
    }

    /// Any order of clock steps: nothing panics, the fold stays the book, holds can always be swept.
    #[test]
    fn l12_any_clock(steps in prop::collection::vec((any::<i32>(), step()), 1..60)) {
        let (mut book, mut log, mut now) = (Book::new(), Follower::default(), START);
        for (jump, (pause, step)) in steps {
            now = now.saturating_add(pause);
            if jump % 4 == 0 {
                now = now.saturating_add_signed(i64::from(jump) * 1_000);
            }
            let _ = run_alone(&mut book, &mut log, now, &step);
            prop_assert!(book == log.book);
            prop_assert!(rebuilt(&book) == book);
            prop_assert_eq!(book.drift(0, u32::MAX), (Vec::new(), None));
        }
        book.prune(now, 1, &mut log).expect("log");
        let later = now + 3_600 * SECOND;
        for Due { id, attempt } in book.due(later, usize::MAX) {
            book.expire(later, &ExpireOne { id, attempt }, &mut log).expect("log");
        }
        prop_assert!(book.balances(later).all(|balance| balance.live_holds == 0 && balance.held == 0));
    }

    /// Pruning changes no answer, but for how long a likely wait is.
    #[test]
    fn pruning_is_not_seen(steps in prop::collection::vec(step(), 1..60), max in 1_usize..20) {
        let (mut book, mut pruned) = (Book::new(), Book::new());
        let (mut log, mut pruned_log, mut now) = (Follower::default(), Follower::default(), START);
        for (pause, step) in steps {
            now += pause;
            pruned.prune(now, max, &mut pruned_log).expect("log");
            let left = run_alone(&mut book, &mut log, now, &step);
            let right = run_alone(&mut pruned, &mut pruned_log, now, &step);
            let likely = |answer: &str| answer.contains("Deny") && answer.contains("firm: false");
            prop_assert!(left == right || likely(&left) && likely(&right), "{left}\n{right}");
            prop_assert!(pruned == pruned_log.book);
        }
    }

    /// A log that is full at any moment: the verb refuses and the book is as before.
    #[test]
    fn a_refused_event_changes_nothing(steps in prop::collection::vec((any::<bool>(), step()), 1..50)) {
        let (mut book, mut log, mut now) = (Book::new(), Follower::default(), START);
        for (full, (pause, step)) in steps {
            now += pause;
            let before = book.clone();
            log.full = full;
            let answer = run_alone(&mut book, &mut log, now, &step);
            if answer.contains("LogFull") || full {
                prop_assert!(book == before, "{answer}");
            }
            prop_assert!(book == log.book);
        }
    }
}

/// Some output landed, though nothing of it is to be learned.
fn settle((id, attempt): (u128, Attempt), actual: Vec<u64>, learn: Option<u64>) -> Settle {
    Settle { id: ReservationId(id), attempt, actual, landed: learn.unwrap_or(7), learn }
}

/// Run one step on a book alone and say what it answered.
fn run_alone(book: &mut Book, log: &mut impl Log, now: Micros, step: &Step) -> String {
    match step {
        Step::Reserve { id, attempt, life, demands } => {
            let answer = book.reserve(now, &reserve(now, *id, *attempt, *life, demands), log);
            format!("{:?}", answer.map(sorted))
        }
        Step::Rebook { id, attempt, used, demands } => {
            let reserve = reserve(now, *id, *attempt, 15, demands);
            let cmd = Rebook { ended: *attempt - 1, actual: used.clone(), landed: 5, reserve };
            format!("{:?}", book.rebook(now, &cmd, log).map(|(verdict, ended)| (sorted(verdict), ended)))
        }
        Step::Renew { id, attempt, life, sent, output, outgrown } => {
            let growth = output.map_or(Growth::Unchanged, Growth::Output);
            let (id, attempt, life, sent) = (ReservationId(*id), *attempt, life * SECOND, *sent);
            format!(
                "{:?}",
                book.renew(now, &Renew { id, attempt, life, sent, growth, outgrown: *outgrown }, log)
            )
        }
        Step::Settle { id, attempt, actual, learn } => {
            let mut legs = actual.len();
            book.inspect_reservation(ReservationId(*id), &mut |row| match row {
                Event::Live(row) if row.attempt == *attempt => legs = row.legs.len(),
                Event::Tombstone(row) if row.attempt == *attempt => legs = usize::from(row.legs),
                _ => {}
            });
            let actual = actual[..legs].to_vec();
            let cmd = settle((*id, *attempt), actual, *learn);
            format!("{:?}", book.settle(now, &cmd, log))
        }
        Step::Release { id, attempt, never } => {
            let why = if *never { ReleaseWhy::NeverSent } else { ReleaseWhy::Failed };
            format!(
                "{:?}",
                book.release(now, &Release { id: ReservationId(*id), attempt: *attempt, why }, log)
            )
        }
        Step::Expire { id, attempt } => {
            format!("{:?}", book.expire(now, &ExpireOne { id: ReservationId(*id), attempt: *attempt }, log))
        }
        Step::ExpireDue => {
            let mut due = book.due(now, 16);
            due.sort_unstable();
            let expire = |due: &Due| book.expire(now, &ExpireOne { id: due.id, attempt: due.attempt }, log);
            format!("{:?}", due.iter().map(expire).collect::<Vec<_>>())
        }
        Step::Progress { gateway, account, seq, back, deltas } => {
            let cmd = progress(now, (*gateway, *account, *seq, *back), deltas);
            format!("{:?}", book.progress(now, &[cmd], log))
        }
        Step::Adjust { id, account: index, back, delta, open } => {
            let lifetime = *index == LIFETIME;
            let period = if lifetime { 0 } else { (now / SECOND / 60).saturating_sub(*back) * 60 };
            let end = if lifetime { u64::MAX } else { period + 60 };
            let opening = open.then_some(Opening { measure: ACCOUNTS[*index].0, end });
            let cmd = Adjust { id: *id, account: account(*index), period, delta: *delta, opening };
            format!("{:?}", book.adjust(now, &cmd, log))
        }
    }
}

/// Takes everything, remembers nothing.
struct Nowhere;

impl Log for Nowhere {
    fn append(&mut self, _event: &Event<'_>) -> Result<(), Full> {
        Ok(())
    }
}

#[test]
fn the_log_is_only_told() {
    let mut book = Book::new();
    let answer = run_alone(&mut book, &mut Nowhere, START, &Step::Expire { id: 1, attempt: 0 });
    assert_eq!(answer, "Ok(Unknown)");
}
