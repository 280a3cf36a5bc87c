//! What providers counted beside what the journal has, by day, whose it is, and model.
//!
//! Invariants: a file is read whole or refused with its lines at fault; numbers are exact, cost is nano-currency; an
//! amount is compared only where the files tell it, and a row that one side alone has is a difference.

mod columns;
pub(crate) mod daily;
pub(crate) mod files;
pub(crate) mod post;
pub(crate) mod quotas;
mod rows;
pub(crate) mod unbooked;

use std::collections::{BTreeMap, BTreeSet};

use tollbook_store::{Day, Total};

use crate::report::Sums;

pub(crate) use columns::{Columns, Whose, read};

/// Decimal places of a tolerance in percent.
pub(crate) const PERCENT_PLACES: u32 = 3;
/// What is compared, in the order it is shown.
pub(crate) const MEASURES: [&str; 5] = ["requests", "input", "cached", "output", "cost"];
const INPUT: usize = 1;
const OUTPUT: usize = 3;
pub(crate) const COST: usize = 4;

/// Whose calls a row is about: a tenant's, those of one upstream account, or the one's with the other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Scope {
    /// Empty: all.
    pub(crate) tenant: String,
    /// Empty: all.
    pub(crate) upstream: String,
}

/// What a row is about. The model is the one the upstream knows where the scope names an upstream, else the configured.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) day: Day,
    pub(crate) scope: Scope,
    pub(crate) model: String,
}

/// What somebody counted, by [`MEASURES`]; `None` where they do not tell.
pub(crate) type Amounts = [Option<u128>; MEASURES.len()];

pub(crate) type Usage = BTreeMap<Key, Amounts>;

pub(crate) type Ours = BTreeMap<Key, Sums>;

/// One amount of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) key: Key,
    pub(crate) measure: &'static str,
    /// `None`: the files have no such row.
    pub(crate) provider: Option<u128>,
    /// `None`: the journal has no such call.
    pub(crate) journal: Option<i128>,
    /// It counts as a difference.
    pub(crate) above: bool,
}

/// What a comparison found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    pub(crate) lines: Vec<Line>,
    /// By [`MEASURES`]: what differs, and what the provider counted.
    sums: [(u128, u128); MEASURES.len()],
}

pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (sum, more) in sum.iter_mut().zip(more) {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or(0).saturating_add(*more));
        }
    }
}

/// What the journal's totals have for the scopes that are asked about.
pub(crate) fn ours(totals: &[Total], scopes: &BTreeSet<Scope>) -> Ours {
    let mut ours = Ours::new();
    for total in totals {
        let (upstream, there) = total.pool.split_once('/').unwrap_or((&total.pool, &total.model));
        // What was posted for an upstream as a whole has no tenant, what was posted for a tenant may have no pool.
        let names = BTreeSet::from([(&*total.tenant, ""), ("", upstream), (&*total.tenant, upstream)]);
        for (tenant, upstream) in names {
            let scope = Scope { tenant: tenant.to_owned(), upstream: upstream.to_owned() };
            let model = if scope.upstream.is_empty() { &*total.model } else { there };
            if scopes.contains(&scope) {
                let key = Key { day: total.day, scope, model: model.to_owned() };
                ours.entry(key).or_default().add(&Sums::of_total(total));
            }
        }
    }
    ours
}

/// Gives the provider's models our names: those that are told, the same name, or the same but for a date at the end.
pub(crate) fn renamed(usage: Usage, ours: &Ours, told: &BTreeMap<String, String>) -> Usage {
    let mut names: BTreeMap<&Scope, BTreeSet<&str>> = BTreeMap::new();
    for key in ours.keys() {
        names.entry(&key.scope).or_default().insert(&key.model);
    }
    let mut renamed = Usage::new();
    for (key, amounts) in usage {
        let model = key.model.as_str();
        let of = names.get(&key.scope);
        let same = || {
            let mut own = of?.iter();
            own.find(|own| **own == undated(model) || undated(own) == model).copied()
        };
        let exact = || of.and_then(|of| of.get(model).copied());
        let known = told.get(model).map(String::as_str).or_else(exact).or_else(same);
        let name = known.unwrap_or(model).to_owned();
        add(renamed.entry(Key { model: name, ..key }).or_default(), &amounts);
    }
    renamed
}

/// Without `-20250514`, `-2025-05-14` or `@20250514` at the end.
fn undated(model: &str) -> &str {
    let digits =
        |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((head, tail)) = model.rsplit_once(['-', '@'])
        && digits(tail, 8)
    {
        return head;
    }
    let mut parts = model.rsplitn(4, '-');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(day), Some(month), Some(year), Some(head))
            if digits(day, 2) && digits(month, 2) && digits(year, 4) =>
        {
            head
        }
        _ => model,
    }
}

fn amount(sums: &Sums, measure: &str) -> i128 {
    match measure {
        "requests" => sums.requests,
        "cost" => sums.cost_nano,
        part => sums.part(part),
    }
}

/// Every amount that the provider tells, beside ours; `tolerance` in thousandths of a percent of the provider's.
pub(crate) fn compare(provider: &Usage, ours: &Ours, tolerance: u64) -> Found {
    let mut found = Found::default();
    // A row that only we have is compared in what the files tell at all.
    let told = |at: usize| provider.values().any(|amounts| amounts.get(at).is_some_and(Option::is_some));
    let measures: Vec<(usize, &str)> = MEASURES.into_iter().enumerate().filter(|(at, _)| told(*at)).collect();
    let keys: BTreeSet<&Key> = provider.keys().chain(ours.keys()).collect();
    for key in keys {
        let (theirs, own) = (provider.get(key), ours.get(key));
        for &(at, measure) in &measures {
            let counted = theirs.map(|theirs| theirs.get(at).copied().flatten());
            // Another file has this row, without this measure.
            if counted == Some(None) {
                continue;
            }
            let counted = counted.flatten();
            let journal = own.map(|own| amount(own, measure));
            let (whole, has) = (counted.unwrap_or(0), journal.unwrap_or(0));
            let differs = has.abs_diff(i128::try_from(whole).unwrap_or(i128::MAX));
            let alone = (counted.is_none() || journal.is_none()) && differs > 0;
            let above =
                alone || differs.saturating_mul(100_000) > whole.saturating_mul(u128::from(tolerance));
            if let Some((sum, of)) = found.sums.get_mut(at) {
                *sum = sum.saturating_add(differs);
                *of = of.saturating_add(whole);
            }
            found.lines.push(Line { key: key.clone(), measure, provider: counted, journal, above });
        }
    }
    found
}

/// The error rate of some lines, as [`Found::error_millionths`] tells it of all.
pub(crate) fn error_millionths<'a>(lines: impl Iterator<Item = &'a Line>) -> Option<u128> {
    let mut sums = [(0, 0); MEASURES.len()];
    for line in lines {
        let at = MEASURES.iter().position(|measure| *measure == line.measure);
        if let Some((differs, of)) = at.and_then(|at| sums.get_mut(at)) {
            let counted = line.provider.unwrap_or(0);
            let journal = line.journal.unwrap_or(0);
            *differs =
                journal.abs_diff(i128::try_from(counted).unwrap_or(i128::MAX)).saturating_add(*differs);
            *of = counted.saturating_add(*of);
        }
    }
    rate(&sums)
}

fn rate(sums: &[(u128, u128); MEASURES.len()]) -> Option<u128> {
    let [_, input, _, output, cost] = *sums;
    let rate = |(differs, of): (u128, u128)| differs.saturating_mul(1_000_000).checked_div(of);
    rate((input.0.saturating_add(output.0), input.1.saturating_add(output.1))).or_else(|| rate(cost))
}

impl Found {
    pub(crate) fn above(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.above)
    }

    /// What differs of the provider's llm_tokens, in millionths; of its cost where it tells no llm_tokens. `None` where it
    /// counted neither.
    pub(crate) fn error_millionths(&self) -> Option<u128> {
        rate(&self.sums)
    }

    /// What the error rate is of.
    pub(crate) fn error_of(&self) -> &'static str {
        let counted = [INPUT, OUTPUT].iter().any(|at| self.sums.get(*at).is_some_and(|(_, of)| *of > 0));
        if counted { "llm_tokens" } else { "cost" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollbook_store::{Name, Side};

    fn key(day: u32, tenant: &str, upstream: &str, model: &str) -> Key {
        let scope = Scope { tenant: tenant.to_owned(), upstream: upstream.to_owned() };
        Key { day: Day(day), scope, model: model.to_owned() }
    }

    fn input(amount: i128) -> Sums {
        let mut sums = Sums::default();
        sums.parts[0] = amount;
        sums
    }

    #[test]
    fn dates_at_the_end_of_names() {
        for (model, want) in [
            ("gpt-4o-2024-08-06", "gpt-4o"),
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
            ("claude-sonnet-4@20250514", "claude-sonnet-4"),
            ("gpt-4o", "gpt-4o"),
            ("gpt-4-0613", "gpt-4-0613"),
            ("2024-08-06", "2024-08-06"),
        ] {
            assert_eq!(undated(model), want);
        }
    }

    #[test]
    fn the_exact_name_comes_before_one_without_a_date() {
        let dated = key(1, "", "u", "m-20250101");
        let usage = Usage::from([(dated.clone(), [Some(1); 5]), (key(1, "", "u", "M"), [Some(2); 5])]);
        let told = BTreeMap::from([("M".to_owned(), "m".to_owned())]);
        let one = Ours::from([(key(2, "", "u", "m"), Sums::default())]);
        assert_eq!(renamed(usage.clone(), &one, &told), Usage::from([(key(1, "", "u", "m"), [Some(3); 5])]));
        let both = Ours::from([(key(2, "", "u", "m"), Sums::default()), (dated.clone(), Sums::default())]);
        let found = renamed(usage.clone(), &both, &told);
        assert_eq!((found.len(), found[&dated]), (2, [Some(1); 5]));
        // Another upstream's names are not this one's.
        let other = Ours::from([(key(1, "", "v", "m"), Sums::default())]);
        assert!(renamed(usage, &other, &told).contains_key(&dated));
    }

    /// At exactly the tolerance nothing is told, one more is.
    #[test]
    fn the_tolerance_is_a_share_of_what_the_provider_counted() {
        let key = key(1, "", "u", "m");
        let provider = Usage::from([(key.clone(), [None, Some(1000), None, None, None])]);
        for (journal, above) in
            [(1050, false), (950, false), (1051, true), (949, true), (0, true), (-1, true)]
        {
            let found = compare(&provider, &Ours::from([(key.clone(), input(journal))]), 5_000);
            assert_eq!((found.lines.len(), found.above().count() == 1), (1, above), "{journal}");
        }
    }

    /// However large the tolerance, a row of one side alone is a difference, unless it is of nothing.
    #[test]
    fn missing_on_one_side_is_a_difference() {
        let key = key(1, "", "u", "m");
        let provider = Usage::from([(key.clone(), [None, Some(1000), None, None, None])]);
        let found = compare(&provider, &Ours::new(), 100_000);
        assert_eq!((found.above().count(), found.error_millionths()), (1, Some(1_000_000)));
        let other = Key { day: Day(2), ..key.clone() };
        let both = Ours::from([(key.clone(), input(1000)), (other.clone(), input(1))]);
        let found = compare(&provider, &both, 100_000);
        let above: Vec<&Line> = found.above().collect();
        assert_eq!((above.len(), &above[0].key, above[0].provider), (1, &other, None));
        let nothing = Ours::from([(key, input(1000)), (other, input(0))]);
        assert_eq!(compare(&provider, &nothing, 0).above().count(), 0);
        assert_eq!(compare(&Usage::new(), &both, 0).lines, []);
    }

    #[test]
    fn totals_count_for_every_scope_that_is_asked_about() {
        let total = |tenant: &str, pool: &str, model: &str| Total {
            day: Day(1),
            side: Side::Tenant,
            tenant: Name::from(tenant),
            pool: Name::from(pool),
            model: Name::from(model),
            entries: 1,
            requests: 1,
            usage: tollbook_store::Usage::default(),
            cost_nano: 0,
        };
        let totals =
            [total("a", "u/there", "here"), total("b", "u/there", "here"), total("a", "v/x/y", "other")];
        let asked = [("a", ""), ("", "u"), ("a", "u"), ("", "v")];
        let scopes = asked
            .map(|(tenant, upstream)| Scope { tenant: tenant.to_owned(), upstream: upstream.to_owned() });
        let found = ours(&totals, &BTreeSet::from(scopes));
        let requests: Vec<(&Key, i128)> = found.iter().map(|(key, sums)| (key, sums.requests)).collect();
        let want = [
            key(1, "", "u", "there"),
            key(1, "", "v", "x/y"),
            key(1, "a", "", "here"),
            key(1, "a", "", "other"),
            key(1, "a", "u", "there"),
        ];
        let counts = [2, 1, 1, 1, 1];
        assert_eq!(requests, want.iter().zip(counts).collect::<Vec<_>>());
    }

    #[test]
    fn the_error_rate_is_of_llm_tokens_or_else_of_cost() {
        let key = key(1, "", "u", "m");
        let mut own = input(90);
        own.cost_nano = 50;
        let ours = Ours::from([(key.clone(), own)]);
        let rate = |amounts: Amounts| {
            let found = compare(&Usage::from([(key.clone(), amounts)]), &ours, 0);
            assert_eq!(error_millionths(found.lines.iter()), found.error_millionths());
            (found.error_of(), found.error_millionths())
        };
        assert_eq!(rate([None, Some(100), None, None, Some(100)]), ("llm_tokens", Some(100_000)));
        assert_eq!(rate([None, None, None, None, Some(100)]), ("cost", Some(500_000)));
        assert_eq!(rate([Some(1), None, None, None, None]), ("cost", None));
    }
}
