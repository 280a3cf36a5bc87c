//! What operators define in the store, asked for by slips of the pen, by those who may not, and by many at once.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::office_world::{World, chat, cli};
use crate::process::{OPERATOR, Tollbook, call, call_with, until};

const KEY: &str = "/tenants/acme/projects/web/keys/k";

#[test]
fn a_slip_in_the_query_is_told_before_anything_is_done() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    let revision = gateway.ask("GET", "/tenants", Value::Null, 200)["revision"].clone();
    for (method, path, body) in [
        ("POST", "/tenants?dry_run=1", json!({"id": "slip"})),
        ("POST", "/tenants?dry_run=true&dry_run=false", json!({"id": "slip"})),
        ("POST", "/tenants?prune=true", json!({"id": "slip"})),
        ("POST", "/apply?dry_run=yes", json!({"tenants": [{"id": "slip"}]})),
        ("POST", "/apply?dryrun=true", json!({"tenants": [{"id": "slip"}]})),
        ("DELETE", "/tenants/acme?cascade=true&dry_run=on", Value::Null),
        ("PATCH", "/tenants/acme?cascade=true", json!({"disabled": true})),
        ("POST", &format!("{KEY}/rotate?dry_run=TRUE"), json!({})),
        ("GET", "/tenants?disabled=maybe", Value::Null),
    ] {
        gateway.ask(method, path, body, 400);
    }
    assert_eq!(gateway.ask("GET", "/tenants", Value::Null, 200)["revision"], revision);
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
}

/// Else the secret before, which the fleet's clients show, would end at once.
#[test]
fn a_slip_in_a_rotation_ends_no_secret() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    for slip in [json!({"overlapp": "24h"}), json!({"overlap": 24}), json!({"overlap": null})] {
        gateway.ask("POST", &format!("{KEY}/rotate"), slip, 400);
    }
    gateway.ask("POST", "/operators", json!({"id": "o", "role": "viewer"}), 201);
    gateway.ask("POST", "/operators/o/rotate", json!({"overlap": "1h"}), 400);
    gateway.ask("POST", "/operators/o/rotate", json!({}), 200);
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
}

/// The other gateway may not have read of an object yet: it does so before it says that there is none, and never takes
/// what is there for new.
#[test]
fn what_was_made_at_one_gateway_can_be_changed_at_the_other_at_once() {
    let world = World::new();
    let (one, other) = (world.start("a"), world.start("b"));
    one.with_key();
    for round in 0..5 {
        let keys = "/tenants/acme/projects/web/keys";
        let made = one.ask("POST", keys, json!({"id": format!("n{round}")}), 201);
        let path = format!("{keys}/n{round}");
        let (status, _, put) = other.as_of("PUT", &path, "*", &json!({"models": ["m"]}));
        assert_eq!((status, put.get("secret")), (200, None), "{put}");
        assert_eq!(other.chat(made["secret"].as_str().unwrap(), &chat()).0, 200);
        one.ask("POST", "/plans", json!({"id": format!("p{round}")}), 201);
        other.ask("PATCH", &format!("/plans/p{round}"), json!({"limits": []}), 200);
    }
}

/// `*` is any version, also while others change the same object.
#[test]
fn changes_of_any_version_are_all_made_while_others_make_theirs() {
    const EACH: usize = 12;
    let world = World::new();
    let (one, other) = (world.start("a"), world.start("b"));
    one.ask("POST", "/tenants", json!({"id": "acme"}), 201);
    let change = |gateway: &Tollbook, disabled: bool| {
        for _ in 0..EACH {
            let (status, _, told) =
                gateway.as_of("PATCH", "/tenants/acme", "*", &json!({"disabled": disabled}));
            assert_eq!(status, 200, "{told}");
        }
    };
    std::thread::scope(|scope| {
        for (gateway, disabled) in [(&one, true), (&other, false), (&one, false), (&other, true)] {
            scope.spawn(move || change(gateway, disabled));
        }
    });
}

/// Neither by what is refused, nor by warnings, nor by what the book keeps.
#[test]
fn an_operator_of_one_tenant_hears_nothing_of_another() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    let limit = |name: &str, ceiling: u64| json!([{"name": name, "measure": "requests", "window": "1h", "ceiling": ceiling}]);
    // Before and after `acme`: what is wrong is told of whichever comes second.
    for (tenant, taken) in [("aaa-secret", "of-aaa"), ("zzz-secret", "of-zzz")] {
        let path = format!("/tenants/{tenant}/projects");
        gateway.ask("POST", "/tenants", json!({"id": tenant, "limits": limit(taken, 5)}), 201);
        // Above its tenant's: whoever changes something of the tenant is warned.
        let made = json!({"id": "p", "limits": limit(&format!("{taken}-above"), 50)});
        let told = gateway.ask("POST", &path, made, 201);
        let warning = format!(
            "tenants/{tenant}/projects/p: limits[0].ceiling: is above tenants/{tenant}: limits[0] of its"
        );
        assert!(told["warnings"].to_string().contains(&warning), "{told}");
        gateway.ask("POST", &format!("{path}/p/keys"), json!({"id": taken}), 201);
    }
    let all = gateway.ask("PATCH", "/tenants/acme", json!({"user_limits": limit("each", 9)}), 200);
    assert_eq!(all.get("warnings"), None, "of other tenants nothing is told: {all}");
    let bound = gateway.ask("POST", "/operators", json!({"id": "b", "role": "admin", "tenant": "acme"}), 201);
    let bound = bound["secret"].as_str().unwrap();
    let ask = |method: &str, path: &str, body: Value, status: u16| {
        let (path, body) = (format!("/admin/v1{path}"), body.to_string());
        let (got, told) = call(gateway.admin.unwrap(), method, &path, bound, &body);
        assert_eq!(got, status, "{method} {path}: {told}");
        assert!(!told.to_string().contains("-secret"), "{method} {path}: {told}");
        told
    };
    let keys = "/tenants/acme/projects/web/keys";
    for taken in ["of-aaa", "of-zzz"] {
        ask("POST", keys, json!({"id": taken}), 400);
        // What limits are called is each tenant's own.
        ask("PATCH", "/tenants/acme/projects/web", json!({"limits": limit(taken, 1_000)}), 200);
    }
    ask("PATCH", "/tenants/acme/projects/web", json!({"limits": null}), 200);
    let made = ask("POST", keys, json!({"id": "mine"}), 201);
    assert_eq!(made.get("warnings"), None, "{made}");
    let own = ask(
        "PATCH",
        "/tenants/acme/projects/web",
        json!({"limits": [{"measure": "requests", "window": "0s"}]}),
        400,
    );
    assert_eq!(own["faults"][0]["object"], "tenants/acme/projects/web", "{own}");

    let mut of_ann = chat();
    of_ann["user"] = json!("ann");
    assert_eq!(gateway.chat(&secret, &of_ann).0, 200);
    let inspected = gateway.ask("GET", "/inspect/acme", Value::Null, 200);
    assert_ne!(inspected["unnamed_accounts"], json!([]), "{inspected}");
    let inspected = ask("GET", "/inspect/acme", Value::Null, 200);
    assert_eq!(inspected["unnamed_accounts"], json!([]), "may be another tenant's");
    assert!(!inspected.to_string().contains("all keys"), "{inspected}");
}

#[test]
fn one_document_is_bounded_as_it_is_read() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.with_key();
    let long = |length: usize| json!({"zone": "x".repeat(length)});
    let refused = gateway.ask("PATCH", "/tenants/acme", long(256 << 10), 413);
    assert_eq!(refused["code"], "too_large");
    let refused = gateway.ask("PATCH", "/tenants/acme", long(100 << 10), 400);
    assert_eq!(refused["code"], "not_right");
    // A client's whole call may be larger.
    let body = json!({"key_id": "k", "body": {"model": "m", "messages": [{"role": "user", "content": "x ".repeat(150 << 10)}]}});
    gateway.ask("POST", "/explain", body, 200);
}

/// What somebody calls a project is no variable where another applies the export.
#[test]
fn an_export_is_applied_as_it_is_and_gives_no_secret_away() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.with_key();
    for id in [
        "${TOLLBOOK_ADMIN_KEY}",
        "$${X}",
        "007",
        "true",
        "1e3",
        "a: b",
        "- x",
        "#",
        "null",
        " y ",
        "\u{e9}\u{2028}",
    ] {
        gateway.ask("POST", "/tenants/acme/projects", json!({"id": id}), 201);
        gateway.ask("POST", "/tenants/acme/services", json!({"id": id}), 201);
    }
    let file = world.folder.path().join("export");
    for format in [&["export"][..], &["export", "--json"]] {
        let (code, text, _) = cli(&gateway, format);
        assert_eq!(code, 0);
        std::fs::write(&file, text).unwrap();
        let (code, told, err) = cli(&gateway, &["apply", "-f", file.to_str().unwrap(), "--prune"]);
        assert_eq!((code, told.as_str()), (0, "nothing to change\n"), "{err}");
    }
    std::fs::write(
        &file,
        "tenants: [{ id: 007, projects: [{ id: 0x1, keys: [{ id: 08, secret: 0123456789 }] }] }]",
    )
    .unwrap();
    assert_eq!(cli(&gateway, &["apply", "-f", file.to_str().unwrap()]).0, 0);
    gateway.ask("GET", "/tenants/007/projects/0x1/keys/08", Value::Null, 200);
    assert_eq!(gateway.chat("0123456789", &chat()).0, 200);
    assert!(!gateway.ask("GET", "/changes", Value::Null, 200).to_string().contains(OPERATOR));
    let empty =
        json!({"tenants": [{"id": "e", "projects": [{"id": "p", "keys": [{"id": "e", "secret": ""}]}]}]});
    gateway.ask("POST", "/apply", empty, 400);
}

/// Who asked for a change that is made is told so, also by a gateway that stops: a secret is shown once.
#[test]
fn a_change_that_is_made_is_answered_also_at_the_end() {
    const CLIENTS: usize = 8;
    let world = World::new();
    let gateway = world.start("a");
    let admin = gateway.admin.unwrap();
    let client = |number: usize| -> BTreeSet<String> {
        let mut made = BTreeSet::new();
        for round in 0.. {
            let Ok(mut socket) = TcpStream::connect(admin) else { break };
            let (id, mut answer) = (format!("{number}-{round}"), String::new());
            let body = json!({"id": id}).to_string();
            let head = format!(
                "POST /admin/v1/plans HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {OPERATOR}\r\nconnection: close\r\n"
            );
            let sent = write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len());
            let _ = sent.and_then(|()| socket.read_to_string(&mut answer).map(drop));
            if answer.is_empty() {
                break;
            }
            if answer.starts_with("HTTP/1.1 201") {
                made.insert(id);
            }
        }
        made
    };
    let answered: BTreeSet<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        until("they are at work", || {
            let plans = gateway.ask("GET", "/plans?limit=1000", Value::Null, 200);
            (plans["data"].as_array().unwrap().len() > 3 * CLIENTS).then_some(())
        });
        gateway.stop();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let plans = world.start("a").ask("GET", "/plans?limit=1000", Value::Null, 200);
    let kept = plans["data"].as_array().unwrap().iter().map(|plan| plan["id"].as_str().unwrap().to_owned());
    assert_eq!(kept.collect::<BTreeSet<_>>(), answered);
}

#[test]
fn a_document_is_applied_to_what_somebody_has_seen() {
    let world = World::new();
    let gateway = world.start("a");
    let document = json!({"plans": [{"id": "free"}]});
    let seen =
        gateway.ask("POST", "/apply?dry_run=true&prune=true", document.clone(), 200)["revision"].to_string();
    gateway.ask("POST", "/plans", json!({"id": "made-since"}), 201);
    let (status, _, refused) = gateway.as_of("POST", "/apply?prune=true", &seen, &document);
    assert_eq!((status, &refused["revision"]), (409, &json!(1)), "{refused}");
    assert_eq!(gateway.as_of("POST", "/apply?prune=true", "1", &document).0, 200);
    // Which of two would count?
    let twice = r#"{"id": "twice", "limits": [], "limits": []}"#;
    let (status, told) = call(gateway.admin.unwrap(), "POST", "/admin/v1/plans", OPERATOR, twice);
    assert!(status == 400 && told["detail"].as_str().unwrap().contains("`limits` is given twice"), "{told}");
}

#[test]
fn a_refusal_tells_what_would_be_taken() {
    let world = World::new();
    let gateway = world.start("a");
    let ask = |method: &str, key: &str| {
        call_with(gateway.admin.unwrap(), method, "/admin/v1/tenants", key, "", "").1
    };
    assert!(ask("DELETE", OPERATOR).contains("\r\nallow: get, post"), "{}", ask("DELETE", OPERATOR));
    assert!(ask("GET", "nobody").contains("\r\nwww-authenticate: bearer"));
}

/// A budget that is taken away and comes back within its period was opened twice: it has each call once.
#[test]
fn l16_a_budget_that_comes_back_has_each_call_once() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    let calls = |count: usize| (0..count).for_each(|_| assert_eq!(gateway.chat(&secret, &chat()).0, 200));
    let budget = json!([{"name": "q", "measure": "requests", "period": "lifetime", "ceiling": 1_000}]);
    let plan = |id: &str| gateway.ask("PATCH", "/tenants/acme", json!({"plan": id}), 200);
    let posted = |least: u64| {
        until("posted", || gateway.limit("q of acme")["posted"].as_u64().filter(|posted| *posted >= least))
    };
    let second = || {
        let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let begun = now();
        until("the next second", || (now() > begun).then_some(()));
    };
    gateway.ask("POST", "/plans", json!({"id": "with", "limits": budget}), 201);
    gateway.ask("POST", "/plans", json!({"id": "without"}), 201);
    plan("without");
    calls(3);
    plan("with");
    calls(1);
    assert_eq!(posted(4), 4, "opened with the calls before it");
    let mut all = 4;
    for _ in 0..2 {
        second();
        plan("without");
        calls(2);
        second();
        plan("with");
        calls(1);
        all += 3;
        assert_eq!(posted(all), all);
    }
    // The plan itself goes and comes.
    second();
    plan("without");
    calls(1);
    gateway.ask("DELETE", "/plans/with", Value::Null, 200);
    gateway.ask("POST", "/plans", json!({"id": "with", "limits": budget}), 201);
    second();
    plan("with");
    calls(1);
    assert_eq!(posted(all + 2), all + 2);
    gateway.stop();
}

/// Whoever guesses keys fills nothing that gateways share: a key that nobody has is looked up in the store, and remembered
/// in this process alone, by a bounded number.
#[test]
fn keys_that_nobody_has_leave_nothing_in_the_fleets_cache() {
    let redis = tollbook_redis_world::Server::redis();
    let mut world = World::new();
    world.book = Some(format!("redis://{}", redis.addr()));
    let gateway = world.start("a");
    let secret = gateway.with_key();
    until("the key is known", || (gateway.chat(&secret, &chat()).0 == 200).then_some(()));
    let cached = || redis.ask(&["KEYS", "*cfg*"]).items().len();
    let before = cached();
    assert!(before > 0, "what was read is there");
    for number in 0..1_000 {
        assert_eq!(gateway.chat(&format!("tb_guessed-{number}"), &chat()).0, 401);
    }
    assert_eq!(cached(), before);
    gateway.stop();
}

/// What an answer tells of an object may be sent back as it is, whatever its kind is called by in a file.
#[test]
fn what_was_shown_can_be_put_back() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.with_key();
    gateway.ask("POST", "/plans", json!({"id": "gold"}), 201);
    gateway.ask("POST", "/tenants/acme/services", json!({"id": "s", "rpm": 5}), 201);
    let upstream = json!({"id": "v", "dialect": "openai", "base_url": "http://127.0.0.1:9/v1"});
    gateway.ask("POST", "/upstreams", upstream, 201);
    gateway.ask("POST", "/models", json!({"id": "n", "upstream": "v"}), 201);
    gateway.ask("POST", "/operators", json!({"id": "o", "role": "viewer", "hash": null}), 201);
    let objects = [
        "/plans/gold",
        "/tenants/acme",
        "/tenants/acme/projects/web",
        KEY,
        "/tenants/acme/services/s",
        "/upstreams/v",
        "/models/n",
        "/operators/o",
    ];
    for path in objects {
        let shown = gateway.ask("GET", path, Value::Null, 200);
        let version = shown["version"].to_string();
        for method in ["PUT", "PATCH"] {
            let (status, _, told) = gateway.as_of(method, &format!("{path}?dry_run=true"), &version, &shown);
            assert_eq!(status, 200, "{method} {path}: {told}");
            let other = json!({"id": "another"});
            let (status, _, told) = gateway.as_of(method, &format!("{path}?dry_run=true"), &version, &other);
            assert_eq!(status, 400, "{method} {path}: {told}");
        }
    }
    for limit in ["0", "1001", "-1", "many"] {
        gateway.ask("GET", &format!("/tenants?limit={limit}"), Value::Null, 400);
    }
    assert_eq!(
        gateway.ask("GET", "/tenants?limit=1000", Value::Null, 200)["data"].as_array().unwrap().len(),
        1
    );
    gateway.stop();
}

#[test]
fn what_is_not_there_is_named_on_the_command_line() {
    let world = World::new();
    let gateway = world.start("a");
    let (code, out, err) = cli(&gateway, &["project", "show", "nobody", "web"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(
        err,
        "tollbook: there is no tenants/nobody/projects/web, or this operator may not see it (status 404)\n"
    );
    gateway.stop();
}
