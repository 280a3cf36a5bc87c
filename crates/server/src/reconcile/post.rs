//! Posts what a comparison has found: `POST /admin/v1/reconcile`.
//!
//! A row says what the provider counted; what is posted is the difference to what the journal has at that moment, so a
//! repeat finds none. Quotas first, each under its own id, then one entry with the usage, which makes it count; a row that
//! broke off between the two is taken up by the next one under the same ids.
//! Invariants: nothing is posted if any row is wrong, or of a day that is not over; a row's entry is in the journal once for
//! each round, and its id is made of day, scope, model and round. Nobody's key is charged: which it was is not known.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tollbook_engine::SEQ_ADJUST;
use tollbook_ledger::{AMOUNT_MAX, ReservationId};
use tollbook_store::{
    Day, DayRange, Ending, Entry, EntryBody, Figures, NAME_MAX, Name, Origin, Side, Total, TotalsQuery,
    UsageSum, nano_text,
};

use super::columns::{UNITS, amount, day};
use super::quotas::{Books, Change, id};
use super::unbooked::{Named, missing};
use super::{Amounts, Key, Ours, Scope, ours};
use crate::adjust::{bad, cut, told};
use crate::admin::Refusal;
use crate::report::day_text;

/// Most rows and attempts of one order.
pub(crate) const ORDER_MAX: usize = 1_000;
/// Most corrections of one row; more than anybody makes, fewer than would hide a mistake.
const ROUNDS_MAX: u128 = 64;
/// How long after its end a day is taken to be whole: what ends late is in the journal by then.
pub(super) const OVER_AFTER: u64 = 3600;
const DAY_S: u64 = 86_400;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    #[serde(default)]
    rows: Vec<Row>,
    #[serde(default)]
    unbooked: Vec<Named>,
}

/// What the provider counted; what is left out is not compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    day: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    upstream: String,
    model: String,
    requests: Option<u64>,
    input: Option<u64>,
    cached: Option<u64>,
    output: Option<u64>,
    /// Decimal.
    cost: Option<String>,
}

impl Row {
    fn parse(&self) -> Result<(Key, Amounts), String> {
        let day = day(&self.day).ok_or_else(|| format!("`{}` is no day", self.day))?;
        let cost = self.cost.as_deref().map(|text| amount(text, Some(UNITS))).transpose();
        let cost = cost.map_err(|error| format!("cost {error}"))?;
        let whole = |amount: Option<u64>| amount.map(u128::from);
        let amounts = [whole(self.requests), whole(self.input), whole(self.cached), whole(self.output), cost];
        if amounts.iter().flatten().any(|amount| *amount > u128::from(AMOUNT_MAX)) {
            return Err("has an amount that is larger than any account can hold".to_owned());
        }
        let scope = Scope { tenant: self.tenant.clone(), upstream: self.upstream.clone() };
        let pool = scope.upstream.len() + self.model.len() + 1;
        if scope == Scope::default() || self.model.is_empty() {
            return Err("needs a model, and a tenant or an upstream".to_owned());
        }
        if scope.tenant.len() > NAME_MAX || self.model.len() > NAME_MAX || pool > NAME_MAX {
            return Err(format!("has a name longer than {NAME_MAX} bytes"));
        }
        if amounts.iter().all(Option::is_none) {
            return Err("has no amount".to_owned());
        }
        Ok((Key { day, scope, model: self.model.clone() }, amounts))
    }
}

/// Does what an order says. Nothing of it is done if anything of it is wrong.
pub(crate) async fn post(books: &Books<'_>, order: &Order) -> Result<Value, Refusal> {
    if order.rows.len().saturating_add(order.unbooked.len()) > ORDER_MAX {
        return Err(bad(format!("more than {ORDER_MAX} rows and attempts")));
    }
    let mut rows = Vec::with_capacity(order.rows.len());
    for (at, row) in order.rows.iter().enumerate() {
        rows.push(row.parse().map_err(|what| bad(format!("rows[{at}]: {what}")))?);
    }
    let mut attempts = Vec::with_capacity(order.unbooked.len());
    for (at, named) in order.unbooked.iter().enumerate() {
        let id = named.id().ok_or_else(|| bad(format!("unbooked[{at}]: `reservation` is no id")))?;
        attempts.push((id, named));
    }
    let totals = totals(books, &rows).await?;
    checked(books, &rows, &totals).await?;
    let scopes = rows.iter().map(|(key, _)| key.scope.clone()).collect();
    let ours = ours(&totals, &scopes);
    let mut done = Vec::with_capacity(rows.len());
    for (key, amounts) in &rows {
        done.push(row(books, &ours, key, amounts).await?);
    }
    let mut booked = Vec::with_capacity(attempts.len());
    for (id, named) in attempts {
        booked.push(attempt(books, id, named).await?);
    }
    Ok(json!({"rows": done, "unbooked": booked}))
}

/// What the journal has of the days of all rows.
async fn totals(books: &Books<'_>, rows: &[(Key, Amounts)]) -> Result<Vec<Total>, Refusal> {
    let days: BTreeSet<Day> = rows.iter().map(|(key, _)| key.day).collect();
    let (Some(from), Some(to)) = (days.first(), days.last()) else { return Ok(Vec::new()) };
    let (days, all) = (DayRange { from: *from, to: *to }, Name::default);
    let query = TotalsQuery { days, side: Side::Tenant, tenant: all(), pool: all(), model: all() };
    books.journal.totals(&query).await.map_err(|error| told(&error))
}

/// Every row is of a day that is over, of somebody who is known, and there once.
async fn checked(books: &Books<'_>, rows: &[(Key, Amounts)], totals: &[Total]) -> Result<(), Refusal> {
    let (mut seen, shared) = (BTreeSet::new(), books.catalogs.of("").await?);
    for (at, (key, _)) in rows.iter().enumerate() {
        let Scope { tenant, upstream } = &key.scope;
        if end_of(key.day).saturating_add(OVER_AFTER) > books.now / 1_000_000 {
            let what = format!("rows[{at}]: {} is not over for an hour yet", day_text(key.day));
            return Err(bad(what));
        }
        let is_tenant = tenant.is_empty()
            || totals.iter().any(|total| *total.tenant == **tenant)
            || books.catalogs.of(tenant).await?.tenants().any(|known| known.id == *tenant);
        let of_upstream = |pool: &str| pool.split_once('/').is_some_and(|(of, _)| of == upstream);
        let is_upstream = upstream.is_empty()
            || shared.models().iter().flat_map(|model| &model.pools).any(|pool| of_upstream(pool))
            || totals.iter().any(|total| of_upstream(&total.pool));
        if !(is_tenant && is_upstream) {
            let what =
                if is_tenant { format!("upstream `{upstream}`") } else { format!("tenant `{tenant}`") };
            let message = format!("rows[{at}]: there is no {what}");
            return Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", message));
        }
        if !seen.insert(key) {
            return Err(bad(format!("rows[{at}]: another row is about the same")));
        }
    }
    Ok(())
}

fn end_of(day: Day) -> u64 {
    u64::from(day.0).saturating_add(1).saturating_mul(DAY_S)
}

/// What a row changes: what it tells, in place of what the journal has.
fn change(ours: &Ours, key: &Key, amounts: &Amounts) -> Change {
    let before = ours.get(key).copied().unwrap_or_default().usage_sum();
    let mut after = before;
    let cut = |amount: u128| i64::try_from(amount).unwrap_or(i64::MAX);
    let [requests, input, cached, output, cost] = amounts.map(|amount| amount.map(cut));
    after.requests = requests.unwrap_or(after.requests);
    after.usage.input = input.unwrap_or(after.usage.input);
    after.usage.cached = cached.unwrap_or(after.usage.cached);
    after.usage.output = output.unwrap_or(after.usage.output);
    after.cost_nano = cost.unwrap_or(after.cost_nano);
    Change { before, after }
}

async fn row(books: &Books<'_>, ours: &Ours, key: &Key, amounts: &Amounts) -> Result<Value, Refusal> {
    let change = change(ours, key, amounts);
    let of = |posted: bool, id: Option<u128>| {
        json!({
            "day": day_text(key.day), "tenant": key.scope.tenant, "upstream": key.scope.upstream,
            "model": key.model, "posted": posted, "id": id.map(|id| format!("{id:032x}")),
            "difference": difference(&change),
        })
    };
    if change.is_nothing() {
        return Ok(of(false, None));
    }
    let id = round(books, key).await?;
    let body = body(books, key).await?;
    let began = end_of(key.day).saturating_sub(DAY_S);
    let sides = [Side::Tenant, Side::Pool];
    let met = books.post((id, began), &sides, &body, &change).await?;
    let delta = change.delta();
    let entry = Entry {
        reservation: ReservationId(id),
        attempt: 0,
        seq: SEQ_ADJUST,
        origin: Origin::Adjusted,
        admitted_at: began.saturating_add(DAY_S / 2).saturating_mul(1_000_000),
        ended_at: books.now,
        requests: delta.requests,
        posted: met,
        body: EntryBody { usage: delta.usage, cost_nano: delta.cost_nano, ..body },
    };
    let appended = books.journal.append(&[entry]).await.map_err(|error| told(&error))?;
    tracing::info!(
        day = day_text(key.day),
        scope = ?key.scope,
        model = key.model,
        who = books.who,
        "a difference to the provider was posted"
    );
    Ok(of(appended.inserted > 0, Some(id)))
}

/// The id of a row's next correction.
async fn round(books: &Books<'_>, key: &Key) -> Result<u128, Refusal> {
    let first = id("tollbook reconcile row 1", |hasher| {
        hasher.update(&key.day.0.to_le_bytes());
        for text in [&key.scope.tenant, &key.scope.upstream, &key.model] {
            hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(text.as_bytes());
        }
    });
    for round in 0..ROUNDS_MAX {
        let id = first.wrapping_add(round);
        // Also one that can no longer be read is over.
        if !books.journal.was_written(ReservationId(id)).await.map_err(|error| told(&error))? {
            return Ok(id);
        }
    }
    Err(bad(format!("{} of `{}` was corrected too often", day_text(key.day), key.model)))
}

/// The entry of a row, without its usage.
async fn body(books: &Books<'_>, key: &Key) -> Result<EntryBody, Refusal> {
    let Scope { tenant, upstream } = &key.scope;
    let pool = if upstream.is_empty() { String::new() } else { format!("{upstream}/{}", key.model) };
    // The configured model, where one alone is served by the pool.
    let shared = books.catalogs.of("").await?;
    let mut served = shared.models().iter().filter(|model| model.pools.contains(&pool));
    let model = match (served.next(), served.next()) {
        (Some(model), None) => model.id.as_str(),
        _ => key.model.as_str(),
    };
    Ok(EntryBody {
        tenant: Name::from(tenant.as_str()),
        model_used: Name::from(model),
        pool: Name::from(pool),
        figures: Figures::Adjusted,
        ending: Ending::Adjusted,
        ladder: by(books.who),
        ..EntryBody::default()
    })
}

/// Who asked, as far as there is room.
fn by(who: &str) -> Vec<Name> {
    let first = cut(&format!("by {who}")).into_iter().take(1);
    first.chain(["reconcile".to_owned()]).map(Name::from).collect()
}

fn difference(change: &Change) -> Value {
    let UsageSum { requests, usage, cost_nano } = change.delta();
    json!({
        "requests": requests, "input": usage.input, "cached": usage.cached, "output": usage.output,
        "cost": nano_text(cost_nano),
    })
}

/// Posts what an unbooked attempt is missing, once (L8).
async fn attempt(books: &Books<'_>, reservation: ReservationId, named: &Named) -> Result<Value, Refusal> {
    let entries = books.journal.by_reservation(reservation).await.map_err(|error| told(&error))?;
    if !books.journal.is_whole(reservation).await.map_err(|error| told(&error))? {
        let message =
            format!("entries of {} have gone from the journal (`journal_keep_days`)", named.reservation);
        return Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", message));
    }
    let side = named.side.side();
    let Some(found) = missing(&entries, named.attempt, side) else {
        let message = format!("there is no unbooked attempt {} of {}", named.attempt, named.reservation);
        return Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", message));
    };
    let told_of = |posted: bool| {
        let difference = difference(&found.change);
        json!({
            "reservation": named.reservation, "attempt": named.attempt, "side": named.side, "posted": posted,
            "difference": difference,
        })
    };
    if !found.is_open() {
        return Ok(told_of(false));
    }
    let mut body = found.entry.body.clone();
    (body.figures, body.ending, body.ladder) = (Figures::Adjusted, Ending::Adjusted, by(books.who));
    let id = id("tollbook reconcile unbooked 1", |hasher| {
        hasher.update(&reservation.0.to_le_bytes());
        hasher.update(&u64::from(named.attempt).to_le_bytes());
        hasher.update(&[u8::from(side == Side::Pool)]);
    });
    let met = books.post((id, found.at / 1_000_000), &[side], &body, &found.change).await?;
    let delta = found.change.delta();
    let entry = Entry {
        seq: SEQ_ADJUST,
        origin: Origin::Adjusted,
        admitted_at: found.at,
        ended_at: books.now,
        requests: delta.requests,
        posted: met,
        body: EntryBody { usage: delta.usage, cost_nano: delta.cost_nano, ..body },
        ..found.entry.clone()
    };
    let appended = books.journal.append(&[entry]).await.map_err(|error| told(&error))?;
    tracing::info!(reservation = named.reservation, who = books.who, "an unbooked attempt was posted");
    Ok(told_of(appended.inserted > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::quotas::Catalogs;
    use proptest::prelude::*;
    use std::sync::Arc;
    use tollbook_admission::shard;
    use tollbook_engine::Engine as _;
    use tollbook_engine_memory::{MemoryEngine, Options};
    use tollbook_policy::Catalog;
    use tollbook_store::{Journal as _, Usage};
    use tollbook_store_sql::SqlStore;

    /// 2026-03-01.
    const FIRST: u64 = 20_513;
    const NOW: u64 = ((FIRST + 10) * DAY_S + 1800) * 1_000_000;

    fn catalog() -> Catalog {
        let text = "\
upstreams: [{ name: u, dialect: openai, base_url: http://127.0.0.1:9/v1 }]
models:
  - { name: here, upstream: u, upstream_model: there, output: { default: 50 }, price: { input: 1, output: 2 } }
tenants:
  - id: a
    limits:
      - { name: used, measure: tokens, period: lifetime, ceiling: 1000000 }
      - { name: cost, measure: cost, period: lifetime, ceiling: 1000 }
      - { name: of here, measure: requests, period: lifetime, ceiling: 1000, model: here }
  - { id: b }
";
        let setup = crate::config::load_text("t.yaml", text, std::path::Path::new("t.yaml"), &|_| None);
        Catalog::clone(&setup.unwrap().snapshot.catalog)
    }

    fn call(id: u128, tenant: &str, day: u64, input: i64) -> Entry {
        Entry {
            reservation: ReservationId(id),
            attempt: 0,
            seq: 0,
            origin: Origin::Settled,
            admitted_at: (FIRST + day) * DAY_S * 1_000_000 + 5_000_000,
            ended_at: (FIRST + day) * DAY_S * 1_000_000 + 9,
            requests: 1,
            posted: Vec::new(),
            body: EntryBody {
                tenant: Name::from(tenant),
                model_used: Name::from("here"),
                pool: Name::from("u/there"),
                usage: Usage { input, cached: input / 2, output: input / 3, ..Usage::default() },
                cost_nano: input.saturating_mul(1_000),
                ..EntryBody::default()
            },
        }
    }

    struct World {
        _folder: tempfile::TempDir,
        catalog: Arc<Catalog>,
        engine: MemoryEngine,
        store: SqlStore,
    }

    impl World {
        async fn new(entries: &[Entry]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let store = SqlStore::open(&folder.path().join("j.sqlite")).await.unwrap();
            store.append(entries).await.unwrap();
            let options = Options { background: false, ..Options::default() };
            let engine = MemoryEngine::open(None, options).unwrap().engine;
            Self { _folder: folder, catalog: Arc::new(catalog()), engine, store }
        }

        async fn post(&self, order: &Value) -> Result<Value, Refusal> {
            let (engine, journal, who) = (&self.engine, &self.store, "me");
            let catalogs = Catalogs::One(Arc::clone(&self.catalog));
            let books = Books { catalogs, engine, journal, now: NOW, who };
            post(&books, &serde_json::from_value(order.clone()).unwrap()).await
        }

        /// What the quotas of tenant `a` have, by name.
        async fn balances(&self) -> Vec<(String, i64)> {
            let mut all = Vec::new();
            for (_, rule) in self.catalog.rules() {
                let account = rule.account(None).unwrap();
                let found = self.engine.balances(shard("a"), &[account]).await.unwrap().value;
                let posted = found.into_iter().flatten().map(|balance| balance.standing.posted).sum();
                all.push((rule.limit.name.clone(), posted));
            }
            all.sort();
            all
        }

        async fn totals(&self) -> Vec<Total> {
            let all = Name::default;
            let days = DayRange { from: Day(0), to: Day(u32::MAX) };
            let query = TotalsQuery { days, side: Side::Tenant, tenant: all(), pool: all(), model: all() };
            self.store.totals(&query).await.unwrap()
        }
    }

    fn posted(answer: &Value, what: &str) -> Vec<bool> {
        answer[what].as_array().unwrap().iter().map(|one| one["posted"] == true).collect()
    }

    fn wait<T>(of: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(of)
    }

    type Told = (u8, u8, Option<u32>, Option<u32>, Option<u32>);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Whatever the journal has and the provider says: after it is posted the journal says the same, the quotas have
        /// what was missing, and posting it again changes nothing.
        #[test]
        fn posting_twice_changes_nothing(
            calls in proptest::collection::vec((0..2_u8, 0..3_u64, 0..1000_i64), 0..12),
            told in proptest::collection::btree_map((0..3_u8, 0..3_u8), (
                proptest::option::of(0..2000_u32), proptest::option::of(0..2000_u32), proptest::option::of(0..50_u32),
            ), 1..6),
        ) {
            let entries: Vec<Entry> = calls
                .iter()
                .zip(1_u128..)
                .map(|((tenant, day, input), id)| call(id, ["a", "b"][usize::from(*tenant)], *day, *input))
                .collect();
            let told: Vec<Told> = told.into_iter().map(|((who, day), (i, o, r))| (who, day, i, o, r)).collect();
            let rows: Vec<Value> = told.iter().filter(|(.., i, o, r)| i.is_some() || o.is_some() || r.is_some()).map(|(who, day, input, output, requests)| {
                // An upstream's row would count a tenant's too: one kind alone, by days.
                let (tenant, upstream, model) = [("a", "", "here"), ("b", "", "here"), ("a", "", "other")][usize::from(*who)];
                json!({"day": day_text(Day(20_513 + u32::from(*day))), "tenant": tenant, "upstream": upstream, "model": model,
                    "input": input, "output": output, "requests": requests})
            }).collect();
            let order = json!({"rows": rows});
            wait(async {
                let world = World::new(&entries).await;
                let first = world.post(&order).await.unwrap();
                let (totals, balances) = (world.totals().await, world.balances().await);
                let scopes = ["a", "b"].map(|tenant| Scope { tenant: tenant.to_owned(), upstream: String::new() });
                let ours = ours(&totals, &BTreeSet::from(scopes));
                let mut moved = 0;
                for (row, done) in rows.iter().zip(first["rows"].as_array().unwrap()) {
                    let text = |name: &str| row[name].as_str().unwrap().to_owned();
                    let scope = Scope { tenant: text("tenant"), upstream: String::new() };
                    let key = Key { day: day(&text("day")).unwrap(), scope, model: text("model") };
                    let has = ours.get(&key).copied().unwrap_or_default();
                    for (name, amount) in [("input", has.part("input")), ("output", has.part("output")), ("requests", has.requests)] {
                        if let Some(told) = row[name].as_i64() {
                            assert_eq!(amount, i128::from(told), "{name} of {row}");
                        }
                    }
                    if key.scope.tenant == "a" {
                        moved += done["difference"]["input"].as_i64().unwrap() + done["difference"]["output"].as_i64().unwrap();
                    }
                }
                assert_eq!(balances.iter().find(|(name, _)| name == "used").unwrap().1, moved);
                let second = world.post(&order).await.unwrap();
                assert!(!posted(&second, "rows").contains(&true));
                assert_eq!((world.totals().await, world.balances().await), (totals, balances));
            });
        }
    }

    /// A file that is corrected later is another round; one that broke off before its entry is taken up.
    #[test]
    fn later_figures_are_another_round() {
        wait(async {
            let world = World::new(&[call(1, "a", 0, 100)]).await;
            let row = |cost: &str| json!({"rows": [{"day": "2026-03-01", "tenant": "a", "upstream": "u", "model": "there", "requests": 3, "cost": cost}]});
            let first = world.post(&row("1.5")).await.unwrap();
            assert_eq!(first["rows"][0]["difference"]["cost"], "1.4999");
            let quotas = |cost: i64, requests: i64, used: i64| {
                vec![("cost".to_owned(), cost), ("of here".to_owned(), requests), ("used".to_owned(), used)]
            };
            assert_eq!(world.balances().await, quotas(1_499_900_000, 2, 0));
            let second = world.post(&row("1")).await.unwrap();
            assert_eq!(
                (posted(&second, "rows"), &second["rows"][0]["difference"]["cost"]),
                (vec![true], &json!("-0.5"))
            );
            assert_ne!(first["rows"][0]["id"], second["rows"][0]["id"]);
            assert_eq!(world.balances().await, quotas(999_900_000, 2, 0));
            // What was posted is of the day of the calls, and of their pool.
            let totals = world.totals().await;
            let of: Vec<(u32, &str, &str, i64, i64)> =
                totals.iter().map(|t| (t.day.0, &*t.pool, &*t.model, t.requests, t.cost_nano)).collect();
            assert_eq!(of, [(20_513, "u/there", "here", 3, 1_000_000_000)]);
        });
    }

    /// What an upstream bills and no tenant is known for is a row without one; nobody's quota moves.
    #[test]
    fn an_upstreams_row_charges_no_tenant() {
        wait(async {
            let world = World::new(&[call(1, "a", 0, 100)]).await;
            let order =
                json!({"rows": [{"day": "2026-03-01", "upstream": "u", "model": "there", "input": 150}]});
            assert_eq!(posted(&world.post(&order).await.unwrap(), "rows"), [true]);
            assert_eq!(posted(&world.post(&order).await.unwrap(), "rows"), [false]);
            assert!(world.balances().await.iter().all(|(_, posted)| *posted == 0));
            let totals = world.totals().await;
            let of: Vec<(&str, &str, i64)> =
                totals.iter().map(|t| (&*t.tenant, &*t.model, t.usage.input)).collect();
            assert_eq!(of, [("", "here", 50), ("a", "here", 100)]);
        });
    }

    /// L8: what an unbooked attempt is missing is posted once, to the day and the quotas of its call.
    #[test]
    fn l8_an_unbooked_attempt_is_posted_once() {
        wait(async {
            let expired = Entry { origin: Origin::Expired, ..call(7, "a", 0, 30) };
            let unbooked =
                Entry { origin: Origin::Unbooked, seq: u16::MAX, admitted_at: 0, ..call(7, "a", 2, 100) };
            let lost = Entry { reservation: ReservationId(8), ..unbooked.clone() };
            let world = World::new(&[expired, unbooked, lost]).await;
            let named =
                |id: u128| json!({"reservation": format!("{id:032x}"), "attempt": 0, "side": "tenant"});
            let order = json!({"unbooked": [named(7), named(8)]});
            assert_eq!(posted(&world.post(&order).await.unwrap(), "unbooked"), [true, true]);
            let used =
                |balances: Vec<(String, i64)>| balances.iter().map(|(_, posted)| *posted).collect::<Vec<_>>();
            // (100 + 33) − (30 + 10), and the whole of the other, with its request.
            let want = vec![70_000 + 100_000, 1, 93 + 133];
            assert_eq!(used(world.balances().await), want);
            assert_eq!(posted(&world.post(&order).await.unwrap(), "unbooked"), [false, false]);
            assert_eq!(used(world.balances().await), want);
            let totals = world.totals().await;
            let of: Vec<(u32, i64, i64)> =
                totals.iter().map(|t| (t.day.0, t.requests, t.usage.input)).collect();
            assert_eq!(of, [(20_513, 1, 100), (20_515, 1, 100)]);
            let order = json!({"unbooked": [named(9)]});
            assert_eq!(world.post(&order).await.unwrap_err().status(), StatusCode::NOT_FOUND);
        });
    }

    #[test]
    fn a_wrong_order_posts_nothing() {
        wait(async {
            let world = World::new(&[call(1, "a", 0, 100)]).await;
            let before = world.totals().await;
            let good = json!({"day": "2026-03-01", "tenant": "a", "model": "here", "input": 1});
            let many = vec![good.clone(); ORDER_MAX + 1];
            let long = "x".repeat(NAME_MAX + 1);
            for (rows, want) in [
                (json!([good, {"day": "2026-03-11", "tenant": "a", "model": "here", "input": 1}]), 400),
                (json!([good, {"day": "2026-03-10", "tenant": "a", "model": "here", "input": 1}]), 400),
                (json!([good, good]), 400),
                (json!(many), 400),
                (
                    json!([good, {"day": "2026-03-01T00:00:00Z", "tenant": "a", "model": "here", "input": 1}]),
                    400,
                ),
                (json!([good, {"day": "2026-03-01", "model": "here", "input": 1}]), 400),
                (json!([good, {"day": "2026-03-01", "tenant": "a", "model": "", "input": 1}]), 400),
                (json!([good, {"day": "2026-03-01", "tenant": "a", "model": "m"}]), 400),
                (json!([good, {"day": "2026-03-01", "tenant": "a", "model": long, "input": 1}]), 400),
                (json!([good, {"day": "2026-03-01", "tenant": "a", "model": "m", "cost": "-1"}]), 400),
                (
                    json!([good, {"day": "2026-03-01", "tenant": "a", "model": "m", "input": AMOUNT_MAX + 1}]),
                    400,
                ),
                (json!([good, {"day": "2026-03-01", "tenant": "nobody", "model": "here", "input": 1}]), 404),
                (
                    json!([good, {"day": "2026-03-01", "upstream": "nobody", "model": "here", "input": 1}]),
                    404,
                ),
            ] {
                let refused = world.post(&json!({"rows": rows})).await.unwrap_err();
                assert_eq!(refused.status().as_u16(), want, "{rows}: {refused:?}");
            }
            assert_eq!(world.totals().await, before);
            let most = json!({"day": "2026-03-01", "tenant": "a", "model": "here", "input": AMOUNT_MAX});
            assert_eq!(posted(&world.post(&json!({"rows": [most]})).await.unwrap(), "rows"), [true]);
        });
    }
}
