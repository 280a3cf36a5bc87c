//! `tollbook reconcile` with a gateway that runs: over calls it made, and posting what is missing.

use std::fs;
use std::io::Read as _;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use tollbook::demo::provider::Provider;
use tollbook_ledger::ReservationId;
use tollbook_store::{Entry, Journal as _, Name, Origin};
use tollbook_store_sql::SqlStore;

use crate::journal::{NOON, call, text};
use crate::process::{OPERATOR, Tollbook, command, send, until};

struct World {
    runtime: tokio::runtime::Runtime,
    provider: Provider,
    folder: tempfile::TempDir,
}

impl World {
    fn new(entries: &[Entry]) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let provider = runtime.block_on(Provider::start(Duration::ZERO)).unwrap();
        let world = Self { runtime, provider, folder: tempfile::tempdir().unwrap() };
        fs::create_dir(world.folder.path().join("data")).unwrap();
        world.runtime.block_on(async {
            let store = SqlStore::open(&world.folder.path().join("data/journal.sqlite")).await.unwrap();
            store.append(entries).await.unwrap();
            store.close().await;
        });
        world
    }

    fn config(&self) -> String {
        let addr = self.provider.addr;
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0, api_key: {OPERATOR} }}\nlog: {{ level: warn }}\n\
             data_dir: data\n\
             upstreams: [{{ name: u, dialect: openai, base_url: http://{addr}/v1 }}]\n\
             models: [{{ name: small, upstream: u, upstream_model: there, output: {{ default: 50 }}, price: {{ input: 1, output: 2 }} }}]\n\
             tenants:\n  - id: acme\n    \
             limits: [{{ name: life, measure: tokens, period: lifetime, ceiling: 100000 }}, {{ name: today, measure: tokens, period: day, ceiling: 100000 }}]\n    \
             projects: [{{ id: p, keys: [{{ id: k, secret: secret }}] }}]\n"
        );
        let path = self.folder.path().join("t.yaml");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn start(&self) -> Tollbook {
        Tollbook::start(&["serve", "-c", &self.config()], self.folder.path())
    }

    fn reconcile(&self, gateway: &Tollbook, file: Option<&str>, more: &[&str]) -> Output {
        let admin = format!("http://{}", gateway.admin.unwrap());
        let config = self.config();
        let mut arguments = vec!["reconcile", "-c", &config, "--admin", &admin];
        let path = self.folder.path().join("usage.csv");
        if let Some(content) = file {
            fs::write(&path, content).unwrap();
            arguments.push(path.to_str().unwrap());
        }
        arguments.extend(more);
        command(&arguments).env("TOLLBOOK_ADMIN_KEY", OPERATOR).output().unwrap()
    }
}

fn told(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

/// A call of March, to the account that is there.
fn earlier(id: u128, tenant: &str) -> Entry {
    let mut entry = call(id, 0);
    (entry.body.tenant, entry.body.pool) = (Name::from(tenant), Name::from("u/there"));
    entry
}

#[test]
fn calls_that_were_made_are_what_the_provider_counted() {
    let world = World::new(&[]);
    let gateway = world.start();
    let chat = json!({"model": "small", "messages": [{"role": "user", "content": "hi"}]});
    let mut usage = (0, 0);
    for _ in 0..3 {
        let (status, answer) = gateway.chat("secret", &chat);
        assert_eq!(status, 200, "{answer}");
        let count = |name: &str| answer["usage"][name].as_u64().unwrap();
        usage = (usage.0 + count("prompt_tokens"), usage.1 + count("completion_tokens"));
    }
    let day = {
        let report = || {
            let output =
                command(&["report", "-c", &world.config(), "--by", "day", "--json"]).output().unwrap();
            let told: Value = serde_json::from_slice(&output.stdout).ok()?;
            (told["total"]["requests"] == 3).then(|| told["rows"].clone())
        };
        until("the journal has the calls", report)
    };
    // A test that runs over midnight has two days; then there is nothing to say.
    if day.as_array().unwrap().len() == 1 {
        let day = day[0]["day"].as_str().unwrap();
        let file = |input: u64| {
            format!(
                "start_time_iso,model,num_model_requests,input_tokens,output_tokens\n{day},there-2026-01-01,3,{input},{}\n",
                usage.1
            )
        };
        let same = world.reconcile(&gateway, Some(&file(usage.0)), &["--upstream", "u", "--tolerance", "0"]);
        assert_eq!(told(&same).0, Some(0), "{}", told(&same).1);
        let other = world.reconcile(&gateway, Some(&file(usage.0 * 2)), &["--upstream", "u"]);
        assert_eq!(told(&other).0, Some(3), "{}", told(&other).1);
        // The day is not over: nothing is posted yet.
        let early = world.reconcile(&gateway, Some(&file(usage.0 * 2)), &["--upstream", "u", "--post"]);
        assert_eq!(told(&early).0, Some(1));
        assert!(told(&early).1.contains("is not over"), "{}", told(&early).1);
    }
    gateway.stop();
}

#[test]
fn what_is_missing_is_posted_once_and_counts() {
    let world = World::new(&[earlier(1, "acme"), earlier(2, "acme")]);
    let gateway = world.start();
    let life = |gateway: &Tollbook| gateway.limit("life")["posted"].as_i64().unwrap();
    until("the quota starts from the journal", || (life(&gateway) == 240).then_some(()));
    // One call more.
    let file = "date,tenant,pool,model,requests,input,output\n2026-03-01,acme,,small,3,300,60\n";
    let output = world.reconcile(&gateway, Some(file), &["--post"]);
    assert_eq!(told(&output).0, Some(0), "{}", told(&output).1);
    assert!(told(&output).1.contains("3 of 3 amounts differ by more than 5 %; posted 1 of 1 rows\n"));
    assert_eq!((life(&gateway), gateway.limit("today")["posted"].as_i64()), (360, Some(0)));
    let again = world.reconcile(&gateway, Some(file), &["--post", "--tolerance", "0"]);
    assert_eq!(told(&again).0, Some(0));
    assert!(told(&again).1.ends_with("error rate of llm_tokens 0.00 %\n"), "{}", told(&again).1);
    // The listener itself posts nothing again either.
    let row = json!({"day": "2026-03-01", "tenant": "acme", "model": "small", "requests": 3, "input": 300, "output": 60});
    let (status, answer) = gateway.operators("POST", "/admin/v1/reconcile", &json!({"rows": [row]}));
    assert_eq!((status, &answer["rows"][0]["posted"]), (200, &json!(false)), "{answer}");
    for (order, want) in [
        (json!({"rows": [{"day": "2026-03-01", "tenant": "nobody", "model": "small", "input": 1}]}), 404),
        (json!({"rows": [{"day": "March", "tenant": "acme", "model": "small", "input": 1}]}), 400),
        (json!({"rowz": []}), 400),
        (json!({"unbooked": [{"reservation": "7", "attempt": 0, "side": "tenant"}]}), 400),
    ] {
        assert_eq!(gateway.operators("POST", "/admin/v1/reconcile", &order).0, want, "{order}");
    }
    gateway.stop();
    // A start opens quotas from the journal: what was posted is not counted a second time.
    let gateway = world.start();
    until("quotas are opened", || {
        let mut page = String::new();
        send(gateway.gateway, "GET", "/metrics", "", "").read_to_string(&mut page).unwrap();
        let line = "tollbook_jobs_runs_total{task=\"openings\",run=\"ok\"} ";
        page.lines().any(|text| text.strip_prefix(line).is_some_and(|runs| runs != "0")).then_some(())
    });
    assert_eq!(life(&gateway), 360);
    let report =
        command(&["report", "-c", &world.config(), "--by", "tenant,key", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows: Vec<(&str, i64)> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["key"].as_str().unwrap(), row["llm_tokens"].as_i64().unwrap()))
        .collect();
    assert_eq!(rows, [("", 120), ("web-1", 240)]);
    gateway.stop();
}

#[test]
fn l8_unbooked_calls_are_told_and_posted_once() {
    let unbooked = |id: u128| {
        let mut entry = earlier(id, "acme");
        (entry.origin, entry.seq, entry.admitted_at) = (Origin::Unbooked, u16::MAX, 0);
        entry
    };
    // One is settled all the same; one was lost.
    let world = World::new(&[earlier(1, "acme"), unbooked(1), unbooked(2)]);
    let gateway = world.start();
    let life = |gateway: &Tollbook| gateway.limit("life")["posted"].as_i64().unwrap();
    until("the quota starts from the journal", || (life(&gateway) == 120).then_some(()));
    let output = world.reconcile(&gateway, None, &["--unbooked", "--json"]);
    assert_eq!(told(&output).0, Some(3), "{}", told(&output).1);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let missing = &found["missing"][0];
    assert_eq!((&found["unbooked"], found["missing"].as_array().unwrap().len()), (&json!(2), 1));
    assert_eq!(
        (&missing["request_id"], &missing["input"], &missing["state"]),
        (&json!("req_2"), &json!(100), &json!("missing"))
    );
    let post = |more: &[&str]| world.reconcile(&gateway, None, &[&["--unbooked", "--post"], more].concat());
    assert_eq!(told(&post(&["--to", "2026-02-28"])).0, Some(0));
    assert_eq!(life(&gateway), 120);
    let output = post(&[]);
    assert_eq!(told(&output).0, Some(0));
    assert!(told(&output).1.ends_with("something is missing of 1; posted 1 of 1\n"), "{}", told(&output).1);
    assert_eq!(life(&gateway), 240);
    let output = post(&["--all"]);
    assert_eq!(told(&output).0, Some(0));
    let states: Vec<String> = text(&output.stdout)
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(6).unwrap().to_owned())
        .collect();
    assert_eq!((states, life(&gateway)), (vec!["settled".to_owned(), "posted".to_owned()], 240));
    gateway.stop();
    let entries = world.runtime.block_on(async {
        let store = SqlStore::open(&world.folder.path().join("data/journal.sqlite")).await.unwrap();
        store.by_reservation(ReservationId(2)).await.unwrap()
    });
    let booked: Vec<&Entry> = entries.iter().filter(|entry| !entry.is_unbooked()).collect();
    assert_eq!((booked.len(), booked[0].requests, booked[0].body.usage.input), (1, 1, 100));
    assert!(booked[0].admitted_at > NOON && &*booked[0].body.key == "web-1");
}

#[test]
fn the_daily_comparison_is_a_metric_and_lines_of_the_log_and_posts_nothing() {
    // Yesterday's calls, the day before where yesterday is over for less than an hour.
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap();
    let day = (now - 3_600) / 86_400 - 1;
    let start = jiff::Timestamp::from_second(i64::try_from(day * 86_400).unwrap()).unwrap().to_string();
    let date = start.split('T').next().unwrap();
    let yesterday = |id: u128| {
        let mut entry = earlier(id, "acme");
        entry.admitted_at = (day * 86_400 + 43_200) * 1_000_000;
        entry.ended_at = entry.admitted_at + 1_000_000;
        entry
    };
    let world = World::new(&[yesterday(1), yesterday(2)]);
    let config = world.config();
    let settings = "reconcile: { folder: exports, at: \"00:00\" }\n";
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{settings}{text}")).unwrap();
    // The journal has 200 + 40; the second file is the tenant's side of the same.
    let folder = world.folder.path().join("exports/u");
    fs::create_dir_all(&folder).unwrap();
    let head = "date,model,input,output";
    fs::write(folder.join("usage.csv"), format!("{head}\n{date},there-2025-01-01,240,60\n")).unwrap();
    let own = format!("date,tenant,model,input,output\n{date},acme,small,200,40\n");
    fs::write(folder.join("../tenants.csv"), own).unwrap();
    let log = world.folder.path().join("log");
    let start = || {
        let log = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        Tollbook::start_logging(&["serve", "-c", &config], world.folder.path(), log.into())
    };
    let gateway = start();
    let value = |gateway: &Tollbook, series: &str| {
        let mut page = String::new();
        send(gateway.gateway, "GET", "/metrics", "", "").read_to_string(&mut page).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{series} ")).map(str::to_owned));
        line.and_then(|number| number.parse::<f64>().ok())
    };
    let pool = "tollbook_reconcile_error_ratio{pool=\"u/there\"}";
    until("it is compared", || value(&gateway, "tollbook_reconcile_done_unix").filter(|at| *at > 0.0));
    assert_eq!(value(&gateway, pool), Some(0.2), "60 of 300");
    assert_eq!(value(&gateway, "tollbook_reconcile_error_ratio{pool=\"other\"}"), Some(0.0));
    let counts = ["compared", "differing"].map(|name| value(&gateway, &format!("tollbook_reconcile_{name}")));
    assert_eq!(counts, [Some(4.0), Some(2.0)]);
    // Nothing was posted.
    until("the quota starts from the journal", || (gateway.limit("life")["posted"] == 240).then_some(()));
    gateway.stop();
    let said = fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["message"] == "a provider counted otherwise than the journal")
        .collect();
    let told = ["model", "measure", "provider", "journal"].map(|name| lines[0][name].as_str().unwrap());
    assert_eq!((lines.len(), told), (2, ["there", "input", "240", "200"]), "{said}");

    // A gateway beside it waits until the first has gone; a file that is wrong is told, and the job counts as failed.
    fs::write(folder.join("usage.csv"), format!("{head}\n{date},there,many,60\n")).unwrap();
    let gateway = start();
    let failed = "tollbook_jobs_runs_total{task=\"reconcile\",run=\"failed\"}";
    until("it fails", || value(&gateway, failed).filter(|runs| *runs >= 1.0));
    gateway.stop();
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("usage.csv:2") && said.contains("were not compared"), "{said}");
}

#[test]
fn settings_of_the_daily_comparison_that_mean_nothing_are_told_where_they_are() {
    let world = World::new(&[]);
    let config = world.config();
    let text = fs::read_to_string(&config).unwrap();
    for (settings, want) in [
        ("{ folder: x, at: \"25:00\" }", "t.yaml:1:29: reconcile.at: must be a time of the day"),
        ("{ folder: x, tolerance: -1 }", "reconcile.tolerance: "),
        ("{ folder: x, days: 0 }", "reconcile.days: must be from 1 to 400"),
        ("{ folder: x, days: 401 }", "reconcile.days: must be from 1 to 400"),
        ("{ folder: x, columns: nonsense }", "reconcile.columns: "),
        ("{ at: \"06:00\" }", "folder"),
        ("{ folder: x, often: true }", "often"),
    ] {
        fs::write(&config, format!("reconcile: {settings}\n{text}")).unwrap();
        let output = command(&["check", "-c", &config]).output().unwrap();
        let (code, said) = told(&output);
        assert_eq!(code, Some(2), "{settings}: {said}");
        assert!(said.contains(want), "{settings}: {said}");
    }
}
