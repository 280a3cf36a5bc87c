//! The highest id seen of each gateway, so that a new call is known to be new without a look-up.
//!
//! An id is a gateway's random half and its counter (L2), and calls come nearly in the order of their counters. What is
//! above the highest is neither live nor ended; for anything else the indexes are asked, which costs two cache misses.
//! Invariant: an entry is never dropped, so its highest is that of all ids the book ever had of that gateway. When the
//! list is full, further gateways are not listed and always looked up.

use crate::id::ReservationId;

const GATEWAYS_MAX: usize = 64;

/// Highest counters by gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fresh {
    highest: Vec<(u64, u64)>,
    /// Where the last gateway was found.
    last: usize,
}

impl Fresh {
    /// Certainly never seen; false says nothing.
    pub(crate) fn is_new(&self, id: ReservationId) -> bool {
        let (gateway, counter) = halves(id);
        self.position(gateway)
            .and_then(|at| self.highest.get(at))
            .is_some_and(|(_, highest)| counter > *highest)
    }

    pub(crate) fn note(&mut self, id: ReservationId) {
        let (gateway, counter) = halves(id);
        match self.position(gateway) {
            Some(at) => {
                self.last = at;
                if let Some((_, highest)) = self.highest.get_mut(at) {
                    *highest = counter.max(*highest);
                }
            }
            None if self.highest.len() < GATEWAYS_MAX => self.highest.push((gateway, counter)),
            None => {}
        }
    }

    fn position(&self, gateway: u64) -> Option<usize> {
        if self.highest.get(self.last).is_some_and(|(other, _)| *other == gateway) {
            return Some(self.last);
        }
        self.highest.iter().position(|(other, _)| *other == gateway)
    }
}

/// Random half and counter.
pub(crate) fn halves(id: ReservationId) -> (u64, u64) {
    let low = id.0 & u128::from(u64::MAX);
    (u64::try_from(id.0 >> 64).unwrap_or(0), u64::try_from(low).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{Fresh, GATEWAYS_MAX};
    use crate::id::ReservationId;

    fn id(gateway: u128, counter: u128) -> ReservationId {
        ReservationId(gateway << 64 | counter)
    }

    #[test]
    fn only_what_is_above_the_highest_is_new() {
        let mut fresh = Fresh::default();
        assert!(!fresh.is_new(id(1, 5)));
        fresh.note(id(1, 5));
        fresh.note(id(2, 9));
        fresh.note(id(1, 3));
        assert!(fresh.is_new(id(1, 6)) && !fresh.is_new(id(1, 5)) && !fresh.is_new(id(1, 4)));
        assert!(fresh.is_new(id(2, 10)) && !fresh.is_new(id(2, 6)));
    }

    #[test]
    fn a_full_list_says_nothing_of_others() {
        let mut fresh = Fresh::default();
        for gateway in 0..=64 {
            fresh.note(id(gateway, 5));
        }
        assert_eq!(fresh.highest.len(), GATEWAYS_MAX);
        assert!(fresh.is_new(id(63, 6)) && !fresh.is_new(id(64, 6)));
    }
}
