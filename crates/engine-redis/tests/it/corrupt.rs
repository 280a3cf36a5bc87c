//! What is not ours under our keys: an error that says so, never "nothing spent", and nothing is changed.

use std::time::Duration;

use tollbook_engine::ledger::{End, Measure, Met, ReservationId};
use tollbook_engine::{Applied, Claim, Engine, EngineError, ErrorKind, RebookCall, SettleCall, Verdict};
use tollbook_engine_redis::{Link, Options, RedisEngine};
use tollbook_engine_suite::legs::{L, R, S, SHARD, account, call, daily, forecast, rpm, tpm};
use tollbook_engine_suite::wait;
use tollbook_redis_world::{Server, wait_for};

use crate::lost::{World, open, settle};

struct Book {
    server: Server,
    engine: RedisEngine,
    /// Its tasks keep the connection.
    _runtime: tokio::runtime::Runtime,
}

impl Book {
    fn start() -> Self {
        let server = Server::redis();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let inside = runtime.enter();
        let mut options = Options::parse(&server.url()).unwrap();
        options.deadline = Duration::from_secs(10);
        let engine = RedisEngine::new(Link::open(&options).unwrap(), "tb");
        drop(inside);
        let answers = || wait(engine.due(SHARD, 1)).ok();
        wait_for(Duration::from_secs(10), answers).expect("the server answers");
        Self { server, engine, _runtime: runtime }
    }

    fn now(&self) -> u64 {
        wait(self.engine.due(SHARD, 1)).unwrap().now
    }

    fn reserve(&self, now: u64, id: u128, legs: [L; 2]) -> Result<Verdict, EngineError> {
        let call: R = call(id, legs);
        wait(self.engine.reserve(&call.at(now))).map(|reply| reply.value)
    }

    fn key(name: &str) -> String {
        format!("tb:{{{}}}:{name}", SHARD.0)
    }
}

fn legs() -> [L; 2] {
    [tpm("k:tpm", 1_000, 100), daily("k:day", Measure::Tokens, 1_000, 100)]
}

#[test]
fn b213_foreign_values_are_damage_and_never_room() {
    let book = Book::start();
    let now = book.now();
    assert!(matches!(book.reserve(now, 1, legs()), Ok(Verdict::Admit(_))));
    let shard = Book::key("b");
    let reservation = Book::key(&format!("r:{:032x}:1", 2));
    // Changes the account's field as a Lua expression says.
    let changed = |how: &str| {
        let text = format!(
            "for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
              local row = redis.call('HGET', KEYS[1], field)
              if #field == 16 and row:byte(1) == 1 then redis.call('HSET', KEYS[1], field, {how}) end
            end return redis.status_reply('OK')"
        );
        vec!["EVAL".to_owned(), text, "1".to_owned(), shard.clone()]
    };
    let plain = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let cases = [
        ("text in an account", changed("'a text'")),
        ("text as long as an account", changed("string.rep('a', #row)")),
        ("a short account", changed("row:sub(1, -2)")),
        ("a part of an account", changed("row:sub(1, -9)")),
        ("a fraction in an account", changed("row:sub(1, 44) .. struct.pack('<d', 0.5) .. row:sub(53)")),
        ("no number in an account", changed("row:sub(1, 44) .. struct.pack('<d', 0/0) .. row:sub(53)")),
        (
            "a fraction in a period's end",
            changed("row:sub(1, 52) .. struct.pack('<d', 0.5) .. row:sub(61)")
                .into_iter()
                .map(|word| word.replace("row:byte(1) == 1", "row:byte(1) == 3"))
                .collect(),
        ),
        ("another kind", changed("string.char(9) .. row:sub(2)")),
        (
            "buckets that are gone",
            changed("row:sub(1, 52) .. struct.pack('<dd', redis.call('TIME')[1] - 1, 5) .. row:sub(69)"),
        ),
        ("another type of a shard", plain(&["SET", &shard, "a text"])),
        ("text in a reservation", plain(&["SET", &reservation, "a text"])),
        ("the head of a reservation", plain(&["SET", &reservation, "\x01\x01\x01"])),
        ("the head of an end", plain(&["SET", &reservation, "\x02\x01\x01"])),
        ("another type of a reservation", plain(&["LPUSH", &reservation, "x"])),
        ("text in the clock", plain(&["HSET", &shard, "c", "yesterday"])),
        ("text in the state", plain(&["HSET", &shard, "s", "open"])),
    ];
    for (what, break_it) in cases {
        book.server.ask(&["COPY", &shard, "kept", "REPLACE"]);
        book.server.ask(&break_it.iter().map(String::as_str).collect::<Vec<_>>());
        let broken = book.server.ask(&["DUMP", &shard]);
        let answer = book.reserve(now, 2, legs());
        assert!(
            matches!(&answer, Err(EngineError { kind: ErrorKind::Damaged(_), .. })),
            "{what}: {answer:?}"
        );
        // The evidence stays until somebody takes it away.
        assert_eq!(book.server.ask(&["DUMP", &shard]), broken, "{what}: something was changed");
        book.server.ask(&["DEL", &reservation]);
        book.server.ask(&["RENAME", "kept", &shard]);
    }
    assert!(matches!(book.reserve(now, 2, legs()), Ok(Verdict::Admit(_))));
    let balance = wait(book.engine.balances(SHARD, &[account("k:tpm")])).unwrap().value[0].unwrap();
    assert_eq!(balance.standing.held, 200);
}

/// What a verb only writes must not stop it halfway: every other key is as it was.
#[test]
fn another_type_where_a_verb_only_writes_changes_nothing() {
    let book = Book::start();
    let now = book.now();
    assert!(matches!(book.reserve(now, 1, legs()), Ok(Verdict::Admit(_))));
    let shard = Book::key("b");
    let first = Book::key(&format!("r:{:032x}:1", 1));
    let settle = || {
        let call = SettleCall {
            claim: Claim { shard: SHARD, id: ReservationId(1), attempt: 1 },
            accounts: vec![account("k:tpm"), account("k:day")],
            actual: vec![50, 50],
            landed: 0,
            learn: None,
            entry: b"settled".to_vec(),
            age: 0,
        };
        wait(book.engine.settle(&call)).map(|reply| reply.value.before)
    };
    for name in ["due", "j"] {
        let key = Book::key(name);
        let kept = format!("kept {key}");
        book.server.ask(&["RENAME", &key, &kept]);
        book.server.ask(&["SET", &key, "a text"]);
        let before = [&shard, &first].map(|key| book.server.ask(&["DUMP", key]));
        let is_damage = |error: &EngineError| matches!(error.kind, ErrorKind::Damaged(_));
        assert!(settle().is_err_and(|error| is_damage(&error)), "{name}");
        if name == "due" {
            assert!(book.reserve(now, 2, legs()).is_err_and(|error| is_damage(&error)), "{name}");
        }
        assert_eq!([&shard, &first].map(|key| book.server.ask(&["DUMP", key])), before, "{name}");
        assert_eq!(
            book.server.ask(&["EXISTS", &Book::key(&format!("r:{:032x}:1", 2))]).int(),
            Some(0),
            "{name}"
        );
        book.server.ask(&["DEL", &key]);
        book.server.ask(&["RENAME", &kept, &key]);
    }
    assert_eq!(settle(), Ok(Met::Held));
    assert_eq!(settle(), Ok(Met::Ended(End::Settled)));
}

/// A rebook ends one attempt, then begins the next: what the next one does not have to read cannot stop it there.
#[test]
fn l18_what_a_ring_that_restarts_had_stops_no_rebook() {
    // Buckets that are all over, and seconds that lie far ahead of a clock that stepped back.
    for (what, suffix, later) in [("buckets", "b", 100), ("seconds", "s", -200_i64)] {
        let leg = || match suffix {
            "b" => rpm("p:rpm", 1_000),
            _ => forecast("p:plan", 1_000).demand(10),
        };
        let world = World::start();
        let engine = world.gateway("tb");
        open(&engine, 1, false);
        let reserve = |id: u128, leg: L| {
            let answer = wait(engine.reserve(&call(id, [leg]).life(1_000 * S).at(world.now())));
            let Ok(Verdict::Admit(receipt)) = answer.map(|reply| reply.value) else { panic!("admitted") };
            receipt
        };
        for id in 10..13 {
            assert_eq!(settle(&engine, &reserve(id, leg()), &[10]), Met::Held);
            world.advance(2 * S);
        }
        let first = reserve(1, tpm("k:tpm", 1_000, 100));
        let text = format!(
            "local some = 0
            for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
              if #field == 17 and field:sub(17) == '{suffix}' then
                redis.call('HSET', KEYS[1], field, 'a text')
                some = some + 1
              end
            end return some"
        );
        let broken = world.server.ask(&["EVAL", &text, "1", &Book::key("b")]);
        assert_eq!(broken.int(), Some(1), "{what}");
        let now = world.now().checked_add_signed(later * S.cast_signed()).unwrap();
        world.now.store(now, std::sync::atomic::Ordering::Release);
        let next = call(1, [leg()]).attempt(2).at(world.now());
        let rebook = RebookCall { receipt: first.clone(), actual: None, landed: 0, entry: None, next };
        let answer = wait(engine.rebook(&rebook)).map(|reply| reply.value);
        assert!(matches!(answer, Ok(Verdict::Admit(_))), "{what}: {answer:?}");
        let held = wait(engine.balances(SHARD, &[account("k:tpm")])).unwrap().value[0].unwrap();
        assert_eq!((held.standing.held, held.live_holds), (0, 0), "{what}");
        assert_eq!(settle(&engine, &first, &[0]), Met::Ended(End::Rebooked), "{what}");
    }
}

/// Readiness asks: a server that answers reads and takes no writes does not take a verb.
#[test]
fn b202_a_full_server_takes_no_verb() {
    let book = Book::start();
    assert!(wait(book.engine.takes(SHARD)).is_ok());
    book.server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    book.server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(wait(book.engine.balances(SHARD, &[])).is_ok());
    for refused in
        [wait(book.engine.takes(SHARD)).map(|_| ()), book.reserve(book.now(), 1, legs()).map(|_| ())]
    {
        let error = refused.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Away(_)), "{error:?}");
        assert_eq!(error.applied, Applied::No);
    }
    book.server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(wait(book.engine.takes(SHARD)).is_ok());
    assert!(matches!(book.reserve(book.now(), 1, legs()), Ok(Verdict::Admit(_))));
}
