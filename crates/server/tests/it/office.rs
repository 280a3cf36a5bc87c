//! What operators define in the store, changed while a gateway runs.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tollbook::office::{mark_of_hash, mark_of_id};
use tollbook_ledger::ReservationId;
use tollbook_sql_world::{DATABASE, PASSWORD, Server};
use tollbook_store::{Edit, Journal as _, ObjectKind, ObjectName, ObjectStore as _};
use tollbook_store_sql::SqlStore;

use crate::office_world::{World, chat, cli};
use crate::process::{Tollbook, call, call_from, command, until};

fn requests(ceiling: u64) -> Value {
    json!({"limits": [{"name": "r", "measure": "requests", "window": "1h", "ceiling": ceiling}]})
}

#[test]
fn a_tenant_is_made_limited_and_deleted_while_the_gateway_runs() {
    let world = World::new();
    let gateway = world.start("a");
    assert_eq!(gateway.chat("tb_nobody", &chat()).0, 401);
    let secret = gateway.with_key();
    assert!(secret.starts_with("tb_"), "{secret}");
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);

    let key = gateway.ask("GET", "/tenants/acme/projects/web/keys/k", Value::Null, 200);
    let prefix: String = secret.chars().take(8).collect();
    assert_eq!((&key["prefix"], key.get("hash"), key.get("secret")), (&json!(prefix), None, None));

    gateway.ask("PATCH", "/tenants/acme", requests(2), 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 429);
    // A changed ceiling meets the same account (L16).
    gateway.ask("PATCH", "/tenants/acme", requests(3), 200);
    assert_eq!(gateway.limit("r")["posted"], 2);
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 429);
    gateway.ask("PATCH", "/tenants/acme", json!({"limits": null}), 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);

    gateway.ask("PATCH", "/tenants/acme/projects/web/keys/k", json!({"disabled": true}), 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 401);
    gateway.ask("PATCH", "/tenants/acme/projects/web/keys/k", json!({"disabled": false}), 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);

    let refused = gateway.ask("DELETE", "/tenants/acme", Value::Null, 409);
    assert!(refused["detail"].as_str().unwrap().contains("objects below it"), "{refused}");
    let deleted = gateway.ask("DELETE", "/tenants/acme?cascade=true", Value::Null, 200);
    assert_eq!(deleted["changed"].as_array().unwrap().len(), 3, "{deleted}");
    assert_eq!(gateway.chat(&secret, &chat()).0, 401);
    gateway.ask("GET", "/tenants/acme", Value::Null, 404);

    let history = gateway.ask("GET", "/changes?tenant=acme&limit=3", Value::Null, 200);
    let told: Vec<_> = history["data"].as_array().unwrap().iter().map(|c| (&c["who"], &c["after"])).collect();
    assert_eq!(told, [(&json!("admin.api_key"), &Value::Null); 3]);
    gateway.stop();
}

#[test]
fn b228_a_rotated_key_works_with_both_secrets_for_the_overlap_and_keeps_its_accounts() {
    let world = World::new();
    let gateway = world.start("a");
    let first = gateway.with_key();
    let key = "/tenants/acme/projects/web/keys/k";
    gateway.ask("PATCH", key, requests(10), 200);
    let rotated = gateway.ask("POST", &format!("{key}/rotate"), json!({"overlap": "1h"}), 200);
    let second = rotated["secret"].as_str().unwrap().to_owned();
    assert_eq!((gateway.chat(&first, &chat()).0, gateway.chat(&second, &chat()).0), (200, 200));
    assert_eq!(gateway.limit("r")["posted"], 2);
    // Without an overlap the secrets before are gone at once.
    let rotated = gateway.ask("POST", &format!("{key}/rotate"), Value::Null, 400);
    assert!(rotated["detail"].as_str().unwrap().contains("no JSON object"), "{rotated}");
    let rotated = gateway.ask("POST", &format!("{key}/rotate"), json!({}), 200);
    let third = rotated["secret"].as_str().unwrap();
    assert_eq!(
        [first.as_str(), &second, third].map(|secret| gateway.chat(secret, &chat()).0),
        [401, 401, 200]
    );
    // What was read can be written back, and the secret stays.
    let (_, head, read) = gateway.as_of("GET", key, "*", &Value::Null);
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    assert_eq!(gateway.as_of("PUT", key, &etag, &read).0, 200);
    assert_eq!(gateway.chat(third, &chat()).0, 200);
}

#[test]
fn edits_that_conflict_get_both_versions_and_change_nothing() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.ask("POST", "/tenants", json!({"id": "acme", "zone": "Europe/Amsterdam"}), 201);
    gateway.ask("POST", "/tenants", json!({"id": "acme"}), 409);
    let read = gateway.ask("GET", "/tenants/acme", Value::Null, 200);
    let version = read["version"].to_string();
    gateway.ask("PUT", "/tenants/acme", json!({}), 428);
    assert_eq!(gateway.as_of("PUT", "/tenants/acme", &version, &json!({"disabled": true})).0, 200);
    let (status, _, refused) = gateway.as_of("PUT", "/tenants/acme", &version, &requests(1));
    assert_eq!((status, &refused["current"]["disabled"]), (409, &json!(true)), "{refused}");
    assert_eq!(gateway.as_of("DELETE", "/tenants/acme", &version, &Value::Null).0, 409);
    assert_eq!(gateway.as_of("PUT", "/tenants/acme", "x", &json!({})).0, 400);
    assert_eq!(gateway.as_of("PUT", "/tenants/acme", "*", &json!({})).0, 200);
    assert_eq!(gateway.ask("GET", "/tenants/acme", Value::Null, 200).get("disabled"), None);
}

#[test]
fn what_is_not_right_is_told_by_object_and_field_and_nothing_of_it_stays() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.with_key();
    let revision = gateway.ask("GET", "/tenants", Value::Null, 200)["revision"].clone();
    let key = "/tenants/acme/projects/web/keys/k";
    let wrong = [
        ("PATCH", "/tenants/acme", json!({"zone": "Europe/Atlantis"}), "tenants/acme", "zone"),
        ("PATCH", "/tenants/acme", json!({"plan": "gold"}), "tenants/acme", "plan"),
        (
            "PATCH",
            "/tenants/acme",
            json!({"limits": [{"measure": "requests", "window": "60s", "ceiling": -1}]}),
            "tenants/acme",
            "limits[0].ceiling",
        ),
        (
            "PATCH",
            "/tenants/acme",
            json!({"limits": [{"measure": "requests", "window": "60s", "ceiling": 1.5}]}),
            "tenants/acme",
            "limits[0].ceiling",
        ),
        (
            "PATCH",
            "/tenants/acme",
            json!({"limits": [{"measure": "requests", "window": "60s", "ceiling": 1e30}]}),
            "tenants/acme",
            "limits[0].ceiling",
        ),
        ("PATCH", key, json!({"models": ["gpt-9"]}), "tenants/acme/projects/web/keys/k", "models"),
        ("PATCH", key, json!({"hash": "md5:1"}), "tenants/acme/projects/web/keys/k", "hash"),
        ("PATCH", key, json!({"expires": "tomorrow"}), "tenants/acme/projects/web/keys/k", "expires"),
        ("POST", "/tenants", json!({"id": "x".repeat(1024)}), "", "id"),
        ("POST", "/tenants/nobody/projects", json!({"id": "p"}), "tenants/nobody/projects/p", "tenant"),
        (
            "POST",
            "/operators",
            json!({"id": "o", "role": "owner", "tenant": "acme"}),
            "operators/o",
            "tenant",
        ),
    ];
    for (method, path, body, object, field) in wrong {
        let refused = gateway.ask(method, path, body, 400);
        let fault = &refused["faults"][0];
        let object_is = fault["object"].as_str().unwrap();
        let field_is = fault["field"].as_str().unwrap();
        assert!(object.is_empty() || object_is == object, "{refused}");
        assert!(field_is.starts_with(field) || field == "tenant" && field_is.is_empty(), "{refused}");
        assert_eq!(refused["status"], 400);
    }
    for (method, path, body) in [
        ("POST", "/tenants", json!({})),
        ("POST", "/tenants", json!([])),
        ("PATCH", key, json!({"project": "other"})),
        ("PATCH", key, json!({"expires": "2020-01-01T00:00:00Z"})),
        ("GET", "/tenants?limit=many", Value::Null),
        ("GET", "/tenants?colour=red", Value::Null),
        ("GET", "/tenants/%ff", Value::Null),
        ("DELETE", "/tenants/acme?cascade=maybe", Value::Null),
    ] {
        gateway.ask(method, path, body, 400);
    }
    assert_eq!(gateway.ask("GET", "/tenants", Value::Null, 200)["revision"], revision);
}

#[test]
fn ids_of_any_letters_are_kept_apart_byte_for_byte() {
    let world = World::new();
    let gateway = world.start("a");
    for id in ["a:{b}", "ü/ö", "Acme", "acme", "a b", "a%b", "#.x"] {
        gateway.ask("POST", "/tenants", json!({"id": id}), 201);
    }
    let list = gateway.ask("GET", "/tenants", Value::Null, 200);
    assert_eq!(list["data"].as_array().unwrap().len(), 7, "{list}");
    assert_eq!(gateway.ask("GET", "/tenants/%C3%BC%2F%C3%B6", Value::Null, 200)["id"], "ü/ö");
    let page = gateway.ask("GET", "/tenants?limit=3&prefix=a", Value::Null, 200);
    let ids: Vec<_> = page["data"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &page["next"]), (vec!["a b", "a%b", "a:{b}"], &json!("a:{b}")));
    let rest = gateway.ask("GET", "/tenants?limit=3&prefix=a&after=a%3A%7Bb%7D", Value::Null, 200);
    assert_eq!((&rest["data"][0]["id"], &rest["next"]), (&json!("acme"), &Value::Null));
}

#[test]
fn two_gateways_obey_what_is_changed_at_one_of_them() {
    two_gateways_obey(&World::new());
}

#[test]
fn two_gateways_with_one_database_obey_what_is_changed_at_one_of_them() {
    let server = Server::start();
    two_gateways_obey(&World { store: Some(server.url()), ..World::new() });
}

/// A database that cannot be had is told by its name, at the start, and its password is not.
#[test]
fn a_gateway_without_its_database_does_not_start_and_says_so() {
    let mut server = Server::start();
    let world = World { store: Some(server.url()), ..World::new() };
    let path = world.file("a", &["m"]);
    let started = || {
        let done = command(&["serve", "-c", &path]).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let checked = command(&["check", "-c", &path]).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "check looks at no server");
    server.kill();
    let (code, told) = started();
    assert_eq!(code, Some(1), "{told}");
    let place = format!("mysql://{}@{}/{}", tollbook_sql_world::USER, server.addr(), DATABASE);
    assert!(told.contains(&format!("cannot open the journal {place}")), "{told}");
    assert!(told.contains("away") && !told.contains(PASSWORD), "{told}");
    let wrong = format!("mysql://tollbook:{PASSWORD}@{}", server.addr());
    let world = World { store: Some(wrong), ..world };
    let path = world.file("a", &["m"]);
    let checked = command(&["check", "-c", &path]).output().unwrap();
    let told = String::from_utf8(checked.stderr).unwrap() + &String::from_utf8(checked.stdout).unwrap();
    assert_ne!(checked.status.code(), Some(0), "{told}");
    assert!(told.contains("names no database") && !told.contains(PASSWORD), "{told}");
}

fn two_gateways_obey(world: &World) {
    let (one, other) = (world.start("a"), world.start("b"));
    let secret = one.with_key();
    let answers =
        |status: u16| until("the other obeys", || (other.chat(&secret, &chat()).0 == status).then_some(()));
    answers(200);
    one.ask("PATCH", "/tenants/acme", requests(0), 200);
    answers(413);
    other.ask("PATCH", "/tenants/acme", json!({"limits": []}), 200);
    until("the first obeys", || (one.chat(&secret, &chat()).0 == 200).then_some(()));
    one.ask("PATCH", "/tenants/acme/projects/web/keys/k", json!({"disabled": true}), 200);
    answers(401);
    one.ask("PATCH", "/tenants/acme/projects/web/keys/k", json!({"disabled": null}), 200);
    answers(200);
    one.ask("DELETE", "/tenants/acme?cascade=true", Value::Null, 200);
    answers(401);
    // Both at once, each on what it read: every change is made, none is lost.
    let plan = |gateway: &Tollbook, id: String| gateway.ask("POST", "/plans", json!({"id": id}), 201);
    std::thread::scope(|scope| {
        for (gateway, name) in [(&one, "a"), (&other, "b")] {
            scope.spawn(move || (0..10).for_each(|n| drop(plan(gateway, format!("{name}{n}")))));
        }
    });
    let plans =
        |gateway: &Tollbook| gateway.ask("GET", "/plans", Value::Null, 200)["data"].as_array().unwrap().len();
    until("both see all", || ((plans(&one), plans(&other)) == (20, 20)).then_some(()));
    one.stop();
    other.stop();
    // A start reads them again.
    assert_eq!(plans(&world.start("a")), 20);
}

#[test]
fn plans_bind_each_of_their_tenants_by_itself() {
    let world = World::new();
    let gateway = world.start("a");
    let limit = json!({"name": "burst", "measure": "requests", "window": "1h", "ceiling": 1});
    gateway.ask("POST", "/plans", json!({"id": "free", "limits": [limit]}), 201);
    let secret = gateway.with_key();
    gateway.ask("PATCH", "/tenants/acme", json!({"plan": "free"}), 200);
    gateway.ask("POST", "/tenants", json!({"id": "other", "plan": "free"}), 201);
    gateway.ask("POST", "/tenants/other/projects", json!({"id": "p"}), 201);
    let other = gateway.ask("POST", "/tenants/other/projects/p/keys", json!({"id": "k2"}), 201);
    let other = other["secret"].as_str().unwrap();
    let two = |secret: &str| (gateway.chat(secret, &chat()).0, gateway.chat(secret, &chat()).0);
    assert_eq!((two(&secret), two(other)), ((200, 429), (200, 429)));
    assert_eq!(gateway.limit("burst of acme")["posted"], 1);
    let refused = gateway.ask("DELETE", "/plans/free", Value::Null, 400);
    assert!(refused["detail"].as_str().unwrap().contains("there is no plan `free`"), "{refused}");
}

#[test]
fn a_document_is_applied_as_a_whole_and_exported_as_it_is() {
    let world = World::new();
    let gateway = world.start("a");
    let document = json!({
        "plans": [{"id": "free", "limits": [{"measure": "requests", "window": "60s", "ceiling": 5}]}],
        "tenants": [{
            "id": "acme", "plan": "free",
            "services": [{"id": "chat", "rpm": 100, "tpm": 10_000}],
            "projects": [{"id": "web", "keys": [{"id": "k", "secret": "a-secret-of-somebody", "service": "chat"}]}],
        }],
    });
    let dry = gateway.ask("POST", "/apply?dry_run=true", document.clone(), 200);
    assert_eq!(dry["changed"].as_array().unwrap().len(), 5, "{dry}");
    assert_eq!(gateway.ask("GET", "/export", Value::Null, 200), json!({"plans": [], "tenants": []}));
    let done = gateway.ask("POST", "/apply", document.clone(), 200);
    assert_eq!((&done["revision"], &done["changed"][0]["change"]), (&json!(5), &json!("created")), "{done}");
    assert_eq!(gateway.chat("a-secret-of-somebody", &chat()).0, 200);
    // The same again changes nothing, and neither does what was exported.
    assert_eq!(gateway.ask("POST", "/apply?prune=true", document.clone(), 200)["changed"], json!([]));
    let exported = gateway.ask("GET", "/export", Value::Null, 200);
    assert_eq!(gateway.ask("POST", "/apply?prune=true", exported.clone(), 200)["changed"], json!([]));
    assert!(!exported.to_string().contains("a-secret"), "{exported}");

    let mut wrong = document;
    wrong["tenants"][0]["services"][0]["rpm"] = json!(-1);
    wrong["tenants"][0]["projects"][0]["limits"] = json!([{"measure": "requests"}]);
    let refused = gateway.ask("POST", "/apply", wrong, 400);
    assert!(refused["faults"].to_string().contains("tenants/acme/services/chat"), "{refused}");
    assert_eq!(gateway.ask("GET", "/export", Value::Null, 200), exported);

    let fewer = json!({"tenants": [{"id": "acme"}]});
    let pruned = gateway.ask("POST", "/apply?prune=true", fewer, 200);
    let told: BTreeMap<_, _> = pruned["changed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["object"].as_str().unwrap(), c["change"].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        BTreeMap::from([
            ("plans/free", "deleted"),
            ("tenants/acme", "changed"),
            ("tenants/acme/projects/web", "deleted"),
            ("tenants/acme/projects/web/keys/k", "deleted"),
            ("tenants/acme/services/chat", "deleted"),
        ])
    );
    assert_eq!(gateway.chat("a-secret-of-somebody", &chat()).0, 401);
}

/// Every operation of the served description, with ids of `acme` put in.
fn operations(document: &Value) -> Vec<(String, String)> {
    let paths = document["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, methods)| {
        let path = path.replace("{tenant}", "acme").replace("{project}", "web").replace("{id}", "k");
        methods.as_object().unwrap().keys().map(move |method| (method.to_uppercase(), path.clone()))
    });
    all.collect()
}

#[test]
fn every_path_asks_who_it_is_and_what_they_may() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.with_key();
    gateway.ask("POST", "/tenants", json!({"id": "other"}), 201);
    gateway.ask("POST", "/tenants/other/projects", json!({"id": "web"}), 201);
    let operator = |id: &str, body: Value| {
        let mut body = body;
        body["id"] = json!(id);
        gateway.ask("POST", "/operators", body, 201)["secret"].as_str().unwrap().to_owned()
    };
    let viewer = operator("v", json!({"role": "viewer"}));
    let bound = operator("b", json!({"role": "admin", "tenant": "acme"}));
    let gone = operator("d", json!({"role": "owner", "disabled": true}));
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1);
    let late = operator("l", json!({"role": "owner", "expires": soon.to_string()}));
    let admin = gateway.admin.unwrap();
    until("it expires", || (call(admin, "GET", "/admin/v1/plans", &late, "").0 == 401).then_some(()));
    let document = gateway.ask("GET", "/openapi.json", Value::Null, 200);
    let operations = operations(&document);
    assert!(operations.len() > 40, "{}", operations.len());
    for (at, (method, path)) in (0..).zip(&operations) {
        // Each from an address of its own: one that shows wrong keys is not listened to after ten.
        for key in ["", "nobody", &gone, &late] {
            assert_eq!(call_from(at, admin, (method, path, key), "{}").0, 401, "{method} {path}");
        }
        let asks = ["/explain", "/openapi.json"].iter().any(|end| path.ends_with(end));
        let (status, _) = call(admin, method, path, &viewer, "{}");
        let reads = method == "GET" && !path.contains("/operators") && !path.ends_with("/export");
        assert_eq!(status == 403, !reads && !asks, "{method} {path}: {status} for a viewer");
        // Of another tenant one sees what one sees of a tenant that is not there.
        let elsewhere = |tenant: &str| call(admin, method, &path.replace("acme", tenant), &bound, "{}");
        if path.contains("acme") {
            let (status, answer) = elsewhere("other");
            assert!(status == 404 || status == 403, "{method} {path}: {status}");
            assert_eq!((status, answer), elsewhere("nobody"), "{method} {path}");
        }
    }
    let mine = |path: &str| call(admin, "GET", &format!("/admin/v1{path}"), &bound, "").1;
    assert_eq!(mine("/tenants")["data"].as_array().unwrap().len(), 1);
    let changes = mine("/changes");
    assert!(
        changes["data"].as_array().unwrap().iter().all(|c| c["object"].as_str().unwrap().contains("acme")),
        "{changes}"
    );
    let made = call(admin, "POST", "/admin/v1/tenants/acme/projects", &bound, r#"{"id":"mine"}"#);
    assert_eq!(made.0, 201, "{}", made.1);
    assert_eq!(call(admin, "PATCH", "/admin/v1/tenants/acme", &bound, r#"{"limits":[]}"#).0, 403);
    let history = gateway.ask("GET", "/changes?limit=1", Value::Null, 200);
    assert_eq!(history["data"][0]["who"], "b");
}

#[test]
fn a_file_that_says_otherwise_is_told_and_changes_nothing() {
    let world = World::new();
    let path = world.file("a", &["m", "n"]);
    let gateway = Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap());
    let secret = gateway.with_key();
    gateway.ask("PATCH", "/tenants/acme/projects/web/keys/k", json!({"models": ["m", "n"]}), 200);
    // A model that a key names goes: the file is not taken.
    let before = std::fs::read_to_string(&path).unwrap();
    let without: Vec<&str> = before.lines().filter(|line| !line.contains("name: n,")).collect();
    std::fs::write(&path, without.join("\n") + "\n").unwrap();
    gateway.signal(rustix::process::Signal::HUP);
    let body = json!({"model": "n", "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(gateway.chat(&secret, &body).0, 200);
    gateway.ask("PATCH", "/tenants/acme/projects/web/keys/k", json!({"models": ["m"]}), 200);
    until("the file is taken", || {
        gateway.signal(rustix::process::Signal::HUP);
        (gateway.chat(&secret, &body).0 != 200).then_some(())
    });
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
    gateway.stop();
    std::fs::write(&path, format!("{before}tenants: [{{ id: t }}]\n")).unwrap();
    let output = command(&["check", "-c", &path]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("tollbook apply -f") && output.status.code() == Some(2), "{said}");
}

#[test]
fn where_the_file_says_it_the_api_names_the_file() {
    let world = World::new();
    let path = world.file("a", &["m"]);
    let text = std::fs::read_to_string(&path).unwrap().replace("config: { source: sql }\n", "");
    std::fs::write(&path, text).unwrap();
    let gateway = Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap());
    let refused = gateway.ask("POST", "/tenants", json!({"id": "acme"}), 405);
    assert!(refused["detail"].as_str().unwrap().contains("config.source: file"), "{refused}");
    gateway.ask("GET", "/tenants", Value::Null, 404);
}

#[test]
fn an_operator_does_it_all_from_the_command_line() {
    let world = World::new();
    let gateway = world.start("a");
    let good = |arguments: &[&str]| {
        let (code, out, err) = cli(&gateway, arguments);
        assert_eq!(code, 0, "{arguments:?}: {out}{err}");
        out
    };
    good(&["tenant", "create", "acme", "--set", "zone=Europe/Amsterdam"]);
    good(&["project", "create", "acme", "web"]);
    let made = good(&["key", "create", "acme", "web", "k", "--set", "models=[m]", "--json"]);
    let secret = serde_json::from_str::<Value>(&made).unwrap()["secret"].as_str().unwrap().to_owned();
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
    good(&["service", "create", "acme", "chat", "--set", "rpm=100", "--set", "tpm=10000"]);
    let table = good(&["service", "list", "acme"]);
    assert_eq!(table, "ID    RPM  TPM\nchat  100  10000\n");
    let shown = good(&["key", "show", "acme", "web", "k"]);
    assert!(shown.contains("models: [\"m\"]") && !shown.contains("hash"), "{shown}");
    good(&[
        "tenant",
        "update",
        "acme",
        "--set",
        "limits=[{ name: r, measure: cost, period: day, ceiling: 2.50 }]",
    ]);
    assert_eq!(gateway.limit("r")["ceiling"], 2_500_000_000_u64);

    let file = world.folder.path().join("tenants.yaml");
    let exported = good(&["export"]);
    std::fs::write(&file, &exported).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(good(&["apply", "-f", file, "--prune"]), "nothing to change\n");
    std::fs::write(file, exported.replace("rpm: 100", "rpm: 50")).unwrap();
    let told = good(&["apply", "-f", file, "--dry-run"]);
    assert_eq!(told, "~ tenants/acme/services/chat\n    rpm: 100 → 50\n");
    assert!(good(&["service", "show", "acme", "chat"]).contains("rpm: 100"));
    assert!(good(&["apply", "-f", file]).ends_with("applied; the store is at revision 6\n"));
    assert!(good(&["changes", "--limit", "1"]).contains("admin.api_key  changed tenants/acme/services/chat"));

    std::fs::write(file, "tenants: [{ id: acme }]\n").unwrap();
    let (code, _, err) = cli(&gateway, &["apply", "-f", file, "--prune"]);
    assert!(code == 2 && err.contains("--yes"), "{err}");
    std::fs::write(
        file,
        "tenants: [{ id: acme, limits: [{ measure: requests, window: 60, ceiling: 1 }] }]\n",
    )
    .unwrap();
    let (code, _, err) = cli(&gateway, &["apply", "-f", file]);
    assert!(code == 2 && err.contains("tenants.yaml:1:"), "{err}");
    let (code, _, err) = cli(&gateway, &["tenant", "update", "acme", "--set", "zone=Nowhere"]);
    assert!(code == 1 && err.contains("tenants/acme: zone: there is no time zone `Nowhere`"), "{err}");
    for wrong in [
        &["key", "show", "acme"][..],
        &["tenant", "rotate", "acme"],
        &["tenant", "create", "x", "--set", "zone"],
    ] {
        assert_eq!(cli(&gateway, wrong).0, 2, "{wrong:?}");
    }
    assert_eq!(cli(&gateway, &["tenant", "show", "nobody"]).0, 1);
    let rotated = good(&["key", "rotate", "acme", "web", "k", "--overlap", "1h"]);
    assert!(rotated.contains("secret: tb_"), "{rotated}");
    assert_eq!(cli(&gateway, &["tenant", "delete", "acme"]).0, 1);
    assert!(good(&["tenant", "delete", "acme", "--cascade"]).starts_with("- tenants/acme/services/chat\n"));
    assert_eq!(gateway.chat(&secret, &chat()).0, 401);
}

/// Three gateways that know the key; a stream that runs is served to its end.
#[test]
fn b226_a_disabled_key_is_refused_by_every_gateway() {
    let world = World::new();
    let gateways = ["a", "b", "c"].map(|name| world.start(name));
    let secret = gateways[0].with_key();
    let key = "/tenants/acme/projects/web/keys/k";
    let all = |status: u16| {
        for gateway in &gateways {
            until("all obey", || (gateway.chat(&secret, &chat()).0 == status).then_some(()));
        }
    };
    all(200);
    for (gateway, body, status) in [(1, json!({"disabled": true}), 401), (2, json!({"disabled": false}), 200)]
    {
        gateways[gateway].ask("PATCH", key, body, 200);
        all(status);
    }
    gateways[2].ask("DELETE", key, Value::Null, 200);
    all(401);
}

/// Absent, null, 0, below 0 and 1 mean the same wherever they are written.
#[test]
fn b223_a_number_means_the_same_in_api_export_and_calls() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    for measure in ["requests", "tokens", "concurrency", "cost"] {
        let shape = match measure {
            "requests" | "tokens" => json!({"window": "1h"}),
            "cost" => json!({"period": "day"}),
            _ => json!({}),
        };
        let limit = |ceiling: Option<Value>| {
            let mut limit = shape.clone();
            limit["measure"] = json!(measure);
            if let Some(ceiling) = ceiling {
                limit["ceiling"] = ceiling;
            }
            json!({"limits": [limit]})
        };
        for nothing in [None, Some(Value::Null)] {
            gateway.ask("PATCH", "/tenants/acme", limit(nothing), 200);
            assert_eq!(gateway.chat(&secret, &chat()).0, 200, "{measure}");
        }
        let zero = gateway.ask("PATCH", "/tenants/acme", limit(Some(json!(0))), 200);
        assert_eq!(zero["limits"][0]["ceiling"], 0);
        assert!(gateway.chat(&secret, &chat()).0 >= 402, "{measure}");
        let exported = gateway.ask("GET", "/export", Value::Null, 200);
        assert_eq!(exported["tenants"][0]["limits"][0]["ceiling"], 0);
        gateway.ask("PATCH", "/tenants/acme", limit(Some(json!(-1))), 400);
        // What is not told is not changed.
        gateway.ask("PATCH", "/tenants/acme", json!({"zone": "UTC"}), 200);
        assert!(gateway.chat(&secret, &chat()).0 >= 402, "{measure}");
    }
    let service = json!({"id": "s", "rpm": null, "tpm": 0});
    assert_eq!(gateway.ask("POST", "/tenants/acme/services", service, 201)["tpm"], 0);
    gateway.ask("PATCH", "/tenants/acme/services/s", json!({"rpm": -1}), 400);
    gateway.ask("PATCH", "/tenants/acme/services/s", json!({"rpm": 1.5}), 400);
}

/// Calls and everything else that shows the key; what is behind no trusted proxy is the peer, whatever headers say.
#[test]
fn a_key_is_open_to_the_addresses_it_names() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    let key = "/tenants/acme/projects/web/keys/k";
    let asked = || {
        let (called, told) = gateway.chat(&secret, &chat());
        let models = call(gateway.gateway, "GET", "/v1/models", &secret, "").0;
        assert_eq!(called, models, "{told}");
        (called, told["error"]["code"].clone())
    };
    gateway.ask("PATCH", key, json!({"addresses": ["203.0.113.0/24", "2001:db8::1"]}), 200);
    assert_eq!(asked(), (403, json!("address_not_allowed")));
    gateway.ask("PATCH", key, json!({"addresses": ["203.0.113.0/24", "127.0.0.0/8"]}), 200);
    assert_eq!(asked().0, 200);
    gateway.ask("PATCH", key, json!({"addresses": []}), 200);
    assert_eq!(asked().0, 403, "none is none");
    for wrong in [json!(["10.0.0.0/33"]), json!(["nowhere"]), json!(["10.0.0.0/8", ""])] {
        let told = gateway.ask("PATCH", key, json!({"addresses": wrong}), 400);
        let field = told["faults"][0]["field"].as_str().unwrap();
        assert!(field.starts_with("addresses["), "{told}");
    }
    gateway.ask("PATCH", key, json!({"addresses": null}), 200);
    assert_eq!(asked().0, 200, "anywhere");
}

/// Another gateway, whose file has more models, let a key name one that this gateway's file does not have.
#[test]
fn a_gateway_that_cannot_follow_goes_on_and_calls_no_key_unknown() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    assert_eq!(gateway.chat("tb_new", &chat()).0, 401);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hash = |id: &str| {
        let exported = gateway.ask("GET", "/export", Value::Null, 200);
        let keys = exported["tenants"][0]["projects"][0]["keys"].as_array().unwrap().clone();
        let hash = keys.iter().find(|key| key["id"] == id).unwrap()["hash"].clone();
        hash.as_str().unwrap().to_owned()
    };
    let of_k = hash("k");
    let made = gateway.ask("POST", "/tenants/acme/projects/web/keys", json!({"id": "k2"}), 201);
    let (second, of_k2) = (made["secret"].as_str().unwrap().to_owned(), hash("k2"));
    gateway.ask("DELETE", "/tenants/acme/projects/web/keys/k2", Value::Null, 200);
    assert_eq!((gateway.chat(&secret, &chat()).0, gateway.chat(&second, &chat()).0), (200, 401));
    let elsewhere = |id: &str, hash: &str, model: &str| {
        let document = json!({"hash": hash, "models": [model]}).to_string();
        let name = ObjectName {
            kind: ObjectKind::Key,
            tenant: "acme".to_owned(),
            project: "web".to_owned(),
            id: id.to_owned(),
        };
        let marks = vec![mark_of_id(id), mark_of_hash(hash)];
        let edit = [Edit { name, document: Some(document), marks }];
        runtime.block_on(async {
            let store = SqlStore::open(&world.folder.path().join("store.sqlite")).await.unwrap();
            let revision = store.objects().await.unwrap().revision;
            assert!(store.write(revision, "somebody", &edit).await.unwrap().is_some());
            store.close().await;
        });
    };
    elsewhere("k", &of_k, "of-another-file");
    elsewhere("k2", &of_k2, "m");
    until("a key that is new is not called unknown", || {
        (gateway.chat(&second, &chat()).0 == 503).then_some(())
    });
    assert_eq!(gateway.chat(&secret, &chat()).0, 200, "what was kept of the tenant goes on");
    assert_eq!(gateway.chat("tb_new", &chat()).0, 401, "nobody has it");
    let refused = gateway.ask("PATCH", "/tenants/acme", json!({"zone": "UTC"}), 400);
    assert!(refused["faults"][0]["what"].as_str().unwrap().contains("of-another-file"), "{refused}");
    gateway.ask("POST", "/tenants", json!({"id": "other"}), 201);
    elsewhere("k", &of_k, "m");
    until("it follows again", || (gateway.chat(&second, &chat()).0 == 200).then_some(()));
    gateway.ask("PATCH", "/tenants/acme", json!({"zone": "UTC"}), 200);
}

/// A prepaid budget: what is given back, or topped up, is an entry of the journal, and is posted once.
#[test]
fn a_quota_is_adjusted_once_with_a_reason() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    let limit = |ceiling: &str| {
        let budget = json!({"name": "prepaid", "measure": "cost", "period": "lifetime", "ceiling": ceiling});
        json!({"limits": [budget, {"name": "r", "measure": "requests", "window": "60s", "ceiling": 9}]})
    };
    gateway.ask("PATCH", "/tenants/acme", limit("0.000001"), 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 413);
    let order = json!({"limit": "prepaid", "delta": "-10.00", "reason": "paid: üinvoice 118", "id": "118"});
    let done = gateway.ask("POST", "/tenants/acme/adjust", order.clone(), 200);
    assert_eq!(
        (&done["applied"], &done["posted"], &done["remaining"]),
        (&json!(true), &json!("-10"), &json!("10.000001"))
    );
    let again = gateway.ask("POST", "/tenants/acme/adjust", order, 200);
    assert_eq!(
        (&again["applied"], &again["posted"], &again["id"]),
        (&json!(false), &json!("-10"), &done["id"])
    );
    // Once the journal has it, the same id for anything else is a slip that is told.
    let other = json!({"limit": "prepaid", "delta": "-11.00", "reason": "paid", "id": "118"});
    let path = "/admin/v1/tenants/acme/adjust";
    until("the journal has it", || (gateway.operators("POST", path, &other).0 == 409).then_some(()));
    for (order, status) in [
        (json!({"limit": "prepaid", "delta": "1"}), 400),
        (json!({"limit": "prepaid", "delta": "1", "reason": " "}), 400),
        (json!({"limit": "prepaid", "delta": "1", "reason": "x".repeat(1_000)}), 400),
        (json!({"limit": "prepaid", "delta": "--1", "reason": "x"}), 400),
        (json!({"limit": "prepaid", "delta": "0", "reason": "x"}), 400),
        (json!({"limit": "prepaid", "delta": "1e99", "reason": "x"}), 400),
        (json!({"limit": "prepaid", "delta": "1", "reason": "x", "user": "u"}), 400),
        (json!({"limit": "r", "delta": "1", "reason": "x"}), 400),
        (json!({"limit": "nothing", "delta": "1", "reason": "x"}), 404),
    ] {
        gateway.ask("POST", "/tenants/acme/adjust", order, status);
    }
    gateway.ask(
        "POST",
        "/tenants/other/adjust",
        json!({"limit": "prepaid", "delta": "1", "reason": "x"}),
        404,
    );
    let (code, out, err) =
        cli(&gateway, &["adjust", "acme", "prepaid", "2.5", "--reason", "a fee", "--id", "fee"]);
    assert_eq!(
        (code, out.as_str()),
        (0, "2.5 posted to prepaid: -7.5 of 0.000001 used, 7.500001 left\n"),
        "{err}"
    );
    gateway.stop();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let id = u128::from_str_radix(done["id"].as_str().unwrap(), 16).unwrap();
    let entries = runtime.block_on(async {
        let store = SqlStore::open(&world.folder.path().join("store.sqlite")).await.unwrap();
        store.by_reservation(ReservationId(id)).await.unwrap()
    });
    let ladder: Vec<&str> = entries[0].body.ladder.iter().map(AsRef::as_ref).collect();
    assert_eq!(
        (ladder, entries[0].posted[0].amount),
        (vec!["by admin.api_key", "paid: üinvoice 118"], -10_000_000_000)
    );
}
