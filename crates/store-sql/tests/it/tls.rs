//! TLS to a server whose certificate is of an authority of one's own.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tempfile::TempDir;
use tollbook_sql_world::{PASSWORD, Server, Tls};
use tollbook_store::{Fleet as _, StoreError};
use tollbook_store_sql::{Place, SqlStore};

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, dir }
    }

    /// A certificate and its key.
    fn issue(&self, name: &str) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        [params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem()]
    }

    fn serve(&self, name: &str) -> Server {
        let [certificate, key] = self.issue(name);
        Server::start_secure(&Tls { authority: &self.issuer.pem(), certificate: &certificate, key: &key })
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn checks(&self) -> String {
        format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={}", self.file().display())
    }
}

async fn open(server: &Server, parameters: &str) -> Result<SqlStore, StoreError> {
    SqlStore::open(format!("{}?{parameters}", server.url()).parse::<Place>().unwrap()).await
}

async fn refused(server: &Server, parameters: &str, why: &str) {
    let error = open(server, parameters).await.unwrap_err();
    assert!(error.to_string().contains(why), "{parameters}: {error}");
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error}");
}

#[tokio::test]
async fn a_server_is_who_its_certificate_says_or_it_is_not_talked_to() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server = ours.serve("127.0.0.1");
    // The server lets nobody in without TLS, so each of these is encrypted.
    for parameters in [ours.checks(), "ssl-mode=REQUIRED".to_owned(), String::new()] {
        assert_eq!(open(&server, &parameters).await.unwrap().beat(1).await, Ok(1), "{parameters}");
    }
    refused(&server, &theirs.checks(), "UnknownIssuer").await;
    refused(&server, "ssl-mode=VERIFY_IDENTITY", "UnknownIssuer").await;
    refused(&server, "ssl-mode=DISABLED", "Access denied").await;
    let elsewhere = ours.serve("sql.example");
    refused(&elsewhere, &ours.checks(), "not valid for name").await;
}

/// Whoever stands between could take the server's offer of TLS away.
#[tokio::test]
async fn nothing_is_said_in_the_clear_where_tls_is_demanded() {
    let (ours, server) = (Authority::new("ours"), Server::start());
    for parameters in ["ssl-mode=REQUIRED", "ssl-mode=VERIFY_IDENTITY", &ours.checks()] {
        refused(&server, parameters, "server does not support TLS").await;
    }
    assert!(open(&server, "ssl-mode=PREFERRED").await.is_ok());
}

#[tokio::test]
async fn a_client_shows_a_certificate_of_its_own() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server = ours.serve("127.0.0.1");
    let options: MySqlConnectOptions = server.url().parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    connection.execute("ALTER USER tollbook REQUIRE X509").await.unwrap();
    connection.close().await.unwrap();
    refused(&server, &ours.checks(), "Access denied").await;
    let shows = |authority: &Authority| {
        let paths = ["cert.pem", "key.pem"].map(|name| authority.dir.path().join(name));
        for (path, text) in paths.iter().zip(authority.issue("gateway")) {
            std::fs::write(path, text).unwrap();
        }
        let [certificate, key] = paths;
        format!("{}&ssl-cert={}&ssl-key={}", ours.checks(), certificate.display(), key.display())
    };
    assert_eq!(open(&server, &shows(&ours)).await.unwrap().beat(1).await, Ok(1));
    assert!(open(&server, &shows(&theirs)).await.is_err());
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_before_anything_is_tried() {
    let (ours, server) = (Authority::new("ours"), Server::start());
    let empty = ours.dir.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    for (path, why) in [(ours.dir.path().join("absent.pem"), "No such file"), (empty, "no PEM")] {
        let error = open(&server, &format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={}", path.display())).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("ssl-ca: ") && error.contains(why), "{error}");
    }
}
