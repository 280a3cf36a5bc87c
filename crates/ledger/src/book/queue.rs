//! A first-in-first-out queue in chunks: it grows without copying what it has, and shrinks by giving chunks back.
//!
//! Invariant: every chunk but the first and the last holds [`CHUNK`] values; no chunk is empty.

use std::collections::VecDeque;

/// Values per chunk.
const CHUNK: usize = 1024;

/// Values in order of arrival, each found by its place.
#[derive(Clone, Debug)]
pub(crate) struct Queue<T> {
    chunks: VecDeque<VecDeque<T>>,
    count: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn push(&mut self, value: T) {
        self.count += 1;
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK => last.push_back(value),
            _ => {
                let mut chunk = VecDeque::with_capacity(CHUNK);
                chunk.push_back(value);
                self.chunks.push_back(chunk);
            }
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let first = self.chunks.front_mut()?;
        let value = first.pop_front();
        if first.is_empty() {
            self.chunks.pop_front();
        }
        self.count -= usize::from(value.is_some());
        value
    }

    /// The value that `place` others came before.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        let (chunk, at) = self.locate(place);
        self.chunks.get(chunk)?.get(at)
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let (chunk, at) = self.locate(place);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    #[inline]
    fn locate(&self, place: usize) -> (usize, usize) {
        let first = self.chunks.front().map_or(0, VecDeque::len);
        match place.checked_sub(first) {
            None => (0, place),
            Some(behind) => (1 + behind / CHUNK, behind % CHUNK),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{CHUNK, Queue};

    proptest! {
        /// In lockstep with the standard queue, over chunk borders.
        #[test]
        fn agrees_with_a_plain_queue(steps in prop::collection::vec((0..3 * CHUNK, 0..2 * CHUNK), 0..12)) {
            let (mut queue, mut plain) = (Queue::default(), VecDeque::new());
            let mut next = 0_u32;
            for (pushes, pops) in steps {
                for _ in 0..pushes {
                    queue.push(next);
                    plain.push_back(next);
                    next += 1;
                }
                for _ in 0..pops {
                    prop_assert_eq!(queue.pop(), plain.pop_front());
                }
                prop_assert_eq!(queue.count(), plain.len());
                prop_assert!(queue.iter().eq(plain.iter()));
                for place in [0, 1, plain.len() / 2, plain.len().saturating_sub(1), plain.len()] {
                    prop_assert_eq!(queue.get(place), plain.get(place));
                    prop_assert_eq!(queue.get_mut(place), plain.get_mut(place));
                }
            }
        }
    }
}
