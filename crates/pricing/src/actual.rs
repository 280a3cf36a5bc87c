//! What a call used, as one finished amount per leg.

use crate::parts::Parts;
use crate::price::Price;
use tollbook_ledger::{AMOUNT_MAX, Receipt, Shape};
use tollbook_policy::{BoundAccount, Measure};
use tollbook_wire::Usage;

/// Amounts in the order of the bound accounts. Hold factors do not apply: this is the truth.
///
/// `price` and `tier` are those of the call: its book version, and the tier the upstream echoed, else the one asked for.
/// An account that counts cost posts 0 without a price; such a call was refused at the door.
pub fn actuals(bound: &[BoundAccount], usage: &Usage, price: Option<&Price>, tier: Option<&str>) -> Vec<u64> {
    let parts = Parts::of(usage);
    bound
        .iter()
        .map(|account| match account.measure {
            Measure::Requests => 1,
            Measure::Concurrency => 0,
            Measure::Tokens | Measure::InputTokens | Measure::OutputTokens => {
                let thousandths = parts.weighed(&account.meter.settle);
                u64::try_from(thousandths.div_ceil(1_000)).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX)
            }
            Measure::Cost => price.map_or(0, |price| price.cost(&parts, usage.web_searches, tier)),
        })
        .collect()
}

/// What a call is charged whose outcome is unknown: expected on rates, held on quotas.
pub fn unknown_actuals(bound: &[BoundAccount], receipt: &Receipt) -> Vec<u64> {
    bound
        .iter()
        .enumerate()
        .map(|(at, account)| match (account.measure, account.shape, receipt.legs.get(at)) {
            (Measure::Requests, ..) => 1,
            (Measure::Concurrency, ..) | (_, _, None) => 0,
            (_, Shape::Quota, Some(leg)) => leg.held,
            (_, Shape::Rate { .. } | Shape::Forecast { .. } | Shape::Concurrency, Some(leg)) => leg.expected,
        })
        .collect()
}
