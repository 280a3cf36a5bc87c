//! An open-addressing index from 32-bit tags to slots, for keys that live elsewhere.
//!
//! Invariants: the number of cells is a power of two and at most five eighths are full, so every probe ends; a slot is
//! found from the home cell of its tag without crossing an empty cell (removal shifts back). The order of cells depends
//! on the keys and their history alone, so two runs agree; the standard map's order is random.
//! Slots are below `u32::MAX`, which marks an empty cell.

/// Tag and slot of one key.
#[derive(Clone, Copy, Debug)]
struct Cell {
    tag: u32,
    slot: u32,
}

const EMPTY: Cell = Cell { tag: 0, slot: u32::MAX };
const CELLS_MIN: usize = 16;

/// The index; the caller compares keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    cells: Vec<Cell>,
    full: usize,
}

/// A tag from an already uniform digest or a counter.
#[inline]
pub(crate) fn tag(digest: u64) -> u32 {
    // The multiplication spreads counters; the upper half of the product depends on all bits below.
    let mixed = digest.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u32::try_from(mixed >> 32).unwrap_or(0)
}

impl Table {
    /// The slot under `tag` that `is` recognises.
    #[inline]
    pub(crate) fn find(&self, tag: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.home(tag);
        // An empty table has no cell, so `get` ends the loop.
        while let Some(cell) = self.cells.get(at) {
            if cell.slot == EMPTY.slot {
                return None;
            }
            if cell.tag == tag && is(cell.slot) {
                return Some(cell.slot);
            }
            at = self.after(at);
        }
        None
    }

    /// Slots in the table.
    pub(crate) fn count(&self) -> usize {
        self.full
    }

    /// Add a slot that is not in the table.
    pub(crate) fn insert(&mut self, tag: u32, slot: u32) {
        if (self.full + 1) * 8 > self.cells.len() * 5 {
            self.grow();
        }
        self.put(Cell { tag, slot });
        self.full += 1;
    }

    /// Remove a slot; false if it was not there.
    pub(crate) fn remove(&mut self, tag: u32, slot: u32) -> bool {
        let mut hole = self.home(tag);
        loop {
            match self.cells.get(hole) {
                Some(cell) if cell.tag == tag && cell.slot == slot => break,
                Some(cell) if cell.slot != EMPTY.slot => hole = self.after(hole),
                _ => return false,
            }
        }
        // Shift back whatever would no longer be found across the hole.
        let mut at = self.after(hole);
        while let Some(&cell) = self.cells.get(at) {
            if cell.slot == EMPTY.slot {
                break;
            }
            if self.distance(self.home(cell.tag), at) >= self.distance(hole, at) {
                self.set(hole, cell);
                hole = at;
            }
            at = self.after(at);
        }
        self.set(hole, EMPTY);
        self.full -= 1;
        true
    }

    fn grow(&mut self) {
        let cells = (self.cells.len() * 2).max(CELLS_MIN);
        let old = core::mem::replace(&mut self.cells, vec![EMPTY; cells]);
        for cell in old.into_iter().filter(|cell| cell.slot != EMPTY.slot) {
            self.put(cell);
        }
    }

    fn put(&mut self, cell: Cell) {
        let mut at = self.home(cell.tag);
        while self.cells.get(at).is_some_and(|other| other.slot != EMPTY.slot) {
            at = self.after(at);
        }
        self.set(at, cell);
    }

    #[inline]
    fn set(&mut self, at: usize, cell: Cell) {
        if let Some(place) = self.cells.get_mut(at) {
            *place = cell;
        }
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        usize::try_from(tag).unwrap_or(0) & self.mask()
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.mask()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.cells.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Table, tag};

    proptest! {
        /// In lockstep with a map, over few tags so that chains collide, wrap and shift.
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0_u32..24, 0_u8..3), 0..400)) {
            let mut table = Table::default();
            let mut map = BTreeMap::new();
            for (key, what) in steps {
                let tag = key % 7 + 12;
                match what {
                    0 if !map.contains_key(&key) => {
                        table.insert(tag, key);
                        map.insert(key, tag);
                    }
                    1 => prop_assert_eq!(table.remove(tag, key), map.remove(&key).is_some()),
                    _ => {}
                }
                for key in 0..24 {
                    let found = table.find(key % 7 + 12, |slot| slot == key);
                    prop_assert_eq!(found.is_some(), map.contains_key(&key));
                }
            }
        }
    }

    #[test]
    fn grows_and_finds_all() {
        let mut table = Table::default();
        for n in 0..10_000_u32 {
            table.insert(tag(u64::from(n)), n);
        }
        assert!((0..10_000).all(|n| table.find(tag(u64::from(n)), |slot| slot == n) == Some(n)));
        assert!((0..10_000).all(|n| table.remove(tag(u64::from(n)), n)));
        assert!((0..10_000).all(|n| table.find(tag(u64::from(n)), |slot| slot == n).is_none()));
    }
}
