//! One call being traced.
//!
//! Shared by those who see parts of it: the door, the try, the end. The last one to let go of it ends the spans and
//! queues them, so no way out of a call can forget to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::attributes::{Key, Value};
use super::context::{Context, SpanId, TraceId};
use super::tracer::{Span, SpanKind, Tracer, nanos, wall};

/// Most tries of one call that get a span of their own.
pub const ATTEMPTS_MAX: usize = 16;

/// A call being traced; cheap to clone.
#[derive(Clone)]
pub struct CallTrace(Arc<Shared>);

struct Shared {
    tracer: Arc<Tracer>,
    trace: TraceId,
    id: SpanId,
    parent: Option<SpanId>,
    tracestate: Option<Box<str>>,
    began: Instant,
    began_wall: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    call: Part,
    attempts: Vec<(SpanId, Instant, Part)>,
}

/// What one span has gathered.
#[derive(Default)]
struct Part {
    name: Option<Arc<str>>,
    attributes: Vec<(Key, Value)>,
    failed: bool,
    ended: Option<Instant>,
}

impl Part {
    fn put(&mut self, key: Key, value: Value) {
        match self.attributes.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((key, value)),
        }
    }

    fn fail(&mut self, why: Value) {
        self.failed = true;
        self.put(Key::ErrorType, why);
    }
}

impl CallTrace {
    pub(super) fn new(tracer: &Arc<Tracer>, parent: Option<Context>, fresh: TraceId) -> Self {
        let (trace, parent, tracestate) = match parent {
            Some(parent) => (parent.trace, Some(parent.span), parent.state),
            None => (fresh, None, None),
        };
        Self(Arc::new(Shared {
            tracer: Arc::clone(tracer),
            trace,
            id: tracer.span_id(),
            parent,
            tracestate,
            began: Instant::now(),
            began_wall: wall(),
            state: Mutex::default(),
        }))
    }

    /// Names the call.
    pub fn name(&self, name: &str) {
        self.with(|state| state.call.name = Some(super::attributes::cut(name)));
    }

    /// Says something of the call; a later word replaces an earlier one.
    pub fn put(&self, key: Key, value: impl Into<Value>) {
        let value = value.into();
        self.with(|state| state.call.put(key, value));
    }

    /// The call did not go well.
    pub fn fail(&self, why: impl Into<Value>) {
        let why = why.into();
        self.with(|state| state.call.fail(why));
    }

    /// The call, and a try that is still open, are over as of now; what is put later still counts.
    pub fn end(&self) {
        let now = Instant::now();
        self.with(|state| {
            state.call.ended.get_or_insert(now);
            if let Some((_, _, part)) = state.attempts.last_mut() {
                part.ended.get_or_insert(now);
            }
        });
    }

    /// The call is sent to a provider, once more; what to tell it. A try that was open is over.
    pub fn attempt(&self, name: &str) -> Context {
        let now = Instant::now();
        let id = self.0.tracer.span_id();
        self.with(|state| {
            let count = state.attempts.len();
            if let Some((_, _, part)) = state.attempts.last_mut() {
                part.ended.get_or_insert(now);
            }
            // Past the bound the last one goes on.
            if count >= ATTEMPTS_MAX {
                return;
            }
            let mut part = Part { name: Some(super::attributes::cut(name)), ..Part::default() };
            if count > 0 {
                part.put(Key::HttpResend, u64::try_from(count).unwrap_or(u64::MAX).into());
            }
            state.attempts.push((id, now, part));
        });
        Context { trace: self.0.trace, span: id, sampled: true, state: self.0.tracestate.clone() }
    }

    /// Says something of the last try.
    pub fn put_attempt(&self, key: Key, value: impl Into<Value>) {
        let value = value.into();
        self.with(|state| {
            if let Some((_, _, part)) = state.attempts.last_mut() {
                part.put(key, value);
            }
        });
    }

    /// The last try is over and did not go well.
    pub fn fail_attempt(&self, why: impl Into<Value>) {
        let (why, now) = (why.into(), Instant::now());
        self.with(|state| {
            if let Some((_, _, part)) = state.attempts.last_mut() {
                part.fail(why);
                part.ended.get_or_insert(now);
            }
        });
    }

    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    fn at(&self, instant: Instant) -> u64 {
        self.began_wall.saturating_add(nanos(instant.saturating_duration_since(self.began)))
    }

    fn span(&self, id: SpanId, parent: Option<SpanId>, began: Instant, part: Part, kind: SpanKind) -> Span {
        let ended = part.ended.unwrap_or_else(Instant::now).max(began);
        Span {
            trace: self.trace,
            id,
            parent,
            remote: kind == SpanKind::Server && parent.is_some(),
            state: self.tracestate.clone(),
            name: part.name.unwrap_or_else(|| Arc::from("call")),
            kind,
            began: self.at(began),
            ended: self.at(ended),
            attributes: part.attributes,
            failed: part.failed,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut spans = Vec::with_capacity(state.attempts.len() + 1);
        spans.push(self.span(self.id, self.parent, self.began, state.call, SpanKind::Server));
        for (id, began, part) in state.attempts {
            spans.push(self.span(id, Some(self.id), began, part, SpanKind::Client));
        }
        self.tracer.offer(spans);
    }
}

impl std::fmt::Debug for CallTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallTrace")
            .field("trace", &self.0.trace)
            .field("id", &self.0.id)
            .finish_non_exhaustive()
    }
}
