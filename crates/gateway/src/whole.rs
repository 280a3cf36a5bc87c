//! Answers that come in one piece: read within bounds, settled, and handed on.
//!
//! Invariants: a call ends here exactly once, before the client has a byte; what its answer reports is charged, an error's
//! usage too; all answers together hold at most `answers_in_flight_max`, each as long as its client takes it. An answer
//! that finds no room there is dropped unread: 503, and what was held is charged, because the provider did the work.

use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tollbook_admission::{Ending, Outcome, Ticket};
use tollbook_wire::{Dialect, PassedMeter, Surface};

use crate::body::OutBody;
use crate::budget::{Budget, Counted, counted};
use crate::encoding::{self, Decoder, EncodingError};
use crate::figures;
use crate::plane::Plane;
use crate::problem::Problem;
use crate::refusal;
use crate::upstream::Upstream;

/// Longest error body of an upstream that is read.
const ERROR_BODY_MAX: usize = 256 << 10;
/// Longest silence in an error's body.
const ERROR_SILENCE: Duration = Duration::from_secs(10);
/// What an answer says of its own length is believed so far.
const ANNOUNCED_MAX: usize = 1 << 20;

/// What a path reads out of an answer.
pub(crate) struct Reading {
    pub(crate) outcome: Outcome,
    /// The answer is none: what the client is told instead.
    pub(crate) failed: Option<Problem>,
}

/// A call whose answer's head is there.
pub(crate) struct Whole<'a> {
    pub(crate) ticket: Ticket,
    pub(crate) plane: &'a Plane,
    pub(crate) upstream: &'a Upstream,
    pub(crate) dialect: Dialect,
    pub(crate) request_id: &'a str,
}

impl Whole<'_> {
    /// Reads the answer, ends the call, and answers the client.
    pub(crate) async fn answer(
        self,
        response: Response<Incoming>,
        read: impl FnOnce(&Ticket, &[u8]) -> Reading,
    ) -> Result<Response<OutBody>, Problem> {
        let (head, body) = response.into_parts();
        let encoding = encoding::named(&head.headers);
        let bounds = Bounds {
            bytes: self.plane.config.bounds.answer_max,
            silence: self.upstream.config.silence_timeout,
            all: &self.plane.answers,
        };
        let bytes = match collect(body, encoding.as_deref(), bounds).await {
            Ok(bytes) => bytes,
            Err(error) => {
                self.ticket.end(&error.outcome());
                return Err(error.problem());
            }
        };
        let Reading { outcome, failed } = read(&self.ticket, &bytes);
        let figures = *self.ticket.figures();
        self.ticket.end(&outcome);
        if let Some(problem) = failed {
            return Err(problem);
        }
        if self.upstream.is_named_in(&bytes) {
            return Err(Problem::upstream("the provider's answer holds what no client may see"));
        }
        let mut response = Response::new(OutBody::full(bytes));
        *response.status_mut() = head.status;
        let out = response.headers_mut();
        *out = self.upstream.for_client(&head.headers);
        figures::write(out, self.dialect, &figures, None);
        figures::write_request_id(out, self.request_id);
        Ok(response)
    }
}

/// Reads the answer of a metered surface.
pub(crate) fn read(surface: Surface, bytes: &[u8]) -> Reading {
    let meter = tollbook_wire::read_usage(surface, bytes);
    let empty = bytes.is_empty();
    if !empty && meter.json && !meter.is_failure() {
        return Reading { outcome: Outcome::buffered(&meter), failed: None };
    }
    let outcome = if meter.usage.is_some() { Outcome::buffered(&meter) } else { Outcome::upstream_error() };
    let problem = match meter.error {
        Some(error) => refusal::error_in_200(&error),
        None if empty => Problem::upstream("the provider answered with nothing"),
        None => Problem::upstream("the provider's answer is not what was asked for"),
    };
    Reading { outcome, failed: Some(problem) }
}

/// Looks through the answer of a call that is passed.
pub(crate) fn look(dialect: Dialect, bytes: &[u8]) -> Reading {
    let mut meter = PassedMeter::new(dialect);
    let json = meter.body(bytes);
    let usage = meter.usage_found();
    let answered = json && (meter.error.is_none() || usage.is_some() && meter.substance);
    let ending = if answered { Ending::Complete } else { Ending::UpstreamError };
    let outcome = if answered || usage.is_some() {
        Outcome { usage, output_seen: answered, anomalies: meter.anomalies, ..Outcome::bare(ending) }
    } else {
        Outcome::upstream_error()
    };
    let failed = (!answered).then(|| match &meter.error {
        Some(error) => refusal::error_in_200(error),
        None => Problem::upstream("the provider's answer is not what was asked for"),
    });
    Reading { outcome, failed }
}

/// An upstream's error answer, and what it says it used.
pub(crate) struct ErrorAnswer {
    pub(crate) status: StatusCode,
    pub(crate) head: HeaderMap,
    pub(crate) body: Bytes,
}

impl ErrorAnswer {
    /// Reads it as far as is useful.
    pub(crate) async fn read(plane: &Plane, response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let bounds = Bounds {
            bytes: ERROR_BODY_MAX.min(plane.config.bounds.answer_max),
            silence: ERROR_SILENCE,
            all: &plane.answers,
        };
        let encoding = encoding::named(&head.headers);
        let body = collect(body, encoding.as_deref(), bounds).await.unwrap_or_default();
        Self { status: head.status, head: head.headers, body }
    }

    /// How a call on a metered surface ends with it.
    pub(crate) fn outcome(&self, surface: Surface) -> Outcome {
        let meter = tollbook_wire::read_usage(surface, &self.body);
        let Some(usage) = meter.usage else { return Outcome::upstream_error() };
        Outcome {
            usage: Some(usage),
            anomalies: meter.anomalies,
            service_tier: meter.service_tier,
            web_searches: meter.web_searches,
            hosted: meter.hosted,
            ..Outcome::upstream_error()
        }
    }

    /// How a passed call ends with it.
    pub(crate) fn passed_outcome(&self, dialect: Dialect) -> Outcome {
        let mut meter = PassedMeter::new(dialect);
        let _ = meter.body(&self.body);
        let Some(usage) = meter.usage_found() else { return Outcome::upstream_error() };
        Outcome { usage: Some(usage), anomalies: meter.anomalies, ..Outcome::upstream_error() }
    }
}

/// Whether the provider wants to be paid for what ended so: then it is not asked again.
pub(crate) fn is_paid(outcome: &Outcome) -> bool {
    outcome.usage.is_some_and(|usage| usage.total() > 0)
}

/// What bounds the reading of one answer.
#[derive(Clone, Copy)]
struct Bounds<'a> {
    bytes: usize,
    silence: Duration,
    all: &'a Budget,
}

/// A whole body, decoded.
async fn collect(
    mut body: Incoming,
    encoding: Option<&str>,
    bounds: Bounds<'_>,
) -> Result<Bytes, CollectError> {
    let mut decoder = Decoder::new(encoding).map_err(|_| CollectError::Encoding)?;
    let announced = body.size_hint().exact().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let announced = announced.min(ANNOUNCED_MAX);
    let mut whole: Option<Bytes> = None;
    let mut share = bounds.all.share();
    let mut parts = Counted::new(bounds.all.share());
    if !decoder.is_identity() {
        decoder.keep(std::mem::take(&mut parts), bounds.bytes);
    }
    loop {
        let frame = match tokio::time::timeout(bounds.silence, body.frame()).await {
            Err(_) => return Err(CollectError::Timeout),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(CollectError::Cut),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if !decoder.is_identity() {
            decoder.push_kept(&data)?;
        } else if whole.is_none() && parts.len() == 0 {
            share.take(data.len()).map_err(|_| CollectError::Full)?;
            whole = Some(data);
        } else {
            if parts.len().max(whole.as_ref().map_or(0, Bytes::len)) + data.len() > bounds.bytes {
                return Err(CollectError::TooLarge);
            }
            if let Some(first) = whole.take() {
                parts.extend(&first, announced).map_err(|_| CollectError::Full)?;
                share = bounds.all.share();
            }
            parts.extend(&data, announced).map_err(|_| CollectError::Full)?;
        }
    }
    let (bytes, share) = match whole {
        _ if !decoder.is_identity() => decoder.finish_kept()?,
        Some(bytes) => (bytes, Some(share)),
        None => parts.finish(),
    };
    match share {
        _ if bytes.len() > bounds.bytes => Err(CollectError::TooLarge),
        Some(share) if !bytes.is_empty() => Ok(counted(bytes, share)),
        _ => Ok(bytes),
    }
}

#[derive(Debug, Clone, Copy)]
enum CollectError {
    Cut,
    Timeout,
    TooLarge,
    Encoding,
    /// All answers together are at their bound.
    Full,
}

impl From<EncodingError> for CollectError {
    fn from(error: EncodingError) -> Self {
        match error {
            EncodingError::Full => Self::Full,
            EncodingError::TooLarge => Self::TooLarge,
            EncodingError::Unknown | EncodingError::Damaged => Self::Encoding,
        }
    }
}

impl CollectError {
    fn outcome(self) -> Outcome {
        match self {
            Self::Timeout => Outcome::buffered_cut(Ending::Timeout),
            Self::Cut => Outcome::buffered_cut(Ending::Reset),
            Self::TooLarge | Self::Encoding | Self::Full => Outcome::unreadable(Ending::Reset),
        }
    }

    fn problem(self) -> Problem {
        Problem::upstream(match self {
            Self::Timeout => "the provider fell silent in mid-answer",
            Self::Cut => "the provider's connection broke in mid-answer",
            Self::TooLarge => "the provider's answer is too large",
            Self::Encoding => "the provider's answer cannot be decoded",
            Self::Full => return full(),
        })
    }
}

/// All answers together are at their bound.
pub(crate) fn full() -> Problem {
    Problem::unavailable("too many answers are being held at the moment").code("overloaded")
}
