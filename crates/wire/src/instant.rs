//! Times and durations as upstreams write them, in whole milliseconds, without floats.
//!
//! Invariants: what cannot be read is `None`; what is too large saturates; fractions round up, so that no wait is
//! ever shorter than asked.

/// A plain number of units of `unit_ms` milliseconds: `2`, `1.5`. Saturates; negative and anything else is `None`.
pub(crate) fn number_ms(text: &str, unit_ms: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || text.ends_with('.') {
        return None;
    }
    let units = digits(whole);
    // Nine places are more than a millisecond needs of any unit; what lies behind them only rounds up.
    let kept = fraction.get(..9).unwrap_or(fraction);
    let places = u32::try_from(kept.len()).ok()?;
    let scale = 10_u64.pow(places);
    let part = digits(kept).saturating_mul(unit_ms).div_ceil(scale);
    let beyond = fraction.len() > kept.len() && part == 0;
    Some(units.saturating_mul(unit_ms).saturating_add(part).saturating_add(u64::from(beyond)))
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn digits(text: &str) -> u64 {
    text.bytes().fold(0_u64, |n, d| n.saturating_mul(10).saturating_add(u64::from(d.saturating_sub(b'0'))))
}

/// A sequence of numbers with units, such as `6m0s`, `1m30.5s`, `20ms`, `2h15m`.
pub(crate) fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let n = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(n);
        let n = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(n);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        sum = sum.saturating_add(number_ms(number, unit_ms)?);
        rest = tail;
    }
    Some(sum)
}

/// Days since 1970-01-01 of a date of the common calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let at = usize::try_from(month.checked_sub(1)?).ok()?;
    if !(1970..=9999).contains(&year) || !(1..=*lengths.get(at)?).contains(&day) {
        return None;
    }
    let before = year - 1;
    // Leap days from year 1 to the end of 1969 are 477.
    let leaps = before / 4 - before / 100 + before / 400 - 477;
    let months: u64 = lengths.iter().take(at).sum();
    Some((year - 1970) * 365 + leaps + months + day - 1)
}

fn instant_ms(date: Option<u64>, hour: u64, minute: u64, second: u64) -> Option<u64> {
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some((date? * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000)
}

fn number(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > 9 || !all_digits(text) {
        return None;
    }
    text.parse().ok()
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn month(name: &str) -> Option<u64> {
    let at = MONTHS.iter().position(|month| *month == name)?;
    u64::try_from(at + 1).ok()
}

/// An HTTP date in any of its three forms, as Unix milliseconds.
pub(crate) fn http_date(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split([' ', ',', '-', ':']).filter(|word| !word.is_empty()).take(9).collect();
    let (year, month_name, day, h, m, s) = match words.as_slice() {
        [_, day, month, year, h, m, s, "GMT"] | [_, month, day, h, m, s, year] => {
            (*year, *month, *day, *h, *m, *s)
        }
        _ => return None,
    };
    let short = year.len() == 2;
    let year = number(year)?;
    // A year of two digits is of this century or, from 70 on, of the last.
    let year = match (short, year) {
        (true, 70..) => 1900 + year,
        (true, _) => 2000 + year,
        (false, _) => year,
    };
    instant_ms(days(year, month(month_name)?, number(day)?), number(h)?, number(m)?, number(s)?)
}

/// An RFC 3339 time, as Unix milliseconds, rounded up.
pub(crate) fn rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let date = days(number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    if parts.next().is_some() {
        return None;
    }
    let n = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(n);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':');
    let at = instant_ms(date, number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?)?;
    if parts.next().is_some() {
        return None;
    }
    let at = at.saturating_add(number_ms(&format!("0.{fraction}"), 1_000)?);
    if matches!(zone, "Z" | "z") {
        return Some(at);
    }
    let (sign, offset) = zone.split_at(1);
    let (h, m) = offset.split_once(':')?;
    let offset = instant_ms(Some(0), number(h)?, number(m)?, 0)?;
    if sign == "+" { at.checked_sub(offset) } else { at.checked_add(offset) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_up_and_saturate() {
        assert_eq!(number_ms("2", 1000), Some(2000));
        assert_eq!(number_ms("1.5", 1000), Some(1500));
        assert_eq!(number_ms("0.5", 1), Some(1));
        assert_eq!(number_ms("0.00000000001", 1000), Some(1));
        assert_eq!(number_ms("99999999999999999999", 1000), Some(u64::MAX));
        for junk in ["", "-5", "abc", "NaN", "1.", ".5", "1e3", "+1", "1 2", "inf"] {
            assert_eq!(number_ms(junk, 1000), None, "{junk}");
        }
    }

    #[test]
    fn durations() {
        let cases = [
            ("6m0s", Some(360_000)),
            ("20ms", Some(20)),
            ("1s", Some(1_000)),
            ("1m30.5s", Some(90_500)),
            ("2h15m", Some(8_100_000)),
            ("0s", Some(0)),
            ("1d", Some(86_400_000)),
            ("6 minutes", None),
            ("", None),
            ("s", None),
            ("5", None),
            ("99999999999999999999h", Some(u64::MAX)),
        ];
        for (text, want) in cases {
            assert_eq!(duration_ms(text), want, "{text}");
        }
    }

    #[test]
    fn dates_in_all_forms() {
        let want = Some(784_111_777_000);
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), want);
        assert_eq!(http_date("Sunday, 06-Nov-94 08:49:37 GMT"), want);
        assert_eq!(http_date("Sun Nov  6 08:49:37 1994"), want);
        assert_eq!(http_date("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800_000));
        for junk in ["", "Sun, 31 Feb 2026 00:00:00 GMT", "Sun, 06 Nov 1994 25:00:00 GMT", "yesterday"] {
            assert_eq!(http_date(junk), None, "{junk}");
        }
    }

    #[test]
    fn rfc3339_times() {
        assert_eq!(rfc3339("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(rfc3339("2026-11-30T12:00:00Z"), Some(1_796_040_000_000));
        assert_eq!(rfc3339("2026-11-30T14:00:00+02:00"), Some(1_796_040_000_000));
        assert_eq!(rfc3339("2026-11-30T11:59:59.0001Z"), Some(1_796_039_999_001));
        for junk in ["2026-13-01T00:00:00Z", "2026-11-30", "2026-11-30T12:00Z", "x"] {
            assert_eq!(rfc3339(junk), None, "{junk}");
        }
    }
}
