//! Values with a unit or a rule of their own, as a file writes them.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::SecretString;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A length of time: `500ms`, `60s`, `5m`, `24h`, `7d`, or parts of them one after the other: `1h30m`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

/// A number of bytes: `65536`, `64KiB`, `32MiB`, `1GiB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

/// An exact decimal number, kept as it is written: `0.15`, `2.5e-06`, `600`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decimal(pub String);

/// A text that is never shown.
#[derive(Clone)]
pub struct Secret(pub SecretString);

impl Span {
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut total: u64 = 0;
        let mut rest = text;
        let mut smaller_than = u64::MAX;
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, after) = rest.split_at_checked(digits)?;
            let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
            let (unit, after) = after.split_at_checked(letters)?;
            let milliseconds = match unit {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return None,
            };
            if milliseconds >= smaller_than {
                return None;
            }
            smaller_than = milliseconds;
            total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(milliseconds)?)?;
            rest = after;
        }
        (!text.is_empty()).then_some(Self(Duration::from_millis(total)))
    }
}

impl Size {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let (number, unit) = text.split_at_checked(digits.len())?;
        let bytes = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        number.replace('_', "").parse::<u64>().ok()?.checked_mul(bytes).map(Self)
    }
}

impl Decimal {
    /// Only what such a number can look like; its owner reads it exactly and says if it fits.
    fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (text, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let whole = whole.strip_prefix('-').unwrap_or(whole).replace('_', "");
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let exponent_fits = exponent.is_none_or(|text| digits(text.strip_prefix(['+', '-']).unwrap_or(text)));
        (digits(&whole) && fraction.is_none_or(digits) && exponent_fits).then(|| Self(text.replace('_', "")))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, milliseconds) in
            [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)]
        {
            if rest >= milliseconds {
                write!(f, "{}{unit}", rest / milliseconds)?;
                rest %= milliseconds;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Reads a text and makes a value of it; `wanted` says what it must look like.
struct Text<T> {
    wanted: &'static str,
    parse: fn(&str) -> Option<T>,
    shown: bool,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| {
            if self.shown {
                E::custom(format!("must be {}, not `{text}`", self.wanted))
            } else {
                E::custom(self.wanted)
            }
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "a length of time with its unit, as 500ms, 60s, 5m or 1h30m";
        deserializer.deserialize_str(Text { wanted, parse: Self::parse, shown: true })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "a number of bytes, as 65536, 64KiB, 32MiB or 1GiB";
        deserializer.deserialize_str(Text { wanted, parse: Self::parse, shown: true })
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "a decimal number, as 600, 2.50 or 2.5e-06";
        deserializer.deserialize_str(Text { wanted, parse: Self::parse, shown: true })
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| (!text.is_empty()).then(|| Secret(SecretString::from(text.to_owned())));
        deserializer.deserialize_str(Text { wanted: "must not be empty", parse, shown: false })
    }
}

impl serde::Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A length of time with its unit: `500ms`, `60s`, `5m`, `24h`, `7d`, or `1h30m`.",
            "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
        })
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "description": "A number of bytes: `65536`, `64KiB`, `32MiB`, `1GiB`.",
            "pattern": "^[0-9_]+(B|KiB|MiB|GiB)?$",
            "minimum": 0,
        })
    }
}

impl JsonSchema for Decimal {
    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "description": "An exact decimal number, never negative: `600`, `2.50`, `2.5e-06`.",
            "pattern": "^[0-9_]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?$",
            "minimum": 0,
        })
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A text that is never shown; best given as `${VARIABLE}`.",
            "minLength": 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        let rows = [
            ("500ms", 500),
            ("60s", 60_000),
            ("1h30m", 5_400_000),
            ("1d", 86_400_000),
            ("1m1ms", 60_001),
            ("0s", 0),
        ];
        for (text, milliseconds) in rows {
            let span = Span::parse(text).unwrap();
            assert_eq!(span.0, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(Span::parse(&span.to_string()), Some(span), "{text}");
        }
        for text in [
            "",
            "60",
            "s",
            "-1s",
            "1.5s",
            "1s1s",
            "1s1m",
            "1 s",
            "1S",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes() {
        let rows = [
            ("0", 0),
            ("65536", 65_536),
            ("64KiB", 65_536),
            ("32MiB", 32 << 20),
            ("1GiB", 1 << 30),
            ("1_000", 1_000),
        ];
        for (text, bytes) in rows {
            assert_eq!(Size::parse(text), Some(Size(bytes)), "{text}");
        }
        for text in ["", "KiB", "-1", "1kb", "1.5MiB", "18446744073709551615KiB"] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
    }

    #[test]
    fn decimals_keep_their_text() {
        for text in ["0", "600", "2.50", "2.5e-06", "1E9", "-7", "-0.0", "1e309"] {
            assert_eq!(Decimal::parse(text), Some(Decimal(text.to_owned())), "{text}");
        }
        assert_eq!(Decimal::parse("1_000.5"), Some(Decimal("1000.5".to_owned())));
        for text in ["", ".5", "5.", "NaN", "inf", "Infinity", "1e", "0x10", "1,5", "--1", "1.2.3"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }
}
