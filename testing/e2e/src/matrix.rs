//! The SDK matrix: which clients, what each is put through, and how what happened is judged.
//!
//! Invariants: each cell has a tenant and a key of its own, so what it did is told apart in every record; what a client
//! saw comes from its driver, what it sent comes from the tap, what it was charged comes from the journal. A cell either
//! passes or says why not. Where a client does something of its own that no answer can prevent, `ASKS_ON` says so.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::secret;
use crate::journal::Entry;
use crate::tap::Passed;

/// What the provider writes: five llm_tokens.
pub const TEXT: &str = " the book of all calls";
pub const OUTPUT: u64 = 5;
pub const REFUSAL: &str = "the provider does not take this";
/// Clocks are read on both sides of a socket.
const EARLY: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// `python/matrix.py`
    Python,
    /// The same in a process of its own, as it takes seconds to load.
    LiteLlm,
    /// `node/matrix.mjs`
    Node,
    /// The program of that name.
    Curl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    Chat,
    Responses,
    Messages,
}

impl Surface {
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }
}

/// One client on one surface.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub id: &'static str,
    pub client: &'static str,
    /// Packages whose versions matter, as their registry names them.
    pub packages: &'static [&'static str],
    pub driver: Driver,
    pub surface: Surface,
}

const fn row(
    id: &'static str,
    client: &'static str,
    packages: &'static [&'static str],
    driver: Driver,
    surface: Surface,
) -> Row {
    Row { id, client, packages, driver, surface }
}

use Driver::{Curl, LiteLlm, Node, Python};
use Surface::{Chat, Messages, Responses};

pub const ROWS: [Row; 17] = [
    row("openai-python-chat", "OpenAI, Python", &["openai"], Python, Chat),
    row("openai-python-responses", "OpenAI, Python", &["openai"], Python, Responses),
    row("openai-node-chat", "OpenAI, Node", &["openai"], Node, Chat),
    row("openai-node-responses", "OpenAI, Node", &["openai"], Node, Responses),
    row("anthropic-python", "Anthropic, Python", &["anthropic"], Python, Messages),
    row("anthropic-node", "Anthropic, Node", &["@anthropic-ai/sdk"], Node, Messages),
    row("langchain-openai-chat", "LangChain, `ChatOpenAI`", &["langchain-openai"], Python, Chat),
    row("langchain-openai-responses", "LangChain, `ChatOpenAI`", &["langchain-openai"], Python, Responses),
    row("langchain-anthropic", "LangChain, `ChatAnthropic`", &["langchain-anthropic"], Python, Messages),
    row("vercel-openai-chat", "Vercel AI SDK, `openai.chat`", &["ai", "@ai-sdk/openai"], Node, Chat),
    row("vercel-openai-responses", "Vercel AI SDK, `openai`", &["ai", "@ai-sdk/openai"], Node, Responses),
    row("vercel-anthropic", "Vercel AI SDK, `anthropic`", &["ai", "@ai-sdk/anthropic"], Node, Messages),
    row("litellm-openai", "LiteLLM router, `openai/`", &["litellm"], LiteLlm, Chat),
    row("litellm-anthropic", "LiteLLM router, `anthropic/`", &["litellm"], LiteLlm, Messages),
    row("curl-chat", "`curl --retry 2`", &[], Curl, Chat),
    row("curl-responses", "`curl --retry 2`", &[], Curl, Responses),
    row("curl-messages", "`curl --retry 2`", &[], Curl, Messages),
];

/// Identifier and title, in the order of the columns.
pub const SCENARIOS: [(&str, &str); 8] = [
    ("plain", "plain"),
    ("stream", "streamed"),
    ("tools", "tool"),
    ("tools_stream", "tool, streamed"),
    ("error", "provider's 400"),
    ("stream_error", "error in a stream"),
    ("rate", "429 obeyed"),
    ("budget", "spent budget"),
];

/// How often a row asks when a budget is spent, where that is not once; and why.
pub const ASKS_ON: [(&str, usize, &str); 5] = [
    (
        "vercel-openai-chat",
        3,
        "it retries every 429 and knows no `x-should-retry`; no retry reaches the provider",
    ),
    (
        "vercel-openai-responses",
        3,
        "it retries every 429 and knows no `x-should-retry`; no retry reaches the provider",
    ),
    (
        "litellm-openai",
        3,
        "it retries every 429 and knows no `x-should-retry`; no retry reaches the provider",
    ),
    ("curl-responses", 3, "`--retry` retries every 429; no retry reaches the provider"),
    ("curl-chat", 3, "`--retry` retries every 429; no retry reaches the provider"),
];

/// One row put through one scenario.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub row: &'static str,
    pub scenario: &'static str,
    pub model: &'static str,
    pub key: String,
}

impl Cell {
    /// Of its tenant, and of its key with `-key` behind it.
    pub fn id(&self) -> String {
        format!("{}-{}", self.row, self.scenario.replace('_', "-"))
    }

    pub fn api_key(row: &str, scenario: &str) -> String {
        secret(&format!("{row}-{}-key", scenario.replace('_', "-")))
    }
}

/// What a client saw of one call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Seen {
    pub text: String,
    pub finish: Option<String>,
    pub output: Option<u64>,
    pub tool: Option<String>,
    pub arguments: Value,
    pub pieces: u64,
    pub error: Option<Fault>,
}

/// What a client raised.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Fault {
    pub class: String,
    pub status: Option<u16>,
    pub message: String,
}

/// Everything known of one cell.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub row: &'a Row,
    pub seen: &'a [Seen],
    pub passed: &'a [Passed],
    pub journal: &'a [Entry],
}

impl Evidence<'_> {
    /// Nothing if the cell passes.
    pub fn judge(&self, scenario: &str) -> Result<(), String> {
        match scenario {
            "plain" | "stream" | "tools" | "tools_stream" => self.answered(scenario),
            "error" => self.refused_by_provider(),
            "stream_error" => self.broken_stream(),
            "rate" => self.waited(),
            "budget" => self.spent(),
            other => Err(format!("no such scenario: {other}")),
        }
    }

    fn call(&self, place: usize) -> Result<&Seen, String> {
        self.seen.get(place).ok_or_else(|| format!("call {place} was not made"))
    }

    fn good(&self, place: usize, tools: bool) -> Result<&Seen, String> {
        let seen = self.call(place)?;
        if let Some(error) = &seen.error {
            return Err(format!("call {place} failed: {error:?}"));
        }
        let days = seen.arguments.get("days");
        if tools {
            want("tool", seen.tool.as_deref(), Some("weather"))?;
            want("days", days.and_then(Value::as_f64).map(|days| days.to_string()), Some("1".to_owned()))?;
        } else {
            want("text", seen.text.trim(), TEXT.trim())?;
        }
        let finishes = ["stop", "end_turn", "tool_calls", "tool_use", "tool-calls", "completed"];
        if !seen.finish.as_deref().is_some_and(|finish| finishes.contains(&finish)) {
            return Err(format!("finish is {:?}", seen.finish));
        }
        Ok(seen)
    }

    fn statuses(&self, wanted: &[u16]) -> Result<(), String> {
        let statuses: Vec<u16> = self.passed.iter().map(|passed| passed.status.unwrap_or(0)).collect();
        want("answers on the wire", statuses.as_slice(), wanted)?;
        match self.passed.iter().find(|passed| !passed.path.starts_with(self.row.surface.path())) {
            None => Ok(()),
            Some(other) => Err(format!("asked {}", other.path)),
        }
    }

    /// So many calls were charged, each with the figures the provider reported.
    fn charged(&self, calls: usize) -> Result<(), String> {
        want("entries in the journal", self.journal.len(), calls)?;
        for entry in self.journal {
            want("figures", entry.figures.as_str(), "reported")?;
            want("output charged", u64::try_from(entry.output).ok(), Some(OUTPUT))?;
        }
        Ok(())
    }

    fn answered(&self, scenario: &str) -> Result<(), String> {
        let seen = self.good(0, scenario.starts_with("tools"))?;
        let streamed = scenario.ends_with("stream");
        if streamed && seen.pieces < 2 {
            return Err(format!("came in {} pieces", seen.pieces));
        }
        // A streamed tool call is asked for without usage where that can be.
        if seen.output.is_some_and(|output| output != OUTPUT) || seen.output.is_none() && !streamed {
            return Err(format!("the client reads {:?} llm_tokens of output", seen.output));
        }
        self.statuses(&[200])?;
        self.charged(1)
    }

    fn refused_by_provider(&self) -> Result<(), String> {
        let Some(error) = &self.call(0)?.error else { return Err("no error".to_owned()) };
        want("status", error.status, Some(400))?;
        if !error.message.contains(REFUSAL) {
            return Err(format!("the message is {:?}", error.message));
        }
        self.statuses(&[400])?;
        want("endings", self.endings(), vec!["upstream_error"])
    }

    fn broken_stream(&self) -> Result<(), String> {
        let seen = self.call(0)?;
        if seen.error.is_none() || seen.pieces == 0 {
            return Err(format!("the break is not seen: {seen:?}"));
        }
        self.statuses(&[200])?;
        want("endings", self.endings(), vec!["upstream_error"])
    }

    fn endings(&self) -> Vec<&str> {
        self.journal.iter().map(|entry| entry.ending.as_str()).collect()
    }

    /// The refusal is not seen by the user: the client waits as long as it is told, and no longer call is made.
    fn waited(&self) -> Result<(), String> {
        self.good(0, false)?;
        self.good(1, false)?;
        self.statuses(&[200, 429, 200])?;
        let [_, refused, again] = self.passed else { return Err("not three answers".to_owned()) };
        let told = refused.wait().ok_or("the refusal told no wait")?;
        let answered = refused.answered.ok_or("the refusal was not answered")?;
        let waited = again.asked.saturating_duration_since(answered);
        if waited + EARLY < told {
            return Err(format!("asked again after {waited:?}, was told {told:?}"));
        }
        self.charged(2)
    }

    fn spent(&self) -> Result<(), String> {
        self.good(0, false)?;
        let Some(error) = &self.call(1)?.error else { return Err("the second call passed".to_owned()) };
        let status = if self.row.surface == Surface::Messages { 402 } else { 429 };
        want("status", error.status, Some(status))?;
        let asks = ASKS_ON.iter().find(|known| known.0 == self.row.id).map_or(1, |known| known.1);
        let mut statuses = vec![status; asks];
        statuses.insert(0, 200);
        self.statuses(&statuses)?;
        // Whatever was asked again came no further than the gateway.
        self.charged(1)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "called with what was just made")]
fn want<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, not {wanted:?}")) }
}

/// The page of the documentation. `passed` says whether a cell passed; `version` names a package's version for a driver.
pub fn page(passed: impl Fn(&Row, &str) -> bool, version: impl Fn(&Row, &str) -> String) -> String {
    let mut page = String::from(
        "<!-- Generated by `cargo xtask matrix`; do not edit. -->\n\n# SDK matrix\n\n\
         Unmodified clients against the built gateway and a scripted provider; each cell is a test of every CI run.\n\
         What a client sent is counted on the wire, what it was charged is read from the journal.\n\n",
    );
    let titles: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.1).collect();
    let _ = writeln!(page, "| client | packages | path | {} |", titles.join(" | "));
    let _ = writeln!(page, "| --- | --- | --- | {} |", vec!["---"; titles.len()].join(" | "));
    for row in &ROWS {
        let packages: Vec<String> =
            row.packages.iter().map(|name| format!("{name} {}", version(row, name))).collect();
        let packages = if packages.is_empty() { "–".to_owned() } else { packages.join(", ") };
        let cells: Vec<String> = SCENARIOS.iter().map(|(id, _)| cell(row, id, passed(row, id))).collect();
        let _ = writeln!(
            page,
            "| {} | {packages} | `{}` | {} |",
            row.client,
            row.surface.path(),
            cells.join(" | ")
        );
    }
    page.push_str(
        "\n* *tool*: the call of a tool arrives with its name and its arguments.\n\
         * *provider's 400*: the client raises its own error with the provider's status and message, and asks once.\n\
         * *error in a stream*: the client raises an error behind what it has read, and does not ask again.\n\
         * *429 obeyed*: over a rate limit the client waits as long as it was told, asks once more and gets its answer.\n\
         * *spent budget*: the refusal reaches the user as an error at once and is not retried.\n",
    );
    for (id, asks, why) in ASKS_ON {
        let row = ROWS.iter().find(|row| row.id == id);
        let (client, path) = row.map_or(("", ""), |row| (row.client, row.surface.path()));
        let _ = writeln!(page, "* {client} on `{path}` asks {asks} times: {why}.");
    }
    page
}

fn cell(row: &Row, scenario: &str, passed: bool) -> String {
    match ASKS_ON.iter().find(|known| known.0 == row.id && scenario == "budget") {
        Some(known) if passed => format!("asks {} times", known.1),
        _ if passed => "yes".to_owned(),
        _ => "**no**".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn good() -> Seen {
        Seen { text: TEXT.into(), finish: Some("stop".into()), output: Some(OUTPUT), ..Seen::default() }
    }

    fn refused(status: u16) -> Seen {
        Seen { error: Some(Fault { status: Some(status), ..Fault::default() }), ..Seen::default() }
    }

    fn entry() -> Entry {
        serde_json::from_value(serde_json::json!({
            "reservation": "r", "side": "tenant", "attempt": 0, "seq": 0, "unbooked": 0, "origin": "settled",
            "admitted_at": 0, "ended_at": 0, "requests": 1, "request_id": "", "tenant": "", "project": "",
            "key_id": "", "end_user": "", "pool": "", "input": 9, "cached": 0, "cache_write": 0,
            "output": OUTPUT, "reasoning": 0, "cost_nano": 0, "hold_input": 0, "hold_expected": 0,
            "hold_worst": 0, "charged_on_expiry": 0, "figures": "reported", "ending": "complete",
            "overrun_llm_tokens": 0, "overrun_cost_nano": 0, "posted": []
        }))
        .unwrap()
    }

    fn judge(scenario: &str, seen: &[Seen], passed: &[Passed], entries: usize) -> Result<(), String> {
        Evidence { row: &ROWS[0], seen, passed, journal: &vec![entry(); entries] }.judge(scenario)
    }

    #[test]
    fn a_client_that_asks_too_early_does_not_pass() {
        let start = Instant::now();
        let at = |ms, status| Passed::made(ROWS[0].surface.path(), start + Duration::from_millis(ms), status);
        let told = at(1, 429).told(300);
        let seen = [good(), good()];
        let late = [at(0, 200), told.clone(), at(301, 200)];
        assert_eq!(judge("rate", &seen, &late, 2), Ok(()));
        let early = [at(0, 200), told, at(200, 200)];
        assert!(judge("rate", &seen, &early, 2).unwrap_err().starts_with("asked again after"));
        assert!(judge("rate", &seen, &late[..1], 2).is_err());
        assert!(judge("rate", &seen, &late, 3).is_err());
    }

    #[test]
    fn a_client_that_asks_again_for_nothing_does_not_pass() {
        let at = |status| Passed::made(ROWS[0].surface.path(), Instant::now(), status);
        let seen = [good(), refused(429)];
        assert_eq!(judge("budget", &seen, &[at(200), at(429)], 1), Ok(()));
        assert!(judge("budget", &seen, &[at(200), at(429), at(429)], 1).is_err());
        assert!(judge("budget", &seen, &[at(200), at(429)], 2).is_err());
        assert!(judge("budget", &[good(), good()], &[at(200), at(429)], 1).is_err());
    }

    /// Cheap to ask in every run; the run of the matrix itself compares what it saw.
    #[test]
    fn the_page_shows_these_rows_and_the_pinned_versions() {
        let python = include_str!("../python/requirements.txt");
        let node: Value = serde_json::from_str(include_str!("../node/package.json")).unwrap();
        let version = |row: &Row, name: &str| {
            if row.driver == Node {
                return node["dependencies"][name].as_str().unwrap().to_owned();
            }
            let mut pins = python.lines().filter_map(|line| line.split_once("=="));
            pins.find(|(pinned, _)| *pinned == name).unwrap().1.to_owned()
        };
        let stands = include_str!("../../../docs/reference/sdk-matrix.md");
        for (stands, made) in stands.lines().zip(page(|_, _| true, version).lines()) {
            assert_eq!(stands, made, "the page is stale: cargo xtask matrix");
        }
    }

    #[test]
    fn an_answer_must_be_whole_and_charged_as_reported() {
        let at = || Passed::made(ROWS[0].surface.path(), Instant::now(), 200);
        assert_eq!(judge("plain", &[good()], &[at()], 1), Ok(()));
        let other = Seen { text: "the book".into(), ..good() };
        assert!(judge("plain", &[other], &[at()], 1).is_err());
        assert!(judge("plain", &[Seen { output: None, ..good() }], &[at()], 1).is_err());
        assert!(judge("stream", &[good()], &[at()], 1).is_err(), "one piece is no stream");
        assert!(judge("tools", &[good()], &[at()], 1).is_err());
        assert!(judge("plain", &[good()], &[at()], 0).is_err());
        assert!(judge("plain", &[good()], &[at(), at()], 1).is_err());
    }
}
