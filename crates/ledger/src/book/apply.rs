//! Applies events. Total: what does not fit the book changes nothing and is counted as a misfit.

use super::Book;
use super::account::{Account, Came, Lived, Rare, Sides};
use super::live::Live;
use super::tomb::Tomb;
use crate::account::Measure;
use crate::event::{
    AccountRow, Adjusted, Batch, Corrected, Ended, Event, HeldLeg, LiveRow, Opened, PeriodOpened, Pruned,
    QuotaLeg, RenewedTo, Reserved, TombstoneRow,
};
use crate::reply::End;
use crate::units::{Micros, signed, unsigned};

impl Book {
    /// Apply one event or snapshot row.
    pub fn apply(&mut self, event: &Event<'_>) {
        match event {
            Event::Reserved(reserved) => self.apply_reserved(reserved),
            Event::Denied { now, posts } => {
                self.tick(*now);
                for post in *posts {
                    self.apply_denied(*now, post.slot, post.amount);
                }
            }
            Event::Renewed(renewed) => self.apply_renewed(renewed),
            Event::Ended(ended) => self.apply_ended(ended),
            Event::Rebooked { ended, reserved } => {
                self.apply_ended(ended);
                self.apply_reserved(reserved);
            }
            Event::Corrected(corrected) => self.apply_corrected(corrected),
            Event::Adjusted(adjusted) => self.apply_adjusted(adjusted),
            Event::Repaired { now, slot, period, held } => self.apply_repaired(*now, *slot, *period, *held),
            Event::Progressed { now, batches, deltas } => self.apply_progressed(*now, batches, deltas),
            Event::Pruned(pruned) => self.apply_pruned(pruned),
            Event::Clock(row) => {
                (self.seen, self.behind) = (row.seen, row.behind);
                self.accounts.extend(row.slots);
            }
            Event::Account(row) => self.apply_account_row(row),
            Event::Live(row) => self.apply_live_row(row),
            Event::Tombstone(row) => {
                let first = self.fresh.is_new(row.id);
                self.fresh.note(row.id);
                self.tombs.push(Tomb::new(row), first);
            }
            Event::Estimate(row) => self.estimates.load(row),
            Event::AdjustKnown { id, applied } => self.remember_adjust(*id, *applied),
        }
    }

    /// Move both clocks to an event's time; the steady one.
    fn tick(&mut self, now: Micros) -> Micros {
        if now < self.seen {
            self.behind = self.behind.saturating_add(self.seen - now);
            self.alarms.clock_steps_back += 1;
        }
        self.seen = now;
        self.steady(now)
    }

    fn misfit(&mut self) {
        self.alarms.misfits += 1;
    }

    fn open_account(&mut self, opened: &Opened, steady: Micros) {
        if !self.accounts.fill(opened.slot, Account::new(opened, steady)) {
            self.misfit();
        }
    }

    fn open_period(&mut self, now: Micros, opened: &PeriodOpened) {
        match self.accounts.get_mut(opened.slot) {
            Some(account) => account.open(now, opened.start, opened.end),
            None => self.misfit(),
        }
    }

    fn apply_reserved(&mut self, event: &Reserved<'_>) {
        let steady = self.tick(event.now);
        let first = self.fresh.is_new(event.id);
        if !first && self.lives.find(event.id, event.attempt).is_some() {
            return self.misfit();
        }
        for opened in event.opened {
            self.open_account(opened, steady);
        }
        for opened in event.periods {
            self.open_period(event.now, opened);
        }
        let came = Came { now: event.now, steady, profile: event.profile };
        for leg in event.legs {
            match self.accounts.get_mut(leg.slot) {
                Some(account) => account.take(came, leg, &mut self.alarms),
                None => self.misfit(),
            }
        }
        self.fresh.note(event.id);
        let row = LiveRow {
            id: event.id,
            attempt: event.attempt,
            admitted: event.now,
            due: event.due,
            sent: false,
            context: event.context,
            learners: event.learners,
            legs: event.legs,
        };
        let slot = self.lives.insert(Live::new(&row, first));
        self.audit_came(slot);
    }

    fn apply_denied(&mut self, now: Micros, slot: u32, amount: u64) {
        let steady = self.steady(now);
        let Some(account) = self.accounts.get_mut(slot) else { return self.misfit() };
        let place = account.bucket(now).unwrap_or(0);
        account.post(now, place, signed(amount), &mut self.alarms);
        account.used = steady;
        if amount > 0
            && let Some(bucket) = account.bucket(now)
        {
            account.rare.get_or_insert_with(|| Box::new(Rare::default())).denied_bucket =
                bucket.saturating_add(1);
        }
    }

    fn apply_renewed(&mut self, event: &RenewedTo<'_>) {
        let steady = self.tick(event.now);
        let Some(slot) = self.lives.find(event.id, event.attempt) else { return self.misfit() };
        if let (Some(output), Some(live)) = (event.outgrown, self.lives.get(slot)) {
            for learner in live.learners() {
                self.estimates.outgrown(*learner, output, steady);
            }
        }
        self.lives.set_due(slot, event.due);
        if !event.grown.is_empty() {
            self.audit_goes(slot);
        }
        let Some(live) = self.lives.get_mut(slot) else { return };
        live.sent |= event.sent;
        for step in event.grown {
            let Some(leg) = live.legs.get_mut(usize::from(step.leg)) else { continue };
            let more = signed(step.held).saturating_sub(signed(leg.held));
            (leg.output, leg.held, leg.decided) = (step.output, step.held, step.decided);
            if let Some(account) = self.accounts.get_mut(leg.slot) {
                account.hold(leg.place, more, &mut self.alarms);
            }
        }
        if !event.grown.is_empty() {
            self.audit_came(slot);
        }
    }

    fn apply_ended(&mut self, event: &Ended<'_>) {
        let steady = self.tick(event.now);
        let slot = self.lives.find(event.id, event.attempt);
        if let Some(slot) = slot {
            self.audit_goes(slot);
        }
        let found = slot.and_then(|slot| self.lives.remove(slot));
        let Some(live) = found else { return self.misfit() };
        let when = Lived { steady, lived: event.now.saturating_sub(live.admitted) };
        let posted = || event.posted.iter().copied().chain(core::iter::repeat(0));
        for (leg, posted) in live.legs.iter().zip(posted()) {
            match self.accounts.get_mut(leg.slot) {
                Some(account) => account.end(event.now, when, leg, posted, &mut self.alarms),
                None => self.misfit(),
            }
        }
        self.learn(live.learners(), event.learned, steady);
        let quotas: Vec<QuotaLeg> = match event.end {
            End::Expired => {
                let legs = (0..=u8::MAX).zip(live.legs.iter()).zip(posted());
                legs.filter_map(|((index, leg), posted)| self.quota_leg(index, leg, posted)).collect()
            }
            _ => Vec::new(),
        };
        let row = TombstoneRow {
            id: live.id,
            attempt: live.attempt,
            end: event.end,
            admitted: live.admitted,
            ended: steady,
            legs: u8::try_from(live.legs.len()).unwrap_or(u8::MAX),
            learners: live.learners(),
            quotas: &quotas,
        };
        self.tombs.push(Tomb::new(&row), live.first);
    }

    /// What a late claim must know of one leg.
    fn quota_leg(&self, index: u8, leg: &HeldLeg, posted: i64) -> Option<QuotaLeg> {
        let account = self.accounts.get(leg.slot)?;
        if !matches!(account.sides, Sides::Quota(_)) {
            return None;
        }
        let requests = account.measure == Measure::Requests;
        let at_door = if requests { signed(leg.decided) } else { 0 };
        Some(QuotaLeg {
            account: account.id,
            leg: index,
            requests,
            refund_failed: leg.refund_failed,
            period: leg.place,
            charged: unsigned(at_door.saturating_add(posted)),
            decided: leg.decided,
        })
    }

    fn apply_corrected(&mut self, event: &Corrected<'_>) {
        let steady = self.tick(event.now);
        let Some(tomb) = self.tombs.find_mut(event.id, event.attempt) else { return self.misfit() };
        tomb.end = End::Corrected;
        let Some(late) = tomb.late.take() else { return self.misfit() };
        for (quota, amount) in late.quotas.iter().zip(event.posted) {
            if *amount == 0 {
                continue;
            }
            match self.accounts.find(quota.account).and_then(|slot| self.accounts.get_mut(slot)) {
                Some(account) => account.post(event.now, quota.period, *amount, &mut self.alarms),
                None => self.alarms.dropped_postings += 1,
            }
        }
        self.learn(&late.learners, event.learned, steady);
    }

    fn learn(&mut self, learners: &[crate::event::Learner], learned: Option<u64>, steady: Micros) {
        let Some(output) = learned else { return };
        for learner in learners {
            self.estimates.learn(*learner, output, steady);
        }
    }

    fn apply_adjusted(&mut self, event: &Adjusted) {
        let steady = self.tick(event.now);
        if let Some(opened) = &event.opened {
            self.open_account(opened, steady);
        }
        if let Some(opened) = &event.period_opened {
            self.open_period(event.now, opened);
        }
        match self.accounts.get_mut(event.slot) {
            Some(account) => {
                account.used = steady;
                account.post(event.now, event.period, event.delta, &mut self.alarms);
            }
            None => self.misfit(),
        }
        self.remember_adjust(event.id, steady);
    }

    fn remember_adjust(&mut self, id: u128, applied: Micros) {
        self.adjusts.known.insert(id, applied);
        self.adjusts.order.push_back((id, applied));
    }

    fn apply_progressed(&mut self, now: Micros, batches: &[Batch], deltas: &[i64]) {
        let steady = self.tick(now);
        let mut left = deltas;
        for batch in batches {
            let (deltas, others) = left.split_at(usize::from(batch.seconds).min(left.len()));
            left = others;
            let account = self.accounts.get_mut(batch.slot);
            let Some(Sides::Forecast(track)) = account.map(|account| {
                account.used = steady;
                &mut account.sides
            }) else {
                self.misfit();
                continue;
            };
            self.alarms.ring_restarts += u64::from(track.advance(now));
            let misplaced = track.progress(batch.base_second, deltas);
            track.heard(batch.gateway, batch.seq, steady);
            self.alarms.progress_outside = self.alarms.progress_outside.saturating_add(misplaced.outside);
            self.alarms.progress_below = self.alarms.progress_below.saturating_add(misplaced.below);
            self.alarms.saturated += u64::from(misplaced.saturated);
        }
    }

    fn apply_repaired(&mut self, now: Micros, slot: u32, period: u64, held: i64) {
        self.tick(now);
        match self.accounts.get_mut(slot) {
            Some(account) => {
                let delta = held.saturating_sub(account.held(period));
                account.hold(period, delta, &mut self.alarms);
            }
            None => self.misfit(),
        }
    }

    fn apply_pruned(&mut self, event: &Pruned<'_>) {
        self.tick(event.now);
        self.tombs.drop_first(event.tombstones);
        for _ in 0..event.adjusts {
            let Some((id, applied)) = self.adjusts.order.pop_front() else { break };
            if self.adjusts.known.get(&id) == Some(&applied) {
                self.adjusts.known.remove(&id);
            }
        }
        for id in event.estimators {
            self.estimates.remove(*id);
        }
        for slot in event.accounts {
            self.accounts.close(*slot);
        }
        for slot in event.trimmed {
            if let Some(account) = self.accounts.get_mut(*slot) {
                account.trim(event.now);
            }
        }
    }

    fn apply_account_row(&mut self, row: &AccountRow<'_>) {
        if !self.accounts.fill(row.opened.slot, Account::from_row(row)) {
            self.misfit();
        }
    }

    fn apply_live_row(&mut self, row: &LiveRow<'_>) {
        if self.lives.find(row.id, row.attempt).is_some() {
            return self.misfit();
        }
        self.fresh.note(row.id);
        let slot = self.lives.insert(Live::new(row, false));
        self.audit_came(slot);
    }
}
