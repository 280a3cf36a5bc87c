//! The path of one call: decode, admit, dispatch, relay or answer. One way; every early return is a refusal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tollbook_admission::{Ending, Outcome, Ticket};
use tollbook_telemetry::trace::CallTrace;
use tollbook_wire::{Changes, StreamRelay, Surface};

use crate::body::OutBody;
use crate::budget::Share;
use crate::cut::Cut;
use crate::detach::Detach;
use crate::encoding::{self, Decoder};
use crate::gateway::Gateway;
use crate::headers::{self, Shown};
use crate::intake::{IntakeError, Taken};
use crate::naming::Named;
use crate::open::OpenStream;
use crate::outgoing::Outgoing;
use crate::pass_body::{PassBody, PassOf};
use crate::peer;
use crate::plane::Plane;
use crate::problem::{self, Problem, Retry};
use crate::refusal::{self, Verdict};
use crate::relay::{RelayBody, Relayed, StreamOf};
use crate::upstream::Upstream;
use crate::whole::{self, ErrorAnswer, Whole};
use crate::{figures, paths, trace};

/// Bodies above this are decoded off the async workers.
const DECODE_INLINE_MAX: usize = 256 << 10;
/// How much of a stream is read ahead before its head is sent, at most.
const PEEK_MAX: usize = 64 << 10;
/// How long a stream's first event is awaited before its head is sent all the same.
const PEEK_WAIT: Duration = Duration::from_secs(5);
/// Longest pause before a retry.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// A call that was read and admitted, ready to be sent.
struct Admitted {
    ticket: Ticket,
    plane: Arc<Plane>,
    upstream: Arc<Upstream>,
    surface: Surface,
    /// When the last byte of its body was there.
    arrived: Instant,
    stream: bool,
    usage_asked: bool,
    body: Outgoing,
    /// Without the usage option the client did not ask for; for upstreams that reject it (B048).
    body_plain: Option<Outgoing>,
    headers: HeaderMap,
    query: Option<String>,
    /// The stream's place among those of its key.
    open: Option<OpenStream>,
    /// Held while the body may have to be sent again.
    _share: Option<Share>,
}

/// Serves one call on a metered surface.
pub(crate) async fn serve(
    gateway: Arc<Gateway>,
    surface: Surface,
    request: Request<Incoming>,
) -> Response<OutBody> {
    let request_id = gateway.request_id();
    let dialect = surface.dialect();
    let trace = gateway.trace(surface, request.headers(), &request_id);
    // Boxed in two halves: hyper moves a handler's future about, and this one would be several kilobytes.
    let admitted = match Box::pin(admit(&gateway, surface, request, &request_id, trace.as_ref())).await {
        Ok(admitted) => admitted,
        Err(problem) => {
            gateway.note_refused(surface, &problem);
            if let Some(call) = &trace {
                trace::rejected(call, &problem);
            }
            return problem.respond(dialect, &request_id);
        }
    };
    let bound = admitted.plane.config.timeouts.detached;
    let streaming = admitted.stream;
    let work = run(Arc::clone(&gateway), admitted, request_id.clone());
    let result = if streaming { Box::pin(work).await } else { Detach::new(work, bound).await };
    match result {
        Ok(response) => {
            if let Some(call) = &trace {
                trace::answered(call, response.status());
            }
            response
        }
        Err(problem) => {
            Gateway::note_failed(&request_id, &problem);
            if let Some(call) = &trace {
                trace::failed(call, &problem);
            }
            problem.respond(dialect, &request_id)
        }
    }
}

async fn admit(
    gateway: &Arc<Gateway>,
    surface: Surface,
    request: Request<Incoming>,
    request_id: &Arc<str>,
    trace: Option<&CallTrace>,
) -> Result<Admitted, Problem> {
    let dialect = surface.dialect();
    let (head, body) = request.into_parts();
    let refused = |refused| Problem::refused(refused, dialect, gateway.jitter());
    let api_key = match headers::shown_api_key(&head.headers) {
        Shown::ApiKey(api_key) => api_key,
        Shown::Nothing => return Err(refused(tollbook_admission::Refused::NoApiKey)),
        Shown::Contradiction => return Err(refused(tollbook_admission::Refused::BadApiKey)),
    };
    let mut plane = gateway.plane();
    let from = peer::told(&head.extensions);
    let identified = gateway.admission.identify_in(&plane.snapshot, api_key, from).await;
    let mut principal = identified.map_err(refused)?;
    let taken = plane.intake.read(&head.headers, body).await.map_err(|e| intake(&e, &plane))?;
    // A body may take its time: a key that was disabled meanwhile is refused all the same.
    let now = gateway.plane();
    if !Arc::ptr_eq(&now, &plane) || !gateway.admission.is_still(&now.snapshot, &principal) {
        let identified = gateway.admission.identify_in(&now.snapshot, api_key, from).await;
        principal = identified.map_err(refused)?;
        plane = now;
    }
    let call = Call {
        gateway: Arc::clone(gateway),
        plane,
        surface,
        taken,
        arrived: Instant::now(),
        request_id: Arc::clone(request_id),
        principal,
        trace: trace.cloned(),
    };
    let named = Named::of(&head.headers)?;
    let query = headers::query_for_upstream(head.uri.query());
    if call.taken.bytes.len() > DECODE_INLINE_MAX {
        let runtime = tokio::runtime::Handle::current();
        let work = move || runtime.block_on(call.decode_and_admit(head.headers, query, named));
        return tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| Problem::refused(tollbook_admission::Refused::Internal, dialect, 0))?;
    }
    call.decode_and_admit(head.headers, query, named).await
}

pub(crate) fn intake(error: &IntakeError, plane: &Plane) -> Problem {
    match error {
        IntakeError::TooLarge => {
            let text = format!("the request body is larger than {} bytes", plane.config.bounds.body_max);
            Problem::new(tollbook_wire::ErrorKind::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, text)
                .code("request_too_large")
                .retry(Retry::Never(None))
        }
        IntakeError::Cut => Problem::invalid("the request body was cut short"),
        IntakeError::Timeout => {
            Problem::invalid("the request body did not arrive in time").code("request_timeout")
        }
        IntakeError::Busy => {
            Problem::unavailable("too many request bodies are being held at the moment").code("overloaded")
        }
        IntakeError::Damaged => Problem::invalid("the encoded request body cannot be decoded"),
        IntakeError::Encoded => Problem::new(
            tollbook_wire::ErrorKind::InvalidRequest,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "this content encoding is not taken; send the body plain, or as gzip, deflate, br or zstd",
        ),
    }
}

/// What is known of a call before its body is understood.
struct Call {
    gateway: Arc<Gateway>,
    plane: Arc<Plane>,
    surface: Surface,
    taken: Taken,
    arrived: Instant,
    request_id: Arc<str>,
    principal: tollbook_admission::Principal,
    trace: Option<CallTrace>,
}

impl Call {
    async fn decode_and_admit(
        self,
        headers: HeaderMap,
        query: Option<String>,
        named: Named,
    ) -> Result<Admitted, Problem> {
        let body = &self.taken.bytes;
        let request =
            tollbook_wire::decode_request(self.surface, body).map_err(|error| undecodable(&error))?;
        if let Some(call) = &self.trace {
            trace::asked(call, &request);
        }
        // Found out now, this costs nobody anything.
        if !request.stream && self.plane.answers.is_nearly_full() {
            return Err(whole::full());
        }
        let open = request.stream.then(|| self.open_stream()).transpose()?;
        let asking = tollbook_admission::Asking {
            principal: &self.principal,
            request: &request,
            body,
            service: named.service.as_deref(),
            user: named.user.as_deref(),
            task: named.task,
            request_id: &self.request_id,
            way: tollbook_admission::Way::Surface,
        };
        let admitted = self.gateway.admission.admit(asking).await;
        let mut admitted = admitted.map_err(|refused| {
            if let Some(call) = &self.trace {
                trace::refused(call, &refused);
            }
            Problem::refused(refused, self.surface.dialect(), self.gateway.jitter())
        })?;
        if let Some(call) = self.trace {
            admitted.ticket.follow(call);
        }
        let Some(upstream) = self.plane.upstream(admitted.target.upstream.as_str()) else {
            admitted.ticket.end(&Outcome::never_sent());
            return Err(Problem::refused(tollbook_admission::Refused::Internal, self.surface.dialect(), 0));
        };
        let asks = upstream.config.asks_usage
            && request.stream
            && !request.usage_asked
            && self.surface.has_usage_option();
        let changes = Changes {
            model: Some(admitted.target.model.as_str()),
            include_usage: asks,
            output_cap: admitted.output_cap_to_send,
        };
        let edited = edit(body, &request, &changes);
        let body_plain = (asks && self.surface.has_usage_option())
            .then(|| edit(body, &request, &Changes { include_usage: false, ..changes }));
        Ok(Admitted {
            ticket: admitted.ticket,
            plane: self.plane,
            upstream,
            surface: self.surface,
            arrived: self.arrived,
            stream: request.stream,
            usage_asked: request.usage_asked,
            body: edited,
            body_plain,
            headers,
            query,
            open,
            _share: self.taken.share,
        })
    }

    /// One more stream of this key, if it may have one.
    fn open_stream(&self) -> Result<OpenStream, Problem> {
        let key =
            self.principal.key().map_or_else(String::new, |k| format!("{}/{}/{}", k.tenant, k.project, k.id));
        let most = self.plane.config.bounds.streams_per_key_max;
        self.gateway.open.enter(key, most).ok_or_else(|| {
            let text = format!("this API key has {most} streams open, which is all it may have at once");
            Problem::new(tollbook_wire::ErrorKind::RateLimit, StatusCode::TOO_MANY_REQUESTS, text)
                .code("too_many_streams")
                .retry(Retry::After(Duration::from_secs(1)))
        })
    }
}

/// A body that cannot be read.
pub(crate) fn undecodable(error: &tollbook_wire::DecodeError) -> Problem {
    let mut problem = Problem::invalid(error.to_string());
    problem.param = error.param().map(str::to_owned);
    problem
}

fn edit(body: &Bytes, request: &tollbook_wire::Request<'_>, changes: &Changes<'_>) -> Outgoing {
    Outgoing::new(body, tollbook_wire::edits(request, changes))
}

/// Sends the call, again if its target may be tried again, and answers the client.
async fn run(
    gateway: Arc<Gateway>,
    mut call: Admitted,
    request_id: Arc<str>,
) -> Result<Response<OutBody>, Problem> {
    let path = paths::upstream_path(call.surface);
    let pool = call.ticket.pool_label();
    let mut tries = 0;
    loop {
        tries += 1;
        let body = call.body.marking(call.ticket.dispatching());
        let dispatched = Instant::now();
        if tries == 1 {
            gateway.note_dispatch(call.surface, call.stream, dispatched.duration_since(call.arrived));
        }
        trace::attempt(&call.ticket, &call.upstream, call.surface, &mut call.headers);
        let sent = call.upstream.send(path, call.query.as_deref(), &call.headers, body).await;
        trace::tried(&call.ticket, sent.as_ref());
        gateway.note_tried(pool, sent.as_ref().ok().map(Response::status), dispatched.elapsed());
        let (pause, problem, outcome) = match sent {
            Ok(response) if response.status().is_success() => {
                return answer(&gateway, call, response, &request_id).await;
            }
            Ok(response) => {
                let error = ErrorAnswer::read(&call.plane, response).await;
                if call.rejects_usage_option(error.status, &error.body) {
                    tracing::warn!(upstream = %call.upstream.config.name, "the upstream rejects stream_options; asked without");
                    if let Err(refused) = call.ticket.tried_again().await {
                        call.ticket.end(&Outcome::upstream_error());
                        return Err(Problem::refused(refused, call.surface.dialect(), gateway.jitter()));
                    }
                    continue;
                }
                gateway.note_upstream_error(pool, &call.upstream.config.name, error.status);
                let outcome = error.outcome(call.surface);
                match refusal::judge(call.surface, &call.upstream, error) {
                    Verdict::Retry { pause, problem } => {
                        (Some(pause).filter(|_| !whole::is_paid(&outcome)), problem, outcome)
                    }
                    Verdict::Give { problem } => (None, problem, outcome),
                    Verdict::Pass { status, body } => {
                        let figures = *call.ticket.figures();
                        call.ticket.end(&outcome);
                        return Ok(passed(call.surface, status, body, &figures, &request_id));
                    }
                }
            }
            Err(error) => {
                gateway.note_unsent(pool, &call.upstream.config.name, &error);
                refusal::judge_send(&error)
            }
        };
        let pause = pause.filter(|pause| tries <= call.upstream.config.retries && *pause <= RETRY_PAUSE_MAX);
        let Some(pause) = pause else {
            call.ticket.end(&outcome);
            return Err(problem);
        };
        gateway.note_retry(pool);
        tokio::time::sleep(gateway.spread(pause)).await;
        if let Err(refused) = call.ticket.tried_again().await {
            call.ticket.end(&outcome);
            return Err(Problem::refused(refused, call.surface.dialect(), gateway.jitter()));
        }
    }
}

impl Admitted {
    /// Whether a 400 is about the option the gateway added; if so the call goes on without it, once (B048).
    fn rejects_usage_option(&mut self, status: StatusCode, body: &[u8]) -> bool {
        let about = status == StatusCode::BAD_REQUEST
            && (find(body, b"stream_options") || find(body, b"include_usage"));
        match self.body_plain.take() {
            Some(plain) if about => {
                self.body = plain;
                true
            }
            other => {
                self.body_plain = other;
                false
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|w| w == needle)
}

/// A provider's refusal that is the client's to see, as it is.
pub(crate) fn passed(
    surface: Surface,
    status: StatusCode,
    body: Bytes,
    figures: &tollbook_admission::Figures,
    request_id: &str,
) -> Response<OutBody> {
    let mut response = problem::json(status, body, request_id);
    figures::write(response.headers_mut(), surface.dialect(), figures, None);
    response
}

/// A 2xx head came: relay a stream, or read and answer.
async fn answer(
    gateway: &Arc<Gateway>,
    call: Admitted,
    response: Response<Incoming>,
    request_id: &Arc<str>,
) -> Result<Response<OutBody>, Problem> {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if call.stream && !kind.to_ascii_lowercase().contains("application/json") {
        let (head, body) = response.into_parts();
        let encoding = encoding::named(&head.headers);
        return stream(gateway, call, head.status, &head.headers, body, encoding.as_deref(), request_id)
            .await;
    }
    let surface = call.surface;
    let answer = Whole {
        ticket: call.ticket,
        plane: &call.plane,
        upstream: &call.upstream,
        dialect: surface.dialect(),
        request_id,
    };
    let read = |ticket: &Ticket, bytes: &[u8]| {
        trace::read(ticket, surface, bytes);
        whole::read(surface, bytes)
    };
    answer.answer(response, read).await
}

async fn stream(
    gateway: &Arc<Gateway>,
    call: Admitted,
    status: StatusCode,
    head: &HeaderMap,
    body: Incoming,
    encoding: Option<&str>,
    request_id: &Arc<str>,
) -> Result<Response<OutBody>, Problem> {
    let Ok(decoder) = Decoder::new(encoding) else {
        return unreadable(gateway, call, status, head, body, request_id);
    };
    let drops_usage = call.surface.has_usage_option() && !call.usage_asked;
    let relay = StreamRelay::new(call.surface, drops_usage);
    let figures = *call.ticket.figures();
    let cut = Cut::new(gateway.cut_signal());
    let of = StreamOf {
        surface: call.surface,
        usage_asked: call.usage_asked,
        silence: call.upstream.config.silence_timeout,
        patience: call.upstream.config.event_timeout,
        keepalive: call.plane.config.timeouts.keepalive,
    };
    let shown = call.upstream.for_client(head);
    let mut relayed = RelayBody::new(
        body,
        decoder,
        relay,
        (call.ticket, Arc::clone(&call.upstream)),
        of,
        cut,
        gateway.drains(&call.upstream),
    );
    // An error as the first event is an answer with an error status, not an empty success (B162).
    drop(tokio::time::timeout(PEEK_WAIT, relayed.peek(PEEK_MAX)).await);
    if let Some(problem) = relayed.failed_at_once() {
        return Err(problem);
    }
    let mut response =
        Response::new(OutBody::Relay(Relayed::new(relayed, gateway.stream_opened(), call.open)));
    *response.status_mut() = status;
    let out = response.headers_mut();
    *out = shown;
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    unbuffered(out);
    figures::write(out, call.surface.dialect(), &figures, None);
    figures::write_request_id(out, request_id);
    Ok(response)
}

/// Whatever stands between here and the client is asked to hold nothing back.
pub(crate) fn unbuffered(out: &mut HeaderMap) {
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    out.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
}

/// A stream in a coding that is not understood: the client, who may understand it, gets the bytes; what was held stands
/// (B130). Where a hard limit would have to end it in the middle it is not relayed, since that limit could not be kept.
fn unreadable(
    gateway: &Arc<Gateway>,
    call: Admitted,
    status: StatusCode,
    head: &HeaderMap,
    body: Incoming,
    request_id: &Arc<str>,
) -> Result<Response<OutBody>, Problem> {
    if call.ticket.is_bounded() {
        call.ticket.end(&Outcome::unreadable(Ending::Reset));
        return Err(Problem::upstream("the provider answered in an encoding that is not understood"));
    }
    tracing::warn!(upstream = %call.upstream.config.name, "a stream in an encoding that is not understood is relayed unread");
    let figures = *call.ticket.figures();
    let of = PassOf {
        dialect: call.surface.dialect(),
        events: false,
        metered: false,
        unread: true,
        silence: call.upstream.config.silence_timeout,
    };
    let cut = Cut::new(gateway.cut_signal());
    let open = (gateway.stream_opened(), call.open);
    let from = (call.ticket, Arc::clone(&call.upstream));
    let body = PassBody::new(body, Decoder::Identity, from, of, cut, open);
    let mut response = Response::new(OutBody::Pass(Box::new(body)));
    *response.status_mut() = status;
    let out = response.headers_mut();
    *out = call.upstream.for_client(head);
    for coding in head.get_all(header::CONTENT_ENCODING) {
        out.append(header::CONTENT_ENCODING, coding.clone());
    }
    unbuffered(out);
    figures::write(out, of.dialect, &figures, None);
    figures::write_request_id(out, request_id);
    Ok(response)
}
