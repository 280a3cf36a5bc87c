//! Calls by the plan: when, by whom, what, and how the client leaves; and what became of each.
//!
//! Invariants: a call has one outcome, also when nothing listens; its label names it for the provider (in the script it
//! brings along) and for the journal (as its end user); nothing is retried.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::{Answer, Connection};

/// One call to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Milliseconds after the start; earlier it is not made.
    pub at_ms: u64,
    pub label: String,
    pub path: String,
    pub api_key: String,
    pub body: Value,
    /// How the fake provider is to answer. Its `label` is set by [`perform`].
    pub script: Value,
    pub leaves: Leaves,
}

/// When the client goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaves {
    /// Once it has the whole answer.
    AtTheEnd,
    /// Once that many events of a stream have arrived, in an orderly way.
    AfterEvents(usize),
    /// The same with a TCP reset.
    ResetAfterEvents(usize),
    /// Once the call is written, before any answer.
    BeforeTheAnswer,
}

/// What became of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub label: String,
    /// 0: no answer came.
    pub status: u16,
    /// The answer ended as its framing said.
    pub complete: bool,
    /// The error's code or type.
    pub code: String,
    pub request_id: String,
    /// Input and output as the client was told, if it was.
    pub usage: Option<(u64, u64)>,
    /// How long after its time the call was made.
    pub late_ms: u64,
    /// Microseconds after the start.
    pub begun_us: u64,
    pub ended_us: u64,
}

/// Makes one call on the connection, or on a new one where there is none; afterwards there is one if it can be used again.
pub fn perform(
    addr: SocketAddr,
    connection: &mut Option<Connection>,
    job: &Job,
    started: Instant,
) -> Outcome {
    let begun_us = micros(started.elapsed());
    let answer = exchange(addr, connection, job).ok().flatten();
    let ended_us = micros(started.elapsed());
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let error = answer.as_ref().and_then(|answer| answer.json().get("error").cloned()).unwrap_or_default();
    let code = error.get("code").filter(|code| code.is_string()).or_else(|| error.get("type"));
    Outcome {
        label: job.label.clone(),
        status: answer.as_ref().map_or(0, |answer| answer.status),
        complete: answer.as_ref().is_some_and(|answer| answer.complete),
        code: text(code.and_then(Value::as_str)),
        request_id: text(answer.as_ref().and_then(|answer| answer.header("x-request-id"))),
        usage: answer.as_ref().and_then(usage),
        late_ms: (begun_us / 1000).saturating_sub(job.at_ms),
        begun_us,
        ended_us,
    }
}

/// None: the client has left as planned.
fn exchange(addr: SocketAddr, slot: &mut Option<Connection>, job: &Job) -> io::Result<Option<Answer>> {
    let mut connection = match slot.take() {
        Some(connection) => connection,
        None => Connection::open(addr)?,
    };
    let bearer = format!("Bearer {}", job.api_key);
    let mut script = job.script.clone();
    if let Some(script) = script.as_object_mut() {
        script.insert("label".to_owned(), Value::from(job.label.as_str()));
    }
    let script = script.to_string();
    let headers =
        [("authorization", bearer.as_str()), ("x-mock-script", &script), ("x-tollbook-user", &job.label)];
    connection.post(&job.path, &headers, job.body.to_string().as_bytes())?;
    match job.leaves {
        Leaves::AtTheEnd => {
            let answer = connection.answer()?;
            if answer.complete {
                *slot = Some(connection);
            }
            Ok(Some(answer))
        }
        Leaves::AfterEvents(count) => connection.read_events(count).map(|()| None),
        Leaves::ResetAfterEvents(count) => {
            connection.read_events(count)?;
            connection.reset();
            Ok(None)
        }
        Leaves::BeforeTheAnswer => Ok(None),
    }
}

/// A connection that nobody used for so long is not used again.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// Makes all calls, each at its time, with so many at once at most.
pub fn run(addr: SocketAddr, jobs: &[Job], workers: usize) -> Vec<Outcome> {
    let (started, next, outcomes) = (Instant::now(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut connection = None;
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let idle = Instant::now();
                    pause_until(started + Duration::from_millis(job.at_ms));
                    // As clients do: the other side may be about to close it.
                    if idle.elapsed() > IDLE_MAX {
                        connection = None;
                    }
                    let outcome = perform(addr, &mut connection, job, started);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push(outcome);
                    }
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_default()
}

/// The plan's pace is the only thing that is waited for without a state.
pub fn pause_until(instant: Instant) {
    #[allow(clippy::disallowed_methods, reason = "a client's own thread, on the clock of its plan")]
    std::thread::sleep(instant.saturating_duration_since(Instant::now()));
}

/// The last usage that an answer tells, whole or streamed, in either dialect.
fn usage(answer: &Answer) -> Option<(u64, u64)> {
    let text = answer.text();
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let values = events.chain([text.as_str()]).filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let (mut input, mut output) = (None, None);
    for value in values {
        for usage in [value.get("usage"), value.pointer("/message/usage")].into_iter().flatten() {
            let count = |name: &str| usage.get(name).and_then(Value::as_u64);
            let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"];
            let cached = cached.iter().filter_map(|name| count(name)).fold(0, u64::saturating_add);
            let anthropic = count("input_tokens").map(|input| input.saturating_add(cached));
            input = count("prompt_tokens").or(anthropic).or(input);
            output = count("completion_tokens").or_else(|| count("output_tokens")).or(output);
        }
    }
    input.zip(output)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(body: &str) -> Option<(u64, u64)> {
        usage(&Answer { status: 200, headers: Vec::new(), body: body.into(), complete: true })
    }

    #[test]
    fn usage_is_found_in_every_form() {
        assert_eq!(told(r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#), Some((3, 4)));
        assert_eq!(
            told(
                "data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"
            ),
            Some((3, 4))
        );
        let start =
            r#"{"message":{"usage":{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":1}}}"#;
        assert_eq!(
            told(&format!(
                "event: a\ndata: {start}\n\nevent: b\ndata: {{\"usage\":{{\"output_tokens\":9}}}}\n\n"
            )),
            Some((5, 9))
        );
        assert_eq!(told("nothing"), None);
    }
}
