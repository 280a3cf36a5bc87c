//! Changes a request body by splices on its original bytes; nothing else of it is written anew.
//!
//! Invariants: edits are sorted and do not overlap; every byte outside them is the client's; a spliced body is read by
//! `decode_request` as the changed request. Edits that do not fit the body leave it as it is.

use std::ops::Range;

use crate::request::{Request, StreamOptions};
use crate::surface::Surface;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub range: Range<usize>,
    pub text: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Changes<'a> {
    /// The name under which the target knows the model.
    pub model: Option<&'a str>,
    /// Ask the provider for the usage of a stream.
    pub include_usage: bool,
    /// Written into every cap that the client sent, or as the surface's own if it sent none.
    pub output_cap: Option<u64>,
}

/// The splices that make `changes` true; none where they are true already.
pub fn edits(request: &Request<'_>, changes: &Changes<'_>) -> Vec<Edit> {
    let spots = &request.spots;
    let mut out = Vec::new();
    let mut front = Vec::new();
    if let Some(model) = changes.model.filter(|model| *model != request.model) {
        out.push(Edit { range: spots.model.clone(), text: quoted(model) });
    }
    if let Some(cap) = changes.output_cap {
        let sent = [&spots.max_tokens, &spots.max_completion_tokens, &spots.max_output_tokens];
        let own = match request.surface {
            Surface::Chat => Some("max_completion_tokens"),
            Surface::Responses => Some("max_output_tokens"),
            Surface::Completions | Surface::Messages => Some("max_tokens"),
            Surface::Embeddings => None,
        };
        if let Some(name) = own.filter(|_| sent.iter().all(|spot| spot.is_none())) {
            front.extend_from_slice(format!("\"{name}\":{cap},").as_bytes());
        }
        for spot in sent.into_iter().flatten() {
            out.push(Edit { range: spot.clone(), text: cap.to_string().into_bytes() });
        }
    }
    if changes.include_usage && request.stream && request.surface.has_usage_option() && !request.usage_asked {
        match &spots.stream_options {
            None => front.extend_from_slice(b"\"stream_options\":{\"include_usage\":true},"),
            Some(StreamOptions::Null(spot)) => {
                out.push(Edit { range: spot.clone(), text: b"{\"include_usage\":true}".to_vec() });
            }
            Some(StreamOptions::Object { include_usage: Some(spot), .. }) => {
                out.push(Edit { range: spot.clone(), text: b"true".to_vec() });
            }
            Some(StreamOptions::Object { open, empty, include_usage: None }) => {
                let comma: &[u8] = if *empty { b"" } else { b"," };
                let text = [b"\"include_usage\":true", comma].concat();
                out.push(Edit { range: *open..*open, text });
            }
        }
    }
    if !front.is_empty() {
        // A body always has `model`, so the comma at the end is followed by a member.
        out.push(Edit { range: spots.open..spots.open, text: front });
    }
    out.sort_by_key(|edit| edit.range.start);
    out
}

pub(crate) fn quoted(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).unwrap_or_default()
}

/// The length of the body after the edits.
pub fn edited_len(body: &[u8], edits: &[Edit]) -> usize {
    edits.iter().fold(body.len(), |len, edit| (len + edit.text.len()).saturating_sub(edit.range.len()))
}

pub fn apply_edits(body: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut out = Vec::with_capacity(edited_len(body, edits));
    let mut from = 0;
    for edit in edits {
        let Some(kept) = body.get(from..edit.range.start) else { return body.to_vec() };
        out.extend_from_slice(kept);
        out.extend_from_slice(&edit.text);
        from = edit.range.end;
    }
    let Some(kept) = body.get(from..) else { return body.to_vec() };
    out.extend_from_slice(kept);
    out
}
