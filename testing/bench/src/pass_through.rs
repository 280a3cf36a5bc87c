//! The baseline: the least a proxy on this HTTP library can do. Bodies stream both ways; nothing is looked at.
//!
//! Invariants: the same library, allocator and runtime settings as the gateway; one pooled client. An upstream that
//! fails is answered 502.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;

type Answer = Response<Either<Incoming, Full<Bytes>>>;

pub async fn serve(listener: TcpListener, upstream: Authority) -> io::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<HttpConnector, Incoming> = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(15))
        .pool_timer(TokioTimer::new())
        .build(connector);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let client = client.clone();
        let upstream = upstream.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| forward(client.clone(), upstream.clone(), request));
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service)
                .await;
            // A client that leaves is no event here.
            drop(served);
        });
    }
}

async fn forward(
    client: Client<HttpConnector, Incoming>,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(upstream);
    let Ok(uri) = Uri::from_parts(parts) else { return Ok(bad_gateway()) };
    *request.uri_mut() = uri;
    request.headers_mut().remove(http::header::HOST);
    match client.request(request).await {
        Ok(response) => Ok(response.map(Either::Left)),
        Err(_) => Ok(bad_gateway()),
    }
}

fn bad_gateway() -> Answer {
    let mut answer = Response::new(Either::Right(Full::default()));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
