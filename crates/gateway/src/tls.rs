//! TLS towards clients: one certificate from files, read again when the files change.
//!
//! rustls with aws-lc-rs; TLS 1.2 and 1.3; HTTP/2 is offered where it is served. Open connections keep the certificate
//! they began with. Files that cannot be used (damaged, half written, a key of another certificate) change nothing: the
//! old certificate stays, and a metric and one log line per content say so.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tollbook_telemetry::{Metrics, labels};

use crate::config;

/// Largest certificate or key file read.
const FILE_MAX: u64 = 1 << 20;
/// What clients are offered, best first.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The TLS side of a listener.
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
    files: config::Tls,
    http2: bool,
    provider: Arc<CryptoProvider>,
    /// What the files held when they were last looked at; one trouble is told once.
    seen: Mutex<Result<Pair, TlsError>>,
}

/// The certificate shown to the next client.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The files' content.
#[derive(PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// Reads the files; they must be good at the start.
    pub(crate) fn new(files: config::Tls, http2: bool) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let pair = Pair::read(&files).map_err(|error| error.text)?;
        let first = pair.certified(&provider).map_err(|error| error.text)?;
        let current = Arc::new(Current(RwLock::new(Arc::new(first))));
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&current) as Arc<dyn ResolvesServerCert>;
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        let offered: &[&[u8]] = if http2 { &[HTTP2, HTTP1] } else { &[HTTP1] };
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let (acceptor, seen) = (TlsAcceptor::from(Arc::new(config)), Mutex::new(Ok(pair)));
        Ok(Self { acceptor, current, files, http2, provider, seen })
    }

    /// One handshake; the caller bounds its time.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        self.acceptor.accept(stream).await
    }

    /// Whether this is the TLS that a configuration asks for.
    pub(crate) fn serves(&self, files: &config::Tls, http2: bool) -> bool {
        self.files == *files && self.http2 == http2
    }

    pub(crate) fn check_every(&self) -> Duration {
        self.files.check_every
    }

    /// Takes up new content of the files, if there is any and it is good.
    pub(crate) async fn look(self: Arc<Self>, metrics: &Metrics) {
        let this = Arc::clone(&self);
        let Ok(looked) = tokio::task::spawn_blocking(move || this.take_up()).await else { return };
        match looked {
            Looked::Same => {}
            Looked::New => {
                metrics.tls_reloads.inc((labels::Loaded::Good,));
                tracing::info!("a new certificate is in use");
            }
            Looked::Bad(error) => {
                metrics.tls_reloads.inc((labels::Loaded::Bad,));
                tracing::error!(%error, "the new certificate cannot be used; the old one stays");
            }
        }
    }

    fn take_up(&self) -> Looked {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = Pair::read(&self.files);
        if *seen == pair {
            return Looked::Same;
        }
        let certified = pair.as_ref().map_err(Clone::clone).and_then(|pair| pair.certified(&self.provider));
        *seen = pair;
        match certified {
            Ok(certified) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certified);
                Looked::New
            }
            Err(error) => Looked::Bad(error),
        }
    }
}

/// What a look at the files found.
enum Looked {
    Same,
    New,
    Bad(TlsError),
}

/// How often it is looked whether there is a certificate to look at.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Whether a handshake chose HTTP/2.
pub(crate) fn chose_http2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP2)
}

impl config::Tls {
    /// Whether the files can be used as they are now.
    pub fn check(&self) -> Result<(), TlsError> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        Pair::read(self)?.certified(&provider).map(drop)
    }
}

/// Which of a pair's files cannot be used, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct TlsError {
    pub file: TlsFile,
    pub text: String,
}

/// One of the files of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFile {
    Certificate,
    /// The key, also where it is good but of another certificate.
    Key,
}

impl TlsFile {
    pub(crate) fn error(self, text: String) -> TlsError {
        TlsError { file: self, text }
    }
}

impl Pair {
    fn read(files: &config::Tls) -> Result<Self, TlsError> {
        let certificate = read(&files.certificate).map_err(|text| TlsFile::Certificate.error(text))?;
        let key = read(&files.key).map_err(|text| TlsFile::Key.error(text))?;
        Ok(Self { certificate, key })
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(&self.certificate).map_err(|text| TlsFile::Certificate.error(text))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| TlsFile::Key.error(format!("the key file holds no usable key: {error}")))?;
        CertifiedKey::from_der(chain, key, provider)
            .map_err(|error| TlsFile::Key.error(format!("certificate and key do not serve: {error}")))
    }
}

/// All certificates of a PEM text; at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| format!("the certificate file cannot be read: {error}"))?;
    if chain.is_empty() { Err("the certificate file holds no certificate".to_owned()) } else { Ok(chain) }
}

/// A file of bounded size. Its content never stands in an error.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let fail = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let length = std::fs::metadata(path).map_err(fail)?.len();
    if length > FILE_MAX {
        return Err(format!("{} is larger than {FILE_MAX} bytes", path.display()));
    }
    std::fs::read(path).map_err(fail)
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.files.certificate).finish_non_exhaustive()
    }
}
