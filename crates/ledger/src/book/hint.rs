//! Why a limit denies, how long to wait, and which of several limits is named (L14).
//!
//! A wait is *firm* if the demand fits then with live holds unchanged. Otherwise holds stand in the way; then it is
//! *likely*: the account's mean hold time shared among its live holds, within bounds, and no more is promised.

use core::cmp::Reverse;

use super::account::{Account, Sides, until};
use super::plan::{Block, Plan, Standing};
use super::track::{At, Flow, Track};
use crate::account::Shape;
use crate::command::{Leg, Limit, Periods, Reserve};
use crate::reply::{Binding, Denial, DenyKind, Due, Wait};
use crate::units::{FORECAST_AHEAD, Micros, SECOND, micros, signed, unsigned};

/// Longest likely wait for a quota or concurrency account.
const LIKELY_MAX: Micros = 60 * SECOND;

/// Why `limit` has no room for the demand.
pub(super) fn kind(
    now: Micros,
    leg: &Leg,
    account: Option<&Account>,
    standing: &Standing,
    flow: Option<&Flow>,
    limit: &Limit,
) -> DenyKind {
    if standing.demand() > limit.ceiling {
        return DenyKind::TooLarge;
    }
    let likely = |max: Micros| DenyKind::Busy(Wait { after: likely(account, max), firm: false });
    match leg.shape {
        Shape::Concurrency => likely(LIKELY_MAX),
        Shape::Quota => {
            let left = until(now, standing.period_end);
            let spent = standing.posted.saturating_add(signed(standing.fresh)) > signed(limit.ceiling);
            // A rebook keeps a period that may be over: like a lifetime, it gets no room by waiting for its end.
            match (spent, leg.periods == Periods::Lifetime || left == 0) {
                (true, true) => DenyKind::Exhausted,
                (true, false) => DenyKind::Spent(Wait { after: left, firm: true }),
                (false, true) => likely(LIKELY_MAX),
                (false, false) => likely(LIKELY_MAX.min(left)),
            }
        }
        Shape::Forecast { window, strict } => {
            let Some(flow) = flow else { return likely(LIKELY_MAX) };
            let of = (limit.ceiling, leg.spares());
            let (wait, at) = match account.map(|account| &account.sides) {
                Some(Sides::Forecast(track)) => (track.wait(track.at(now), flow, of), track.at(now)),
                _ => (Track::new(window, strict).wait(At::fresh(now), flow, of), At::fresh(now)),
            };
            let most = micros(u64::from(window) + u64::from(FORECAST_AHEAD) + 1);
            match wait.map(|seconds| at.after(seconds).saturating_sub(now)) {
                // Only a clock that stepped back makes a wait longer than the account looks.
                Some(after) => {
                    let firm = after <= most && !limit.count_denied;
                    DenyKind::Busy(Wait { after: after.min(most), firm })
                }
                None => likely(most),
            }
        }
        Shape::Rate { buckets, width, .. } => {
            let window = width.saturating_mul(u64::from(buckets.saturating_sub(1)));
            let wanted = unsigned(standing.held).saturating_add(standing.fresh);
            match (limit.ceiling.checked_sub(wanted), account.map(|account| &account.sides)) {
                (Some(room), Some(Sides::Rate { ring, .. })) => {
                    let after = ring.wait(ring.at(now), now, room, standing.extra);
                    // Only a clock that stepped back makes a wait longer than the ring.
                    let most = window.saturating_add(width);
                    let firm = after <= most && !limit.count_denied;
                    DenyKind::Busy(Wait { after: after.min(most), firm })
                }
                _ => likely(window),
            }
        }
    }
}

/// The answer to a reserve that some limit blocks; `None` if none does.
pub(super) fn denial(
    plan: &Plan,
    cmd: &Reserve,
    reset: impl Fn(&Block) -> Micros,
    due: Vec<Due>,
) -> Option<Denial> {
    let block = plan.blocks.iter().min_by_key(|block| rank(block))?;
    let standing = plan.standings.get(block.leg)?;
    let firm = plan.blocks.iter().all(|block| wait(block).is_some_and(|wait| wait.firm));
    debug_assert!(plan.standings.len() == cmd.legs.len(), "every leg is looked at");
    Some(Denial {
        binding: Binding {
            limit: block.limit.id,
            leg: block.leg,
            hard: block.limit.hard,
            kind: block.kind,
            ceiling: block.limit.ceiling,
            posted: standing.posted,
            held: standing.held,
            demand: block.amount,
            reset: reset(block),
        },
        firm,
        room: plan.standings.iter().map(Standing::room).collect(),
        due,
    })
}

/// `never` first, then the longest wait, then the earlier leg, then the lower ceiling.
fn rank(block: &Block) -> (u8, Reverse<Micros>, usize, u64) {
    let never = match block.kind {
        DenyKind::TooLarge => 0,
        DenyKind::Exhausted => 1,
        DenyKind::Spent(_) | DenyKind::Busy(_) => 2,
    };
    let after = wait(block).map_or(0, |wait| wait.after);
    (never, Reverse(after), block.leg, block.limit.ceiling)
}

fn wait(block: &Block) -> Option<Wait> {
    match block.kind {
        DenyKind::TooLarge | DenyKind::Exhausted => None,
        DenyKind::Spent(wait) | DenyKind::Busy(wait) => Some(wait),
    }
}

/// Between 1 s and `max`; `max` wins if it is shorter.
fn likely(account: Option<&Account>, max: Micros) -> Micros {
    let shared = account.map_or(0, |account| account.mean_hold / u64::from(account.live.max(1)));
    shared.max(SECOND).min(max)
}
