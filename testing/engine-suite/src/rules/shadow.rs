//! L17: limits that only watch.

use tollbook_engine::ledger::Met;

use crate::harness::Factory;
use crate::legs::{S, call, rpm, tpm};
use crate::table::{Do, Want, check, settle};

pub fn l17_a_shadow_limit_only_watches(factory: Factory) {
    let leg = || rpm("k:rpm", 1).shadow();
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg()])), Want::Admit),
            (0, Do::Reserve(call(2, [leg()])), Want::Admit),
            (0, Do::Reserve(call(3, [leg()])), Want::Admit),
            (0, Do::Balance("k:rpm"), Want::Shadow(3, 0, 2, 2)),
            // A denial by others leaves no trace in it.
            (0, Do::Reserve(call(4, [leg(), rpm("k:zero", 0)])), Want::TooLarge(1)),
            (0, Do::Balance("k:rpm"), Want::Shadow(3, 0, 2, 2)),
        ],
    );
}

pub fn l17_a_shadow_limit_never_binds_beside_an_enforced_one(factory: Factory) {
    let leg = || tpm("k:tpm", 100, 60).also(10).shadow();
    check(
        factory,
        vec![
            (0, Do::Reserve(call(1, [leg()])), Want::Holds(vec![60])),
            (0, Do::Balance("k:tpm"), Want::Shadow(0, 60, 1, 60)),
            (0, settle(1, [60]), Want::Met(Met::Held)),
            (0, Do::Reserve(call(2, [leg()])), Want::Firm(0, 61 * S)),
            (0, Do::Balance("k:tpm"), Want::Shadow(60, 0, 1, 60)),
        ],
    );
}
