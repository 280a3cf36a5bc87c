//! Nano-currency as text for people and for APIs.

/// A decimal number of currency units, exact, without trailing zeros: 8000 is `0.000008`.
pub fn nano_text(nano: i64) -> String {
    const UNIT: u64 = 1_000_000_000;
    let sign = if nano < 0 { "-" } else { "" };
    let amount = nano.unsigned_abs();
    let (whole, rest) = (amount / UNIT, amount % UNIT);
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let fraction = format!("{rest:09}");
    format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
}
