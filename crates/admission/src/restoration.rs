//! A `restore` as bytes, for the spool: what was asked, what was answered, and what became of it.
//!
//! Invariants: what is read back is what was written, or nothing; every list is bounded as its verb bounds it. Numbers are
//! on disk, so none is used again.

use tollbook_engine::{Receipt, ReserveCall, RestoreCall, RestoredState};
use tollbook_ledger::codes::{ENDS, KINDS, MEASURES, WEIGHTS, code_of, value_of};
use tollbook_ledger::units::LIMITS_PER_LEG_MAX;
use tollbook_ledger::{
    Estimator, EstimatorId, Hold, LEGS_MAX, Leg, LegReceipt, Limit, LimitId, OnExpiry, Periods, Profile,
    Reserve, Shape,
};

use crate::bytes::{Reader, put_account, put_bytes, put_claim, put_count, put_u64};

pub(crate) fn put(out: &mut Vec<u8>, call: &RestoreCall) {
    let RestoreCall { asked, receipt, age, state } = call;
    put_claim(out, receipt.claim());
    put_asked(out, asked);
    put_receipt(out, receipt);
    put_u64(out, *age);
    match state {
        RestoredState::Held { sent } => out.extend_from_slice(&[1, u8::from(*sent)]),
        RestoredState::Ended { how, posted, landed, age, entry } => {
            out.extend_from_slice(&[2, code_of(&ENDS, *how), u8::from(posted.is_some())]);
            let posted = posted.as_deref().unwrap_or_default();
            put_count(out, posted.len());
            for amount in posted {
                put_u64(out, *amount);
            }
            put_u64(out, *landed);
            put_u64(out, *age);
            out.push(u8::from(entry.is_some()));
            put_bytes(out, entry.as_deref().unwrap_or_default());
        }
    }
}

pub(crate) fn take(reader: &mut Reader<'_>) -> Option<RestoreCall> {
    let claim = reader.claim()?;
    let (life, profile) = (reader.u64()?, Profile { ttft: reader.u64()?, pace: reader.u64()? });
    let (class, waiting) = (reader.u8()?, reader.flag()?);
    let context = reader.bytes()?.to_vec();
    let count = reader.count(LEGS_MAX)?;
    let legs: Vec<Leg> = (0..count).map(|_| take_leg(reader)).collect::<Option<_>>()?;
    let (epoch, now) = (reader.u64()?, reader.u64()?);
    let count = reader.count(LEGS_MAX)?;
    let taken = (0..count).map(|_| take_leg_receipt(reader)).collect::<Option<_>>()?;
    let (id, attempt) = (claim.id, claim.attempt);
    let receipt = tollbook_ledger::Receipt { id, attempt, now, legs: taken };
    let age = reader.u64()?;
    let state = match reader.u8()? {
        1 => RestoredState::Held { sent: reader.flag()? },
        2 => take_ended(reader)?,
        _ => return None,
    };
    let reserve = Reserve { id, attempt, life, profile, legs, context };
    let asked = ReserveCall { shard: claim.shard, reserve, class, waiting };
    Some(RestoreCall { asked, receipt: Receipt { shard: claim.shard, epoch, receipt }, age, state })
}

fn take_ended(reader: &mut Reader<'_>) -> Option<RestoredState> {
    let (how, is_posted) = (value_of(&ENDS, reader.u8()?)?, reader.flag()?);
    let count = reader.count(LEGS_MAX)?;
    let posted: Vec<u64> = (0..count).map(|_| reader.u64()).collect::<Option<_>>()?;
    let (landed, age, is_entry) = (reader.u64()?, reader.u64()?, reader.flag()?);
    let entry = reader.bytes()?.to_vec();
    let (posted, entry) = (is_posted.then_some(posted), is_entry.then_some(entry));
    Some(RestoredState::Ended { how, posted, landed, age, entry })
}

/// Shard, id and attempt are the receipt's.
fn put_asked(out: &mut Vec<u8>, asked: &ReserveCall) {
    let reserve = &asked.reserve;
    for number in [reserve.life, reserve.profile.ttft, reserve.profile.pace] {
        put_u64(out, number);
    }
    out.extend_from_slice(&[asked.class, u8::from(asked.waiting)]);
    put_bytes(out, &reserve.context);
    put_count(out, reserve.legs.len());
    for leg in &reserve.legs {
        put_leg(out, leg);
    }
}

fn put_leg(out: &mut Vec<u8>, leg: &Leg) {
    put_account(out, leg.account);
    out.push(code_of(&MEASURES, leg.measure));
    let (kind, small, wide, more) = match leg.shape {
        Shape::Rate { buckets, width, weights } => (1, buckets, width, code_of(&WEIGHTS, weights)),
        Shape::Forecast { window, strict } => (2, window, 0, u8::from(strict)),
        Shape::Quota => (3, 0, 0, 0),
        Shape::Concurrency => (4, 0, 0, 0),
    };
    out.extend_from_slice(&[kind, small, more]);
    put_u64(out, wide);
    let (kind, starts) = match leg.periods {
        Periods::None => (1, [0; 4]),
        Periods::Lifetime => (2, [0; 4]),
        Periods::Calendar(starts) => (3, starts),
    };
    out.push(kind);
    let (how, learns, own, prior, output) = match leg.estimator {
        Estimator::Learned { kind, own, prior, first } => (1, code_of(&KINDS, kind), own.0, prior.0, first),
        Estimator::Capped => (2, 0, 0, 0, 0),
        Estimator::Constant { output } => (3, 0, 0, 0, output),
    };
    for number in starts.into_iter().chain([leg.base, leg.per_output, leg.cap, leg.worst, own, prior, output])
    {
        put_u64(out, number);
    }
    out.extend_from_slice(&[how, learns, u8::from(leg.refund_failed)]);
    put_count(out, leg.limits.len());
    for limit in &leg.limits {
        out.extend_from_slice(&limit.id.0.to_le_bytes());
        put_u64(out, limit.ceiling);
        let flags = [limit.hard, limit.shadow, limit.count_denied];
        out.extend(flags.map(u8::from));
        out.extend([limit.hold == Hold::Worst, limit.on_expiry == OnExpiry::Charge].map(u8::from));
    }
}

fn take_leg(reader: &mut Reader<'_>) -> Option<Leg> {
    let account = reader.account()?;
    let measure = value_of(&MEASURES, reader.u8()?)?;
    let (kind, small, more, wide) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u64()?);
    let shape = match kind {
        1 => Shape::Rate { buckets: small, width: wide, weights: value_of(&WEIGHTS, more)? },
        2 => Shape::Forecast { window: small, strict: more == 1 },
        3 => Shape::Quota,
        4 => Shape::Concurrency,
        _ => return None,
    };
    let kind = reader.u8()?;
    let starts = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
    let periods = match kind {
        1 => Periods::None,
        2 => Periods::Lifetime,
        3 => Periods::Calendar(starts),
        _ => return None,
    };
    let (base, per_output, cap, worst) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let (own, prior, output) = (EstimatorId(reader.u64()?), EstimatorId(reader.u64()?), reader.u64()?);
    let (how, learns, refund_failed) = (reader.u8()?, reader.u8()?, reader.flag()?);
    let estimator = match how {
        1 => Estimator::Learned { kind: value_of(&KINDS, learns)?, own, prior, first: output },
        2 => Estimator::Capped,
        3 => Estimator::Constant { output },
        _ => return None,
    };
    let count = reader.count(LIMITS_PER_LEG_MAX)?;
    let limits = (0..count).map(|_| take_limit(reader)).collect::<Option<_>>()?;
    Some(Leg {
        account,
        measure,
        shape,
        periods,
        base,
        per_output,
        cap,
        worst,
        estimator,
        refund_failed,
        limits,
    })
}

fn take_limit(reader: &mut Reader<'_>) -> Option<Limit> {
    Some(Limit {
        id: LimitId(reader.u32()?),
        ceiling: reader.u64()?,
        hard: reader.flag()?,
        shadow: reader.flag()?,
        count_denied: reader.flag()?,
        hold: if reader.flag()? { Hold::Worst } else { Hold::Expected },
        on_expiry: if reader.flag()? { OnExpiry::Charge } else { OnExpiry::Release },
    })
}

fn put_receipt(out: &mut Vec<u8>, receipt: &Receipt) {
    put_u64(out, receipt.epoch);
    put_u64(out, receipt.receipt.now);
    put_count(out, receipt.receipt.legs.len());
    for leg in &receipt.receipt.legs {
        put_account(out, leg.account);
        for number in [leg.place, leg.expected, leg.held, leg.output, leg.ceiling, leg.reset] {
            put_u64(out, number);
        }
        out.extend_from_slice(&leg.posted.to_le_bytes());
        out.extend_from_slice(&leg.held_total.to_le_bytes());
        out.push(u8::from(leg.shadow_denied));
    }
}

fn take_leg_receipt(reader: &mut Reader<'_>) -> Option<LegReceipt> {
    Some(LegReceipt {
        account: reader.account()?,
        place: reader.u64()?,
        expected: reader.u64()?,
        held: reader.u64()?,
        output: reader.u64()?,
        ceiling: reader.u64()?,
        reset: reader.u64()?,
        posted: reader.i64()?,
        held_total: reader.i64()?,
        shadow_denied: reader.flag()?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use tollbook_engine::Shard;
    use tollbook_ledger::{AccountId, End, EstimatorKind, ReservationId, SubjectId, Weights};

    use super::*;

    fn leg(n: u64, shape: Shape, periods: Periods, estimator: Estimator) -> Leg {
        let measure = MEASURES[usize::try_from(n).unwrap() % MEASURES.len()].0;
        let limit = Limit {
            id: LimitId(3),
            ceiling: 1 << 52,
            hard: n.is_multiple_of(2),
            shadow: n.is_multiple_of(3),
            count_denied: n % 2 == 1,
            hold: if n.is_multiple_of(2) { Hold::Worst } else { Hold::Expected },
            on_expiry: if n.is_multiple_of(3) { OnExpiry::Charge } else { OnExpiry::Release },
        };
        Leg {
            account: AccountId { subject: SubjectId(n), name: n + 1 },
            measure,
            shape,
            periods,
            base: n * 7,
            per_output: 1_000,
            cap: 50,
            worst: 99,
            estimator,
            refund_failed: n.is_multiple_of(2),
            limits: vec![limit; usize::try_from(n).unwrap() % (LIMITS_PER_LEG_MAX + 1)],
        }
    }

    /// With every shape, period and estimator there is.
    pub(crate) fn call(state: RestoredState) -> RestoreCall {
        let learned =
            |kind| Estimator::Learned { kind, own: EstimatorId(5), prior: EstimatorId(6), first: 7 };
        let rate = |weights| Shape::Rate { buckets: 61, width: 1_000_000, weights };
        let calendar = Periods::Calendar([1, 2, 3, u64::MAX]);
        let mut legs = vec![
            leg(0, rate(Weights::Whole), Periods::None, Estimator::Capped),
            leg(1, rate(Weights::Oldest), Periods::None, Estimator::Constant { output: 77 }),
            leg(2, rate(Weights::Decay), Periods::None, learned(EstimatorKind::Ema)),
            leg(
                3,
                Shape::Forecast { window: 60, strict: true },
                Periods::None,
                learned(EstimatorKind::Forecast),
            ),
            leg(4, Shape::Forecast { window: 1, strict: false }, Periods::None, learned(EstimatorKind::P95)),
            leg(5, Shape::Quota, Periods::Lifetime, learned(EstimatorKind::RecentMean)),
            leg(6, Shape::Quota, calendar, Estimator::Capped),
        ];
        legs.extend((7..32).map(|n| leg(n, Shape::Concurrency, Periods::None, Estimator::Capped)));
        let taken = legs.iter().map(|leg| LegReceipt {
            account: leg.account,
            place: 1_800_000_000,
            expected: 5,
            held: 6,
            output: 7,
            ceiling: 8,
            posted: -9,
            held_total: i64::MIN,
            reset: u64::MAX,
            shadow_denied: leg.refund_failed,
        });
        let (id, attempt) = (ReservationId(1 << 127 | 9), 3);
        let receipt = tollbook_ledger::Receipt { id, attempt, now: 11, legs: taken.collect() };
        let profile = Profile { ttft: 1, pace: 2 };
        let reserve = Reserve { id, attempt, life: 15, profile, legs, context: vec![7; 512] };
        let asked = ReserveCall { shard: Shard(200), reserve, class: 2, waiting: true };
        RestoreCall { asked, receipt: Receipt { shard: Shard(200), epoch: 4, receipt }, age: 12, state }
    }

    pub(crate) fn states() -> Vec<RestoredState> {
        let ended = |how, posted, entry| RestoredState::Ended { how, posted, landed: 4, age: 5, entry };
        let mut states: Vec<RestoredState> =
            ENDS.iter().map(|(how, _)| ended(*how, Some(vec![1; 32]), Some(vec![8; 300]))).collect();
        states.push(ended(End::Settled, None, None));
        states.push(ended(End::Settled, Some(Vec::new()), Some(Vec::new())));
        states.extend([true, false].map(|sent| RestoredState::Held { sent }));
        states
    }

    #[test]
    fn what_is_written_is_read_back_and_no_less() {
        for state in states() {
            let written = call(state);
            let mut bytes = Vec::new();
            put(&mut bytes, &written);
            let mut reader = Reader { rest: &bytes };
            assert_eq!(format!("{:?}", take(&mut reader).unwrap()), format!("{written:?}"));
            assert!(reader.rest.is_empty());
            for cut in 0..bytes.len() {
                assert!(take(&mut Reader { rest: &bytes[..cut] }).is_none(), "cut at {cut}");
            }
        }
    }

    /// No byte of a damaged file may take the reader down.
    #[test]
    fn damaged_bytes_are_read_as_something_or_nothing() {
        let mut bytes = Vec::new();
        put(&mut bytes, &call(states().remove(0)));
        for at in 0..bytes.len() {
            for flipped in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = flipped;
                let _read = take(&mut Reader { rest: &damaged });
            }
        }
    }
}
