//! `tollbook doctor`: does the server of the shared book do what the book needs, and is it these gateways' book?

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use serde_json::{Value, json};
use tollbook_engine_redis::{Finding, Health, Link, RedisEngine};
use tollbook_store::Fleet as _;
use tollbook_store_sql::{Place, SqlStore};

use super::args::Doctor;
use super::{Console, Failure, environment};
use crate::config::{self, Book};
use crate::recovery::FOREIGN_ADVICE;

pub(super) fn run(args: &Doctor, console: &mut Console<'_>) -> Result<(), Failure> {
    let setup = config::load(&args.config, &environment)?;
    let Book::Redis(options) = &setup.book else {
        let what = "the book is in the gateway's own process: there is no server to look at (engine.redis)";
        return Err(Failure::from(anyhow!(what)));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(async {
        let link = Link::open(options).map_err(|error| anyhow!("engine.redis: {error}"))?;
        let engine = RedisEngine::new(link, options.prefix.clone());
        let mut found = engine.examine(here()).await;
        found.extend(owner(&engine, &setup.journal).await);
        anyhow::Ok(found)
    })?;
    if args.json {
        super::json(
            console,
            &json!({"book": setup.book.described(), "findings": found.iter().map(object).collect::<Vec<_>>()}),
        )?;
    } else {
        console.out.write_all(text(&found).as_bytes())?;
    }
    let bad = found.iter().filter(|one| one.health == Health::Bad).count();
    if bad > 0 {
        return Err(Failure::from(anyhow!(
            "{bad} of {} findings are bad: the book is not safe there",
            found.len()
        )));
    }
    Ok(())
}

/// Whether the gateways of this journal keep the book, or may begin to. What does not answer is told already.
async fn owner(engine: &RedisEngine, journal: &Place) -> Option<Finding> {
    let owner = engine.owner().await.ok()?;
    let finding = |health, seen: String, advice: &str| {
        let (node, advice) = (String::new(), advice.to_owned());
        Some(Finding { node, what: "journal", health, seen, advice })
    };
    let Some(owner) = owner else {
        return finding(Health::Good, "no gateway has kept the book yet".to_owned(), "");
    };
    let id = match SqlStore::open_to_read(journal).await {
        Ok(store) => store.id().await,
        Err(error) => Err(error),
    };
    match id {
        Ok(id) if id == owner => finding(Health::Good, format!("the book is kept with {journal}"), ""),
        Ok(_) => finding(
            Health::Bad,
            format!("the book is kept with another journal than {journal}"),
            FOREIGN_ADVICE,
        ),
        Err(error) => finding(
            Health::Bad,
            format!("the book is kept, and {journal} cannot be read: {error}"),
            FOREIGN_ADVICE,
        ),
    }
}

#[expect(clippy::disallowed_methods, reason = "two wall clocks are compared")]
fn here() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Good => "good",
        Health::Poor => "poor",
        Health::Bad => "bad",
    }
}

fn object(one: &Finding) -> Value {
    json!({"node": one.node, "what": one.what, "health": word(one.health), "seen": one.seen, "advice": one.advice})
}

fn text(found: &[Finding]) -> String {
    let mut text = String::new();
    for one in found {
        let node = if one.node.is_empty() { String::new() } else { format!("{} ", one.node) };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<5} {node}{}: {}", word(one.health), one.what, one.seen);
        if !one.advice.is_empty() {
            let _ = writeln!(text, "      {}", one.advice);
        }
    }
    text
}
