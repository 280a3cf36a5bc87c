//! What is in force, as lists: limits and prices.

use std::path::Path;

use serde_json::{Value, json};

use crate::office_world::{World, cli};
use crate::process::{Tollbook, call, until};

/// A gateway whose model has a limit, and a tenant with limits of all kinds.
fn start(world: &World) -> Tollbook {
    let path = world.file("a", &["m", "n"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let text =
        text.replacen("price:", "limits: [{ name: pool, measure: concurrency, ceiling: 9 }], price:", 1);
    std::fs::write(&path, format!("{text}default_price: {{ input: 3, output: 4 }}\n")).unwrap();
    let gateway = Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap());
    let rate = |name: &str| json!({"name": name, "measure": "tokens", "window": "60s", "ceiling": 5_000});
    gateway.ask("POST", "/plans", json!({"id": "gold", "limits": [rate("fast")]}), 201);
    let budget = json!({"name": "budget", "measure": "cost", "period": "month", "ceiling": "2.50"});
    let tenant = json!({"id": "acme", "plan": "gold", "limits": [budget], "user_limits": [rate("each")]});
    gateway.ask("POST", "/tenants", tenant, 201);
    gateway.ask("POST", "/tenants/acme/services", json!({"id": "chat", "rpm": 60, "tpm": 9_000}), 201);
    gateway.ask("POST", "/tenants", json!({"id": "other", "plan": "gold"}), 201);
    gateway
}

#[test]
fn a_limit_that_is_raised_is_listed_with_until_when() {
    let world = World::new();
    let gateway = world.start("a");
    let raise = json!({"by": 5, "until": "2100-01-01T00:00:00Z"});
    let limit = json!({"name": "r", "measure": "requests", "window": "1h", "ceiling": 9, "raise": raise});
    gateway.ask("POST", "/tenants", json!({"id": "acme", "limits": [limit]}), 201);
    let listed = gateway.ask("GET", "/limits?tenant=acme", Value::Null, 200);
    assert_eq!(listed["data"][0]["ceiling"], 9);
    assert_eq!(listed["data"][0]["raise"], raise);
}

#[test]
fn every_limit_is_listed_with_where_it_is_written() {
    let world = World::new();
    let gateway = start(&world);
    let all = gateway.ask("GET", "/limits", Value::Null, 200);
    let told: Vec<(String, String, String, String)> = all["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let from = &row["from"];
            let from = ["kind", "source", "at"].map(|part| text(&from[part])).join(" ");
            (text(&row["limit"]), text(&row["subject"]), text(&row["booking"]), from)
        })
        .collect();
    let row = |limit: &str, subject: &str, booking: &str, from: &str| {
        [limit, subject, booking, from].map(str::to_owned).into()
    };
    assert_eq!(
        told,
        [
            row("pool", "pool u/m", "", "model file models[0].limits[0]"),
            row("budget", "tenant acme", "", "tenant store tenants/acme: limits[0]"),
            row("each", "each user of acme", "forecast", "tenant store tenants/acme: user_limits[0]"),
            row("fast of acme", "tenant acme", "forecast", "plan store plans/gold: limits[0]"),
            row(
                "service acme/chat requests quota minute",
                "service acme/chat",
                "",
                "service store tenants/acme/services/chat: rpm"
            ),
            row(
                "service acme/chat tokens quota minute",
                "service acme/chat",
                "",
                "service store tenants/acme/services/chat: tpm"
            ),
            row("fast of other", "tenant other", "forecast", "plan store plans/gold: limits[0]"),
        ]
    );
    let budget = &all["data"][1];
    assert_eq!((&budget["ceiling"], &budget["decimal"]), (&json!(2_500_000_000_u64), &json!("2.5")));
    assert_eq!((&budget["strictness"], &budget["when_away"]), (&json!("hard"), &json!("closed")));

    // By pages, and of one tenant.
    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let page = gateway.ask("GET", &format!("/limits?tenant=acme&limit=2{after}"), Value::Null, 200);
        let rows = page["data"].as_array().unwrap();
        assert!(rows.len() <= 2);
        names.extend(rows.iter().map(|row| row["limit"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", next.replace('%', "%25"));
    }
    let of_acme: Vec<String> =
        told.iter().filter(|(_, of, ..)| of.contains("acme")).map(|(name, ..)| name.clone()).collect();
    assert_eq!((names.len(), names), (5, of_acme));
    gateway.ask("GET", "/limits?nonsense=1", Value::Null, 400);

    // One of a tenant sees that tenant's, and neither pools nor others.
    let bound =
        gateway.ask("POST", "/operators", json!({"id": "b", "role": "viewer", "tenant": "other"}), 201);
    let secret = bound["secret"].as_str().unwrap();
    let seen = |path: &str| call(gateway.admin.unwrap(), "GET", &format!("/admin/v1{path}"), secret, "");
    let mine = seen("/limits").1;
    assert_eq!(
        (mine["data"].as_array().unwrap().len(), &mine["data"][0]["limit"]),
        (1, &json!("fast of other"))
    );
    assert_eq!(seen("/limits?tenant=acme").1["data"], json!([]));
    assert_eq!(seen("/prices").0, 403);

    let (code, out, err) = cli(&gateway, &["limit", "list", "--tenant", "other"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines.len()), (0, 2), "{out}{err}");
    assert!(lines[0].starts_with("limit          of            counts  as"), "{out}");
    assert!(
        lines[1].ends_with("5,000    -      soft        plan of the store, plans/gold: limits[0]"),
        "{out}"
    );
    let (_, out, _) = cli(&gateway, &["limit", "list", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), all["data"]);
}

#[test]
fn prices_in_force_are_listed_and_shown() {
    let world = World::new();
    let gateway = start(&world);
    let book = gateway.ask("GET", "/prices", Value::Null, 200);
    assert_eq!(
        (book["in_force"].as_bool(), book["data"].as_array().unwrap().len()),
        (Some(true), 2),
        "{book}"
    );
    assert!(book["version"].as_str().unwrap().parse::<i64>().unwrap() > 0, "{book}");
    let m = &book["data"][0];
    assert_eq!(
        (&m["model"], &m["source"], &m["price"]["input"], &m["price"]["cached"]),
        (&json!("m"), &json!("file"), &json!("1"), &json!("1"))
    );
    let other = gateway.ask("GET", "/prices?model=x", Value::Null, 200);
    assert_eq!(
        (&other["data"][0]["source"], &other["data"][0]["price"]["output"]),
        (&json!("default"), &json!("4"))
    );

    let (code, out, err) = cli(&gateway, &["price", "list"]);
    assert_eq!((code, out.lines().count()), (0, 5), "{out}{err}");
    assert!(
        out.lines().nth(2).unwrap().starts_with("m                1       1            1       2"),
        "{out}"
    );
    let (code, out, _) = cli(&gateway, &["price", "show", "m"]);
    assert!(code == 0 && out.contains("\noutput          2\n") && out.contains(", in force\n"), "{out}");
    let (_, out, _) = cli(&gateway, &["price", "list", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), book);
}

/// A call's request id, after it was charged.
fn called(gateway: &Tollbook, secret: &str) -> String {
    let body = crate::office_world::chat().to_string();
    let (status, head, _) =
        crate::process::call_with(gateway.gateway, "POST", "/v1/chat/completions", secret, "", &body);
    assert_eq!(status, 200, "{head}");
    head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().to_owned()
}

#[test]
fn a_bill_is_explained_by_the_prices_it_was_made_with_after_they_changed() {
    let world = World::new();
    let path = world.file("a", &["m"]);
    let gateway = Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap());
    let secret = gateway.with_key();
    let explained = |id: &str| {
        let question = json!({"request_id": id});
        until("the journal has it", || {
            let (status, answer) = gateway.operators("POST", "/admin/v1/explain", &question);
            (status == 200).then(|| answer["entries"][0].clone())
        })
    };
    // Of an entry: the version, its prices, and whether they make the cost.
    let judged = |entry: &Value| {
        let price = |part: &str| entry["price"][part].as_str().unwrap().parse::<u64>().unwrap();
        let used = |part: &str| entry["usage"][part].as_u64().unwrap();
        // A currency unit per million is a thousand nano for each.
        let cost = 1_000 * (used("input") * price("input") + used("output") * price("output"));
        assert_eq!(entry["cost_nano"].as_u64().unwrap(), cost, "{entry}");
        (entry["price_version"].as_u64().unwrap(), price("input"), price("output"))
    };
    let first = called(&gateway, &secret);
    let before = judged(&explained(&first));
    let version = gateway.ask("GET", "/prices", Value::Null, 200)["version"].as_str().unwrap().to_owned();
    assert_eq!((version.parse(), before.1, before.2), (Ok(before.0), 1, 2));

    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("{ input: 1, output: 2 }", "{ input: 3, output: 5 }")).unwrap();
    until("the file is taken", || {
        gateway.signal(rustix::process::Signal::HUP);
        (gateway.ask("GET", "/prices?model=m", Value::Null, 200)["data"][0]["price"]["input"] == "3")
            .then_some(())
    });
    let second = called(&gateway, &secret);
    let after = judged(&explained(&second));
    assert_eq!((after.1, after.2), (3, 5));
    assert_ne!(before.0, after.0);
    assert_eq!(judged(&explained(&first)), before, "the first is explained as it was charged");

    // Over a restart too, and by the command line; the same prices again are the same version.
    gateway.stop();
    let gateway = Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap());
    let (code, out, err) = cli(&gateway, &["price", "show", "m", "--version", &version]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with(&format!("version {version}, not in force\n")), "{out}");
    assert!(out.contains("\ninput           1\n"), "{out}");
    let (_, out, _) = cli(&gateway, &["price", "versions"]);
    assert_eq!(
        out.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>(),
        [after.0.to_string(), version]
    );
    gateway.ask("GET", "/prices?version=7", Value::Null, 404);
    gateway.ask("GET", "/prices?version=x", Value::Null, 400);
}
