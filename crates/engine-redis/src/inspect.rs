//! What is stored, for people.

use redis::Value;
use tollbook_engine::{EngineError, Inspection, Shard};

use crate::engine::RedisEngine;
use crate::keys;
use crate::recovery::Guard;
use crate::reply::Items;
use crate::rows;

/// Everything about one account or one reservation, a line each.
pub(crate) async fn text(
    engine: &RedisEngine,
    shard: Shard,
    what: &Inspection,
) -> Result<String, EngineError> {
    let mut lines = Vec::new();
    let what = match what {
        Inspection::Account(account) => {
            let (key, name) = (engine.keys(shard).own("b"), keys::account(account));
            for (mark, what) in
                [(None, ""), (Some(b'b'), "buckets "), (Some(b's'), "seconds "), (Some(b'g'), "gateways ")]
            {
                let field: Vec<u8> = name.iter().copied().chain(mark).collect();
                if let Value::BulkString(value) = engine.read("HGET", &key, &[&field]).await? {
                    let said = match mark {
                        None => rows::account(&value),
                        Some(b'g') => None,
                        Some(_) => rows::cells(&value),
                    };
                    lines.push(format!("{what}{}", said.unwrap_or_else(|| shown(&value))));
                }
            }
            "account"
        }
        Inspection::Reservation(id) => {
            for attempt in 0..=ATTEMPTS_MAX {
                let keys = engine.keys(shard).reservation(*id, attempt);
                let said = engine.call_as(Guard::Off, &engine.scripts.show, &keys, Vec::new()).await?;
                let parts = Items::of(Value::Array(vec![said.value]))?.each(Items::text)?;
                if !parts.is_empty() {
                    lines.push(format!("attempt {attempt}: {}", parts.join(", ")));
                }
            }
            "reservation"
        }
    };
    Ok(if lines.is_empty() { format!("no such {what}") } else { lines.join("\n") })
}

/// Attempts that are looked for.
const ATTEMPTS_MAX: u16 = 16;

fn shown(value: &[u8]) -> String {
    match rmp_serde::from_slice::<serde_json::Value>(value) {
        Ok(row) if row.is_array() => row.to_string(),
        _ => String::from_utf8_lossy(value).into_owned(),
    }
}
