//! Values under small numbers that stay theirs until they are taken out.
//!
//! Invariants: a slot in `free` is empty and each empty slot is in `free` once; slots are below `u32::MAX`.

/// Slots of `T`, reused in last-out-first-in order.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(index(slot)).and_then(Option::as_ref)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(index(slot)).and_then(Option::as_mut)
    }

    /// The slot that the value after `ahead` others would get.
    pub(crate) fn vacant(&self, ahead: usize) -> u32 {
        match self.free.len().checked_sub(ahead + 1).and_then(|at| self.free.get(at)) {
            Some(slot) => *slot,
            None => slot(self.slots.len() + ahead - self.free.len()),
        }
    }

    /// Fill the next vacant slot.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let slot = self.vacant(0);
        self.fill(slot, value);
        slot
    }

    /// Fill a given empty slot; false if it is taken.
    pub(crate) fn fill(&mut self, slot: u32, value: T) -> bool {
        if self.get(slot).is_some() {
            return false;
        }
        self.extend(slot.saturating_add(1));
        // Nearly always the last one; only a replay over another history has to search.
        if let Some(at) = self.free.iter().rposition(|free| *free == slot) {
            self.free.remove(at);
        }
        if let Some(place) = self.slots.get_mut(index(slot)) {
            *place = Some(value);
        }
        true
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let value = self.slots.get_mut(index(slot))?.take()?;
        self.free.push(slot);
        Some(value)
    }

    /// Make at least so many slots.
    pub(crate) fn extend(&mut self, slots: u32) {
        for new in self.len()..slots {
            self.slots.push(None);
            self.free.push(new);
        }
    }

    /// Slots, empty ones included.
    pub(crate) fn len(&self) -> u32 {
        slot(self.slots.len())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..u32::MAX).zip(&self.slots).filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }
}

#[inline]
fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[inline]
fn slot(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn vacant_tells_the_slots_of_coming_values() {
        let mut slab = Slab::default();
        for value in 0..4 {
            slab.insert(value);
        }
        slab.remove(1);
        slab.remove(3);
        let told: Vec<u32> = (0..4).map(|ahead| slab.vacant(ahead)).collect();
        let got: Vec<u32> = (10..14).map(|value| slab.insert(value)).collect();
        assert_eq!(told, got);
        assert_eq!(told, [3, 1, 4, 5]);
    }

    #[test]
    fn a_taken_slot_is_not_filled_again() {
        let mut slab = Slab::default();
        assert!(slab.fill(2, 'a'));
        assert!(!slab.fill(2, 'b'));
        assert_eq!((slab.get(2), slab.len(), slab.vacant(0)), (Some(&'a'), 3, 1));
    }
}
