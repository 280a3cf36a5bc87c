//! What calls were charged, summed by who, by what and by day.
//!
//! Invariants: every booked entry on the tenant's side is in exactly one row, corrections and adjustments included, and
//! counts for the UTC day of its call's admission; so the rows sum up to the journal's daily totals. Unbooked entries
//! are in no sum (L8). Where the totals tell all that is asked for, they alone are read.

use std::collections::BTreeMap;

use jiff::Span as Length;
use jiff::civil::{Date, date};
use tollbook_ledger::units::SECOND;
use tollbook_store::{
    Day, DayRange, Entry, EntryPlace, Journal, Name, PAGE_MAX, Side, Span, StoreError, Total, TotalsQuery,
    Usage, UsageSum,
};

/// What rows are made by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum By {
    Day,
    Tenant,
    Project,
    Key,
    Service,
    User,
    Model,
    Pool,
}

/// Which calls, and how they are summed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    pub by: Vec<By>,
    pub days: DayRange,
    /// Empty: all.
    pub tenant: Name,
    /// Empty: all.
    pub model: Name,
}

/// The sum of some calls. Wide enough for any number of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    pub requests: i128,
    /// In the order of [`PARTS`].
    pub parts: [i128; PARTS.len()],
    pub cost_nano: i128,
}

/// The parts of a usage. `input` contains those up to `cache_write_1h`, images and sound sent; `output` contains
/// `reasoning` and sound received.
pub const PARTS: [&str; 10] = [
    "input",
    "cached",
    "cache_write",
    "cache_write_1h",
    "image_input",
    "audio_input",
    "output",
    "reasoning",
    "audio_output",
    "web_searches",
];

/// Rows by what they are made by, in its order.
pub type Rows = BTreeMap<Vec<String>, Sums>;

impl By {
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Tenant => "tenant",
            Self::Project => "project",
            Self::Key => "key",
            Self::Service => "service",
            Self::User => "user",
            Self::Model => "model",
            Self::Pool => "pool",
        }
    }

    /// The daily totals know it.
    fn is_of_totals(self) -> bool {
        matches!(self, Self::Day | Self::Tenant | Self::Model | Self::Pool)
    }

    fn of_total(self, total: &Total) -> String {
        match self {
            Self::Day => day_text(total.day),
            Self::Tenant => total.tenant.to_string(),
            Self::Model => total.model.to_string(),
            Self::Pool => total.pool.to_string(),
            Self::Project | Self::Key | Self::Service | Self::User => String::new(),
        }
    }

    fn of_entry(self, entry: &Entry) -> String {
        let body = &entry.body;
        let name = match self {
            Self::Day => return day_text(entry.day()),
            Self::Tenant => &body.tenant,
            Self::Project => &body.project,
            Self::Key => &body.key,
            Self::Service => &body.service,
            Self::User => &body.user,
            Self::Model => &body.model_used,
            Self::Pool => &body.pool,
        };
        name.to_string()
    }
}

impl Sums {
    pub fn llm_tokens(&self) -> i128 {
        self.part("input") + self.part("output")
    }

    pub fn part(&self, name: &str) -> i128 {
        self.parts.iter().zip(PARTS).find(|(_, known)| *known == name).map_or(0, |(amount, _)| *amount)
    }

    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.cost_nano += other.cost_nano;
        for (sum, amount) in self.parts.iter_mut().zip(other.parts) {
            *sum += amount;
        }
    }

    pub(crate) fn of_total(total: &Total) -> Self {
        Self::of(total.requests, &total.usage, total.cost_nano)
    }

    /// As the journal tells the sum of a subject's calls; what it has no room for is cut.
    pub(crate) fn usage_sum(&self) -> UsageSum {
        let cut =
            |amount: i128| i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX });
        let part = |name| cut(self.part(name));
        let usage = Usage {
            input: part("input"),
            cached: part("cached"),
            cache_write: part("cache_write"),
            cache_write_1h: part("cache_write_1h"),
            output: part("output"),
            reasoning: part("reasoning"),
            audio_input: part("audio_input"),
            audio_output: part("audio_output"),
            image_input: part("image_input"),
            web_searches: part("web_searches"),
        };
        UsageSum { requests: cut(self.requests), usage, cost_nano: cut(self.cost_nano) }
    }

    fn of(requests: i64, usage: &Usage, cost_nano: i64) -> Self {
        let parts = [
            usage.input,
            usage.cached,
            usage.cache_write,
            usage.cache_write_1h,
            usage.image_input,
            usage.audio_input,
            usage.output,
            usage.reasoning,
            usage.audio_output,
            usage.web_searches,
        ];
        Self { requests: requests.into(), parts: parts.map(i128::from), cost_nano: cost_nano.into() }
    }
}

/// The rows that a query asks for.
pub async fn rows(journal: &dyn Journal, query: &Query) -> Result<Rows, StoreError> {
    if !query.reads_entries() {
        return of_totals(journal, query).await;
    }
    of_entries(journal, query).await
}

async fn of_totals(journal: &dyn Journal, query: &Query) -> Result<Rows, StoreError> {
    let asked = TotalsQuery {
        days: query.days,
        side: Side::Tenant,
        tenant: Name::clone(&query.tenant),
        pool: Name::default(),
        model: Name::clone(&query.model),
    };
    let mut rows = Rows::new();
    for total in journal.totals(&asked).await? {
        let key = query.by.iter().map(|by| by.of_total(&total)).collect();
        rows.entry(key).or_default().add(&Sums::of_total(&total));
    }
    Ok(rows)
}

/// All entries that can count for the days, page by page: a call ends after its admission, and may be corrected later.
async fn of_entries(journal: &dyn Journal, query: &Query) -> Result<Rows, StoreError> {
    const DAY: u64 = 86_400 * SECOND;
    // A day earlier, since the book's time may step back.
    let from = u64::from(query.days.from.0.saturating_sub(1)) * DAY;
    let mut rows = Rows::new();
    let mut place = Some(EntryPlace::default());
    while let Some(after) = place {
        let page = journal.entries(Span { from, to: u64::MAX }, after, PAGE_MAX).await?;
        for entry in page.entries.iter().filter(|entry| query.takes(entry)) {
            let key = query.by.iter().map(|by| by.of_entry(entry)).collect();
            let sums = Sums::of(entry.requests, &entry.body.usage, entry.body.cost_nano);
            rows.entry(key).or_default().add(&sums);
        }
        place = page.next;
    }
    Ok(rows)
}

impl Query {
    /// Daily totals do not tell it.
    pub fn reads_entries(&self) -> bool {
        !self.by.iter().all(|by| by.is_of_totals())
    }

    fn takes(&self, entry: &Entry) -> bool {
        let matches = |asked: &Name, name: &Name| asked.is_empty() || asked == name;
        entry.body.side == Side::Tenant
            && !entry.is_unbooked()
            && (self.days.from..=self.days.to).contains(&entry.day())
            && matches(&self.tenant, &entry.body.tenant)
            && matches(&self.model, &entry.body.model_used)
    }
}

/// As `2026-03-01`; nothing where no calendar has it.
pub fn day_text(day: Day) -> String {
    let after = Length::new().try_days(i64::from(day.0)).ok();
    let found: Option<Date> = after.and_then(|after| date(1970, 1, 1).checked_add(after).ok());
    found.map(|found| found.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;
    use proptest::prelude::*;
    use tollbook_ledger::ReservationId;
    use tollbook_store::{EntryBody, Origin};
    use tollbook_store_sql::SqlStore;

    #[test]
    fn days() {
        assert_eq!(day_text(Day(0)), "1970-01-01");
        assert_eq!(day_text(Day(20_513)), "2026-03-01");
        assert_eq!(day_text(Day(u32::MAX)), "");
    }

    type One = (u8, u8, u8, u64, u64, i64, u8, u64);

    /// Calls of few names, so that groups meet; some corrected, some unbooked, some on the pool's side.
    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        const DAY: u64 = 86_400 * SECOND;
        let one = (0..3_u8, 0..3_u8, 0..2_u8, 0..4_u64, 0..DAY, -50..1000_i64, 0..3_u8, 0..3_u64);
        proptest::collection::vec(one, 0..40).prop_map(|all| {
            let entry = |(id, one): (usize, One)| {
                let (tenant, key, model, day, time, amount, kind, late) = one;
                let named = |head: &str, n: u8| Name::from(format!("{head}{n}"));
                Entry {
                    reservation: ReservationId(u128::try_from(id / 2).unwrap()),
                    attempt: 0,
                    seq: u16::try_from(id % 2).unwrap(),
                    origin: if kind == 2 { Origin::Unbooked } else { Origin::Settled },
                    admitted_at: (100 + day) * DAY + time,
                    ended_at: (100 + day + late) * DAY + time,
                    requests: i64::from(id % 2 == 0),
                    posted: Vec::new(),
                    body: EntryBody {
                        side: if kind == 1 { Side::Pool } else { Side::Tenant },
                        tenant: named("t", tenant),
                        project: named("p", key / 2),
                        key: named("k", key),
                        user: if key == 0 { Name::default() } else { named("u", tenant) },
                        model_used: named("m", model),
                        pool: named("pool/", model),
                        usage: Usage {
                            input: amount,
                            cached: amount / 3,
                            output: amount * 2,
                            ..Usage::default()
                        },
                        cost_nano: amount.saturating_mul(7_000_000_000),
                        ..EntryBody::default()
                    },
                }
            };
            all.into_iter().enumerate().map(entry).collect()
        })
    }

    fn total(rows: &Rows) -> Sums {
        rows.values().fold(Sums::default(), |mut sum, row| {
            sum.add(row);
            sum
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// However calls are grouped, the rows are what a plain sum over the entries finds, and they add up to the
        /// daily totals.
        #[test]
        fn rows_are_the_journals_sums(all in entries(), from in 99..105_u32, length in 0..4_u32, by in proptest::sample::subsequence(By::value_variants().to_vec(), 1..5)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let days = DayRange { from: Day(from), to: Day(from + length) };
            let query = |by: &[By]| Query { by: by.to_vec(), days, tenant: Name::default(), model: Name::default() };
            let (rows, whole) = runtime.block_on(async {
                let store = SqlStore::open(&folder.path().join("j.sqlite")).await.unwrap();
                store.append(&all).await.unwrap();
                let found = rows(&store, &query(&by)).await.unwrap();
                let whole = rows(&store, &query(&[By::Day])).await.unwrap();
                store.close().await;
                (found, whole)
            });
            let mut plain = Rows::new();
            for entry in &all {
                let counts = entry.body.side == Side::Tenant && entry.origin != Origin::Unbooked;
                if counts && (from..=from + length).contains(&entry.day().0) {
                    let key = by.iter().map(|by| by.of_entry(entry)).collect();
                    plain.entry(key).or_default().add(&Sums::of(entry.requests, &entry.body.usage, entry.body.cost_nano));
                }
            }
            prop_assert_eq!(&rows, &plain);
            prop_assert_eq!(total(&rows), total(&whole));
        }
    }
}
