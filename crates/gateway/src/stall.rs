//! A connection that fails when its peer takes no bytes for too long, or too few.
//!
//! hyper stops polling a body while the socket is full, so a client that never reads would keep its holds for ever.
//! Here every write that makes no progress adds to the peer's debt and arms a timer; progress pays and disarms it; when
//! it fires the connection errors, the body is dropped, and its Ticket settles. Reads are left to the screen and to
//! the body reader. Streams of HTTP/2 are stopped by their own windows, not by the socket: see `http2`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::pace::{Debt, Pace};

/// Wraps a stream with a limit on write silence.
#[derive(Debug)]
pub(crate) struct StallGuard<S> {
    stream: S,
    pace: Pace,
    debt: Debt,
    armed: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(stream: S, pace: Pace) -> Self {
        Self { stream, pace, debt: Debt::default(), armed: None }
    }

    /// Passes the result of a write on; a pending one runs against the timer.
    fn wrote(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match result {
            Poll::Pending => self.wait(cx),
            Poll::Ready(Ok(bytes)) if !self.debt.is_clear() => {
                self.debt.pay(Instant::now(), bytes, self.pace);
                self.armed = None;
                Poll::Ready(Ok(bytes))
            }
            ready @ Poll::Ready(_) => ready,
        }
    }

    /// Not written: something else made progress, or did not.
    fn moved(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        match result {
            Poll::Pending => self.wait(cx),
            ready @ Poll::Ready(_) => ready,
        }
    }

    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let now = Instant::now();
        self.debt.wait(now);
        let left = self.pace.patience.saturating_sub(self.debt.owed(now));
        let sleep = self.armed.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(now + left)));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no bytes")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.moved(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.moved(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PACE: Pace = Pace { patience: Duration::from_secs(30), bytes_per_s: 2 };

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_never_reads_ends_the_connection() {
        let (near, _far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near, PACE);
        let begun = Instant::now();
        let error = guarded.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
    }

    /// Reads `piece` bytes every second while 4,000 are written.
    async fn trickled(piece: usize) -> io::Result<()> {
        let (near, mut far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near, PACE);
        let reader = tokio::spawn(async move {
            let mut bytes = vec![0; piece];
            while far.read_exact(&mut bytes).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let written = guarded.write_all(&[7; 4_000]).await;
        drop(guarded);
        reader.await.unwrap();
        written
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_at_the_pace_is_served_and_one_below_it_is_not() {
        trickled(2).await.unwrap();
        trickled(10).await.unwrap();
        let begun = Instant::now();
        assert_eq!(trickled(1).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() > Duration::from_secs(50), "{:?}", begun.elapsed());
    }
}
