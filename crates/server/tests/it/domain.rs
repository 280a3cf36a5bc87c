//! What a file means, and where and how contradictions are named.

use std::path::Path;

use tollbook::config::{Setup, load_text};

const EXAMPLE: &str = include_str!("../../../../docs/config.example.yaml");
const HEAD: &str = "\
upstreams:
  - { name: u, dialect: openai, base_url: http://127.0.0.1:1 }
models:
  - { name: m, upstream: u }
tenants:
";

fn secrets(name: &str) -> Option<String> {
    name.ends_with("_KEY").then(|| format!("{name} value"))
}

fn load(text: &str) -> Result<Setup, String> {
    load_text("t.yaml", text, Path::new("/nowhere"), &secrets).map_err(|error| error.to_string())
}

/// The mistakes of a file whose first tenant is `t` with these fields; `§` stands before the part that is named.
fn of_tenant(fields: &str) -> String {
    let marked = format!("{HEAD}  - {{ id: t, {fields} }}\n");
    let text = marked.replace('§', "");
    let report = load(&text).map_or_else(|report| report, |_| "loaded".to_owned());
    let Some((before, _)) = marked.split_once('§') else { return report };
    let line = before.lines().count();
    let column = before.lines().last().unwrap_or_default().chars().count() + 1;
    report.replace(&format!("t.yaml:{line}:{column}: "), "§ ")
}

fn of_limit(fields: &str) -> String {
    // A mark at the start stands before the limit itself.
    match fields.strip_prefix('§') {
        Some(fields) => of_tenant(&format!("limits: [§{{ {fields} }}]")),
        None => of_tenant(&format!("limits: [{{ {fields} }}]")),
    }
}

#[test]
fn the_example_loads() {
    let setup = load(EXAMPLE).unwrap();
    assert_eq!(setup.gateway.listen.to_string(), "127.0.0.1:8080");
    assert!(setup.admin.is_some());
    assert_eq!(setup.data_dir, Path::new("/nowhere/./tollbook-data"));
    assert_eq!(setup.snapshot.catalog.keys().len(), 4);
    assert_eq!(setup.snapshot.catalog.models().len(), 4);
    assert_eq!(setup.warnings, Vec::<String>::new());
    assert!(!format!("{setup:?}").contains("KEY value"));
    // What it says of bounds, times and booking is what holds without a word of them.
    let plain = load(&format!("{HEAD}  - {{ id: t }}\n")).unwrap();
    assert_eq!(format!("{:?}", setup.calls), format!("{:?}", plain.calls));
    assert_eq!(format!("{:?}", setup.gateway.timeouts), format!("{:?}", plain.gateway.timeouts));
    assert_eq!(format!("{:?}", setup.gateway.bounds), format!("{:?}", plain.gateway.bounds));
    assert_eq!(format!("{:?}", setup.gateway.http2), format!("{:?}", plain.gateway.http2));
}

#[test]
fn the_deployed_configurations_load() {
    let secrets = |name: &str| match name {
        "APP_KEY_HASH" => Some(format!("blake3:{}", "1".repeat(64))),
        name => secrets(name),
    };
    for text in [
        include_str!("../../../../deploy/compose/config/tollbook.yaml"),
        include_str!("../../../../deploy/helm/tollbook/files/tollbook.yaml"),
    ] {
        let setup = load_text("t.yaml", text, Path::new("/etc/tollbook"), &secrets).unwrap();
        // As the image and the chart's volume have it.
        assert_eq!(setup.gateway.listen.to_string(), "0.0.0.0:8080");
        assert_eq!(setup.admin.unwrap().listen.to_string(), "0.0.0.0:8081");
        assert_eq!(setup.data_dir, Path::new("/var/lib/tollbook"));
        assert_eq!(setup.warnings, Vec::<String>::new());
    }
}

#[test]
fn b223_absent_null_zero_and_negative_ceilings() {
    assert_eq!(of_limit("measure: requests, window: 1m"), "loaded");
    assert_eq!(of_limit("measure: requests, window: 1m, ceiling: null"), "loaded");
    assert_eq!(of_limit("measure: requests, window: 1m, ceiling: 0"), "loaded");
    let want = "§ tenants[0].limits[0].ceiling: must not be negative: `-1`";
    assert_eq!(of_limit("measure: requests, window: 1m, ceiling: §-1"), want);
}

#[test]
fn b227_a_raise_names_its_instant_with_its_zone() {
    let limit = |rest: &str| of_limit(&format!("measure: cost, period: month, ceiling: 2, {rest}"));
    assert_eq!(limit("raise: { by: 100, until: 2027-01-01T00:00:00Z }"), "loaded");
    assert_eq!(limit("raise: { by: 0.50, until: \"2027-01-01T00:00:00+05:30\" }"), "loaded");
    let place = "§ tenants[0].limits[0].raise";
    let zone = "must be an instant with its zone, as 2027-01-01T00:00:00Z, not `2027-01-01`";
    assert_eq!(limit("raise: { by: 1, until: §2027-01-01 }"), format!("{place}.until: {zone}"));
    let negative = limit("raise: { by: §-1, until: 2027-01-01T00:00:00Z }");
    assert_eq!(negative, format!("{place}.by: must not be negative: `-1`"));
    let nothing = limit("§raise: { by: 0, until: 2027-01-01T00:00:00Z }");
    assert_eq!(nothing, format!("{place}: must be from 1 to 8999998000000000"));
}

#[test]
fn a_kind_of_estimator_may_stand_as_a_word() {
    let read = |estimator: &str| {
        let limit = format!("measure: tokens, window: 1m, ceiling: 1, estimator: {estimator}");
        format!("{:?}", load(&format!("{HEAD}  - {{ id: t, limits: [{{ {limit} }}] }}\n")).unwrap().snapshot)
    };
    for kind in ["ema", "recent_mean", "p95", "forecast", "capped"] {
        assert_eq!(read(kind), read(&format!("{{ kind: {kind} }}")));
    }
    assert_ne!(read("p95"), read("ema"));
}

#[test]
fn b223_no_ceiling_is_no_limit_and_zero_is_one() {
    let rules = |ceiling: &str| {
        let text = format!(
            "{HEAD}  - {{ id: t, limits: [{{ measure: requests, window: 1m, ceiling: {ceiling} }}] }}\n"
        );
        load(&text).unwrap().snapshot.catalog.rules().map(|(_, rule)| rule.limit.ceiling).collect::<Vec<_>>()
    };
    assert_eq!(rules("null"), Vec::<u64>::new());
    assert_eq!(rules("0"), [0]);
    assert_eq!(rules("7"), [7]);
}

#[test]
fn b086_numbers_that_are_no_limits() {
    let rows = [
        ("-7", "must not be negative: `-7`"),
        ("-0.0", "must not be negative: `-0.0`"),
        ("NaN", "must be a decimal number, as 600, 2.50 or 2.5e-06, not `NaN`"),
        ("Infinity", "must be a decimal number, as 600, 2.50 or 2.5e-06, not `Infinity`"),
        ("1e309", "is too large: `1e309`"),
        ("ten", "must be a decimal number, as 600, 2.50 or 2.5e-06, not `ten`"),
        ("0.0000000001", "must be a multiple of 0.000000001, not `0.0000000001`"),
        ("9000001", "must be from 0 to 9000000000000000"),
    ];
    for (ceiling, want) in rows {
        let report = of_limit(&format!("measure: cost, period: day, ceiling: §{ceiling}"));
        assert_eq!(report, format!("§ tenants[0].limits[0].ceiling: {want}"), "{ceiling}");
    }
    assert_eq!(of_limit("measure: cost, period: day, ceiling: 0.000000001"), "loaded");
    assert_eq!(of_limit("measure: cost, period: day, ceiling: 9000000"), "loaded");
}

#[test]
fn each_limit_that_cannot_be_is_refused() {
    let at = "tenants[0].limits[0]";
    let rows = [
        (
            "§measure: requests, ceiling: 1",
            format!(
                "§ {at}: a limit needs a window or a period; give `window` for a rate, `period` for a quota"
            ),
        ),
        (
            "measure: requests, window: 1m, period: §day, ceiling: 1",
            format!("§ {at}.period: a limit has a window or a period, not both; make two limits"),
        ),
        (
            "§measure: concurrency, window: 1m, ceiling: 1",
            format!("§ {at}: concurrency cannot have the shape rate"),
        ),
        (
            "measure: requests, window: §1500ms, ceiling: 1",
            format!("§ {at}.window: must be whole seconds, not `1s500ms`"),
        ),
        ("measure: requests, window: §0s, ceiling: 1", format!("§ {at}.window: must be from 1 s to 86400 s")),
        ("measure: requests, window: §2d, ceiling: 1", format!("§ {at}.window: must be from 1 s to 86400 s")),
        (
            "measure: requests, window: 1m, bucket: §2m, ceiling: 1",
            format!("§ {at}.bucket: a bucket is wider than the window"),
        ),
        (
            "measure: requests, window: 1m, zone: §UTC, ceiling: 1",
            format!("§ {at}.zone: zone has no meaning for a rate; remove it"),
        ),
        (
            "measure: requests, period: day, zone: §Mars/Olympus, ceiling: 1",
            format!("§ {at}.zone: there is no time zone `Mars/Olympus` in the bundled table"),
        ),
        (
            "measure: requests, period: week, anchor: §someday, ceiling: 1",
            format!(
                "§ {at}.anchor: must be a weekday, as monday, or a day of the month, 1 to 31, not `someday`"
            ),
        ),
        (
            "measure: requests, period: month, anchor: §32, ceiling: 1",
            format!(
                "§ {at}.anchor: a month's anchor is a day from 1 to 31, a week's a weekday; no other period has one"
            ),
        ),
        (
            "measure: requests, window: 1m, model: §x, ceiling: 1",
            format!("§ {at}.model: there is no model `x`"),
        ),
        (
            "measure: tokens, window: 1h, booking: §forecast, ceiling: 1",
            format!("§ {at}.booking: cannot be booked by forecast: its window is longer than 60 s"),
        ),
        (
            "measure: tokens, window: 1m, charge: §stream, ceiling: 1",
            format!("§ {at}.charge: charge has no meaning for anything but a pool's rate on llm_tokens"),
        ),
        (
            "measure: tokens, window: 1m, booking: held, strict: §true, ceiling: 1",
            format!("§ {at}.strict: strict has no meaning for a limit that is not booked by forecast"),
        ),
        ("measure: tokens, window: §25h, ceiling: 1", format!("§ {at}.window: must be from 1 s to 86400 s")),
        (
            "measure: tokens, window: 1m, meter: { preset: §acme }, ceiling: 1",
            format!(
                "§ {at}.meter.preset: `acme` is not known; known are plain, openai, azure, without_cache_read, anthropic_input, anthropic_output, gemini_input, bedrock, bedrock_5x, bedrock_10x, bedrock_15x"
            ),
        ),
        (
            "measure: tokens, window: 1m, §estimator: { kind: constant }, ceiling: 1",
            format!("§ {at}.estimator: constant needs `output`; write {{ kind: constant, output: 500 }}"),
        ),
        (
            "measure: tokens, window: 1m, estimator: §constant, ceiling: 1",
            format!("§ {at}.estimator: constant needs `output`; write {{ kind: constant, output: 500 }}"),
        ),
        (
            "measure: tokens, window: 1m, estimator: §p96, ceiling: 1",
            format!("§ {at}.estimator: `p96` is not known; did you mean `p95`?"),
        ),
        (
            "measure: tokens, window: 1m, estimator: §[p95], ceiling: 1",
            format!("§ {at}.estimator: must be an object, not a list"),
        ),
        (
            "measure: tokens, period: day, hold_factor: §0.5, ceiling: 1",
            format!("§ {at}.hold_factor: a hard limit cannot hold less than the demand"),
        ),
    ];
    for (fields, want) in rows {
        assert_eq!(of_limit(fields), want, "{fields}");
    }
}

#[test]
fn each_object_that_cannot_be_is_refused() {
    let key = "projects: [{ id: p, keys: [{ id: k, ";
    let marked = "projects: [{ id: p, keys: [§{ id: k, ";
    let rows = [
        (
            "zone: §Nowhere".to_owned(),
            "§ tenants[0].zone: there is no time zone `Nowhere` in the bundled table",
        ),
        (
            format!("{marked} }}] }}]"),
            "§ tenants[0].projects[0].keys[0]: a key has either `hash` or `secret`; make one with `tollbook keys new`",
        ),
        (
            format!("{key} hash: §abc }}] }}]"),
            "§ tenants[0].projects[0].keys[0].hash: must be `blake3:` and 64 hexadecimal digits; make one with `tollbook keys new`",
        ),
        (
            format!("{key} secret: s, expires: §2026-07-01 }}] }}]"),
            "§ tenants[0].projects[0].keys[0].expires: must be an instant with its zone, as 2027-01-01T00:00:00Z, not `2026-07-01`",
        ),
        (
            format!("{key} secret: s, §models: [x] }}] }}]"),
            "§ tenants[0].projects[0].keys[0].models: there is no model `x`",
        ),
        (
            format!("{key} secret: s, service: §x }}] }}]"),
            "§ tenants[0].projects[0].keys[0].service: there is no service `x`",
        ),
        (
            format!("{key} secret: s }}, {{ id: §k, secret: r }}] }}]"),
            "§ tenants[0].projects[0].keys[1].id: `k` is already taken",
        ),
        (
            format!("{key} secret: s }}] }}, {{ id: q, keys: [{{ id: §k, secret: r }}] }}]"),
            "§ tenants[0].projects[1].keys[0].id: `k` is already taken by tenants[0].projects[0].keys[0]",
        ),
        (
            format!("{key} secret: s }}, §{{ id: l, secret: s }}] }}]"),
            "§ tenants[0].projects[0].keys[1].hash: `this secret` is already taken",
        ),
        ("services: [{ id: s }, { id: §s }]".to_owned(), "§ tenants[0].services[1].id: `s` is already taken"),
        (
            "services: [{ id: s, rpm: §9007199254740993 }]".to_owned(),
            "§ tenants[0].services[0].rpm: must be from 0 to 9007199254740991",
        ),
    ];
    for (fields, want) in rows {
        assert_eq!(of_tenant(&fields), want, "{fields}");
    }
}

#[test]
fn limits_of_one_account_that_contradict_name_each_other_by_path() {
    let report = of_tenant(
        "limits: [{ name: a, measure: requests, period: day, opening: zero, ceiling: 1 }, { name: b, measure: requests, period: day, ceiling: 2 }]",
    );
    assert!(
        report.ends_with("contradicts tenants[0].limits[0], which shares its account: opening differs"),
        "{report}"
    );
}

#[test]
fn contradictions_of_models_and_addresses_are_named() {
    let text = "\
listen: here
admin: { listen: there }
upstreams:
  - { name: u, dialect: openai, base_url: http://127.0.0.1:1 }
models:
  - { name: m, upstream: v }
  - { name: m, upstream: u }
tenants:
  - { id: t, limits: [{ measure: requests, ceiling: 1 }] }
";
    let want = "\
t.yaml:1:9: listen: must be an IP address and a port, as 127.0.0.1:8080, not `here`
t.yaml:2:18: admin.listen: must be an IP address and a port, as 127.0.0.1:8080, not `there`
t.yaml:6:26: models[0].upstream: there is no upstream `v`; known are u
t.yaml:7:13: models[1].name: `m` is already taken
t.yaml:9:23: tenants[0].limits[0]: a limit needs a window or a period; give `window` for a rate, `period` for a quota";
    assert_eq!(load(text).unwrap_err(), want);
}

#[test]
fn bounds_and_times_that_make_no_sense_are_named() {
    let rows = [
        ("http: { body_max: 0 }", "http.body_max: must be at least 1"),
        ("http: { body_max: 513MiB }", "http.bodies_in_flight_max: must be at least twice `body_max`"),
        ("http: { answer_max: 2GiB }", "http.answers_in_flight_max: must be at least `answer_max`"),
        ("http: { head_max: 65MiB }", "http.heads_in_flight_max: must be at least `head_max`"),
        ("timeouts: { head: 0s }", "timeouts.head: must be at least 1ms"),
        ("calls: { renew_every: 30s }", "calls.renew_every: must be less than half of `renewed_life`"),
        ("calls: { settle_queue_max: 0 }", "calls.settle_queue_max: must be at least 1"),
        ("default_price: { input: 1, output: -2 }", "default_price.output: must not be negative"),
        (
            "default_price: { input: 0.0000000001, output: 2 }",
            "default_price.input: is finer than the smallest unit, 1e-6",
        ),
        (
            "default_price: { input: 1, output: 2, steps: [{ above: 9, cached: -1 }] }",
            "default_price.steps[0].cached: must not be negative",
        ),
    ];
    for (line, want) in rows {
        let report = load(&format!("{HEAD}  - {{ id: t }}\n{line}\n")).unwrap_err();
        assert!(report.starts_with("t.yaml:7:") && report.ends_with(want), "{line}\n{report}");
    }
}

#[test]
fn traces_that_cannot_be_are_named() {
    let rows = [
        (
            "endpoint: collector",
            "traces.endpoint: must be a URL, as https://api.openai.com/v1, not `collector`",
        ),
        ("endpoint: \"http://u:hush@h\"", "traces.endpoint: must have no user, query or fragment"),
        ("sample: 1.1", "traces.sample: must be from 0 to 1, not `1.1`"),
        ("sample: 0.0000001", "traces.sample: must be a multiple of 0.000001, not `0.0000001`"),
        ("sample: -1", "traces.sample: must not be negative: `-1`"),
        ("queue_max: 0", "traces.queue_max: must be from 1 to 1048576"),
        ("queue_max: 1048577", "traces.queue_max: must be from 1 to 1048576"),
        ("timeout: 0s", "traces.timeout: must be at least 1ms"),
        ("every: 0s", "traces.every: must be at least 1ms"),
        ("service_name: \"\"", "traces.service_name: must have from 1 to 128 bytes"),
        ("headers: { a: b }", "traces.headers: there is no `traces.endpoint` to send them to"),
        (
            "endpoint: \"http://h\", headers: { \"a b\": c }",
            "traces.headers.a b: cannot be the name of a header",
        ),
        ("endpoint: \"http://h\", headers: { Host: c }", "traces.headers.Host: is set by the gateway itself"),
    ];
    for (fields, want) in rows {
        let report = load(&format!("{HEAD}  - {{ id: t }}\ntraces: {{ {fields} }}\n")).unwrap_err();
        assert!(report.starts_with("t.yaml:7:") && report.ends_with(want), "{fields}\n{report}");
    }
    let traces =
        |fields: &str| load(&format!("{HEAD}  - {{ id: t }}\ntraces: {{ {fields} }}\n")).unwrap().traces;
    assert!(traces("sample: 0.5").is_none(), "off without a collector");
    let traces =
        traces("endpoint: \"http://h:4318\", sample: 0.25, headers: { x-key: \"${COLLECTOR_KEY}\" }")
            .unwrap();
    assert_eq!((traces.tracer.ratio, traces.export.headers.len()), (250_000, 1));
    assert!(!format!("{traces:?}").contains("KEY value"));
    let broken = "endpoint: \"http://h\", headers: { x-key: \"a\\nhush\" }";
    let report = load(&format!("{HEAD}  - {{ id: t }}\ntraces: {{ {broken} }}\n")).unwrap_err();
    assert!(report.ends_with("has characters a header cannot carry") && !report.contains("hush"), "{report}");
}

#[test]
fn upstreams_and_models_that_cannot_be_are_named() {
    let load = |upstream: &str, model: &str| {
        let text = format!(
            "upstreams:\n  - {{ name: u, dialect: openai, base_url: http://h }}\n  - {{ dialect: openai, {upstream} }}\nmodels:\n  - {{ name: m, upstream: u, {model} }}\n"
        );
        load(&text).unwrap_err()
    };
    let rows = [
        ("name: u, base_url: http://h", "upstreams[1].name: `u` is already taken"),
        (
            "name: v, base_url: h/v1",
            "upstreams[1].base_url: must be a URL, as https://api.openai.com/v1, not `h/v1`",
        ),
        (
            "name: v, base_url: \"ftp://h\"",
            "upstreams[1].base_url: must be a URL, as https://api.openai.com/v1, not `ftp://h`",
        ),
        (
            "name: v, base_url: \"http://me:pass@h\"",
            "upstreams[1].base_url: must have no user, query or fragment",
        ),
        (
            "name: v, base_url: \"http://h/v1?key=pass\"",
            "upstreams[1].base_url: must have no user, query or fragment",
        ),
        (
            "name: v, base_url: http://h, timeouts: { silence: 0s }",
            "upstreams[1].timeouts.silence: must be at least 1ms",
        ),
        (
            "name: v, base_url: http://h, timeouts: { event: 0s }",
            "upstreams[1].timeouts.event: must be at least 1ms",
        ),
    ];
    for (upstream, want) in rows {
        let report = load(upstream, "context: 5");
        assert!(report.starts_with("t.yaml:3:") && report.ends_with(want), "{upstream}\n{report}");
    }
    let rows = [
        ("context: 0", "models[0].context: must be from 1 to 10000000"),
        ("output: { max: 10000001 }", "models[0].output.max: must be from 1 to 10000000"),
        ("output: { default: 0 }", "models[0].output.default: must be from 1 to 10000000"),
        ("aliases: [m]", "models[0].aliases: `m` is already taken"),
        (
            "price: { input: 1, output: 2, tiers: { flex: -1 } }",
            "models[0].price.tiers.flex: must not be negative",
        ),
    ];
    for (model, want) in rows {
        let report = load("name: v, base_url: http://h", model);
        assert!(report.starts_with("t.yaml:5:") && report.ends_with(want), "{model}\n{report}");
    }
}

#[test]
fn a_secret_comes_from_a_file_without_its_line_end() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("admin.key"), "hush\r\n").unwrap();
    std::fs::write(folder.path().join("empty.key"), "\n").unwrap();
    let load = |admin: &str| {
        let text = format!("admin: {{ {admin} }}\n{HEAD}  - {{ id: t }}\n");
        load_text("t.yaml", &text, folder.path(), &secrets).map_err(|error| error.to_string())
    };
    assert!(load("api_key_file: admin.key").unwrap().admin.is_some());
    assert!(load("listen: 127.0.0.1:0").unwrap().admin.is_none());
    let report = load("api_key_file: empty.key").unwrap_err();
    assert!(
        report.starts_with("t.yaml:1:24: admin.api_key_file: ") && report.ends_with("empty.key is empty"),
        "{report}"
    );
    let report = load("api_key_file: none.key").unwrap_err();
    assert!(report.contains("admin.api_key_file: cannot read "), "{report}");
    let report = load("api_key: x, api_key_file: admin.key").unwrap_err();
    assert_eq!(report, "t.yaml:1:19: admin.api_key: give it here or in `admin.api_key_file`, not in both");
}

#[test]
fn b229_a_child_above_its_parent_is_warned_of() {
    let text = format!(
        "{HEAD}  - {{ id: t, limits: [{{ measure: requests, window: 1m, ceiling: 5 }}], projects: [{{ id: p, limits: [{{ measure: requests, window: 1m, ceiling: 100 }}] }}] }}\n"
    );
    let want = "tenants[0].projects[0].limits[0].ceiling: is above tenants[0].limits[0] of its tenant, which binds first";
    assert_eq!(load(&text).unwrap().warnings, [want]);
}

#[test]
fn a_model_without_a_price_is_warned_of_where_cost_is_limited() {
    let load = |head: &str, tenants: &str| {
        let text = format!(
            "{head}upstreams: [{{ name: u, dialect: openai, base_url: http://127.0.0.1:1 }}]
models: [{{ name: a, upstream: u, price: {{ input: 1, output: 1 }} }}, {{ name: b, upstream: u }}]
tenants: [{tenants}]
"
        );
        load(&text).unwrap().warnings
    };
    let cost = "limits: [{ measure: cost, period: day, ceiling: 5 }]";
    let key = |id: &str, more: &str| {
        format!("{{ id: {id}, secret: \"{id}-and-more-than-twenty-four-bytes\"{more} }}")
    };
    let tenant = |id: &str, limits: &str, key: &str| {
        format!("{{ id: {id}, {limits}, projects: [{{ id: web, keys: [{key}] }}] }}")
    };
    let acme = tenant("acme", cost, &key("k", ""));
    let want = "models[1]: has no price, and tenant acme limits cost: every call is refused; give price or default_price";
    assert_eq!(load("", &acme), [want]);
    assert!(load("default_price: { input: 1, output: 1 }\n", &acme).is_empty());
    // Neither a key that may not use the model nor one that is off calls it, and without a limit on cost no price is needed.
    assert!(load("", &tenant("acme", cost, &key("k", ", models: [a]"))).is_empty());
    assert!(load("", &tenant("acme", cost, &key("k", ", disabled: true"))).is_empty());
    assert!(load("", &tenant("acme", "limits: []", &key("k", ""))).is_empty());
    let of_key = tenant("acme", "limits: []", &key("k", &format!(", {cost}")));
    let want = "models[1]: has no price, and key acme/web/k limits cost: every call is refused; give price or default_price";
    assert_eq!(load("", &of_key), [want]);
    let two = format!("{acme}, {}", tenant("beta", cost, &key("l", "")));
    let want = "models[1]: has no price, and tenant acme and 1 more limit cost: every call of theirs is refused; give price or default_price";
    assert_eq!(load("", &two), [want]);
}

#[test]
fn secrets_that_can_be_guessed_are_warned_of() {
    let warnings = |secret: &str| {
        let key = format!("projects: [{{ id: p, keys: [{{ id: k, secret: {secret} }}] }}]");
        load(&format!("{HEAD}  - {{ id: t, {key} }}\n")).unwrap().warnings
    };
    let want = "tenants[0].projects[0].keys[0].secret has 23 bytes; below 24 it can be guessed. `tollbook keys new` makes a good one";
    assert_eq!(warnings(&"x".repeat(23)), [want]);
    assert!(warnings(&"x".repeat(24)).is_empty());
}

#[test]
fn operators_and_clients_do_not_share_an_address() {
    let load = |listen: &str, admin: &str| {
        load(&format!("listen: {listen}\nadmin: {{ {admin} }}\nupstreams: []\nmodels: []\n"))
    };
    let key = "api_key: operators-key-that-is-long-enough";
    let report = load("127.0.0.1:8081", key).unwrap_err();
    assert_eq!(
        report,
        "t.yaml:2:1: admin.listen: is the address of `listen`; operators need one of their own"
    );
    assert!(load("127.0.0.1:0", &format!("listen: 127.0.0.1:0, {key}")).is_ok());
    // Without a key that listener is closed.
    assert!(load("127.0.0.1:8081", "").is_ok());
}

#[test]
fn a_share_of_a_limit_needs_the_number_of_gateways() {
    let load = |redis: &str, limit: &str| {
        let engine =
            format!("engine: {{ redis: {{ url: \"redis://127.0.0.1:1\"{redis} }} }}\njournal: j.sqlite\n");
        load(&format!("{engine}{HEAD}  - {{ id: t, limits: [{{ {limit}, ceiling: 5 }}] }}\n"))
    };
    let gateways = |redis: &str, limit: &str| load(redis, limit).unwrap().calls.away.gateways;
    let rate = "measure: requests, window: 1m";
    let report = load("", rate).unwrap_err();
    assert!(
        report.starts_with("t.yaml:1:11: engine.redis.fleet_size: is missing: while the book is away `tenant t requests rate`"),
        "{report}"
    );
    assert!(load("", "measure: concurrency").is_err());
    assert_eq!(gateways(", fleet_size: 4", rate), 4);
    for closed in [
        "measure: requests, window: 1m, when_away: closed",
        "measure: requests, window: 1m, when_away: open",
        "measure: requests, window: 1m, shadow: true",
        "measure: requests, window: 1m, strictness: hard",
        "measure: requests, period: day",
    ] {
        assert_eq!(gateways("", closed), 1, "{closed}");
    }
    assert!(load("", "measure: requests, period: day, when_away: local").is_err());
    for wrong in [0, 10_001] {
        let report = load(&format!(", fleet_size: {wrong}"), rate).unwrap_err();
        assert!(report.ends_with("engine.redis.fleet_size: must be from 1 to 10000"), "{report}");
    }
    // A book of its own is shared with nobody.
    let own = super::domain::load(&format!("{HEAD}  - {{ id: t, limits: [{{ {rate}, ceiling: 5 }}] }}\n"));
    assert_eq!(own.unwrap().calls.away.gateways, 1);
}

#[test]
fn a_breakers_numbers_have_bounds() {
    let load =
        |breaker: &str| load(&format!("calls: {{ breaker: {{ {breaker} }} }}\nupstreams: []\nmodels: []\n"));
    for (good, wrong, told) in [
        ("failures: 1", "failures: 0", "failures: must be from 1 to 1000"),
        ("failures: 1000", "failures: 1001", "failures: must be from 1 to 1000"),
        ("of_last: 64", "of_last: 65", "of_last: must be from 1 to 64"),
        ("share: 100", "share: 101", "share: must be from 1 to 100"),
        ("slow: 1ms", "slow: 0s", "slow: must be at least 1ms"),
    ] {
        assert!(load(good).is_ok(), "{good}");
        let report = load(wrong).unwrap_err();
        assert!(report.ends_with(&format!("calls.breaker.{told}")), "{report}");
    }
}
