//! Exact numbers: a decimal text times a power of ten, without floats.

use super::values::Decimal;

/// Why a decimal is no amount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unfit {
    /// Below zero, −0 included.
    Negative,
    /// A part smaller than the unit would be lost.
    TooFine,
    /// Beyond any bound.
    TooLarge,
}

/// More digits than any amount that fits has.
const DIGITS_MAX: usize = 60;

/// `text` × 10^`places`, if that is a whole number.
pub(super) fn scaled(decimal: &Decimal, places: i32) -> Result<u64, Unfit> {
    let text = decimal.0.as_str();
    if text.starts_with('-') {
        return Err(Unfit::Negative);
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    let negative_exponent = exponent.starts_with('-');
    let edge = if negative_exponent { Unfit::TooFine } else { Unfit::TooLarge };
    let exponent: i32 = exponent.parse().map_err(|_| edge)?;
    let fraction = i32::try_from(fraction.len()).map_err(|_| Unfit::TooFine)?;
    let shift = exponent.checked_add(places).and_then(|n| n.checked_sub(fraction)).ok_or(edge)?;
    let significant = digits.trim_end_matches('0');
    let zeros = i32::try_from(digits.len() - significant.len()).map_err(|_| Unfit::TooLarge)?;
    let zeros = zeros.checked_add(shift).ok_or(edge)?;
    let zeros = usize::try_from(zeros).map_err(|_| Unfit::TooFine)?;
    if significant.len().saturating_add(zeros) > DIGITS_MAX {
        return Err(Unfit::TooLarge);
    }
    format!("{significant}{}", "0".repeat(zeros)).parse().map_err(|_| Unfit::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_or_refused() {
        let rows: &[(&str, i32, Result<u64, Unfit>)] = &[
            ("0", 9, Ok(0)),
            ("0.000", 0, Ok(0)),
            ("600", 0, Ok(600)),
            ("600.0", 0, Ok(600)),
            ("6e2", 0, Ok(600)),
            ("6000e-1", 0, Ok(600)),
            ("100.00", 9, Ok(100_000_000_000)),
            ("2.5e-06", 12, Ok(2_500_000)),
            ("0.000000001", 9, Ok(1)),
            ("0.0000000001", 9, Err(Unfit::TooFine)),
            ("1.5", 0, Err(Unfit::TooFine)),
            ("1.25", 3, Ok(1_250)),
            ("-7", 0, Err(Unfit::Negative)),
            ("-0.0", 0, Err(Unfit::Negative)),
            ("1e309", 0, Err(Unfit::TooLarge)),
            ("1e99999999999", 0, Err(Unfit::TooLarge)),
            ("1e-99999999999", 0, Err(Unfit::TooFine)),
            ("0e99999999999", 0, Ok(0)),
            ("18446744073709551615", 0, Ok(u64::MAX)),
            ("18446744073709551616", 0, Err(Unfit::TooLarge)),
        ];
        for (text, places, want) in rows {
            assert_eq!(scaled(&Decimal((*text).to_owned()), *places), *want, "{text} × 10^{places}");
        }
    }
}
