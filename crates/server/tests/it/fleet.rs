//! Gateways that share nothing but a book in Redis and a journal in a database.

use serde_json::json;
use tollbook_redis_world as redis;
use tollbook_sql_world as sql;

use crate::office_world::{World, chat};
use crate::process::{command, until};

/// The book's server loses everything, the journal's is killed: the quota goes on from what the calls used, and the
/// journal has each call once.
#[test]
fn a_fleet_with_its_journal_in_a_database_outlives_both_servers() {
    let (book, mut journal) = (redis::Plan::redis().aof().start(), sql::Server::start());
    let world = World { store: Some(journal.url()), book: Some(book.url()), ..World::new() };
    let (one, other) = (world.start("a"), world.start("b"));
    let limit = json!({"name": "day", "measure": "requests", "period": "day", "ceiling": 1_000_000});
    one.ask("POST", "/tenants", json!({"id": "acme", "limits": [limit]}), 201);
    one.ask("POST", "/tenants/acme/projects", json!({"id": "web"}), 201);
    let key = one.ask("POST", "/tenants/acme/projects/web/keys", json!({"id": "k"}), 201);
    let secret = key["secret"].as_str().unwrap();
    let calls = |count: usize| {
        for gateway in [&one, &other].into_iter().cycle().take(count) {
            let (status, answer) = gateway.chat(secret, &chat());
            assert_eq!(status, 200, "{answer}");
        }
    };
    let posted =
        |calls: u64| until("the quota knows all", || (one.limit("day")["posted"] == calls).then_some(()));
    until("the other obeys", || (other.chat(secret, &chat()).0 == 200).then_some(()));
    calls(9);
    posted(10);

    assert_eq!(book.ask(&["FLUSHALL"]).text(), "OK");
    until("the lost part is open", || (one.chat(secret, &chat()).0 == 200).then_some(()));
    posted(11);
    calls(4);
    posted(15);

    journal.kill();
    calls(4);
    posted(19);
    journal.start_again();
    calls(2);
    posted(21);
    one.stop();
    other.stop();
    let path = world.folder.path().join("a/t.yaml");
    let told =
        command(&["report", "--csv", "--by", "tenant", "-c", path.to_str().unwrap()]).output().unwrap();
    let report = String::from_utf8(told.stdout).unwrap();
    assert!(report.contains("\nacme,21,"), "{report}");
}
