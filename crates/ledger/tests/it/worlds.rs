//! Exhaustive small worlds: every sequence of a few verbs, compared with the model at each step.

use tollbook_ledger::{
    Book, ExpireOne, Growth, Hold, Limit, LimitId, Micros, OnExpiry, Rebook, Release, ReleaseWhy, Renew,
    ReservationId, SECOND, Settle,
};

use crate::book_desk::Follower;
use crate::model::Model;
use crate::random::{Demand, START, account, reserve};

/// Sequences of this many verbs.
const DEPTH: usize = 8;
const VERBS: usize = 10;

#[derive(Clone, Default)]
struct World {
    book: Book,
    model: Model,
    now: Micros,
}

/// Two calls over one request, one token and one quota account, each with room for one of them and a half.
#[test]
fn every_sequence_of_eight_verbs_agrees_with_the_model() {
    let world = World { now: START, ..World::default() };
    let mut steps = 0;
    explore(&world, DEPTH, &mut steps);
    assert!(steps > 10_000, "{steps} steps: the verbs do nothing");
}

fn explore(world: &World, depth: usize, steps: &mut usize) {
    for verb in 0..VERBS {
        let mut next = world.clone();
        let wrote = next.step(verb);
        *steps += 1;
        // What wrote nothing leads to where a shorter sequence has been.
        if wrote && depth > 1 {
            explore(&next, depth - 1, steps);
        }
    }
}

impl World {
    /// True if something was written, or time passed.
    fn step(&mut self, verb: usize) -> bool {
        let (now, mut log) = (self.now, Follower::default());
        let id = ReservationId(1);
        match verb {
            0 | 1 => {
                let cmd = reserve(now, u128::from(verb == 0) + 1, 0, 9, &demands(20));
                assert_eq!(self.book.reserve(now, &cmd, &mut log), Ok(self.model.reserve(now, &cmd)));
            }
            2 | 3 => {
                let id = ReservationId(u128::from(verb == 2) + 1);
                let cmd = Settle { id, attempt: 0, actual: vec![1, 35, 35], landed: 0, learn: Some(9) };
                assert_eq!(self.book.settle(now, &cmd, &mut log), Ok(self.model.settle(now, &cmd)));
            }
            4 => {
                let cmd = Release { id, attempt: 0, why: ReleaseWhy::NeverSent };
                assert_eq!(self.book.release(now, &cmd, &mut log), Ok(self.model.release(now, &cmd)));
            }
            5 => {
                let cmd = Release { id, attempt: 1, why: ReleaseWhy::Failed };
                assert_eq!(self.book.release(now, &cmd, &mut log), Ok(self.model.release(now, &cmd)));
            }
            6 => {
                let cmd = ExpireOne { id, attempt: 0 };
                assert_eq!(self.book.expire(now, &cmd, &mut log), Ok(self.model.expire(now, &cmd)));
            }
            7 => {
                let cmd = Renew {
                    id,
                    attempt: 0,
                    life: 9 * SECOND,
                    sent: true,
                    growth: Growth::Output(25),
                    outgrown: None,
                };
                assert_eq!(self.book.renew(now, &cmd, &mut log), Ok(self.model.renew(now, &cmd)));
            }
            8 => {
                let reserve = reserve(now, id.0, 1, 9, &demands(25));
                let cmd = Rebook { ended: 0, actual: Some(vec![1, 5, 5]), landed: 5, reserve };
                assert_eq!(self.book.rebook(now, &cmd, &mut log), Ok(self.model.rebook(now, &cmd)));
            }
            _ => self.now += 9 * SECOND,
        }
        for account in [account(0), account(1)] {
            if let Some(balance) = self.book.balance(now, account) {
                let expected = (self.model.posted(account, now, 0), self.model.held(account, now, 0));
                assert_eq!((balance.posted, balance.held), expected);
            }
        }
        for (account, start) in self.model.periods() {
            let expected = (self.model.posted(account, now, start), self.model.held(account, now, start));
            assert_eq!(self.book.period(account, start), Some(expected));
        }
        assert_eq!(self.book.drift(0, 100), (Vec::new(), None));
        log.events > 0 || self.now > now
    }
}

fn demands(base: u64) -> Vec<Demand> {
    let limit = |ceiling, hard| Limit {
        id: LimitId(1),
        ceiling,
        hard,
        shadow: false,
        count_denied: false,
        hold: Hold::Expected,
        on_expiry: if hard { OnExpiry::Charge } else { OnExpiry::Release },
    };
    let demand = |account, ceiling, hard| Demand {
        account,
        base,
        output: 10,
        cap: 30,
        worst: 60,
        learns: false,
        refund_failed: false,
        limits: vec![limit(ceiling, hard)],
    };
    vec![demand(0, 1, false), demand(1, 40, false), demand(4, 45, true)]
}
