//! Conversions between integers, in one place, and from integers to the floats of figures.

/// An index as a count; no collection here comes near the bound.
pub(crate) fn wide(index: usize) -> u64 {
    u64::try_from(index).unwrap_or(u64::MAX)
}

/// A count as an index; too large a one finds nothing.
pub(crate) fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// A count as a figure for people.
#[allow(clippy::cast_precision_loss, reason = "figures have three digits")]
pub(crate) fn figure(count: u64) -> f64 {
    count as f64
}
