//! llm_tokens around the text: chat template, hidden prompt, tools. By model where its provider or its template tells,
//! else by family.
//!
//! What is published of tools is a range or an estimate; the upper end is taken. Configuration overrides the template.

use crate::family::Family;

/// llm_tokens around the text of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    pub per_request: u64,
    pub per_message: u64,
    pub per_name: u64,
    /// Once, when there are tools.
    pub tools: u64,
    /// Once, when a tool call is demanded; instead of `tools`.
    pub tools_forced: u64,
    pub per_tool: u64,
}

/// What a model's name adds to what its family does.
pub fn framing(model: &str, family: Family) -> Framing {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase().replace('.', "-");
    let usual = family.framing();
    let has = |part: &str| name.contains(part);
    let tools = |tools, tools_forced| Framing { tools, tools_forced, ..usual };
    match family {
        Family::Claude | Family::ClaudeNew => claude(&name).map_or(usual, |(auto, any)| tools(auto, any)),
        Family::DeepSeek if has("v4-pro") => Framing { per_request: 77, ..usual },
        Family::Unknown if has("llama-3") || has("llama3") => {
            Framing { per_request: 5, per_message: 5, ..usual }
        }
        Family::Unknown if has("kimi-k3") => Framing { per_request: 64 + usual.per_message, ..usual },
        Family::Unknown if has("grok-4") => {
            let hidden = 185;
            Framing { per_request: hidden, tools: 214 - hidden, tools_forced: 214 - hidden, ..usual }
        }
        _ => usual,
    }
}

/// The system prompt that tools bring: for a free choice, and for a demanded call.
fn claude(name: &str) -> Option<(u64, u64)> {
    const TOLD: [(&[&str], (u64, u64)); 6] = [
        (&["opus-4-8"], (290, 410)),
        (&["opus-4-7"], (675, 804)),
        (&["opus-4-6", "sonnet-4-6"], (497, 589)),
        (&["opus-4-5", "sonnet-4-5"], (496, 588)),
        (&["sonnet-5"], (354, 474)),
        (&["opus-4", "sonnet-4"], (313, 315)),
    ];
    let told = TOLD.into_iter().find(|(names, _)| names.iter().any(|part| name.contains(part)));
    told.map(|(_, prompt)| prompt)
}
