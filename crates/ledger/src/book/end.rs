//! `settle`, `release`, `expire`: one end for each reservation, and one correction after an expiry (L3).
//!
//! Invariants: an end frees every hold and posts to the accounts and periods that the reservation named (L5), in full
//! (L4). `requests` were posted at the door; an end only ever gives them back, and never more than is there (L6).
//! A claim that comes second changes nothing and says what it met.

use super::Book;
use super::account::Sides;
use super::check::check_actual;
use super::live::Live;
use super::plan;
use super::tomb::Tomb;
use crate::account::Measure;
use crate::command::{ExpireOne, Release, ReleaseWhy, Settle};
use crate::event::{Corrected, Ended, Event, HeldLeg, Log, QuotaLeg};
use crate::id::{Attempt, ReservationId};
use crate::reply::{End, Expired, Met, Posted, Refusal, Settled};
use crate::units::{Micros, signed};

/// How a live reservation ends, as far as amounts are concerned.
#[derive(Clone, Copy)]
pub(super) enum How<'a> {
    Used {
        actual: &'a [u64],
        /// Output that landed.
        landed: u64,
    },
    NeverSent,
    Failed,
    /// Expired after it was sent.
    Lapsed,
    /// Rebooked; the next attempt's legs take over `requests` on accounts they share.
    Moved {
        actual: Option<&'a [u64]>,
        landed: u64,
        onto: &'a [HeldLeg],
    },
}

/// What an end does besides its postings.
pub(super) struct Effects {
    /// Per leg.
    pub(super) overrun: Vec<u64>,
    /// What the attempt has charged to quotas.
    pub(super) charges: Vec<Posted>,
    /// Legs whose `requests` could not be given back in full.
    pub(super) dropped: u64,
}

/// How a claim on an expired reservation corrects it.
#[derive(Clone, Copy)]
enum Late<'a> {
    Used(&'a [u64]),
    Not(ReleaseWhy),
}

impl Book {
    /// End an attempt with the truth.
    pub fn settle(&mut self, now: Micros, cmd: &Settle, log: &mut impl Log) -> Result<Settled, Refusal> {
        check_actual(&cmd.actual)?;
        let legs = match self.lives.find(cmd.id, cmd.attempt).and_then(|slot| self.lives.get(slot)) {
            Some(live) => live.legs.len(),
            None => match self.tombs.find(cmd.id, cmd.attempt, self.steady(now)) {
                Some(tomb) if tomb.end == End::Expired => usize::from(tomb.legs),
                _ => cmd.actual.len(),
            },
        };
        if legs != cmd.actual.len() {
            return Err(Refusal::ActualCount);
        }
        let key = (cmd.id, cmd.attempt);
        match self.end(
            now,
            key,
            End::Settled,
            How::Used { actual: &cmd.actual, landed: cmd.landed },
            cmd.learn,
            log,
        )? {
            Some(settled) => Ok(settled),
            None => self.late(now, key, Late::Used(&cmd.actual), cmd.learn, log),
        }
    }

    /// End an attempt without usage.
    pub fn release(&mut self, now: Micros, cmd: &Release, log: &mut impl Log) -> Result<Settled, Refusal> {
        let how = match cmd.why {
            ReleaseWhy::NeverSent => How::NeverSent,
            ReleaseWhy::Failed => How::Failed,
        };
        let key = (cmd.id, cmd.attempt);
        match self.end(now, key, End::Released, how, None, log)? {
            Some(settled) => Ok(settled),
            None => self.late(now, key, Late::Not(cmd.why), None, log),
        }
    }

    /// Expire one reservation if it is due.
    pub fn expire(&mut self, now: Micros, cmd: &ExpireOne, log: &mut impl Log) -> Result<Expired, Refusal> {
        self.expire_if(now, cmd, false, log)
    }

    /// Expire one that was sent, due or not: somebody says that nobody ends it. One at the door is about to be sent, or is
    /// due within moments.
    pub fn expire_now(
        &mut self,
        now: Micros,
        cmd: &ExpireOne,
        log: &mut impl Log,
    ) -> Result<Expired, Refusal> {
        self.expire_if(now, cmd, true, log)
    }

    fn expire_if(
        &mut self,
        now: Micros,
        cmd: &ExpireOne,
        early: bool,
        log: &mut impl Log,
    ) -> Result<Expired, Refusal> {
        let Some(live) = self.lives.find(cmd.id, cmd.attempt).and_then(|slot| self.lives.get(slot)) else {
            return Ok(match self.met(now, cmd.id, cmd.attempt).before {
                Met::Ended(end) => Expired::Ended(end),
                _ => Expired::Unknown,
            });
        };
        if self.steady(now) < live.due() && !(early && live.sent) {
            return Ok(Expired::NotDue);
        }
        let (context, sent) = (live.context.to_vec(), live.sent);
        let how = if sent { How::Lapsed } else { How::NeverSent };
        let settled = self.end(now, (cmd.id, cmd.attempt), End::Expired, how, None, log)?;
        Ok(settled.map_or(Expired::Unknown, |settled| Expired::Expired {
            posted: settled.posted,
            context,
            sent,
            admitted: settled.admitted,
        }))
    }

    /// End a live reservation; `None` if it is not live.
    fn end(
        &mut self,
        now: Micros,
        (id, attempt): (ReservationId, Attempt),
        end: End,
        how: How<'_>,
        learned: Option<u64>,
        log: &mut impl Log,
    ) -> Result<Option<Settled>, Refusal> {
        let mut posts = core::mem::take(&mut self.posts);
        let Some(live) = self.lives.find(id, attempt).and_then(|slot| self.lives.get(slot)) else {
            self.posts = posts;
            return Ok(None);
        };
        let Effects { overrun, charges, dropped } = self.effects(now, live, how, &mut posts);
        let settled = Settled { before: Met::Held, overrun, posted: charges, admitted: live.admitted };
        let event = Event::Ended(Ended { now, id, attempt, end, posted: &posts, learned });
        log.append(&event).map_err(|_| Refusal::LogFull)?;
        self.apply(&event);
        self.alarms.dropped_refunds += dropped;
        self.posts = posts;
        Ok(Some(settled))
    }

    /// What an end posts per leg, into `posts`, and what it says.
    pub(super) fn effects(&self, now: Micros, live: &Live, how: How<'_>, posts: &mut Vec<i64>) -> Effects {
        posts.clear();
        let mut overrun = Vec::with_capacity(live.legs.len());
        let (mut charges, mut dropped) = (Vec::new(), 0);
        for (index, leg) in live.legs.iter().enumerate() {
            let Some(account) = self.accounts.get(leg.slot) else {
                posts.push(0);
                overrun.push(0);
                continue;
            };
            let (post, over, charge) = match account.measure {
                Measure::Concurrency => (0, 0, 0),
                Measure::Requests => {
                    let wanted = how.refunds(leg);
                    let refund = if wanted == 0 { 0 } else { wanted.min(account.refundable(now, leg.place)) };
                    dropped += u64::from(refund < wanted);
                    let kept = if how.moves(leg) { 0 } else { signed(leg.decided) - signed(refund) };
                    (-signed(refund), 0, kept)
                }
                _ if matches!(account.sides, Sides::Forecast(_)) => {
                    (how.corrects(index, leg), how.overrun(how.used(index, leg), leg), 0)
                }
                _ => {
                    let used = how.used(index, leg);
                    (signed(used), how.overrun(used, leg), signed(used))
                }
            };
            posts.push(post);
            overrun.push(over);
            if charge != 0 && matches!(account.sides, Sides::Quota(_)) {
                charges.push(Posted { account: account.id, period: leg.place, amount: charge });
            }
        }
        Effects { overrun, charges, dropped }
    }

    /// A claim on a reservation that is not live: the one correction of an expired one, or nothing.
    fn late(
        &mut self,
        now: Micros,
        (id, attempt): (ReservationId, Attempt),
        late: Late<'_>,
        learned: Option<u64>,
        log: &mut impl Log,
    ) -> Result<Settled, Refusal> {
        let mut settled = self.met(now, id, attempt);
        let Some(tomb) = self.tombs.find(id, attempt, self.steady(now)) else {
            self.alarms.unknown_claims += 1;
            return Ok(settled);
        };
        if tomb.end != End::Expired {
            return Ok(settled);
        }
        let posts: Vec<i64> = quotas(tomb).iter().map(|quota| late.correction(quota)).collect();
        for (quota, amount) in quotas(tomb).iter().zip(&posts) {
            if *amount != 0 {
                let (account, period, amount) = (quota.account, quota.period, *amount);
                settled.posted.push(Posted { account, period, amount });
            }
            if let Some(over) = settled.overrun.get_mut(usize::from(quota.leg)) {
                *over = late.overrun(quota);
            }
        }
        settled.before = Met::Late;
        let event = Event::Corrected(Corrected { now, id, attempt, posted: &posts, learned });
        log.append(&event).map_err(|_| Refusal::LogFull)?;
        self.apply(&event);
        Ok(settled)
    }
}

fn quotas(tomb: &Tomb) -> &[QuotaLeg] {
    tomb.late.as_deref().map_or(&[], |late| &late.quotas)
}

impl How<'_> {
    /// `requests` to give back, as far as they are still there.
    fn refunds(&self, leg: &HeldLeg) -> u64 {
        let back = match self {
            How::NeverSent => true,
            How::Failed => leg.refund_failed,
            How::Used { .. } | How::Lapsed => false,
            How::Moved { actual, .. } => actual.is_none() && leg.refund_failed && !self.moves(leg),
        };
        if back { leg.decided } else { 0 }
    }

    /// The next attempt carries this leg's `requests` on.
    fn moves(&self, leg: &HeldLeg) -> bool {
        matches!(self, How::Moved { onto, .. } if onto.iter().any(|next| next.slot == leg.slot && next.place == leg.place))
    }

    /// What the second of the door gets on a forecast account: plans belong to the gateway, input to the call. A call that
    /// was sent and then expired has landed its input.
    fn corrects(&self, index: usize, leg: &HeldLeg) -> i64 {
        match self {
            How::Used { actual, landed } | How::Moved { actual: Some(actual), landed, .. } => {
                plan::input_difference(leg, actual.get(index).copied(), *landed)
            }
            How::NeverSent | How::Failed | How::Moved { actual: None, .. } => {
                plan::input_difference(leg, None, 0)
            }
            How::Lapsed => 0,
        }
    }

    fn used(&self, index: usize, leg: &HeldLeg) -> u64 {
        match self {
            How::Used { actual, .. } | How::Moved { actual: Some(actual), .. } => {
                actual.get(index).copied().unwrap_or(0)
            }
            How::Lapsed if leg.charge => plan::amount(leg.base, leg.per_output, leg.output),
            How::Lapsed | How::NeverSent | How::Failed | How::Moved { actual: None, .. } => 0,
        }
    }

    /// Posted above what was decided; a charge at expiry is nobody's overrun.
    fn overrun(&self, used: u64, leg: &HeldLeg) -> u64 {
        match self {
            How::Lapsed => 0,
            _ => used.saturating_sub(leg.decided),
        }
    }
}

impl Late<'_> {
    fn correction(&self, quota: &QuotaLeg) -> i64 {
        let charged = signed(quota.charged);
        match self {
            // A settle says what was used; it never gives requests back.
            Late::Used(_) if quota.requests => self.actual(quota).max(charged) - charged,
            Late::Used(_) => self.actual(quota) - charged,
            Late::Not(ReleaseWhy::Failed) if quota.requests && !quota.refund_failed => 0,
            Late::Not(_) => -charged,
        }
    }

    fn actual(&self, quota: &QuotaLeg) -> i64 {
        match self {
            Late::Used(actual) => signed(actual.get(usize::from(quota.leg)).copied().unwrap_or(0)),
            Late::Not(_) => 0,
        }
    }

    fn overrun(&self, quota: &QuotaLeg) -> u64 {
        if quota.requests {
            return 0;
        }
        self.actual(quota).unsigned_abs().saturating_sub(quota.decided)
    }
}
