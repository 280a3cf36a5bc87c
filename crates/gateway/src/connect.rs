//! How a connection to an upstream comes about: DNS and TCP, a tunnel where a proxy stands between, TLS.
//!
//! One deadline spans all of it, so that nothing before the request is ever taken for a provider that is slow to answer:
//! what fails here was never sent. Certificates are always verified, against the public roots or those of the upstream's
//! own files; there is no switch that turns it off.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::{Authority, Scheme, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use secrecy::ExposeSecret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::config::{self, Proxy};
use crate::tls;

/// Longest head of a proxy's answer to CONNECT.
const PROXY_HEAD_MAX: usize = 8 << 10;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// All of it, within the upstream's connect timeout.
#[derive(Clone)]
pub(crate) struct Connector {
    inner: HttpsConnector<Tunnel>,
    within: Duration,
}

impl Connector {
    /// Fails when certificate files cannot be used.
    pub(crate) fn new(upstream: &config::Upstream) -> Result<Self, String> {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(false);
        http.set_keepalive(Some(Duration::from_secs(60)));
        // Shared between the addresses of a name, so that a dead one leaves time for the next.
        http.set_connect_timeout(Some(upstream.connect_timeout));
        let tunnel = Tunnel { http, proxy: upstream.proxy.clone().map(Arc::new) };
        let inner = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(if upstream.base_url.scheme() == Some(&Scheme::HTTP) {
                // Never used: an upstream is met by its own scheme, and redirects are not followed.
                no_tls()?
            } else {
                client_tls(&upstream.tls).map_err(|(_, text)| text)?
            })
            .https_or_http()
            .enable_http1()
            .wrap_connector(tunnel);
        Ok(Self { inner, within: upstream.connect_timeout })
    }
}

impl Service<Uri> for Connector {
    type Response = <HttpsConnector<Tunnel> as Service<Uri>>::Response;
    type Error = Failure;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let within = self.within;
        Box::pin(async move {
            match tokio::time::timeout(within, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(failure(io::ErrorKind::TimedOut, "no connection came about in time")),
            }
        })
    }
}

/// TCP to the upstream, or to a proxy that makes it a way through.
#[derive(Clone)]
pub(crate) struct Tunnel {
    http: HttpConnector,
    proxy: Option<Arc<Proxy>>,
}

impl Service<Uri> for Tunnel {
    type Response = TokioIo<TcpStream>;
    type Error = Failure;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Some(proxy) = self.proxy.clone() else {
            let connecting = self.http.call(uri);
            return Box::pin(async move { connecting.await.map_err(Into::into) });
        };
        let connecting = self.http.call(proxy.url.clone());
        Box::pin(async move {
            let stream = connecting.await?.into_inner();
            let target = target(&uri)
                .ok_or_else(|| failure(io::ErrorKind::InvalidInput, "the upstream has no address"))?;
            tunnelled(stream, &target, &proxy).await.map(TokioIo::new)
        })
    }
}

/// Host and port, as CONNECT wants them.
fn target(uri: &Uri) -> Option<Authority> {
    let port = match uri.port_u16() {
        Some(port) => port,
        None if uri.scheme() == Some(&Scheme::HTTP) => 80,
        None => 443,
    };
    format!("{}:{port}", uri.host()?).parse().ok()
}

async fn tunnelled(mut stream: TcpStream, target: &Authority, proxy: &Proxy) -> Result<TcpStream, Failure> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n");
    if let Some(authorization) = &proxy.authorization {
        request.push_str("proxy-authorization: ");
        request.push_str(authorization.expose_secret());
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // Byte by byte: what follows the head belongs to the tunnel.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= PROXY_HEAD_MAX {
            return Err(failure(io::ErrorKind::InvalidData, "the proxy's answer is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    let accepted = head.strip_prefix(b"HTTP/1.1 2").or_else(|| head.strip_prefix(b"HTTP/1.0 2"));
    if accepted.is_some_and(|rest| rest.iter().take(2).all(u8::is_ascii_digit)) {
        return Ok(stream);
    }
    Err(failure(io::ErrorKind::ConnectionRefused, "the proxy refused to connect"))
}

fn failure(kind: io::ErrorKind, what: &'static str) -> Failure {
    Box::new(io::Error::new(kind, what))
}

/// What trusts nobody.
fn no_tls() -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("TLS: {error}"))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// The TLS an upstream is met with.
/// What is wrong, behind the member it is wrong at: `.ca_files[0]`, `.key_file`, or nothing for all together.
type Wrong = (String, String);

fn at(member: impl Into<String>) -> impl FnOnce(String) -> Wrong {
    |text| (member.into(), text)
}

fn client_tls(given: &config::UpstreamTls) -> Result<rustls::ClientConfig, Wrong> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    if given.public_roots {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for (index, file) in given.ca_files.iter().enumerate() {
        let member = || at(format!(".ca_files[{index}]"));
        let pem = tls::read(file).map_err(member())?;
        for certificate in tls::certificates(&pem).map_err(member())? {
            roots.add(certificate).map_err(|error| member()(unusable(file, &error.to_string())))?;
        }
    }
    if roots.is_empty() {
        let text = "no certificate authority is trusted, so no certificate can be verified";
        return Err(at("")(text.to_owned()));
    }
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| at("")(format!("TLS: {error}")))?
        .with_root_certificates(roots);
    match &given.client {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let pem = tls::read(certificate).map_err(at(".certificate_file"))?;
            let chain = tls::certificates(&pem).map_err(at(".certificate_file"))?;
            let pem = tls::read(key).map_err(at(".key_file"))?;
            let private = PrivateKeyDer::from_pem_slice(&pem)
                .map_err(|_| at(".key_file")(unusable(key, "no usable key")))?;
            let built = builder.with_client_auth_cert(chain, private);
            built.map_err(|error| at(".key_file")(unusable(certificate, &error.to_string())))
        }
    }
}

impl config::UpstreamTls {
    /// Takes note of what the files hold now.
    ///
    /// # Errors
    /// When they cannot be used: behind which member (`.ca_files[0]`, or nothing for all together), and why.
    pub fn read(&mut self) -> Result<(), (String, String)> {
        let mut hasher = DefaultHasher::new();
        for (index, file) in self.ca_files.iter().enumerate() {
            tls::read(file).map_err(at(format!(".ca_files[{index}]")))?.hash(&mut hasher);
        }
        if let Some((certificate, key)) = &self.client {
            tls::read(certificate).map_err(at(".certificate_file"))?.hash(&mut hasher);
            tls::read(key).map_err(at(".key_file"))?.hash(&mut hasher);
        }
        self.digest = hasher.finish();
        // Nothing but the files can be wrong.
        if *self == (Self { digest: self.digest, ..Self::default() }) {
            Ok(())
        } else {
            client_tls(self).map(drop)
        }
    }
}

fn unusable(file: &Path, why: &str) -> String {
    format!("{} cannot be used: {why}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_is_asked_for_with_its_port() {
        for (uri, want) in [
            ("https://api.example.com/v1", "api.example.com:443"),
            ("http://api.example.com/v1", "api.example.com:80"),
            ("https://api.example.com:8443", "api.example.com:8443"),
            ("https://[2001:db8::1]/v1", "[2001:db8::1]:443"),
        ] {
            assert_eq!(target(&uri.parse().unwrap()).unwrap().as_str(), want);
        }
    }
}
