//! Prices, limits and requests the tests start from.

use tollbook_policy::{
    BoundAccount, Call, Catalog, Draft, Key, LimitDraft, Measure, MeterPair, Model, PeriodKind, PeriodTable,
    Pool, Project, Scope, Secret, ShapeDraft, Subject, Tenant,
};
use tollbook_pricing::{Kinds, Price, PriceDraft, PriceUnit, RatesDraft};
use tollbook_wire::Usage;

/// Noon of a day long ago.
pub(crate) const NOW: u64 = 1_700_000_000;

#[allow(clippy::unnecessary_wraps, reason = "as a draft's fields want it")]
fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

/// Price list `fx-1` of the field cases: per llm_token, in nano-currency: input 2,000; output 10,000; cache read 200;
/// cache write 2,500 and 4,000; audio output 12,000; web search 10,000,000 per call.
pub(crate) fn fx1() -> PriceDraft {
    PriceDraft {
        unit: PriceUnit::PerToken,
        rates: RatesDraft {
            input: text("0.000002"),
            output: text("1e-5"),
            cache_read: text("2e-7"),
            cache_write_5m: text("2.5e-06"),
            cache_write_1h: text("4e-6"),
            audio_output: text("1.2e-5"),
            ..RatesDraft::default()
        },
        web_search: text("0.01"),
        ..PriceDraft::default()
    }
}

pub(crate) fn price(draft: &PriceDraft) -> Price {
    Price::new(draft).unwrap()
}

pub(crate) fn used(input: u64, output: u64) -> Usage {
    Usage { input, output, input_reported: true, output_reported: true, complete: true, ..Usage::default() }
}

/// An estimate that is all plain text.
pub(crate) fn kinds(ascii: u64) -> Kinds {
    Kinds { ascii, ..Kinds::default() }
}

pub(crate) fn acme() -> Scope {
    Scope::One(Subject::Tenant { tenant: "acme".to_owned() })
}

pub(crate) fn rate(measure: Measure, ceiling: i128) -> LimitDraft {
    let shape = ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: None };
    LimitDraft::new(acme(), measure, shape, ceiling)
}

pub(crate) fn daily(measure: Measure, ceiling: i128) -> LimitDraft {
    let shape = ShapeDraft::Quota { period: PeriodKind::Day, zone: None, anchor: None };
    LimitDraft::new(acme(), measure, shape, ceiling)
}

pub(crate) fn concurrency(ceiling: i128) -> LimitDraft {
    LimitDraft::new(acme(), Measure::Concurrency, ShapeDraft::Concurrency, ceiling)
}

/// What the limits bind, with the periods of their calendars.
pub(crate) fn bind(limits: Vec<LimitDraft>) -> (Vec<BoundAccount>, PeriodTable) {
    bind_at(limits, NOW)
}

/// The same at another second.
pub(crate) fn bind_at(limits: Vec<LimitDraft>, now: u64) -> (Vec<BoundAccount>, PeriodTable) {
    let named = |(at, limit): (usize, LimitDraft)| LimitDraft { name: Some(format!("l{at}")), ..limit };
    let acme = || "acme".to_owned();
    let catalog = Catalog::new(Draft {
        tenants: vec![Tenant { id: acme(), disabled: false }],
        projects: vec![Project { tenant: acme(), id: "web".to_owned(), disabled: false }],
        keys: vec![Key {
            tenant: acme(),
            project: "web".to_owned(),
            id: "k1".to_owned(),
            secrets: vec![Secret { digest: [1; 32], expires_at: None }],
            disabled: false,
            expires_at: None,
            models: None,
            addresses: None,
            service: None,
        }],
        services: Vec::new(),
        users: Vec::new(),
        pools: vec![Pool { id: "east".to_owned(), meter: MeterPair::PLAIN }],
        models: vec![Model { id: "base".to_owned(), aliases: Vec::new(), pools: vec!["east".to_owned()] }],
        limits: limits.into_iter().enumerate().map(named).collect(),
    })
    .unwrap();
    let key = catalog.key(&[1; 32]).unwrap();
    let binding = catalog.resolve(&Call { key, service: None, user: None, model: "base" }, now).unwrap();
    (binding.accounts, PeriodTable::new(catalog.calendars(), now))
}
