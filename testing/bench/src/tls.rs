//! TLS for the processes of a run: one certificate for all of them, made at the start and trusted by all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The name on the certificate.
pub const NAME: &str = "localhost";

/// Certificate and key as files in a folder.
#[derive(Debug, Clone)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Files {
    /// Those of a folder, whether they are there or not.
    pub fn of(folder: &Path) -> Self {
        Self { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") }
    }

    /// Makes a certificate that signs itself, so that it is its own authority.
    pub fn make(folder: &Path) -> Result<Self> {
        let files = Self::of(folder);
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
        std::fs::write(&files.certificate, certificate.pem())?;
        std::fs::write(&files.key, key.serialize_pem())?;
        Ok(files)
    }

    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let chain = vec![CertificateDer::from_pem_file(&self.certificate).context("certificate")?];
        let key = PrivateKeyDer::from_pem_file(&self.key).context("key")?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// A client's side; what it speaks is told in the handshake.
    pub fn client(&self, http2: bool) -> Result<Arc<ClientConfig>> {
        let mut config = self.client_without_protocols()?;
        config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Ok(Arc::new(config))
    }

    pub fn client_without_protocols(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.certificate).context("certificate")?)?;
        Ok(ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth())
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
