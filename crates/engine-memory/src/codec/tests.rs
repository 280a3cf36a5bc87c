//! Every event survives the log's spelling; nothing else is read as one.

use proptest::prelude::*;
use tollbook_ledger::event::*;
use tollbook_ledger::{AccountId, EstimatorId, Profile, ReservationId, Shape, SubjectId};

use super::*;
use crate::wire::Reader;

/// Draws values that favour the bounds.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn u64(&mut self) -> u64 {
        match self.next() % 5 {
            0 => 0,
            1 => u64::MAX,
            2 => self.next() % 300,
            3 => (1 << 53) - 1,
            _ => self.next(),
        }
    }

    fn i64(&mut self) -> i64 {
        self.u64().cast_signed()
    }

    fn u32(&mut self) -> u32 {
        u32::try_from(self.u64() & 0xffff_ffff).unwrap()
    }

    fn u16(&mut self) -> u16 {
        u16::try_from(self.u64() & 0xffff).unwrap()
    }

    fn u8(&mut self) -> u8 {
        u8::try_from(self.u64() & 0xff).unwrap()
    }

    fn bool(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }

    fn option(&mut self) -> Option<u64> {
        self.bool().then(|| self.u64())
    }

    fn id(&mut self) -> ReservationId {
        ReservationId(u128::from(self.next()) << 64 | u128::from(self.u64()))
    }

    fn many<T>(&mut self, max: u64, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.next() % (max + 1)).map(|_| one(self)).collect()
    }

    fn of<T: Copy>(&mut self, table: &[(T, u8)]) -> T {
        table[usize::try_from(self.next()).unwrap() % table.len()].0
    }

    fn account(&mut self) -> AccountId {
        AccountId { subject: SubjectId(self.next()), name: self.u64() }
    }

    fn opened(&mut self) -> Opened {
        let shape = match self.next() % 4 {
            3 => Shape::Forecast { window: self.u8(), strict: self.bool() },
            0 => Shape::Rate { buckets: self.u8(), width: self.u64(), weights: self.of(&WEIGHTS) },
            1 => Shape::Quota,
            _ => Shape::Concurrency,
        };
        Opened { slot: self.u32(), account: self.account(), measure: self.of(&MEASURES), shape }
    }

    fn period_opened(&mut self) -> PeriodOpened {
        PeriodOpened { slot: self.u32(), start: self.u64(), end: self.u64() }
    }

    fn learner(&mut self) -> Learner {
        Learner { own: EstimatorId(self.u64()), prior: EstimatorId(self.next()), kind: self.of(&KINDS) }
    }

    fn leg(&mut self) -> HeldLeg {
        let held = self.u64();
        HeldLeg {
            slot: self.u32(),
            at_worst: self.bool(),
            charge: self.bool(),
            refund_failed: self.bool(),
            shadow_denied: self.bool(),
            place: self.u64(),
            base: self.u64(),
            per_output: self.u64(),
            cap: self.u64(),
            worst: self.u64(),
            output: self.u64(),
            held,
            decided: if self.bool() { held } else { self.u64() },
            carried: self.u64(),
            hard_ceiling: self.u64(),
        }
    }

    /// Legs of one call resemble each other.
    fn legs(&mut self) -> Vec<HeldLeg> {
        let mut legs = self.many(32, Self::leg);
        for at in 1..legs.len() {
            if self.bool() {
                let HeldLeg { cap, output, base, worst, held, .. } = legs[at - 1];
                legs[at] = HeldLeg { cap, output, base, worst, held, ..legs[at] };
            }
        }
        legs
    }
}

/// Lists for one event to borrow.
struct Lists {
    context: Vec<u8>,
    opened: Vec<Opened>,
    periods: Vec<PeriodOpened>,
    learners: Vec<Learner>,
    legs: Vec<HeldLeg>,
    posted: Vec<i64>,
    grown: Vec<Grown>,
    denied: Vec<DeniedPost>,
    estimators: Vec<EstimatorId>,
    slots: Vec<u32>,
    trimmed: Vec<u32>,
    buckets: Vec<u64>,
    rows: Vec<PeriodRow>,
    quotas: Vec<QuotaLeg>,
    gateways: Vec<GatewayRow>,
    batches: Vec<Batch>,
    deltas: Vec<i64>,
}

impl Lists {
    fn draw(draw: &mut Draw) -> Self {
        Self {
            context: draw.many(512, Draw::u8),
            opened: draw.many(4, Draw::opened),
            periods: draw.many(4, Draw::period_opened),
            learners: draw.many(2, Draw::learner),
            legs: draw.legs(),
            posted: draw.many(32, Draw::i64),
            grown: draw.many(8, |draw| Grown {
                leg: draw.u8(),
                output: draw.u64(),
                held: draw.u64(),
                decided: draw.u64(),
            }),
            denied: draw.many(8, |draw| DeniedPost { slot: draw.u32(), amount: draw.u64() }),
            estimators: draw.many(8, |draw| EstimatorId(draw.u64())),
            slots: draw.many(8, Draw::u32),
            trimmed: draw.many(8, Draw::u32),
            buckets: draw.many(64, Draw::u64),
            rows: draw.many(4, |draw| PeriodRow {
                start: draw.u64(),
                end: draw.u64(),
                posted: draw.i64(),
                held: draw.i64(),
            }),
            quotas: draw.many(8, |draw| QuotaLeg {
                account: draw.account(),
                leg: draw.u8(),
                requests: draw.bool(),
                refund_failed: draw.bool(),
                period: draw.u64(),
                charged: draw.u64(),
                decided: draw.u64(),
            }),
            gateways: draw.many(256, |draw| GatewayRow {
                gateway: draw.u64(),
                seq: draw.u64(),
                heard: draw.u64(),
            }),
            batches: draw.many(32, |draw| Batch {
                slot: draw.u32(),
                gateway: draw.u64(),
                seq: draw.u64(),
                base_second: draw.u64(),
                seconds: draw.u8(),
            }),
            deltas: draw.many(32 * 128, Draw::i64),
        }
    }

    fn reserved(&self, draw: &mut Draw) -> Reserved<'_> {
        Reserved {
            now: draw.u64(),
            id: draw.id(),
            attempt: draw.u16(),
            due: draw.u64(),
            profile: Profile { ttft: draw.u64(), pace: draw.u64() },
            context: &self.context,
            opened: &self.opened,
            periods: &self.periods,
            learners: &self.learners,
            legs: &self.legs,
        }
    }

    fn ended(&self, draw: &mut Draw) -> Ended<'_> {
        Ended {
            now: draw.u64(),
            id: draw.id(),
            attempt: draw.u16(),
            end: draw.of(&ENDS),
            posted: &self.posted,
            learned: draw.option(),
        }
    }

    fn event(&self, kind: usize, draw: &mut Draw) -> Event<'_> {
        match kind {
            0 => Event::Reserved(self.reserved(draw)),
            1 => Event::Denied { now: draw.u64(), posts: &self.denied },
            2 => Event::Renewed(RenewedTo {
                now: draw.u64(),
                id: draw.id(),
                attempt: draw.u16(),
                due: draw.u64(),
                sent: draw.bool(),
                outgrown: draw.option(),
                grown: &self.grown,
            }),
            3 => Event::Ended(self.ended(draw)),
            4 => Event::Rebooked { ended: self.ended(draw), reserved: self.reserved(draw) },
            5 => Event::Corrected(Corrected {
                now: draw.u64(),
                id: draw.id(),
                attempt: draw.u16(),
                posted: &self.posted,
                learned: draw.option(),
            }),
            6 => Event::Adjusted(Adjusted {
                now: draw.u64(),
                id: draw.id().0,
                opened: draw.bool().then(|| draw.opened()),
                period_opened: draw.bool().then(|| draw.period_opened()),
                slot: draw.u32(),
                period: draw.u64(),
                delta: draw.i64(),
            }),
            7 => Event::Repaired { now: draw.u64(), slot: draw.u32(), period: draw.u64(), held: draw.i64() },
            8 => Event::Pruned(Pruned {
                now: draw.u64(),
                tombstones: draw.u32(),
                adjusts: draw.u32(),
                estimators: &self.estimators,
                accounts: &self.slots,
                trimmed: &self.trimmed,
            }),
            9 => Event::Clock(ClockRow { seen: draw.u64(), behind: draw.u64(), slots: draw.u32() }),
            10 => Event::Account(AccountRow {
                opened: draw.opened(),
                held: draw.i64(),
                live: draw.u32(),
                version: draw.u32(),
                mean_hold: draw.u64(),
                used: draw.u64(),
                shadow_denied: draw.u64(),
                shadow_demand: draw.u64(),
                denied_bucket: draw.u64(),
                newest: draw.u64(),
                buckets: &self.buckets,
                gateways: &self.gateways,
                periods: &self.rows,
            }),
            11 => Event::Live(LiveRow {
                id: draw.id(),
                attempt: draw.u16(),
                admitted: draw.u64(),
                due: draw.u64(),
                sent: draw.bool(),
                context: &self.context,
                learners: &self.learners,
                legs: &self.legs,
            }),
            12 => Event::Tombstone(TombstoneRow {
                id: draw.id(),
                attempt: draw.u16(),
                end: draw.of(&ENDS),
                admitted: draw.u64(),
                ended: draw.u64(),
                legs: draw.u8(),
                learners: &self.learners,
                quotas: &self.quotas,
            }),
            13 => Event::Estimate(EstimateRow {
                id: EstimatorId(draw.u64()),
                kind: draw.of(&KINDS),
                n: draw.u64(),
                m: draw.u64(),
                samples: &self.buckets,
                used: draw.u64(),
            }),
            14 => Event::Progressed { now: draw.u64(), batches: &self.batches, deltas: &self.deltas },
            _ => Event::AdjustKnown { id: draw.id().0, applied: draw.u64() },
        }
    }
}

const EVENTS: usize = 16;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_event_survives(seed in 1_u64..) {
        let mut draw = Draw(seed);
        for kind in 0..EVENTS {
            let lists = Lists::draw(&mut draw);
            let event = lists.event(kind, &mut draw);
            let mut bytes = Vec::new();
            encode(&event, &mut bytes);
            prop_assert!(bytes.len() <= crate::log::frame::PAYLOAD_MAX);
            let mut arena = Arena::default();
            let mut from = Reader::new(&bytes);
            prop_assert_eq!(arena.decode(&mut from), Ok(event));
            prop_assert!(from.rest().is_empty());
        }
    }

    #[test]
    fn a_short_event_is_an_error(seed in 1_u64..) {
        let mut draw = Draw(seed);
        for kind in 0..EVENTS {
            let lists = Lists::draw(&mut draw);
            let mut bytes = Vec::new();
            encode(&lists.event(kind, &mut draw), &mut bytes);
            for len in (0..bytes.len()).rev().take(120) {
                prop_assert!(Arena::default().decode(&mut Reader::new(&bytes[..len])).is_err());
            }
        }
    }

    #[test]
    fn garbage_is_an_answer_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), tag in 0_u8..40) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = tag;
        }
        let _answer = Arena::default().decode(&mut Reader::new(&bytes));
    }
}
