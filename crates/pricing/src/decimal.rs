//! Exact decimals: text in, scaled integers out; no float ever holds money.
//!
//! Reads `12`, `0.15`, `.5`, `2.5e-06`. Refuses a sign, words (`NaN`, `Infinity`), and anything that is not exactly a
//! whole number of the unit asked for: an amount too small is an error, never a silent 0 (B086).

/// Longest text read; more digits cannot mean anything.
pub const DECIMAL_TEXT_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecimalError {
    #[error("is not a decimal number")]
    NotANumber,
    #[error("must not be negative")]
    Negative,
    #[error("must be finite")]
    NotFinite,
    #[error("is finer than the smallest unit, 1e-{0}")]
    TooFine(u32),
    #[error("is too large")]
    TooLarge,
}

/// The number × 10^`digits`, exactly.
pub fn parse_scaled(text: &str, digits: u32) -> Result<u64, DecimalError> {
    let text = text.trim();
    if text.starts_with('-') {
        // minus zero too: who writes it means something else
        return Err(DecimalError::Negative);
    }
    let word = text.trim_start_matches('+').to_ascii_lowercase();
    if matches!(word.as_str(), "nan" | "inf" | "infinity" | ".inf" | ".nan") {
        return Err(DecimalError::NotFinite);
    }
    if text.len() > DECIMAL_TEXT_MAX {
        return Err(DecimalError::NotANumber);
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, whole_exponent(exponent)?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return Err(DecimalError::NotANumber);
    }
    let significant = format!("{whole}{fraction}");
    let significant = significant.trim_start_matches('0');
    let trimmed = significant.trim_end_matches('0');
    if trimmed.is_empty() {
        return Ok(0);
    }
    let dropped = i64::try_from(significant.len() - trimmed.len()).unwrap_or(i64::MAX);
    let after_point = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    // what is left to multiply by, as a power of ten
    let power =
        exponent.saturating_add(i64::from(digits)).saturating_sub(after_point).saturating_add(dropped);
    if power < 0 {
        return Err(DecimalError::TooFine(digits));
    }
    let value: u128 = trimmed.parse().map_err(|_| DecimalError::TooLarge)?;
    let scale = u32::try_from(power).ok().and_then(|power| 10u128.checked_pow(power));
    let scaled = scale.and_then(|scale| value.checked_mul(scale));
    scaled.and_then(|scaled| u64::try_from(scaled).ok()).ok_or(DecimalError::TooLarge)
}

/// Currency units to nano-currency, as ceilings of cost are kept.
pub fn parse_nano(text: &str) -> Result<u64, DecimalError> {
    parse_scaled(text, 9)
}

/// Nano-currency as a decimal text without trailing zeros: `0.000008` (B089).
pub fn nano_text(nano: u64) -> String {
    let (whole, fraction) = (nano / 1_000_000_000, nano % 1_000_000_000);
    if fraction == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{fraction:09}");
    text.trim_end_matches('0').to_owned()
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn whole_exponent(text: &str) -> Result<i64, DecimalError> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !all_digits(digits) {
        return Err(DecimalError::NotANumber);
    }
    // beyond ten digits the exponent only says "too fine" or "too large"
    let exponent: i64 = digits.parse().unwrap_or(10_000_000_000);
    Ok(if negative { -exponent } else { exponent })
}
