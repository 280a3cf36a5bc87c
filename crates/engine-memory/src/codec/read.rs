//! Reading events back.

use tollbook_ledger::event::{
    AccountRow, Adjusted, Batch, ClockRow, Corrected, DeniedPost, Ended, EstimateRow, Event, GatewayRow,
    Grown, HeldLeg, Learner, LiveRow, Opened, PeriodOpened, PeriodRow, Pruned, QuotaLeg, RenewedTo, Reserved,
    TombstoneRow,
};
use tollbook_ledger::{
    AccountId, Attempt, End, EstimatorId, EstimatorKind, Profile, ReservationId, Shape, SubjectId,
};

use super::{BEFORE_FIRST, ENDS, KINDS, MEASURES, WEIGHTS, leg, value_of};
use crate::wire::{Malformed, Read, Reader};

/// Keeps the lists an event borrows; used again for every event of a replay.
#[derive(Default, Debug)]
pub(crate) struct Arena {
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
    period_rows: Vec<PeriodRow>,
    quotas: Vec<QuotaLeg>,
    gateways: Vec<GatewayRow>,
    batches: Vec<Batch>,
}

impl Arena {
    /// Takes one event.
    pub(crate) fn decode<'a>(&'a mut self, from: &mut Reader<'a>) -> Read<Event<'a>> {
        let event = match from.u8("tag")? {
            super::RESERVED => Event::Reserved(self.reserved(from, Since::First)?),
            super::RESERVED_PLANNED => Event::Reserved(self.reserved(from, Since::Plans)?),
            super::DENIED => self.denied(from)?,
            super::RENEWED => Event::Renewed(self.renewed(from, false)?),
            super::RENEWED_OUTGROWN => Event::Renewed(self.renewed(from, true)?),
            super::ENDED => {
                let head = ended_head(from, &mut self.posted)?;
                Event::Ended(head.with(&self.posted))
            }
            super::REBOOKED => self.rebooked(from, Since::First)?,
            super::REBOOKED_PLANNED => self.rebooked(from, Since::Plans)?,
            super::PROGRESSED => self.progressed(from)?,
            super::CORRECTED => Event::Corrected(self.corrected(from)?),
            super::ADJUSTED => Event::Adjusted(self.adjusted(from)?),
            super::REPAIRED => Event::Repaired {
                now: from.u64("now")?,
                slot: from.u32("slot")?,
                period: from.u64("period")?,
                held: from.i64("held")?,
            },
            super::PRUNED => Event::Pruned(self.pruned(from)?),
            super::CLOCK => Event::Clock(ClockRow {
                seen: from.u64("seen")?,
                behind: from.u64("behind")?,
                slots: from.u32("slots")?,
            }),
            super::ACCOUNT => Event::Account(self.account(from, Since::First)?),
            super::ACCOUNT_PLANNED => Event::Account(self.account(from, Since::Plans)?),
            super::LIVE => Event::Live(self.live(from, Since::First)?),
            super::LIVE_PLANNED => Event::Live(self.live(from, Since::Plans)?),
            super::TOMBSTONE => Event::Tombstone(self.tombstone(from, Since::First)?),
            super::TOMBSTONE_PLANNED => Event::Tombstone(self.tombstone(from, Since::Plans)?),
            super::ESTIMATE => Event::Estimate(EstimateRow {
                id: EstimatorId(from.fixed64("estimator")?),
                kind: EstimatorKind::Ema,
                n: from.u64("samples")?,
                m: from.u64("mean")?,
                samples: &[],
                used: from.u64("used")?,
            }),
            super::ESTIMATE_PLANNED => Event::Estimate(self.estimate(from)?),
            super::ADJUST_KNOWN => {
                Event::AdjustKnown { id: from.fixed128("adjust id")?, applied: from.u64("applied")? }
            }
            _ => return Err(Malformed { what: "tag" }),
        };
        Ok(event)
    }

    fn progressed<'a>(&'a mut self, from: &mut Reader<'a>) -> Read<Event<'a>> {
        let now = from.u64("now")?;
        list(from, &mut self.batches, |from| {
            Ok(Batch {
                slot: from.u32("slot")?,
                gateway: from.fixed64("gateway")?,
                seq: from.u64("sequence")?,
                base_second: from.u64("second")?,
                seconds: from.u8("seconds")?,
            })
        })?;
        list(from, &mut self.posted, |from| from.i64("difference"))?;
        Ok(Event::Progressed { now, batches: &self.batches, deltas: &self.posted })
    }

    fn estimate<'a>(&'a mut self, from: &mut Reader<'a>) -> Read<EstimateRow<'a>> {
        let id = EstimatorId(from.fixed64("estimator")?);
        let kind = value_of(&KINDS, from.u8("kind")?).ok_or(Malformed { what: "kind" })?;
        let (n, m) = (from.u64("samples")?, from.u64("mean")?);
        list(from, &mut self.buckets, |from| from.u64("sample"))?;
        Ok(EstimateRow { id, kind, n, m, samples: &self.buckets, used: from.u64("used")? })
    }

    fn reserved<'a>(&'a mut self, from: &mut Reader<'a>, since: Since) -> Read<Reserved<'a>> {
        let now = from.u64("now")?;
        let (id, attempt) = name(from)?;
        let due = from.u64("due")?;
        let profile = since.profile(from)?;
        let context = from.bytes("context")?;
        list(from, &mut self.opened, opened)?;
        list(from, &mut self.periods, period_opened)?;
        list(from, &mut self.learners, |from| learner(from, since))?;
        legs(from, &mut self.legs)?;
        Ok(Reserved {
            now,
            id,
            attempt,
            due,
            profile,
            context,
            opened: &self.opened,
            periods: &self.periods,
            learners: &self.learners,
            legs: &self.legs,
        })
    }

    fn rebooked<'a>(&'a mut self, from: &mut Reader<'a>, since: Since) -> Read<Event<'a>> {
        let mut posted = std::mem::take(&mut self.posted);
        let head = ended_head(from, &mut posted);
        self.posted = posted;
        let head = head?;
        // Split by field: the two halves borrow different lists.
        let Self { opened: o, periods: p, learners: l, legs: g, posted, .. } = self;
        let now = from.u64("now")?;
        let (id, attempt) = name(from)?;
        let due = from.u64("due")?;
        let profile = since.profile(from)?;
        let context = from.bytes("context")?;
        list(from, o, opened)?;
        list(from, p, period_opened)?;
        list(from, l, |from| learner(from, since))?;
        legs(from, g)?;
        let reserved =
            Reserved { now, id, attempt, due, profile, context, opened: o, periods: p, learners: l, legs: g };
        Ok(Event::Rebooked { ended: head.with(posted), reserved })
    }

    fn denied<'a>(&'a mut self, from: &mut Reader<'a>) -> Read<Event<'a>> {
        let now = from.u64("now")?;
        list(from, &mut self.denied, |from| {
            Ok(DeniedPost { slot: from.u32("slot")?, amount: from.u64("amount")? })
        })?;
        Ok(Event::Denied { now, posts: &self.denied })
    }

    fn renewed<'a>(&'a mut self, from: &mut Reader<'a>, outgrown: bool) -> Read<RenewedTo<'a>> {
        let now = from.u64("now")?;
        let (id, attempt) = name(from)?;
        let due = from.u64("due")?;
        let sent = boolean(from)?;
        let outgrown = if outgrown { Some(from.u64("outgrown")?) } else { None };
        list(from, &mut self.grown, |from| {
            Ok(Grown {
                leg: from.u8("leg")?,
                output: from.u64("output")?,
                held: from.u64("held")?,
                decided: from.u64("decided")?,
            })
        })?;
        Ok(RenewedTo { now, id, attempt, due, sent, outgrown, grown: &self.grown })
    }

    fn corrected<'a>(&'a mut self, from: &mut Reader<'a>) -> Read<Corrected<'a>> {
        let now = from.u64("now")?;
        let (id, attempt) = name(from)?;
        list(from, &mut self.posted, |from| from.i64("posted"))?;
        let learned = option(from)?;
        Ok(Corrected { now, id, attempt, posted: &self.posted, learned })
    }

    fn adjusted(&mut self, from: &mut Reader<'_>) -> Read<Adjusted> {
        let now = from.u64("now")?;
        let id = from.fixed128("adjust id")?;
        list(from, &mut self.opened, opened)?;
        list(from, &mut self.periods, period_opened)?;
        if self.opened.len() > 1 || self.periods.len() > 1 {
            return Err(Malformed { what: "openings of an adjust" });
        }
        Ok(Adjusted {
            now,
            id,
            opened: self.opened.first().copied(),
            period_opened: self.periods.first().copied(),
            slot: from.u32("slot")?,
            period: from.u64("period")?,
            delta: from.i64("delta")?,
        })
    }

    fn pruned<'a>(&'a mut self, from: &mut Reader<'a>) -> Read<Pruned<'a>> {
        let now = from.u64("now")?;
        let tombstones = from.u32("tombstones")?;
        let adjusts = from.u32("adjusts")?;
        list(from, &mut self.estimators, |from| from.fixed64("estimator").map(EstimatorId))?;
        list(from, &mut self.slots, |from| from.u32("slot"))?;
        list(from, &mut self.trimmed, |from| from.u32("slot"))?;
        let (estimators, accounts, trimmed) = (&self.estimators, &self.slots, &self.trimmed);
        Ok(Pruned { now, tombstones, adjusts, estimators, accounts, trimmed })
    }

    fn account<'a>(&'a mut self, from: &mut Reader<'a>, since: Since) -> Read<AccountRow<'a>> {
        let opened = opened(from)?;
        let held = from.i64("held")?;
        let live = from.u32("live")?;
        let version = from.u32("version")?;
        let mean_hold = from.u64("mean hold")?;
        let used = from.u64("used")?;
        let shadow_denied = from.u64("shadow denied")?;
        let shadow_demand = from.u64("shadow demand")?;
        let denied_bucket = from.u64("denied bucket")?;
        let newest = from.u64("newest bucket")?;
        list(from, &mut self.buckets, |from| from.u64("bucket"))?;
        self.gateways.clear();
        if since == Since::Plans {
            list(from, &mut self.gateways, |from| {
                let (gateway, seq) = (from.fixed64("gateway")?, from.u64("sequence")?);
                Ok(GatewayRow { gateway, seq, heard: from.u64("heard")? })
            })?;
        }
        list(from, &mut self.period_rows, |from| {
            Ok(PeriodRow {
                start: from.u64("start")?,
                end: from.u64("end")?,
                posted: from.i64("posted")?,
                held: from.i64("held")?,
            })
        })?;
        Ok(AccountRow {
            opened,
            held,
            live,
            version,
            mean_hold,
            used,
            shadow_denied,
            shadow_demand,
            denied_bucket,
            newest,
            buckets: &self.buckets,
            gateways: &self.gateways,
            periods: &self.period_rows,
        })
    }

    fn live<'a>(&'a mut self, from: &mut Reader<'a>, since: Since) -> Read<LiveRow<'a>> {
        let (id, attempt) = name(from)?;
        let admitted = from.u64("admitted")?;
        let due = from.u64("due")?;
        let sent = boolean(from)?;
        let context = from.bytes("context")?;
        list(from, &mut self.learners, |from| learner(from, since))?;
        legs(from, &mut self.legs)?;
        let (learners, legs) = (&self.learners, &self.legs);
        Ok(LiveRow { id, attempt, admitted, due, sent, context, learners, legs })
    }

    fn tombstone<'a>(&'a mut self, from: &mut Reader<'a>, since: Since) -> Read<TombstoneRow<'a>> {
        let (id, attempt) = name(from)?;
        let end = end(from)?;
        let admitted = from.u64("admitted")?;
        let ended = from.u64("ended")?;
        let legs = from.u8("legs")?;
        list(from, &mut self.learners, |from| learner(from, since))?;
        list(from, &mut self.quotas, |from| {
            Ok(QuotaLeg {
                account: account_id(from)?,
                leg: from.u8("leg")?,
                requests: boolean(from)?,
                refund_failed: boolean(from)?,
                period: from.u64("period")?,
                charged: from.u64("charged")?,
                decided: from.u64("decided")?,
            })
        })?;
        let (learners, quotas) = (&self.learners, &self.quotas);
        Ok(TombstoneRow { id, attempt, end, admitted, ended, legs, learners, quotas })
    }
}

/// An end without its amounts, so that they can be borrowed afterwards.
struct EndedHead {
    now: u64,
    id: ReservationId,
    attempt: Attempt,
    end: End,
    learned: Option<u64>,
}

impl EndedHead {
    fn with(self, posted: &[i64]) -> Ended<'_> {
        let Self { now, id, attempt, end, learned } = self;
        Ended { now, id, attempt, end, posted, learned }
    }
}

fn ended_head(from: &mut Reader<'_>, posted: &mut Vec<i64>) -> Read<EndedHead> {
    let now = from.u64("now")?;
    let (id, attempt) = name(from)?;
    let end = end(from)?;
    list(from, posted, |from| from.i64("posted"))?;
    let learned = option(from)?;
    Ok(EndedHead { now, id, attempt, end, learned })
}

#[inline]
fn list<'a, T>(
    from: &mut Reader<'a>,
    out: &mut Vec<T>,
    mut each: impl FnMut(&mut Reader<'a>) -> Read<T>,
) -> Read<()> {
    let count = from.count("list")?;
    out.clear();
    for _ in 0..count {
        out.push(each(from)?);
    }
    Ok(())
}

fn boolean(from: &mut Reader<'_>) -> Read<bool> {
    match from.u8("flag")? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed { what: "flag" }),
    }
}

fn option(from: &mut Reader<'_>) -> Read<Option<u64>> {
    if boolean(from)? { from.u64("option").map(Some) } else { Ok(None) }
}

fn name(from: &mut Reader<'_>) -> Read<(ReservationId, Attempt)> {
    Ok((ReservationId(from.fixed128("id")?), from.u16("attempt")?))
}

fn end(from: &mut Reader<'_>) -> Read<End> {
    value_of(&ENDS, from.u8("end")?).ok_or(Malformed { what: "end" })
}

fn account_id(from: &mut Reader<'_>) -> Read<AccountId> {
    Ok(AccountId { subject: SubjectId(from.fixed64("subject")?), name: from.fixed64("account")? })
}

fn opened(from: &mut Reader<'_>) -> Read<Opened> {
    let slot = from.u32("slot")?;
    let account = account_id(from)?;
    let measure = value_of(&MEASURES, from.u8("measure")?).ok_or(Malformed { what: "measure" })?;
    let shape = match from.u8("shape")? {
        super::RATE => Shape::Rate {
            buckets: from.u8("buckets")?,
            width: from.u64("width")?,
            weights: value_of(&WEIGHTS, from.u8("weights")?).ok_or(Malformed { what: "weights" })?,
        },
        super::FORECAST => Shape::Forecast { window: from.u8("window")?, strict: boolean(from)? },
        super::QUOTA => Shape::Quota,
        super::CONCURRENCY => Shape::Concurrency,
        _ => return Err(Malformed { what: "shape" }),
    };
    Ok(Opened { slot, account, measure, shape })
}

fn period_opened(from: &mut Reader<'_>) -> Read<PeriodOpened> {
    Ok(PeriodOpened { slot: from.u32("slot")?, start: from.u64("start")?, end: from.u64("end")? })
}

fn learner(from: &mut Reader<'_>, since: Since) -> Read<Learner> {
    let own = EstimatorId(from.fixed64("estimator")?);
    let prior = EstimatorId(from.fixed64("prior")?);
    let kind = match since {
        Since::First => EstimatorKind::Ema,
        Since::Plans => value_of(&KINDS, from.u8("kind")?).ok_or(Malformed { what: "kind" })?,
    };
    Ok(Learner { own, prior, kind })
}

/// Which layout a row has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// Nothing was planned, and every estimator was an `ema`.
    First,
    Plans,
}

impl Since {
    fn profile(self, from: &mut Reader<'_>) -> Read<Profile> {
        match self {
            Self::First => Ok(Profile::default()),
            Self::Plans => Ok(Profile { ttft: from.u64("time to first")?, pace: from.u64("pace")? }),
        }
    }
}

fn legs(from: &mut Reader<'_>, out: &mut Vec<HeldLeg>) -> Read<()> {
    let mut before = BEFORE_FIRST;
    list(from, out, |from| {
        before = held_leg(from, &before)?;
        Ok(before)
    })
}

fn held_leg(from: &mut Reader<'_>, before: &HeldLeg) -> Read<HeldLeg> {
    let flags = from.u64("flags")?;
    if flags & !leg::ALL != 0 {
        return Err(Malformed { what: "flags" });
    }
    let slot = from.u32("slot")?;
    let place = before.place.wrapping_add(from.i64("place")?.cast_unsigned());
    let mut unless = |bit: u64, else_is: u64| if flags & bit == 0 { from.u64("leg") } else { Ok(else_is) };
    let base = unless(leg::BASE_AS_BEFORE, before.base)?;
    let per_output = unless(leg::PER_OUTPUT_AS_BEFORE, before.per_output)?;
    let cap = unless(leg::CAP_AS_BEFORE, before.cap)?;
    let worst = unless(leg::WORST_AS_BEFORE, before.worst)?;
    let output = unless(leg::OUTPUT_AS_BEFORE, before.output)?;
    let held = unless(leg::HELD_AS_BEFORE, before.held)?;
    let decided = unless(leg::DECIDED_AS_HELD, held)?;
    let carried = unless(leg::NOTHING_CARRIED, 0)?;
    let hard_ceiling = unless(leg::NO_HARD_CEILING, u64::MAX)?;
    let is = |bit: u64| flags & bit != 0;
    Ok(HeldLeg {
        slot,
        at_worst: is(leg::AT_WORST),
        charge: is(leg::CHARGE),
        refund_failed: is(leg::REFUND_FAILED),
        shadow_denied: is(leg::SHADOW_DENIED),
        place,
        base,
        per_output,
        cap,
        worst,
        output,
        held,
        decided,
        carried,
        hard_ceiling,
    })
}
