//! A configuration as an operator would write it, drawn from a seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollbook_admission::{ApiKeyHash, ModelPlan, Snapshot, Target};
use tollbook_engine_suite::random::Random;
use tollbook_policy::{
    Booking, Catalog, Draft, Hold, Key, LimitDraft, Measure, MeterPair, Model, PeriodKind, Pool, Project,
    Scope, Secret, ShapeDraft, Strictness, Subject, Tenant, Weights,
};
use tollbook_pricing::{ModelFacts, Price, PriceBook, PriceDraft, RatesDraft};
use tollbook_wire::{Dialect, Surfaces};

const TENANTS: u64 = 3;
pub(crate) const KEYS: u64 = 2;
const MODELS: u64 = 2;

/// Everything that does not change in a run; ceilings do.
#[derive(Debug)]
pub(crate) struct Plan {
    draft: Draft,
}

pub(crate) fn api_key(tenant: u64, key: u64) -> String {
    format!("tb_{tenant}_{key}")
}

pub(crate) fn model(number: u64) -> String {
    format!("model-{number}")
}

/// Some API key, and some model.
pub(crate) fn any_caller(random: &mut Random) -> (String, String) {
    (api_key(random.below(TENANTS), random.below(KEYS)), model(random.below(MODELS)))
}

impl Plan {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let hash = ApiKeyHash::new(None);
        let mut draft = Draft::default();
        for tenant in 0..TENANTS {
            let id = tenant_id(tenant);
            draft.tenants.push(Tenant { id: id.clone(), disabled: false });
            draft.projects.push(Project { tenant: id.clone(), id: "web".into(), disabled: false });
            draft.keys.extend((0..KEYS).map(|key| Key {
                tenant: id.clone(),
                project: "web".into(),
                id: format!("k{key}"),
                secrets: vec![Secret { digest: hash.digest(&api_key(tenant, key)), expires_at: None }],
                disabled: false,
                expires_at: None,
                models: None,
                addresses: None,
                service: None,
            }));
        }
        for number in 0..MODELS {
            draft.pools.push(Pool { id: pool_id(number), meter: MeterPair::PLAIN });
            draft.models.push(Model { id: model(number), aliases: Vec::new(), pools: vec![pool_id(number)] });
        }
        // A limit that can never apply is a mistake at load; this one is left out.
        for _ in 0..4 + random.below(12) {
            draft.limits.push(limit(random));
            if Catalog::new(draft.clone()).is_err() {
                draft.limits.pop();
            }
        }
        Self { draft }
    }

    /// Other ceilings over the same accounts.
    pub(crate) fn change(&mut self, random: &mut Random) {
        if self.draft.limits.is_empty() {
            return;
        }
        let at = usize::try_from(random.below(self.draft.limits.len() as u64)).unwrap_or(0);
        let limit = &mut self.draft.limits[at];
        let percent = i128::from(*random.of(&[0_u64, 50, 90, 110, 200]));
        limit.ceiling = limit.ceiling.map(|ceiling| ceiling * percent / 100 + 1);
    }

    pub(crate) fn snapshot(&self, generation: u64) -> Result<Arc<Snapshot>, String> {
        let catalog = Catalog::new(self.draft.clone()).map_err(|problems| format!("{problems:?}"))?;
        let models = (0..MODELS).map(|number| {
            let target = Target { pool: pool_id(number), upstream: "up".into(), model: model(number) };
            // A family without a vocabulary: nothing is counted exactly, so nothing has to be loaded.
            let facts =
                ModelFacts { output_default: 200, first_output: 40, ..ModelFacts::guessed("mistral") };
            (
                model(number),
                ModelPlan {
                    dialect: Dialect::OpenAi,
                    surfaces: Surfaces::of(Dialect::OpenAi),
                    targets: vec![target],
                    facts,
                    counting: tollbook_admission::Counting::default(),
                },
            )
        });
        let rates =
            RatesDraft { input: Some("2".into()), output: Some("10".into()), ..RatesDraft::default() };
        let price = Price::new(&PriceDraft { rates, ..PriceDraft::default() });
        let prices = PriceBook { version: 1, models: BTreeMap::new(), default: price.ok() };
        let hash = ApiKeyHash::new(None);
        Ok(Arc::new(Snapshot::new(generation, catalog, prices, models.collect::<BTreeMap<_, _>>(), hash)))
    }
}

fn tenant_id(number: u64) -> String {
    format!("tenant-{number}")
}

fn pool_id(number: u64) -> String {
    format!("pool-{number}")
}

fn limit(random: &mut Random) -> LimitDraft {
    let tenant = tenant_id(random.below(TENANTS));
    let key = format!("k{}", random.below(KEYS));
    let scope = match random.below(5) {
        0 | 1 => Subject::Tenant { tenant },
        2 => Subject::Project { tenant, project: "web".into() },
        3 => Subject::Key { tenant, project: "web".into(), key },
        _ => Subject::Pool { pool: pool_id(random.below(MODELS)) },
    };
    let measure = *random.of(&[
        Measure::Requests,
        Measure::Tokens,
        Measure::Tokens,
        Measure::InputTokens,
        Measure::OutputTokens,
        Measure::Cost,
        Measure::Concurrency,
    ]);
    let weights = *random.of(&[None, None, Some(Weights::Oldest), Some(Weights::Decay)]);
    let rate = ShapeDraft::Rate { window_s: *random.of(&[10, 60, 60, 300]), bucket_s: None, weights };
    let period = *random.of(&[
        PeriodKind::Minute,
        PeriodKind::Hour,
        PeriodKind::Day,
        PeriodKind::Month,
        PeriodKind::Lifetime,
    ]);
    let quota = ShapeDraft::Quota { period, zone: None, anchor: None };
    let shape = match measure {
        Measure::Concurrency => ShapeDraft::Concurrency,
        _ if random.one_in(2) => quota,
        _ => rate,
    };
    let calls = *random.of(&[2_u64, 6, 15, 40, 100]);
    let unit = match measure {
        Measure::Requests | Measure::Concurrency => 1,
        // Nano-currency: 400 llm_tokens at these prices.
        Measure::Cost => 2_500_000,
        _ => 400,
    };
    let mut draft = LimitDraft::new(Scope::One(scope), measure, shape, i128::from(calls * unit));
    draft.strictness = *random.of(&[None, None, Some(Strictness::Soft), Some(Strictness::Hard)]);
    draft.hold = *random.of(&[None, None, Some(Hold::Expected), Some(Hold::Worst)]);
    draft.shadow = random.one_in(8);
    draft.count_denied = random.one_in(10);
    // What nobody says anything of is booked by forecast where that can be.
    let rates = matches!(draft.shape, ShapeDraft::Rate { .. });
    let llm_tokens = matches!(measure, Measure::Tokens | Measure::InputTokens | Measure::OutputTokens);
    draft.booking = (rates && llm_tokens && random.one_in(3)).then_some(Booking::Held);
    draft.strict = (rates && llm_tokens && random.one_in(5)).then_some(true);
    draft
}
