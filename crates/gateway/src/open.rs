//! How many streams each key has open in this process.
//!
//! A bound on sockets and memory that one key can take, whatever its limits say; limits on calls in flight are the
//! book's business. Only keys with open streams are remembered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The streams of all keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open {
    counts: Arc<Mutex<BTreeMap<Box<str>, usize>>>,
}

/// One open stream; closed when dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    open: Open,
    key: Box<str>,
}

impl Open {
    /// Opens one more, unless the key has `most` already.
    pub(crate) fn enter(&self, key: String, most: usize) -> Option<OpenStream> {
        let key = key.into_boxed_str();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.clone()).or_insert(0);
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(OpenStream { open: self.clone(), key })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut counts = self.open.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_apart_and_forgotten_when_they_leave() {
        let open = Open::default();
        let first = open.enter("a".to_owned(), 2).unwrap();
        let second = open.enter("a".to_owned(), 2).unwrap();
        assert!(open.enter("a".to_owned(), 2).is_none());
        let other = open.enter("b".to_owned(), 2).unwrap();
        drop(first);
        assert!(open.enter("a".to_owned(), 2).is_some());
        drop((second, other));
        assert!(open.counts.lock().unwrap().is_empty());
    }
}
