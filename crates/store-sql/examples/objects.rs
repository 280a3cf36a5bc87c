//! How long questions about a part of the objects take, and writes of them, with 10,000 tenants and 100,000 keys, in a file and
//! in a MariaDB of its own: `cargo run -p tollbook-store-sql --example objects`. On a server that is there: an empty
//! database's URL behind `--`.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::time::{Duration, Instant};

use tollbook_sql_world::Server;
use tollbook_store::{
    EDITS_MAX, Edit, MARKS_MAX, OBJECTS_MAX, ObjectKind, ObjectName, ObjectStore, ObjectsQuery,
};
use tollbook_store_sql::{Place, SqlStore};

const TENANTS: usize = 10_000;
const KEYS_EACH: usize = 10;
/// Questions of a kind; their median is told.
const ASKED: usize = 200;

type Failed = Box<dyn std::error::Error>;

fn tenant(number: usize) -> String {
    format!("tenant-{number:05}")
}

fn name(kind: ObjectKind, tenant: &str, project: &str, id: &str) -> ObjectName {
    ObjectName { kind, tenant: tenant.to_owned(), project: project.to_owned(), id: id.to_owned() }
}

fn key(tenant: &str, number: usize, hash: &str) -> Edit {
    let id = format!("key-{number}-of-{tenant}");
    let limits = r#"[{"name":"rpm","measure":"requests","window":"60s","ceiling":600}]"#;
    let document = format!(r#"{{"hash":"{hash}","limits":{limits},"models":["fast"],"prefix":"tb_1a2b3"}}"#);
    let marks = vec![format!("key {id}"), hash.to_owned()];
    Edit { name: name(ObjectKind::Key, tenant, "web", &id), document: Some(document), marks }
}

fn hash(tenant: usize, key: usize, round: usize) -> String {
    // As far from each other as real ones are.
    let mixed = [tenant, key, round].iter().fold(0x9e37_79b9_7f4a_7c15_u64, |mixed, &part| {
        (mixed ^ u64::try_from(part).unwrap_or(0)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31)
    });
    format!("blake3:{mixed:016x}{:048x}", tenant * KEYS_EACH + key)
}

fn edits() -> Vec<Edit> {
    let mut edits = Vec::new();
    for number in 0..TENANTS {
        let tenant = tenant(number);
        let put = |name| Edit { name, document: Some(r#"{"plan":"gold"}"#.to_owned()), marks: Vec::new() };
        edits.push(put(name(ObjectKind::Tenant, &tenant, "", "")));
        edits.push(put(name(ObjectKind::Project, &tenant, "web", "")));
        edits.extend((0..KEYS_EACH).map(|one| key(&tenant, one, &hash(number, one, 0))));
    }
    edits
}

/// Different places all over, always the same ones.
fn places() -> impl Iterator<Item = usize> {
    (0..ASKED).map(|asked| asked * 7_919 % TENANTS)
}

fn told(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    let micros = |time: Option<&Duration>| time.map_or(0, Duration::as_micros);
    println!("  {what}: median {} µs, 95 of 100 within {} µs", micros(at(50)), micros(at(95)));
}

async fn timed<T, F: Future<Output = Result<T, Failed>>>(
    what: &str,
    mut question: impl FnMut(usize) -> F,
) -> Result<(), Failed> {
    let mut times = Vec::new();
    for place in places() {
        let start = Instant::now();
        question(place).await?;
        times.push(start.elapsed());
    }
    told(what, times);
    Ok(())
}

async fn questions(store: &SqlStore) -> Result<(), Failed> {
    timed("tenant_objects", async |place| Ok(store.tenant_objects(&tenant(place)).await?.objects.len()))
        .await?;
    timed("marked", async |place| {
        let found = store.marked(&hash(place, place % KEYS_EACH, 0)).await?;
        found.ok_or_else(|| Failed::from("a key is not found"))
    })
    .await?;
    timed("marked, of nobody", async |place| Ok(store.marked(&hash(place, 0, 77)).await?)).await?;
    timed("object", async |place| {
        Ok(store.object(&name(ObjectKind::Project, &tenant(place), "web", "")).await?)
    })
    .await?;
    timed("objects_page of 100 tenants", async |place| {
        let after = Some(name(ObjectKind::Tenant, &tenant(place), "", ""));
        Ok(store.objects_page(&ObjectsQuery { after, ..ObjectsQuery::of(ObjectKind::Tenant, 100) }).await?)
    })
    .await?;
    timed("objects_page of 1,000 keys", async |place| {
        let after = Some(name(ObjectKind::Key, &tenant(place), "", ""));
        Ok(store
            .objects_page(&ObjectsQuery { after, ..ObjectsQuery::of(ObjectKind::Key, OBJECTS_MAX) })
            .await?)
    })
    .await?;
    let kinds = [ObjectKind::Plan, ObjectKind::Operator, ObjectKind::Upstream, ObjectKind::Model];
    timed("objects_of what is no tenant's", async |_| Ok(store.objects_of(&kinds).await?)).await
}

async fn writes(store: &SqlStore, mut revision: u64) -> Result<(), Failed> {
    let mut times = Vec::new();
    for (round, place) in places().enumerate() {
        let rotated = [key(&tenant(place), 3, &hash(place, 3, round + 1))];
        let start = Instant::now();
        revision = store.write(revision, "example", &rotated).await?.ok_or("somebody else writes")?;
        times.push(start.elapsed());
    }
    told("write of one key that is rotated", times);
    let start = Instant::now();
    let many: Vec<Edit> = (0..EDITS_MAX)
        .map(|number| {
            let (place, one) = (number / KEYS_EACH, number % KEYS_EACH);
            let edit = key(&tenant(place), one, &hash(place, one, 1_000));
            let more = (0..MARKS_MAX).map(|mark| format!("mark {mark} of {number}")).collect();
            Edit { marks: more, ..edit }
        })
        .collect();
    store.write(revision, "example", &many).await?.ok_or("somebody else writes")?;
    println!("  write of {EDITS_MAX} keys, all {MARKS_MAX} marks of each changed: {:?}", start.elapsed());
    Ok(())
}

async fn measured(place: Place) -> Result<(), Failed> {
    let store = SqlStore::open(place).await?;
    let all = edits();
    let (mut revision, mut longest, start) = (0, Duration::ZERO, Instant::now());
    for part in all.chunks(EDITS_MAX) {
        let start = Instant::now();
        revision = store.write(revision, "example", part).await?.ok_or("the store is not empty")?;
        longest = longest.max(start.elapsed());
    }
    println!(
        "  {} objects written in {:?}, {EDITS_MAX} at once within {longest:?}",
        all.len(),
        start.elapsed()
    );
    questions(&store).await?;
    writes(&store, revision).await?;
    let start = Instant::now();
    let read = store.objects().await?.objects.len();
    println!("  all {read} objects read in {:?}", start.elapsed());
    store.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    if let Some(url) = std::env::args().nth(1) {
        println!("a server:");
        return measured(url.parse::<Place>()?).await;
    }
    let folder = tempfile::tempdir()?;
    println!("SQLite:");
    let path = folder.path().join("store.db");
    measured(Place::File(path.clone())).await?;
    println!("  the file has {} MB", std::fs::metadata(path)?.len() / 1_000_000);
    println!("MariaDB:");
    let server = Server::start();
    measured(server.url().parse::<Place>()?).await
}
