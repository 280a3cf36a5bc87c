//! The Ticket: the right and the duty to end one admitted call.
//!
//! Invariants: a Ticket ends once, by [`Ticket::end`] or by being dropped; either hands one posting per reservation to the
//! settler. It lives in the response body, so it survives whatever becomes of the handler.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use tollbook_engine::{Claim, Receipt, ReleaseCall, SettleCall};
use tollbook_ledger::{Attempt, Measure, Micros, ReleaseWhy};
use tollbook_policy::Binding;
use tollbook_pricing::count_output;
use tollbook_store::{EntryBody, Figures as Source, Flags, Hold, Side};
use tollbook_telemetry::trace::CallTrace;
use tollbook_telemetry::{InFlight, NameLabel, PoolLabel};
use tollbook_wire::{Classes, Surface};

use crate::admit::Admission;
use crate::away::{Degraded, Ended, LocalEnd, is_local};
use crate::bound::Bound;
use crate::charge::{self, Charge};
use crate::estimate::Estimate;
use crate::figures::Figures;
use crate::live::{Leave, Live};
use crate::outcome::{Ending, Outcome, Posting};
use crate::plans::Plan;
use crate::refused::Refused;
use crate::{report, trace};

/// An admitted call that has not ended.
#[derive(Debug)]
pub struct Ticket {
    open: Option<Box<Open>>,
}

/// Everything the end of a call needs.
pub(crate) struct Open {
    pub(crate) admission: Arc<Admission>,
    pub(crate) bound: Arc<Bound>,
    pub(crate) estimate: Estimate,
    pub(crate) hold: Hold,
    pub(crate) stream: bool,
    pub(crate) surface: Surface,
    /// It uses nothing that is counted.
    pub(crate) free: bool,
    /// It came by no surface: nothing is learned from it.
    pub(crate) passed: bool,
    pub(crate) tenant: Receipt,
    pub(crate) plan: Plan,
    pub(crate) pool: Option<Receipt>,
    pub(crate) pool_plan: Plan,
    pub(crate) live: Arc<Live>,
    pub(crate) figures: Figures,
    pub(crate) request_id: Arc<str>,
    pub(crate) service: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) model_asked: Arc<str>,
    pub(crate) started: Instant,
    /// Times the call was sent.
    pub(crate) attempts: u16,
    pub(crate) trace: Option<CallTrace>,
    pub(crate) _in_flight: InFlight,
}

impl Ticket {
    pub(crate) fn new(open: Open) -> Self {
        Self { open: Some(Box::new(open)) }
    }

    /// What the headers of any answer to this call tell.
    pub fn figures(&self) -> &Figures {
        const NONE: &Figures = &Figures {
            requests: None,
            llm_tokens: None,
            input_llm_tokens: None,
            output_llm_tokens: None,
            degraded: None,
        };
        self.open.as_ref().map_or(NONE, |open| &open.figures)
    }

    /// How the call was admitted, if the book was away then.
    pub fn degraded(&self) -> Option<Degraded> {
        self.figures().degraded
    }

    pub fn request_id(&self) -> &str {
        self.open.as_ref().map_or("", |open| &open.request_id)
    }

    /// Tells a trace what was decided; at the end, what became of it.
    pub fn follow(&mut self, call: CallTrace) {
        if let Some(open) = self.open.as_mut() {
            trace::admitted(&call, open);
            open.trace = Some(call);
        }
    }

    /// The model asked of the provider.
    pub fn model_sent(&self) -> &str {
        self.open.as_ref().map_or("", |open| &open.bound.target.model)
    }

    /// The trace of the call, where there is one.
    pub fn trace(&self) -> Option<&CallTrace> {
        self.open.as_ref()?.trace.as_ref()
    }

    /// The pool that serves the call, as metrics name it.
    pub fn pool_label(&self) -> PoolLabel {
        self.open.as_ref().map_or(PoolLabel::OTHER, |open| open.bound.pool_label)
    }

    /// The call is being sent: from now on it costs, whatever happens.
    pub fn sending(&mut self) {
        if let Some(sent) = self.dispatching() {
            sent.mark();
        }
    }

    /// The call is on its way to a connection, which may still have to be made. It costs from the moment its first byte
    /// is handed over, which the caller marks.
    pub fn dispatching(&mut self) -> Option<SentMark> {
        let open = self.open.as_mut()?;
        open.attempts = open.attempts.saturating_add(1);
        Some(SentMark(Arc::clone(&open.live)))
    }

    /// Whether the call's output is watched against a hard limit (L9).
    pub fn is_bounded(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.live.is_bounded())
    }

    /// Whether the call's output is planned on some account, which wants to hear how it goes.
    pub fn is_planned(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !(open.plan.is_empty() && open.pool_plan.is_empty()))
    }

    /// The stream has given `output` so far, the first of it a while ago.
    pub fn told(&self, output: &Classes, first_output: Option<Instant>) {
        let (Some(open), Some(first)) = (self.open.as_ref(), first_output) else { return };
        let (_, counted) = open.metered(output);
        let (count, first) = (open.bound.reported_for(counted), open.engine_time(first));
        open.plan.tell(count, first);
        open.pool_plan.tell(count, first);
    }

    /// The stream has given `output` so far; says whether it may go on, and asks for more room before it runs out.
    pub fn streamed(&self, output: &Classes, first_output: Option<Instant>, waker: Option<&Waker>) -> Leave {
        let Some(open) = self.open.as_ref() else { return Leave::GoOn };
        let (_, count) = open.metered(output);
        let seconds = first_output.map_or(0, |at| at.elapsed().as_secs()).max(1);
        open.admission.live.streamed(&open.live, count, count / seconds, waker)
    }

    /// Input and output as the gateway counts them, for a usage object of its own.
    pub fn metered(&self, output: &Classes) -> (u64, u64) {
        self.open.as_ref().map_or((0, 0), |open| open.metered(output))
    }

    /// The same target is tried again: the tenant's attempt goes on, the pool's reservation is settled, because the
    /// provider counted the try, and taken anew (L18).
    ///
    /// # Errors
    /// When the pool has no room for another try; the Ticket still has to be ended.
    pub async fn tried_again(&mut self) -> Result<(), Refused> {
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        let Some(receipt) = open.pool.take() else { return Ok(()) };
        open.release(&receipt, Side::Pool, ReleaseWhy::Failed, &Outcome::upstream_error());
        open.live.set_pool(None);
        let admission = Arc::clone(&open.admission);
        let attempt = receipt.receipt.attempt.saturating_add(1);
        open.pool_plan.end(admission.now(), 0);
        self.reserve_pool(attempt).await.inspect_err(|refused| admission.note_refused(refused))
    }

    /// Takes the pool's side of the call.
    pub(crate) async fn reserve_pool(&mut self, attempt: Attempt) -> Result<(), Refused> {
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        let admission = Arc::clone(&open.admission);
        let (receipt, plan, degraded) = admission.reserve_pool(open, attempt).await?;
        open.pool_plan = plan;
        open.figures.degraded = open.figures.degraded.max(degraded);
        open.live.set_pool(receipt.as_ref().map(Receipt::claim));
        open.pool = receipt;
        Ok(())
    }

    /// Ends the call with what was seen of it.
    pub fn end(mut self, outcome: &Outcome) {
        if let Some(mut open) = self.open.take() {
            open.end(outcome);
        }
    }
}

/// Marks a call as sent.
#[derive(Clone, Debug)]
pub struct SentMark(Arc<Live>);

impl SentMark {
    /// From now on the call costs, whatever happens.
    pub fn mark(&self) {
        self.0.mark_sent();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        // Dropped without a word: the client left, or a task died. What was sent is paid for.
        let outcome =
            if open.live.is_sent() { Outcome::bare(Ending::ClientGone) } else { Outcome::never_sent() };
        open.end(&outcome);
    }
}

impl Open {
    pub(crate) fn metered(&self, output: &Classes) -> (u64, u64) {
        (self.estimate.input(), self.estimate.demand.made(count_output(output, self.bound.facts())))
    }

    fn end(&mut self, outcome: &Outcome) {
        let never_sent = Outcome::never_sent();
        let outcome = if self.was_never_sent(outcome) { &never_sent } else { outcome };
        self.live.mark_ended();
        let (charge, disbelieved) = charge::of(self, outcome);
        self.admission.report(self, outcome, &charge, disbelieved);
        if let Some(call) = &self.trace {
            trace::ended(call, self, outcome, &charge);
        }
        self.learn(&charge);
        self.end_plans(&charge, outcome);
        match &charge {
            Charge::Release(why) => {
                self.release(&self.tenant, Side::Tenant, *why, outcome);
                if let Some(pool) = &self.pool {
                    self.release(pool, Side::Pool, *why, outcome);
                }
            }
            Charge::Settle(settle) => {
                self.settle(&self.tenant, Side::Tenant, settle, outcome);
                if let Some(pool) = &self.pool {
                    self.settle(pool, Side::Pool, settle, outcome);
                }
            }
        }
    }

    /// Tells the plans what landed in all, and learns how the model streams.
    fn end_plans(&mut self, charge: &Charge, outcome: &Outcome) {
        let landed = self.landed(charge);
        let now = self.admission.now();
        if self.plan.is_empty() && self.pool_plan.is_empty() {
            return;
        }
        for plan in [&mut self.plan, &mut self.pool_plan] {
            plan.end(now, landed);
        }
        let reported = matches!(charge, Charge::Settle(settle) if settle.figures == Source::Reported);
        if let Some(first) = outcome.first_output.filter(|_| reported) {
            let first = self.engine_time(first);
            let (_, counted) = self.metered(&outcome.output);
            let ttft = first.saturating_sub(self.tenant.receipt.now);
            self.bound.paced(ttft, now.saturating_sub(first), landed, counted);
        }
    }

    /// Output llm_tokens that landed; what was expected where nothing is known.
    fn landed(&self, charge: &Charge) -> u64 {
        match charge {
            Charge::Release(_) => 0,
            Charge::Settle(settle) => self.landed_of(settle),
        }
    }

    fn landed_of(&self, settle: &charge::Settle) -> u64 {
        let expected = || self.tenant.receipt.legs.iter().map(|leg| leg.output).max().unwrap_or(0);
        settle.usage.map_or_else(expected, |usage| usage.output)
    }

    /// A moment of this process as engine time.
    fn engine_time(&self, at: Instant) -> Micros {
        let ago = Micros::try_from(at.elapsed().as_micros()).unwrap_or(Micros::MAX);
        self.admission.now().saturating_sub(ago)
    }

    /// A cut before the first byte was handed over cost nothing, whatever the one who cut it knows.
    fn was_never_sent(&self, outcome: &Outcome) -> bool {
        let cut =
            matches!(outcome.ending, Ending::Timeout | Ending::Reset | Ending::ClientGone | Ending::Shutdown);
        cut && self.attempts > 0 && !self.live.is_sent() && !outcome.output_seen && outcome.usage.is_none()
    }

    fn settle(&self, receipt: &Receipt, side: Side, settle: &charge::Settle, outcome: &Outcome) {
        let binding = match side {
            Side::Pool => &self.bound.pool,
            Side::Tenant | Side::Unreadable => &self.bound.tenant,
        };
        let actual = settle.amounts(self, binding, receipt);
        let mut body = self.entry(side, outcome);
        body.flags.degraded = is_local(receipt.receipt.id);
        settle.describe(&mut body, self, binding, receipt, &actual);
        if side == Side::Tenant {
            report::overrun(&self.admission.metrics, body.overrun);
        }
        if is_local(receipt.receipt.id) {
            let end = LocalEnd::Used { actual: &actual, landed: self.landed_of(settle), learn: settle.learn };
            let entry = Some(body.encode());
            return self.admission.ended_locally(Ended { receipt, end, entry });
        }
        let call = SettleCall {
            claim: receipt.claim(),
            accounts: accounts(receipt),
            actual,
            landed: self.landed_of(settle),
            learn: settle.learn,
            entry: body.encode(),
            age: 0,
        };
        self.admission.settler.post(Posting::Settle(call));
    }

    fn release(&self, receipt: &Receipt, side: Side, why: ReleaseWhy, outcome: &Outcome) {
        let entry = (why == ReleaseWhy::Failed).then(|| {
            let mut body = self.entry(side, outcome);
            body.figures = Source::Nothing;
            body.flags.degraded = is_local(receipt.receipt.id);
            body.encode()
        });
        if is_local(receipt.receipt.id) {
            return self.admission.ended_locally(Ended { receipt, end: LocalEnd::Released(why), entry });
        }
        let call = ReleaseCall { claim: receipt.claim(), accounts: accounts(receipt), why, entry };
        self.admission.settler.post(Posting::Release(call));
    }

    /// Counting gets better by what the provider reported.
    fn learn(&self, charge: &Charge) {
        if self.passed {
            return;
        }
        if let Charge::Settle(charge::Settle { usage: Some(usage), figures: Source::Reported, .. }) = charge
            && !self.estimate.demand.stored
        {
            self.bound.learn(&self.estimate.demand.input.built_in, usage, self.admission.now_s());
        }
    }

    /// The part of the journal entry that does not depend on the charge.
    pub(crate) fn entry(&self, side: Side, outcome: &Outcome) -> EntryBody {
        let since =
            |at: Instant| u32::try_from(at.duration_since(self.started).as_millis()).unwrap_or(u32::MAX);
        EntryBody {
            ending: outcome.ending,
            latency_ms: since(Instant::now()),
            ttft_ms: outcome.first_output.map(since),
            attempts: self.attempts,
            ..self.opening(side)
        }
    }

    /// What is known of the call at its door.
    pub(crate) fn opening(&self, side: Side) -> EntryBody {
        let unpriced = self.bound.price.is_none();
        EntryBody {
            side,
            request_id: Arc::clone(&self.request_id),
            service: Arc::clone(&self.service),
            user: Arc::clone(&self.user),
            model_asked: Arc::clone(&self.model_asked),
            price_version: if unpriced { 0 } else { self.bound.price_version() },
            hold: self.hold,
            flags: Flags { unpriced, ..Flags::default() },
            ..self.bound.entry_names()
        }
    }
}

fn accounts(receipt: &Receipt) -> Vec<tollbook_ledger::AccountId> {
    receipt.receipt.legs.iter().map(|leg| leg.account).collect()
}

/// Output the holds on hard limits cover: the least over the legs that are held at the expected demand there (L9).
pub(crate) fn allowance(bound: &Bound, receipt: &Receipt) -> u64 {
    let legs = receipt.receipt.legs.iter().enumerate();
    let watched = legs.filter(|(index, _)| is_watched(&bound.tenant, *index));
    watched.map(|(_, leg)| leg.output).min().unwrap_or(u64::MAX)
}

/// Whether a leg is on a hard limit and held at the expected demand, so that it grows with its stream.
pub(crate) fn is_watched(binding: &Binding, index: usize) -> bool {
    binding.accounts.get(index).is_some_and(|account| {
        account.hard
            && account.measure != Measure::Requests
            && account.measure != Measure::InputTokens
            && account.measure != Measure::Concurrency
            && !account.limits.iter().any(|l| !l.shadow && l.hold == tollbook_ledger::Hold::Worst)
    })
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let claim: Claim = self.tenant.claim();
        f.debug_struct("Open")
            .field("request_id", &self.request_id)
            .field("claim", &claim)
            .finish_non_exhaustive()
    }
}
