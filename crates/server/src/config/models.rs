//! What models cost, how they count and where they are served.

use std::collections::BTreeMap;

use tollbook_admission::{CountMode, Counting, ModelPlan, Target};
use tollbook_pricing::{
    Family, Framing, ModelFacts, Price, PriceBook, PriceDraft, PriceUnit, RatesDraft, Vocabulary,
};
use tollbook_wire::{Dialect, Surface, Surfaces};

use super::catalog::pool_id;
use super::file::{self, File};
use super::mistakes::Mistakes;
use super::tokenizers::Tokenizers;
use super::values::Decimal;

/// All prices. Their version is made of the prices themselves, so that the same prices are the same version.
pub(super) fn prices(mistakes: &mut Mistakes, file: &File) -> PriceBook {
    let mut models = BTreeMap::new();
    for (index, model) in file.models.iter().enumerate() {
        let path = format!("models[{index}].price");
        let price = model.price.as_ref().and_then(|given| price(mistakes, &path, given));
        models.extend(price.map(|price| (model.name.clone(), price)));
    }
    let default = file.default_price.as_ref().and_then(|given| price(mistakes, "default_price", given));
    let mut book = PriceBook { version: 0, models, default };
    let digest = blake3::hash(format!("{book:?}").as_bytes());
    let (head, _) = digest.as_bytes().split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    // Positive in every store's signed integers.
    book.version = u64::from_le_bytes(*head) >> 1;
    book
}

fn price(mistakes: &mut Mistakes, path: &str, given: &file::Price) -> Option<Price> {
    let text = |decimal: &Option<Decimal>| decimal.as_ref().map(|decimal| decimal.0.clone());
    let step = |step: &file::PriceStep| {
        let rates = RatesDraft {
            input: text(&step.input),
            cache_read: text(&step.cached),
            cache_write_5m: text(&step.cache_write),
            cache_write_1h: text(&step.cache_write_1h),
            output: text(&step.output),
            reasoning: text(&step.reasoning),
            ..RatesDraft::default()
        };
        (step.above, rates)
    };
    let draft = PriceDraft {
        unit: match given.unit {
            file::PriceUnit::Million => PriceUnit::PerMillion,
            file::PriceUnit::One => PriceUnit::PerToken,
        },
        rates: RatesDraft {
            input: Some(given.input.0.clone()),
            cache_read: text(&given.cached),
            cache_write_5m: text(&given.cache_write),
            cache_write_1h: text(&given.cache_write_1h),
            audio_input: text(&given.audio_input),
            image_input: text(&given.image_input),
            output: Some(given.output.0.clone()),
            reasoning: text(&given.reasoning),
            audio_output: text(&given.audio_output),
        },
        steps: given.steps.iter().map(step).collect(),
        tiers: given.tiers.iter().map(|(name, multiplier)| (name.clone(), multiplier.0.clone())).collect(),
        web_search: text(&given.web_search),
        tools: given.tools.iter().map(|(name, fee)| (name.clone(), fee.0.clone())).collect(),
    };
    let problems = match Price::new(&draft) {
        Ok(price) => return Some(price),
        Err(problems) => problems,
    };
    for problem in problems {
        // The draft's names of fields, as the file writes them.
        let field = problem.field.strip_prefix("rates.").unwrap_or(&problem.field);
        let field = field.replace("cache_read", "cached").replace("cache_write_5m", "cache_write");
        mistakes.add(format!("{path}.{field}"), problem.kind.to_string());
    }
    None
}

/// How each model is served and counted.
pub(super) fn plans(
    mistakes: &mut Mistakes,
    file: &File,
    tokenizers: &mut Tokenizers<'_>,
) -> BTreeMap<String, ModelPlan> {
    let mut plans = BTreeMap::new();
    for (index, model) in file.models.iter().enumerate() {
        let path = format!("models[{index}]");
        let there = model.upstream_model.clone().unwrap_or_else(|| model.name.clone());
        let facts = facts(mistakes, &path, model, &there);
        let counting = counting(mistakes, &path, model, &facts, tokenizers);
        // An upstream that is not there was told of with the catalog.
        let Some(upstream) = file.upstreams.iter().find(|upstream| upstream.name == model.upstream) else {
            continue;
        };
        let target = Target { pool: pool_id(model), upstream: upstream.name.clone(), model: there };
        let surfaces = surfaces(mistakes, &format!("{path}.surfaces"), model, upstream);
        let dialect = dialect(upstream.dialect);
        let plan = ModelPlan { dialect, surfaces, targets: vec![target], facts, counting };
        plans.insert(model.name.clone(), plan);
    }
    plans
}

/// How a model's input is counted, and by what.
fn counting(
    mistakes: &mut Mistakes,
    path: &str,
    model: &file::Model,
    facts: &ModelFacts,
    tokenizers: &mut Tokenizers<'_>,
) -> Counting {
    let mode = match model.input_count {
        file::InputCount::Exact => CountMode::Exact,
        file::InputCount::Learned => CountMode::Learned,
        file::InputCount::Auto => CountMode::Auto,
    };
    let named = model.tokenizer.as_deref();
    let file = named.and_then(|file| tokenizers.take(mistakes, &format!("{path}.tokenizer"), file));
    if mode == CountMode::Exact && named.is_none() && Vocabulary::of(facts.family).is_none() {
        mistakes.add_with_help(
            format!("{path}.input_count"),
            "`exact` needs a tokenizer, and none is built in for the model's vocabulary",
            "name a tokenizer.json in `tokenizer`, or take `auto` or `learned`",
        );
    }
    Counting { mode, file }
}

/// What a model is served on. Of an upstream's own list, what is wrong is told with the upstream.
fn surfaces(mistakes: &mut Mistakes, path: &str, model: &file::Model, upstream: &file::Upstream) -> Surfaces {
    let all = Surfaces::of(dialect(upstream.dialect));
    let of = |given: &[file::Surface]| given.iter().copied().map(surface).collect::<Surfaces>();
    let served = upstream.surfaces.as_deref().map_or(all, of);
    let Some(given) = model.surfaces.as_deref() else { return served };
    if given.is_empty() {
        mistakes.add(path, "must not be empty");
    }
    for (index, name) in given.iter().copied().map(surface).enumerate() {
        if !served.contains(name) {
            let (word, upstream) = (name.word(), &upstream.name);
            mistakes.add(format!("{path}[{index}]"), format!("`{upstream}` does not serve `{word}`"));
        }
    }
    of(given)
}

pub(super) fn surface(given: file::Surface) -> Surface {
    match given {
        file::Surface::Chat => Surface::Chat,
        file::Surface::Responses => Surface::Responses,
        file::Surface::Completions => Surface::Completions,
        file::Surface::Embeddings => Surface::Embeddings,
        file::Surface::Messages => Surface::Messages,
    }
}

pub(super) fn dialect(given: file::Dialect) -> Dialect {
    match given {
        file::Dialect::Openai => Dialect::OpenAi,
        file::Dialect::Anthropic => Dialect::Anthropic,
    }
}

fn facts(mistakes: &mut Mistakes, path: &str, model: &file::Model, there: &str) -> ModelFacts {
    let mut facts = match model.vocabulary {
        None => ModelFacts::guessed(there),
        Some(file::Vocabulary::O200k) => ModelFacts::of(Family::O200k),
        Some(file::Vocabulary::Cl100k) => ModelFacts::of(Family::Cl100k),
        Some(file::Vocabulary::Claude) => ModelFacts::of(Family::Claude),
        Some(file::Vocabulary::ClaudeNew) => ModelFacts::of(Family::ClaudeNew),
        Some(file::Vocabulary::Qwen) => ModelFacts::of(Family::Qwen),
        Some(file::Vocabulary::Deepseek) => ModelFacts::of(Family::DeepSeek),
        Some(file::Vocabulary::Unknown) => ModelFacts::of(Family::Unknown),
    };
    facts.framing = tollbook_pricing::framing(there, facts.family);
    if let Some(given) = &model.framing {
        let Framing { per_request, per_message, per_name, .. } = facts.framing;
        facts.framing.per_request = given.per_request.unwrap_or(per_request);
        facts.framing.per_message = given.per_message.unwrap_or(per_message);
        facts.framing.per_name = given.per_name.unwrap_or(per_name);
        facts.framing_known = true;
    }
    facts.context = model.context;
    facts.image_unknown = model.image_unknown;
    facts.stored_input = model.stored_input.unwrap_or(facts.stored_input);
    facts.output_max = model.output.max;
    facts.output_cap = model.output.cap;
    facts.output_default = model.output.default.unwrap_or(facts.output_default);
    facts.first_output = model.output.first.unwrap_or(facts.first_output);
    for field in facts.problems() {
        let field = match field {
            "output_max" => "output.max",
            "output_cap" => "output.cap",
            "output_default" => "output.default",
            "first_output" => "output.first",
            "per_request" => "framing.per_request",
            "per_message" => "framing.per_message",
            "per_name" => "framing.per_name",
            other => other,
        };
        let least = u32::from(!field.starts_with("framing"));
        let most = tollbook_pricing::FACT_MAX;
        mistakes.add(format!("{path}.{field}"), format!("must be from {least} to {most}"));
    }
    facts
}
