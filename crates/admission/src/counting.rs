//! Counting a call's text exactly, within a budget.
//!
//! Invariants: no worker counts longer than [`INLINE_MAX`] bytes of text take; everything else, and everything that a
//! file's tokenizer counts, runs on threads of its own, of which [`CountingBounds`] allows few at a time and few bytes
//! together. A job holds its share of the budget until it ends, also when nobody waits for it any more.
//! When there is no room, no tokenizer yet, or one that fails: nobody waits, the count by byte classes stands, and the
//! reason is told.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tollbook_pricing::{Tokenizer, TokenizerError, Vocabulary};
use tollbook_wire::Surface;

/// Texts up to this are counted in place, bytes: less than half a millisecond.
pub const INLINE_MAX: u64 = 8 << 10;
/// Bytes of the budget that one byte takes which a file's tokenizer counts: it is that much slower.
pub const FILE_WEIGHT: usize = 10;

/// How a model's input is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CountMode {
    /// By a tokenizer, always.
    Exact,
    /// By byte classes and what was learned, always.
    Learned,
    /// Learned, and exact where a hard limit is near or denies.
    #[default]
    Auto,
}

/// How a model's input is counted, and by what.
#[derive(Clone, Debug, Default)]
pub struct Counting {
    pub mode: CountMode,
    /// The tokenizer of a configured file; without one that of the model's family, where there is one built in.
    pub file: Option<Arc<TokenizerFile>>,
}

/// A tokenizer's file: what it held when it was read, and the tokenizer as soon as it is loaded.
pub struct TokenizerFile {
    name: String,
    digest: blake3::Hash,
    /// Until the tokenizer is made.
    bytes: Mutex<Vec<u8>>,
    loaded: OnceLock<Result<Tokenizer, TokenizerError>>,
}

impl TokenizerFile {
    /// `name` stands for the file in messages.
    pub fn new(name: String, bytes: Vec<u8>) -> Self {
        Self { name, digest: blake3::hash(&bytes), bytes: Mutex::new(bytes), loaded: OnceLock::new() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Looks at the bytes; there are none once the tokenizer is made.
    pub fn with_bytes<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Of the file's bytes: the same digest, the same tokenizer.
    pub fn digest(&self) -> blake3::Hash {
        self.digest
    }

    /// Makes the tokenizer, once; tens of milliseconds per megabyte.
    ///
    /// # Errors
    /// When the file holds none.
    pub fn load(&self) -> Result<(), TokenizerError> {
        let make = || {
            let bytes = std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner));
            Tokenizer::parse(&bytes)
        };
        self.loaded.get_or_init(make).as_ref().map(drop).map_err(Clone::clone)
    }

    /// The tokenizer, where it is loaded.
    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.loaded.get()?.as_ref().ok()
    }
}

/// How the input of a call was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// By byte classes and what was learned.
    Learned,
    /// Its text by a tokenizer.
    Exact,
    /// It should have been counted exactly, but was not.
    Fallback(Fallback),
}

/// Why a text was not counted exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// The budget was used up by other calls, or the text is larger than all of it.
    Budget,
    /// The tokenizer is not loaded yet, or its file cannot be used.
    Loading,
    /// The tokenizer failed on the text.
    Failed,
}

impl Counted {
    /// For people and programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Exact => "exact",
            Self::Fallback(Fallback::Budget) => "learned: no room to count exactly",
            Self::Fallback(Fallback::Loading) => "learned: the tokenizer is not loaded",
            Self::Fallback(Fallback::Failed) => "learned: the tokenizer failed",
        }
    }
}

/// Bounds of exact counting off the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountingBounds {
    /// Counts at once.
    pub jobs_max: usize,
    /// Bytes of all of them together; a body larger than this is never counted exactly.
    pub bytes_max: usize,
}

impl Default for CountingBounds {
    fn default() -> Self {
        Self { jobs_max: 2, bytes_max: 16 << 20 }
    }
}

/// Whose tables are loaded; they stay for the life of the process.
static O200K_WARM: AtomicBool = AtomicBool::new(false);
static CL100K_WARM: AtomicBool = AtomicBool::new(false);

fn warmth(vocabulary: Vocabulary) -> &'static AtomicBool {
    match vocabulary {
        Vocabulary::O200k => &O200K_WARM,
        Vocabulary::Cl100k => &CL100K_WARM,
    }
}

/// Loads a vocabulary's tables: tens of milliseconds the first time. Until it is done nothing is counted in place.
pub fn warm(vocabulary: Vocabulary) {
    vocabulary.warm();
    warmth(vocabulary).store(true, Ordering::Release);
}

/// What counts.
#[derive(Clone, Debug)]
pub(crate) enum Counter {
    BuiltIn(Vocabulary),
    File(Arc<TokenizerFile>),
}

impl Counter {
    fn count(&self, surface: Surface, body: &[u8]) -> Option<u64> {
        let (mut sum, mut failed) = (0_u64, false);
        let mut each = |piece: &str| {
            let count = match self {
                Self::BuiltIn(vocabulary) => Some(vocabulary.count(piece)),
                Self::File(file) => file.tokenizer().and_then(|tokenizer| tokenizer.count(piece)),
            };
            failed |= count.is_none();
            sum = sum.saturating_add(count.unwrap_or(0));
        };
        tollbook_wire::visit_text(surface, body, &mut each).ok()?;
        (!failed).then_some(sum)
    }

    fn is_loaded(&self) -> bool {
        match self {
            // Its tables load with the first count, off the workers then.
            Self::BuiltIn(_) => true,
            Self::File(file) => file.tokenizer().is_some(),
        }
    }

    fn counts_in_place(&self, text: u64) -> bool {
        matches!(self, Self::BuiltIn(vocabulary) if text <= INLINE_MAX && warmth(*vocabulary).load(Ordering::Acquire))
    }

    fn weight(&self, bytes: usize) -> usize {
        match self {
            Self::BuiltIn(_) => bytes,
            Self::File(_) => bytes.saturating_mul(FILE_WEIGHT),
        }
    }
}

/// What exact counts may take of the machine, and what they take now.
#[derive(Debug)]
pub(crate) struct Budget {
    bounds: CountingBounds,
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

/// A job's share; given back when it is dropped.
struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bounds: CountingBounds) -> Arc<Self> {
        Arc::new(Self { bounds, jobs: AtomicUsize::new(0), bytes: AtomicUsize::new(0) })
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        let more = |used: usize, by: usize, most: usize| used.checked_add(by).filter(|sum| *sum <= most);
        let jobs = |used| more(used, 1, self.bounds.jobs_max);
        self.jobs.fetch_update(Ordering::AcqRel, Ordering::Acquire, jobs).ok()?;
        let sum = |used| more(used, bytes, self.bounds.bytes_max);
        if self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, sum).is_err() {
            self.jobs.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Share { budget: Arc::clone(self), bytes })
    }

    /// llm_tokens of a body's text, which has `text` bytes.
    pub(crate) async fn count(
        self: &Arc<Self>,
        counter: Counter,
        surface: Surface,
        (body, text): (&[u8], u64),
    ) -> Result<u64, Fallback> {
        if text == 0 {
            return Ok(0);
        }
        if !counter.is_loaded() {
            return Err(Fallback::Loading);
        }
        if counter.counts_in_place(text) {
            return counter.count(surface, body).ok_or(Fallback::Failed);
        }
        let share = self.take(counter.weight(body.len())).ok_or(Fallback::Budget)?;
        let body = body.to_vec();
        let counting = tokio::task::spawn_blocking(move || {
            let count = counter.count(surface, &body);
            if let Counter::BuiltIn(vocabulary) = counter {
                warm(vocabulary);
            }
            drop(share);
            count
        });
        // A panic in a tokenizer ends its job alone.
        counting.await.ok().flatten().ok_or(Fallback::Failed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.budget.jobs.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for TokenizerFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenizerFile").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_exact_at_its_bounds() {
        let budget = Budget::new(CountingBounds { jobs_max: 2, bytes_max: 100 });
        let first = budget.take(100).unwrap();
        assert!(budget.take(1).is_none(), "no byte more");
        drop(first);
        assert!(budget.take(101).is_none(), "never more than all of it");
        let (one, two) = (budget.take(1).unwrap(), budget.take(0).unwrap());
        assert!(budget.take(0).is_none(), "no job more");
        drop((one, two));
        assert_eq!((budget.jobs.load(Ordering::Acquire), budget.bytes.load(Ordering::Acquire)), (0, 0));
    }
}
