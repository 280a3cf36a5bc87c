//! Cases from the field that are the shared engine's own. Numbers are those of the list of field cases; what every engine
//! must do stands in the suite.

use std::collections::BTreeSet;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollbook_engine::ledger::{Measure, Met, ReservationId};
use tollbook_engine::{
    Claim, Engine, EngineError, ErrorKind, RESTORED_ONCE, ReserveCall, SettleCall, Shard, Verdict,
};
use tollbook_engine_redis::{Link, Options, RedisEngine};
use tollbook_engine_suite::legs::{L, R, SHARD, account, call, daily, lifetime, slots, tpm};
use tollbook_engine_suite::wait;
use tollbook_redis_world::{Cluster, Plan, SERVICE, Sentinels, wait_for};

/// A machine that does other things too.
const LIMIT: Duration = Duration::from_secs(10);

struct Book {
    engine: RedisEngine,
    prefix: &'static str,
    /// Its tasks keep the connections.
    runtime: tokio::runtime::Runtime,
}

impl Book {
    fn at(url: &str, prefix: &'static str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let inside = runtime.enter();
        let options = Options { deadline: LIMIT, ..Options::parse(url).unwrap() };
        let engine = RedisEngine::new(Link::open(&options).unwrap(), prefix);
        drop(inside);
        Self { engine, prefix, runtime }
    }

    fn answers(self) -> Self {
        let answer = wait_for(LIMIT, || wait(self.engine.due(SHARD, 1)).ok());
        assert!(answer.is_some(), "the server does not answer as {}", self.prefix);
        self
    }

    fn reserve<const N: usize>(&self, shard: Shard, id: u128, legs: [L; N]) -> Result<Verdict, EngineError> {
        // Legs with a calendar need a time near the server's; a first answer tells it.
        let now = wait(self.engine.due(shard, 1)).map_or(0, |reply| reply.now);
        let asked: R = call(id, legs);
        let asked = ReserveCall { shard, ..asked.at(now) };
        wait(self.engine.reserve(&asked)).map(|reply| reply.value)
    }

    fn settle(&self, shard: Shard, id: u128, names: &[&str], actual: u64) -> Result<Met, EngineError> {
        let call = SettleCall {
            claim: Claim { shard, id: ReservationId(id), attempt: 1 },
            accounts: names.iter().map(|name| account(name)).collect(),
            actual: vec![actual; names.len()],
            landed: 0,
            learn: None,
            entry: b"an entry".to_vec(),
            age: 0,
        };
        wait(self.engine.settle(&call)).map(|reply| reply.value.before)
    }

    fn held(&self, shard: Shard, name: &str) -> i64 {
        let balance = wait(self.engine.balances(shard, &[account(name)])).unwrap().value[0];
        balance.map_or(0, |balance| balance.standing.held)
    }
}

/// Tenant, project, key and model of one call share a hash tag, whatever node has it.
#[test]
fn b191_many_scopes_are_decided_together_on_a_cluster() {
    const NAMES: [&str; 4] = ["tenant:tpm", "project:tpm", "key:tpm", "model:slots"];
    let cluster = Cluster::start();
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.addr().to_string()).collect();
    let book = Book::at(&format!("redis+cluster://{}", nodes.join(",")), "tb").answers();
    let mut owners = BTreeSet::new();
    for shard in (0..12).map(Shard) {
        owners.insert(cluster.owner(cluster.slot(&format!("{{{}}}", shard.0))));
        let legs = || {
            let [tenant, project, key, model] = NAMES;
            [tpm(tenant, 1_000, 100), tpm(project, 1_000, 100), tpm(key, 1_000, 100), slots(model, 2)]
        };
        let verdicts = [1, 2, 3].map(|id| book.reserve(shard, id, legs()).unwrap());
        let admitted = verdicts.map(|verdict| matches!(verdict, Verdict::Admit(_)));
        assert_eq!(admitted, [true, true, false], "{shard:?}");
        // The refused one has left nothing anywhere.
        assert_eq!(NAMES.map(|name| book.held(shard, name)), [200, 200, 200, 2], "{shard:?}");
        for id in [1, 2] {
            assert_eq!(book.settle(shard, id, &NAMES, 1), Ok(Met::Held));
        }
        assert_eq!(NAMES.map(|name| book.held(shard, name)), [0; 4], "{shard:?}");
    }
    assert_eq!(owners.len(), 3, "all nodes were asked");
}

/// A server that answers every script as it is told to.
struct Fake {
    addr: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Fake {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Self { addr: listener.local_addr().unwrap(), answer: Arc::default() };
        let answer = Arc::clone(&fake.answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || serve(&stream, &answer));
            }
        });
        fake
    }

    fn answers(&self, bytes: &str) {
        *self.answer.lock().unwrap() = bytes.as_bytes().to_vec();
    }
}

/// Until the other side leaves.
fn serve(stream: &TcpStream, answer: &Mutex<Vec<u8>>) {
    let mut reader = BufReader::new(stream);
    while let Some(words) = command(&mut reader) {
        let word = String::from_utf8_lossy(&words[0]).to_uppercase();
        let reply = match word.as_str() {
            "EVALSHA" => answer.lock().unwrap().clone(),
            "PING" => b"+PONG\r\n".to_vec(),
            "INFO" => b"$12\r\nrun_id:abc\r\n\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        };
        let mut writer = stream;
        if writer.write_all(&reply).is_err() {
            return;
        }
    }
}

fn command(reader: &mut impl BufReadExt) -> Option<Vec<Vec<u8>>> {
    let count = reader.number('*')?;
    (0..count).map(|_| reader.bulk()).collect()
}

trait BufReadExt: std::io::BufRead {
    /// `*3` or `$12`.
    fn number(&mut self, mark: char) -> Option<usize> {
        let mut line = String::new();
        self.read_line(&mut line).ok()?;
        line.trim_end().strip_prefix(mark)?.parse().ok()
    }

    fn bulk(&mut self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.number('$')? + 2];
        self.read_exact(&mut bytes).ok()?;
        bytes.truncate(bytes.len() - 2);
        Some(bytes)
    }
}

impl<T: std::io::BufRead> BufReadExt for T {}

/// What is no verdict admits nobody, and what is no acknowledgement ends nothing.
#[test]
fn b192_a_broken_answer_is_no_verdict() {
    let fake = Fake::start();
    let book = Book::at(&format!("redis://{}", fake.addr), "tb");
    fake.answers("-ERR starting\r\n");
    let connected =
        || wait(book.engine.due(SHARD, 1)).is_err_and(|error| error.to_string().contains("starting"));
    assert!(wait_for(LIMIT, || connected().then_some(())).is_some());
    for answer in [
        "$-1\r\n",
        "*-1\r\n",
        "-ERR the script failed\r\n",
        "+OK\r\n",
        "+allowed\r\n",
        ":1\r\n",
        ":-1\r\n",
        "*0\r\n",
        "*1\r\n:1\r\n",
        "*2\r\n:1\r\n:5\r\n",
        "*3\r\n:1\r\n:5\r\n$-1\r\n",
        "*3\r\n:1\r\n:5\r\n:1\r\n",
        "*3\r\n:1\r\n:5\r\n*0\r\n",
        "*3\r\n:1\r\n:5\r\n*1\r\n$5\r\nadmit\r\n",
        "*3\r\n:1\r\n:5\r\n*2\r\n$5\r\nadmit\r\n*0\r\n",
        "*3\r\n:1\r\n:5\r\n*2\r\n$5\r\nadmit\r\n*1\r\n:-1\r\n",
        "*3\r\n:1\r\n:5\r\n*2\r\n$5\r\nmaybe\r\n:1\r\n",
        "*3\r\n$1\r\nx\r\n:5\r\n*0\r\n",
        "*3\r\n:-4\r\n:-5\r\n*0\r\n",
    ] {
        fake.answers(answer);
        let asked: R = call(1, [tpm("k:tpm", 1_000, 100)]);
        let verdict = wait(book.engine.reserve(&asked.at(5)));
        let error = verdict.expect_err(answer);
        assert!(matches!(error.kind, ErrorKind::Damaged(_)), "{answer:?}: {error}");
        let settled = book.settle(SHARD, 1, &["k:tpm"], 1).expect_err(answer);
        assert!(matches!(settled.kind, ErrorKind::Damaged(_)), "{answer:?}: {settled}");
    }
}

/// What stays is the book itself, which is pruned; what a call leaves behind goes by itself.
#[test]
fn b204_what_calls_leave_behind_has_a_time_to_live() {
    let server = Plan::redis().start();
    let book = Book::at(&server.url(), "tb").answers();
    let names = ["k:tpm", "t:day", "t:life", "t:slots"];
    for id in 1..=200 {
        let legs = [
            tpm("k:tpm", 1_000_000, 10),
            daily("t:day", Measure::Tokens, 1_000_000, 10),
            lifetime("t:life", 1_000_000, 10),
            slots("t:slots", 1_000),
        ];
        assert!(matches!(book.reserve(SHARD, id, legs), Ok(Verdict::Admit(_))));
        assert_eq!(book.settle(SHARD, id, &names, 1), Ok(Met::Held));
    }
    let own = ["b", "due", "j"];
    let mut left_behind = 0;
    for key in server.ask(&["KEYS", "*"]).items() {
        let key = key.text();
        let name = key.strip_prefix(&format!("tb:{{{}}}:", SHARD.0)).expect("ours").to_owned();
        let lives = server.ask(&["PTTL", &key]).int().unwrap();
        if own.contains(&name.as_str()) {
            assert_eq!(lives, -1, "{key}");
        } else {
            assert!(lives > 0, "{key} stays for ever");
            assert!(u64::try_from(lives).unwrap() * 1_000 > RESTORED_ONCE, "{key} might be restored twice");
            left_behind += 1;
        }
    }
    assert_eq!(left_behind, 200, "a tombstone for each call");
}

/// Managed clusters refuse what is not declared. Names of keys come from KEYS, and are never put together.
#[test]
fn b205_scripts_make_no_names_of_keys() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("--").next().unwrap_or_default();
            for part in code.split("call('").skip(1) {
                let (command, rest) = part.split_once('\'').unwrap();
                let key =
                    rest.strip_prefix(',').map(|rest| rest.split([',', ')']).next().unwrap_or_default());
                let Some(key) = key.map(str::trim) else {
                    assert_eq!(command, "TIME", "{}:{number}: {line}", path.display());
                    continue;
                };
                let named = key.starts_with("KEYS[")
                    || key.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c));
                assert!(named && !key.is_empty(), "{}:{number}: the key is {key}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen} commands");
}

/// The rights that the guide names, one prefix, one database: enough for every verb, and nothing is written elsewhere.
#[test]
fn b207_a_user_with_few_rights_keeps_a_book_in_its_own_place() {
    let server = Plan::redis()
        .user("admin", "secret")
        .line("user app on >p4ss ~gw:* +@all -@admin -@dangerous +info +role +cluster|slots +cluster|info")
        .start();
    let url = format!("redis://app:p4ss@{}/2", server.addr());
    let book = Book::at(&url, "gw").answers();
    assert!(matches!(book.reserve(SHARD, 1, [tpm("k:tpm", 100, 60)]), Ok(Verdict::Admit(_))));
    assert!(matches!(book.reserve(SHARD, 2, [tpm("k:tpm", 100, 60)]), Ok(Verdict::Deny { .. })));
    assert_eq!(book.settle(SHARD, 1, &["k:tpm"], 30), Ok(Met::Held));
    assert_eq!(book.held(SHARD, "k:tpm"), 0);
    assert!(wait(book.engine.takes(SHARD)).is_ok());
    assert_eq!(server.ask(&["DBSIZE"]).int(), Some(0), "nothing in database 0");
    let mut client = server.client();
    client.ask(&[b"SELECT", b"2"]).unwrap();
    let keys = client.ask(&[b"KEYS", b"*"]).unwrap();
    assert!(keys.items().iter().all(|key| key.text().starts_with("gw:{")), "{keys:?}");
    assert!(keys.items().len() >= 3, "{keys:?}");
    // Another prefix is not its own.
    let other = Book::at(&url, "tb");
    let refused = wait_for(LIMIT, || {
        let error = wait(other.engine.due(SHARD, 1)).err()?.to_string();
        error.contains("refuses this user").then_some(error)
    });
    assert!(refused.is_some_and(|error| !error.contains("p4ss")));
}

/// Nothing bounds the streams to the journal but the server's memory: the doctor counts them, over all shards.
#[test]
fn what_waits_for_the_journal_is_counted() {
    let server = Plan::redis().start();
    let book = Book::at(&server.url(), "tb").answers();
    let waiting = || wait(book.engine.journal_waiting()).unwrap();
    assert_eq!(waiting(), 0);
    for id in 1..=40 {
        let shard = Shard(if id % 4 == 0 { 255 } else { SHARD.0 });
        assert!(matches!(book.reserve(shard, id, [tpm("k:tpm", 1_000_000, 10)]), Ok(Verdict::Admit(_))));
        assert_eq!(book.settle(shard, id, &["k:tpm"], 1), Ok(Met::Held));
    }
    assert_eq!(waiting(), 40);
    let found = book.runtime.block_on(book.engine.examine(Duration::ZERO));
    let told = found.iter().find(|one| one.what == "journal's streams").unwrap();
    assert!(told.seen.starts_with("40 ended calls"), "{told:?}");
    server.ask(&["DEL", "tb:{255}:j"]);
    assert_eq!(waiting(), 30);
}

/// A right that is missing is told by the doctor, not only where it hurts: in the middle of a failover.
#[test]
fn b207_the_doctor_misses_the_right_to_ask_for_a_role() {
    let user =
        |name: &str, more: &str| format!("user {name} on >p4ss ~tb:* +@all -@admin -@dangerous +info{more}");
    let plan = Plan::redis().line(&user("few", "")).line(&user("enough", " +role"));
    let all = Sentinels::of(&plan);
    let hosts: Vec<_> = all.sentinels().iter().map(|sentinel| sentinel.addr().to_string()).collect();
    let advice = |name: &str| {
        let url = format!("redis+sentinel://{name}:p4ss@{}/{SERVICE}", hosts.join(","));
        let book = Book::at(&url, "tb").answers();
        let found = book.runtime.block_on(book.engine.examine(Duration::ZERO));
        let lacks = found.into_iter().filter(|one| one.what == "permissions");
        lacks.map(|one| one.advice).collect::<Vec<_>>()
    };
    assert_eq!(advice("enough"), Vec::<String>::new());
    assert!(matches!(advice("few").as_slice(), [one] if one.contains("ROLE")), "{:?}", advice("few"));
}
