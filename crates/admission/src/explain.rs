//! What a key's limits stand at, and what would refuse a call: for key holders, operators and `explain`.
//!
//! Read-only: the figures are the engine's own, asked now; nothing is held (B232).

use std::sync::Arc;

use tollbook_ledger::{AccountId, Micros, Shape};
use tollbook_policy::{Binding, BoundAccount, Strictness};
use tollbook_pricing::{Learned, Task};
use tollbook_telemetry::labels::Verb;
use tollbook_wire::Request;

use crate::admit::{Admission, noted};
use crate::bound::Bound;
use crate::counting::{Counted, Counting};
use crate::estimate::{self, Estimate};
use crate::refused::{Refused, counts_input};
use crate::report;
use crate::snapshot::Principal;

/// One limit as it stands.
#[derive(Clone, Debug)]
pub struct StandingLine {
    pub limit: String,
    /// For people: `key acme/web/k1`.
    pub subject: String,
    pub measure: &'static str,
    /// For people: `rate 60 s`, `rate 60 s by forecast`, `quota day Europe/Berlin`.
    pub form: String,
    pub model: Option<String>,
    pub hard: bool,
    pub shadow: bool,
    pub pool: bool,
    pub account: AccountId,
    pub ceiling: u64,
    pub posted: i64,
    pub held: i64,
    /// ceiling − posted − held, at least 0.
    pub remaining: u64,
    pub reset: Micros,
    /// What the call asked about would hold; `None` where no call was asked about.
    pub demand: Option<u64>,
    /// Why the limit would refuse it, in a few words.
    pub would_refuse: Option<&'static str>,
    /// Times a shadow limit would have refused.
    pub shadow_denied: u64,
}

/// What would become of a call.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub model: String,
    pub target: crate::Target,
    /// llm_tokens estimated for the input, and whether by a tokenizer.
    pub input: u64,
    pub exact: bool,
    /// How its input was counted; `None` where no call was asked about.
    pub counted: Option<Counted>,
    pub counting: Counting,
    /// What earlier calls taught.
    pub learned: Learned,
    /// That of this input, all of it together: corrected for built-in, in thousandths. `None` where no call was asked about.
    pub ratio: Option<u64>,
    pub output_cap: u64,
    pub lines: Vec<StandingLine>,
    /// The names of the limits that would refuse, tenant side first.
    pub refusing: Vec<String>,
}

impl Admission {
    /// What the limits of a key stand at, over all models it may use. Of two ceilings that one limit has over the same
    /// account, as changes leave them behind (L16), it is the smaller that a call meets.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn standing(self: &Arc<Self>, principal: &Principal) -> Result<Vec<StandingLine>, Refused> {
        let mut lines: Vec<StandingLine> = Vec::new();
        for model in self.models(principal) {
            let bound = self.bindings.get(principal, &model, None, None, self.now_s())?;
            for line in
                self.lines(&bound, &bound.tenant, false).await?.into_iter().filter(|line| !line.shadow)
            {
                let same = |l: &&mut StandingLine| l.limit == line.limit && l.account == line.account;
                match lines.iter_mut().find(same) {
                    Some(known) if line.ceiling < known.ceiling => *known = line,
                    Some(_) => {}
                    None => lines.push(line),
                }
            }
        }
        Ok(lines)
    }

    /// What would refuse a call now; without a request, only who binds it.
    ///
    /// # Errors
    /// When the call cannot be resolved, or the engine does not answer.
    pub async fn explain(
        self: &Arc<Self>,
        principal: &Principal,
        model: &str,
        service: Option<&str>,
        user: Option<&str>,
        task: Option<Task>,
        request: Option<(&Request<'_>, &[u8])>,
    ) -> Result<Explanation, Refused> {
        let bound = self.bindings.get(principal, model, service, user, self.now_s())?;
        if request.is_some_and(|(request, _)| !bound.plan.serves(request.surface)) {
            return Err(Refused::WrongDialect(model.to_owned()));
        }
        if bound.price.is_none() && bound.counts_cost() {
            return Err(Refused::Unpriced(model.to_owned()));
        }
        request.map_or(Ok(()), |(request, _)| bound.check_tools(request))?;
        let mut lines = self.lines(&bound, &bound.tenant, false).await?;
        let mut estimate = request.map(|(request, _)| estimate::of(&bound, request, task, self.now_s()));
        if let (Some(estimate), Some(text)) = (&mut estimate, request)
            && self.would_count(&bound, estimate, &lines)?
        {
            estimate.count_exactly(&bound, (&self.counting, self.now_s()), text).await;
        }
        let demands = match &estimate {
            Some(estimate) => {
                let periods = bound.periods(self.now_s());
                estimate.demands(&bound, &periods, (&**self.engine(), self.deadline())).await?
            }
            None => Vec::new(),
        };
        lines.extend(self.lines(&bound, &bound.pool, true).await?);
        judge(&mut lines, &demands);
        let refusing = lines.iter().filter(|l| l.would_refuse.is_some()).map(|l| l.limit.clone()).collect();
        let learned = bound.learned(self.now_s());
        Ok(Explanation {
            model: bound.model().to_owned(),
            target: bound.target.clone(),
            input: estimate.as_ref().map_or(0, Estimate::input),
            exact: estimate.as_ref().is_some_and(Estimate::is_exact),
            counted: estimate.as_ref().map(|estimate| estimate.counted),
            counting: bound.plan.counting.clone(),
            ratio: estimate.as_ref().and_then(|estimate| {
                let built_in = estimate.demand.input.built_in;
                learned.correct(&built_in).saturating_mul(1_000).checked_div(built_in.total())
            }),
            learned,
            output_cap: estimate.as_ref().map_or(0, |e| e.demand.cap),
            lines,
            refusing,
        })
    }

    /// Whether a call at the door would have its text counted exactly: always, or for a hard limit that is near.
    fn would_count(
        &self,
        bound: &Bound,
        estimate: &Estimate,
        lines: &[StandingLine],
    ) -> Result<bool, Refused> {
        if bound.counts_always() {
            return Ok(true);
        }
        let legs = estimate.legs(bound, &bound.periods(self.now_s()))?;
        Ok(legs.iter().filter(|leg| counts_input(leg.measure)).any(|leg| {
            let hard = lines.iter().filter(|line| line.account == leg.account && line.hard && !line.shadow);
            let left = hard.map(|line| line.remaining).min();
            left.is_some_and(|left| u128::from(leg.worst) * 10 >= u128::from(left) * 9)
        }))
    }

    async fn lines(
        &self,
        bound: &Bound,
        binding: &Binding,
        pool: bool,
    ) -> Result<Vec<StandingLine>, Refused> {
        if binding.accounts.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<AccountId> = binding.accounts.iter().map(|a| a.account).collect();
        let shard = if pool { bound.pool_shard } else { bound.tenant_shard };
        if self.away.is_open(shard) {
            return Err(Refused::AWAY);
        }
        let reply = self.balances(shard, &ids).await.map_err(|error| {
            report::failed(&self.metrics, Verb::Read, &error);
            tracing::warn!(%error, "balances could not be read");
            Refused::AWAY
        })?;
        let now_s = reply.now / 1_000_000;
        let balances = noted(self.time(), reply);
        let mut lines = Vec::new();
        for (account, balance) in binding.accounts.iter().zip(balances) {
            let standing = balance.as_ref().map(|b| b.standing);
            // A quota's newest period may be over; then nothing of it counts any more.
            let old = account.shape == Shape::Quota
                && standing.is_some_and(|s| !current(bound, account, s.period, now_s));
            let standing = standing.filter(|_| !old);
            let (posted, held) = standing.map_or((0, 0), |s| (s.posted, s.held));
            for limit in &account.limits {
                let Some(rule) = bound.snapshot.catalog.rule(limit.id) else { continue };
                let used = u64::try_from(posted.saturating_add(held.max(0))).unwrap_or(0);
                lines.push(StandingLine {
                    limit: rule.limit.name.clone(),
                    subject: rule.limit.scope.to_string(),
                    measure: tollbook_policy::measure_word(account.measure),
                    form: rule.limit.form.with_booking(),
                    model: rule.limit.model.clone(),
                    hard: rule.limit.strictness == Strictness::Hard,
                    shadow: limit.shadow,
                    pool,
                    account: account.account,
                    ceiling: limit.ceiling,
                    posted,
                    held,
                    remaining: limit.ceiling.saturating_sub(used),
                    reset: standing.map_or(0, |s| s.reset),
                    demand: None,
                    would_refuse: None,
                    shadow_denied: balance.as_ref().map_or(0, |b| b.shadow_denied),
                });
            }
        }
        Ok(lines)
    }
}

/// Whether a quota's period is the one that contains now.
fn current(bound: &Bound, account: &BoundAccount, period: u64, now_s: u64) -> bool {
    let calendar = account.calendar.and_then(|id| bound.snapshot.catalog.calendar(id));
    calendar.is_none_or(|calendar| calendar.current(now_s).0 <= period)
}

/// Marks what would refuse a call of these demands; an account without one is asked for a single unit.
fn judge(lines: &mut [StandingLine], demands: &[(AccountId, u64)]) {
    for line in lines.iter_mut() {
        line.demand = demands.iter().find(|(account, _)| *account == line.account).map(|(_, demand)| *demand);
        if line.shadow {
            continue;
        }
        // Of a call that is not known, the least it can ask for is one.
        let least = line.demand.unwrap_or(1);
        line.would_refuse = if least > line.ceiling {
            Some("the demand is above the ceiling")
        } else if least > line.remaining {
            Some("no room now")
        } else {
            None
        };
    }
}
