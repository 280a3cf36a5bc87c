//! `tollbook report` from outside: what it sums, in which form, and which command lines it refuses.

use std::process::Output;

use serde_json::{Value, json};
use tollbook_ledger::units::SECOND;
use tollbook_store::{Entry, Name};

use crate::journal::{NOON, World, call, mixed, text, tollbook};

const DAY: u64 = 86_400 * SECOND;

fn report(world: &World, more: &[&str]) -> Output {
    tollbook(&[&["report", "-c", &world.config], more].concat())
}

fn good(world: &World, more: &[&str]) -> String {
    let output = report(world, more);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// Two tenants, two keys, two days; the third call is corrected on a later day.
fn calls() -> Vec<Entry> {
    let with = |id, day: u64, tenant: &str, key: &str, cost_nano: i64| {
        let mut entry = call(id, 0);
        (entry.admitted_at, entry.ended_at) = (NOON + day * DAY, NOON + day * DAY + SECOND);
        (entry.body.tenant, entry.body.key, entry.body.cost_nano) =
            (Name::from(tenant), Name::from(key), cost_nano);
        entry.body.project = Name::from("p");
        entry
    };
    let mut corrected = with(3, 1, "beta", "k,2", -250_000_001);
    (corrected.seq, corrected.requests, corrected.ended_at) = (1, 0, NOON + 5 * DAY);
    (corrected.body.usage.input, corrected.body.usage.output) = (-40, 0);
    vec![
        with(1, 0, "acme", "k1", 1_500_000_000),
        with(2, 1, "acme", "k1", 2_000_000_000),
        with(3, 1, "beta", "k,2", 1_000_000_000),
        corrected,
    ]
}

#[test]
fn rows_are_summed_by_what_is_asked_for() {
    let world = World::new(&calls());
    let want = "\
tenant  model  requests  input  cached  output  cost
acme    small         2    200       0      40  3.50
beta    small         1     60       0      20  0.749999999
total                 3    260       0      60  4.249999999
";
    let squeeze = |text: &str| {
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(squeeze(&good(&world, &[])), squeeze(want));
    let csv = good(&world, &["--by", "day,key", "--csv"]);
    let want = "\
day,key,requests,input,cached,cache_write,cache_write_1h,image_input,audio_input,output,reasoning,audio_output,web_searches,cost
2026-03-01,k1,1,100,0,0,0,0,0,20,0,0,0,1.5
2026-03-02,\"k,2\",1,60,0,0,0,0,0,20,0,0,0,0.749999999
2026-03-02,k1,1,100,0,0,0,0,0,20,0,0,0,2
";
    assert_eq!(csv, want);
    // The correction was written five days later and counts for the day of its call.
    for by in ["day", "day,project"] {
        let told: Value = serde_json::from_str(&good(
            &world,
            &["--by", by, "--from", "2026-03-02", "--to", "2026-03-02", "--json"],
        ))
        .unwrap();
        assert_eq!(told["rows"].as_array().unwrap().len(), 1, "{by}");
        assert_eq!(told["total"]["cost"], json!("2.749999999"), "{by}");
        assert_eq!(
            (&told["total"]["llm_tokens"], &told["total"]["requests"]),
            (&json!(200), &json!(2)),
            "{by}"
        );
        assert_eq!((&told["from"], &told["to"]), (&json!("2026-03-02"), &json!("2026-03-02")));
    }
}

#[test]
fn tenants_and_models_choose_rows_and_no_row_is_no_failure() {
    let world = World::new(&mixed());
    for by in ["tenant", "tenant,key"] {
        let told = |more: &[&str]| {
            let arguments = [&["--by", by, "--json"], more].concat();
            serde_json::from_str::<Value>(&good(&world, &arguments)).unwrap()
        };
        // Unbooked entries and the pool's side are in no row.
        assert_eq!(
            told(&[])["total"]["requests"],
            told(&["--from", "2026-03-01", "--to", "2026-03-01"])["total"]["requests"]
        );
        assert_eq!(told(&["--tenant", "beta"])["rows"].as_array().unwrap().len(), 1);
        assert_eq!(told(&["--model", "large"])["rows"][0]["tenant"], "beta");
        assert_eq!(told(&["--tenant", "nobody"])["rows"], json!([]));
        assert_eq!(told(&["--to", "2026-02-28"])["total"]["requests"], 0);
    }
    let whole: Value = serde_json::from_str(&good(&world, &["--by", "model", "--json"])).unwrap();
    let keys: Value = serde_json::from_str(&good(&world, &["--by", "key", "--json"])).unwrap();
    assert_eq!(whole["total"], keys["total"]);
}

#[test]
fn a_wrong_command_line_is_two_and_a_failure_is_one() {
    let world = World::new(&calls());
    for (arguments, want) in [
        (&["--by", "colour"][..], "colour"),
        (&["--from", "2026-03-02", "--to", "2026-03-01"], "--from must not be after --to"),
        (&["--csv", "--json"], "--json"),
    ] {
        let output = report(&world, arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{arguments:?}");
        assert!(text(&output.stderr).contains(want), "{arguments:?}: {}", text(&output.stderr));
    }
    let to = world.file("r.csv");
    let output = report(&world, &["--csv", "-o", to.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), ""));
    assert_eq!(std::fs::read_to_string(&to).unwrap(), good(&world, &["--csv"]));
    let output = report(&World::without_journal(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).starts_with("tollbook: there is no journal at "),
        "{}",
        text(&output.stderr)
    );
}
