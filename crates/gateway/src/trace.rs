//! What a trace is told of the way: the door, every try, the answer.
//!
//! Trace context is read from the client and checked; what a provider is told is the gateway's own place in the trace,
//! and only where its configuration says so: a provider is a stranger, and a trace's id ties its calls together.
//! `baggage` goes nowhere. Without a tracer every function here is a test for `None`.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use tollbook_admission::{DenyKind, Measure, Refused, Ticket};
use tollbook_telemetry::trace::{CallTrace, Context, Key, Tracer, Value};
use tollbook_wire::{Dialect, Meter, Surface};

use crate::paths;
use crate::problem::Problem;
use crate::upstream::{SendError, Upstream};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A call is at the door.
pub(crate) fn begin(
    tracer: &std::sync::Arc<Tracer>,
    surface: Surface,
    headers: &HeaderMap,
    request_id: &std::sync::Arc<str>,
) -> Option<CallTrace> {
    let call = tracer.call(client_context(headers))?;
    call.name(operation(surface));
    call.put(Key::Operation, operation(surface));
    call.put(Key::Provider, provider(surface.dialect()));
    call.put(Key::System, provider(surface.dialect()));
    call.put(Key::HttpMethod, "POST");
    call.put(Key::HttpRoute, paths::route(surface));
    call.put(Key::RequestId, request_id);
    // Until the door says otherwise.
    call.put(Key::Decision, "reject");
    Some(call)
}

/// The client's place in a trace; two of them, or one that is not well formed, are none.
fn client_context(headers: &HeaderMap) -> Option<Context> {
    let one = |name: &HeaderName| {
        let mut lines = headers.get_all(name).iter();
        let line = lines.next()?.to_str().ok()?;
        lines.next().is_none().then_some(line)
    };
    Context::read(one(&TRACEPARENT)?, one(&TRACESTATE))
}

/// The body was understood.
pub(crate) fn asked(call: &CallTrace, request: &tollbook_wire::Request<'_>) {
    let model = Value::text(&request.model);
    call.name(&format!("{} {}", operation(request.surface), request.model));
    call.put(Key::RequestModel, model);
    call.put(Key::RequestStream, request.stream);
}

/// The door said no.
pub(crate) fn refused(call: &CallTrace, refused: &Refused) {
    let Refused::Limit(limit) = refused else { return };
    call.put(Key::Decision, "deny");
    call.put(Key::Limit, Value::text(&limit.limit));
    call.put(Key::LimitMeasure, measure(limit.measure));
    let kind = match limit.kind {
        DenyKind::TooLarge => "too_large",
        DenyKind::Exhausted => "exhausted",
        DenyKind::Spent(_) => "spent",
        DenyKind::Busy(_) => "busy",
    };
    call.put(Key::LimitKind, kind);
    if let Some(wait) = limit.wait() {
        call.put(Key::RetryAfter, wait.div_ceil(1000));
    }
}

/// The client is told that its call was not admitted.
pub(crate) fn rejected(call: &CallTrace, problem: &Problem) {
    call.put(Key::HttpStatus, u64::from(problem.status.as_u16()));
    let why = word(problem);
    // A refusal is an answer, not a fault of the gateway's.
    if problem.status.is_server_error() { call.fail(why) } else { call.put(Key::ErrorType, why) }
}

/// The client is told that its admitted call failed.
pub(crate) fn failed(call: &CallTrace, problem: &Problem) {
    call.put(Key::HttpStatus, u64::from(problem.status.as_u16()));
    call.fail(word(problem));
}

/// The client is answered.
pub(crate) fn answered(call: &CallTrace, status: StatusCode) {
    call.put(Key::HttpStatus, u64::from(status.as_u16()));
}

/// The gateway's error code; the status where it has none.
fn word(problem: &Problem) -> Value {
    problem.code.map_or_else(|| Value::text(problem.status.as_str()), Value::from)
}

/// A try begins: its span, and in `headers` what the provider is told of the trace.
pub(crate) fn attempt(ticket: &Ticket, upstream: &Upstream, surface: Surface, headers: &mut HeaderMap) {
    let context = match ticket.trace() {
        Some(call) => Some(attempt_span(call, ticket.model_sent(), upstream, surface)),
        // Not traced here; a client's own trace may go on to its provider.
        None if upstream.config.trace_context => client_context(headers),
        None => return,
    };
    if !upstream.config.trace_context {
        return;
    }
    headers.remove(&TRACESTATE);
    headers.remove(&TRACEPARENT);
    let Some(context) = context else { return };
    if let Ok(value) = HeaderValue::try_from(context.traceparent()) {
        headers.insert(TRACEPARENT, value);
    }
    if let Some(state) = context.state.and_then(|state| HeaderValue::try_from(&*state).ok()) {
        headers.insert(TRACESTATE, state);
    }
}

/// What of a client's headers an upstream may see of the trace; `attempt` has put it there.
pub(crate) fn keep(client: &HeaderMap, out: &mut HeaderMap) {
    for name in [TRACEPARENT, TRACESTATE] {
        if let Some(value) = client.get(&name) {
            out.insert(name, value.clone());
        }
    }
}

fn attempt_span(call: &CallTrace, model: &str, upstream: &Upstream, surface: Surface) -> Context {
    let context = call.attempt(&format!("{} {model}", operation(surface)));
    call.put_attempt(Key::RequestModel, Value::text(model));
    call.put_attempt(Key::Operation, operation(surface));
    call.put_attempt(Key::Provider, provider(upstream.config.dialect));
    call.put_attempt(Key::Upstream, Value::text(&upstream.config.name));
    let url = &upstream.config.base_url;
    if let Some(host) = url.host() {
        call.put_attempt(Key::ServerAddress, Value::text(host));
    }
    let default = if url.scheme_str() == Some("http") { 80 } else { 443 };
    call.put_attempt(Key::ServerPort, u64::from(url.port_u16().unwrap_or(default)));
    context
}

/// A try was answered, or not.
pub(crate) fn tried(ticket: &Ticket, sent: Result<&Response<Incoming>, &SendError>) {
    let Some(call) = ticket.trace() else { return };
    match sent {
        Ok(response) => {
            let status = response.status();
            call.put_attempt(Key::HttpStatus, u64::from(status.as_u16()));
            if !status.is_success() {
                call.fail_attempt(Value::text(status.as_str()));
            }
        }
        Err(SendError::NeverSent(..)) => call.fail_attempt("connect"),
        Err(SendError::Cut(..)) => call.fail_attempt("reset"),
        Err(SendError::Timeout) => call.fail_attempt("timeout"),
    }
}

/// A whole answer was read.
pub(crate) fn read(ticket: &Ticket, surface: Surface, body: &[u8]) {
    let Some(call) = ticket.trace() else { return };
    let names = tollbook_wire::read_names(surface, body);
    said(call, &names.id, &names.model, names.reason);
}

/// A stream has ended.
pub(crate) fn streamed(ticket: &Ticket, meter: &Meter) {
    let Some(call) = ticket.trace() else { return };
    said(call, &meter.seen.id, &meter.seen.model, meter.seen.reason);
}

/// Call and try both carry what the provider said.
fn said(call: &CallTrace, id: &str, model: &str, reason: Option<&'static str>) {
    for (key, text) in [(Key::ResponseId, id), (Key::ResponseModel, model)] {
        if !text.is_empty() {
            let text = Value::text(text);
            call.put(key, text.clone());
            call.put_attempt(key, text);
        }
    }
    if let Some(reason) = reason {
        call.put(Key::FinishReasons, Value::Words(vec![reason]));
        call.put_attempt(Key::FinishReasons, Value::Words(vec![reason]));
    }
}

/// The operation's name in the conventions.
fn operation(surface: Surface) -> &'static str {
    match surface {
        Surface::Chat | Surface::Responses | Surface::Messages => "chat",
        Surface::Completions => "text_completion",
        Surface::Embeddings => "embeddings",
    }
}

fn measure(measure: Measure) -> &'static str {
    match measure {
        Measure::Requests => "requests",
        Measure::Tokens => "tokens",
        Measure::InputTokens => "input_tokens",
        Measure::OutputTokens => "output_tokens",
        Measure::Cost => "cost",
        Measure::Concurrency => "concurrency",
    }
}

fn provider(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenAi => "openai",
        Dialect::Anthropic => "anthropic",
    }
}
