//! A certificate authority of the test's own.

use std::path::PathBuf;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::RootCertStore;
use tollbook_gateway::Tls;

/// Issues certificates into a folder of its own.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, dir: tempfile::tempdir().unwrap() }
    }

    /// Writes a certificate for `name` and its key to `certificate.pem` and `key.pem`.
    pub(crate) fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let paths = (self.dir.path().join("certificate.pem"), self.dir.path().join("key.pem"));
        std::fs::write(&paths.0, certificate.pem()).unwrap();
        std::fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    /// A listener's TLS with a certificate for `name`; looked at often.
    pub(crate) fn serve(&self, name: &str) -> Tls {
        let (certificate, key) = self.issue(name);
        Tls { certificate, key, check_every: Duration::from_millis(10) }
    }

    /// The authority's own certificate, as a file.
    pub(crate) fn file(&self) -> PathBuf {
        let path = self.dir.path().join("authority.pem");
        std::fs::write(&path, self.issuer.pem()).unwrap();
        path
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }
}
