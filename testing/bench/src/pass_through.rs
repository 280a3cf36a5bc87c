//! The baseline: the least a proxy on this HTTP library can do. Bodies stream both ways; nothing is looked at.
//!
//! Invariants: the same library, allocator and runtime settings as the gateway; one pooled client. An upstream that
//! fails is answered 502.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::tls::Files;

type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// `tls` is spoken on both sides; HTTP/2 with clients that choose it.
pub async fn serve(listener: TcpListener, upstream: Authority, tls: Option<Files>) -> Result<()> {
    match tls {
        None => run(listener, connector(), Scheme::HTTP, upstream, None).await,
        Some(files) => {
            let mut http = connector();
            http.enforce_http(false);
            let https = hyper_rustls::HttpsConnectorBuilder::new()
                .with_tls_config(files.client_without_protocols()?)
                .https_only()
                .enable_http1()
                .wrap_connector(http);
            run(listener, https, Scheme::HTTPS, upstream, Some(files.acceptor()?)).await
        }
    }
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector
}

async fn run<C>(
    listener: TcpListener,
    connector: C,
    scheme: Scheme,
    upstream: Authority,
    tls: Option<TlsAcceptor>,
) -> Result<()>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let client: Client<C, Incoming> = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(15))
        .pool_timer(TokioTimer::new())
        .build(connector);
    let to = Arc::new((scheme, upstream));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let client = client.clone();
        let (to, tls) = (Arc::clone(&to), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => speak(stream, client, to, false).await,
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    speak(stream, client, to, http2).await;
                }
            }
        });
    }
}

async fn speak<S, C>(stream: S, client: Client<C, Incoming>, to: Arc<(Scheme, Authority)>, http2: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Connect + Clone + Send + Sync + 'static,
{
    let service = service_fn(move |request| forward(client.clone(), Arc::clone(&to), request));
    // A client that leaves is no event here.
    if http2 {
        let mut serving = http2::Builder::new(TokioExecutor::new());
        serving.timer(TokioTimer::new());
        drop(serving.serve_connection(TokioIo::new(stream), service).await);
    } else {
        let mut serving = http1::Builder::new();
        serving.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
        drop(serving.serve_connection(TokioIo::new(stream), service).await);
    }
}

async fn forward<C: Connect + Clone + Send + Sync + 'static>(
    client: Client<C, Incoming>,
    to: Arc<(Scheme, Authority)>,
    mut request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(to.0.clone());
    parts.authority = Some(to.1.clone());
    let Ok(uri) = Uri::from_parts(parts) else { return Ok(bad_gateway()) };
    *request.uri_mut() = uri;
    request.headers_mut().remove(http::header::HOST);
    *request.version_mut() = http::Version::HTTP_11;
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
