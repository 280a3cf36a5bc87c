//! What goes on beside the gateways: the sweep, the drain, operators, and every kind of trouble.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollbook_engine::ledger::{Adjust, Opening};
use tollbook_engine::{AdjustCall, ExpireCall};
use tollbook_engine_memory::Clock;
use tollbook_engine_suite::random::Random;

use crate::bank::Bank;
use crate::config::{self, Calendar, S};
use crate::gateway::{DEADLINE, Gateway};
use crate::knobs::{Part, Trouble, stream};
use crate::probe;
use crate::world::World;

/// Tasks beside the gateways.
#[derive(Debug)]
pub(crate) struct Jobs {
    troubles: JoinSet<()>,
    always: JoinSet<()>,
}

impl Jobs {
    pub(crate) fn start(world: &Arc<World>, seed: u64) -> Self {
        let mut jobs = Self { troubles: JoinSet::new(), always: JoinSet::new() };
        let mut random = stream(seed, Part::Jobs);
        jobs.always.spawn(sweep_always(Arc::clone(world)));
        jobs.always.spawn(drain_always(Arc::clone(world), Random::new(random.draw())));
        jobs.always.spawn(tick_always(Arc::clone(world)));
        if world.plan.is_sabotaged {
            jobs.always.spawn(sabotage(Arc::clone(world)));
        }
        let mut chaos = stream(seed, Part::Chaos);
        for trouble in Trouble::ALL {
            let random = Random::new(chaos.draw());
            if world.plan.has(*trouble) {
                jobs.troubles.spawn(make(Arc::clone(world), *trouble, random));
            }
        }
        jobs
    }

    pub(crate) fn end_troubles(&mut self) {
        self.troubles.abort_all();
    }

    pub(crate) fn end(&mut self) {
        self.always.abort_all();
    }
}

/// Expires everything that is due, everywhere.
pub(crate) fn sweep(bank: &Bank) -> Result<usize, String> {
    let mut expired = 0;
    for shard in bank.shards() {
        loop {
            let due = bank.due(shard, 16).map_err(|error| error.to_string())?.value;
            if due.is_empty() {
                break;
            }
            let calls: Vec<ExpireCall> =
                due.into_iter().map(|due| ExpireCall { claim: due.claim, subjects: due.subjects }).collect();
            expired += calls.len();
            bank.expire(&calls).map_err(|error| error.to_string())?;
        }
    }
    bank.stats(|stats| stats.sweeps += 1);
    Ok(expired)
}

/// Moves ended calls to the store. A torn drain dies before it trims, so the next one finds the same again.
pub(crate) fn drain(bank: &Bank, is_torn: bool) -> Result<usize, String> {
    let mut drained = 0;
    for shard in bank.shards() {
        let records = bank.journal_read(shard, 7).map_err(|error| error.to_string())?.value;
        let Some(last) = records.last() else { continue };
        bank.append(shard, &records);
        drained += records.len();
        if is_torn {
            bank.stats(|stats| stats.drains_torn += 1);
        } else {
            bank.journal_trim(shard, last.cursor).map_err(|error| error.to_string())?;
        }
    }
    bank.stats(|stats| stats.drained += drained as u64);
    Ok(drained)
}

async fn sweep_always(world: Arc<World>) {
    let mut random = stream(world.plan.start, Part::Jobs);
    loop {
        sleep(Duration::from_millis(1000)).await;
        if world.plan.has(Trouble::Unswept) && random.one_in(60) {
            sleep(Duration::from_secs(40 + random.below(80))).await;
        }
        // An engine that is away is swept when it is back.
        drop(sweep(&world.bank));
    }
}

async fn sabotage(world: Arc<World>) {
    sleep(Duration::from_secs(5)).await;
    world.bank.sabotage();
}

async fn drain_always(world: Arc<World>, mut random: Random) {
    loop {
        sleep(Duration::from_millis(200 + random.below(8000))).await;
        let is_torn = world.plan.has(Trouble::Torn) && random.one_in(4);
        drop(drain(&world.bank, is_torn));
    }
}

async fn tick_always(world: Arc<World>) {
    loop {
        sleep(Duration::from_secs(3)).await;
        world.bank.tick();
    }
}

/// One kind of trouble, again and again.
async fn make(world: Arc<World>, trouble: Trouble, mut random: Random) {
    loop {
        sleep(Duration::from_millis(500 + random.below(20_000))).await;
        once(&world, trouble, &mut random).await;
    }
}

async fn once(world: &Arc<World>, trouble: Trouble, random: &mut Random) {
    let bank = &world.bank;
    let at = usize::try_from(random.below(world.hosts.len() as u64)).unwrap_or(0);
    let host = &world.hosts[at];
    match trouble {
        // These are drawn where they happen.
        Trouble::Lost
        | Trouble::Slow
        | Trouble::Twice
        | Trouble::Full
        | Trouble::Unswept
        | Trouble::Torn
        | Trouble::Conflict => {}
        Trouble::Away => {
            bank.set_away(true);
            sleep(Duration::from_millis(random.below(12_000))).await;
            bank.set_away(false);
        }
        Trouble::Restart => bank.restart(random.one_in(2)),
        Trouble::Crash => {
            if host.crash() {
                bank.note(|| format!("gateway {at} dies"));
                bank.stats(|stats| stats.gateway_crashes += 1);
            }
            sleep(Duration::from_millis(random.below(30_000))).await;
            world.boot(host);
        }
        Trouble::Stop => stop(world, at).await,
        Trouble::Stall => {
            let Some(gateway) = host.gateway() else { return };
            bank.stats(|stats| stats.gateway_stalls += 1);
            gateway.is_stalled.store(true, Ordering::Relaxed);
            sleep(Duration::from_secs(20 + random.below(80))).await;
            gateway.is_stalled.store(false, Ordering::Relaxed);
        }
        Trouble::Forward => {
            let by = *random.of(&[S, 20 * S, 70 * S, 10 * 60 * S, 3600 * S]);
            bank.step_forward(random.below(by).min(world.plan.jump_max()));
        }
        Trouble::Back => {
            let by = *random.of(&[S, 5 * S, 70 * S, 3600 * S, 2 * 86_400 * S]);
            bank.step_back(random.below(by));
        }
        Trouble::Limits => change_limits(world, random).await,
        Trouble::Adjust => adjust(world, random).await,
        Trouble::Probe => probe::once(world, random),
        Trouble::Hasty => {
            let Some(claim) = bank.auditor(|auditor| auditor.any_live(random)) else { return };
            drop(bank.expire(&[ExpireCall { claim, subjects: Vec::new() }]));
        }
        Trouble::Lull => {
            bank.set_away(true);
            let Some(gateway) = halt(world, at).await else { return bank.set_away(false) };
            bank.set_away(false);
            if gateway.unfinished().1 > 0 {
                bank.step_forward(S * (24 * 60 + random.below(9 * 60)));
            }
            world.boot(host);
        }
    }
}

/// A gateway shuts down in order: nothing new, streams cut and settled, the rest to disk; then it starts anew.
async fn stop(world: &Arc<World>, at: usize) {
    if halt(world, at).await.is_some() {
        sleep(Duration::from_secs(1)).await;
        world.boot(&world.hosts[at]);
    }
}

async fn halt(world: &Arc<World>, at: usize) -> Option<Arc<Gateway>> {
    let host = &world.hosts[at];
    let gateway = host.gateway()?;
    gateway.is_stopping.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        sleep(Duration::from_secs(1)).await;
        if gateway.unfinished() == (0, 0) {
            break;
        }
    }
    gateway.spill_all();
    host.crash();
    world.bank.note(|| format!("gateway {at} has stopped"));
    world.bank.stats(|stats| stats.gateway_stops += 1);
    Some(gateway)
}

/// Limits are data: every gateway hears of a change in its own time.
async fn change_limits(world: &Arc<World>, random: &mut Random) {
    let mut changed = (*world.config()).clone();
    if changed.accounts.is_empty() {
        return;
    }
    for _ in 0..=random.below(3) {
        config::change(random, &mut changed);
    }
    let changed = Arc::new(changed);
    *world.config.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::clone(&changed);
    world.bank.stats(|stats| stats.ceilings_changed += 1);
    for host in &world.hosts {
        sleep(Duration::from_millis(random.below(800))).await;
        if let Some(gateway) = host.gateway() {
            gateway.replace(Arc::clone(&changed));
        }
    }
}

/// An operator posts a difference to a quota, and asks again because the answer may have been lost.
async fn adjust(world: &Arc<World>, random: &mut Random) {
    let config = world.config();
    let places: Vec<_> = (config.tenants.iter())
        .flat_map(|tenant| {
            let keys = tenant.keys.iter().flat_map(|key| &key.accounts);
            tenant.accounts.iter().chain(keys).map(|at| (tenant.shard, *at))
        })
        .filter(|(_, at)| config.accounts[*at].is_quota())
        .collect();
    if places.is_empty() {
        return;
    }
    let (shard, at) = *random.of(&places);
    let account = &config.accounts[at];
    let (start, length) = account.calendar.current(world.bank.clock.now());
    let end = if account.calendar == Calendar::Lifetime { u64::MAX } else { start + length };
    let most = account.limits[0].ceiling / 3 + 1;
    let delta = random.below(2 * most).cast_signed() - (most / 2).cast_signed();
    let opening = random.one_in(2).then_some(Opening { measure: account.measure, end });
    let id = u128::from(random.draw()) | 1 << 100;
    let adjust = Adjust { id, account: account.id, period: start, delta, opening };
    let call = AdjustCall { shard, adjust, entry: format!("adjusted {id}").into_bytes() };
    for _ in 0..3 {
        let done = world.wire.adjust(DEADLINE, call.clone()).await;
        if done.is_ok_and(|reply| reply.value) && opening.is_some() {
            world.bank.stats(|stats| stats.openings += 1);
        }
    }
}
