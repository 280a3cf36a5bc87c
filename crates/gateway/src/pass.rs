//! The path of a call that is passed through: known, limited, counted, and not understood.
//!
//! It counts as a request like any other. A body that names a model is read whole, within its bound, so that the key,
//! the price and the name upstream are that model's; any other streams. What the answer reports is charged; where a
//! model worked and nothing is reported, what was held stands. Retries only where the body can be sent again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use tollbook_admission::{Admitted, Asking, Ending, Outcome, Place, Principal, Refused, Ticket, Way};
use tollbook_wire::{Dialect, ErrorKind, Surface};

use crate::body::OutBody;
use crate::budget::Share;
use crate::call;
use crate::cut::Cut;
use crate::detach::Detach;
use crate::encoding::Decoder;
use crate::figures;
use crate::gateway::Gateway;
use crate::headers::{self, Shown};
use crate::intake::IntakeError;
use crate::naming::Named;
use crate::outgoing::{Outgoing, Sent};
use crate::pass_body::{PassBody, PassOf};
use crate::passes::{self, Kind, Pass};
use crate::paths;
use crate::peer;
use crate::plane::Plane;
use crate::problem::{Problem, Retry};
use crate::refusal::{self, Verdict};
use crate::upload::{Progress, Upload, UploadError};
use crate::upstream::{Passing, Upstream};
use crate::whole::{self, ErrorAnswer, Whole};

/// Longest pause before a retry.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// A call that was admitted, ready to be sent.
struct Ready {
    plane: Arc<Plane>,
    ticket: Ticket,
    upstream: Arc<Upstream>,
    surface: Surface,
    method: Method,
    /// Below the base URL.
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    content_type: Option<HeaderValue>,
    body: Ahead,
    /// A usage in the answer counts.
    metered: bool,
    _share: Option<Share>,
}

/// The body that goes upstream.
enum Ahead {
    /// Can be sent again.
    Whole(Outgoing),
    /// Goes once.
    Once(Box<Upload>),
    Gone,
}

/// The head of a client's request, as far as it is needed.
struct Head {
    method: Method,
    path: String,
    api_key: String,
    /// The client's address.
    from: Option<IpAddr>,
    query: Option<String>,
    headers: HeaderMap,
}

/// The surface whose dialect a passed call speaks.
fn surface_of(dialect: Dialect) -> Surface {
    match dialect {
        Dialect::OpenAi => Surface::Chat,
        Dialect::Anthropic => Surface::Messages,
    }
}

/// Serves one passed call.
pub(crate) async fn serve(
    gateway: Arc<Gateway>,
    plane: Arc<Plane>,
    pass: Pass,
    request: Request<Incoming>,
) -> Response<OutBody> {
    let request_id = gateway.request_id();
    let dialect = pass.dialect;
    let ready = match Box::pin(admit(&gateway, plane, &pass, request, &request_id)).await {
        Ok(ready) => ready,
        Err(problem) => {
            gateway.note_refused(surface_of(dialect), &problem);
            return problem.respond(dialect, &request_id);
        }
    };
    let bound = ready.plane.config.timeouts.detached;
    let paid = matches!(ready.body, Ahead::Whole(_)) && ready.metered;
    let work = run(Arc::clone(&gateway), ready, Arc::clone(&request_id));
    let result = if paid { Detach::new(work, bound).await } else { Box::pin(work).await };
    result.unwrap_or_else(|problem| {
        Gateway::note_failed(&request_id, &problem);
        problem.respond(dialect, &request_id)
    })
}

async fn admit(
    gateway: &Arc<Gateway>,
    plane: Arc<Plane>,
    pass: &Pass,
    request: Request<Incoming>,
    request_id: &Arc<str>,
) -> Result<Ready, Problem> {
    let (parts, body) = request.into_parts();
    let refused = |refused| Problem::refused(refused, pass.dialect, gateway.jitter());
    let api_key = match headers::shown_api_key(&parts.headers) {
        Shown::ApiKey(api_key) => api_key,
        Shown::Nothing => return Err(refused(Refused::NoApiKey)),
        Shown::Contradiction => return Err(refused(Refused::BadApiKey)),
    };
    let from = peer::told(&parts.extensions);
    let caller = gateway.admission.identify_in(&plane.snapshot, api_key, from).await.map_err(refused)?;
    let way = Passage { gateway, plane, pass, caller, request_id };
    let head = Head {
        api_key: api_key.to_owned(),
        from,
        path: parts.uri.path().to_owned(),
        query: headers::query_for_upstream(parts.uri.query()),
        method: parts.method,
        headers: parts.headers,
    };
    match pass.kind {
        Kind::Model | Kind::ModelFree | Kind::Free => way.by_model(head, body).await,
        Kind::Stored | Kind::Spends | Kind::Opened => way.by_place(head, body).await,
    }
}

/// A call on its way to be admitted.
struct Passage<'a> {
    gateway: &'a Arc<Gateway>,
    plane: Arc<Plane>,
    pass: &'a Pass,
    caller: Principal,
    request_id: &'a Arc<str>,
}

impl Passage<'_> {
    /// Reads the body for its model.
    async fn by_model(mut self, head: Head, body: Incoming) -> Result<Ready, Problem> {
        let dialect = self.pass.dialect;
        let content_type = content_type(&head.headers)?;
        let taken = self.plane.intake.read(&head.headers, body).await;
        let taken = taken.map_err(|e| call::intake(&e, &self.plane))?;
        let upstream = self.renewed(&head).await?;
        let text = content_type.as_ref().and_then(|v| v.to_str().ok()).unwrap_or_default();
        let read = tollbook_wire::decode_passed(dialect, text, &taken.bytes);
        let Some(read) = read.filter(|_| self.takes(text)) else {
            return Err(self.another_type());
        };
        let passed = read.map_err(|error| call::undecodable(&error))?;
        let named = !passed.request.model.is_empty();
        let known = self.plane.snapshot.catalog.model(&passed.request.model).is_some();
        let way = match self.pass.kind {
            Kind::Model => Way::Passed,
            // A model that costs nothing need not be configured.
            Kind::Free if !known => match &upstream {
                Some(upstream) => Way::Free(Some(Place { upstream, spends: false })),
                None if named => Way::Free(None),
                None => return Err(nowhere(dialect)),
            },
            _ => Way::Free(None),
        };
        if !named && !matches!(way, Way::Free(Some(_))) {
            let mut problem = Problem::invalid("parameter model: is required");
            problem.param = Some("model".to_owned());
            return Err(problem);
        }
        let admitted = self.ask(&passed.request, &taken.bytes, &head.headers, way).await?;
        let body = match admitted.target.model.as_str() {
            "" => Outgoing::new(&taken.bytes, Vec::new()),
            model => Outgoing::new(&taken.bytes, passed.rename(model)),
        };
        let metered = way == Way::Passed;
        self.ready(head, content_type, Ahead::Whole(body), admitted, metered, taken.share)
    }

    /// Counting takes JSON alone; where files are sent, forms too.
    fn takes(&self, content_type: &str) -> bool {
        let form = content_type.trim_start().get(..10).is_some_and(|s| s.eq_ignore_ascii_case("multipart/"));
        !(form && self.pass.kind == Kind::ModelFree)
    }

    fn another_type(&self) -> Problem {
        let text = match self.pass.kind {
            Kind::ModelFree => "the body must be JSON (content-type: application/json)",
            _ => "the body must be JSON or a form (multipart/form-data)",
        };
        Problem::new(ErrorKind::InvalidRequest, StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
    }

    /// The configuration may have changed while the body came: what is in force now decides.
    async fn renewed(&mut self, head: &Head) -> Result<Option<String>, Problem> {
        let (now, admission) = (self.gateway.plane(), &self.gateway.admission);
        if Arc::ptr_eq(&now, &self.plane) && admission.is_still(&now.snapshot, &self.caller) {
            return Ok(self.pass.upstream.clone());
        }
        let dialect = self.pass.dialect;
        let found = passes::find(&now.config, &head.method, &head.path, dialect);
        let passes::Passing::Pass(pass) = found else { return Err(nowhere(dialect)) };
        let caller = admission.identify_in(&now.snapshot, &head.api_key, head.from).await;
        self.caller = caller.map_err(|refused| Problem::refused(refused, dialect, 0))?;
        self.plane = now;
        Ok(pass.upstream)
    }

    /// Goes where the configuration says; the body is not looked at.
    async fn by_place(self, head: Head, body: Incoming) -> Result<Ready, Problem> {
        let dialect = self.pass.dialect;
        let Some(upstream) = &self.pass.upstream else { return Err(nowhere(dialect)) };
        let content_type = content_type(&head.headers)?;
        let coded = head.headers.get_all(header::CONTENT_ENCODING).iter().any(|v| v != "identity");
        if coded {
            return Err(call::intake(&IntakeError::Encoded, &self.plane));
        }
        let max = self.plane.config.bounds.upload_max;
        if body.size_hint().lower() > max {
            return Err(too_large(max));
        }
        let body = if body.is_end_stream() || head.method == Method::GET {
            Ahead::Whole(Outgoing::default())
        } else {
            Ahead::Once(Box::new(Upload::new(body, max, self.plane.body_pace())))
        };
        let way = Way::Free(Some(Place { upstream, spends: self.pass.kind == Kind::Spends }));
        let admitted = self.ask(&tollbook_wire::Request::bare(dialect), &[], &head.headers, way).await?;
        // What is looked up again was charged when it was made.
        let metered = self.pass.kind == Kind::Opened && head.method == Method::POST;
        self.ready(head, content_type, body, admitted, metered, None)
    }

    async fn ask(
        &self,
        request: &tollbook_wire::Request<'_>,
        body: &[u8],
        headers: &HeaderMap,
        way: Way<'_>,
    ) -> Result<Admitted, Problem> {
        let named = Named::of(headers)?;
        let (service, user, task) = (named.service.as_deref(), named.user.as_deref(), named.task);
        let (principal, request_id) = (&self.caller, self.request_id);
        let asking = Asking { principal, request, body, service, user, task, request_id, way };
        let admitted = self.gateway.admission.admit(asking).await;
        admitted.map_err(|refused| Problem::refused(refused, self.pass.dialect, self.gateway.jitter()))
    }

    fn ready(
        self,
        head: Head,
        content_type: Option<HeaderValue>,
        body: Ahead,
        admitted: Admitted,
        metered: bool,
        share: Option<Share>,
    ) -> Result<Ready, Problem> {
        let Some(upstream) = self.plane.upstream(admitted.target.upstream.as_str()) else {
            admitted.ticket.end(&Outcome::never_sent());
            return Err(Problem::refused(Refused::Internal, self.pass.dialect, 0));
        };
        Ok(Ready {
            plane: self.plane,
            ticket: admitted.ticket,
            upstream,
            surface: surface_of(self.pass.dialect),
            method: head.method,
            path: paths::below_version(&head.path).to_owned(),
            query: head.query,
            headers: head.headers,
            content_type,
            body,
            metered,
            _share: share,
        })
    }
}

/// The one content type of a request; two are none.
fn content_type(headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
    let mut all = headers.get_all(header::CONTENT_TYPE).iter();
    match (all.next(), all.next()) {
        (_, Some(_)) => Err(Problem::invalid("the header content-type occurs twice")),
        (first, None) => Ok(first.cloned()),
    }
}

fn nowhere(dialect: Dialect) -> Problem {
    let name = match dialect {
        Dialect::OpenAi => "openai",
        Dialect::Anthropic => "anthropic",
    };
    let text = format!("nothing serves this path here: the gateway has no upstream for it (`passes.{name}`)");
    Problem::new(ErrorKind::NotFound, StatusCode::NOT_FOUND, text).code("not_found")
}

fn too_large(max: u64) -> Problem {
    let text = format!("the request body is larger than {max} bytes");
    Problem::new(ErrorKind::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, text)
        .code("request_too_large")
        .retry(Retry::Never(None))
}

/// Sends the call, again if it may be, and answers the client.
async fn run(
    gateway: Arc<Gateway>,
    mut ready: Ready,
    request_id: Arc<str>,
) -> Result<Response<OutBody>, Problem> {
    let pool = ready.ticket.pool_label();
    let mut tries = 0;
    loop {
        tries += 1;
        let (body, progress, again) = take_body(&mut ready);
        ready.ticket.sending();
        let dispatched = std::time::Instant::now();
        let passing = Passing {
            method: ready.method.clone(),
            path: &ready.path,
            query: ready.query.as_deref(),
            client_headers: &ready.headers,
            content_type: ready.content_type.clone(),
            body,
            progress: progress.clone(),
        };
        let sent = ready.upstream.pass(passing).await;
        gateway.note_tried(pool, sent.as_ref().ok().map(Response::status), dispatched.elapsed());
        if let Some(failed) = progress.as_ref().and_then(|progress| progress.failed()) {
            let max = ready.plane.config.bounds.upload_max;
            ready.ticket.end(&Outcome::buffered_cut(Ending::ClientGone));
            return Err(upload_failed(failed, max));
        }
        let (pause, problem, outcome) = match sent {
            Ok(response) if response.status().is_success() => {
                return answer(&gateway, ready, response, &request_id).await;
            }
            Ok(response) => {
                let error = ErrorAnswer::read(&ready.plane, response).await;
                gateway.note_upstream_error(pool, &ready.upstream.config.name, error.status);
                let outcome = ready.ended_by(&error);
                match refusal::judge(ready.surface, &ready.upstream, error) {
                    Verdict::Retry { pause, problem } => {
                        (Some(pause).filter(|_| !whole::is_paid(&outcome)), problem, outcome)
                    }
                    Verdict::Give { problem } => (None, problem, outcome),
                    Verdict::Pass { status, body } => {
                        let figures = *ready.ticket.figures();
                        ready.ticket.end(&outcome);
                        return Ok(call::passed(ready.surface, status, body, &figures, &request_id));
                    }
                }
            }
            Err(error) => {
                gateway.note_unsent(pool, &ready.upstream.config.name, &error);
                refusal::judge_send(&error)
            }
        };
        let may = again && tries <= ready.upstream.config.retries;
        let Some(pause) = pause.filter(|pause| may && *pause <= RETRY_PAUSE_MAX) else {
            ready.ticket.end(&outcome);
            return Err(problem);
        };
        gateway.note_retry(pool);
        tokio::time::sleep(gateway.spread(pause)).await;
        if let Err(refused) = ready.ticket.tried_again().await {
            ready.ticket.end(&outcome);
            return Err(Problem::refused(refused, ready.surface.dialect(), gateway.jitter()));
        }
    }
}

impl Ready {
    /// How the call ends with an error answer: what it reports counts where an answer's would.
    fn ended_by(&self, error: &ErrorAnswer) -> Outcome {
        if self.metered { error.passed_outcome(self.surface.dialect()) } else { Outcome::upstream_error() }
    }
}

/// The body of the next try, and whether there can be another.
fn take_body(ready: &mut Ready) -> (Sent, Option<Arc<Progress>>, bool) {
    match std::mem::replace(&mut ready.body, Ahead::Gone) {
        Ahead::Whole(body) => {
            ready.body = Ahead::Whole(body.clone());
            // What changes something is done once.
            let again = ready.metered || ready.method == Method::GET;
            (Sent::Whole(body), None, again)
        }
        Ahead::Once(upload) => {
            let progress = upload.progress();
            (Sent::Upload(upload), Some(progress), false)
        }
        Ahead::Gone => (Sent::Whole(Outgoing::default()), None, false),
    }
}

fn upload_failed(why: UploadError, max: u64) -> Problem {
    match why {
        UploadError::TooLarge => too_large(max),
        UploadError::Timeout => {
            Problem::invalid("the request body did not arrive in time").code("request_timeout")
        }
        UploadError::Cut => Problem::invalid("the request body was cut short"),
    }
}

/// A 2xx head came.
async fn answer(
    gateway: &Arc<Gateway>,
    ready: Ready,
    response: Response<Incoming>,
    request_id: &Arc<str>,
) -> Result<Response<OutBody>, Problem> {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    let dialect = ready.surface.dialect();
    if ready.metered && kind.contains("json") {
        let answer = Whole {
            ticket: ready.ticket,
            plane: &ready.plane,
            upstream: &ready.upstream,
            dialect,
            request_id,
        };
        return answer.answer(response, |_, bytes| whole::look(dialect, bytes)).await;
    }
    let (head, body) = response.into_parts();
    let encoding = crate::encoding::named(&head.headers);
    let streams = kind.starts_with("text/event-stream");
    let (decoder, unread) = match Decoder::new(encoding.as_deref()) {
        Ok(decoder) => (decoder, false),
        // As on the metered surfaces: a stream goes on unread, anything else is a bad answer (B130).
        Err(_) if streams => (Decoder::Identity, true),
        Err(_) => {
            ready.ticket.end(&Outcome::unreadable(Ending::Reset));
            return Err(Problem::upstream("the provider answered in an encoding that is not understood"));
        }
    };
    let figures = *ready.ticket.figures();
    let of = PassOf {
        dialect: ready.surface.dialect(),
        events: streams && !unread,
        metered: ready.metered,
        unread,
        silence: ready.upstream.config.silence_timeout,
    };
    let cut = Cut::new(gateway.cut_signal());
    let from = (ready.ticket, Arc::clone(&ready.upstream));
    let body = PassBody::new(body, decoder, from, of, cut, (gateway.stream_opened(), None));
    let mut response = Response::new(OutBody::Pass(Box::new(body)));
    *response.status_mut() = head.status;
    let out = response.headers_mut();
    *out = ready.upstream.for_client(&head.headers);
    if unread {
        for coding in head.headers.get_all(header::CONTENT_ENCODING) {
            out.append(header::CONTENT_ENCODING, coding.clone());
        }
    }
    if streams {
        call::unbuffered(out);
    }
    figures::write(out, of.dialect, &figures, None);
    figures::write_request_id(out, request_id);
    Ok(response)
}

/// A path that speaks by messages both ways; none is served, and nothing is held for it.
pub(crate) fn realtime_refused(path: &str, headers: &HeaderMap) -> Option<Problem> {
    let socket = headers.get_all(header::UPGRADE).iter().any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.split(',').any(|protocol| protocol.trim().to_ascii_lowercase().starts_with("websocket"))
    });
    let realtime = path == "/v1/realtime" || path.starts_with("/v1/realtime/");
    (socket || realtime).then(|| {
        let text = "WebSocket and realtime connections are not served here; use the plain or streamed form of a call";
        Problem::invalid(text).code("realtime_not_served").retry(Retry::Never(None))
    })
}
