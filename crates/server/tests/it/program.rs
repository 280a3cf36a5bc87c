//! The program itself: exit codes and what it prints.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use tollbook::key::KeyHash;
use tollbook_admission::ApiKeyHash;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.example.yaml");

fn tollbook(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollbook"));
    command.args(arguments).env_clear();
    for name in ["TOLLBOOK_ADMIN_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
        command.env(name, "k");
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_and_version_go_well_and_a_wrong_command_line_is_two() {
    for arguments in [&["--help"][..], &["--version"], &["serve", "--help"], &["keys", "new", "--help"]] {
        assert_eq!(tollbook(arguments).status.code(), Some(0), "{arguments:?}");
    }
    for arguments in
        [&[][..], &["serv"], &["serve"], &["check", "-c"], &["explain"], &["demo", "--for", "ten"]]
    {
        assert_eq!(tollbook(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn check_prints_what_binds_whom() {
    let output = tollbook(&["check", "-c", EXAMPLE]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    insta::assert_snapshot!(text(&output.stdout));
}

#[test]
fn check_prints_json() {
    let output = tollbook(&["check", "-c", EXAMPLE, "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let bindings = value["bindings"].as_array().unwrap();
    let budget = bindings.iter().flat_map(|binding| binding["limits"].as_array().unwrap());
    let budget =
        budget.filter(|limit| limit["measure"] == "cost" && limit["shape"] == "quota month Europe/Amsterdam");
    assert!(budget.clone().count() > 0);
    for limit in budget {
        assert_eq!(limit["ceiling"], 100_000_000_000_u64);
        assert_eq!(limit["unit"], "nano-currency");
        assert_eq!((&limit["strictness"], &limit["hold"]), (&json!("hard"), &json!("worst")));
        assert_eq!((&limit["on_expiry"], &limit["when_away"]), (&json!("charge"), &json!("closed")));
    }
}

#[test]
fn a_bad_file_is_two_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.yaml");
    std::fs::write(&path, "listn: x\n").unwrap();
    for command in ["check", "serve"] {
        let output = tollbook(&[command, "-c", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let message = text(&output.stderr);
        assert!(
            message.contains("bad.yaml:1:1: listn: unknown field `listn`; did you mean `listen`?"),
            "{message}"
        );
    }
    let output = tollbook(&["check", "--json", "-c", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &printed["errors"][0];
    assert_eq!((&first["line"], &first["column"], &first["path"]), (&1.into(), &1.into(), &"listn".into()));
    assert_eq!(first["message"], "unknown field `listn`");
    assert_eq!(first["help"], "did you mean `listen`?");
    let output = tollbook(&["check", "-c", "/nowhere/t.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("/nowhere/t.yaml: cannot read the configuration: "));
}

#[test]
fn a_new_key_is_printed_once_with_the_line_that_lets_it_in() {
    let output = tollbook(&["keys", "new", "--id", "web-1"]);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    let [secret, line] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    let hash = KeyHash(ApiKeyHash::new(None).digest(secret));
    assert_eq!(line, format!("- {{ id: \"web-1\", hash: \"{hash}\" }}"));
}

#[test]
fn a_pepper_changes_the_hash_of_a_new_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.yaml");
    let new = |text: &str| {
        std::fs::write(&path, text).unwrap();
        tollbook(&["keys", "new", "--json", "-c", path.to_str().unwrap()])
    };
    // Variables of the rest need not be set, nor need the rest be there yet.
    let rest =
        "upstreams: [{ name: u, dialect: openai, base_url: http://h, api_key: \"${TOLLBOOK_TEST_UNSET}\" }]";
    for text in ["key_pepper: salt\nupstreams: []\nmodels: []\n", &format!("key_pepper: salt\n{rest}\n")] {
        let output = new(text);
        let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let hash = KeyHash(ApiKeyHash::new(Some("salt")).digest(made["secret"].as_str().unwrap()));
        assert_eq!(made["hash"], hash.to_string());
    }
    let output = new("key_pepper: \"${TOLLBOOK_TEST_UNSET}\"\n");
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("key_pepper: environment variable TOLLBOOK_TEST_UNSET is not set"), "{message}");
}

#[test]
fn the_schema_is_printed() {
    let output = tollbook(&["schema"]);
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, tollbook::config::schema());
    assert!(Path::new(EXAMPLE).exists());
}

/// What bash offers after a line, its script read as a shell reads it.
fn offered(words: &str) -> Vec<String> {
    let script = tollbook(&["completions", "bash"]);
    assert_eq!(script.status.code(), Some(0), "{}", text(&script.stderr));
    let count = words.split(' ').count();
    // As a file: one argument may not be as long as the script.
    let file = tempfile::NamedTempFile::new().unwrap();
    let ask = format!(
        "{}\nCOMP_WORDS=({words} \"\"); COMP_CWORD={count}; _tollbook tollbook \"\" \"\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        text(&script.stdout)
    );
    std::fs::write(file.path(), ask).unwrap();
    let output = Command::new("bash").arg("--norc").arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_commands_and_options() {
    let commands = offered("tollbook");
    for command in ["serve", "check", "import", "journal", "simulate", "completions"] {
        assert!(commands.iter().any(|offer| offer == command), "{command}: {commands:?}");
    }
    let kinds = offered("tollbook import");
    assert!(kinds.iter().any(|offer| offer == "litellm-config"), "{kinds:?}");
    for shell in ["zsh", "fish"] {
        let script = tollbook(&["completions", shell]);
        assert_eq!(script.status.code(), Some(0));
        for word in ["litellm-prices", "addr-file", "metrics-list"] {
            assert!(text(&script.stdout).contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(tollbook(&["completions", "cmd"]).status.code(), Some(2));
}
