//! What a call is expected to use, and what it can use at most: counted from its body, ready to be held.

use std::sync::Arc;
use std::time::Duration;

use tollbook_engine::Engine;
use tollbook_ledger::{AccountId, Estimator, Leg, Measure, OnExpiry, Shape};
use tollbook_policy::{Binding, PeriodTable};
use tollbook_pricing::{
    Asked, Demand, InputCount, Kinds, Learned, LegsError, Output, Task, count_exact, count_learned, needs_cap,
};
use tollbook_store::{EntryBody, Hold, Lapse, Line, Side};
use tollbook_wire::Request;

use crate::admit::Asking;
use crate::bound::Bound;
use crate::counting::{Budget, Counted};
use crate::refused::Refused;
use crate::verb;

/// The demand of one call.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    pub(crate) demand: Demand,
    pub(crate) counted: Counted,
    /// Whose estimators are asked.
    task: Option<Task>,
}

/// Counts the input by byte classes and the learned ratios, and takes the caps together.
pub(crate) fn of(bound: &Bound, request: &Request<'_>, task: Option<Task>, now: u64) -> Estimate {
    let learned = bound.learned(now);
    let input = count_learned(&request.content, bound.facts(), &learned);
    Estimate { demand: demand(bound, request, input, &learned), counted: Counted::Learned, task }
}

fn demand(bound: &Bound, request: &Request<'_>, input: InputCount, learned: &Learned) -> Demand {
    let cap_must_hold = needs_cap(&bound.tenant.accounts) || needs_cap(&bound.pool.accounts);
    Demand::new(&Asked::of(request), input, bound.facts(), learned, cap_must_hold)
}

impl Estimate {
    /// Of a call that uses nothing.
    pub(crate) fn free(bound: &Bound) -> Self {
        let asked = Asked { choices: 1, ..Asked::default() };
        let input = InputCount { llm_tokens: 0, built_in: Kinds::default(), images: 0, exact: true };
        let demand = Demand::new(&asked, input, bound.facts(), &Learned::default(), false);
        Self { demand: demand.free(), counted: Counted::Exact, task: None }
    }

    /// llm_tokens of the input.
    pub(crate) fn input(&self) -> u64 {
        self.demand.input.llm_tokens
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.demand.input.exact
    }

    /// Counts the text by the model's tokenizer; false where there is none to count by, or it was tried.
    pub(crate) async fn count_exactly(
        &mut self,
        bound: &Bound,
        (budget, now): (&Arc<Budget>, u64),
        (request, body): (&Request<'_>, &[u8]),
    ) -> bool {
        let Some(counter) = bound.counter().filter(|_| self.counted == Counted::Learned) else {
            return false;
        };
        let text = (body, request.content.text.bytes);
        let counted = budget.count(counter, request.surface, text).await;
        match counted {
            Ok(text) => {
                let input = count_exact(text, &request.content, bound.facts());
                self.demand = demand(bound, request, input, &bound.learned(now));
                self.counted = Counted::Exact;
                true
            }
            Err(why) => {
                self.counted = Counted::Fallback(why);
                false
            }
        }
    }

    /// The tenant side's legs.
    pub(crate) fn legs(&self, bound: &Bound, periods: &PeriodTable) -> Result<Vec<Leg>, Refused> {
        let estimators = bound.estimators.of_task(self.task);
        self.legs_of(bound, &bound.tenant, Output::Estimated(estimators), periods)
    }

    /// The pool side's legs; the pool takes the expected output from the tenant's receipt.
    pub(crate) fn pool_legs(
        &self,
        bound: &Bound,
        periods: &PeriodTable,
        output: u64,
    ) -> Result<Vec<Leg>, Refused> {
        self.legs_of(bound, &bound.pool, Output::Known(output), periods)
    }

    fn legs_of(
        &self,
        bound: &Bound,
        binding: &Binding,
        output: Output,
        periods: &PeriodTable,
    ) -> Result<Vec<Leg>, Refused> {
        let legs =
            tollbook_pricing::legs(&binding.accounts, &self.demand, bound.price.as_ref(), output, periods);
        legs.map_err(|error| match error {
            LegsError::Unpriced(_) => Refused::Unpriced(bound.model().to_owned()),
            LegsError::TooLarge(_) => Refused::Immense,
        })
    }

    /// Per account of the tenant side: what a call would hold, for `explain`. What was learned is in the engine; where
    /// it does not tell, the guess before anything was learned stands in for the expected output, at most the cap.
    pub(crate) async fn demands(
        &self,
        bound: &Bound,
        periods: &PeriodTable,
        (engine, deadline): (&dyn Engine, Duration),
    ) -> Result<Vec<(AccountId, u64)>, Refused> {
        let legs = self.legs(bound, periods)?;
        let asked = verb::within(deadline, engine.demands(bound.tenant_shard, &legs)).await;
        if let Ok(reply) = asked
            && reply.value.len() == legs.len()
        {
            return Ok(legs.iter().map(|leg| leg.account).zip(reply.value).collect());
        }
        let amount = |leg: &Leg| {
            let enforced = leg.limits.iter().any(|l| !l.shadow && l.hold == tollbook_ledger::Hold::Worst);
            if enforced { leg.worst } else { expected(leg) }
        };
        Ok(legs.iter().map(|leg| (leg.account, amount(leg))).collect())
    }
}

/// The expected demand of a leg in its account's unit, as it is before anything was learned.
fn expected(leg: &Leg) -> u64 {
    let output = match leg.estimator {
        Estimator::Constant { output } | Estimator::Learned { first: output, .. } => output.min(leg.cap),
        Estimator::Capped => leg.cap,
    };
    leg.base.saturating_add(leg.per_output.saturating_mul(output)).div_ceil(1_000)
}

/// What the journal is told of the hold. The expected output is learned in the engine; before its receipt the model's
/// first guess stands in for it; an entry of expiry reads the true one from what the quotas were charged ([`lapse`]).
pub(crate) fn hold(legs: &[Leg], estimate: &Estimate) -> Hold {
    let worst = |measure| legs.iter().filter(|l| l.measure == measure).map(|l| l.worst).max().unwrap_or(0);
    let output = estimate.demand.first_output.min(estimate.demand.cap);
    let expected = |leg: &Leg| leg.base.saturating_add(leg.per_output.saturating_mul(output)).div_ceil(1_000);
    let cost = legs.iter().filter(|l| l.measure == Measure::Cost).map(expected).max().unwrap_or(0);
    let charged = legs.iter().any(|l| l.limits.iter().any(|l| !l.shadow && l.on_expiry == OnExpiry::Charge));
    Hold {
        input_llm_tokens: estimate.input(),
        expected_llm_tokens: estimate.input().saturating_add(output),
        worst_llm_tokens: estimate.demand.worst_input.saturating_add(estimate.demand.cap),
        expected_cost_nano: cost,
        worst_cost_nano: worst(Measure::Cost),
        charged_on_expiry: charged,
    }
}

/// How the amounts that an expiry posts tell what was expected: the charged quota that shows the output best, and cost.
pub(crate) fn lapse(legs: &[Leg]) -> Lapse {
    let charged = |leg: &&Leg| {
        leg.shape == Shape::Quota
            && leg.limits.iter().any(|limit| !limit.shadow && limit.on_expiry == OnExpiry::Charge)
    };
    let line = |leg: &Leg| Line { account: leg.account.name, base: leg.base, per_output: leg.per_output };
    let output =
        legs.iter().filter(charged).filter(|leg| leg.per_output > 0).max_by_key(|leg| leg.per_output);
    let costs = || legs.iter().filter(|leg| leg.measure == Measure::Cost);
    let cost = costs().find(charged).or_else(|| costs().next());
    Lapse { output: output.map(line), cost: output.and(cost).map(line) }
}

/// What expiry needs to write an entry when nobody else can.
pub(crate) fn context(bound: &Bound, hold: Hold, lapse: Lapse, asking: &Asking<'_>) -> Vec<u8> {
    let name = |text: Option<&str>| text.unwrap_or_default().into();
    let body = EntryBody {
        side: Side::Tenant,
        request_id: asking.request_id.clone(),
        service: name(asking.service),
        user: name(asking.user),
        model_asked: name(Some(asking.request.model.as_ref())),
        price_version: bound.price_version(),
        hold,
        lapse,
        ..bound.entry_names()
    };
    body.context()
}
