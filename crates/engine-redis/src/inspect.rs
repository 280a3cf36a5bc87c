//! What is stored, for people.

use redis::Value;
use tollbook_engine::{EngineError, Inspection, Shard};

use crate::engine::RedisEngine;
use crate::keys::hex;
use crate::reply::Items;

/// Everything about one account or one reservation, a line each.
pub(crate) async fn text(
    engine: &RedisEngine,
    shard: Shard,
    what: &Inspection,
) -> Result<String, EngineError> {
    let mut lines = Vec::new();
    let what = match what {
        Inspection::Account(account) => {
            let key = engine.keys(shard).own(&format!("a:{}", hex(account.subject.0)));
            let fields = engine.read("HGETALL", &key, &[]).await?;
            let mut items = flat(fields)?;
            while !items.is_empty() {
                let (field, value) = (items.text()?, items.bytes()?);
                if field.starts_with(&hex(account.name)) {
                    lines.push(format!("{field} {}", shown(&value)));
                }
            }
            "account"
        }
        Inspection::Reservation(id) => {
            let keys = engine.keys(shard);
            for attempt in 0..=ATTEMPTS_MAX {
                let key = keys.own(&format!("r:{:032x}:{attempt}", id.0));
                if let Value::BulkString(value) = engine.read("GET", &key, &[]).await? {
                    lines.push(format!("attempt {attempt} {}", shown(&value)));
                }
            }
            "reservation"
        }
    };
    Ok(if lines.is_empty() { format!("no such {what}") } else { lines.join("\n") })
}

/// Attempts that are looked for.
const ATTEMPTS_MAX: u16 = 16;

fn flat(value: Value) -> Result<Items, EngineError> {
    let value = match value {
        Value::Map(pairs) => {
            Value::Array(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect())
        }
        other => other,
    };
    Ok(Items::of(value)?)
}

fn shown(value: &[u8]) -> String {
    match rmp_serde::from_slice::<serde_json::Value>(value) {
        Ok(row) if row.is_array() => row.to_string(),
        _ => String::from_utf8_lossy(value).into_owned(),
    }
}
