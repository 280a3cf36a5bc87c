//! Integration tests of the ledger.
