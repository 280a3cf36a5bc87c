//! The body sent upstream: the client's bytes with splices between them, without a copy of the whole.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tollbook_admission::SentMark;
use tollbook_wire::Edit;

use crate::upload::Upload;

/// Bodies up to this are copied into one piece: one write is cheaper than several slices.
const COPY_MAX: usize = 16 << 10;

/// Pieces in their order. Cheap to clone, so that a try can be repeated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    /// In reverse: the next piece is the last.
    pieces: Vec<Bytes>,
    /// Marked when the first piece is asked for: a connection is there then, and the head of the call on it.
    sent: Option<SentMark>,
}

impl Outgoing {
    /// A body with edits, which are in order and do not overlap.
    pub(crate) fn new(body: &Bytes, edits: Vec<Edit>) -> Self {
        if edits.is_empty() {
            return Self { pieces: vec![body.clone()], sent: None };
        }
        if body.len() <= COPY_MAX {
            let whole = Bytes::from(tollbook_wire::apply_edits(body, &edits));
            return Self { pieces: vec![whole], sent: None };
        }
        let mut pieces = Vec::with_capacity(edits.len() * 2 + 1);
        let mut from = 0;
        for edit in edits {
            pieces.push(body.slice(from..edit.range.start));
            pieces.push(Bytes::from(edit.text));
            from = edit.range.end;
        }
        pieces.push(body.slice(from..));
        pieces.retain(|piece| !piece.is_empty());
        pieces.reverse();
        Self { pieces, sent: None }
    }

    /// The same for one try, which marks the call as sent when it is.
    pub(crate) fn marking(&self, sent: Option<SentMark>) -> Self {
        Self { pieces: self.pieces.clone(), sent }
    }

    /// The next piece; whoever asks for the first has a connection to put it on.
    fn next(&mut self) -> Option<Bytes> {
        if let Some(sent) = self.sent.take() {
            sent.mark();
        }
        self.pieces.pop()
    }

    fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::try_from(piece.len()).unwrap_or(u64::MAX)).sum()
    }
}

/// What goes upstream: a body that is held, or one that only passes.
#[derive(Debug)]
pub(crate) enum Sent {
    Whole(Outgoing),
    Upload(Box<Upload>),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.get_mut() {
            Self::Whole(body) => Poll::Ready(body.next().map(|piece| Ok(Frame::data(piece)))),
            Self::Upload(body) => Pin::new(body.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Upload(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Upload(body) => body.size_hint(),
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tollbook_wire::{Changes, Surface, decode_request, edits};

    use super::*;

    #[tokio::test]
    async fn pieces_are_the_edited_body() {
        for size in [10, COPY_MAX * 3] {
            let text = "x".repeat(size);
            let body = format!(
                r#"{{"messages":[{{"role":"user","content":"{text}"}}],"model":"gpt","stream":true,"max_tokens":9}}"#
            );
            let body = Bytes::from(body);
            let request = decode_request(Surface::Chat, &body).unwrap();
            let changes = Changes { model: Some("other"), include_usage: true, output_cap: Some(5) };
            let edits = edits(&request, &changes);
            let whole = tollbook_wire::apply_edits(&body, &edits);
            let outgoing = Outgoing::new(&body, edits);
            assert_eq!(outgoing.size_hint().exact(), Some(u64::try_from(whole.len()).unwrap()));
            assert_eq!(outgoing.clone().collect().await.unwrap().to_bytes(), whole);
            assert_eq!(outgoing.collect().await.unwrap().to_bytes(), whole);
        }
    }
}
