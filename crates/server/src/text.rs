//! Numbers as people read them.

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
}
