//! Exact decimals.

use proptest::prelude::*;
use tollbook_pricing::DecimalError::{Negative, NotANumber, NotFinite, TooFine, TooLarge};
use tollbook_pricing::{nano_text, parse_nano, parse_scaled};

#[test]
fn decimals_are_read_exactly() {
    for (text, digits, value) in [
        ("0", 9, 0),
        ("0.0", 9, 0),
        ("1", 9, 1_000_000_000),
        ("0.15", 6, 150_000),
        (".5", 1, 5),
        ("5.", 1, 50),
        ("2.5e-06", 12, 2_500_000),
        ("2.5E-6", 12, 2_500_000),
        ("1e3", 0, 1_000),
        ("1e+3", 0, 1_000),
        ("0.000000001", 9, 1),
        ("1.000000000000000000000000000000", 9, 1_000_000_000),
        ("000123.450", 2, 12_345),
        ("100e-2", 0, 1),
        ("18446744073709551615", 0, u64::MAX),
        (" 7 ", 0, 7),
    ] {
        assert_eq!(parse_scaled(text, digits), Ok(value), "{text}");
    }
}

/// B086: a negative, non-finite, absurd or too fine amount is an error, never 0 and never unlimited.
#[test]
fn b086_amounts_that_are_refused() {
    for (text, error) in [
        ("-7", Negative),
        ("-0.0", Negative),
        ("-1e-400", Negative),
        ("NaN", NotFinite),
        ("nan", NotFinite),
        ("Infinity", NotFinite),
        ("+inf", NotFinite),
        ("1e309", TooLarge),
        ("18446744074", TooLarge),
        ("1e99999999999999999999", TooLarge),
        ("1e-99999999999999999999", TooFine(9)),
        ("0.0000000001", TooFine(9)),
        ("1.0000000001", TooFine(9)),
        ("", NotANumber),
        (".", NotANumber),
        ("e5", NotANumber),
        ("1e", NotANumber),
        ("1e1.5", NotANumber),
        ("1,5", NotANumber),
        ("1 000", NotANumber),
        ("0x10", NotANumber),
        ("+1", NotANumber),
        ("12abc", NotANumber),
        ("true", NotANumber),
        ("١٢", NotANumber),
    ] {
        assert_eq!(parse_nano(text), Err(error), "{text}");
    }
    assert_eq!(parse_nano(&"1".repeat(65)), Err(NotANumber));
    assert_eq!(parse_nano(&format!("0{}", "0".repeat(63))), Ok(0));
}

/// B089: every endpoint gives the same decimal text.
#[test]
fn b089_nano_is_written_without_drift() {
    for (nano, text) in
        [(0, "0"), (8_000, "0.000008"), (1, "0.000000001"), (1_500_000_000, "1.5"), (2_000_000_000, "2")]
    {
        assert_eq!(nano_text(nano), text);
    }
}

proptest! {
    #[test]
    fn b089_nano_survives_its_text(nano: u64) {
        prop_assert_eq!(parse_nano(&nano_text(nano)), Ok(nano));
    }

    #[test]
    fn any_text_has_an_answer(text in ".{0,80}", digits in 0u32..20) {
        let _ = parse_scaled(&text, digits);
    }
}
