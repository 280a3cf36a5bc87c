//! `tollbook reconcile` from outside: the providers' files beside a journal, and which files it refuses.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use tollbook_ledger::units::SECOND;
use tollbook_store::{Entry, Name};

use crate::journal::{NOON, World, call, text, tollbook};

const DAY: u64 = 86_400 * SECOND;

/// One call of 100 + 20 llm_tokens on each of two days to `small` of the account `u`, and one of another account.
fn calls() -> Vec<Entry> {
    let of = |id, day: u64, tenant: &str, pool: &str| {
        let mut entry = call(id, 0);
        (entry.admitted_at, entry.ended_at) = (NOON + day * DAY, NOON + day * DAY + SECOND);
        (entry.body.tenant, entry.body.pool) = (Name::from(tenant), Name::from(pool));
        entry.body.usage.cached = 40;
        entry.body.cost_nano = 1_500_000_000;
        entry
    };
    vec![of(1, 0, "acme", "u/small"), of(2, 1, "beta", "u/small"), of(3, 0, "acme", "v/small")]
}

fn reconcile(world: &World, files: &[&str], more: &[&str]) -> Output {
    let mut arguments = vec!["reconcile".to_owned(), "-c".to_owned(), world.config.clone()];
    for (at, content) in files.iter().enumerate() {
        let file = world.file(&format!("usage-{at}"));
        fs::write(&file, content).unwrap();
        arguments.push(file.to_str().unwrap().to_owned());
    }
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
    tollbook(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn told(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

fn good(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn openais_export_agrees_with_what_it_billed() {
    let world = World::new(&calls());
    let csv = "start_time,end_time,start_time_iso,model,num_model_requests,input_tokens,output_tokens,input_cached_tokens,mood\n\
               1772323200,,2026-03-01T00:00:00+00:00,small-2025-01-01,1,100,20,40,\n\
               1772409600,,2026-03-02T00:00:00+00:00,small-2025-01-01,1,60,15,40,\n\
               1772409600,,2026-03-02T00:00:00+00:00,small,0,40,5,0,\n";
    let output = reconcile(&world, &[csv], &["--upstream", "u"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), ""), "{}", text(&output.stderr));
    let want = "compared 8 amounts from 2026-03-01 to 2026-03-02; error rate of llm_tokens 0.00 %\n";
    assert!(text(&output.stderr).ends_with(want), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("taken as openai; not looked at: mood\n"));
    // The same as two pages.
    let result = json!({"object": "organization.usage.completions.result", "model": "small", "num_model_requests": 1, "input_tokens": 100, "output_tokens": 20, "input_cached_tokens": 40});
    let page = |start: u64, has_more| {
        let bucket = json!({"object": "bucket", "start_time": start, "end_time": start + 86_400, "results": [result.clone()]});
        json!({"object": "page", "has_more": has_more, "data": [bucket]}).to_string()
    };
    let (first, second) = (page(1_772_323_200, true), page(1_772_409_600, false));
    let output = reconcile(&world, &[&first, &second], &["--upstream", "u", "--json"]);
    good(&output);
    assert_eq!((&told(&output)["compared"], &told(&output)["error_rate"]), (&json!(8), &json!("0")));
    for (files, want) in [
        (&[first.as_str()][..], "is a page that another one follows"),
        (&[&second, &second], "has the same content"),
    ] {
        let output = reconcile(&world, files, &["--upstream", "u"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(want), "{}", text(&output.stderr));
    }
}

#[test]
fn anthropics_export_adds_up_its_parts_of_input() {
    let world = World::new(&calls());
    let csv = "usage_date_utc,model_version,api_key,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,\
               usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens,web_search_count\n\
               2026-03-01,small-20250101,k,50,6,4,40,20,0\n2026-03-02,small-20250101,k,60,0,0,40,20,0\n";
    let output = reconcile(&world, &[csv], &["--upstream", "u", "--json", "--all"]);
    good(&output);
    let differences = told(&output)["differences"].clone();
    assert_eq!(
        differences[0],
        json!({"day": "2026-03-01", "tenant": null, "upstream": "u", "model": "small", "measure": "input",
            "provider": 100, "journal": 100, "difference": 0, "above": false})
    );
    assert_eq!(differences.as_array().unwrap().len(), 6);
    let result = json!({"model": "small", "uncached_input_tokens": 50, "cache_read_input_tokens": 40, "output_tokens": 20,
        "cache_creation": {"ephemeral_1h_input_tokens": 4, "ephemeral_5m_input_tokens": 6}, "server_tool_use": {"web_search_requests": 0}});
    let page = json!({"data": [{"starting_at": "2026-03-01T00:00:00Z", "ending_at": "2026-03-02T00:00:00Z", "results": [result]}]});
    good(&reconcile(&world, &[&page.to_string()], &["--upstream", "u"]));
}

/// Own columns: tenants by the configured model, upstreams by theirs, and the report beside the journal it is of.
#[test]
fn own_columns_tell_tenants_and_upstreams() {
    let world = World::new(&calls());
    let csv = "date,tenant,pool,model,requests,cost\n2026-03-01,acme,,small,2,3\n2026-03-01,,u/small,,1,1.5\n\
               2026-03-01,acme,v,small,1,1.5\n2026-03-02,beta,,small,1,1.5\n2026-03-02,,u,small,1,1.5\n";
    let output = reconcile(&world, &[csv], &["--tolerance", "0"]);
    good(&output);
    let report = tollbook(&["report", "-c", &world.config, "--by", "day,tenant,pool,model", "--csv"]);
    let output = reconcile(&world, &[text(&report.stdout)], &["--tolerance", "0", "--json"]);
    good(&output);
    assert_eq!(told(&output)["compared"], json!(15));
}

#[test]
fn differences_above_the_tolerance_are_told_and_the_exit_code_is_three() {
    let world = World::new(&calls());
    let csv = "day,name,in,out,usd\n2026-03-01,Small One,110,20,1.5\n2026-03-02,Small One,104,20,1.5\n2026-03-02,other,7,0,0\n";
    let columns = [
        "--upstream",
        "u",
        "--columns",
        "day=day,model=name,input=in,output=out,cost=usd",
        "--model",
        "Small One=small",
    ];
    let output = reconcile(&world, &[csv], &columns);
    assert_eq!(output.status.code(), Some(3));
    let rows: Vec<Vec<&str>> =
        text(&output.stdout).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            vec!["day", "tenant", "upstream", "model", "measure", "provider", "journal", "differs"],
            vec!["2026-03-01", "-", "u", "small", "input", "110", "100", "9.09", "%"],
            vec!["2026-03-02", "-", "u", "other", "input", "7", "missing", "100.00", "%"],
        ]
    );
    assert_eq!(
        text(&output.stderr),
        "compared 9 amounts from 2026-03-01 to 2026-03-02; error rate of llm_tokens 8.04 %\n\
         tollbook reconcile: 2 of 9 amounts differ by more than 5 %\n"
    );
    let with = |more: &[&str]| reconcile(&world, &[csv], &[&columns[..], more].concat());
    // What is missing is never within a tolerance.
    let wide = with(&["--tolerance", "100", "--csv"]);
    assert_eq!(
        (wide.status.code(), text(&wide.stdout)),
        (
            Some(3),
            "day,tenant,upstream,model,measure,provider,journal,difference,above\n2026-03-02,,u,other,input,7,,7,true\n"
        )
    );
    assert_eq!(with(&["--tolerance", "10", "--to", "2026-03-01"]).status.code(), Some(0));
    // A day that the file does not have is missing there.
    let more = with(&["--tolerance", "10", "--from", "2026-02-27", "--to", "2026-03-01", "--all", "--json"]);
    assert_eq!((more.status.code(), &told(&more)["from"]), (Some(0), &json!("2026-02-27")));
    let narrow = with(&["--tolerance", "0", "--json"]);
    assert_eq!(
        (narrow.status.code(), &told(&narrow)["above"], &told(&narrow)["error_rate"]),
        (Some(3), &json!(3), &json!("0.080459"))
    );
    // Of one tenant the journal has half.
    let one = with(&["--tenant", "acme", "--json"]);
    let missing = told(&one)["differences"].as_array().unwrap().clone();
    let missing = missing.iter().filter(|d| d["day"] == "2026-03-02" && d["journal"].is_null()).count();
    assert_eq!(missing, 4);
}

#[test]
fn what_the_journal_alone_has_is_a_difference() {
    let world = World::new(&calls());
    let csv = "date,pool,model,input\n2026-03-01,u,small,100\n";
    good(&reconcile(&world, &[csv], &[]));
    let output = reconcile(&world, &[csv], &["--to", "2026-03-02", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let differences = told(&output)["differences"].clone();
    assert_eq!(
        differences,
        json!([{"day": "2026-03-02", "tenant": null, "upstream": "u", "model": "small", "measure": "input",
            "provider": null, "journal": 100, "difference": -100, "above": true}])
    );
}

#[test]
fn a_broken_file_or_command_line_is_two_and_names_the_line() {
    let world = World::new(&calls());
    let upstream = ["--upstream", "u"];
    for (content, more, want) in [
        ("", &upstream[..], ":1:1: has no rows"),
        ("model,input_tokens\nsmall,1\n", &upstream, ":2:1: is in no known format"),
        (
            "start_time,model,input_tokens\n1772323200,small,1\n1772323200,small,-1\n1772323200,small,x\n",
            &upstream,
            ":4:1: input_tokens: `x` is not a decimal number",
        ),
        ("start_time,model\n1772323200,small\n", &upstream, ":2:1: has none of the columns"),
        ("start_time,model\n1772323200\n", &upstream, ":2:1: has 1 fields, the first line 2"),
        ("date,model,input\n2026-03-01,small,1\n", &[], ":2:1: does not say whose calls these are"),
        ("{\"data\": [1]}", &upstream, "must be an object"),
        ("{\"data\": 1}", &upstream, "must be a list of objects"),
        ("a\n1\n", &["--columns", "day=a"], "something to compare must be named"),
        ("a\n1\n", &["--tolerance", "five"], "--tolerance"),
        ("a\n1\n", &["--model", "x"], "`x` is not as THEIRS=OURS"),
        ("date,tenant,model,cost\n2026-03-01,a,m,1\n", &["--to", "2026-02-01"], "there is no day to compare"),
        ("a\n1\n", &["--csv", "--json"], "--json"),
    ] {
        let output = reconcile(&world, &[content], more);
        let (code, told) = (output.status.code(), text(&output.stderr));
        assert_eq!((code, text(&output.stdout)), (Some(2), ""), "{content}: {told}");
        assert!(told.contains(want), "{content}: {told}");
    }
    let good = "date,tenant,model,cost\n2026-03-01,acme,small,3\n";
    let output = reconcile(&World::without_journal(), &[good], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no journal at"), "{}", text(&output.stderr));
}
