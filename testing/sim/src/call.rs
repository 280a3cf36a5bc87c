//! The life of one call: reserve tenant and pool, stream, retry, fall back, end in one of the ways there are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollbook_engine::ledger::{Leg, Micros, ReleaseWhy, Renewed, ReservationId};
use tollbook_engine::{
    Applied, Claim, RebookCall, Receipt, ReleaseCall, RenewCall, SettleCall, Shard, Verdict,
};
use tollbook_engine_suite::random::Random;

use crate::config::{Config, Demand};
use crate::gateway::{
    Asked, DEADLINE, Gateway, Live, Posting, RENEWED_LIFE, RESERVE_DEADLINE, profile, reserve_call,
};

/// Smallest step by which a watched hold grows, in llm_tokens.
const STEP: u64 = 64;

/// How a call will go, known to the provider and to nobody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    tenant: usize,
    key: usize,
    pool: usize,
    /// Another pool, tried when the first fails.
    fallback: Option<usize>,
    input: u64,
    cap: u64,
    /// What the input really is, and how much output there is.
    true_input: u64,
    output: u64,
    /// From dispatch to the first byte, and from there to the last.
    first_byte: Duration,
    stream: Duration,
    retries: u64,
    ending: Ending,
    says_what_comes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    NeverSent,
    ProviderError,
    Complete,
    /// Complete, and the provider said nothing of its usage.
    Unreported,
    CutBeforeFirstByte,
    CutAfterOutput,
    /// A buffered answer that never came.
    Unknown,
    /// The gateway forgets the call without a word.
    Forgotten,
}

impl Fate {
    pub(crate) fn draw(random: &mut Random, config: &Config) -> Self {
        let pick = |random: &mut Random, of: usize| usize::try_from(random.below(of as u64)).unwrap_or(0);
        let tenant = pick(random, config.tenants.len());
        let key = pick(random, config.tenants[tenant].keys.len());
        let pool = pick(random, config.pools.len());
        let fallback = random.one_in(5).then(|| pick(random, config.pools.len()));
        let input = 1 + random.below(200);
        let cap = 1 + random.below(400);
        // Now and then an answer is longer than the cap allows, or the input was counted too low.
        let output = if random.one_in(12) { cap + random.below(100) } else { random.below(cap + 1) };
        let true_input = input * (70 + random.below(60)) / 100;
        let stream = match random.below(12) {
            0 => 20_000 + random.below(60_000),
            1 | 2 => 5_000 + random.below(15_000),
            _ => random.below(4_000),
        };
        let ending = match random.below(24) {
            0 | 1 => Ending::NeverSent,
            2..=4 => Ending::ProviderError,
            5 | 6 => Ending::CutAfterOutput,
            7 => Ending::CutBeforeFirstByte,
            8 => Ending::Unknown,
            9 => Ending::Unreported,
            10 if random.one_in(4) => Ending::Forgotten,
            _ => Ending::Complete,
        };
        Self {
            tenant,
            key,
            pool,
            fallback,
            input,
            cap,
            true_input,
            output,
            first_byte: Duration::from_millis(10 + random.below(1500)),
            stream: Duration::from_millis(stream),
            retries: if random.one_in(8) { 1 + random.below(2) } else { 0 },
            ending,
            says_what_comes: random.one_in(3),
        }
    }
}

/// Which side of a call a reservation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Tenant,
    Pool(usize),
}

/// A call that was admitted.
struct Open {
    gateway: Arc<Gateway>,
    config: Arc<Config>,
    fate: Fate,
    demand: Demand,
    tenant: Receipt,
    /// The pool's, if it has limits, and which pool it is.
    pool: Option<(Receipt, usize)>,
    pool_id: ReservationId,
    live: Arc<Live>,
    /// Output that the holds on hard limits cover; `None`: none is watched.
    allowance: Option<u64>,
    /// Attempts used so far, on either side.
    attempts: u16,
}

/// Lives a call from its door to its end.
pub(crate) async fn live(gateway: Arc<Gateway>, fate: Fate) {
    gateway.wire.bank.stats(|stats| stats.calls += 1);
    let Some(mut open) = door(&gateway, fate).await else { return };
    sleep(Duration::from_millis(5)).await;
    if fate.ending == Ending::NeverSent {
        return open.release_all(ReleaseWhy::NeverSent);
    }
    open.live.is_sent.store(true, Ordering::Relaxed);
    for _ in 0..fate.retries {
        sleep(fate.first_byte).await;
        if !open.retry().await {
            return open.release_all(ReleaseWhy::Failed);
        }
    }
    if let Some(fallback) = fate.fallback {
        sleep(fate.first_byte).await;
        open.fall_back(fallback).await;
    }
    sleep(fate.first_byte).await;
    open.relay().await;
}

/// Tenant first, then pool; no hold outlives a denial (L1).
async fn door(gateway: &Arc<Gateway>, fate: Fate) -> Option<Open> {
    let config = gateway.config();
    let tenant = &config.tenants[fate.tenant];
    let estimator = tenant.keys[fate.key].estimator;
    let mut demand = Demand { input: fate.input, cap: fate.cap, expected: None, estimator };
    let (id, pool_id) = gateway.fresh_ids();
    accounts(&config, fate, Side::Tenant).next()?;
    let make = |now| legs(&config, fate, Side::Tenant, &demand, now);
    let Asked::Admitted(receipt) = gateway.reserve(tenant.shard, (id, 0), make).await else { return None };
    demand.expected = receipt.receipt.legs.iter().map(|leg| leg.output).max();
    let allowance = allowance(&config, &receipt);
    let mut open = Open {
        gateway: Arc::clone(gateway),
        live: gateway.register(vec![receipt.claim()]),
        config: Arc::clone(&config),
        fate,
        demand,
        tenant: receipt,
        pool: None,
        pool_id,
        allowance,
        attempts: 0,
    };
    open.follow();
    match open.reserve_pool(fate.pool, 0).await {
        Asked::Admitted(receipt) => open.set_pool(Some((receipt, fate.pool))),
        Asked::Nothing => {}
        asked => {
            let is_denied = matches!(asked, Asked::Denied);
            gateway.wire.bank.stats(|stats| stats.denied_by_pool += u64::from(is_denied));
            open.release_all(ReleaseWhy::NeverSent);
            return None;
        }
    }
    Some(open)
}

/// The legs of one side of a call at an engine time.
fn legs(config: &Config, fate: Fate, side: Side, demand: &Demand, now: Micros) -> Vec<Leg> {
    accounts(config, fate, side).map(|at| config.accounts[at].leg(demand, now)).collect()
}

fn accounts(config: &Config, fate: Fate, side: Side) -> impl Iterator<Item = usize> {
    let (own, more): (&[usize], &[usize]) = match side {
        Side::Tenant => {
            let tenant = &config.tenants[fate.tenant];
            (&tenant.accounts, &tenant.keys[fate.key].accounts)
        }
        Side::Pool(pool) => (&config.pools[pool].accounts, &[]),
    };
    own.iter().chain(more).copied()
}

/// Output covered on the accounts that watch a stream.
fn allowance(config: &Config, receipt: &Receipt) -> Option<u64> {
    let is_watched = |account| config.accounts.iter().any(|a| a.id == account && a.is_watched());
    let legs = receipt.receipt.legs.iter().filter(|leg| is_watched(leg.account));
    legs.map(|leg| leg.output).min()
}

impl Open {
    /// The tenant's accounts have the call's plan: from now on its stream is told of.
    fn follow(&self) {
        let legs = legs(&self.config, self.fate, Side::Tenant, &self.demand, self.tenant.receipt.now);
        let profile = profile(self.tenant.receipt.id);
        self.gateway.plans(|plans| plans.admitted(&self.tenant, &legs, profile, &self.live));
    }

    async fn reserve_pool(&self, pool: usize, attempt: u16) -> Asked {
        let side = Side::Pool(pool);
        let shard = self.config.pools[pool].shard;
        let make = |now| legs(&self.config, self.fate, side, &self.demand, now);
        if self.config.pools[pool].accounts.is_empty() {
            return Asked::Nothing;
        }
        self.gateway.reserve(shard, (self.pool_id, attempt), make).await
    }

    fn set_pool(&mut self, pool: Option<(Receipt, usize)>) {
        self.pool = pool;
        self.tell_claims();
    }

    fn tell_claims(&self) {
        let pool = self.pool.iter().map(|(receipt, _)| receipt.claim());
        self.live.set_claims([self.tenant.claim()].into_iter().chain(pool).collect());
    }

    /// The same target once more: the tenant's attempt goes on, the pool's is taken anew (L18). False without room.
    async fn retry(&mut self) -> bool {
        let Some((receipt, pool)) = self.pool.take() else { return true };
        self.release(&receipt, ReleaseWhy::Failed);
        self.tell_claims();
        self.attempts += 1;
        self.gateway.wire.bank.stats(|stats| stats.retries += 1);
        match self.reserve_pool(pool, self.attempts).await {
            Asked::Admitted(receipt) => {
                self.set_pool(Some((receipt, pool)));
                true
            }
            Asked::Nothing => true,
            Asked::Denied | Asked::Gone => false,
        }
    }

    /// Another target: the new pool, the tenant's rebook, the old pool; undone backwards (L18).
    async fn fall_back(&mut self, pool: usize) {
        self.attempts += 1;
        let attempt = self.attempts;
        let new = match self.reserve_pool(pool, attempt).await {
            Asked::Admitted(receipt) => Some((receipt, pool)),
            Asked::Nothing => None,
            Asked::Denied | Asked::Gone => return,
        };
        let shard = self.tenant.shard;
        let id = self.tenant.receipt.id;
        let demand = Demand { expected: None, ..self.demand };
        let next = |now| legs(&self.config, self.fate, Side::Tenant, &demand, now);
        let failed_with_usage = self.fate.says_what_comes;
        let actual = failed_with_usage.then(|| self.amounts(&self.tenant, self.fate.true_input, 0));
        let mut call = RebookCall {
            receipt: self.tenant.clone(),
            actual,
            landed: 0,
            entry: Some(format!("rebooked {id} {attempt}").into_bytes()),
            next: reserve_call(shard, (id, attempt), next(self.gateway.now())),
        };
        for _ in 0..3 {
            let got = self.gateway.wire.rebook(RESERVE_DEADLINE, &call).await;
            match got {
                Ok(reply) => match reply.value {
                    Verdict::Admit(receipt) => return self.fell_back(receipt, new),
                    Verdict::Recalendar => call.next.reserve.legs = next(reply.now),
                    Verdict::Ended(_) | Verdict::Conflict(_) | Verdict::Deny { .. } => break,
                },
                Err(error) if error.applied == Applied::No => break,
                Err(_) => {}
            }
        }
        // It may have been applied all the same: then the next attempt is nobody's, and is given back.
        let claim = Claim { shard, id, attempt };
        let accounts = call.next.reserve.legs.iter().map(|leg| leg.account).collect();
        let release = ReleaseCall { claim, accounts, why: ReleaseWhy::NeverSent, entry: None };
        self.gateway.post(Posting::Release(release));
        if let Some((receipt, _)) = new {
            self.release(&receipt, ReleaseWhy::NeverSent);
        }
    }

    fn fell_back(&mut self, tenant: Receipt, pool: Option<(Receipt, usize)>) {
        self.allowance = allowance(&self.config, &tenant);
        self.tenant = tenant;
        self.gateway.plans(|plans| plans.left(&self.live));
        self.follow();
        let old = std::mem::replace(&mut self.pool, pool);
        self.tell_claims();
        if let Some((receipt, _)) = old {
            self.release(&receipt, ReleaseWhy::Failed);
        }
    }

    /// Streams the answer to its end, watched where a hard limit holds the expected demand (L9).
    async fn relay(mut self) {
        let fate = self.fate;
        if fate.ending == Ending::CutBeforeFirstByte {
            return self.settle_all(self.demand.input, 0, None);
        }
        if fate.ending == Ending::ProviderError {
            return self.release_all(ReleaseWhy::Failed);
        }
        let began = Instant::now();
        self.live.first.store(self.gateway.now(), Ordering::Relaxed);
        let mut output = 0;
        let mut is_refused = false;
        while began.elapsed() < fate.stream && !self.gateway.is_stopping.load(Ordering::Relaxed) {
            let left = fate.stream.saturating_sub(began.elapsed());
            sleep(left.min(Duration::from_millis(700))).await;
            let done = began.elapsed().as_millis().min(fate.stream.as_millis());
            let part = u128::from(fate.output) * done / fate.stream.as_millis().max(1);
            output = u64::try_from(part).unwrap_or(u64::MAX);
            self.live.output.store(output, Ordering::Relaxed);
            if fate.says_what_comes && self.allowance.is_none() {
                self.live.growth.store(output + STEP, Ordering::Relaxed);
            }
            let Some(allowance) = self.allowance else { continue };
            if is_refused && output >= allowance {
                self.gateway.wire.bank.stats(|stats| stats.stopped_at_limit += 1);
                return self.settle_all(fate.true_input, allowance, None);
            }
            if !is_refused && output + STEP / 2 >= allowance {
                is_refused = !self.grow(allowance.max(output) + STEP).await;
            }
        }
        if began.elapsed() >= fate.stream {
            output = fate.output;
        }
        self.end(output);
    }

    /// Asks for a step before the stream gets there; false when it is refused.
    async fn grow(&mut self, wanted: u64) -> bool {
        let claim = self.tenant.claim();
        let call = RenewCall {
            claim,
            subjects: Vec::new(),
            sent: true,
            life: RENEWED_LIFE,
            output_expected: Some(wanted),
            outgrown: None,
        };
        let answer = self.gateway.wire.renew(DEADLINE, vec![call]).await;
        match answer.ok().and_then(|reply| reply.value.into_iter().next()) {
            Some(Renewed::Held(_)) => self.allowance = Some(wanted),
            // An expired hold is billed late and in full: the stream is not cut for it.
            Some(Renewed::Ended(_) | Renewed::Unknown) => self.allowance = None,
            Some(Renewed::Short(_)) | None => return false,
        }
        true
    }

    fn end(self, output: u64) {
        let fate = self.fate;
        match fate.ending {
            Ending::Complete => self.settle_all(fate.true_input, output, Some(output)),
            Ending::Unreported => self.settle_all(fate.input, output, None),
            Ending::CutAfterOutput => self.settle_all(fate.input, (output * 11).div_ceil(20), None),
            Ending::Unknown => self.settle_unknown(),
            Ending::Forgotten => self.live.has_ended.store(true, Ordering::Relaxed),
            Ending::NeverSent | Ending::ProviderError | Ending::CutBeforeFirstByte => {
                self.release_all(ReleaseWhy::Failed);
            }
        }
    }

    fn receipts(&self) -> Vec<Receipt> {
        let pool = self.pool.iter().map(|(receipt, _)| receipt);
        [&self.tenant].into_iter().chain(pool).cloned().collect()
    }

    fn amounts(&self, receipt: &Receipt, input: u64, output: u64) -> Vec<u64> {
        let used = |account| {
            let found = self.config.accounts.iter().find(|a| a.id == account);
            found.map_or(0, |account| account.used(input, output))
        };
        receipt.receipt.legs.iter().map(|leg| used(leg.account)).collect()
    }

    fn settle_all(&self, input: u64, output: u64, learn: Option<u64>) {
        for receipt in self.receipts() {
            let actual = self.amounts(&receipt, input, output);
            self.settle(&receipt, actual, output, learn);
        }
        self.live.output.fetch_max(output, Ordering::Relaxed);
        self.live.has_ended.store(true, Ordering::Relaxed);
    }

    /// Nobody knows what it used: expected on rates, held on quotas.
    fn settle_unknown(&self) {
        let landed = self.demand.expected.unwrap_or(0);
        for receipt in self.receipts() {
            let quota = |account| self.config.accounts.iter().any(|a| a.id == account && a.is_quota());
            let legs = receipt.receipt.legs.iter();
            let actual =
                legs.map(|leg| if quota(leg.account) { leg.held.max(leg.expected) } else { leg.expected });
            self.settle(&receipt, actual.collect(), landed, None);
        }
        self.live.output.fetch_max(landed, Ordering::Relaxed);
        self.live.has_ended.store(true, Ordering::Relaxed);
    }

    fn settle(&self, receipt: &Receipt, actual: Vec<u64>, landed: u64, learn: Option<u64>) {
        self.gateway.post(Posting::Settle(SettleCall {
            claim: receipt.claim(),
            accounts: receipt.receipt.legs.iter().map(|leg| leg.account).collect(),
            actual,
            landed,
            learn,
            entry: entry("settled", receipt),
            age: 0,
        }));
    }

    fn release_all(&self, why: ReleaseWhy) {
        for receipt in self.receipts() {
            self.release(&receipt, why);
        }
        self.live.has_ended.store(true, Ordering::Relaxed);
    }

    fn release(&self, receipt: &Receipt, why: ReleaseWhy) {
        self.gateway.post(Posting::Release(ReleaseCall {
            claim: receipt.claim(),
            accounts: receipt.receipt.legs.iter().map(|leg| leg.account).collect(),
            why,
            entry: (why == ReleaseWhy::Failed).then(|| entry("failed", receipt)),
        }));
    }
}

fn entry(what: &str, receipt: &Receipt) -> Vec<u8> {
    format!("{what} {} {}", receipt.receipt.id, receipt.receipt.attempt).into_bytes()
}

/// A careless caller: the same id with other legs, and then again as it was.
pub(crate) async fn careless(gateway: Arc<Gateway>, fate: Fate) {
    let config = gateway.config();
    let shard: Shard = config.tenants[fate.tenant].shard;
    let estimator = config.tenants[fate.tenant].keys[fate.key].estimator;
    let demand = Demand { input: fate.input, cap: fate.cap, expected: None, estimator };
    let (id, _) = gateway.fresh_ids();
    let first = |now| legs(&config, fate, Side::Tenant, &demand, now);
    if accounts(&config, fate, Side::Tenant).next().is_none() {
        return;
    }
    let Asked::Admitted(receipt) = gateway.reserve(shard, (id, 0), first).await else { return };
    let mut others = first(gateway.now());
    match others.len() {
        1 => others[0].base += 1000,
        _ => drop(others.pop()),
    }
    for legs in [others, first(gateway.now())] {
        let call = reserve_call(shard, (id, 0), legs);
        if let Ok(reply) = gateway.wire.reserve(RESERVE_DEADLINE, &call).await
            && matches!(reply.value, Verdict::Conflict(_))
        {
            gateway.wire.bank.stats(|stats| stats.conflicts += 1);
        }
    }
    let accounts = receipt.receipt.legs.iter().map(|leg| leg.account).collect();
    let (claim, why) = (receipt.claim(), ReleaseWhy::NeverSent);
    gateway.post(Posting::Release(ReleaseCall { claim, accounts, why, entry: None }));
}
