//! An operator posts a difference to a quota, with a reason: a credit, a top-up of a prepaid budget, a correction.
//!
//! Invariants: it is posted once for each id, however often it is asked for; the journal has an entry that says who asked
//! and why, and no usage. Only the period that runs can be adjusted: what is over is history.
//! When the engine or the journal does not answer: nothing is said to be posted; a repeat with the same id is harmless.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tollbook_admission::{Admission, shard};
use tollbook_engine::AdjustCall;
use tollbook_ledger::{self as ledger, AMOUNT_MAX, Measure, ReservationId};
use tollbook_policy::{Catalog, Rule, Scope, Subject, measure_word};
use tollbook_pricing::parse_scaled;
use tollbook_store::{Ending, Entry, EntryBody, Figures, Journal, LADDER_MAX, NAME_MAX, Name, nano_text};

use crate::admin::Refusal;

const DEADLINE: Duration = Duration::from_secs(2);
/// Decimal places of nano-currency.
const NANO: u32 = 9;
/// Longest reason, in bytes: what the entry has room for, also where its letters have four of them.
pub(crate) const REASON_MAX: usize = (NAME_MAX - 3) * (LADDER_MAX - 1);
/// Longest id of an order.
const ID_MAX: usize = 64;

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// The limit's name.
    limit: String,
    /// Of a limit on each user: which.
    user: Option<String>,
    /// Decimal, in the limit's unit: above 0 is used, below 0 is given back.
    delta: String,
    reason: String,
    /// Makes a repeat harmless; without one a repeat posts again.
    id: Option<String>,
}

/// Posts it, for `who`.
pub(crate) async fn post(
    (admission, journal, catalog): (&Admission, &dyn Journal, &Catalog),
    (tenant, who): (&str, &str),
    order: &Order,
) -> Result<Value, Refusal> {
    let rule = rule(catalog, tenant, &order.limit)?;
    let measure = rule.limit.measure;
    let delta = amount(&order.delta, measure)?;
    let id = id(tenant, order)?;
    let shard = shard(tenant);
    let Some(account) = rule.account(order.user.as_deref()) else {
        return Err(bad("`user` is of limits on each user, and is needed for those alone"));
    };
    let Some(calendar) = rule.calendar.and_then(|id| catalog.calendar(id)) else {
        return Err(bad(format!("`{}` is no quota; what a rate counted is gone by itself", order.limit)));
    };
    let known = journal.by_reservation(ReservationId(id)).await.map_err(|error| told(&error))?;
    let same =
        |entry: &Entry| entry.posted.iter().all(|posted| (posted.account, posted.amount) == (account, delta));
    if !known.iter().all(same) {
        let message = "`id` stands for another adjustment, of another limit or amount; nothing was posted";
        return Err(Refusal::new(StatusCode::CONFLICT, "conflict", message));
    }
    let written = journal.was_written(ReservationId(id)).await.map_err(|error| told(&error))?;
    if known.is_empty() && written {
        let message = "`id` stands for an adjustment that has gone from the journal; nothing was posted";
        return Err(Refusal::new(StatusCode::CONFLICT, "conflict", message));
    }
    let (period, end) = calendar.current(admission.now() / 1_000_000);
    let mut applied = false;
    if known.is_empty() {
        let opening = Some(ledger::Opening { measure, end });
        let adjust = ledger::Adjust { id, account, period, delta, opening };
        let call = AdjustCall { shard, adjust, entry: entry(rule, order, who).encode() };
        let asked = tokio::time::timeout(DEADLINE, admission.engine().adjust(&call)).await;
        applied = asked.map_err(|_| away())?.map_err(|error| told(&error))?.value;
    }
    let asked = tokio::time::timeout(DEADLINE, admission.balances(shard, &[account])).await;
    let balances = asked.map_err(|_| away())?.map_err(|error| told(&error))?.value;
    let posted = balances.into_iter().flatten().next().map_or(0, |balance| balance.standing.posted);
    tracing::info!(tenant, limit = order.limit, delta, who, applied, "an operator adjusted a quota");
    let text = |amount: i64| if measure == Measure::Cost { nano_text(amount) } else { amount.to_string() };
    let ceiling = i64::try_from(rule.limit.ceiling_at(admission.now() / 1_000_000)).unwrap_or(i64::MAX);
    Ok(json!({
        "id": format!("{id:032x}"), "applied": applied, "limit": order.limit, "measure": measure_word(measure),
        "delta": text(delta), "posted": text(posted), "ceiling": text(ceiling),
        "remaining": text(ceiling.saturating_sub(posted)),
    }))
}

/// The limit of that name, if it is one of the tenant's.
fn rule<'a>(catalog: &'a Catalog, tenant: &str, name: &str) -> Result<&'a Rule, Refusal> {
    let of_tenant = |rule: &&Rule| match &rule.limit.scope {
        Scope::EachUser { tenant: of } => of == tenant,
        Scope::One(subject) => subject.tenant() == Some(tenant),
    };
    let mut found = catalog.rules().map(|(_, rule)| rule).filter(|rule| !rule.is_left_behind());
    found.find(|rule| rule.limit.name == name && of_tenant(rule)).ok_or_else(|| {
        let message = format!("the tenant `{tenant}` has no limit `{name}`");
        Refusal::new(StatusCode::NOT_FOUND, "no_limit", message)
    })
}

/// A signed decimal in the measure's smallest unit.
fn amount(text: &str, measure: Measure) -> Result<i64, Refusal> {
    let places = if measure == Measure::Cost { NANO } else { 0 };
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let amount = parse_scaled(digits, places).map_err(|error| bad(format!("`delta` {error}: `{text}`")))?;
    if amount == 0 || amount > AMOUNT_MAX {
        return Err(bad("`delta` is 0, or more than any account can hold"));
    }
    let amount = amount.cast_signed();
    Ok(if negative { -amount } else { amount })
}

fn id(tenant: &str, order: &Order) -> Result<u128, Refusal> {
    if order.reason.trim().is_empty() || order.reason.len() > REASON_MAX {
        return Err(bad(format!("`reason` is needed, of {REASON_MAX} bytes at most")));
    }
    let mut bits = [0_u8; 16];
    match &order.id {
        Some(id) if id.is_empty() || id.len() > ID_MAX => {
            return Err(bad(format!("`id` has 1 to {ID_MAX} bytes")));
        }
        Some(id) => {
            let mut hasher = blake3::Hasher::new_derive_key("tollbook operators' adjustment 1");
            hasher.update(&u64::try_from(tenant.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(tenant.as_bytes()).update(id.as_bytes());
            hasher.finalize_xof().fill(&mut bits);
        }
        None => {
            getrandom::fill(&mut bits).map_err(|error| internal(&format!("no random bits: {error}")))?;
        }
    }
    Ok(u128::from_le_bytes(bits))
}

fn entry(rule: &Rule, order: &Order, who: &str) -> EntryBody {
    let name = |text: &str| Name::from(text);
    // What an operator is called fits one part.
    let why = cut(&format!("by {who}")).into_iter().take(1).chain(cut(&order.reason)).take(LADDER_MAX);
    let mut body = EntryBody {
        model_used: name(rule.limit.model.as_deref().unwrap_or_default()),
        figures: Figures::Adjusted,
        ending: Ending::Adjusted,
        ladder: why.map(|part| name(&part)).collect(),
        ..EntryBody::default()
    };
    match &rule.limit.scope {
        Scope::EachUser { tenant } => {
            (body.tenant, body.user) = (name(tenant), name(order.user.as_deref().unwrap_or_default()));
        }
        Scope::One(subject) => of(subject, &mut body),
    }
    body
}

fn of(subject: &Subject, body: &mut EntryBody) {
    let name = |text: &String| Name::from(text.as_str());
    match subject {
        Subject::Tenant { tenant } => body.tenant = name(tenant),
        Subject::Project { tenant, project } => (body.tenant, body.project) = (name(tenant), name(project)),
        Subject::Key { tenant, project, key } => {
            (body.tenant, body.project, body.key) = (name(tenant), name(project), name(key));
        }
        Subject::Service { tenant, service } => (body.tenant, body.service) = (name(tenant), name(service)),
        Subject::User { tenant, user } => (body.tenant, body.user) = (name(tenant), name(user)),
        Subject::Pool { pool } => body.pool = name(pool),
    }
}

/// A text in parts that a name has room for.
pub(crate) fn cut(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for letter in text.chars() {
        match parts.last_mut() {
            Some(last) if last.len() + letter.len_utf8() <= NAME_MAX => last.push(letter),
            _ => parts.push(String::from(letter)),
        }
    }
    parts
}

pub(crate) fn bad(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "bad_question", message)
}

fn internal(message: &str) -> Refusal {
    tracing::error!(message, "an operator's order could not be carried out");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "see the log")
}

pub(crate) fn away() -> Refusal {
    told(&"no answer in time")
}

pub(crate) fn told(error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("{error}; whether it was posted is not known: ask again with the same `id`");
    tracing::warn!(message, "an operator's order could not be carried out");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "away", message)
}
