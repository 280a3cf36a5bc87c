//! What is stored, as words and numbers: for people.

use std::fmt::Write as _;

use crate::number::{whole, wholes};
use tollbook_engine::ledger::codes::{MEASURES, value_of};

/// Where `held` stands in what is stored of an account that is no quota.
#[cfg(feature = "test-clock")]
pub(crate) const HELD_AT: usize = 44;

const SHAPE_BYTES: usize = 12;
/// Weights of a decaying rate.
const DECAY: u8 = 2;
const COMMON: [&str; 4] = ["live", "version", "mean hold", "used"];
const RARE: [&str; 3] = ["shadow denied", "shadow demand", "denied bucket"];
const RATE: [&str; 6] = ["held", "newest", "sum", "head", "top", "decayed"];
const FORECAST: [&str; 5] = ["held", "newest", "past", "ahead", "last"];

/// An account's field.
pub(crate) fn account(text: &[u8]) -> Option<String> {
    let (shape, rest) = text.split_at_checked(SHAPE_BYTES)?;
    let (&[kind, measure, p1, p3], p2) = shape.split_first_chunk()?;
    let p2 = whole(p2.try_into().ok()?)?;
    let measure = value_of(&MEASURES, measure)?;
    let numbers = wholes(rest)?;
    let (common, own) = numbers.split_at_checked(COMMON.len())?;
    let mut said = match kind {
        1 => format!("rate of {measure:?}, {p1} × {p2} µs, weights {p3}"),
        2 => format!("forecast of {measure:?}, {p1} s, strict {p2}"),
        3 => format!("quota of {measure:?}"),
        4 => "slots".to_owned(),
        _ => return None,
    };
    let names: &[&str] = match (kind, p3) {
        (1, DECAY) => &RATE,
        (1, _) => RATE.split_last()?.1,
        (2, _) => &FORECAST,
        _ => &["held"],
    };
    let plain = if kind == 3 { own.len() / 4 * 4 } else { names.len() };
    let (own, rare) = own.split_at_checked(plain)?;
    named(&mut said, &COMMON, common);
    if kind == 3 {
        for period in own.chunks(4) {
            said.push(';');
            named(&mut said, &["period from", "to", "posted", "held"], period);
        }
    } else {
        named(&mut said, names, own);
    }
    named(&mut said, &RARE, rare);
    Some(said)
}

fn named(said: &mut String, names: &[&str], numbers: &[i64]) {
    for (name, number) in names.iter().zip(numbers) {
        // Writing to a string cannot fail.
        let _ = write!(said, " {name} {number},");
    }
}

/// Buckets or seconds: numbers alone, those that are not 0 with their places.
pub(crate) fn cells(text: &[u8]) -> Option<String> {
    let cells = wholes(text)?;
    let full = cells.iter().enumerate().filter(|(_, amount)| **amount != 0);
    Some(full.map(|(place, amount)| format!("{place}: {amount}")).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::{account, cells};

    #[test]
    fn an_account_is_told_in_words() {
        let mut text = vec![1, 2, 61, 0];
        for number in [1_000_000.0_f64, 2.0, 7.0, 5.0, 9.0, 100.0, 60.0, 40.0, 10.0, 60.0, 0.0, 3.0, 0.0] {
            text.extend(number.to_le_bytes());
        }
        let said = account(&text).unwrap();
        assert!(said.starts_with("rate of Tokens, 61 × 1000000 µs"), "{said}");
        assert!(said.contains(" held 100,") && said.contains(" sum 40,"), "{said}");
        assert!(said.ends_with(" shadow denied 0, shadow demand 3, denied bucket 0,"), "{said}");
        assert_eq!(account(b"a text"), None);
        assert_eq!(cells(&[&[0; 8][..], &3.0_f64.to_le_bytes()].concat()).unwrap(), "1: 3");
    }
}
