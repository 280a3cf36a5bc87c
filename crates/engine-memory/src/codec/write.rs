//! Writing events.

use tollbook_ledger::event::{
    AccountRow, Adjusted, ClockRow, Corrected, Ended, EstimateRow, Event, GatewayRow, Grown, HeldLeg,
    Learner, LiveRow, Opened, PeriodOpened, PeriodRow, Pruned, QuotaLeg, RenewedTo, Reserved, TombstoneRow,
};
use tollbook_ledger::{AccountId, Attempt, ReservationId, Shape};

use super::{BEFORE_FIRST, ENDS, KINDS, MEASURES, WEIGHTS, code_of, leg};
use crate::wire::Writer;

/// Appends an event's bytes.
pub(crate) fn encode(event: &Event<'_>, out: &mut Vec<u8>) {
    let mut to = Writer::new(out);
    match event {
        Event::Reserved(row) => {
            to.u8(super::RESERVED_PLANNED);
            reserved(&mut to, row);
        }
        Event::Denied { now, posts } => {
            to.u8(super::DENIED);
            to.u64(*now);
            to.list(posts, |to, post| {
                to.u64(u64::from(post.slot));
                to.u64(post.amount);
            });
        }
        Event::Renewed(row) => {
            to.u8(if row.outgrown.is_some() { super::RENEWED_OUTGROWN } else { super::RENEWED });
            renewed(&mut to, row);
        }
        Event::Ended(row) => {
            to.u8(super::ENDED);
            ended(&mut to, row);
        }
        Event::Rebooked { ended: old, reserved: new } => {
            to.u8(super::REBOOKED_PLANNED);
            ended(&mut to, old);
            reserved(&mut to, new);
        }
        Event::Corrected(row) => {
            to.u8(super::CORRECTED);
            corrected(&mut to, row);
        }
        Event::Adjusted(row) => {
            to.u8(super::ADJUSTED);
            adjusted(&mut to, row);
        }
        Event::Repaired { now, slot, period, held } => {
            to.u8(super::REPAIRED);
            to.u64(*now);
            to.u64(u64::from(*slot));
            to.u64(*period);
            to.i64(*held);
        }
        Event::Progressed { now, batches, deltas } => {
            to.u8(super::PROGRESSED);
            to.u64(*now);
            to.list(batches, |to, batch| {
                to.u64(u64::from(batch.slot));
                to.fixed64(batch.gateway);
                to.u64(batch.seq);
                to.u64(batch.base_second);
                to.u8(batch.seconds);
            });
            to.count(deltas.len());
            to.i64s(deltas);
        }
        Event::Pruned(row) => {
            to.u8(super::PRUNED);
            pruned(&mut to, row);
        }
        Event::Clock(row) => {
            to.u8(super::CLOCK);
            clock(&mut to, row);
        }
        Event::Account(row) => {
            to.u8(super::ACCOUNT_PLANNED);
            account_row(&mut to, row);
        }
        Event::Live(row) => {
            to.u8(super::LIVE_PLANNED);
            live(&mut to, row);
        }
        Event::Tombstone(row) => {
            to.u8(super::TOMBSTONE_PLANNED);
            tombstone(&mut to, row);
        }
        Event::Estimate(row) => {
            to.u8(super::ESTIMATE_PLANNED);
            estimate(&mut to, row);
        }
        Event::AdjustKnown { id, applied } => {
            to.u8(super::ADJUST_KNOWN);
            to.fixed128(*id);
            to.u64(*applied);
        }
    }
}

impl Writer<'_> {
    #[inline]
    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.count(items.len());
        for item in items {
            each(self, item);
        }
    }

    #[inline]
    fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    #[inline]
    fn option(&mut self, value: Option<u64>) {
        self.bool(value.is_some());
        if let Some(value) = value {
            self.u64(value);
        }
    }

    #[inline]
    fn name(&mut self, id: ReservationId, attempt: Attempt) {
        self.fixed128(id.0);
        self.u64(u64::from(attempt));
    }

    fn account(&mut self, account: AccountId) {
        self.fixed64(account.subject.0);
        self.fixed64(account.name);
    }
}

fn reserved(to: &mut Writer<'_>, row: &Reserved<'_>) {
    to.u64(row.now);
    to.name(row.id, row.attempt);
    to.u64(row.due);
    to.u64(row.profile.ttft);
    to.u64(row.profile.pace);
    to.bytes(row.context);
    to.list(row.opened, opened);
    to.list(row.periods, period_opened);
    to.list(row.learners, learner);
    legs(to, row.legs);
}

fn opened(to: &mut Writer<'_>, row: &Opened) {
    to.u64(u64::from(row.slot));
    to.account(row.account);
    to.u8(code_of(&MEASURES, row.measure));
    match row.shape {
        Shape::Rate { buckets, width, weights } => {
            to.u8(super::RATE);
            to.u8(buckets);
            to.u64(width);
            to.u8(code_of(&WEIGHTS, weights));
        }
        Shape::Forecast { window, strict } => {
            to.u8(super::FORECAST);
            to.u8(window);
            to.bool(strict);
        }
        Shape::Quota => to.u8(super::QUOTA),
        Shape::Concurrency => to.u8(super::CONCURRENCY),
    }
}

fn period_opened(to: &mut Writer<'_>, row: &PeriodOpened) {
    to.u64(u64::from(row.slot));
    to.u64(row.start);
    to.u64(row.end);
}

fn learner(to: &mut Writer<'_>, row: &Learner) {
    to.fixed64(row.own.0);
    to.fixed64(row.prior.0);
    to.u8(code_of(&KINDS, row.kind));
}

fn legs(to: &mut Writer<'_>, legs: &[HeldLeg]) {
    let mut before = BEFORE_FIRST;
    to.list(legs, |to, leg| {
        held_leg(to, leg, &before);
        before = *leg;
    });
}

fn held_leg(to: &mut Writer<'_>, row: &HeldLeg, before: &HeldLeg) {
    let bit = |set: bool, bit: u64| if set { bit } else { 0 };
    let flags = bit(row.at_worst, leg::AT_WORST)
        | bit(row.charge, leg::CHARGE)
        | bit(row.refund_failed, leg::REFUND_FAILED)
        | bit(row.shadow_denied, leg::SHADOW_DENIED)
        | bit(row.hard_ceiling == u64::MAX, leg::NO_HARD_CEILING)
        | bit(row.decided == row.held, leg::DECIDED_AS_HELD)
        | bit(row.carried == 0, leg::NOTHING_CARRIED)
        | bit(row.cap == before.cap, leg::CAP_AS_BEFORE)
        | bit(row.output == before.output, leg::OUTPUT_AS_BEFORE)
        | bit(row.base == before.base, leg::BASE_AS_BEFORE)
        | bit(row.per_output == before.per_output, leg::PER_OUTPUT_AS_BEFORE)
        | bit(row.worst == before.worst, leg::WORST_AS_BEFORE)
        | bit(row.held == before.held, leg::HELD_AS_BEFORE);
    to.u64(flags);
    to.u64(u64::from(row.slot));
    to.i64(row.place.wrapping_sub(before.place).cast_signed());
    let mut unless = |bit: u64, value: u64| {
        if flags & bit == 0 {
            to.u64(value);
        }
    };
    unless(leg::BASE_AS_BEFORE, row.base);
    unless(leg::PER_OUTPUT_AS_BEFORE, row.per_output);
    unless(leg::CAP_AS_BEFORE, row.cap);
    unless(leg::WORST_AS_BEFORE, row.worst);
    unless(leg::OUTPUT_AS_BEFORE, row.output);
    unless(leg::HELD_AS_BEFORE, row.held);
    unless(leg::DECIDED_AS_HELD, row.decided);
    unless(leg::NOTHING_CARRIED, row.carried);
    unless(leg::NO_HARD_CEILING, row.hard_ceiling);
}

fn renewed(to: &mut Writer<'_>, row: &RenewedTo<'_>) {
    to.u64(row.now);
    to.name(row.id, row.attempt);
    to.u64(row.due);
    to.bool(row.sent);
    if let Some(output) = row.outgrown {
        to.u64(output);
    }
    to.list(row.grown, |to, grown: &Grown| {
        to.u8(grown.leg);
        to.u64(grown.output);
        to.u64(grown.held);
        to.u64(grown.decided);
    });
}

fn ended(to: &mut Writer<'_>, row: &Ended<'_>) {
    to.u64(row.now);
    to.name(row.id, row.attempt);
    to.u8(code_of(&ENDS, row.end));
    to.list(row.posted, |to, amount| to.i64(*amount));
    to.option(row.learned);
}

fn corrected(to: &mut Writer<'_>, row: &Corrected<'_>) {
    to.u64(row.now);
    to.name(row.id, row.attempt);
    to.list(row.posted, |to, amount| to.i64(*amount));
    to.option(row.learned);
}

fn adjusted(to: &mut Writer<'_>, row: &Adjusted) {
    to.u64(row.now);
    to.fixed128(row.id);
    to.list(row.opened.as_slice(), opened);
    to.list(row.period_opened.as_slice(), period_opened);
    to.u64(u64::from(row.slot));
    to.u64(row.period);
    to.i64(row.delta);
}

fn pruned(to: &mut Writer<'_>, row: &Pruned<'_>) {
    to.u64(row.now);
    to.u64(u64::from(row.tombstones));
    to.u64(u64::from(row.adjusts));
    to.list(row.estimators, |to, id| to.fixed64(id.0));
    to.list(row.accounts, |to, slot| to.u64(u64::from(*slot)));
    to.list(row.trimmed, |to, slot| to.u64(u64::from(*slot)));
}

fn clock(to: &mut Writer<'_>, row: &ClockRow) {
    to.u64(row.seen);
    to.u64(row.behind);
    to.u64(u64::from(row.slots));
}

fn account_row(to: &mut Writer<'_>, row: &AccountRow<'_>) {
    opened(to, &row.opened);
    to.i64(row.held);
    to.u64(u64::from(row.live));
    to.u64(u64::from(row.version));
    to.u64(row.mean_hold);
    to.u64(row.used);
    to.u64(row.shadow_denied);
    to.u64(row.shadow_demand);
    to.u64(row.denied_bucket);
    to.u64(row.newest);
    to.list(row.buckets, |to, amount| to.u64(*amount));
    to.list(row.gateways, |to, row: &GatewayRow| {
        to.fixed64(row.gateway);
        to.u64(row.seq);
        to.u64(row.heard);
    });
    to.list(row.periods, |to, period: &PeriodRow| {
        to.u64(period.start);
        to.u64(period.end);
        to.i64(period.posted);
        to.i64(period.held);
    });
}

fn live(to: &mut Writer<'_>, row: &LiveRow<'_>) {
    to.name(row.id, row.attempt);
    to.u64(row.admitted);
    to.u64(row.due);
    to.bool(row.sent);
    to.bytes(row.context);
    to.list(row.learners, learner);
    legs(to, row.legs);
}

fn tombstone(to: &mut Writer<'_>, row: &TombstoneRow<'_>) {
    to.name(row.id, row.attempt);
    to.u8(code_of(&ENDS, row.end));
    to.u64(row.admitted);
    to.u64(row.ended);
    to.u8(row.legs);
    to.list(row.learners, learner);
    to.list(row.quotas, |to, quota: &QuotaLeg| {
        to.account(quota.account);
        to.u8(quota.leg);
        to.bool(quota.requests);
        to.bool(quota.refund_failed);
        to.u64(quota.period);
        to.u64(quota.charged);
        to.u64(quota.decided);
    });
}

fn estimate(to: &mut Writer<'_>, row: &EstimateRow<'_>) {
    to.fixed64(row.id.0);
    to.u8(code_of(&KINDS, row.kind));
    to.u64(row.n);
    to.u64(row.m);
    to.list(row.samples, |to, sample| to.u64(*sample));
    to.u64(row.used);
}
