//! One connection: TCP, TLS, login, and a first answer.
//!
//! Invariants: a connection that is returned has answered, so that a server that takes connections and serves none is
//! seen; the whole way is bounded by one timeout. Trusts whom the options name, with the provider that the program has.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, Value};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::{Kind, LinkError};
use super::node::IN_FLIGHT_MAX;
use super::options::{Address, Options, Tls, WrongOptions};

/// Moves the connection's bytes; ends when the connection does, and ends it when dropped.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that has answered.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Driver,
    /// The server's `run_id`, another after each of its starts; empty where this user may not ask for it.
    pub(super) run: Vec<u8>,
}

/// Longest `run_id` that is believed; servers tell 40 digits.
const RUN_MAX: usize = 64;

/// Opens connections to any node with the same login.
pub(super) struct Connector {
    login: RedisConnectionInfo,
    tls: Option<TlsConnector>,
    timeout: Duration,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Connector {
    pub(super) fn new(options: &Options) -> Result<Self, WrongOptions> {
        let login = login(options.username.as_deref(), options.password.as_ref());
        Self::with(options, login.set_db(i64::from(options.database)))
    }

    /// To the sentinels, which have a login of their own.
    pub(super) fn to_sentinels(options: &Options) -> Result<Self, WrongOptions> {
        Self::with(options, login(None, options.sentinel_password.as_ref()))
    }

    fn with(options: &Options, login: RedisConnectionInfo) -> Result<Self, WrongOptions> {
        let tls = options.tls.as_ref().map(client).transpose()?.map(|tls| TlsConnector::from(Arc::new(tls)));
        Ok(Self { login, tls, timeout: options.connect_timeout })
    }

    /// One question over a connection of its own, within the time of a try to connect.
    pub(super) async fn ask(&self, address: &Address, command: &Cmd) -> Result<Value, LinkError> {
        let asked = async {
            let Opened { connection, driver, .. } = self.open(address).await?;
            told(connection, driver, command).await
        };
        let late = |_| LinkError::no(Kind::Refused, format!("no answer from {address} in time"));
        timeout(self.timeout, asked).await.map_err(late)?
    }

    pub(super) async fn open(&self, address: &Address) -> Result<Opened, LinkError> {
        let late = |_| LinkError::no(Kind::Refused, format!("no connection to {address} in time"));
        timeout(self.timeout, self.way(address)).await.map_err(late)?
    }

    /// Whether a server says that it takes writes. One that does not tell its role is believed.
    pub(super) async fn is_primary(
        &self,
        connection: &MultiplexedConnection,
        driver: &mut Driver,
    ) -> Result<(), LinkError> {
        let late = |_| LinkError::no(Kind::Refused, "no role told in time");
        let command = redis::cmd("ROLE");
        let asked = told(connection.clone(), driver, &command);
        let role = match timeout(self.timeout, asked).await.map_err(late)? {
            Ok(Value::Array(parts)) => parts.into_iter().next(),
            Ok(_) => None,
            Err(error) if error.message.starts_with("NOPERM") => None,
            Err(error) => return Err(error),
        };
        match role {
            Some(Value::BulkString(role)) if role != b"master" => {
                Err(LinkError::no(Kind::ReadOnly, "the server that is named as primary is none yet"))
            }
            _ => Ok(()),
        }
    }

    async fn way(&self, address: &Address) -> Result<Opened, LinkError> {
        let refused = |error: std::io::Error| LinkError::no(Kind::Refused, format!("{address}: {error}"));
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let Some(tls) = &self.tls else { return self.login(stream).await };
        let name = ServerName::try_from(address.host.clone());
        let name = name.map_err(|error| LinkError::no(Kind::Refused, format!("{address}: {error}")))?;
        self.login(tls.connect(name, stream).await.map_err(refused)?).await
    }

    async fn login<S>(&self, stream: S) -> Result<Opened, LinkError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(IN_FLIGHT_MAX);
        let made = MultiplexedConnection::new_with_config(&self.login, stream, config).await;
        let (connection, driver) = made.map_err(|error| LinkError::before(&error))?;
        let mut driver: Driver = Box::pin(driver);
        let mut info = redis::cmd("INFO");
        info.arg("server");
        let run = match told(connection.clone(), &mut driver, &info).await {
            Ok(Value::BulkString(text)) => run_of(&text),
            Ok(Value::VerbatimString { text, .. }) => run_of(text.as_bytes()),
            // A user that may call scripts need not be allowed to ask.
            Err(error) if !error.message.starts_with("NOPERM") => return Err(error),
            _ => Vec::new(),
        };
        Ok(Opened { connection, driver, run })
    }
}

fn run_of(info: &[u8]) -> Vec<u8> {
    let mut lines = info.split(|byte| matches!(byte, b'\r' | b'\n'));
    let run = lines.find_map(|line| line.strip_prefix(b"run_id:"));
    run.filter(|run| run.len() <= RUN_MAX).unwrap_or_default().to_vec()
}

/// The answer to one command while nobody else drives the connection. No call is on it, so nothing is applied.
async fn told(
    mut connection: MultiplexedConnection,
    driver: impl Future<Output = ()>,
    command: &Cmd,
) -> Result<Value, LinkError> {
    let answer = tokio::select! {
        biased;
        answer = connection.send_packed_command(command) => answer,
        () = driver => return Err(LinkError::no(Kind::Refused, "closed at once")),
    };
    match answer {
        Ok(Value::ServerError(error)) => Err(LinkError::told(&error).of_command()),
        Ok(value) => Ok(value),
        Err(error) => Err(LinkError::before(&error)),
    }
}

fn login(username: Option<&str>, password: Option<&SecretString>) -> RedisConnectionInfo {
    // Without the library's name: a user need not be allowed to tell it.
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(username) = username {
        login = login.set_username(username);
    }
    if let Some(password) = password {
        login = login.set_password(password.expose_secret());
    }
    login
}

fn client(given: &Tls) -> Result<ClientConfig, WrongOptions> {
    let wrong = |error: rustls::Error| WrongOptions::Tls(error.to_string());
    let mut roots = RootCertStore::empty();
    if given.public_roots {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for file in &given.ca_files {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(wrong)?;
        }
    }
    if roots.is_empty() {
        return Err(WrongOptions::Tls(
            "no authority is trusted, so no certificate can be verified".to_owned(),
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &given.client else { return Ok(builder.with_no_client_auth()) };
    let private = PrivateKeyDer::from_pem_file(key).map_err(|_| unusable(key, "no usable key"))?;
    builder.with_client_auth_cert(certificates(certificate)?, private).map_err(wrong)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, WrongOptions> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| unusable(file, &error.to_string()))?;
    if found.is_empty() { Err(unusable(file, "no certificate")) } else { Ok(found) }
}

fn unusable(file: &Path, why: &str) -> WrongOptions {
    WrongOptions::Tls(format!("{} cannot be used: {why}", file.display()))
}
