//! `tollbook journal export` from outside: what it writes, what it leaves out, which command lines it refuses.
//!
//! The journals are written through the store, so that every kind of entry is in them; calls through a running gateway
//! are exported in `testing/e2e`.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollbook_ledger::ReservationId;
use tollbook_ledger::units::SECOND;
use tollbook_store::{Entry, EntryBody, Figures, Journal, Name, Origin, Side, Usage};
use tollbook_store_sql::SqlStore;

/// 2026-03-01 12:00 UTC.
pub(crate) const NOON: u64 = 1_772_366_400 * SECOND;
const HEADER: &str = "arrival_s,input_tokens,output_tokens,key,tenant,model,ended_s,figures";

pub(crate) fn tollbook(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollbook")).args(arguments).env_clear().output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A folder with a configuration whose variables are not set, and a journal of these entries.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) config: String,
}

impl World {
    pub(crate) fn new(entries: &[Entry]) -> Self {
        let world = Self::without_journal();
        fs::create_dir(world.file("data")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = SqlStore::open(&world.file("data/journal.sqlite")).await.unwrap();
            for batch in entries.chunks(1000) {
                store.append(batch).await.unwrap();
            }
            store.close().await;
        });
        world
    }

    pub(crate) fn without_journal() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("t.yaml");
        let rest =
            "upstreams: [{ name: u, dialect: openai, base_url: http://h, api_key: \"${NOT_SET_ANYWHERE}\" }]";
        fs::write(&config, format!("data_dir: data\n{rest}\n")).unwrap();
        let config = config.to_str().unwrap().to_owned();
        Self { folder, config }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn export(&self, more: &[&str]) -> Output {
        tollbook(&[&["journal", "export", "-c", &self.config], more].concat())
    }

    /// The lines of a good export, without the header.
    fn lines(&self, more: &[&str]) -> Vec<String> {
        let output = self.export(more);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let mut lines = text(&output.stdout).lines().map(str::to_owned);
        assert_eq!(lines.next().as_deref(), Some(HEADER));
        lines.collect()
    }
}

pub(crate) fn call(id: u128, second: u64) -> Entry {
    Entry {
        reservation: ReservationId(id),
        attempt: 0,
        seq: 0,
        origin: Origin::Settled,
        admitted_at: NOON + second * SECOND,
        ended_at: NOON + (second + 2) * SECOND,
        requests: 1,
        posted: Vec::new(),
        body: EntryBody {
            request_id: Name::from(format!("req_{id}")),
            tenant: Name::from("acme"),
            key: Name::from("web-1"),
            model_asked: Name::from("small"),
            model_used: Name::from("small"),
            usage: Usage { input: 100, output: 20, ..Usage::default() },
            ..EntryBody::default()
        },
    }
}

/// Every kind of call, six of them with usage.
pub(crate) fn mixed() -> Vec<Entry> {
    let with = |entry: Entry, change: &dyn Fn(&mut Entry)| {
        let mut entry = entry;
        change(&mut entry);
        entry
    };
    let metered = with(call(1, 7), &|e| {
        e.admitted_at += 250_000;
        (e.body.tenant, e.body.key) = (Name::from("beta"), Name::from("b, \"2\""));
        (e.body.figures, e.body.model_used) = (Figures::Metered, Name::from("large"));
    });
    let expired = with(call(2, 5), &|e| (e.origin, e.body.figures) = (Origin::Expired, Figures::Expired));
    let late = with(call(2, 5), &|e| {
        (e.seq, e.origin, e.ended_at) = (1, Origin::Late, NOON + 90 * SECOND);
        e.body.usage = Usage { input: -1, output: -13, ..Usage::default() };
    });
    let nothing = |e: &mut Entry| (e.body.usage, e.body.figures) = (Usage::default(), Figures::Nothing);
    let released = with(call(3, 0), &|e| {
        nothing(e);
        e.origin = Origin::Released;
    });
    let freed = with(call(4, 1), &|e| {
        (e.origin, e.body.figures, e.body.usage) = (Origin::Expired, Figures::Expired, Usage::default());
    });
    let unbooked = with(call(5, 8), &|e| e.origin = Origin::Unbooked);
    let pool = with(call(6, 5), &|e| e.body.side = Side::Pool);
    let embedded = with(call(7, 10), &|e| e.body.usage.output = 0);
    let too_large = with(call(8, 11), &|e| e.body.usage.input = 4_000_001);
    let largest = with(call(9, 12), &|e| e.body.usage.input = 4_000_000);
    let negative = with(call(10, 13), &|e| e.body.usage.output = -1);
    let free = with(call(11, 14), &nothing);
    let unknown = with(call(12, 15), &|e| e.body.figures = Figures::Unknown);
    let partial = with(call(13, 16), &|e| e.body.figures = Figures::Partial);
    vec![
        metered, expired, late, released, freed, unbooked, pool, embedded, too_large, largest, negative,
        free, unknown, partial,
    ]
}

#[test]
fn calls_are_lines_with_their_corrections_and_what_is_no_usage_is_counted() {
    let world = World::new(&mixed());
    let output = world.export(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let want = [
        HEADER,
        "0.000000,99,7,web-1,acme,small,85.000000,reported",
        "2.250000,100,20,\"b, \"\"2\"\"\",beta,large,4.000000,metered",
        "5.000000,100,0,web-1,acme,small,7.000000,reported",
        "7.000000,4000000,20,web-1,acme,small,9.000000,reported",
        "10.000000,100,20,web-1,acme,small,12.000000,unknown",
        "11.000000,100,20,web-1,acme,small,13.000000,partial",
    ];
    assert_eq!(text(&output.stdout).lines().collect::<Vec<_>>(), want);
    assert_eq!(
        text(&output.stderr),
        "calls 6, keys 2, llm_tokens of input 4,000,499 and of output 87, admitted from 2026-03-01T12:00:05Z to \
         2026-03-01T12:00:16Z\nleft out: without usage 3, unbooked 1, untellable 2\n"
    );
}

#[test]
fn times_tenants_and_models_choose_calls() {
    let world = World::new(&mixed());
    let since = world.lines(&["--since", "2026-03-01T12:00:10Z", "--until", "2026-03-01T13:00:15+01:00"]);
    let starts = |line: &String| line.split(',').next().unwrap().to_owned();
    assert_eq!(since.iter().map(starts).collect::<Vec<_>>(), ["0.000000", "2.000000"]);
    assert_eq!(world.lines(&["--tenant", "beta"]).len(), 1);
    assert_eq!(world.lines(&["--model", "small"]).len(), 5);
    assert_eq!(world.lines(&["--tenant", "acme", "--model", "small", "--until", "2026-03-02"]).len(), 5);
    for nothing in [&["--tenant", "nobody"][..], &["--model", "medium"], &["--until", "2026-03-01"]] {
        let output = world.export(nothing);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{nothing:?}");
        assert_eq!(text(&output.stderr), "tollbook: the journal has no call to write\n");
    }
    let left_out = world.export(&["--until", "2026-03-01T12:00:02Z"]);
    assert_eq!(
        text(&left_out.stderr),
        "tollbook: the journal has no call to write; left out: without usage 2, unbooked 0, untellable 0\n"
    );
}

#[test]
fn a_time_ago_counts_from_now() {
    let now = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap();
    let ago = |id, seconds: u64| Entry { admitted_at: now - seconds * SECOND, ended_at: now, ..call(id, 0) };
    let world = World::new(&[ago(1, 7200), ago(2, 1800), ago(3, 60)]);
    assert_eq!(world.lines(&["--since", "1h"]).len(), 2);
    assert_eq!(world.lines(&["--since", "1d", "--until", "10m"]).len(), 2);
}

#[test]
fn a_file_is_plain_or_gzip_by_its_name_and_told_as_json() {
    let world = World::new(&mixed());
    let plain = world.export(&[]).stdout;
    for name in ["calls.csv", "calls.csv.gz"] {
        let file = world.file(name);
        let output = world.export(&["--json", "-o", file.to_str().unwrap()]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&told["calls"], &told["keys"], &told["output_tokens"]),
            (&json!(6), &json!(2), &json!(87))
        );
        assert_eq!(told["figures"], json!({"reported": 3, "metered": 1, "partial": 1, "unknown": 1}));
        assert_eq!(told["left_out"], json!({"without_usage": 3, "unbooked": 1, "untellable": 2}));
        assert_eq!((&told["file"], &told["warning"]), (&json!(file), &Value::Null));
        let mut bytes = fs::read(&file).unwrap();
        if Path::new(&name).extension().is_some_and(|kind| kind == "gz") {
            let packed = std::mem::take(&mut bytes);
            flate2::read::MultiGzDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
        }
        assert_eq!(bytes, plain, "{name}");
    }
    let mut names: Vec<_> =
        fs::read_dir(world.folder.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["calls.csv", "calls.csv.gz", "data", "t.yaml"]);
}

#[test]
fn simulate_takes_what_is_written_as_it_is() {
    let entries: Vec<Entry> = (0..3_000_u64)
        .map(|i| {
            let mut entry = call(u128::from(i), i * 7 % 600);
            entry.body.tenant = Name::from(format!("t{}", i % 3));
            entry.body.key = Name::from(format!("k\"{},", i % 7));
            entry
        })
        .collect();
    let world = World::new(&entries);
    let (trace, decisions) = (world.file("calls.csv.gz"), world.file("decisions.csv"));
    assert_eq!(world.export(&["-o", trace.to_str().unwrap()]).status.code(), Some(0));
    let arguments = [
        "simulate",
        trace.to_str().unwrap(),
        "--limit",
        "1000000",
        "--decisions",
        decisions.to_str().unwrap(),
    ];
    let output = tollbook(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["runs"][0]["calls"], 3_000);
    assert_eq!(told["runs"][0]["llm_tokens_demanded"], 3_000 * 120);
    let decided = fs::read_to_string(&decisions).unwrap();
    let of_key = |key: &str| decided.matches(&format!(",\"k\"\"{key},\",")).count();
    assert_eq!((0..7).map(|key| of_key(&key.to_string())).sum::<usize>(), 3_000);
}

#[test]
fn what_no_simulation_takes_is_told() {
    let late = call(2, (31 * 86_400) + 1);
    let world = World::new(&[call(1, 0), late]);
    let output = world.export(&[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("takes at most 31 days, "), "{}", text(&output.stderr));
    let narrow = world.export(&["--until", "2026-04-01T12:00:01Z"]);
    assert!(!text(&narrow.stderr).contains("takes at most"), "{}", text(&narrow.stderr));
    let world =
        World::new(&[call(1, 0), Entry { admitted_at: NOON + 31 * 86_400 * SECOND + 999_999, ..call(2, 0) }]);
    assert!(!text(&world.export(&[]).stderr).contains("takes at most"));
}

#[test]
fn wrong_command_lines_are_two_and_a_failure_is_one() {
    let world = World::new(&[call(1, 0)]);
    for (arguments, want) in [
        (&["--since", "yesterday"][..], "write 2026-03-01T12:00:00Z"),
        (&["--since", "1h", "--until", "2h"], "--since must be before --until"),
        (&["--since", "2026-03-01", "--until", "2026-03-01"], "--since must be before --until"),
        (&["--json"], "--output"),
        (&["--json", "-o", "-"], "--json needs a file"),
    ] {
        let output = world.export(arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{arguments:?}");
        assert!(text(&output.stderr).contains(want), "{arguments:?}: {}", text(&output.stderr));
    }
    assert_eq!(tollbook(&["journal"]).status.code(), Some(2));
    assert_eq!(tollbook(&["journal", "export", "--help"]).status.code(), Some(0));
    let output = tollbook(&["journal", "export", "-c", "/nowhere/t.yaml"]);
    assert_eq!(output.status.code(), Some(2));

    let nowhere = world.file("no/calls.csv");
    let output = world.export(&["-o", nowhere.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    assert!(text(&output.stderr).starts_with("tollbook: cannot write "), "{}", text(&output.stderr));

    let world = World::without_journal();
    let file = world.file("calls.csv");
    let output = world.export(&["-o", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).starts_with("tollbook: there is no journal at "),
        "{}",
        text(&output.stderr)
    );
    assert!(!file.exists() && !world.file("calls.csv.new").exists() && !world.file("data").exists());

    fs::create_dir(world.file("data")).unwrap();
    fs::write(world.file("data/journal.sqlite"), "this is no database, whatever its name says").unwrap();
    let output = world.export(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot open the journal "), "{}", text(&output.stderr));
}

/// A pipe is written as it comes; nothing stands beside it, and it is not replaced.
#[test]
fn what_is_no_regular_file_is_written_in_place() {
    let world = World::new(&[call(1, 0)]);
    let link = world.file("null.csv");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    let output = world.export(&["-o", link.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"));
    assert!(!world.file("null.csv.new").exists());
}

#[test]
fn an_earlier_export_stays_when_a_later_one_fails() {
    let world = World::new(&[call(1, 0)]);
    let file = world.file("calls.csv");
    assert_eq!(world.export(&["-o", file.to_str().unwrap()]).status.code(), Some(0));
    let before = fs::read(&file).unwrap();
    let output = world.export(&["-o", file.to_str().unwrap(), "--tenant", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read(&file).unwrap(), before);
    assert!(!world.file("calls.csv.new").exists());
}
