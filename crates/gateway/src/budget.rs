//! Bytes that all calls hold together, within one bound.
//!
//! Invariants: bytes are counted before they are taken, as the capacity that is allocated for them; what is counted
//! never passes the bound, not for a moment; what was taken is given back when its [`Share`] is dropped. Nobody waits:
//! who finds no room is told so. While a buffer grows its old memory is freed only after the copy, one buffer at a time
//! and thread; that moment is not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The part of a bound that is kept for what is under way: one sixteenth.
const RESERVED: usize = 16;

/// The bound, and what is held of it.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    held: Arc<AtomicUsize>,
    max: usize,
}

/// There is no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Budget {
    pub(crate) fn new(max: usize) -> Self {
        Self { held: Arc::default(), max }
    }

    /// Another bound from now on; what is held is counted together.
    pub(crate) fn with(&self, max: usize) -> Self {
        Self { held: Arc::clone(&self.held), max }
    }

    /// A share of nothing, to be grown.
    pub(crate) fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }

    /// Little is left: nothing new should begin. The rest is for what is under way.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.max - self.max / RESERVED
    }
}

/// What one call holds.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    bytes: usize,
}

impl Share {
    pub(crate) fn take(&mut self, more: usize) -> Result<(), Full> {
        let max = self.budget.max;
        let add = |held: usize| held.checked_add(more).filter(|sum| *sum <= max);
        let taken = self.budget.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken.map_err(|_| Full)?;
        self.bytes += more;
        Ok(())
    }

    /// What is held.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn give(&mut self, less: usize) {
        let less = less.min(self.bytes);
        self.budget.held.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

/// A buffer that grows by what its share allows.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    bytes: Vec<u8>,
    /// `None`: bounded by its caller.
    share: Option<Share>,
}

impl Counted {
    pub(crate) fn new(share: Share) -> Self {
        Self { bytes: Vec::new(), share: Some(share) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends; `expected` is how long the whole will be, as far as that is believed.
    pub(crate) fn extend(&mut self, more: &[u8], expected: usize) -> Result<(), Full> {
        self.reserve(more.len(), expected)?;
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    /// Makes room: twice what there was where that can be had, else what is needed.
    fn reserve(&mut self, more: usize, expected: usize) -> Result<(), Full> {
        let need = self.bytes.len().saturating_add(more);
        let has = self.bytes.capacity();
        if need <= has {
            return Ok(());
        }
        let wished = if need <= expected { expected } else { need.max(has.saturating_mul(2)) };
        let mut capacity = wished;
        if let Some(share) = &mut self.share
            && share.take(wished - has).is_err()
        {
            share.take(need - has)?;
            capacity = need;
        }
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    /// Moves what is there to the end of `out`; the buffer keeps its room.
    pub(crate) fn drain_into(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.bytes);
    }

    /// The bytes, in memory of just their size, and their share.
    pub(crate) fn finish(mut self) -> (Bytes, Option<Share>) {
        let spare = self.bytes.capacity() - self.bytes.len();
        if spare > 0 {
            self.bytes.shrink_to_fit();
            if let Some(share) = &mut self.share {
                share.give(spare);
            }
        }
        (Bytes::from(self.bytes), self.share)
    }
}

/// Bytes that are counted as long as anybody has them.
pub(crate) fn counted(bytes: Bytes, share: Share) -> Bytes {
    struct Owner(Bytes, #[allow(dead_code, reason = "kept to be dropped")] Share);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(bytes, share))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(budget: &Budget) -> usize {
        budget.held.load(Ordering::Relaxed)
    }

    #[test]
    fn the_bound_is_met_and_never_passed() {
        let budget = Budget::new(100);
        let (mut one, mut two) = (budget.share(), budget.share());
        assert_eq!(one.take(60), Ok(()));
        assert_eq!(two.take(41), Err(Full));
        assert_eq!(held(&budget), 60, "a refusal takes nothing");
        assert_eq!(two.take(40), Ok(()));
        assert!(budget.is_nearly_full());
        assert_eq!(two.take(usize::MAX), Err(Full));
        one.give(5);
        assert!(budget.is_nearly_full(), "95 of 100");
        one.give(1);
        assert!(!budget.is_nearly_full());
        drop(one);
        assert_eq!(held(&budget), 40);
        let lower = budget.with(30);
        assert_eq!(lower.share().take(1), Err(Full));
        drop(two);
        assert_eq!(held(&lower), 0);
    }

    #[test]
    fn a_buffer_counts_its_capacity_before_it_grows() {
        let budget = Budget::new(1000);
        let mut buffer = Counted::new(budget.share());
        let mut seen = 0;
        while buffer.extend(&[7; 10], 0).is_ok() {
            assert_eq!(held(&budget), buffer.bytes.capacity());
            seen = buffer.len();
        }
        assert_eq!((seen, held(&budget)), (1000, 1000), "to the last byte, and no further");
        let (bytes, share) = buffer.finish();
        assert_eq!((bytes.len(), held(&budget)), (1000, 1000));
        drop(share);
        assert_eq!(held(&budget), 0);
    }

    #[test]
    fn spare_room_is_given_back_and_the_rest_with_the_last_byte() {
        let budget = Budget::new(1000);
        let mut buffer = Counted::new(budget.share());
        buffer.extend(&[7; 100], 0).unwrap();
        buffer.extend(&[7; 1], 0).unwrap();
        assert_eq!(held(&budget), 200);
        let (bytes, share) = buffer.finish();
        assert_eq!(held(&budget), 101);
        let bytes = counted(bytes, share.unwrap());
        let last = bytes.slice(100..);
        drop(bytes);
        assert_eq!(held(&budget), 101);
        drop(last);
        assert_eq!(held(&budget), 0);
    }

    #[test]
    fn an_expected_length_is_taken_at_once() {
        let budget = Budget::new(1000);
        let mut buffer = Counted::new(budget.share());
        buffer.extend(&[7; 10], 300).unwrap();
        assert_eq!(held(&budget), 300);
        buffer.extend(&[7; 300], 300).unwrap();
        assert_eq!(buffer.len(), 310);
        assert_eq!(held(&budget), 600, "it may be wrong");
    }
}
