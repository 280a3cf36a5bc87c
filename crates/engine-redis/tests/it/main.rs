//! The engine against real servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]

mod cache;
mod cases;
mod corrupt;
mod drift;
mod harness;
mod link;
mod lost;
mod quick;
mod restored;

/// The suite on Redis.
mod redis {
    use crate::harness::redis;
    tollbook_engine_suite::engine_suite!(redis);

    mod cache {
        use crate::cache::redis;
        tollbook_store_suite::cache_suite!(redis);
    }
}

/// The suite on three nodes.
mod cluster {
    use crate::harness::cluster;
    tollbook_engine_suite::engine_suite!(together cluster);

    mod cache {
        use crate::cache::cluster;
        tollbook_store_suite::cache_suite!(together cluster);
    }
}

/// The suite on Valkey.
mod valkey {
    use crate::harness::valkey;
    tollbook_engine_suite::engine_suite!(valkey);

    mod cache {
        use crate::cache::valkey;
        tollbook_store_suite::cache_suite!(together valkey);
    }
}
