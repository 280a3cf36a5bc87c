//! End users as objects: their own limits, their calls refused, by one gateway as by another, from the store as from a file.

use std::path::Path;

use serde_json::{Value, json};

use crate::office_world::{World, chat, cli};
use crate::process::{OPERATOR, Tollbook, call_with, until};

impl Tollbook {
    /// A call for an end user: status, and the error's code.
    fn chat_for(&self, secret: &str, user: &str) -> (u16, Value) {
        let line = if user.is_empty() { String::new() } else { format!("x-tollbook-user: {user}\r\n") };
        let body = chat().to_string();
        let (status, _, told) = call_with(self.gateway, "POST", "/v1/chat/completions", secret, &line, &body);
        (status, told["error"]["code"].clone())
    }
}

fn rate(name: &str, ceiling: u64) -> Value {
    json!([{"name": name, "measure": "requests", "window": "1h", "ceiling": ceiling}])
}

#[test]
fn a_user_has_limits_of_its_own_beside_those_of_each_user() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    gateway.ask("PATCH", "/tenants/acme", json!({"user_limits": rate("each", 3)}), 200);
    let made =
        gateway.ask("POST", "/tenants/acme/users", json!({"id": "u 1", "limits": rate("own", 2)}), 201);
    assert_eq!(made["id"], "u 1");
    let admitted = |user: &str| (0..5).filter(|_| gateway.chat_for(&secret, user).0 == 200).count();
    assert_eq!(admitted("u 1"), 2, "its own is the tighter");
    assert_eq!(admitted("U 1"), 3, "another one, of whom nothing is said");
    assert_eq!(admitted(""), 5, "nobody");
    let own = gateway.limit("own");
    assert_eq!(
        (&own["subject"], &own["posted"], &own["ceiling"]),
        (&json!("user acme/u 1"), &json!(2), &json!(2))
    );
    // A raised ceiling meets the same account, and that of each user binds still.
    gateway.ask("PATCH", "/tenants/acme/users/u%201", json!({"limits": rate("own", 9)}), 200);
    assert_eq!(admitted("u 1"), 1);
    let listed = gateway.ask("GET", "/limits", Value::Null, 200);
    let row = listed["data"].as_array().unwrap().iter().find(|row| row["limit"] == "own").unwrap();
    assert_eq!((&row["tenant"], &row["from"]["kind"]), (&json!("acme"), &json!("user")), "{row}");
    let (status, _, told) = cli(&gateway, &["explain", "--key-id", "k", "--model", "m", "--user", "u 1"]);
    assert!(status == 0 && told.is_empty() || told.contains("own"), "{status} {told}");
    // Deleted and made again it finds its account again.
    gateway.ask("DELETE", "/tenants/acme/users/u%201", Value::Null, 200);
    gateway.ask("POST", "/tenants/acme/users", json!({"id": "u 1", "limits": rate("own", 3)}), 201);
    assert_eq!(gateway.limit("own")["posted"], 3);
}

#[test]
fn a_user_that_is_disabled_is_refused_by_every_gateway_at_once() {
    let world = World::new();
    let (one, other) = (world.start("a"), world.start("b"));
    let secret = one.with_key();
    until("the other one knows the key", || (other.chat_for(&secret, "u").0 == 200).then_some(()));
    one.ask("POST", "/tenants/acme/users", json!({"id": "u", "status": "disabled"}), 201);
    let begun = std::time::Instant::now();
    assert_eq!(
        one.chat_for(&secret, "u"),
        (403, json!("user_disabled")),
        "where it was asked for: before the answer"
    );
    until("the other one obeys", || (other.chat_for(&secret, "u").0 == 403).then_some(()));
    assert!(begun.elapsed().as_millis() < 1_000, "{:?}", begun.elapsed());
    for gateway in [&one, &other] {
        assert_eq!(gateway.chat_for(&secret, "U").0, 200);
        assert_eq!(gateway.chat_for(&secret, "").0, 200);
    }
    let body = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
    let lines = "x-tollbook-user: u\r\n";
    let counted =
        call_with(one.gateway, "POST", "/v1/messages/count_tokens", &secret, lines, &body.to_string());
    assert_ne!(counted.0, 200, "{}", counted.2);
    one.ask("PATCH", "/tenants/acme/users/u", json!({"status": "active"}), 200);
    assert_eq!(one.chat_for(&secret, "u").0, 200);
    until("it is open at the other one", || (other.chat_for(&secret, "u").0 == 200).then_some(()));
}

#[test]
fn users_are_listed_filtered_changed_and_have_one_meaning_each() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.with_key();
    let users = "/tenants/acme/users";
    for id in ["a:b", "{a}", "\u{540d}\u{524d}", "..", "a/b"] {
        gateway.ask("POST", users, json!({"id": id}), 201);
    }
    gateway.ask("POST", users, json!({"id": "off", "status": "disabled"}), 201);
    let off = gateway.ask("GET", &format!("{users}?status=disabled"), Value::Null, 200);
    assert_eq!(off["data"].as_array().unwrap().len(), 1, "{off}");
    assert_eq!(gateway.ask("GET", &format!("{users}/a%2Fb"), Value::Null, 200)["id"], "a/b");
    for (wrong, field) in [
        (json!({"id": "w", "status": "gone"}), "status"),
        (json!({"id": "w", "rpm": 5}), "rpm"),
        (json!({"id": "x".repeat(65)}), "id"),
        (
            json!({"id": "w", "limits": [{"measure": "requests", "window": "60s", "ceiling": -1}]}),
            "limits[0].ceiling",
        ),
    ] {
        let told = gateway.ask("POST", users, wrong, 400);
        assert_eq!(told["faults"][0]["field"], field, "{told}");
    }
    gateway.ask("POST", users, json!({"id": "off"}), 409);
    gateway.ask("POST", "/tenants/nobody/users", json!({"id": "u"}), 400);
    gateway.ask("PATCH", "/tenants/acme", json!({"users": []}), 400);
    gateway.ask("DELETE", "/tenants/acme", Value::Null, 409);
    // Each change is in the history.
    let changes = gateway.ask("GET", "/changes?limit=1&tenant=acme", Value::Null, 200);
    assert!(changes.to_string().contains("tenants/acme/users/off"), "{changes}");
    // Somebody bound to the tenant may change them, of another tenant not even see them.
    let made = gateway.ask("POST", "/operators", json!({"id": "it", "role": "admin", "tenant": "acme"}), 201);
    gateway.ask("POST", "/tenants", json!({"id": "zzz"}), 201);
    gateway.ask("POST", "/tenants/zzz/users", json!({"id": "u"}), 201);
    let key = made["secret"].as_str().unwrap();
    let of_it = |method, path: &str, body: Value| {
        let path = format!("/admin/v1{path}");
        call_with(gateway.admin.unwrap(), method, &path, key, "", &body.to_string()).0
    };
    assert_eq!(of_it("PATCH", "/tenants/acme/users/off", json!({"status": "active"})), 200);
    assert_eq!(of_it("GET", "/tenants/zzz/users", Value::Null), 404);
    assert_eq!(of_it("GET", "/tenants/zzz/users/u", Value::Null), 404);
    assert_eq!(of_it("PATCH", "/tenants/zzz/users/u", json!({"status": "disabled"})), 404);
    gateway.ask("DELETE", "/tenants/acme?cascade=true", Value::Null, 400);
    gateway.ask("DELETE", "/operators/it", Value::Null, 200);
    gateway.ask("DELETE", "/tenants/acme?cascade=true", Value::Null, 200);
}

#[test]
fn users_are_applied_exported_and_asked_for_on_the_command_line() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.with_key();
    let good = |arguments: &[&str]| {
        let (status, out, err) = cli(&gateway, arguments);
        assert_eq!(status, 0, "{arguments:?}: {out}{err}");
        out
    };
    good(&["user", "create", "acme", "u1", "--set", "status=disabled"]);
    good(&[
        "user",
        "create",
        "acme",
        "u2",
        "--set",
        "limits=[{ measure: requests, window: 60s, ceiling: 5 }]",
    ]);
    assert!(good(&["user", "list", "acme"]).contains("disabled"));
    assert!(good(&["user", "show", "acme", "u2"]).contains("ceiling"));
    let exported = good(&["export"]);
    assert!(exported.contains("u2"), "{exported}");
    let path = world.folder.path().join("all.yaml");
    std::fs::write(&path, &exported).unwrap();
    let file = path.to_str().unwrap();
    let before = gateway.ask("GET", "/tenants", Value::Null, 200)["revision"].clone();
    good(&["apply", "-f", file, "--prune", "--yes"]);
    assert_eq!(gateway.ask("GET", "/tenants", Value::Null, 200)["revision"], before, "nothing changes");
    std::fs::write(&path, exported.replace("disabled", "active").replace("u2", "u3")).unwrap();
    good(&["apply", "-f", file, "--prune", "--yes"]);
    gateway.ask("GET", "/tenants/acme/users/u2", Value::Null, 404);
    gateway.ask("GET", "/tenants/acme/users/u3", Value::Null, 200);
    assert_eq!(gateway.ask("GET", "/tenants/acme/users/u1", Value::Null, 200)["status"], "active");
    good(&["user", "delete", "acme", "u3"]);
    gateway.ask("GET", "/tenants/acme/users/u3", Value::Null, 404);
}

#[test]
fn users_of_a_file_mean_the_same() {
    let world = World::new();
    let path = world.file("f", &["m"]);
    let text = std::fs::read_to_string(&path).unwrap().replace("config: { source: sql }\n", "")
        + "tenants:\n  - id: acme\n    projects: [{ id: web, keys: [{ id: k, secret: a-secret-of-somebody }] }]\n    users:\n      - { id: u, status: disabled }\n      - { id: v, limits: [{ name: own, measure: requests, window: 1h, ceiling: 1 }] }\n";
    std::fs::write(&path, text).unwrap();
    let gateway = Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap());
    let secret = "a-secret-of-somebody";
    assert_eq!(gateway.chat_for(secret, "u"), (403, json!("user_disabled")));
    assert_eq!(gateway.chat_for(secret, "v").0, 200);
    assert_eq!(gateway.chat_for(secret, "v").0, 429);
    assert_eq!(gateway.chat_for(secret, "w").0, 200);
    let explained = call_with(
        gateway.admin.unwrap(),
        "POST",
        "/admin/v1/explain",
        OPERATOR,
        "",
        &json!({"key_id": "k", "model": "m", "user": "u"}).to_string(),
    );
    assert!(explained.2.to_string().contains("user_disabled"), "{}", explained.2);
}
