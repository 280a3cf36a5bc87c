//! What an answer says of itself beside its figures: id, model, why it ended. For traces alone.
//!
//! Failure is a fact: what cannot be read stays empty.

use crate::json::{Fault, Json};
use crate::meter::keep_word;
use crate::surface::Surface;

/// Names in an answer that came in one piece; ids and models are cut to a bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub id: String,
    pub model: String,
    /// Why the first choice that says so ended.
    pub reason: Option<&'static str>,
}

/// Reads the names of a whole answer.
pub fn read_names(surface: Surface, body: &[u8]) -> Names {
    let mut names = Names::default();
    let text = String::from_utf8_lossy(body);
    let mut json = Json::lax(&text);
    // A body that breaks off has said what it has said.
    let _: Result<(), Fault> = json.object(|json, key| {
        match key.raw() {
            "id" => keep_word(&mut names.id, json)?,
            "model" => keep_word(&mut names.model, json)?,
            "stop_reason" => names.ended(json)?,
            "status" if surface == Surface::Responses => names.ended(json)?,
            "choices" => {
                json.array_or_skip(|json| {
                    let finish = |json: &mut Json<'_>, names: &mut Names| names.ended(json);
                    json.object_or_skip(|json, key| match key.raw() {
                        "finish_reason" => finish(json, &mut names),
                        _ => json.skip(),
                    })
                    .map(drop)
                })?;
            }
            _ => json.skip()?,
        }
        Ok(())
    });
    names
}

impl Names {
    fn ended(&mut self, json: &mut Json<'_>) -> Result<(), Fault> {
        let reason = json.string_or_skip()?.and_then(|why| finish_word(why.raw()));
        self.reason = self.reason.or(reason);
        Ok(())
    }
}

/// Reasons that providers document; whatever else they say is `other`, so that no text of theirs becomes a value.
const REASONS: [&str; 17] = [
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "function_call",
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
    "insufficient_system_resource",
    "abort",
    "completed",
    "incomplete",
    "failed",
];

/// A finish or stop reason as one of a bounded set of words; nothing for an empty one.
pub(crate) fn finish_word(reason: &str) -> Option<&'static str> {
    if reason.is_empty() {
        return None;
    }
    Some(REASONS.iter().find(|word| **word == reason).copied().unwrap_or("other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dialects_tell_who_and_why() {
        let chat =
            br#"{"id":"c-1","model":"gpt-x","choices":[{"finish_reason":null},{"finish_reason":"length"}]}"#;
        let want = Names { id: "c-1".into(), model: "gpt-x".into(), reason: Some("length") };
        assert_eq!(read_names(Surface::Chat, chat), want);
        let message = br#"{"id":"m-1","model":"claude-x","content":[],"stop_reason":"end_turn"}"#;
        let want = Names { id: "m-1".into(), model: "claude-x".into(), reason: Some("end_turn") };
        assert_eq!(read_names(Surface::Messages, message), want);
    }

    #[test]
    fn nothing_a_provider_says_grows_or_fails() {
        let long = "x".repeat(1000);
        let names = read_names(
            Surface::Chat,
            format!(r#"{{"id":"{long}","choices":[{{"finish_reason":"{long}"}}],"model":7"#).as_bytes(),
        );
        assert_eq!((names.id.len(), names.model.as_str(), names.reason), (128, "", Some("other")));
        for body in [&b"\xff"[..], b"", b"[]", b"{", b"null"] {
            assert_eq!(read_names(Surface::Chat, body), Names::default());
        }
    }
}
