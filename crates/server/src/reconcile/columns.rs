//! Which columns of a file mean what, and what its rows come to.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, date};
use jiff::tz::TimeZone;
use tollbook_pricing::{DecimalError, parse_scaled};
use tollbook_store::Day;

use super::rows::{problem, rows};
use super::{Amounts, COST, Key, MEASURES, Scope, Usage, add};
use crate::config::Report;

/// Decimal places of a number with an exponent that are looked at.
const PLACES_MAX: u32 = 18;
/// Nano-currency.
pub(super) const UNITS: u32 = 9;
/// … of an amount in hundredths.
const CENTS: u32 = 7;
const DAY_S: i64 = 86_400;

/// Which columns of a file tell what. Of the words the first that a row has counts; an amount is the sum of those that it
/// has. A part of a JSON object is named with a dot before it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) name: &'static str,
    day: Vec<String>,
    /// Where the row's time ends.
    end: Vec<String>,
    tenant: Vec<String>,
    pool: Vec<String>,
    model: Vec<String>,
    currency: Vec<String>,
    /// By [`MEASURES`].
    amounts: [Vec<String>; MEASURES.len()],
    /// Decimal places from the cost's unit to nano-currency.
    cost_places: u32,
    /// Known, and of no use here.
    unused: Vec<String>,
}

/// Whose calls rows are that do not say so.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Whose {
    pub(crate) tenant: Option<String>,
    pub(crate) upstream: Option<String>,
}

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) usage: Usage,
    /// Columns that nobody looked at.
    pub(crate) unknown: Vec<String>,
    pub(crate) currencies: BTreeSet<String>,
    /// It is a page, and says that another one follows.
    pub(crate) goes_on: bool,
    pub(crate) format: &'static str,
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Columns {
    /// Tollbook's own.
    fn own() -> Self {
        Self {
            name: "tollbook",
            day: texts(&["date", "day"]),
            tenant: texts(&["tenant"]),
            pool: texts(&["pool", "upstream"]),
            model: texts(&["model"]),
            currency: texts(&["currency"]),
            amounts: MEASURES.map(|measure| texts(&[measure])),
            cost_places: UNITS,
            ..Self::default()
        }
    }

    /// The usage and cost APIs of OpenAI, and the exports of its console.
    fn openai() -> Self {
        Self {
            name: "openai",
            day: texts(&["start_time_iso", "start_time"]),
            end: texts(&["end_time_iso", "end_time"]),
            model: texts(&["model", "line_item"]),
            currency: texts(&["amount.currency", "amount_currency"]),
            amounts: [
                texts(&["num_model_requests"]),
                texts(&["input_tokens"]),
                texts(&["input_cached_tokens"]),
                texts(&["output_tokens"]),
                texts(&["amount.value", "amount_value"]),
            ],
            cost_places: UNITS,
            unused: texts(&[
                "object",
                "start_time",
                "end_time",
                "project_id",
                "project_name",
                "user_id",
                "user_email",
                "api_key_id",
                "api_key_name",
                "api_key_redacted",
                "organization_id",
                "organization_name",
                "batch",
                "service_tier",
                "line_item",
                "quantity",
                "input_uncached_tokens",
                "input_cache_write_tokens",
                "input_audio_tokens",
                "output_audio_tokens",
                "input_cached_audio_tokens",
                "input_text_tokens",
                "output_text_tokens",
                "input_cached_text_tokens",
                "input_image_tokens",
                "output_image_tokens",
                "input_cached_image_tokens",
            ]),
            ..Self::default()
        }
    }

    /// The usage and cost report APIs of Anthropic, and the exports of its console.
    fn anthropic() -> Self {
        Self {
            name: "anthropic",
            day: texts(&["usage_date_utc", "starting_at"]),
            end: texts(&["ending_at"]),
            model: texts(&["model_version", "model", "description"]),
            currency: texts(&["currency"]),
            amounts: [
                Vec::new(),
                texts(&[
                    "usage_input_tokens_no_cache",
                    "usage_input_tokens_cache_write_5m",
                    "usage_input_tokens_cache_write_1h",
                    "usage_input_tokens_cache_read",
                    "uncached_input_tokens",
                    "cache_creation.ephemeral_5m_input_tokens",
                    "cache_creation.ephemeral_1h_input_tokens",
                    "cache_read_input_tokens",
                ]),
                texts(&["usage_input_tokens_cache_read", "cache_read_input_tokens"]),
                texts(&["usage_output_tokens", "output_tokens"]),
                texts(&["amount"]),
            ],
            cost_places: CENTS,
            unused: texts(&[
                "api_key",
                "api_key_id",
                "workspace",
                "workspace_id",
                "usage_type",
                "context_window",
                "service_tier",
                "inference_geo",
                "web_search_count",
                "server_tool_use.web_search_requests",
                "cost_type",
                "description",
                "token_type",
                "model",
            ]),
            ..Self::default()
        }
    }

    /// Reads `day=COLUMN,model=COLUMN,input=COLUMN+COLUMN,…`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut columns = Self { name: "columns", cost_places: UNITS, ..Self::default() };
        for part in text.split(',') {
            let (name, of) = part.split_once('=').ok_or_else(|| format!("`{part}` is not as day=COLUMN"))?;
            let measure = MEASURES.iter().position(|measure| *measure == name);
            let place = match (name, measure.and_then(|at| columns.amounts.get_mut(at))) {
                ("day", _) => &mut columns.day,
                ("tenant", _) => &mut columns.tenant,
                ("pool", _) => &mut columns.pool,
                ("model", _) => &mut columns.model,
                ("currency", _) => &mut columns.currency,
                (_, Some(place)) => place,
                _ => {
                    let known = MEASURES.join(", ");
                    return Err(format!("`{name}` is none of day, tenant, pool, model, currency, {known}"));
                }
            };
            *place = of.split('+').map(str::to_owned).collect();
        }
        if columns.day.is_empty() || columns.model.is_empty() || columns.amounts.iter().all(Vec::is_empty) {
            return Err("day, model and something to compare must be named".to_owned());
        }
        Ok(columns)
    }

    /// The format that has a day where this row has one.
    fn of(row: &BTreeMap<String, String>) -> Option<Self> {
        let all = [Self::own(), Self::openai(), Self::anthropic()];
        all.into_iter().find(|columns| columns.day.iter().any(|name| row.contains_key(name)))
    }

    fn knows(&self, name: &str) -> bool {
        let words =
            [&self.day, &self.end, &self.tenant, &self.pool, &self.model, &self.currency, &self.unused];
        words.into_iter().chain(&self.amounts).flatten().any(|known| known == name)
    }
}

/// Reads a provider's file, CSV or JSON; `name` stands for it in messages. Without columns it is one of the known formats.
pub(crate) fn read(name: &str, text: &str, given: Option<&Columns>, whose: &Whose) -> Result<File, Report> {
    let read = rows(text).map_err(|problem| Report::new(name, vec![problem]))?;
    let refused = |line, what: &str| Report::new(name, vec![problem(line, what)]);
    let Some((line, first)) = read.rows.first() else { return Err(refused(1, "has no rows")) };
    let columns = match given {
        Some(columns) => columns.clone(),
        None => Columns::of(first).ok_or_else(|| {
            let what = "is in no known format: none of the columns date, day, start_time, usage_date_utc, \
                        starting_at; --columns tells what its columns are";
            refused(*line, what)
        })?,
    };
    let mut file = File { goes_on: read.goes_on, format: columns.name, ..File::default() };
    let mut unknown = BTreeSet::new();
    let mut problems = Vec::new();
    for (line, row) in &read.rows {
        unknown.extend(row.keys().filter(|name| !columns.knows(name)));
        // A bucket without results.
        if read.rows.len() > 1 && row.keys().all(|name| columns.is_of_buckets(name)) {
            continue;
        }
        match columns.one(row, whose) {
            Ok((key, amounts)) => add(file.usage.entry(key).or_default(), &amounts),
            Err(what) => problems.push(problem(*line, what)),
        }
        file.currencies
            .extend(columns.currency.iter().find_map(|name| row.get(name)).map(|c| c.to_uppercase()));
    }
    file.currencies.remove("");
    if file.currencies.len() > 1 {
        problems.push(problem(*line, "has amounts in several currencies"));
    }
    file.unknown = unknown.into_iter().cloned().collect();
    if problems.is_empty() { Ok(file) } else { Err(Report::new(name, problems)) }
}

impl Columns {
    fn is_of_buckets(&self, name: &str) -> bool {
        name == "object" || self.day.iter().chain(&self.end).any(|known| known == name)
    }

    fn one(&self, row: &BTreeMap<String, String>, whose: &Whose) -> Result<(Key, Amounts), String> {
        let first =
            |names: &[String]| names.iter().filter_map(|name| row.get(name)).find(|text| !text.is_empty());
        let needed =
            |names: &[String]| first(names).ok_or_else(|| format!("has no `{}`", names.join("` or `")));
        let written = needed(&self.day)?;
        let from = instant(written).ok_or_else(|| format!("`{written}` is no day"))?;
        if let Some(end) = first(&self.end) {
            let to = instant(end).ok_or_else(|| format!("`{end}` is no time"))?;
            if to.saturating_sub(from) > DAY_S {
                return Err("covers more than a day; ask for buckets of one day".to_owned());
            }
        }
        let day = Day(u32::try_from(from / DAY_S).map_err(|_| format!("`{written}` is no day"))?);
        let (scope, there) = self.scope(row, whose)?;
        // Lines of an invoice name the model and what of it.
        let model = needed(&self.model).map(|text| text.split(", ").next().unwrap_or(text));
        let model = there.map_or(model, Ok)?.to_owned();
        let mut amounts = Amounts::default();
        for (at, (sum, names)) in amounts.iter_mut().zip(&self.amounts).enumerate() {
            for (name, text) in names.iter().filter_map(|name| row.get(name).map(|text| (name, text))) {
                let places = (at == COST).then_some(self.cost_places);
                let amount = amount(text, places).map_err(|error| format!("{name}: `{text}` {error}"))?;
                *sum = Some(sum.unwrap_or(0).saturating_add(amount));
            }
        }
        if amounts.iter().all(Option::is_none) {
            let all: Vec<&str> = self.amounts.iter().flatten().map(String::as_str).collect();
            return Err(format!("has none of the columns {}", all.join(", ")));
        }
        Ok((Key { day, scope, model }, amounts))
    }

    /// Whose calls a row counts, and the model where a whole pool says it.
    fn scope<'a>(
        &self,
        row: &'a BTreeMap<String, String>,
        whose: &Whose,
    ) -> Result<(Scope, Option<&'a str>), String> {
        let first =
            |names: &[String]| names.iter().filter_map(|name| row.get(name)).find(|text| !text.is_empty());
        let pool = first(&self.pool);
        let (upstream, there) = match pool.map(|pool| pool.split_once('/').unwrap_or((pool, ""))) {
            Some((upstream, there)) => (Some(upstream.to_owned()), Some(there).filter(|t| !t.is_empty())),
            None => (whose.upstream.clone(), None),
        };
        let tenant = first(&self.tenant).cloned().or_else(|| whose.tenant.clone());
        let scope = Scope { tenant: tenant.unwrap_or_default(), upstream: upstream.unwrap_or_default() };
        if scope == Scope::default() {
            return Err("does not say whose calls these are; give --upstream or --tenant".to_owned());
        }
        Ok((scope, there))
    }
}

/// An empty field is 0. Cost becomes nano-currency; what is finer is cut.
pub(super) fn amount(text: &str, cost_places: Option<u32>) -> Result<u128, DecimalError> {
    let Some(places) = cost_places.filter(|_| !text.is_empty()) else {
        return if text.is_empty() { Ok(0) } else { parse_scaled(text, 0).map(u128::from) };
    };
    match parse_scaled(text, places) {
        Err(DecimalError::TooFine(_)) => {}
        other => return other.map(u128::from),
    }
    if let Some((whole, fraction)) = text.split_once('.')
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
    {
        let kept: String = fraction.chars().take(usize::try_from(places).unwrap_or(0)).collect();
        return parse_scaled(&format!("{whole}.{kept}"), places).map(u128::from);
    }
    let mut finer = places.saturating_add(1)..=PLACES_MAX;
    let found = finer.find_map(|more| {
        parse_scaled(text, more).ok().map(|scaled| scaled / 10_u64.saturating_pow(more - places))
    });
    found.map(u128::from).ok_or(DecimalError::TooFine(PLACES_MAX))
}

/// A UTC day as `2026-03-01`.
pub(super) fn day(text: &str) -> Option<Day> {
    let at = instant(text).filter(|_| text.len() == 10 && text.contains('-'))?;
    u32::try_from(at / DAY_S).ok().map(Day)
}

/// A date, a time or seconds since 1970, as seconds since 1970; without a zone it is UTC.
fn instant(text: &str) -> Option<i64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at.as_second());
    }
    if text.len() == 10 {
        let day: Date = text.parse().ok()?;
        let since = day.since((jiff::Unit::Day, date(1970, 1, 1))).ok()?;
        return Some(i64::from(since.get_days()).saturating_mul(DAY_S)).filter(|at| *at >= 0);
    }
    let at: DateTime = text.parse().ok()?;
    TimeZone::UTC.to_timestamp(at).ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_utc() {
        let day = |text: &str| instant(text).and_then(|at| u32::try_from(at / DAY_S).ok());
        for (text, want) in [
            ("2026-03-01", Some(20_513)),
            ("2026-03-01T23:59:59Z", Some(20_513)),
            ("2026-03-01T23:30:00-01:00", Some(20_514)),
            ("2026-03-01T00:30:00+01:00", Some(20_512)),
            ("2026-03-01T12:00:00", Some(20_513)),
            ("2026-03-01 12:00:00", Some(20_513)),
            ("1772323200", Some(20_513)),
            ("0", Some(0)),
            ("1969-12-31", None),
            ("2026-02-30", None),
            ("2026-03-01 or so", None),
            ("March", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(day(text), want, "{text}");
        }
    }

    #[test]
    fn amounts_are_exact() {
        for (text, places, want) in [
            ("", None, Ok(0)),
            ("12", None, Ok(12)),
            ("12.0", None, Ok(12)),
            ("12.5", None, Err(DecimalError::TooFine(0))),
            ("-1", None, Err(DecimalError::Negative)),
            ("1,000", None, Err(DecimalError::NotANumber)),
            ("", Some(9), Ok(0)),
            ("1.25", Some(9), Ok(1_250_000_000)),
            ("0.0000000019", Some(9), Ok(1)),
            ("123.45600000000000000001", Some(9), Ok(123_456_000_000)),
            ("1.5e-05", Some(9), Ok(15_000)),
            ("1.23456789e-05", Some(9), Ok(12_345)),
            ("123.78912", Some(7), Ok(1_237_891_200)),
            ("1.2.3", Some(9), Err(DecimalError::NotANumber)),
            ("0.1x", Some(9), Err(DecimalError::NotANumber)),
            ("nan", Some(9), Err(DecimalError::NotFinite)),
            ("-0.5", Some(9), Err(DecimalError::Negative)),
            ("99999999999999", Some(9), Err(DecimalError::TooLarge)),
        ] {
            assert_eq!(amount(text, places), want, "{text}");
        }
    }

    fn told(text: &str, whose: &Whose) -> Result<File, String> {
        read("f", text, None, whose).map_err(|report| report.to_string())
    }

    #[test]
    fn own_columns_say_whose_and_a_pool_names_its_model() {
        let text = "date,tenant,pool,model,cost,colour\n2026-03-01,a,,m,1.5,red\n2026-03-01,,u,m,1,\n\
                    2026-03-01,,u/x/y,,1,\n2026-03-01,a,u,m,1,\n2026-03-01,a,,m,0.5,\n";
        let file = told(text, &Whose::default()).unwrap();
        let keys: Vec<(&str, &str, &str, Option<u128>)> = file
            .usage
            .iter()
            .map(|(key, amounts)| (&*key.scope.tenant, &*key.scope.upstream, &*key.model, amounts[COST]))
            .collect();
        let nano = |tenths: u128| Some(tenths * 100_000_000);
        let want = [
            ("", "u", "m", nano(10)),
            ("", "u", "x/y", nano(10)),
            ("a", "", "m", nano(20)),
            ("a", "u", "m", nano(10)),
        ];
        assert_eq!(keys, want);
        assert_eq!((file.format, file.unknown.join(" ")), ("tollbook", "colour".to_owned()));
        let nobody = told("date,model,input\n2026-03-01,m,1\n", &Whose::default()).unwrap_err();
        assert!(nobody.contains("f:2:1: does not say whose"), "{nobody}");
        let whose = Whose { upstream: Some("u".to_owned()), tenant: None };
        assert_eq!(told("date,model,input\n2026-03-01,m,1\n", &whose).unwrap().usage.len(), 1);
    }

    /// OpenAI: https://platform.openai.com/docs/api-reference/usage. Empty buckets say nothing; an invoice's lines of one
    /// model are one row.
    #[test]
    fn pages_of_usage_and_of_costs() {
        let whose = Whose { upstream: Some("u".to_owned()), tenant: None };
        let page = r#"{"object": "page", "data": [
            {"object": "bucket", "start_time": 1772323200, "end_time": 1772409600, "results": [
              {"object": "organization.costs.result", "amount": {"value": 0.06, "currency": "usd"}, "line_item": "gpt-4o-2024-08-06, input", "project_id": null},
              {"object": "organization.costs.result", "amount": {"value": 1.5e-05, "currency": "usd"}, "line_item": "gpt-4o-2024-08-06, output", "project_id": null}]},
            {"object": "bucket", "start_time": 1772409600, "end_time": 1772496000, "results": []}], "has_more": false}"#;
        let file = told(page, &whose).unwrap();
        assert_eq!(file.usage.values().next().unwrap()[COST], Some(60_015_000));
        let told_of =
            (file.usage.len(), file.format, file.unknown.len(), file.currencies.first().map(String::as_str));
        assert_eq!(told_of, (1, "openai", 0, Some("USD")));
        let week = page.replace("1772409600, \"results\": [\n", "1772928000, \"results\": [\n");
        assert!(told(&week, &whose).unwrap_err().contains("more than a day"));
        let mixed = page.replacen("usd", "eur", 1);
        assert!(told(&mixed, &whose).unwrap_err().contains("several currencies"));
        // A report of cost counts cents.
        let cents = r#"{"data": [{"starting_at": "2026-03-01T00:00:00Z", "ending_at": "2026-03-02T00:00:00Z", "results": [
            {"currency": "USD", "amount": "123.78912", "model": "claude-opus-4", "cost_type": "tokens", "token_type": "output_tokens"}]}]}"#;
        assert_eq!(told(cents, &whose).unwrap().usage.values().next().unwrap()[COST], Some(1_237_891_200));
    }

    #[test]
    fn broken_rows_are_all_named() {
        let whose = Whose { upstream: Some("u".to_owned()), tenant: None };
        let text =
            "date,model,input\n2026-03-01,m,1\nMarch,m,1\n2026-03-01,,1\n2026-03-01,m,1.5\n2026-03-01,m,-1\n";
        let report = told(text, &whose).unwrap_err();
        let want = [
            "f:3:1: `March` is no day",
            "f:4:1: has no `model`",
            "f:5:1: input: `1.5` is finer",
            "f:6:1: input: `-1` must not be negative",
        ];
        for (line, want) in report.lines().zip(want) {
            assert!(line.starts_with(want), "{line}");
        }
        assert_eq!(report.lines().count(), 4);
        for (text, want) in [
            ("", "has no rows"),
            ("date,model,input\n", "has no rows"),
            ("model,input\nm,1\n", "is in no known format"),
            ("date,model,colour\n2026-03-01,m,red\n", "has none of the columns requests, input"),
        ] {
            assert!(told(text, &whose).unwrap_err().contains(want), "{text}");
        }
    }

    #[test]
    fn other_columns_are_told() {
        let columns = Columns::parse("day=Date,model=Meter,tenant=Who,input=In+Cached,cost=Usd").unwrap();
        let text = "Date,Meter,Who,In,Cached,Usd\n2026-03-01,m,a,1,2,0.1\n";
        let file = read("f", text, Some(&columns), &Whose::default()).unwrap();
        assert_eq!(file.usage.values().next().unwrap()[..2], [None, Some(3)]);
        for (text, want) in [
            ("day=a", "something to compare must be named"),
            ("colour=a", "`colour` is none of day, tenant"),
            ("day", "`day` is not as day=COLUMN"),
        ] {
            assert!(Columns::parse(text).unwrap_err().contains(want), "{text}");
        }
    }
}
