//! The transcripts of `testdata/transcripts`, one folder per surface: streams at every cut, answers in one piece. What is
//! read of them is golden; the gateway plays the same files to its client and its journal.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tollbook_wire::{Surface, read_usage};

use crate::kit::{Outcome, at_every_cut, whole};

const SURFACES: [(&str, Surface); 4] = [
    ("chat", Surface::Chat),
    ("responses", Surface::Responses),
    ("completions", Surface::Completions),
    ("messages", Surface::Messages),
];

fn files(folder: &str, form: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/transcripts").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    let named = paths.into_iter().map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read(path).unwrap())
    });
    let files: Vec<_> = named.filter(|(name, _)| name.starts_with(form)).collect();
    assert!(files.len() >= 5, "{form}: {} transcripts", files.len());
    files
}

/// What must be the same however the bytes came, and whoever asked for the usage.
fn facts(got: &Outcome) -> String {
    format!("{:?}\n  {:?}\n  {:?}, {:?}", got.usage, got.output, got.end, got.anomalies)
}

#[test]
fn h07_recorded_streams_are_read_alike_at_every_cut() {
    let mut golden = String::new();
    for (folder, surface) in SURFACES {
        for (name, bytes) in files(folder, "stream-") {
            let got = at_every_cut(surface, false, &bytes);
            assert_eq!(got.client, bytes, "{folder} {name}");
            let sifted = at_every_cut(surface, true, &bytes);
            assert_eq!(facts(&sifted), facts(&got), "{folder} {name}");
            let dropped = bytes.len() - sifted.client.len();
            writeln!(golden, "{folder} {name}: {dropped} bytes of usage chunk\n  {}", facts(&got)).unwrap();
            for line_end in ["\r\n", "\r"] {
                let text = String::from_utf8(bytes.clone()).unwrap().replace('\n', line_end);
                assert_eq!(facts(&whole(surface, true, text.as_bytes())), facts(&got), "{folder} {name}");
            }
        }
    }
    insta::assert_snapshot!(golden);
}

#[test]
fn recorded_answers_are_read_alike_and_half_of_one_is_none() {
    let mut golden = String::new();
    for (folder, surface) in SURFACES {
        for (name, bytes) in files(folder, "plain-") {
            let got = read_usage(surface, &bytes);
            assert!(got.json, "{folder} {name}");
            for length in 0..bytes.len() {
                assert!(!read_usage(surface, &bytes[..length]).json, "{folder} {name} cut at {length}");
            }
            let (usage, output, error) = (&got.usage, &got.output, &got.error);
            let finished = got.finish_seen;
            writeln!(golden, "{folder} {name}: {usage:?}\n  {output:?}\n  {error:?}, {finished}").unwrap();
        }
    }
    insta::assert_snapshot!(golden);
}

/// Requests with such members are refused; an answer cannot be, and unread it would cost nothing.
#[test]
fn an_answer_that_says_something_twice_is_read_all_the_same() {
    let part = r#"{"type":"1","type":"tool_use","name":"f","input":{"a":"b"},"source":{"data":"x","data":"y"},"Detail":"low"}"#;
    let body = format!(
        r#"{{"content":[{part}],"stop_reason":"tool_use","usage":{{"input_tokens":5,"output_tokens":3}}}}"#
    );
    let got = read_usage(Surface::Messages, body.as_bytes());
    assert!(got.json && got.finish_seen);
    assert_eq!(got.usage.map(|usage| (usage.input, usage.output)), Some((5, 3)));
    let stream =
        format!("data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{part}}}\n\n");
    let got = at_every_cut(Surface::Messages, false, stream.as_bytes());
    assert_eq!(got.anomalies.unparsable, 0);
}
