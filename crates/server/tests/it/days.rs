//! What the commands say of days whose entries have gone from the journal: clear words, and no sum of what is left.

use tollbook_ledger::ReservationId;
use tollbook_ledger::units::SECOND;
use tollbook_store::{Entry, JournalDays as _};
use tollbook_store_sql::SqlStore;

use crate::journal::{NOON, World, call, text, tollbook};

const DAY: u64 = 86_400 * SECOND;

/// Calls of 2026-03-01, 2026-03-02, 2026-04-10 and 2026-04-11.
fn entries() -> Vec<Entry> {
    let of = |id, day: u64| {
        let (admitted_at, ended_at) = (NOON + day * DAY, NOON + day * DAY + SECOND);
        Entry { reservation: ReservationId(id), admitted_at, ended_at, ..call(id, 0) }
    };
    vec![of(1, 0), of(2, 1), of(3, 40), of(4, 41)]
}

fn change(world: &World, statement: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqlStore::open(&world.file("data/journal.sqlite")).await.unwrap();
        store.day_begins().await.unwrap();
        store.change(statement).await.unwrap();
        while store.let_go(35).await.unwrap().more {}
        store.close().await;
    });
}

fn run(world: &World, words: &[&str]) -> (Option<i32>, String, String) {
    let (command, rest) = words.split_at(if words[0] == "journal" { 2 } else { 1 });
    let output = tollbook(&[command, &["-c", &world.config], rest].concat());
    (output.status.code(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
}

#[test]
fn days_are_shown_with_what_becomes_of_them() {
    let world = World::new(&entries());
    let (code, out, _) = run(&world, &["journal", "days"]);
    assert_eq!(code, Some(0));
    let lines: Vec<_> =
        out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "day entries state",
            "2026-03-01 1 kept",
            "2026-03-02 1 kept",
            "2026-04-10 1 kept",
            "2026-04-11 1 kept"
        ]
    );
    let (_, out, _) = run(&world, &["journal", "days", "--keep-days", "35", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    let states: Vec<_> =
        told["days"].as_array().unwrap().iter().map(|day| day["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["waits", "waits", "kept", "kept"], "written today");
    assert_eq!(run(&world, &["journal", "days", "--keep-days", "34"]).0, Some(2));
}

#[test]
fn no_command_sums_what_is_left_of_days_that_have_gone() {
    let world = World::new(&entries());
    let (_, whole, _) = run(&world, &["report", "--by", "day", "--csv"]);
    change(&world, "UPDATE journal_day SET day = day - 8");
    let gone = "calls of days before 2026-03-08 are no longer all in the journal (`journal_keep_days`)";
    // 2026-04-11 less 35 days, and one more for a clock that stepped back.
    let (code, out, err) = run(&world, &["journal", "days"]);
    assert_eq!((code, out.lines().count()), (Some(0), 3), "{out}");
    assert!(err.contains(gone), "{err}");
    assert_eq!(
        run(&world, &["report", "--by", "day", "--csv"]),
        (Some(0), whole, String::new()),
        "totals stay"
    );
    let (code, out, err) = run(&world, &["report", "--by", "key", "--csv"]);
    assert_eq!((code, out.lines().nth(1).unwrap().starts_with("web-1,2,")), (Some(0), true), "{out}");
    assert!(err.contains(gone), "{err}");
    let (code, out, err) = run(&world, &["report", "--by", "key", "--from", "2026-03-02"]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains(gone) && err.contains("day, tenant, model and pool"), "{err}");
    assert_eq!(run(&world, &["report", "--by", "key", "--from", "2026-03-08"]).0, Some(0));
    let (code, out, err) = run(&world, &["journal", "export"]);
    assert_eq!((code, out.lines().count()), (Some(0), 3), "{out}");
    assert!(err.contains(gone), "{err}");
    let (code, _, err) = run(&world, &["journal", "export", "--since", "2026-03-07"]);
    assert!(code == Some(1) && err.contains(gone), "{err}");
}

#[test]
fn fewer_days_than_a_month_needs_are_a_mistake() {
    let world = World::new(&entries());
    let written = std::fs::read_to_string(&world.config).unwrap();
    for (days, want) in [
        ("34", Some("must be at least 35: a quota that is added")),
        ("35", None),
        ("4001", Some("at most 4000")),
    ] {
        std::fs::write(&world.config, format!("journal_keep_days: {days}\nmodels: []\n{written}")).unwrap();
        for (words, env) in [(&["journal", "days"][..], ""), (&["check"][..], "x")] {
            let (command, rest) = (words, ["-c", &world.config]);
            let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_tollbook"));
            let output =
                run.args(command).args(rest).env_clear().env("NOT_SET_ANYWHERE", env).output().unwrap();
            let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
            match want {
                Some(want) => assert!(output.status.code() == Some(2) && told.contains(want), "{told}"),
                None => assert!(!told.contains("journal_keep_days"), "{told}"),
            }
        }
    }
}
