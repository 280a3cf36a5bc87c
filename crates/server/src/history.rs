//! How limits were defined before, and what that leaves behind (L16).
//!
//! The store keeps every definition of every limit, with the engine time it was first seen. At a start and at a reload the
//! definitions that are new are added; `policy` says what older ones leave behind, and which quotas begin in mid-period.
//! Invariant: a row is never changed, so a start that dies half-way and the next one see the same past.

use std::sync::Arc;

use anyhow::Context;
use tollbook_admission::shard;
use tollbook_engine::Shard;
use tollbook_jobs::{JobError, Opening, OpeningAmount};
use tollbook_ledger::units::SECOND;
use tollbook_ledger::{AccountId, Measure};
use tollbook_policy::{self as policy, Catalog, HistoryRow, Limit, Meter, OpeningNeeded, Scope, Subject};
use tollbook_pricing::Parts;
use tollbook_store::{Journal, LimitHistory, LimitRow, Name, Side, Span, UsageQuery, UsageSum};

/// A catalog with its limits' past, and what has to be done before it is in force.
#[derive(Debug)]
pub struct Past {
    /// With what the past leaves behind.
    pub catalog: Catalog,
    /// Quotas that begin in mid-period.
    pub needed: Vec<OpeningNeeded>,
    /// Definitions the store has not seen.
    new: Vec<LimitRow>,
}

/// Looks a catalog's past up; nothing is written. `now` is engine time in UTC seconds.
pub async fn look_up(catalog: Catalog, history: &dyn LimitHistory, now: u64) -> anyhow::Result<Past> {
    let before = history.limit_rows().await.context("cannot read the history of the limits")?;
    let mut rows = Vec::with_capacity(before.len());
    for row in before {
        rows.push(known(&row)?);
    }
    let new = policy::diff(&rows, &catalog, now);
    let added = new.iter().map(stored).collect();
    rows.extend(new);
    let (catalog, needed) = catalog.with_history(&rows, now);
    Ok(Past { catalog, needed, new: added })
}

impl Past {
    /// Adds the new definitions to the history; the catalog comes in force with that.
    pub async fn write_down(&self, history: &dyn LimitHistory) -> anyhow::Result<()> {
        let added = history.limit_rows_append(&self.new).await;
        added.map(|_| ()).context("cannot add to the history of the limits")
    }
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
    let id = needed.adjust_id(account);
    let (measure, period) = (needed.measure, needed.period);
    Opening { id, shard, account, measure, period, end, calls, amount: amount(measure, needed.meter.settle) }
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
fn amount(measure: Measure, meter: Meter) -> OpeningAmount {
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
