//! How limits were defined before, and what that leaves behind (L16).
//!
//! The store keeps every definition of every limit, with the engine time it was first seen. At a start and at a reload the
//! definitions that are new are added; `policy` says what older ones leave behind, and which quotas begin in mid-period.
//! Invariant: a row is never changed, so a start that dies half-way and the next one see the same past.

use std::sync::Arc;

use anyhow::{Context, bail};
use tollbook_admission::shard;
use tollbook_engine::Shard;
use tollbook_jobs::{JobError, Opening, OpeningAmount};
use tollbook_ledger::units::SECOND;
use tollbook_ledger::{AccountId, Measure};
use tollbook_policy::{self as policy, Catalog, HistoryRow, Limit, Meter, OpeningNeeded, Scope, Subject};
use tollbook_pricing::Parts;
use tollbook_store::{Journal, LimitHistory, LimitRow, Name, Side, Span, UsageQuery, UsageSum};

/// How often the past is looked up anew because another gateway wrote at the same moment.
pub const TRIES: usize = 8;
/// Whose limits those of a file and of pools are in the history.
pub const EVERYBODY: &str = "";

/// A catalog with its limits' past, and what has to be done before it is in force.
#[derive(Debug)]
pub struct Past {
    /// With what the past leaves behind.
    pub catalog: Catalog,
    /// Quotas that begin in mid-period.
    pub needed: Vec<OpeningNeeded>,
    /// Definitions the store has not seen.
    pub new: Vec<LimitRow>,
}

/// Looks up the past of limits that are nobody's alone; nothing is written. `now` is engine time in UTC seconds.
pub async fn look_up(catalog: Catalog, history: &dyn LimitHistory, now: u64) -> anyhow::Result<Past> {
    let before = history.limit_rows(EVERYBODY).await.context("cannot read the history of the limits")?;
    past(catalog, &before, now)
}

/// The past of a catalog by what the store has of it.
pub fn past(catalog: Catalog, before: &[LimitRow], now: u64) -> anyhow::Result<Past> {
    let mut rows = Vec::with_capacity(before.len());
    for row in before {
        rows.push(known(row)?);
    }
    let new = policy::diff(&rows, &catalog, now);
    let added = new.iter().map(stored).collect();
    rows.extend(new);
    let (catalog, needed) = catalog.with_history(&rows, now);
    Ok(Past { catalog, needed, new: added })
}

impl Past {
    /// Adds the new definitions to the history; the catalog comes in force with that. False: another gateway has
    /// written at the same moment, perhaps something else, so that the past is not what this catalog was made with; it
    /// has to be looked up anew.
    pub async fn write_down(&self, history: &dyn LimitHistory, tenant: &str) -> anyhow::Result<bool> {
        if self.new.is_empty() {
            return Ok(true);
        }
        let added = history.limit_rows_append(tenant, &self.new).await;
        let added = added.context("cannot add to the history of the limits")?;
        Ok(usize::try_from(added).is_ok_and(|added| added == self.new.len()))
    }
}

/// The past of a catalog that comes in force at once, written down.
pub async fn take_up(
    catalog: Catalog,
    history: &dyn LimitHistory,
    journal: &dyn Journal,
    now: u64,
) -> anyhow::Result<(Catalog, Vec<Opening>)> {
    for _ in 0..TRIES {
        let past = look_up(catalog.clone(), history, now).await?;
        let openings = openings(&past.needed, &past.catalog, journal).await;
        let openings = openings.context("cannot read the journal")?;
        if past.write_down(history, EVERYBODY).await? {
            return Ok((past.catalog, openings));
        }
    }
    bail!("other gateways write the history of the limits faster than this one can follow")
}

fn known(row: &LimitRow) -> anyhow::Result<HistoryRow> {
    let definition = match row.definition.as_str() {
        "" => None,
        text => {
            let told = || format!("the history of limit `{}` cannot be read", row.limit);
            Some(Limit::from_text(text).with_context(told)?)
        }
    };
    Ok(HistoryRow {
        limit: row.limit.to_string(),
        version: row.version,
        seen_at: row.seen_at / SECOND,
        definition,
    })
}

fn stored(row: &HistoryRow) -> LimitRow {
    let definition = row.definition.as_ref().map(Limit::to_text).unwrap_or_default();
    LimitRow {
        limit: Name::from(row.limit.as_str()),
        version: row.version,
        seen_at: row.seen_at.saturating_mul(SECOND),
        digest: *blake3::hash(definition.as_bytes()).as_bytes(),
        definition,
    }
}

/// What the job needs to open the quotas. A limit on each user is one account per user that called in its period.
pub async fn openings(
    needed: &[OpeningNeeded],
    catalog: &Catalog,
    journal: &dyn Journal,
) -> Result<Vec<Opening>, JobError> {
    let mut openings = Vec::new();
    for needed in needed {
        let end = end_of(needed, catalog);
        let calls = calls(needed);
        match &needed.scope {
            Scope::One(subject) => {
                let owner = shard(subject.tenant().unwrap_or(&calls.pool));
                openings
                    .extend(needed.account(None).map(|account| opening(needed, account, owner, end, calls)));
            }
            Scope::EachUser { tenant } => {
                let admitted =
                    Span { from: needed.period.saturating_mul(SECOND), to: end.saturating_mul(SECOND) };
                for user in tollbook_jobs::users(journal, &calls.tenant, admitted).await? {
                    let Some(account) = needed.account(Some(&user)) else { continue };
                    let calls = UsageQuery { user, ..calls.clone() };
                    openings.push(opening(needed, account, shard(tenant), end, calls));
                }
            }
        }
    }
    Ok(openings)
}

fn opening(needed: &OpeningNeeded, account: AccountId, shard: Shard, end: u64, calls: UsageQuery) -> Opening {
    let (id, before) = (needed.adjust_id(account), needed.earlier_ids(account));
    let (measure, period) = (needed.measure, needed.period);
    let amount = amount(measure, needed.meter.settle);
    Opening { id, before, shard, account, measure, period, end, calls, amount }
}

fn end_of(needed: &OpeningNeeded, catalog: &Catalog) -> u64 {
    let calendar =
        catalog.rule(needed.limit).and_then(|rule| rule.calendar).and_then(|id| catalog.calendar(id));
    calendar.map_or(u64::MAX, |calendar| calendar.current(needed.period).1)
}

/// Whose calls count.
fn calls(needed: &OpeningNeeded) -> UsageQuery {
    let mut query = UsageQuery {
        side: Side::Tenant,
        tenant: Name::default(),
        project: Name::default(),
        key: Name::default(),
        service: Name::default(),
        user: Name::default(),
        pool: Name::default(),
        model: Name::from(needed.model.as_deref().unwrap_or_default()),
        admitted: Span { from: 0, to: u64::MAX },
        without: None,
    };
    let name = |text: &String| Name::from(text.as_str());
    match &needed.scope {
        Scope::EachUser { tenant } | Scope::One(Subject::Tenant { tenant }) => query.tenant = name(tenant),
        Scope::One(Subject::Project { tenant, project }) => {
            (query.tenant, query.project) = (name(tenant), name(project));
        }
        Scope::One(Subject::Key { tenant, project, key }) => {
            (query.tenant, query.project, query.key) = (name(tenant), name(project), name(key));
        }
        Scope::One(Subject::Service { tenant, service }) => {
            (query.tenant, query.service) = (name(tenant), name(service));
        }
        Scope::One(Subject::User { tenant, user }) => (query.tenant, query.user) = (name(tenant), name(user)),
        Scope::One(Subject::Pool { pool }) => (query.side, query.pool) = (Side::Pool, name(pool)),
    }
    query
}

/// An account's measure and meter applied to a sum of usage.
pub(crate) fn amount(measure: Measure, meter: Meter) -> OpeningAmount {
    let meter = meter.masked(measure);
    Arc::new(move |sum: &UsageSum| match measure {
        Measure::Requests => unsigned(sum.requests),
        Measure::Cost => unsigned(sum.cost_nano),
        Measure::Concurrency => 0,
        Measure::Tokens | Measure::InputTokens | Measure::OutputTokens => {
            let thousandths = parts(sum).weighed(&meter);
            u64::try_from(thousandths.div_ceil(1000)).unwrap_or(u64::MAX)
        }
    })
}

fn parts(sum: &UsageSum) -> Parts {
    let usage = &sum.usage;
    Parts::of(&tollbook_wire::Usage {
        input: unsigned(usage.input),
        cached: unsigned(usage.cached),
        cache_write: unsigned(usage.cache_write),
        cache_write_1h: unsigned(usage.cache_write_1h),
        output: unsigned(usage.output),
        reasoning: unsigned(usage.reasoning),
        audio_input: unsigned(usage.audio_input),
        audio_output: unsigned(usage.audio_output),
        image_input: unsigned(usage.image_input),
        ..tollbook_wire::Usage::default()
    })
}

/// Corrections can make a sum negative; nothing is opened with less than nothing.
fn unsigned(sum: i64) -> u64 {
    u64::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tollbook_policy::{Draft, LimitDraft, ShapeDraft, Tenant};
    use tollbook_store_sql::SqlStore;

    use super::*;

    fn catalog(window_s: i64) -> Catalog {
        let id = "acme".to_owned();
        let scope = Scope::One(Subject::Tenant { tenant: id.clone() });
        let shape = ShapeDraft::Rate { window_s, bucket_s: None, weights: None };
        let limit =
            LimitDraft { name: Some("r".to_owned()), ..LimitDraft::new(scope, Measure::Requests, shape, 5) };
        let tenants = vec![Tenant { id, disabled: false }];
        Catalog::new(Draft { tenants, limits: vec![limit], ..Draft::default() }).unwrap()
    }

    /// Two gateways that put different catalogs in force at the same moment: the second sees what the first wrote, and
    /// the history ends with what is in force.
    #[tokio::test]
    async fn definitions_that_meet_are_both_in_the_history() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqlStore::open(&folder.path().join("store.sqlite")).await.unwrap();
        let one = look_up(catalog(60), &store, 100).await.unwrap();
        let other = look_up(catalog(600), &store, 100).await.unwrap();
        assert!(one.write_down(&store, EVERYBODY).await.unwrap());
        assert!(!other.write_down(&store, EVERYBODY).await.unwrap(), "it was made with another past");
        let (made, _) = take_up(catalog(600), &store, &store, 101).await.unwrap();
        // The window of before binds beside the new one.
        assert_eq!(made.rules().count(), 2);
        let rows = store.limit_rows(EVERYBODY).await.unwrap();
        let told: Vec<_> = rows.iter().map(|row| (row.version, row.definition.contains("600"))).collect();
        assert_eq!(told, [(1, false), (2, true)]);
        store.close().await;
    }
}
