//! The paths under `/__`, by which tests in other processes steer the mock and read its record.
//!
//! `GET /__record`, `GET /__totals`, `GET /__health`; `POST /__script` (a script, or a list of them, into the queue),
//! `POST /__default`, `POST /__model/<name>`, `POST /__hold`, `POST /__release`, `POST /__close-idle`, `POST /__clear`.
//! Invariants: these calls are not recorded and not held. A body that cannot be read is answered 400 and changes nothing.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::http::{Conn, RequestHead};
use crate::play::After;
use crate::script::Script;
use crate::upstream::{QUEUE_MAX, Shared};

const PREFIX: &str = "/__";

pub(crate) fn is_control(target: &str) -> bool {
    target.starts_with(PREFIX)
}

pub(crate) async fn answer(conn: &mut Conn, shared: &Shared, head: &RequestHead) -> After {
    let Ok(body) = conn.read_body(head).await else { return After::Drop };
    let name = head.target.strip_prefix(PREFIX).unwrap_or_default();
    let (status, value) = match act(shared, &head.method, name, &body) {
        Ok(value) => (200, value),
        Err((status, why)) => (status, json!({"error": why})),
    };
    let text = value.to_string();
    let answer = format!(
        "HTTP/1.1 {status} Mock\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    match conn.send(answer.as_bytes()).await {
        Ok(()) if head.keep_alive => After::KeepAlive,
        _ => After::Drop,
    }
}

fn act(shared: &Shared, method: &str, name: &str, body: &[u8]) -> Result<Value, (u16, String)> {
    match (method, name) {
        ("GET", "record") => Ok(json!(shared.lock().record.calls)),
        ("GET", "totals") => Ok(json!(shared.lock().record.totals)),
        ("GET", "health") => Ok(json!({"ok": true})),
        ("POST", "script") => enqueue(shared, body),
        ("POST", "default") => {
            shared.lock().default = read(body)?;
            Ok(json!({"ok": true}))
        }
        ("POST", "hold" | "release") => {
            shared.set_held(name == "hold");
            Ok(json!({"held": name == "hold"}))
        }
        ("POST", "close-idle") => {
            shared.close_idle();
            Ok(json!({"ok": true}))
        }
        ("POST", "clear") => {
            shared.lock().record.clear();
            Ok(json!({"ok": true}))
        }
        ("POST", _) if name.starts_with("model/") => {
            let model = name.strip_prefix("model/").unwrap_or_default();
            shared.lock().by_model.insert(model.to_owned(), read(body)?);
            Ok(json!({"ok": true}))
        }
        _ => Err((404, "no such control path".to_owned())),
    }
}

fn enqueue(shared: &Shared, body: &[u8]) -> Result<Value, (u16, String)> {
    let value: Value = read(body)?;
    let scripts = if value.is_array() { read(body)? } else { vec![read::<Script>(body)?] };
    let mut state = shared.lock();
    if state.queue.len().saturating_add(scripts.len()) > QUEUE_MAX {
        return Err((413, "queue full".to_owned()));
    }
    state.queue.extend(scripts);
    Ok(json!({"queued": state.queue.len()}))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, (u16, String)> {
    serde_json::from_slice(body).map_err(|error| (400, format!("mock script: {error}")))
}
