//! The soak, short: two hundred streams for twenty seconds. The long one is `cargo xtask soak`.

use tollbook_e2e::random::seed;
use tollbook_e2e::soak::{self, Plan};

#[test]
fn streams_that_come_and_go_leave_nothing_behind() {
    let report = soak::run(Plan::short(seed(1)), |_| ());
    println!("{report}");
    assert!(report.faults.is_empty(), "{report}");
    // What is drawn is really drawn.
    for figures in ["reported", "partial"] {
        assert!(report.tally.figures.get(figures).is_some_and(|count| *count > 20), "{report}");
    }
    for ending in ["complete", "client_gone", "timeout", "reset"] {
        assert!(report.tally.endings.get(ending).is_some_and(|count| *count > 2), "{report}");
    }
}
