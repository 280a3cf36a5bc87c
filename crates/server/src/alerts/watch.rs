//! Looks at the quotas of tenants that called lately, and writes what they have crossed.
//!
//! Only tenants that called since the look before, or in the one before that, or whose calls still hold something, are
//! looked at: of another nothing moves. Those of a file are looked at all together.
//! Accounts of single end users are not watched: only calls name those.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};
use tokio::sync::watch;
use tollbook_admission::{Admission, Snapshot, shard};
use tollbook_jobs::{Amounts, Known, Step, Threshold, step};
use tollbook_ledger::{AccountId, Measure};
use tollbook_policy::{Catalog, Form, Rule, Scope, measure_word};
use tollbook_store::{ALERTS_MAX, AlertMark, Alerts, Delivery, StoreError, nano_text};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Job, Run};

use crate::config::Alerts as Settings;
use crate::config::file::EventKind;
use crate::inspect;
use crate::office::Tenants;
use crate::text::instant;

/// Accounts asked for in one verb.
const BATCH: usize = 256;
const DEADLINE: Duration = Duration::from_secs(2);
/// A crossing is remembered after its period as long as that was, within these bounds, in seconds: a gateway whose clock is
/// behind may look at it still.
const REMEMBERED: (u64, u64) = (120, 86_400);
/// Tenants whose accounts cannot be read; after so many a look ends, and the next one goes on with the rest.
const FAILURES_MAX: usize = 4;
/// The form of the bodies.
const VERSION: u32 = 1;

pub(crate) struct Watch {
    pub(crate) settings: Settings,
    pub(crate) admission: Arc<Admission>,
    /// Where tenants are looked up one by one.
    pub(crate) tenants: Option<Arc<Tenants>>,
    pub(crate) store: Arc<dyn Alerts>,
    pub(crate) metrics: Arc<Metrics>,
}

/// A quota, and the account it is over.
struct Quota<'a> {
    rule: &'a Rule,
    account: AccountId,
    /// UTC seconds.
    period: u64,
    end: u64,
}

/// By tenant; of a file all are one, without a name.
type Snapshots = BTreeMap<Arc<str>, Arc<Snapshot>>;

/// Whom a look is at, each once: what is newer counts. Those behind where the last one ended come first, so that tenants
/// that cannot be looked at keep no other from it for ever.
fn in_turn<T: Clone>(
    used: BTreeMap<Arc<str>, T>,
    left: &mut BTreeMap<Arc<str>, T>,
    from: &mut Option<Arc<str>>,
) -> Vec<(Arc<str>, T)> {
    let mut all = std::mem::take(left);
    all.extend(used);
    let Some(from) = from.take() else { return all.into_iter().collect() };
    let behind = (Bound::Excluded(Arc::clone(&from)), Bound::Unbounded);
    let first = all.range(behind).chain(all.range(..=from));
    first.map(|(whose, snapshot)| (Arc::clone(whose), snapshot.clone())).collect()
}

/// Why a tenant cannot be looked at.
enum Trouble {
    /// Nothing can be looked at.
    Store(StoreError),
    /// Its part of the book does not answer.
    Book(anyhow::Error),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Watch {
    /// Looks until `stop` turns true.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(self.settings.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The turns of the tenants' use at the last two looks.
        let (mut last, mut before) = (0, 0);
        // Those whose calls held something at the last look, or who could not be looked at.
        let (mut left, mut told) = (Snapshots::new(), false);
        // Where the last look ended before its end.
        let mut from = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                // A sender that is gone stops too.
                _ = stop.wait_for(|stopped| *stopped) => return,
            }
            let snapshots = match &self.tenants {
                Some(tenants) => {
                    let (now, used) = tenants.used_since(before);
                    (before, last) = (last, now);
                    used
                }
                None => Snapshots::from([(Arc::from(""), self.admission.snapshot())]),
            };
            let done = self.look(in_turn(snapshots, &mut left, &mut from), &mut left, &mut from).await;
            self.metrics.jobs_runs.inc((Job::Alerts, if done.is_ok() { Run::Ok } else { Run::Failed }));
            match done {
                Ok(()) => told = false,
                Err(error) if !told => {
                    told = true;
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "quotas cannot be watched; it is tried again"
                    );
                }
                Err(_) => {}
            }
        }
    }

    /// One tenant that cannot be looked at keeps no other from it. Whoever could not be is `left` for the next look, which
    /// goes on behind `from`.
    async fn look(
        &self,
        snapshots: Vec<(Arc<str>, Arc<Snapshot>)>,
        left: &mut Snapshots,
        from: &mut Option<Arc<str>>,
    ) -> anyhow::Result<()> {
        let mut failed = Vec::new();
        let mut snapshots = snapshots.into_iter();
        while let Some((whose, snapshot)) = snapshots.next() {
            let mut is_left = false;
            for (tenant, quotas) in quotas(&snapshot.catalog, self.admission.now() / 1_000_000) {
                let trouble = match self.tenant(tenant, &quotas).await {
                    Ok(holds) => {
                        is_left |= holds;
                        continue;
                    }
                    Err(trouble) => trouble,
                };
                is_left = true;
                let error = match trouble {
                    Trouble::Book(error) if failed.len() + 1 < FAILURES_MAX => {
                        failed.push(error);
                        continue;
                    }
                    Trouble::Book(error) => error,
                    Trouble::Store(error) => anyhow::Error::new(error).context("the store is away"),
                };
                *from = Some(Arc::clone(&whose));
                left.insert(whose, Arc::clone(&snapshot));
                left.extend(snapshots);
                return Err(error);
            }
            if is_left {
                left.insert(whose, snapshot);
            }
        }
        failed.pop().map_or(Ok(()), Err)
    }

    /// What is known of a tenant's thresholds.
    async fn marks(&self, tenant: &str, now: u64) -> Result<Vec<AlertMark>, StoreError> {
        let mut marks: Vec<AlertMark> = Vec::new();
        loop {
            let page = self.store.alert_marks(tenant, now, marks.last()).await?;
            let is_last = page.len() < ALERTS_MAX;
            marks.extend(page);
            if is_last {
                return Ok(marks);
            }
        }
    }

    /// Whether calls in flight hold something of it.
    async fn tenant(&self, tenant: &str, quotas: &[Quota<'_>]) -> Result<bool, Trouble> {
        let mut holds = false;
        let marks = self.marks(tenant, self.admission.now() / 1_000_000).await?;
        let marks: BTreeMap<(&str, u64, &str), Known> = marks
            .iter()
            .map(|mark| {
                let known = Known { turn: mark.turn, crossed: mark.crossed };
                ((mark.account.as_str(), mark.period, mark.threshold.as_str()), known)
            })
            .collect();
        for some in quotas.chunks(BATCH) {
            let ids: Vec<AccountId> = some.iter().map(|quota| quota.account).collect();
            let asked = self.admission.balances(shard(tenant), &ids);
            let reply = match tokio::time::timeout(DEADLINE, asked).await {
                Ok(reply) => reply.map_err(|error| Trouble::Book(error.into()))?,
                Err(_) => return Err(Trouble::Book(anyhow!("the book does not answer"))),
            };
            for (quota, balance) in some.iter().zip(reply.value) {
                let standing = balance.map(|balance| balance.standing);
                // Of a period that is over nothing counts any more; and this gateway's clock may be behind.
                if standing.is_some_and(|standing| standing.period > quota.period) {
                    continue;
                }
                let standing = standing.filter(|standing| standing.period == quota.period);
                let amounts = Amounts {
                    ceiling: quota.rule.limit.ceiling_at(reply.now / 1_000_000),
                    posted: standing.map_or(0, |standing| standing.posted),
                    held: standing.map_or(0, |standing| standing.held),
                };
                holds |= amounts.held > 0;
                for threshold in &self.settings.thresholds {
                    self.step(tenant, quota, &amounts, *threshold, &marks).await?;
                }
            }
        }
        Ok(holds)
    }

    async fn step(
        &self,
        tenant: &str,
        quota: &Quota<'_>,
        amounts: &Amounts,
        threshold: Threshold,
        marks: &BTreeMap<(&str, u64, &str), Known>,
    ) -> Result<(), StoreError> {
        let (account, name) = (inspect::text(&quota.account), name(threshold, &quota.rule.limit.name));
        let known = marks.get(&(account.as_str(), quota.period, name.as_str())).copied();
        let Some(step) = step(threshold, amounts, known) else { return Ok(()) };
        let (Step::Crossed(turn) | Step::Left(turn)) = step;
        let mark = AlertMark {
            tenant: tenant.to_owned(),
            account,
            period: quota.period,
            threshold: name,
            turn,
            crossed: matches!(step, Step::Crossed(_)),
        };
        if !mark.crossed {
            self.store.alert_rearm(&mark).await?;
            return Ok(());
        }
        let deliveries = self.deliveries(&mark, quota, amounts, threshold);
        let length = quota.end.saturating_sub(quota.period);
        let until = quota.end.saturating_add(length.clamp(REMEMBERED.0, REMEMBERED.1));
        if self.store.alert_cross(&mark, until, &deliveries).await? {
            self.metrics.alerts_crossed.inc(());
            let limit = quota.rule.limit.name.as_str();
            tracing::info!(tenant, limit, threshold = ?threshold, "a quota crossed a threshold");
        }
        Ok(())
    }

    fn deliveries(
        &self,
        mark: &AlertMark,
        quota: &Quota<'_>,
        amounts: &Amounts,
        threshold: Threshold,
    ) -> Vec<Delivery> {
        let kind = match threshold {
            Threshold::Remaining(_) => EventKind::Remaining,
            Threshold::Held(_) => EventKind::Held,
        };
        let created_at = self.admission.now() / 1_000;
        let id = id(mark);
        let body = body(mark, quota, amounts, threshold, (&id, created_at)).to_string();
        let wanted = self.settings.webhooks.iter().filter(|webhook| webhook.wants(kind, &mark.tenant));
        let delivery = |webhook: &crate::config::Webhook| Delivery {
            webhook: webhook.id.clone(),
            id: id.clone(),
            body: body.clone(),
            created_at,
            tries: 0,
        };
        wanted.map(delivery).collect()
    }
}

/// The quotas of a catalog's tenants, their projects, keys and services.
fn quotas(catalog: &Catalog, now: u64) -> BTreeMap<&str, Vec<Quota<'_>>> {
    let mut quotas: BTreeMap<&str, Vec<Quota<'_>>> = BTreeMap::new();
    for (_, rule) in catalog.own_rules() {
        let (Scope::One(subject), Form::Quota(_)) = (&rule.limit.scope, &rule.limit.form) else { continue };
        if rule.is_left_behind() || rule.limit.shadow || rule.enforced_from > now {
            continue;
        }
        let calendar = rule.calendar.and_then(|id| catalog.calendar(id));
        let (Some(tenant), Some(account), Some(calendar)) = (subject.tenant(), rule.account(None), calendar)
        else {
            continue;
        };
        let (period, end) = calendar.current(now);
        quotas.entry(tenant).or_default().push(Quota { rule, account, period, end });
    }
    quotas
}

/// What a threshold of a limit is called. Limits may share an account, and each has its own ceiling.
fn name(threshold: Threshold, limit: &str) -> String {
    let digest = blake3::hash(limit.as_bytes()).to_hex();
    let digest = digest.get(..16).unwrap_or_default();
    match threshold {
        Threshold::Remaining(percent) => format!("remaining {percent} {digest}"),
        Threshold::Held(percent) => format!("held {percent} {digest}"),
    }
}

/// The id of a crossing's event: the same whoever tells it.
fn id(mark: &AlertMark) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("tollbook alert event 1");
    for text in [&mark.tenant, &mark.account, &mark.threshold] {
        hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes()).update(text.as_bytes());
    }
    hasher.update(&mark.period.to_le_bytes()).update(&mark.turn.to_le_bytes());
    let hex = hasher.finalize().to_hex();
    format!("evt_{}", hex.get(..32).unwrap_or_default())
}

fn body(
    mark: &AlertMark,
    quota: &Quota<'_>,
    amounts: &Amounts,
    threshold: Threshold,
    (id, created_at): (&str, u64),
) -> Value {
    let limit = &quota.rule.limit;
    let text = |amount: i64| {
        if limit.measure == Measure::Cost { nano_text(amount) } else { amount.to_string() }
    };
    let whole = |amount: i128| text(i64::try_from(amount).unwrap_or(i64::MAX));
    let (kind, percent) = match threshold {
        Threshold::Remaining(percent) => ("quota.remaining", percent),
        Threshold::Held(percent) => ("quota.held", percent),
    };
    let at = |second: u64| instant(second.saturating_mul(1_000));
    // One that has no end is a prepaid balance.
    let end = (quota.end < u64::MAX).then(|| at(quota.end));
    json!({
        "id": id, "type": kind, "version": VERSION, "created_at": instant(created_at), "tenant": mark.tenant,
        "subject": limit.scope.to_string(), "limit": limit.name, "model": limit.model,
        "measure": measure_word(limit.measure), "form": limit.form.with_booking(),
        "period": {"start": at(quota.period), "end": end},
        "ceiling": whole(i128::from(amounts.ceiling)), "posted": text(amounts.posted),
        "held": text(amounts.held), "remaining": whole(amounts.remaining()), "threshold_percent": percent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However often looks fail, no tenant is looked at twice in one, and each comes first some time.
    #[test]
    fn looks_that_fail_pile_nothing_up_and_keep_nobody_from_the_next() {
        let named = |names: &[&str], at: u32| names.iter().map(|name| (Arc::from(*name), at)).collect();
        let (mut left, mut from) = (named(&["a", "b", "c"], 1), None);
        for at in 2..100 {
            let all = in_turn(named(&["b", "d"], at), &mut left, &mut from);
            let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
            let want =
                [["a", "b", "c", "d"], ["b", "c", "d", "a"], ["c", "d", "a", "b"], ["d", "a", "b", "c"]];
            assert_eq!(names, want[(at as usize - 2) % 4]);
            assert!(all.contains(&(Arc::from("b"), at)), "what is newer counts");
            // The first one fails, and all are left.
            from = Some(Arc::clone(&all[0].0));
            left = all.into_iter().collect();
        }
        assert_eq!(in_turn(named(&[], 0), &mut named(&["x"], 1), &mut Some(Arc::from("y"))).len(), 1);
    }

    #[test]
    fn an_events_id_is_made_of_all_that_tells_crossings_apart() {
        let mark = AlertMark {
            tenant: "acme".to_owned(),
            account: "a:b".to_owned(),
            period: 5,
            threshold: name(Threshold::Remaining(10), "l"),
            turn: 1,
            crossed: true,
        };
        let others = [
            AlertMark { tenant: "acm".to_owned(), account: "ea:b".to_owned(), ..mark.clone() },
            AlertMark { account: "a:c".to_owned(), ..mark.clone() },
            AlertMark { period: 6, ..mark.clone() },
            AlertMark { turn: 2, ..mark.clone() },
            AlertMark { threshold: name(Threshold::Remaining(5), "l"), ..mark.clone() },
            AlertMark { threshold: name(Threshold::Held(10), "l"), ..mark.clone() },
            AlertMark { threshold: name(Threshold::Remaining(10), "m"), ..mark.clone() },
        ];
        let ids: std::collections::BTreeSet<String> = others.iter().chain([&mark]).map(id).collect();
        assert_eq!(ids.len(), 8);
        assert_eq!(id(&mark), id(&AlertMark { crossed: false, ..mark.clone() }));
        assert!(mark.threshold.len() <= tollbook_store::ALERT_ID_MAX);
    }
}
