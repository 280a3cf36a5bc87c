//! What a server adds to a file: it dies, it closes connections, many start at once on an empty database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollbook_ledger::ReservationId;
use tollbook_sql_world::{PASSWORD, Server};
use tollbook_store::{
    Applied, Edit, Entry, Fleet, Journal, LimitHistory, ObjectKind, ObjectName, ObjectStore, Side,
    StoreErrorKind,
};
use tollbook_store_sql::{Place, SqlStore};

use crate::make::{Other, World, call, full, totals};

fn place(server: &Server) -> Place {
    server.url().parse().unwrap()
}

async fn numbers(world: &World, question: &'static str) -> Vec<i64> {
    world.other().await.numbers(question).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_starts_on_an_empty_database_make_one_store() {
    let world = World::server();
    let starts = (0..8).map(|_| {
        let place = world.place();
        tokio::spawn(async move { SqlStore::open(place).await.unwrap().id().await.unwrap() })
    });
    let mut ids = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        ids.push(start.await.unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "all read the same id");
    assert_ne!(ids, [0]);
    assert_eq!(numbers(&world, "SELECT COUNT(*) FROM fleet").await, [1]);
    assert_eq!(numbers(&world, "SELECT COUNT(*) FROM turn").await, [1]);
    let steps = "SELECT COUNT(*) FROM tollbook_layout";
    let before = numbers(&world, steps).await;
    world.open().await;
    assert_eq!(numbers(&world, steps).await, before, "a later start changes nothing");
}

/// A start dies after any of its steps, or before it has noted one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_died_half_way_is_gone_on_with() {
    let world = World::server();
    world.open().await.append(&[call(1)]).await.unwrap();
    for (forgotten, lost) in [
        (
            "layout > 5 OR (layout = 5 AND step > 1)",
            "ALTER TABLE limit_history DROP PRIMARY KEY, DROP COLUMN tenant, ADD PRIMARY KEY (limit_name, version)",
        ),
        ("layout > 5 OR (layout = 5 AND step > 4)", "DO 1"),
        ("layout > 4 OR (layout = 4 AND step = 2)", "DROP TABLE object_mark, `change`"),
        (
            "layout > 3 OR (layout = 3 AND step > 1)",
            "DROP TABLE object_mark, object, `change`, restorer, shard_lease",
        ),
        // They were done, and not noted.
        ("layout > 1", "DO 1"),
    ] {
        world.change(&format!("DELETE FROM tollbook_layout WHERE {forgotten}; {lost}")).await;
        let store = world.open().await;
        assert_eq!(store.objects().await.unwrap().revision, 0);
        assert_eq!(store.append(&[call(1)]).await.unwrap().repeated, 1);
    }
    // Each step is noted before the next one: notes that are all gone are no start that died, and nothing is guessed.
    world.change("DELETE FROM tollbook_layout").await;
    let kind = SqlStore::open(world.place()).await.unwrap_err().kind;
    assert!(matches!(&kind, StoreErrorKind::Away(text) if text.contains("entry_row")), "{kind:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_program_or_a_later_layout_is_not_opened() {
    let world = World::server();
    let refused = async |opened: Result<SqlStore, tollbook_store::StoreError>, want: &str| {
        let kind = opened.unwrap_err().kind;
        assert!(matches!(&kind, StoreErrorKind::Damaged(text) if text.contains(want)), "{kind:?}");
    };
    refused(SqlStore::open_to_read(world.place()).await, "no store").await;
    world.change("CREATE TABLE theirs (a INT)").await;
    refused(SqlStore::open(world.place()).await, "another program's").await;
    world.change("DROP TABLE theirs").await;
    world.open().await;
    world.change("INSERT INTO tollbook_layout VALUES (99, 1)").await;
    refused(SqlStore::open(world.place()).await, "layout 99").await;
    refused(SqlStore::open_to_read(world.place()).await, "layout 99").await;
}

#[tokio::test]
async fn a_server_that_is_away_is_told_at_once_and_no_password_with_it() {
    let mut server = Server::start();
    let wrong = server.url().replace(PASSWORD, "not-the-pw");
    let denied = SqlStore::open(wrong.parse::<Place>().unwrap()).await.unwrap_err();
    assert!(denied.to_string().contains("Access denied"), "{denied}");
    assert!(!format!("{denied} {denied:?}").contains("not-the-pw"), "{denied}");
    let absent = server.url_of("absent").parse::<Place>().unwrap();
    let unknown = SqlStore::open(absent).await.unwrap_err();
    assert!(unknown.to_string().contains("Unknown database"), "{unknown}");
    server.kill();
    let start = Instant::now();
    let away = SqlStore::open(place(&server)).await.unwrap_err();
    assert!(matches!(away.kind, StoreErrorKind::Away(_)) && away.applied == Applied::No, "{away}");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(!format!("{away} {away:?}").contains(PASSWORD), "{away}");
}

/// Writers go on while the server is killed and comes back: what was acknowledged is there, and nothing is there twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_appends_loses_nothing_and_counts_nothing_twice() {
    const EACH: u128 = 40;
    const SIZE: u128 = 20;
    let mut server = Server::start();
    let done = Arc::new(AtomicU64::new(0));
    let mut writers = Vec::new();
    for writer in 0..3_u128 {
        let (store, done) = (SqlStore::open(place(&server)).await.unwrap(), Arc::clone(&done));
        writers.push(tokio::spawn(async move {
            let mut unknown = 0;
            for round in 0..EACH {
                let first = writer * 1_000_000 + round * 1_000;
                let batch: Vec<Entry> = (first..first + SIZE).map(call).collect();
                // A drain keeps what was not acknowledged, and offers it again.
                while let Err(error) = store.append(&batch).await {
                    assert!(error.is_transient(), "{error}");
                    unknown += u64::from(error.applied == Applied::Unknown);
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            unknown
        }));
    }
    for at in [10, 40, 70] {
        while done.load(Ordering::Relaxed) < at {
            tokio::task::yield_now().await;
        }
        server.kill();
        server.start_again();
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let store = SqlStore::open(place(&server)).await.unwrap();
    let all = i64::try_from(3 * EACH * SIZE).unwrap();
    let total = &totals(&store, Side::Tenant).await[0];
    assert_eq!((total.entries, total.requests, total.cost_nano), (all, all, all * 8_000));
    assert_eq!(store.posted_sum(call(1).posted[0].account, 100).await, Ok(all * 15));
}

/// All secrets of 200 keys change again and again while the server is killed: there is never a key of one round beside one of
/// another, nor a mark that is nobody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_a_change_keeps_all_of_it_or_nothing() {
    const KEYS: usize = 200;
    let name = |key: usize| ObjectName {
        kind: ObjectKind::Key,
        tenant: "acme".to_owned(),
        project: "web".to_owned(),
        id: format!("k{key}"),
    };
    let round_of = move |round: usize| -> Vec<Edit> {
        let marks = |key| vec![format!("key k{key}"), format!("secret {round} of k{key}")];
        let edit = |key| Edit { name: name(key), document: Some(round.to_string()), marks: marks(key) };
        (0..KEYS).map(edit).collect()
    };
    let mut server = Server::start();
    let store = SqlStore::open(place(&server)).await.unwrap();
    let revision = async |store: &SqlStore| loop {
        match store.objects_of(&[]).await {
            Ok(read) => return read.revision,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    };
    let (rounds, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let writer = tokio::spawn({
        let (store, rounds, stop) = (store.clone(), Arc::clone(&rounds), Arc::clone(&stop));
        async move {
            let (mut now, mut round) = (0, 0);
            while stop.load(Ordering::Relaxed) == 0 {
                let edits = round_of(round);
                match store.write(now, "ann", &edits).await {
                    Ok(Some(next)) => now = next,
                    // One whose answer was lost may have been made.
                    Ok(None) => now = revision(&store).await,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
                round += 1;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for at in [3, 12, 20] {
        while rounds.load(Ordering::Relaxed) < at {
            tokio::task::yield_now().await;
        }
        server.kill();
        server.start_again();
    }
    stop.store(1, Ordering::Relaxed);
    writer.await.unwrap();
    let store = SqlStore::open(place(&server)).await.unwrap();
    let kept = store.objects().await.unwrap();
    assert_eq!(kept.objects.len(), KEYS);
    assert_eq!(kept.revision % 200, 0, "whole rounds");
    let round = &kept.objects[0].document;
    assert!(kept.objects.iter().all(|object| object.document == *round));
    for key in 0..KEYS {
        for mark in [format!("key k{key}"), format!("secret {round} of k{key}")] {
            assert_eq!(store.marked(&mark).await, Ok(Some(name(key))), "{mark}");
        }
    }
    let options: sqlx::mysql::MySqlConnectOptions = server.url().parse().unwrap();
    let mut other = Other::Server(sqlx::ConnectOptions::connect(&options).await.unwrap());
    assert_eq!(other.numbers("SELECT COUNT(*) FROM object_mark").await, [400]);
    let changes = i64::try_from(kept.revision).unwrap();
    assert_eq!(other.numbers("SELECT COUNT(*) FROM `change`").await, [changes]);
    other.close().await;
}

/// Connections that the server has closed are noticed, and what they were for is done on others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_were_closed_are_replaced() {
    let world = World::server();
    let store = world.open().await;
    for round in 0..3_u128 {
        store.append(&[call(round)]).await.unwrap();
        assert_eq!(store.by_reservation(ReservationId(round)).await.unwrap().len(), 1);
        let mut other = world.other().await;
        let sessions = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
             WHERE user = 'tollbook' AND id <> CONNECTION_ID()";
        let sessions = other.numbers(sessions).await;
        assert!(!sessions.is_empty());
        for session in sessions {
            other.say(&format!("KILL {session}")).await;
        }
        other.close().await;
    }
    assert_eq!(totals(&store, Side::Tenant).await[0].entries, 3);
}

/// Another program takes a row that the writer needs, then the writers' turn: the server ends the lighter of the two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b215_a_deadlock_is_tried_again_and_told_to_nobody() {
    let world = World::server();
    let store = world.open().await;
    store.append(&[call(1)]).await.unwrap();
    world.change("CREATE TABLE heavy (n INT)").await;
    let (mut other, mut third) = (world.other().await, world.other().await);
    let status = |name: &str| {
        format!(
            "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
             WHERE variable_name = 'innodb_{name}'"
        )
    };
    for round in 2..12_u128 {
        other.say("START TRANSACTION; INSERT INTO heavy SELECT seq FROM seq_1_to_5000").await;
        other.say("UPDATE posted SET amount = amount").await;
        let writer = store.clone();
        let append = tokio::spawn(async move { writer.append(&[call(round)]).await });
        while third.numbers(&status("row_lock_current_waits")).await != [1] {}
        // If this side were the one to be ended, it would stop the test.
        other.say("UPDATE turn SET taken = taken + 1").await;
        other.say("COMMIT").await;
        assert_eq!(append.await.unwrap().unwrap().inserted, 1);
    }
    assert_eq!(third.numbers(&status("deadlocks")).await, [10]);
    assert_eq!(totals(&store, Side::Tenant).await[0].entries, 11);
    assert_eq!(store.posted_sum(call(1).posted[0].account, 100).await, Ok(11 * 15));
}

/// A server turned read-only under connections that were open: only new ones may write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b218_connections_to_a_server_that_became_read_only_are_given_up() {
    let world = World::server();
    let World::Server(server) = &world else { panic!("a file") };
    world.change(&format!("CREATE USER plain@'%' IDENTIFIED BY '{PASSWORD}'")).await;
    world.change("GRANT ALL ON store.* TO plain@'%'").await;
    let url = server.url().replace("://tollbook:", "://plain:");
    let store = SqlStore::open(url.parse::<Place>().unwrap()).await.unwrap();
    store.append(&[call(1)]).await.unwrap();
    // What a connection may do is decided when it begins.
    world.change("SET GLOBAL read_only = 1; GRANT READ_ONLY ADMIN ON *.* TO plain@'%'").await;
    assert_eq!(store.append(&[call(2)]).await.unwrap().inserted, 1);
    assert_eq!(store.append(&[call(2)]).await.unwrap().repeated, 1);
    assert_eq!(totals(&store, Side::Tenant).await[0].entries, 2);
    // Where nobody may write, nothing is applied, and the drain keeps what it has.
    world.change("REVOKE READ_ONLY ADMIN ON *.* FROM plain@'%'").await;
    store.close().await;
    let store = SqlStore::open(url.parse::<Place>().unwrap()).await.unwrap();
    let error = store.append(&[call(3)]).await.unwrap_err();
    assert!(error.is_transient() && error.applied == Applied::No, "{error}");
    world.change("SET GLOBAL read_only = 0").await;
    assert_eq!(store.append(&[call(3)]).await.unwrap().inserted, 1);
}

/// A caller that gives up in the middle leaves no turn behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_given_up_holds_up_nobody() {
    let world = World::server();
    let (one, two) = (world.open().await, world.open().await);
    let batch: Vec<Entry> = (0..500).map(call).collect();
    for wait in 0..10_u64 {
        let given_up = tokio::time::timeout(Duration::from_millis(wait * 3), one.append(&batch)).await;
        if let Ok(done) = given_up {
            done.unwrap();
        }
    }
    assert_eq!(two.append(&[full(9_000)]).await.unwrap().inserted, 1);
    one.append(&batch).await.unwrap();
    assert_eq!(totals(&one, Side::Tenant).await[0].entries, 500);
}

/// The view gives members of a stored body their names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_tells_what_the_entries_say() {
    let world = World::server();
    let one = full(1);
    world.open().await.append(std::slice::from_ref(&one)).await.unwrap();
    let (body, hold) = (&one.body, &one.body.hold);
    for (column, value) in [
        ("side", i64::from(body.side.code())),
        ("seq", i64::from(one.seq)),
        ("requests", one.requests),
        ("input", body.usage.input),
        ("web_searches", body.usage.web_searches),
        ("cost_nano", body.cost_nano),
        ("hold_worst", tollbook_store::signed(hold.worst_llm_tokens)),
        ("charged_on_expiry", i64::from(hold.charged_on_expiry)),
        ("figures", i64::from(body.figures.code())),
        ("ending", i64::from(body.ending.code())),
        ("overrun_cost_nano", tollbook_store::signed(body.overrun.cost_nano)),
        ("latency_ms", i64::from(body.latency_ms)),
        ("ttft_ms", 0),
        ("flags", i64::from(body.flags.bits())),
        ("price_version = 18446744073709551615", 1),
        ("end_user = CAST('u-é\\\"\\\\7' AS BINARY)", 1),
        ("model_used = 'gpt-5'", 1),
        ("JSON_UNQUOTE(JSON_EXTRACT(ladder, '$[1]')) = 'clamp 2'", 1),
        ("JSON_LENGTH(posted)", 2),
    ] {
        let question = format!("SELECT CAST({column} AS SIGNED) FROM journal");
        assert_eq!(world.other().await.numbers(&question).await, [value], "{column}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_reader_opened_is_never_written() {
    let world = World::server();
    let writer = world.open().await;
    writer.append(&[full(1)]).await.unwrap();
    let reader = SqlStore::open_to_read(world.place()).await.unwrap();
    assert_eq!(reader.by_reservation(ReservationId(1)).await.unwrap(), [full(1)]);
    assert!(reader.append(&[call(2)]).await.is_err());
    assert!(reader.beat(1).await.is_err());
    assert!(reader.limit_rows("").await.unwrap().is_empty());
    assert_eq!(writer.beat(1).await, Ok(1));
}
