//! Reads the numbers that an upstream reports: exactly, within bounds, and never by way of a float.
//!
//! Invariants: the value is the written decimal, a whole number however it is spelt (`12`, `12.0`, `1e3`);
//! 0 ≤ value ≤ `USAGE_FIELD_MAX`.
//! What is not believable is not read as zero: it is `Reading::Rejected` with the reason.

use crate::json::{Fault, Json, Kind};

/// Largest number of llm_tokens that one usage field may report. Above it the figure counts as not reported.
pub const USAGE_FIELD_MAX: u64 = 10_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// `null` or no such member.
    Absent,
    Value(u64),
    Rejected(Odd),
}

/// Why a number was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Odd {
    Negative,
    /// Above `USAGE_FIELD_MAX`.
    Absurd,
    /// A number, but not a whole one: nobody generates a part of an llm_token.
    Fraction,
    /// Not a number at all.
    Malformed,
}

impl Reading {
    pub(crate) fn of(json: &mut Json<'_>) -> Result<Self, Fault> {
        Ok(match json.kind()? {
            Kind::Null => {
                json.null()?;
                Self::Absent
            }
            Kind::Number => read_decimal(json.number()?),
            Kind::String => json.string()?.with(read_decimal),
            Kind::Object | Kind::Array | Kind::Bool => {
                json.skip()?;
                Self::Rejected(Odd::Malformed)
            }
        })
    }
}

/// A whole number written as a decimal: `12`, `12.0` or `1e3`.
pub(crate) fn read_decimal(text: &str) -> Reading {
    let Some(number) = Decimal::parse(text.as_bytes()) else {
        return Reading::Rejected(Odd::Malformed);
    };
    if number.is_zero() {
        return Reading::Value(0);
    }
    if number.negative {
        return Reading::Rejected(Odd::Negative);
    }
    match number.parts() {
        Some((n, _)) if n > USAGE_FIELD_MAX => Reading::Rejected(Odd::Absurd),
        None => Reading::Rejected(Odd::Absurd),
        Some((_, true)) => Reading::Rejected(Odd::Fraction),
        Some((n, false)) => Reading::Value(n),
    }
}

struct Decimal<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Decimal<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        let (negative, rest) = match text.split_first()? {
            (b'-', rest) => (true, rest),
            _ => (false, text),
        };
        let (whole, rest) = digits(rest);
        if whole.is_empty() {
            return None;
        }
        let (fraction, rest) = match rest.split_first() {
            Some((b'.', tail)) => {
                let (fraction, rest) = digits(tail);
                if fraction.is_empty() {
                    return None;
                }
                (fraction, rest)
            }
            _ => (&[][..], rest),
        };
        let exponent = match rest.split_first() {
            None => 0,
            Some((b'e' | b'E', tail)) => exponent(tail)?,
            Some(_) => return None,
        };
        Some(Self { negative, whole, fraction, exponent })
    }

    fn is_zero(&self) -> bool {
        self.whole.iter().chain(self.fraction).all(|d| *d == b'0')
    }

    /// The whole part and whether there is more, or nothing if it has more digits than a `u64`.
    fn parts(&self) -> Option<(u64, bool)> {
        let places = i64::try_from(self.whole.len()).ok()?.checked_add(self.exponent)?;
        let mut value: u64 = 0;
        let mut place: i64 = 0;
        let mut rest = false;
        for d in self.whole.iter().chain(self.fraction) {
            if place < places {
                value = value.checked_mul(10)?.checked_add(u64::from(d - b'0'))?;
            } else {
                rest |= *d != b'0';
            }
            place += 1;
        }
        // Zeros that the exponent adds behind the last digit written.
        for _ in place..places {
            value = value.checked_mul(10)?;
        }
        Some((value, rest))
    }
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let n = text.iter().take_while(|b| b.is_ascii_digit()).count();
    text.split_at(n)
}

fn exponent(text: &[u8]) -> Option<i64> {
    let (sign, rest) = match text.split_first()? {
        (b'-', rest) => (-1, rest),
        (b'+', rest) => (1, rest),
        _ => (1, text),
    };
    let (figures, tail) = digits(rest);
    if figures.is_empty() || !tail.is_empty() {
        return None;
    }
    // Beyond this every number is absurd or a fraction; saturating keeps both verdicts.
    let n = figures.iter().fold(0_i64, |n, d| n.saturating_mul(10).saturating_add(i64::from(d - b'0')));
    Some(sign * n.min(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The case would round a fraction up; design section 5 decides that a fractional usage is not believed.
    #[test]
    fn b083_strings_floats_and_exponents() {
        let cases = [
            ("12", Reading::Value(12)),
            ("12.0", Reading::Value(12)),
            ("12.7", Reading::Rejected(Odd::Fraction)),
            ("0.0001", Reading::Rejected(Odd::Fraction)),
            ("1e3", Reading::Value(1000)),
            ("1.5e1", Reading::Value(15)),
            ("1200e-2", Reading::Value(12)),
            ("1234e-2", Reading::Rejected(Odd::Fraction)),
            ("1e-400", Reading::Rejected(Odd::Fraction)),
            ("-0.0", Reading::Value(0)),
            ("0e999999999999", Reading::Value(0)),
            ("12abc", Reading::Rejected(Odd::Malformed)),
            ("", Reading::Rejected(Odd::Malformed)),
            (" 12", Reading::Rejected(Odd::Malformed)),
            ("1.", Reading::Rejected(Odd::Malformed)),
            ("1e", Reading::Rejected(Odd::Malformed)),
            ("NaN", Reading::Rejected(Odd::Malformed)),
        ];
        for (text, want) in cases {
            assert_eq!(read_decimal(text), want, "{text}");
        }
    }

    #[test]
    fn b084_absurd_magnitudes_and_the_bound() {
        for text in ["2147483647", "9223372036854775807", "1e400", "1e99999999999999999999", "10000001.1"] {
            assert_eq!(read_decimal(text), Reading::Rejected(Odd::Absurd), "{text}");
        }
        assert_eq!(read_decimal("10000000"), Reading::Value(USAGE_FIELD_MAX));
        assert_eq!(read_decimal("10000001"), Reading::Rejected(Odd::Absurd));
        assert_eq!(read_decimal(&"9".repeat(100_000)), Reading::Rejected(Odd::Absurd));
    }

    #[test]
    fn b082_negative_numbers() {
        for text in ["-500", "-0.1", "-1e400"] {
            assert_eq!(read_decimal(text), Reading::Rejected(Odd::Negative), "{text}");
        }
    }
}
