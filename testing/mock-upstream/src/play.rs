//! Plays a plan on a connection and keeps the record while doing so.
//!
//! Invariants: before each write the socket is asked whether the client is gone; the record moves after the write, by
//! exactly what was written; a call is ended exactly once.
//! A client that goes ends the play, unless the script ignores it: then the play runs to its end without writing, and
//! `generated` grows as if somebody were reading.

use std::fmt::Write as _;
use std::time::Duration;

use crate::http::{Conn, Gone};
use crate::plan::{BodyFraming, Head, Piece, Plan, Send};
use crate::record::{Dialect, Ending, Usage};
use crate::upstream::Shared;
use crate::usage;

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    KeepAlive,
    Drop,
}

pub(crate) struct Player<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) conn: &'a mut Conn,
    pub(crate) order: u64,
    pub(crate) dialect: Dialect,
    pub(crate) keep_alive: bool,
    chunked: bool,
    ignoring: bool,
    /// Set once the client is gone and that is being ignored.
    into_the_void: bool,
}

/// Why the play stopped early.
enum Stop {
    Gone,
    Ended(Ending),
}

impl<'a> Player<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        conn: &'a mut Conn,
        order: u64,
        dialect: Dialect,
        keep_alive: bool,
    ) -> Self {
        Self {
            shared,
            conn,
            order,
            dialect,
            keep_alive,
            chunked: false,
            ignoring: false,
            into_the_void: false,
        }
    }

    /// Plays to the end; `ending` is what a full play is recorded as.
    pub(crate) async fn play(mut self, plan: &Plan, ending: Ending) -> After {
        self.ignoring = plan.ignore_disconnect;
        self.shared.update(self.order, |call| call.generated = plan.used);
        let stop = self.run(plan).await;
        let (ending, after) = match stop {
            Ok(()) if self.into_the_void => (Ending::ClientGone, After::Drop),
            Ok(()) => (ending, self.after(plan)),
            Err(Stop::Gone) => (Ending::ClientGone, After::Drop),
            Err(Stop::Ended(ending)) => (ending, After::Drop),
        };
        self.shared.end(self.order, ending);
        if ending == Ending::Reset {
            // Nothing can be done about a socket that refuses; it is closed all the same.
            let _ = self.conn.stream.set_zero_linger();
        }
        after
    }

    fn after(&self, plan: &Plan) -> After {
        let body_has_end = plan.head.as_ref().is_some_and(|head| head.body != BodyFraming::UntilClose);
        if body_has_end && self.keep_alive && !plan.close_after { After::KeepAlive } else { After::Drop }
    }

    async fn run(&mut self, plan: &Plan) -> Result<(), Stop> {
        self.pause(plan.head_after_ms).await?;
        self.barrier().await?;
        if let Some(head) = &plan.head {
            self.chunked = head.body == BodyFraming::Chunked;
            let text = self.render(head);
            self.write(text.as_bytes()).await?;
            if !self.into_the_void {
                let at = self.shared.now_ms();
                self.shared.update(self.order, |call| {
                    call.status = Some(head.status);
                    call.answered_ms = Some(at);
                });
            }
        }
        for piece in &plan.pieces {
            self.piece(piece, plan).await?;
        }
        if self.chunked {
            self.write(b"0\r\n\r\n").await?;
        }
        Ok(())
    }

    async fn piece(&mut self, piece: &Piece, plan: &Plan) -> Result<(), Stop> {
        match piece {
            Piece::Send(send) => {
                self.body(&send.bytes, plan.write_bytes).await?;
                self.note(send);
            }
            Piece::Repeat { bytes, times, every_ms } => {
                let send = Send { bytes: bytes.clone(), content: true, ..Send::default() };
                for _ in 0..*times {
                    self.pause(*every_ms).await?;
                    self.body(&send.bytes, plan.write_bytes).await?;
                    self.note(&send);
                }
            }
            Piece::DelayMs(ms) => self.pause(*ms).await?,
            Piece::Stall => {
                self.shared.update(self.order, |call| call.stalled = true);
                self.conn.gone().await;
                self.saw_gone();
                return Err(Stop::Gone);
            }
            Piece::Reset => return Err(Stop::Ended(Ending::Reset)),
            Piece::Close => return Err(Stop::Ended(Ending::Closed)),
            Piece::HalfClose => {
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut self.conn.stream).await;
                self.conn.gone().await;
                return Err(Stop::Ended(Ending::HalfClosed));
            }
        }
        Ok(())
    }

    /// Body bytes, framed, in one write or in many.
    async fn body(&mut self, bytes: &[u8], write_bytes: Option<u64>) -> Result<(), Stop> {
        let most = write_bytes.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX).max(1);
        for part in bytes.chunks(most) {
            if self.chunked {
                let mut framed = format!("{:x}\r\n", part.len()).into_bytes();
                framed.extend_from_slice(part);
                framed.extend_from_slice(b"\r\n");
                self.write(&framed).await?;
            } else {
                self.write(part).await?;
            }
        }
        Ok(())
    }

    fn note(&self, send: &Send) {
        let void = self.into_the_void;
        let dialect = self.dialect;
        self.shared.update(self.order, |call| {
            call.generated = Usage {
                output: call.generated.output.saturating_add(send.output),
                reasoning: call.generated.reasoning.saturating_add(send.reasoning),
                ..call.generated
            };
            if void {
                return;
            }
            call.content_chunks = call.content_chunks.saturating_add(u64::from(send.content));
            if let Some(usage) = &send.usage {
                call.usage_sent.push(usage.clone());
                call.reported = usage::read(dialect, &call.usage_sent);
                call.usage_complete |= send.usage_is_final;
            }
        });
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if self.into_the_void {
            return Ok(());
        }
        if self.conn.look().is_some() || self.conn.send(bytes).await.is_err() {
            return self.client_gone();
        }
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.shared.update(self.order, |call| call.bytes_sent = call.bytes_sent.saturating_add(count));
        Ok(())
    }

    async fn pause(&mut self, ms: u64) -> Result<(), Stop> {
        if ms == 0 {
            return Ok(());
        }
        let sleep = tokio::time::sleep(Duration::from_millis(ms));
        tokio::pin!(sleep);
        if !self.into_the_void {
            tokio::select! {
                () = &mut sleep => return Ok(()),
                _gone = self.conn.gone() => self.client_gone()?,
            }
        }
        sleep.await;
        Ok(())
    }

    async fn barrier(&mut self) -> Result<(), Stop> {
        let mut held = self.shared.held();
        if !*held.borrow_and_update() {
            return Ok(());
        }
        let waiting = self.shared.waiting();
        tokio::select! {
            _ = held.wait_for(|held| !held) => {}
            _gone = self.conn.gone(), if !self.into_the_void => self.client_gone()?,
        }
        drop(waiting);
        Ok(())
    }

    fn client_gone(&mut self) -> Result<(), Stop> {
        self.saw_gone();
        self.into_the_void = self.ignoring;
        if self.ignoring { Ok(()) } else { Err(Stop::Gone) }
    }

    fn saw_gone(&self) {
        let how = self.conn.known_gone();
        self.shared.update(self.order, |call| {
            call.gone_at_chunk.get_or_insert(call.content_chunks);
            if let Some(how) = how {
                call.afterwards = how.into();
            }
        });
    }

    fn render(&self, head: &Head) -> String {
        let named = |wanted: &str| head.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let mut text = format!("HTTP/1.1 {} {}\r\n", head.status, reason(head.status));
        for (name, value) in &head.headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        let id = match self.dialect {
            Dialect::OpenAi => "x-request-id",
            Dialect::Anthropic => "request-id",
        };
        if !named(id) {
            let _ = write!(text, "{id}: req_mock_{}\r\n", self.order);
        }
        match head.body {
            BodyFraming::Chunked => text.push_str("transfer-encoding: chunked\r\n"),
            BodyFraming::Length(length) if !named("content-length") => {
                let _ = write!(text, "content-length: {length}\r\n");
            }
            BodyFraming::Length(_) => {}
            BodyFraming::UntilClose => text.push_str("connection: close\r\n"),
        }
        text.push_str("\r\n");
        text
    }
}

impl From<Gone> for crate::record::Afterwards {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Closed => Self::Closed,
            Gone::Reset => Self::Reset,
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Mock",
    }
}
