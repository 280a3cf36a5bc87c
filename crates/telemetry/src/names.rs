//! Labels whose values come from the configuration: models and pools.
//!
//! Invariant: a name gets a number once and keeps it until the process ends, so handles and series stay right over
//! reloads. Past the bound, and for any name that was not configured, the label is `other`.

use std::sync::{Arc, PoisonError, RwLock};

use crate::labels::Label;

/// Most models that have a label of their own.
pub const MODELS_MAX: usize = 64;
/// Most pools that have a label of their own.
pub const POOLS_MAX: usize = 64;

const OTHER: &str = "other";

/// A label over configured names.
pub trait NameLabel: Label {
    /// Not configured, or past the bound.
    const OTHER: Self;
    #[doc(hidden)]
    fn numbered(index: usize) -> Self;
    #[doc(hidden)]
    fn list(names: &Names) -> &RwLock<Vec<Arc<str>>>;
}

/// Names that were configured so far.
#[derive(Debug, Default)]
pub struct Names {
    models: RwLock<Vec<Arc<str>>>,
    pools: RwLock<Vec<Arc<str>>>,
}

impl Names {
    /// Gives a configured name its number.
    pub(crate) fn define<L: NameLabel>(&self, name: &str) -> L {
        let mut list = L::list(self).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = position(&list, name) {
            return L::numbered(index);
        }
        if list.len() + 1 >= L::SIZE || name == OTHER {
            return L::OTHER;
        }
        list.push(Arc::from(name));
        L::numbered(list.len() - 1)
    }

    /// The label of a name; `other` unless it was defined.
    pub(crate) fn find<L: NameLabel>(&self, name: &str) -> L {
        let list = L::list(self).read().unwrap_or_else(PoisonError::into_inner);
        position(&list, name).map_or(L::OTHER, L::numbered)
    }

    fn text<L: NameLabel>(&self, label: L) -> Arc<str> {
        let list = L::list(self).read().unwrap_or_else(PoisonError::into_inner);
        list.get(label.index()).map_or_else(|| Arc::from(OTHER), Arc::clone)
    }
}

fn position(list: &[Arc<str>], name: &str) -> Option<usize> {
    list.iter().position(|n| **n == *name)
}

/// Defines a label over configured names.
macro_rules! name_labels {
    ($( $(#[$doc:meta])* $kind:ident $name:literal $field:ident $max:ident )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $kind(u16);

        impl NameLabel for $kind {
            #[allow(clippy::cast_possible_truncation, reason = "the bound is far below 65536")]
            const OTHER: Self = Self($max as u16);

            fn numbered(index: usize) -> Self {
                u16::try_from(index).ok().filter(|i| *i < Self::OTHER.0).map_or(Self::OTHER, Self)
            }

            fn list(names: &Names) -> &RwLock<Vec<Arc<str>>> {
                &names.$field
            }
        }

        impl Label for $kind {
            const NAME: &'static str = $name;
            const SIZE: usize = $max + 1;

            fn index(self) -> usize {
                usize::from(self.0)
            }

            fn value(self, names: &Names) -> Arc<str> {
                names.text(self)
            }

            fn values() -> String {
                format!("configured names, at most {}, then {OTHER}", $max)
            }
        }
    )+ };
}

name_labels! {
    /// A configured model.
    ModelLabel "model" models MODELS_MAX
    /// A configured pool.
    PoolLabel "pool" pools POOLS_MAX
}
