//! The smallest client of an operators' listener.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, IF_MATCH};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::Failure;
use super::args::Operators;
use crate::admin::{NOTHING, ROOT};

const DEADLINE: Duration = Duration::from_secs(30);
const ANSWER_MAX: usize = 64 << 20;

/// The key that the command line, the environment or a file gives.
pub(super) fn key(given: &Operators) -> Result<String, Failure> {
    if let Some(path) = &given.admin_key_file {
        let text =
            std::fs::read_to_string(path).map_err(|error| usage(&format!("{}: {error}", path.display())))?;
        return Ok(text.trim_end_matches(['\r', '\n']).to_owned());
    }
    let help = "the operator's key is needed: set TOLLBOOK_ADMIN_KEY or give --admin-key-file";
    given.admin_key.clone().ok_or_else(|| usage(help))
}

/// Asks an operator's listener: a POST of a question, else a GET.
pub(super) async fn ask(
    admin: &str,
    path: &str,
    key: &str,
    question: Option<String>,
) -> anyhow::Result<Value> {
    let method = if question.is_some() { Method::POST } else { Method::GET };
    send(admin, method, path, key, (question, ANY)).await
}

/// Of whatever version is there.
pub(super) const ANY: &str = "*";

/// Any method, with a body and the version that it is for.
pub(super) async fn send(
    admin: &str,
    method: Method,
    path: &str,
    key: &str,
    body: (Option<String>, &str),
) -> anyhow::Result<Value> {
    let asking = exchange(admin, method, path, key, body);
    tokio::time::timeout(DEADLINE, asking).await.context("the gateway did not answer in time")?
}

async fn exchange(
    admin: &str,
    method: Method,
    path: &str,
    key: &str,
    (body, version): (Option<String>, &str),
) -> anyhow::Result<Value> {
    let uri: Uri = format!("{}{path}", admin.trim_end_matches('/')).parse().context("--admin is no URL")?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        bail!("--admin must be an http URL, as http://127.0.0.1:8081");
    };
    let (host, port) = (authority.host(), authority.port_u16().unwrap_or(80));
    let socket = TcpStream::connect((host.trim_matches(['[', ']']), port))
        .await
        .with_context(|| format!("cannot reach the operator's listener at {authority}; it is closed until admin.api_key is set, or give --admin"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let running = tokio::spawn(connection);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, authority.as_str())
        .header(AUTHORIZATION, format!("Bearer {key}"));
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json").header(IF_MATCH, version);
    }
    let response =
        sender.send_request(request.body(Full::new(Bytes::from(body.unwrap_or_default())))?).await?;
    let status = response.status();
    let body =
        Limited::new(response.into_body(), ANSWER_MAX).collect().await.map_err(|error| anyhow!(error))?;
    running.abort();
    let answer: Value = serde_json::from_slice(&body.to_bytes()).context("the answer is not JSON")?;
    if status.is_success() {
        return Ok(answer);
    }
    if status == StatusCode::UNAUTHORIZED {
        bail!("the operator's key is wrong");
    }
    if answer.get("detail").is_some_and(|detail| detail == NOTHING) {
        let place = uri.path().trim_start_matches(ROOT).trim_start_matches('/');
        bail!("there is no {place}, or this operator may not see it (status 404)");
    }
    bail!(problem(&answer, status));
}

/// What went wrong, every mistake on a line of its own.
fn problem(answer: &Value, status: StatusCode) -> String {
    let faults = answer.get("faults").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if faults.is_empty() {
        let detail = answer.get("detail").and_then(Value::as_str).unwrap_or("it said no more");
        return format!("{detail} (status {})", status.as_u16());
    }
    let lines = faults.iter().map(|fault| {
        let parts = ["object", "field", "what"].map(|name| fault.get(name).and_then(Value::as_str));
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    });
    format!("nothing was changed:\n  {}", lines.collect::<Vec<_>>().join("\n  "))
}

pub(super) fn usage(message: &str) -> Failure {
    Failure::Usage(format!("tollbook: {message}"))
}
