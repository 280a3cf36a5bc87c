//! What a price book says, as people and the store read it.
//!
//! Amounts are exact decimals, in the words of the configuration: of llm_tokens per million, of fees per call. Every part is
//! told, also where the configuration left it to follow from another.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use tollbook_pricing::{Price, PriceBook, Rates};
use tollbook_store::{PRICE_BOOK_MAX, PriceBooks, nano_text};

/// A part's name, and its rate.
type Part = (&'static str, fn(&Rates) -> u64);

/// The parts of a price in the words of the configuration.
const PARTS: [Part; 9] = [
    ("input", |rates| rates.input),
    ("cached", |rates| rates.cache_read),
    ("cache_write", |rates| rates.cache_write_5m),
    ("cache_write_1h", |rates| rates.cache_write_1h),
    ("output", |rates| rates.output),
    ("reasoning", |rates| rates.reasoning),
    ("audio_input", |rates| rates.audio_input),
    ("image_input", |rates| rates.image_input),
    ("audio_output", |rates| rates.audio_output),
];

/// Writes down what a book says, for those who ask when it is not in force any more.
pub(crate) async fn keep(store: &dyn PriceBooks, book: &PriceBook) -> anyhow::Result<()> {
    let document = document(book).to_string();
    if document.len() > PRICE_BOOK_MAX {
        let (version, bytes) = (book.version, document.len());
        tracing::warn!(
            version,
            bytes,
            "the price book is too large to be kept; its prices cannot be told later"
        );
        return Ok(());
    }
    store.price_book_keep(book.version, &document).await.context("cannot write down the price book")?;
    Ok(())
}

/// What a book's document says of a model.
pub(crate) fn of_model<'a>(book: &'a Value, model: &str) -> Option<&'a Value> {
    let own = book.get("models").and_then(|models| models.get(model));
    own.or_else(|| book.get("default")).filter(|price| !price.is_null())
}

/// A whole book.
pub(crate) fn document(book: &PriceBook) -> Value {
    let models: BTreeMap<&String, Value> =
        book.models.iter().map(|(model, price)| (model, self::price(price))).collect();
    json!({"models": models, "default": book.default.as_ref().map(self::price)})
}

pub(crate) fn price(price: &Price) -> Value {
    let mut told = rates(price.base());
    let steps = price.steps().iter().map(|step| {
        let mut rates = rates(&step.rates);
        rates.insert("above".to_owned(), step.above.into());
        Value::Object(rates)
    });
    let steps: Vec<Value> = steps.collect();
    let tiers = price.tiers().iter().map(|(tier, multiplier)| {
        // Thousandths, as nano-units are.
        (tier.clone(), nano(u64::from(*multiplier).saturating_mul(1_000_000)).into())
    });
    let tiers: Map<String, Value> = tiers.collect();
    let tools = price.tools().iter().map(|(tool, fee)| (tool.name().to_owned(), nano(*fee).into()));
    let tools: Map<String, Value> = tools.collect();
    told.insert("web_search".to_owned(), nano(price.web_search()).into());
    for (name, parts) in
        [("tiers", Value::Object(tiers)), ("tools", Value::Object(tools)), ("steps", steps.into())]
    {
        let is_empty =
            parts.as_array().map_or_else(|| parts.as_object().is_none_or(Map::is_empty), Vec::is_empty);
        if !is_empty {
            told.insert(name.to_owned(), parts);
        }
    }
    Value::Object(told)
}

/// Of a million: a pico of one is a millionth of a unit, a thousand nano.
fn rates(rates: &Rates) -> Map<String, Value> {
    let told =
        PARTS.iter().map(|(name, of)| ((*name).to_owned(), nano(of(rates).saturating_mul(1_000)).into()));
    told.collect()
}

fn nano(nano: u64) -> String {
    nano_text(i64::try_from(nano).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use tollbook_pricing::{PriceDraft, PriceUnit, RATE_MAX, RatesDraft};

    use super::*;

    #[test]
    fn a_price_is_told_exactly_and_whole() {
        let text = |text: &str| Some(text.to_owned());
        let rates = RatesDraft {
            input: text("2.50"),
            cache_read: text("0.000001"),
            output: text("10"),
            ..RatesDraft::default()
        };
        let step = RatesDraft { input: text("5"), ..RatesDraft::default() };
        let draft = PriceDraft {
            unit: PriceUnit::PerMillion,
            rates,
            steps: vec![(200_000, step)],
            tiers: vec![("flex".to_owned(), "0.5".to_owned())],
            web_search: text("0.01"),
            tools: vec![("other".to_owned(), "0.000000001".to_owned())],
        };
        let told = price(&Price::new(&draft).unwrap());
        assert_eq!(
            (&told["input"], &told["cached"], &told["reasoning"]),
            (&json!("2.5"), &json!("0.000001"), &json!("10"))
        );
        assert_eq!(told["web_search"], "0.01");
        assert_eq!(
            (&told["tiers"], &told["tools"]),
            (&json!({"flex": "0.5"}), &json!({"other": "0.000000001"}))
        );
        let step = &told["steps"][0];
        assert_eq!(
            (&step["above"], &step["input"], &step["output"]),
            (&json!(200_000), &json!("5"), &json!("10"))
        );
    }

    #[test]
    fn the_dearest_price_has_a_text() {
        let dear = Rates {
            input: RATE_MAX,
            cache_read: 0,
            cache_write_5m: 0,
            cache_write_1h: 0,
            audio_input: 0,
            image_input: 0,
            output: 0,
            reasoning: 0,
            audio_output: 0,
        };
        let told = price(&Price::flat(dear));
        assert_eq!((&told["input"], told.get("steps")), (&json!("1000000000"), None));
    }
}
