//! The loader: what is accepted, and where and how mistakes are named.

use std::fmt::Write;

use proptest::prelude::*;
use tollbook::config::{load_text, read_text};

const MINIMAL: &str = "upstreams:\n  - { name: u, dialect: openai, base_url: http://127.0.0.1:1 }\nmodels:\n  - { name: m, upstream: u }\n";

fn env(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("9000".to_owned()),
        "WORD" => Some("hush".to_owned()),
        _ => None,
    }
}

/// The report of a file that must not load.
fn mistakes(text: &str) -> String {
    read_text("t.yaml", text, &env).map_or_else(|report| report.to_string(), |_| "loaded".to_owned())
}

#[test]
fn the_smallest_file_loads() {
    let (file, _) = read_text("t.yaml", MINIMAL, &env).unwrap();
    assert_eq!(file.listen, "127.0.0.1:8080");
    assert_eq!(file.upstreams[0].retries, 1);
    assert!(file.tenants.is_empty());
}

#[test]
fn json_is_a_configuration_too() {
    let text = r#"{"listen": "0.0.0.0:1", "upstreams": [], "models": [], "http": {"body_max": 1024, "headers_max": 5}}"#;
    let (file, _) = read_text("t.json", text, &env).unwrap();
    assert_eq!(file.http.body_max.0, 1024);
    assert_eq!(file.http.headers_max, 5);
}

#[test]
fn each_bad_file_is_refused_with_its_place() {
    let rows: &[(&str, &str)] = &[
        ("", "t.yaml:1:1: the file is empty; see docs/config.example.yaml"),
        ("# only a comment\n", "t.yaml:1:1: the file is empty; see docs/config.example.yaml"),
        ("- 1\n", "t.yaml:1:1: must be an object, not a list"),
        (
            "listn: x\nupstreams: []\nmodels: []\n",
            "t.yaml:1:1: listn: unknown field `listn`; did you mean `listen`?",
        ),
        ("upstreams: []\n", "t.yaml:1:1: `models` is missing"),
        ("upstreams: {}\nmodels: []\n", "t.yaml:1:12: upstreams: must be a list, not an object"),
        ("upstreams: []\nmodels:\n", "t.yaml:2:7: models: must be a list, not nothing"),
        ("a: [\n", "t.yaml:1:4: not valid YAML: unclosed bracket '['"),
        ("listen: a\nlisten: b\n", "t.yaml:2:1: `listen` is given twice; it was given on line 1 already"),
        ("listen: a\n---\nlisten: b\n", "t.yaml:2:1: a second document; keep one document in the file"),
        ("listen: !secret a\n", "t.yaml:1:17: tags have no meaning here; remove the tag"),
        (
            "listen: ${NOPE}\n",
            "t.yaml:1:1: `upstreams` is missing\nt.yaml:1:9: listen: environment variable NOPE is not set; set it, or give a default as ${NOPE:-default}",
        ),
        (
            "listen: \"${PORT\"\n",
            "t.yaml:1:1: `upstreams` is missing\nt.yaml:1:9: listen: `${` without `}`; write $${ for a literal ${",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(mistakes(text), *want, "{text}");
        assert_eq!(mistakes(text), *want, "{text}");
    }
}

#[test]
fn a_bad_time_zone_is_told_once_and_where_it_stands() {
    let quota = "{ measure: requests, period: day, ceiling: 1 }";
    let text = format!(
        "{MINIMAL}tenants:
  - id: a
    zone: Mars/Base
    limits: [{quota}]
    user_limits: [{quota}]
    services: [{{ id: s, limits: [{quota}] }}]
    projects: [{{ id: p, limits: [{quota}], keys: [{{ id: k, secret: s, limits: [{quota}] }}] }}]
"
    );
    let folder = tempfile::tempdir().unwrap();
    let told = load_text("t.yaml", &text, folder.path(), &env).unwrap_err().to_string();
    assert_eq!(told, "t.yaml:7:11: tenants[0].zone: there is no time zone `Mars/Base` in the bundled table");
}

/// A mistake of a certificate stands at the file that has it.
#[test]
fn mistakes_of_certificates_are_told_at_their_own_members() {
    let folder = tempfile::tempdir().unwrap();
    let pair = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (one, other) = (pair(), pair());
    for (name, text) in [
        ("cert.pem", one.cert.pem()),
        ("key.pem", one.signing_key.serialize_pem()),
        ("other.pem", other.signing_key.serialize_pem()),
        ("none.pem", "nothing".to_owned()),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let told = |text: String| match load_text("t.yaml", &text, folder.path(), &env) {
        Ok(_) => "loaded".to_owned(),
        Err(report) => report.to_string(),
    };
    for (certificate, key, member, what) in [
        ("cert.pem", "key.pem", "", ""),
        ("away.pem", "key.pem", "tls.certificate_file", "cannot read "),
        ("none.pem", "key.pem", "tls.certificate_file", "the certificate file holds no certificate"),
        ("cert.pem", "away.pem", "tls.key_file", "cannot read "),
        ("cert.pem", "none.pem", "tls.key_file", "the key file holds no usable key"),
        ("cert.pem", "other.pem", "tls.key_file", "certificate and key do not serve"),
    ] {
        let said = told(format!("{MINIMAL}tls: {{ certificate_file: {certificate}, key_file: {key} }}\n"));
        if member.is_empty() {
            assert_eq!(said, "loaded");
            continue;
        }
        assert!(said.starts_with("t.yaml:5:") && said.contains(&format!(": {member}: {what}")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    for (tls, member, what) in [
        ("ca_files: [cert.pem, away.pem]", "tls.ca_files[1]", "cannot read "),
        ("ca_files: [none.pem]", "tls.ca_files[0]", "the certificate file holds no certificate"),
        ("certificate_file: away.pem, key_file: key.pem", "tls.certificate_file", "cannot read "),
        ("certificate_file: cert.pem, key_file: none.pem", "tls.key_file", ""),
        ("certificate_file: cert.pem, key_file: other.pem", "tls.key_file", ""),
    ] {
        let upstream =
            format!("{{ name: u, dialect: openai, base_url: https://127.0.0.1:1, tls: {{ {tls} }} }}");
        let said = told(format!("upstreams: [{upstream}]\nmodels: [{{ name: m, upstream: u }}]\n"));
        assert!(said.contains(&format!(": upstreams[0].{member}: {what}")), "{said}");
    }
}

#[test]
fn each_bad_value_is_refused_with_its_place() {
    let limit = "  - { id: a, limits: [{ measure: requests, window: 1m, ceiling: 1, X }] }";
    let rows: &[(&str, &str)] = &[
        ("http: { headers_max: -1 }", "5:22: http.headers_max: must not be negative, not `-1`"),
        ("http: { headers_max: 1.5 }", "5:22: http.headers_max: must be a whole number, not `1.5`"),
        ("http: { headers_max: \"5\" }", "5:22: http.headers_max: must be a whole number, not `5`"),
        ("http: { headers_max: 5000000000 }", "5:22: http.headers_max: 5000000000 is too large"),
        (
            "http: { headers_max: 99999999999999999999 }",
            "5:22: http.headers_max: `99999999999999999999` is too large",
        ),
        (
            "http: { headers_max: \"${WORD}\" }",
            "5:22: http.headers_max: must be a whole number, not `${WORD}`",
        ),
        (
            "http: { body_max: 32MB }",
            "5:19: http.body_max: must be a number of bytes, as 65536, 64KiB, 32MiB or 1GiB, not `32MB`",
        ),
        (
            "timeouts: { head: 10 }",
            "5:19: timeouts.head: must be a length of time with its unit, as 500ms, 60s, 5m or 1h30m, not `10`",
        ),
        ("timeouts: { hed: 10s }", "5:13: timeouts.hed: unknown field `hed`; did you mean `head`?"),
        (
            "engine: { durability: fast }",
            "5:23: engine.durability: `fast` is not known; known are mapped, fsync",
        ),
        (
            "engine: { durability: [mapped] }",
            "5:23: engine.durability: must be one of mapped, fsync, not a list",
        ),
        ("log: { level: inof }", "5:15: log.level: `inof` is not known; did you mean `info`?"),
        ("admin: { api_key: \"\" }", "5:19: admin.api_key: must not be empty"),
        ("admin: null", "5:8: admin: must be an object, not nothing"),
    ];
    for (line, want) in rows {
        assert_eq!(mistakes(&format!("{MINIMAL}{line}\n")), format!("t.yaml:{want}"), "{line}");
    }
    let rows: &[(&str, &str)] = &[
        ("shadow: yes", "6:76: tenants[0].limits[0].shadow: must be true or false, not `yes`"),
        (
            "ceilings: 5",
            "6:68: tenants[0].limits[0].ceilings: unknown field `ceilings`; did you mean `ceiling`?",
        ),
        (
            "bucket: 1",
            "6:76: tenants[0].limits[0].bucket: must be a length of time with its unit, as 500ms, 60s, 5m or 1h30m, not `1`",
        ),
        (
            "hold_factor: NaN",
            "6:81: tenants[0].limits[0].hold_factor: must be a decimal number, as 600, 2.50 or 2.5e-06, not `NaN`",
        ),
    ];
    for (field, want) in rows {
        let text = format!("{MINIMAL}tenants:\n{}\n", limit.replace('X', field));
        assert_eq!(mistakes(&text), format!("t.yaml:{want}"), "{field}");
    }
}

#[test]
fn all_mistakes_are_named_at_once() {
    let text = "\
listen: 1
lisen: 2
upstreams:
  - { name: u, dialect: grpc, base_url: x, retries: -1 }
  - { name: v, base_url: y }
  - nothing
models:
  - { name: m, upstream: u, context: many, output: { max: -5 } }
timeouts: { head: soon, drain: later }
";
    let report = mistakes(text);
    let places: Vec<&str> =
        report.lines().filter_map(|line| line.strip_prefix("t.yaml:")?.split(": ").next()).collect();
    assert_eq!(places, ["2:1", "4:25", "4:53", "5:5", "6:5", "8:38", "8:59", "9:19", "9:32"], "{report}");
}

#[test]
fn variables_are_put_in_and_never_shown() {
    let text = format!(
        "listen: 127.0.0.1:${{PORT}}\nhttp: {{ headers_max: \"${{COUNT:-7}}\" }}\nadmin: {{ api_key: \"${{WORD}}\" }}\n{MINIMAL}"
    );
    let (file, _) = read_text("t.yaml", &text, &env).unwrap();
    assert_eq!(file.listen, "127.0.0.1:9000");
    assert_eq!(file.http.headers_max, 7);
    assert!(!format!("{file:?}").contains("hush"));
}

#[test]
fn absent_null_and_zero_of_a_ceiling() {
    let read = |ceiling: &str| {
        let text = format!(
            "{MINIMAL}tenants:\n  - {{ id: a, limits: [{{ measure: requests, window: 1m{ceiling} }}] }}\n"
        );
        let (mut file, _) = read_text("t.yaml", &text, &env).unwrap();
        file.tenants.remove(0).limits.remove(0).ceiling.map(|ceiling| ceiling.0)
    };
    assert_eq!(read(""), None);
    assert_eq!(read(", ceiling: null"), None);
    assert_eq!(read(", ceiling: ~"), None);
    assert_eq!(read(", ceiling: 0"), Some("0".to_owned()));
    assert_eq!(read(", ceiling: \"100.00\""), Some("100.00".to_owned()));
}

#[test]
fn aliases_copy_what_they_stand_for() {
    let text = format!(
        "{MINIMAL}tenants:\n  - {{ id: a, limits: &l [{{ measure: requests, window: 1m, ceiling: 1 }}] }}\n  - {{ id: b, limits: *l }}\n"
    );
    let (file, _) = read_text("t.yaml", &text, &env).unwrap();
    assert_eq!(file.tenants[1].limits.len(), 1);
}

#[test]
fn a_file_of_aliases_does_not_grow_without_bound() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..9 {
        let before = format!("*a{}, ", n - 1).repeat(10);
        writeln!(text, "a{n}: &a{n} [{before}]").unwrap();
    }
    assert!(mistakes(&text).ends_with("more than 500000 parts; aliases count as what they stand for"));
}

#[test]
fn nesting_has_a_bound() {
    let text = format!("a: {}{}\n", "[".repeat(40), "]".repeat(40));
    assert!(mistakes(&text).contains("nested deeper than 32"), "{}", mistakes(&text));
}

#[test]
fn mistakes_are_listed_up_to_a_bound() {
    let mut text = MINIMAL.to_owned();
    for n in 0..80 {
        writeln!(text, "unknown_field_{n}: 1").unwrap();
    }
    let report = mistakes(&text);
    assert_eq!(report.lines().count(), 51);
    assert!(report.ends_with("t.yaml: more mistakes follow"));
}

#[test]
fn the_schema_changes_only_on_purpose() {
    insta::assert_json_snapshot!(tollbook::config::schema());
}

const EXAMPLE: &str = include_str!("../../../../docs/config.example.yaml");

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A damaged file is refused with places inside it, or loads; it never breaks the program.
    #[test]
    fn damaged_files_are_refused_in_good_order(at in 0..EXAMPLE.len(), length in 0_usize..40, put in "[-\\[\\]{}:,#&*!|>'\"%@`a-z0-9 \n\t$~é]{0,6}") {
        let from = (0..=at).rev().find(|at| EXAMPLE.is_char_boundary(*at)).unwrap();
        let to = (from + length..=EXAMPLE.len()).find(|at| EXAMPLE.is_char_boundary(*at)).unwrap_or(EXAMPLE.len());
        let text = format!("{}{put}{}", EXAMPLE.split_at(from).0, EXAMPLE.split_at(to).1);
        let lookup = |_: &str| Some("value".to_owned());
        if let Err(tollbook::config::LoadError::Invalid(report)) =
            load_text("t.yaml", &text, std::path::Path::new("/nowhere"), &lookup)
        {
            prop_assert!(!report.problems.is_empty());
            let lines = text.lines().count() + 1;
            for problem in &report.problems {
                prop_assert!(usize::try_from(problem.place.line).unwrap() <= lines, "{report}");
                prop_assert!(!problem.what.is_empty());
            }
        }
    }
}

/// The journal is a file or a database, and a password comes from one place and shows in none.
#[test]
fn a_journal_is_a_path_or_a_url_with_one_password() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pw"), "s3cret\n").unwrap();
    let path = folder.path().join("t.yaml");
    let loaded = |lines: &str| {
        std::fs::write(&path, format!("{lines}{MINIMAL}")).unwrap();
        let whole = tollbook::config::load(&path, &env);
        let told = whole.map(|setup| (format!("{:?}", setup.journal), setup.files.len()));
        let told = told.map_err(|error| error.to_string());
        let alone = tollbook::config::journal(&path, &env).map(|place| format!("{place:?}"));
        assert_eq!(told.as_ref().ok().map(|(place, _)| place), alone.as_ref().ok(), "{told:?} {alone:?}");
        assert!(!format!("{told:?}").contains("s3cret") && !format!("{told:?}").contains("hush"), "{told:?}");
        told
    };
    let shown = "mysql://tb@db:3306/store".to_owned();
    let file = |name: &str| folder.path().join(name).display().to_string();
    assert_eq!(loaded(""), Ok((file("./tollbook-data/journal.sqlite"), 1)));
    assert_eq!(loaded("journal: j.sqlite\n"), Ok((file("j.sqlite"), 1)));
    assert_eq!(loaded("journal: \"mysql://tb:${WORD}@db/store\"\n"), Ok((shown.clone(), 1)));
    let named = "journal: mariadb://tb@db/store\njournal_password_file: pw\n";
    assert_eq!(loaded(named), Ok((shown, 2)), "the file of the password is watched");
    for (lines, want) in [
        (
            "journal: \"mysql://tb:${WORD}@db/store\"\njournal_password_file: pw\n",
            "the URL of `journal` has a password",
        ),
        ("journal: j.sqlite\njournal_password_file: pw\n", "of use with a `mysql` URL"),
        ("journal: mysql://tb@db/store\njournal_password_file: absent\n", "journal_password"),
        ("journal: mysql://tb:hush@db\n", "journal: the URL names no database"),
        ("journal: postgres://tb:hush@db/store\n", "mysql:// or mariadb://"),
        ("journal: mysql://tb:hush@db/store?charset=latin1\n", "`charset`"),
    ] {
        let told = loaded(lines).unwrap_err();
        assert!(told.contains(want), "{lines}: {told}");
    }
}
