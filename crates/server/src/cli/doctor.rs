//! `tollbook doctor`: does the server of the shared book do what the book needs?

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use serde_json::{Value, json};
use tollbook_engine_redis::{Finding, Health, Link, RedisEngine};

use super::args::Doctor;
use super::{Console, Failure, environment};
use crate::config::{self, Book};

pub(super) fn run(args: &Doctor, console: &mut Console<'_>) -> Result<(), Failure> {
    let setup = config::load(&args.config, &environment)?;
    let Book::Redis(options) = &setup.book else {
        let what = "the book is in the gateway's own process: there is no server to look at (engine.redis)";
        return Err(Failure::from(anyhow!(what)));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(async {
        let link = Link::open(options).map_err(|error| anyhow!("engine.redis: {error}"))?;
        anyhow::Ok(RedisEngine::new(link, options.prefix.clone()).examine(here()).await)
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
