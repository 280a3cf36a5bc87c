//! Bodies the gateway answers with.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::pass_body::PassBody;
use crate::relay::Relayed;

/// A finished answer, or a stream being relayed.
#[derive(Debug)]
pub(crate) enum OutBody {
    Full(Option<Bytes>),
    Relay(Relayed),
    Pass(Box<PassBody>),
}

impl OutBody {
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()).filter(|b| !b.is_empty()))
    }
}

impl Body for OutBody {
    type Data = Bytes;
    /// What goes wrong upstream is told inside the stream, in the client's dialect; only bytes that are passed through
    /// and have no place for an error break off.
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Relay(relay) => relay.poll_next(cx).map(|next| next.map(|b| Ok(Frame::data(b)))),
            Self::Pass(body) => body.poll_next(cx).map(|next| next.map(|b| b.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Relay(relay) => relay.is_done(),
            Self::Pass(body) => body.is_done(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().and_then(|b| u64::try_from(b.len()).ok()).unwrap_or(0))
            }
            Self::Relay(_) => SizeHint::default(),
            Self::Pass(body) => body.size_hint(),
        }
    }
}
