//! Decided effects, as the log keeps them.
