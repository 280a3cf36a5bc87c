//! Numbers as people read them, and ids as paths have them.

use std::fmt::Write as _;

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: i128) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number < 0 { format!("-{out}") } else { out }
}

/// Nano-currency as currency with as many places as are needed, at least two.
pub(crate) fn money(nano: i128) -> String {
    let whole = grouped(i128::try_from(nano.unsigned_abs() / 1_000_000_000).unwrap_or(i128::MAX));
    let fraction = format!("{:09}", nano.unsigned_abs() % 1_000_000_000);
    let kept = fraction.trim_end_matches('0');
    let sign = if nano < 0 { "-" } else { "" };
    format!("{sign}{whole}.{kept:0<2}")
}

/// Nano-currency as an exact decimal without trailing zeros, for programs.
pub(crate) fn exact(nano: i128) -> String {
    let (whole, fraction) = (nano.unsigned_abs() / 1_000_000_000, nano.unsigned_abs() % 1_000_000_000);
    let text = format!("{whole}.{fraction:09}");
    let sign = if nano < 0 { "-" } else { "" };
    format!("{sign}{}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Unix milliseconds as RFC 3339; nothing for what no calendar has.
pub(crate) fn instant(milliseconds: u64) -> String {
    let at = i64::try_from(milliseconds).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map_or_else(String::new, |at| at.to_string())
}

/// Lines of cells in columns; the first `left` stand left, the others right.
pub(crate) fn aligned(lines: &[Vec<String>], left: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate();
        let padded = cells.map(
            |(at, (cell, width))| {
                if at < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            },
        );
        out.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// An id as one part of a URL's path: percent-encoded but for letters, digits and `-._~`.
pub(crate) fn escaped(id: &str) -> String {
    let mut out = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing into a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// What was percent-encoded; `None` if it is no text.
pub(crate) fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            u8::try_from(digit()? * 16 + digit()?).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(-1_234_567), "-1,234,567");
        assert_eq!(exact(0), "0");
        assert_eq!(exact(-1_500_000_000), "-1.5");
        assert_eq!(exact(100_000_000_000), "100");
        assert_eq!(money(0), "0.00");
        assert_eq!(money(1_500_000_000), "1.50");
        assert_eq!(money(-1), "-0.000000001");
        assert_eq!(money(1_234_000_000_000), "1,234.00");
    }

    #[test]
    fn ids_in_paths() {
        for (id, part) in
            [("acme-1", "acme-1"), ("a?b", "a%3Fb"), ("a b/%", "a%20b%2F%25"), ("ü", "%C3%BC"), ("", "")]
        {
            assert_eq!((escaped(id).as_str(), unescaped(part).as_deref()), (part, Some(id)));
        }
        for wrong in ["%", "%4", "%zz", "%+4", "%C3", "a%"] {
            assert_eq!(unescaped(wrong), None, "{wrong}");
        }
    }
}
