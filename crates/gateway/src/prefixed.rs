//! A stream of which the beginning was read ahead, to see what it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// Gives what was read ahead first, then what follows.
#[derive(Debug)]
pub(crate) struct Prefixed<S> {
    stream: S,
    ahead: Vec<u8>,
}

impl<S> Prefixed<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, ahead: Vec::new() }
    }

    /// What was read ahead and not yet given.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Bytes to be given before any that follow.
    pub(crate) fn give_first(&mut self, bytes: Vec<u8>) {
        if self.ahead.is_empty() {
            self.ahead = bytes;
        } else {
            self.ahead.extend_from_slice(&bytes);
        }
    }

    /// Forgets the first bytes of what was read ahead.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.ahead.drain(..bytes.min(self.ahead.len()));
    }
}

impl<S: AsyncRead + Unpin> Prefixed<S> {
    /// Reads once, until at most `most` bytes are ahead; false at the end of the stream, or if there are so many already.
    pub(crate) async fn look(&mut self, most: usize) -> io::Result<bool> {
        let room = most.saturating_sub(self.ahead.len());
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        let read = (&mut self.stream).take(room).read_buf(&mut self.ahead).await?;
        Ok(read > 0)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let some = self.ahead.len().min(buf.remaining());
        if let Some(bytes) = self.ahead.get(..some) {
            buf.put_slice(bytes);
        }
        self.skip(some);
        if self.ahead.is_empty() {
            // Not needed again; connections live long.
            self.ahead = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

/// What is written goes through as it is, to the field `stream`.
macro_rules! writes_through {
    ($reader:ident) => {
        impl<S: AsyncWrite + Unpin> AsyncWrite for $reader<S> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write(cx, buf)
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_flush(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_shutdown(cx)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                self.stream.is_write_vectored()
            }
        }
    };
}

pub(crate) use writes_through;

writes_through!(Prefixed);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_read_ahead_comes_first() {
        let mut stream = Prefixed::new(&b"abcdef"[..]);
        assert!(stream.look(4).await.unwrap());
        assert_eq!(stream.ahead(), b"abcd");
        assert!(!stream.look(4).await.unwrap(), "no more than asked for");
        stream.skip(1);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "bcdef");
    }
}
