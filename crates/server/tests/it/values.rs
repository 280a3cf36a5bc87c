//! What a number of a limit and an id mean: the tables of docs/reference/values.md, in a file, by the operators' API, by
//! `tollbook apply`, and at a gateway that reads what was taken from the store.

use std::path::Path;

use serde_json::json;
use tollbook::config::load_text;

use crate::office_world::{World, chat, cli};
use crate::process::{OPERATOR, Tollbook, call};

const PAGE: &str = include_str!("../../../../docs/reference/values.md");
const HEAD: &str = "upstreams: [{ name: u, dialect: openai, base_url: http://127.0.0.1:1 }]\n\
                    models: [{ name: m, upstream: u, price: { input: 1, output: 2 } }]\n";

/// What came of a value: the ceiling in the account's unit, none, or the reason why not.
type Came = Result<Option<u64>, String>;

/// The rows of the table that has this head, cell by cell.
fn rows(head: &str) -> Vec<Vec<String>> {
    let (_, table) = PAGE.split_once(head).unwrap();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cell = |cell: &str| cell.trim().to_owned();
    let rows: Vec<Vec<String>> =
        lines.map(|line| line.trim_matches('|').split(" | ").map(cell).collect()).collect();
    assert!(rows.len() > 10, "{head}");
    rows
}

/// What a cell promises, of a limit that counts in units of `unit`.
fn promised(cell: &str, unit: u64) -> Came {
    if let Some(why) = cell.strip_prefix("refused") {
        return Err(why.trim_start_matches(": ").to_owned());
    }
    match cell {
        "no limit" => Ok(None),
        "nothing passes" => Ok(Some(0)),
        amount => {
            let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
            let nano = format!("{fraction:0<9}").parse::<u64>().unwrap();
            Ok(Some(whole.parse::<u64>().unwrap() * unit + if unit == 1 { 0 } else { nano }))
        }
    }
}

fn agrees(came: &Came, promised: &Came) -> bool {
    match (came, promised) {
        (Err(came), Err(why)) => came.contains(why.as_str()),
        _ => came == promised,
    }
}

/// The limit as JSON, which is YAML too, with the number as it is written.
fn limit(measure: &str, written: Option<&str>) -> String {
    let shape = match measure {
        "concurrency" => "",
        "cost" => r#", "period": "day""#,
        _ => r#", "window": "60s""#,
    };
    let ceiling = written.map_or(String::new(), |written| format!(r#", "ceiling": {written}"#));
    format!(r#"{{"measure": "{measure}"{shape}{ceiling}}}"#)
}

fn of_file(limit: &str) -> Came {
    let text = format!("{HEAD}tenants: [{{ id: acme, limits: [{limit}] }}]\n");
    let setup = load_text("t.yaml", &text, Path::new("/nowhere"), &|_| None).map_err(|e| e.to_string())?;
    Ok(setup.snapshot.catalog.rules().map(|(_, rule)| rule.limit.ceiling).next())
}

/// The ceiling that is in force for calls of a key.
fn in_force(gateway: &Tollbook, key: &str) -> Option<u64> {
    let told = gateway.ask("POST", "/explain", json!({"key_id": key, "model": "m"}), 200);
    told["limits"].as_array().unwrap().first().map(|line| line["ceiling"].as_u64().unwrap())
}

fn of_api(gateway: &Tollbook, limit: &str) -> Came {
    let body = format!(r#"{{"limits": [{limit}]}}"#);
    let (status, answer) = call(gateway.admin.unwrap(), "PATCH", "/admin/v1/tenants/acme", OPERATOR, &body);
    match status {
        200 => Ok(in_force(gateway, "k")),
        400 => Err(answer.to_string()),
        _ => panic!("{status} {answer}"),
    }
}

fn of_apply(gateway: &Tollbook, folder: &Path, limit: &str) -> Came {
    let file = folder.join("tenants.yaml");
    std::fs::write(&file, format!("tenants: [{{ id: acme, limits: [{limit}] }}]\n")).unwrap();
    match cli(gateway, &["apply", "-f", file.to_str().unwrap()]) {
        (0, ..) => Ok(in_force(gateway, "k")),
        (_, _, told) => Err(told),
    }
}

#[test]
fn b223_a_ceiling_means_one_thing_wherever_it_is_written() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.with_key();
    let (mut wrong, mut stored) = (Vec::new(), Vec::new());
    for (number, row) in
        rows("| written | `requests`, llm_tokens, `concurrency` | `cost` |\n").iter().enumerate()
    {
        let [written, calls, cost] = &row[..] else { panic!("{row:?}") };
        let written = (written != "absent").then(|| written.trim_matches('`'));
        for (measure, cell, unit) in [
            ("requests", calls, 1),
            ("tokens", calls, 1),
            ("concurrency", calls, 1),
            ("cost", cost, 1_000_000_000),
        ] {
            let (limit, promised) = (limit(measure, written), promised(cell, unit));
            let mut look = |way: &str, came: Came| {
                if !agrees(&came, &promised) {
                    wrong.push(format!("{way}: {limit}: {promised:?}, and came {came:?}"));
                }
            };
            look("file", of_file(&limit));
            look("api", of_api(&gateway, &limit));
            if !matches!(measure, "requests" | "cost") {
                continue;
            }
            look("apply", of_apply(&gateway, world.folder.path(), &limit));
            if let Ok(ceiling) = promised {
                let (tenant, key) = (format!("t-{number}-{measure}"), format!("k-{number}-{measure}"));
                let body = format!(r#"{{"id": "{tenant}", "limits": [{limit}]}}"#);
                let (status, answer) =
                    call(gateway.admin.unwrap(), "POST", "/admin/v1/tenants", OPERATOR, &body);
                assert_eq!(status, 201, "{answer}");
                gateway.ask("POST", &format!("/tenants/{tenant}/projects"), json!({"id": "p"}), 201);
                gateway.ask("POST", &format!("/tenants/{tenant}/projects/p/keys"), json!({"id": key}), 201);
                stored.push((key, limit, ceiling));
            }
        }
    }
    // It has nothing but what the store says.
    let other = world.start("b");
    for (key, limit, ceiling) in stored {
        let came = in_force(&other, &key);
        if came != ceiling {
            wrong.push(format!("store: {limit}: {ceiling:?}, and came {came:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An id of the table: in quotes as it is, or a description of one.
fn id_of(written: &str) -> String {
    match written {
        "no character" => String::new(),
        "64 bytes" => "x".repeat(64),
        "64 bytes of two each" => "é".repeat(32),
        "65 bytes" => "x".repeat(65),
        "1 KiB" => "x".repeat(1024),
        "a line feed" => "a\nb".to_owned(),
        "an escape" => "a\u{1b}b".to_owned(),
        quoted => quoted.trim_matches('`').to_owned(),
    }
}

#[test]
fn an_id_is_taken_or_refused_wherever_it_is_written() {
    let world = World::new();
    let gateway = world.start("a");
    let (mut wrong, mut stored) = (Vec::new(), Vec::new());
    for row in rows("| id | |\n") {
        let [written, cell] = &row[..] else { panic!("{row:?}") };
        let (id, why) = (id_of(written), cell.strip_prefix("refused: "));
        let quoted = json!(id).to_string();
        let mut look = |way: &str, came: Result<(), String>| {
            let agrees = match (&came, why) {
                (Err(came), Some(why)) => came.contains(why),
                (Ok(()), None) => true,
                _ => false,
            };
            if !agrees {
                wrong.push(format!("{way}: {written}: {cell}, and came {came:?}"));
            }
        };
        let file = format!("{HEAD}tenants: [{{ id: {quoted} }}]\n");
        let loaded = load_text("t.yaml", &file, Path::new("/nowhere"), &|_| None);
        look("file", loaded.map(|_| ()).map_err(|error| error.to_string()));
        let body = json!({"id": id});
        let (status, answer) = gateway.operators("POST", "/admin/v1/tenants", &body);
        look("api", if status == 201 { Ok(()) } else { Err(answer.to_string()) });
        let tenants = world.folder.path().join("tenants.yaml");
        std::fs::write(&tenants, format!("tenants: [{{ id: {quoted} }}]\n")).unwrap();
        let (code, _, told) = cli(&gateway, &["apply", "-f", tenants.to_str().unwrap()]);
        look("apply", if code == 0 { Ok(()) } else { Err(told) });
        if status == 201 {
            // It can be named in a path, and calls pass.
            let path = id.bytes().fold(String::new(), |path, byte| format!("{path}%{byte:02X}"));
            gateway.ask("POST", &format!("/tenants/{path}/projects"), json!({"id": id}), 201);
            let keys = format!("/tenants/{path}/projects/{path}/keys");
            let key = gateway.ask("POST", &keys, json!({"id": id}), 201);
            let secret = key["secret"].as_str().unwrap().to_owned();
            assert_eq!(gateway.chat(&secret, &chat()).0, 200, "{written}");
            stored.push((written.clone(), secret));
        }
    }
    let other = world.start("b");
    for (written, secret) in stored {
        assert_eq!(other.chat(&secret, &chat()).0, 200, "{written}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
