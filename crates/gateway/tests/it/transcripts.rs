//! Recorded answers of providers through the whole gateway, written in several sizes: what the client gets and what the
//! journal says is golden, and does not depend on how the bytes came. `wire` reads the same files at every cut.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use tollbook_mock_upstream::{Framing, Script, Step};
use tollbook_policy::{Measure, PeriodKind};

use crate::world::{Answer, Plan, World, key, quota, rate, tenant};

const FOLDER: &str = "../wire/testdata/transcripts";
const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAMACAYAAAA=";

/// A surface and how it is asked.
struct Surface {
    folder: &'static str,
    path: &'static str,
    ask: fn(case: &str) -> Value,
    /// Options that a stream may be asked with; the first asks for nothing.
    stream_options: &'static [&'static str],
}

const CHAT: Surface = Surface {
    folder: "chat",
    path: "/v1/chat/completions",
    ask: |case| {
        let content = match case {
            "image" => json!([{"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{IMAGE}")}}]),
            _ => json!("What is it?"),
        };
        let mut body = json!({"model": "gpt", "max_completion_tokens": 400,
            "messages": [{"role": "user", "content": content}]});
        if case == "tools" {
            body["tools"] = json!([{"type": "function", "function": {"name": "weather"}}]);
        }
        body
    },
    stream_options: &["{}", r#"{"include_usage":true}"#],
};

const MESSAGES: Surface = Surface {
    folder: "messages",
    path: "/v1/messages",
    ask: |case| {
        let content = match case {
            "image" => json!([{"type": "text", "text": "What is it?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}]),
            _ => json!("What is it?"),
        };
        let mut body =
            json!({"model": "claude", "max_tokens": 400, "messages": [{"role": "user", "content": content}]});
        if case == "tools" {
            body["tools"] = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
        }
        body
    },
    stream_options: &["null"],
};

const RESPONSES: Surface = Surface {
    folder: "responses",
    path: "/v1/responses",
    ask: |case| {
        let content = match case {
            "image" => json!([{"role": "user", "content": [{"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": format!("data:image/png;base64,{IMAGE}")}]}]),
            _ => json!("What is it?"),
        };
        let mut body = json!({"model": "gpt", "max_output_tokens": 400, "input": content});
        if case == "tools" {
            body["tools"] = json!([{"type": "function", "name": "weather"}]);
        }
        body
    },
    stream_options: &["null"],
};

const COMPLETIONS: Surface = Surface {
    folder: "completions",
    path: "/v1/completions",
    ask: |_| json!({"model": "gpt", "max_tokens": 400, "prompt": "What is it?"}),
    stream_options: &["{}", r#"{"include_usage":true}"#],
};

/// How the provider writes an answer.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Whole,
    /// One write per line.
    Lines,
    /// Writes of so many bytes.
    Bytes(usize),
}

const CUTS: [Cut; 4] = [Cut::Whole, Cut::Lines, Cut::Bytes(1), Cut::Bytes(29)];

fn pieces(bytes: &str, cut: Cut) -> Vec<Vec<u8>> {
    match cut {
        Cut::Whole => vec![bytes.as_bytes().to_vec()],
        Cut::Lines => bytes.split_inclusive('\n').map(|line| line.as_bytes().to_vec()).collect(),
        Cut::Bytes(size) => bytes.as_bytes().chunks(size).map(<[u8]>::to_vec).collect(),
    }
}

/// The script that gives a recorded answer.
fn script(case: &str, form: &str, bytes: &str, cut: Cut) -> Script {
    use base64::Engine as _;
    let mut steps = Vec::new();
    let whole = pieces(bytes, cut);
    // Of a plain answer that is cut half arrives.
    let told = if form == "plain" && case == "cut" { whole.len().div_ceil(2) } else { whole.len() };
    for piece in whole.into_iter().take(told) {
        steps.push(Step::Base64(base64::engine::general_purpose::STANDARD.encode(piece)));
        // Long enough now and then to be read by itself.
        if matches!(cut, Cut::Lines) {
            steps.push(Step::DelayMs(1));
        }
    }
    if case == "cut" {
        steps.push(Step::Close);
    }
    let mut script = Script::steps(steps);
    script.framing = Framing::Chunked;
    if form == "plain" && case == "error-before" {
        script.status = Some(400);
    }
    script
}

/// One transcript through a gateway of its own: what came of it, as text.
async fn play(surface: &Surface, file: &str, options: Option<&str>, cut: Cut) -> String {
    let (form, case) = file.split_once('.').unwrap().0.split_once('-').unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(surface.folder).join(file);
    let bytes = std::fs::read_to_string(path).unwrap();
    let plan = Plan::with([
        rate(key(), Measure::Requests, 100),
        quota(tenant(), Measure::Tokens, PeriodKind::Lifetime, 1_000_000),
        quota(tenant(), Measure::Cost, PeriodKind::Lifetime, 1_000_000_000_000),
    ]);
    let world = World::start(plan).await;
    world.up.script(script(case, form, &bytes, cut));
    let mut body = (surface.ask)(case);
    body["stream"] = json!(form == "stream");
    if let Some(options) = options {
        body["stream_options"] = serde_json::from_str(options).unwrap();
    }
    let answer = world.post(surface.path, &body).await;
    world.settled().await;
    let mut text = told(&answer);
    for (record, entry) in world.journal().await {
        let posted: Vec<i64> = record.posted.iter().map(|posted| posted.amount).collect();
        let used = entry.usage;
        writeln!(
            text,
            "{:?} {:?}: {:?}, {:?}; input {} cached {} written {} image {}, output {} reasoning {}, cost {}, posted {posted:?}",
            entry.side, record.source, entry.ending, entry.figures, used.input, used.cached, used.cache_write,
            used.image_input, used.output, used.reasoning, entry.cost_nano
        )
        .unwrap();
    }
    writeln!(text, "calls of the provider: {}, held: {}", world.up.calls().len(), world.held().await)
        .unwrap();
    text
}

/// The answer without what differs from call to call.
fn told(answer: &Answer) -> String {
    let id = answer.header("x-request-id").or(answer.header("request-id")).unwrap_or("none");
    let kind = answer.header("content-type").unwrap_or_default();
    format!("{} {kind}\n{}\n---\n", answer.status, answer.text().replace(id, "REQUEST-ID").trim_end())
}

/// Every transcript of a surface, asked in every way, in every cut.
async fn golden(surface: &Surface) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(surface.folder);
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    for form in ["plain", "stream"] {
        for case in ["text", "error-before", "error-inside", "cut", "no-usage"] {
            let name = format!("{form}-{case}.");
            assert!(files.iter().any(|file| file.starts_with(&name)), "no transcript {name}");
        }
    }
    for file in files {
        let stream = file.starts_with("stream-");
        let ways = if stream { surface.stream_options } else { &["null"] };
        for (number, way) in ways.iter().enumerate() {
            let options = (*way != "null").then_some(*way);
            let whole = play(surface, &file, options, Cut::Whole).await;
            for cut in CUTS.into_iter().skip(1) {
                let cut_up = play(surface, &file, options, cut).await;
                assert_eq!(cut_up, whole, "{} {file} {way} {cut:?}", surface.folder);
            }
            let asked = if number == 0 { "" } else { "-asked" };
            let name = format!("{}-{}{asked}", surface.folder, file.split_once('.').unwrap().0);
            insta::with_settings!({snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true}, {
                insta::assert_snapshot!(name, whole);
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_transcripts_are_golden_in_every_cut() {
    golden(&CHAT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_transcripts_are_golden_in_every_cut() {
    golden(&RESPONSES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_transcripts_are_golden_in_every_cut() {
    golden(&COMPLETIONS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_transcripts_are_golden_in_every_cut() {
    golden(&MESSAGES).await;
}
