//! Who may come in, and whom we trust.

use std::path::{Path, PathBuf};

use redis::Value;
use secrecy::SecretString;
use tollbook_engine::Applied;
use tollbook_engine_redis::{Kind, Link, Options, Place, Script, Tls};
use tollbook_redis_world::{Cluster, Plan, SERVICE, Sentinels, Server};

use super::{COUNT, LIMIT, at, comes_to_count, comes_to_fail, count, options, patient, what};

#[tokio::test]
async fn a_user_is_let_in_and_a_stranger_is_not() {
    let server = Plan::redis().user("gateway", "secret").start();
    let script = Script::new(COUNT);
    let url = |login: &str| Options::parse(&format!("redis://{login}{}", server.addr())).unwrap();
    let known = Link::open(&Options { deadline: LIMIT, ..url("gateway:secret@") }).unwrap();
    assert_eq!(count(&known, &script, "a").await, Ok(1));
    for login in ["gateway:wrong@", "nobody:secret@", ""] {
        let stranger = Link::open(&url(login)).unwrap();
        let error = comes_to_fail(&stranger, &script, Kind::Auth, Applied::No).await;
        assert!(!error.to_string().contains("wrong@") && !error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(server.ask(&["GET", "a"]).int(), Some(1));
}

/// As a setting of its own, and in the address, where it must be encoded.
#[tokio::test]
async fn b206_a_password_may_have_any_character() {
    let password = "a#b@c/d%e:f?g";
    let encoded = "a%23b%40c%2Fd%25e%3Af%3Fg";
    let plan = Plan::redis().user("gateway", password);
    let (server, cluster) = (plan.clone().start(), Cluster::of(&plan));
    let node = cluster.nodes()[0].addr();
    for (scheme, addr) in [("redis", server.addr()), ("redis+cluster", node)] {
        let inside = Options::parse(&format!("{scheme}://gateway:{encoded}@{addr}")).unwrap();
        let apart = Options {
            username: Some("gateway".to_owned()),
            password: Some(SecretString::from(password)),
            ..Options::parse(&format!("{scheme}://{addr}")).unwrap()
        };
        for (key, options) in [("a", inside), ("b", apart)] {
            let link = Link::open(&Options { deadline: LIMIT, ..options }).unwrap();
            assert_eq!(count(&link, &Script::new(COUNT), key).await, Ok(1), "{scheme} {key}");
        }
        // Not encoded it is told without itself.
        let wrong = Options::parse(&format!("{scheme}://gateway:{password}@{addr}"));
        let told = wrong.expect_err("it cannot be read").to_string();
        assert!(!told.contains("d%e:f"), "{told}");
    }
}

#[tokio::test]
async fn what_a_user_may_not_do_is_not_applied() {
    let plan = Plan::redis().user("admin", "secret");
    let server = plan.line("user small on >small ~tb:* +evalsha +script|load +incr").start();
    let mut options = options(server.port());
    (options.username, options.password) = (Some("small".to_owned()), Some(SecretString::from("small")));
    let link = Link::open(&Options { deadline: LIMIT, ..options }).unwrap();
    let script = Script::new(COUNT);
    // Pinging is not allowed to it, and not needed.
    assert_eq!(count(&link, &script, "tb:a").await, Ok(1));
    assert_eq!(what(&count(&link, &script, "other").await.unwrap_err()), (Kind::Auth, Applied::No));
}

#[tokio::test]
async fn a_numbered_database_is_used() {
    let server = Server::redis();
    let text = format!("redis://{}/3", server.addr());
    let link = Link::open(&Options { deadline: LIMIT, ..Options::parse(&text).unwrap() }).unwrap();
    assert_eq!(count(&link, &Script::new(COUNT), "a").await, Ok(1));
    assert_eq!(server.ask(&["DBSIZE"]).int(), Some(0));
    assert_eq!(server.info("db3").map(|db| db.starts_with("keys=1,")), Some(true));
}

/// A certificate that is its own authority, and its key.
fn self_signed(dir: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

fn trusting(certificate: PathBuf) -> Tls {
    Tls { public_roots: false, ca_files: vec![certificate], client: None }
}

#[tokio::test]
async fn tls_trusts_the_authority_that_is_named_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(dir.path());
    let server = Plan::redis().tls(&certificate, &key).start();
    let with = |tls| Options { tls: Some(tls), ..options(server.peer_port()) };
    let script = Script::new(COUNT);
    let link = Link::open(&Options { deadline: LIMIT, ..with(trusting(certificate)) }).unwrap();
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    let link = Link::open(&with(Tls::default())).unwrap();
    let error = comes_to_fail(&link, &script, Kind::Refused, Applied::No).await;
    assert!(error.message.contains("certificate"), "{error}");
    assert_eq!(server.ask(&["GET", "a"]).int(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_used_over_tls_while_a_slot_moves() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(dir.path());
    let cluster = Cluster::of(&Plan::redis().tls(&certificate, &key));
    let place = Place::Cluster(vec![at(cluster.nodes()[0].peer_port())]);
    let options = Options { tls: Some(trusting(certificate)), deadline: LIMIT, ..Options::new(place) };
    let (link, script) = (Link::open(&options).unwrap(), Script::new(COUNT));
    for key in 0..30 {
        assert_eq!(count(&link, &script, &format!("{{{key}}}:x")).await, Ok(1));
    }
    let slot = cluster.slot("{7}:x");
    let to = (cluster.owner(slot) + 1) % 3;
    tokio::task::block_in_place(|| cluster.migrate(slot, to));
    assert_eq!(count(&link, &script, "{7}:x").await, Ok(2));
    assert_eq!(cluster.nodes()[to].ask(&["GET", "{7}:x"]).int(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_are_asked_over_tls_and_a_failover_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(dir.path());
    let mut all = Sentinels::of(&Plan::redis().tls(&certificate, &key));
    let nodes = all.sentinels().iter().map(|sentinel| at(sentinel.peer_port())).collect();
    let place = Place::Sentinel { service: SERVICE.to_owned(), nodes };
    let with = |tls| Options { tls: Some(tls), ..Options::new(place.clone()) };
    let stranger = Link::open(&with(Tls::default())).unwrap();
    comes_to_fail(&stranger, &Script::new(COUNT), Kind::Refused, Applied::No).await;
    let (link, script) = (Link::open(&with(trusting(certificate))).unwrap(), Script::new(COUNT));
    comes_to_count(&link, &script, "a").await;
    let old = tokio::task::block_in_place(|| all.primary_dies());
    comes_to_count(&link, &script, "b").await;
    assert!(all.data()[1 - old].ask(&["GET", "b"]).int().is_some());
}

#[tokio::test]
async fn options_that_cannot_be_used_are_refused_at_once() {
    let wrong = |tls| Link::open(&Options { tls: Some(tls), ..options(1) }).unwrap_err().to_string();
    let nobody = wrong(Tls { public_roots: false, ..Tls::default() });
    assert!(nobody.contains("no authority is trusted"), "{nobody}");
    let absent = wrong(Tls { ca_files: vec!["/nowhere.pem".into()], ..Tls::default() });
    assert!(absent.contains("/nowhere.pem"), "{absent}");
}

#[tokio::test]
async fn answers_are_plain_values() {
    let server = Server::redis();
    let link = patient(server.port());
    let answer = link.call(&Script::new("return {1, 'a', false}"), &[], &[]).await;
    let want = Value::Array(vec![Value::Int(1), Value::BulkString(b"a".to_vec()), Value::Nil]);
    assert_eq!(answer, Ok(want));
}
