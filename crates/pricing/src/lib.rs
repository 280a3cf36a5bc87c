//! How many units a call may use, and how many it used.
//!
//! Pure: no I/O, no clock, no floats. Input is counted, output is capped, and both become legs with whole-number
//! coefficients; what really happened becomes one amount per leg. Prices are exact decimals in pico-currency.
//! Knows no engine, no store and no HTTP. Every number from outside is bounded where it enters.

mod actual;
mod charge;
mod count;
mod decimal;
mod demand;
mod exact;
mod facts;
mod family;
mod file;
mod framing;
mod learned;
mod legs;
mod media;
mod parts;
mod price;

pub use actual::{actuals, unknown_actuals};
pub use charge::{Charge, Decision, Ending, Figures, Seen, believable, charge};
pub use count::{InputCount, Kinds, count_exact, count_learned, count_output};
pub use decimal::{DECIMAL_TEXT_MAX, DecimalError, nano_text, parse_nano, parse_scaled};
pub use demand::{Asked, Demand, MARGIN_ESTIMATED, MARGIN_EXACT, needs_cap};
pub use exact::Vocabulary;
pub use facts::{
    FACT_MAX, FIRST_OUTPUT, MEDIA_BYTES_PER_LLM_TOKEN, MEDIA_DEFAULT, ModelFacts, OUTPUT_DEFAULT,
    SEALED_BYTES_PER_LLM_TOKEN, STORED_INPUT, WEB_SEARCHES_MAX, WEB_SEARCHES_WORST,
};
pub use family::{Family, guess};
pub use file::{TOKENIZER_BYTES_MAX, Tokenizer, TokenizerError};
pub use framing::{Framing, framing};
pub use learned::{HIDDEN_MAX, Learned, RATIO_MAX, RATIO_MIN, WEIGHT_MAX};
pub use legs::{EstimatorIds, LegsError, Output, Task, legs};
pub use media::{IMAGE_DEFAULT, ImageRule, PatchRule};
pub use parts::Parts;
pub use price::{
    FEE_MAX, Price, PriceBook, PriceDraft, PriceProblem, PriceProblemKind, PriceUnit, RATE_MAX, Rates,
    RatesDraft, STEPS_MAX, Step, TIER_MAX,
};
