//! Numbers as the scripts keep them: doubles of eight bytes, little end first, always whole and below 2^53.

/// Bits of a double's fraction, and what its exponent counts from.
const FRACTION: u32 = 52;
const BIAS: u32 = 1023;
const HIDDEN: u64 = 1 << FRACTION;

/// A number of at most 2^53 − 1 as a double; larger ones are cut to that.
pub(crate) fn double(number: u64) -> [u8; 8] {
    let number = crate::pack::exact(number);
    let Some(exponent) = number.checked_ilog2() else { return [0; 8] };
    let fraction = number << (FRACTION - exponent) & (HIDDEN - 1);
    (u64::from(exponent + BIAS) << FRACTION | fraction).to_le_bytes()
}

/// A double as a number; nothing where it is not whole or too large.
pub(crate) fn whole(bytes: [u8; 8]) -> Option<i64> {
    let bits = u64::from_le_bytes(bytes);
    if bits << 1 == 0 {
        return Some(0);
    }
    let exponent = u32::try_from(bits >> FRACTION & 0x7ff).ok()?.checked_sub(BIAS)?;
    let below = FRACTION.checked_sub(exponent)?;
    let fraction = bits & (HIDDEN - 1) | HIDDEN;
    if fraction.trailing_zeros() < below {
        return None;
    }
    let number = i64::try_from(fraction >> below).ok()?;
    Some(if bits >> 63 == 1 { -number } else { number })
}

/// All numbers of a text that holds nothing else.
pub(crate) fn wholes(bytes: &[u8]) -> Option<Vec<i64>> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    numbers.iter().map(|number| whole(*number)).collect()
}

#[cfg(test)]
mod tests {
    use tollbook_engine::ledger::AMOUNT_MAX;

    use super::{double, whole, wholes};

    #[test]
    fn numbers_are_those_of_doubles() {
        for number in [0, 1, 2, 3, 1_000, (1 << 32) + 1, AMOUNT_MAX - 1, AMOUNT_MAX] {
            let written = double(number);
            assert_eq!(f64::from_le_bytes(written).to_string(), number.to_string());
            assert_eq!(whole(written), i64::try_from(number).ok());
            assert_eq!(
                whole((-f64::from_le_bytes(written)).to_le_bytes()),
                i64::try_from(number).ok().map(|n| -n)
            );
        }
        assert_eq!(double(u64::MAX), double(AMOUNT_MAX));
    }

    #[test]
    fn what_is_not_whole_is_nothing() {
        for odd in [0.5, 1.25, -3.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-300] {
            assert_eq!(whole(odd.to_le_bytes()), None, "{odd}");
        }
        assert_eq!(wholes(&[0; 7]), None);
        assert_eq!(wholes(&[0; 16]), Some(vec![0, 0]));
    }
}
