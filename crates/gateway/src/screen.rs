//! Reads every head of an HTTP/1.1 connection before the HTTP library does, more strictly.
//!
//! A request whose end two readers would find at different bytes can smuggle a second one through a proxy in front of
//! us. So there is one meaning or one refusal: lines end with CRLF, nothing is folded, a length is told once, as digits
//! or as `chunked`, never both. Invariants: what is passed on is what came, byte for byte, and always whole heads; an
//! unfinished head is held, within its bound and that of all connections together; bodies are counted, not copied.
//! A head that is refused is replaced by a request of our own for `PATH`, so that the refusal is an answer like any
//! other: JSON, in its turn, and the last on its connection. A chunked body that is malformed fails for its reader.
//! A head that has begun and does not end in time fails the connection; so does a first one that does not begin. Empty
//! lines in front of a head go with it: alone they are nothing, neither a call nor time for one.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::budget::{Budget, Share};
use crate::prefixed::{Prefixed, writes_through};

/// What a refused head is replaced with asks for this. No client can ask for it with another outcome.
pub(crate) const PATH: &str = "/.refused";
/// Names the reason there.
pub(crate) const REASON: &str = "x-tollbook-refused";
/// What an unfinished head may take without being counted: nearly every head is smaller, so that those who send large
/// ones and never finish cannot close the door to others.
const HEAD_FREE: usize = 4 << 10;
/// Digits of a chunk's size, at most: 2^48 bytes are more than any body.
const CHUNK_DIGITS_MAX: u32 = 12;
/// Bytes of a chunk's extensions, and of all trailers.
const CHUNK_EXTRA_MAX: u32 = 4096;
/// A length above it is no length.
const LENGTH_DIGITS_MAX: usize = 18;

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    RequestLine,
    LineEnd,
    Folded,
    Header,
    Host,
    Length,
    Coding,
    TwoLengths,
    TooLarge,
    TooMany,
    /// Nothing is wrong with it but that there are too many.
    Busy,
}

impl Malformed {
    const ALL: [(Self, &'static str, &'static str); 11] = [
        (Self::RequestLine, "request-line", "the request line is malformed"),
        (Self::LineEnd, "line-end", "a line of the request's head does not end with CRLF"),
        (Self::Folded, "folded", "a header is folded over several lines"),
        (Self::Header, "header", "a header is malformed"),
        (Self::Host, "host", "the request must have one Host header"),
        (Self::Length, "length", "Content-Length must be one whole number, told once"),
        (Self::Coding, "coding", "Transfer-Encoding must be `chunked`, told once"),
        (Self::TwoLengths, "two-lengths", "the request has both Content-Length and Transfer-Encoding"),
        (Self::TooLarge, "too-large", "the request's head is too large"),
        (Self::TooMany, "too-many", "the request has too many headers"),
        (Self::Busy, "busy", "too many unfinished requests are being held at the moment"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(this, ..)| *this == self).map_or("", |(_, word, _)| word)
    }

    /// The reason a word stands for, and what the client is told.
    pub(crate) fn read(word: &str) -> Option<(Self, &'static str)> {
        Self::ALL.into_iter().find(|(_, this, _)| *this == word).map(|(this, _, text)| (this, text))
    }
}

/// How large a head may be.
#[derive(Clone, Copy, Debug)]
pub struct HeadBounds {
    pub bytes: usize,
    pub lines: usize,
}

/// What the heads of a connection are held to.
#[derive(Debug)]
pub(crate) struct Heads {
    pub(crate) bounds: HeadBounds,
    /// The first one from the connection's beginning, each further one from its first byte.
    pub(crate) patience: Duration,
    /// What an unfinished one takes above `HEAD_FREE`, of the bound on all connections.
    pub(crate) share: Share,
}

/// Why the head that this request stands for was refused, if it does: for a listener that tells it in its own words.
pub fn refused_head<B>(request: &http::Request<B>) -> Option<&'static str> {
    if request.uri().path() != PATH {
        return None;
    }
    let word = request.headers().get(REASON).and_then(|word| word.to_str().ok()).unwrap_or_default();
    Some(Malformed::read(word).map_or("the request is malformed", |(_, text)| text))
}

/// A connection whose heads are screened.
#[derive(Debug)]
pub struct Screen<S> {
    /// What was decided on and is to be handed out lies ahead of it.
    stream: Prefixed<S>,
    heads: Heads,
    state: State,
    /// An unfinished head.
    partial: Vec<u8>,
    /// No head has ended yet.
    is_first: bool,
    /// Runs while a head is waited for.
    armed: Option<Pin<Box<Sleep>>>,
    /// Nothing that follows is read.
    over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
    Chunk(Chunk),
}

/// Where in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    Size {
        value: u64,
        digits: u32,
    },
    /// Behind the size; the rest of the line says nothing here.
    Extension {
        value: u64,
        used: u32,
    },
    SizeLf {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// In the trailers: bytes so far, and whether the line has any.
    Trailer {
        used: u32,
        empty: bool,
    },
    TrailerLf {
        used: u32,
        empty: bool,
    },
}

/// What was found in some bytes.
enum Look {
    /// So many may be passed on; the rest is the beginning of a head.
    Pass(usize),
    /// So many may be passed on; then comes a head that is refused.
    Refuse(usize, Malformed),
    /// So many may be passed on; then a body breaks its own form.
    Break(usize),
}

impl<S> Screen<S> {
    /// Of a listener whose connections are few: their heads have no bound together.
    pub fn alone(stream: S, bounds: HeadBounds, patience: Duration) -> Self {
        Self::new(stream, Heads { bounds, patience, share: Budget::new(usize::MAX).share() })
    }

    pub(crate) fn new(stream: S, heads: Heads) -> Self {
        Self {
            stream: Prefixed::new(stream),
            heads,
            state: State::Head,
            partial: Vec::new(),
            is_first: true,
            armed: None,
            over: false,
        }
    }

    /// Nothing comes; an error if that has lasted too long.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What stops at the first byte of a head costs nothing.
        let has_begun = self.partial.iter().any(|byte| !b"\r\n".contains(byte));
        if !self.is_first && !has_begun {
            return Poll::Pending;
        }
        let patience = self.heads.patience;
        let sleep = self.armed.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the request's head does not end")))
    }

    /// A head has ended, whatever follows it.
    fn has_passed(&mut self) {
        self.is_first = false;
        self.armed = None;
    }

    fn look(&mut self, bytes: &[u8]) -> Look {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.state {
                State::Head => match head(rest, self.heads.bounds) {
                    Ok(None) => return Look::Pass(at),
                    Ok(Some((length, state))) => {
                        self.has_passed();
                        at += length;
                        self.state = state;
                    }
                    Err(why) => return Look::Refuse(at, why),
                },
                State::Body(left) => {
                    let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    at += taken;
                    let left = left.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
                    self.state = if left == 0 { State::Head } else { State::Body(left) };
                }
                State::Chunk(chunk) => match step(chunk, rest) {
                    Some((taken, state)) => {
                        at += taken;
                        self.state = state;
                    }
                    None => return Look::Break(at),
                },
            }
        }
        Look::Pass(at)
    }

    /// Decides on bytes that were read; answers how many of them go on at once.
    fn sift(&mut self, bytes: &[u8]) -> usize {
        if self.partial.is_empty() {
            let look = self.look(bytes);
            let (Look::Pass(n) | Look::Refuse(n, _) | Look::Break(n)) = look;
            self.follow(&look, bytes.get(n..).unwrap_or_default());
            return n;
        }
        if !self.hold(bytes) {
            return 0;
        }
        // A head is read again only when a line has ended: that happens as often as it may have lines.
        if self.partial.len() <= self.heads.bounds.bytes && memchr(b'\n', bytes).is_none() {
            return 0;
        }
        let mut held = std::mem::take(&mut self.partial);
        self.heads.share.give(usize::MAX);
        let look = self.look(&held);
        let (Look::Pass(n) | Look::Refuse(n, _) | Look::Break(n)) = look;
        let rest = held.get(n..).unwrap_or_default().to_vec();
        held.truncate(n);
        self.stream.give_first(held);
        self.follow(&look, &rest);
        0
    }

    /// What becomes of the bytes behind those that go on.
    fn follow(&mut self, look: &Look, rest: &[u8]) {
        match look {
            Look::Pass(_) => drop(self.hold(rest)),
            Look::Refuse(_, why) => self.refuse(rest, *why),
            Look::Break(_) => self.break_off(),
        }
    }

    /// Keeps more of an unfinished head; false if all connections together hold too much of them.
    fn hold(&mut self, more: &[u8]) -> bool {
        let need = self.partial.len() + more.len();
        let has = self.partial.capacity();
        if need > has {
            let capacity = need.max(has.saturating_mul(2)).min(need.max(self.heads.bounds.bytes));
            let counted = |capacity: usize| capacity.saturating_sub(HEAD_FREE);
            if self.heads.share.take(counted(capacity) - counted(has)).is_err() {
                let head = std::mem::take(&mut self.partial);
                self.heads.share.give(usize::MAX);
                self.refuse(&head, Malformed::Busy);
                return false;
            }
            self.partial.reserve_exact(capacity - self.partial.len());
        }
        self.partial.extend_from_slice(more);
        true
    }

    fn refuse(&mut self, head: &[u8], why: Malformed) {
        let anthropic = [&b"/v1/messages"[..], b"anthropic-version"];
        let speaks = anthropic.iter().any(|word| memchr::memmem::find(head, word).is_some());
        let version = if speaks { "anthropic-version: 0\r\n" } else { "" };
        let word = why.word();
        let request = format!(
            "POST {PATH} HTTP/1.1\r\nhost: gateway\r\n{REASON}: {word}\r\n{version}content-length: 0\r\nconnection: close\r\n\r\n"
        );
        self.stream.give_first(request.into_bytes());
        self.over = true;
    }

    /// No chunk's size begins so, and no chunk ends so: the reader of the body fails.
    fn break_off(&mut self) {
        self.stream.give_first(vec![0x01]);
        self.over = true;
    }
}

/// The length of the head at the front, and what follows it. `None`: it is not whole yet.
fn head(bytes: &[u8], bounds: HeadBounds) -> Result<Option<(usize, State)>, Malformed> {
    let mut at = 0;
    // Empty lines in front of a request are passed over, as RFC 9112 asks: as many as it may have others.
    while bytes.get(at..).is_some_and(|rest| rest.starts_with(b"\r\n")) && at < bounds.lines.saturating_mul(2)
    {
        at += 2;
    }
    let mut facts = Facts::default();
    let mut lines = 0_usize;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(end) = memchr(b'\n', rest) else {
            if bytes.len() > bounds.bytes {
                return Err(Malformed::TooLarge);
            }
            return Ok(None);
        };
        let line = rest.get(..end).unwrap_or_default();
        let Some((b'\r', line)) = line.split_last() else { return Err(Malformed::LineEnd) };
        at += end + 1;
        if at > bounds.bytes {
            return Err(Malformed::TooLarge);
        }
        if lines == 0 {
            facts.request_line(line)?;
        } else if line.is_empty() {
            return facts.framing().map(|state| Some((at, state)));
        } else {
            facts.header(line)?;
        }
        lines += 1;
        if lines > bounds.lines.saturating_add(1) {
            return Err(Malformed::TooMany);
        }
    }
}

/// What of a head decides where its request ends.
#[derive(Default)]
struct Facts {
    old: bool,
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
}

impl Facts {
    fn request_line(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let mut words = line.split(|b| *b == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Malformed::RequestLine);
        };
        self.old = version == b"HTTP/1.0";
        let known = self.old || version == b"HTTP/1.1";
        let visible = |b: &u8| (0x21..0x7f).contains(b) && *b != b'#';
        let good = known && !method.is_empty() && method.iter().all(|b| is_token(*b)) && !target.is_empty();
        if good && target.iter().all(visible) { Ok(()) } else { Err(Malformed::RequestLine) }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Malformed> {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(Malformed::Folded);
        }
        let colon = memchr(b':', line).ok_or(Malformed::Header)?;
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default();
        let plain = |b: &u8| *b == b'\t' || (*b >= 0x20 && *b != 0x7f);
        if name.is_empty() || !name.iter().all(|b| is_token(*b)) || !value.iter().all(plain) {
            return Err(Malformed::Header);
        }
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            if self.hosts > 1 {
                return Err(Malformed::Host);
            }
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            if self.length.is_some() || !digits || value.len() > LENGTH_DIGITS_MAX {
                return Err(Malformed::Length);
            }
            let number = value.iter().fold(0_u64, |n, b| n.saturating_mul(10) + u64::from(b - b'0'));
            self.length = Some(number);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::Coding);
            }
            self.chunked = true;
        }
        Ok(())
    }

    fn framing(&self) -> Result<State, Malformed> {
        if self.chunked && self.length.is_some() {
            return Err(Malformed::TwoLengths);
        }
        if self.chunked && self.old {
            return Err(Malformed::Coding);
        }
        if self.hosts == 0 && !self.old {
            return Err(Malformed::Host);
        }
        Ok(match (self.chunked, self.length) {
            (true, _) => State::Chunk(Chunk::Size { value: 0, digits: 0 }),
            (false, Some(length)) if length > 0 => State::Body(length),
            (false, _) => State::Head,
        })
    }
}

/// A character of a method or of a header's name.
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// One step through a chunked body: how many bytes it took, and where it led. `None`: the body breaks its form.
fn step(chunk: Chunk, rest: &[u8]) -> Option<(usize, State)> {
    if let Chunk::Data { left } = chunk {
        let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
        let next = if left == 0 { Chunk::DataCr } else { Chunk::Data { left } };
        return Some((taken, State::Chunk(next)));
    }
    let b = *rest.first()?;
    let next = match (chunk, b) {
        (Chunk::Size { value, digits }, b) if b.is_ascii_hexdigit() => {
            let digit = char::from(b).to_digit(16)?;
            if digits >= CHUNK_DIGITS_MAX {
                return None;
            }
            Chunk::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
        }
        (Chunk::Size { digits: 0, .. }, _) => return None,
        (Chunk::Size { value, .. } | Chunk::Extension { value, .. }, b'\r') => Chunk::SizeLf { value },
        (Chunk::Size { value, .. }, b';') => Chunk::Extension { value, used: 0 },
        (Chunk::Extension { value, used }, b) if b >= 0x20 && used < CHUNK_EXTRA_MAX => {
            Chunk::Extension { value, used: used + 1 }
        }
        (Chunk::SizeLf { value: 0 }, b'\n') => Chunk::Trailer { used: 0, empty: true },
        (Chunk::SizeLf { value }, b'\n') => Chunk::Data { left: value },
        (Chunk::DataCr, b'\r') => Chunk::DataLf,
        (Chunk::DataLf, b'\n') => Chunk::Size { value: 0, digits: 0 },
        (Chunk::Trailer { used, empty }, b'\r') => Chunk::TrailerLf { used, empty },
        (Chunk::Trailer { used, .. }, b) if b != b'\n' && used < CHUNK_EXTRA_MAX => {
            Chunk::Trailer { used: used + 1, empty: false }
        }
        (Chunk::TrailerLf { empty: true, .. }, b'\n') => return Some((1, State::Head)),
        (Chunk::TrailerLf { used, empty: false }, b'\n') => Chunk::Trailer { used, empty: true },
        _ => return None,
    };
    Some((1, State::Chunk(next)))
}

impl<S: AsyncRead + Unpin> AsyncRead for Screen<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.stream.ahead().is_empty() {
                return Pin::new(&mut this.stream).poll_read(cx, buf);
            }
            if this.over {
                // The answer says that it is the last; the connection ends with it.
                return Poll::Pending;
            }
            let before = buf.filled().len();
            let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buf) else {
                return this.wait(cx);
            };
            read?;
            let new = buf.filled().get(before..).unwrap_or_default();
            if new.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let passed = this.sift(new);
            buf.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

writes_through!(Screen);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    const BOUNDS: HeadBounds = HeadBounds { bytes: 1_000, lines: 8 };
    const PATIENCE: Duration = Duration::from_secs(10);

    /// What the library behind it would read, with the bytes coming in pieces of `step`; whether it waits at the end.
    async fn through(bytes: &[u8], step: usize) -> Vec<u8> {
        let mut io = tokio_test_io(bytes, step);
        let mut out = Vec::new();
        let mut piece = [0; 64];
        loop {
            let reading = std::pin::pin!(io.read(&mut piece));
            match futures_now(reading) {
                Some(Ok(0) | Err(_)) | None => return out,
                Some(Ok(n)) => out.extend_from_slice(&piece[..n]),
            }
        }
    }

    fn futures_now<F: std::future::Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    struct Pieces(std::collections::VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let rest = piece.split_off(piece.len().min(buf.remaining()));
                buf.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    fn tokio_test_io(bytes: &[u8], step: usize) -> Screen<Pieces> {
        Screen::alone(Pieces(bytes.chunks(step).map(<[u8]>::to_vec).collect()), BOUNDS, PATIENCE)
    }

    fn refused(out: &[u8]) -> Option<Malformed> {
        let text = String::from_utf8_lossy(out);
        let (_, after) = text.split_once("x-tollbook-refused: ")?;
        Malformed::read(after.split("\r\n").next()?).map(|(why, _)| why)
    }

    #[tokio::test]
    async fn what_is_well_formed_passes_byte_for_byte_at_any_split() {
        let post = "POST /v1/x?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel\nx";
        let chunks = "POST / HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n1F\r\n0123456789012345678901234567890\r\n0\r\nt: v\r\n\r\n";
        let get = "GET http://x/ HTTP/1.1\r\nhost: x\r\nx-empty:\r\nx-high: \u{e4}\r\n\r\n";
        let old = "GET / HTTP/1.0\r\n\r\n";
        for text in [
            post.to_owned(),
            chunks.to_owned(),
            get.to_owned(),
            old.to_owned(),
            format!("\r\n\r\n{post}\r\n{chunks}{get}{post}{old}"),
            format!("{}{post}", "\r\n".repeat(BOUNDS.lines)),
        ] {
            for step in [1, 2, 3, 7, 50, 10_000] {
                assert_eq!(through(text.as_bytes(), step).await, text.as_bytes(), "{text:?} by {step}");
            }
        }
    }

    #[tokio::test]
    async fn every_ambiguous_head_is_refused_at_any_split() {
        let good = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        for (head, why) in [
            ("GET / HTTP/1.1\nhost: x\n\n", Malformed::LineEnd),
            ("GET / HTTP/1.1\r\nhost: x\n\r\n", Malformed::LineEnd),
            ("GET / HTTP/1.1\r\nhost: x\r\na: b\n c: d\r\n\r\n", Malformed::LineEnd),
            ("GET / HTTP/1.1\r\nhost: x\r\na: b\r\n c\r\n\r\n", Malformed::Folded),
            ("GET / HTTP/1.1\r\n host: x\r\n\r\n", Malformed::Folded),
            ("GET / HTTP/1.1\r\nhost: x\r\na : b\r\n\r\n", Malformed::Header),
            ("GET / HTTP/1.1\r\nhost: x\r\nab\r\n\r\n", Malformed::Header),
            ("GET / HTTP/1.1\r\nhost: x\r\n: b\r\n\r\n", Malformed::Header),
            ("GET / HTTP/1.1\r\nhost: x\r\na: b\0c\r\n\r\n", Malformed::Header),
            ("GET / HTTP/1.1\r\nhost: x\r\na: b\rc\r\n\r\n", Malformed::Header),
            ("GET / HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n", Malformed::Host),
            ("GET / HTTP/1.1\r\n\r\n", Malformed::Host),
            ("GET  / HTTP/1.1\r\nhost: x\r\n\r\n", Malformed::RequestLine),
            ("GET / HTTP/1.1 \r\nhost: x\r\n\r\n", Malformed::RequestLine),
            ("GET / HTTP/2.0\r\nhost: x\r\n\r\n", Malformed::RequestLine),
            ("GET /\r\nhost: x\r\n\r\n", Malformed::RequestLine),
            ("GET /a#b HTTP/1.1\r\nhost: x\r\n\r\n", Malformed::RequestLine),
            ("GE(T / HTTP/1.1\r\nhost: x\r\n\r\n", Malformed::RequestLine),
            // One empty line more than it may have lines.
            ("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n", Malformed::RequestLine),
            (
                "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nContent-Length: 5\r\n\r\n",
                Malformed::Length,
            ),
            ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5, 5\r\n\r\n", Malformed::Length),
            ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: +5\r\n\r\n", Malformed::Length),
            ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0x5\r\n\r\n", Malformed::Length),
            ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length:\r\n\r\n", Malformed::Length),
            ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999999999999999\r\n\r\n", Malformed::Length),
            ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n", Malformed::Coding),
            ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked\r\n\r\n", Malformed::Coding),
            ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity\r\n\r\n", Malformed::Coding),
            ("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: \"chunked\"\r\n\r\n", Malformed::Coding),
            (
                "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
                Malformed::Coding,
            ),
            ("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n", Malformed::Coding),
            (
                "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
                Malformed::TwoLengths,
            ),
            (
                "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
                Malformed::TwoLengths,
            ),
        ] {
            for step in [1, 3, 10_000] {
                let out = through(head.as_bytes(), step).await;
                assert_eq!(refused(&out), Some(why), "{head:?} by {step}");
                assert!(out.starts_with(format!("POST {PATH} ").as_bytes()), "{head:?}");
                // Behind a good one the good one passes first.
                let out = through(format!("{good}{head}{good}").as_bytes(), step).await;
                assert!(out.starts_with(format!("{good}POST {PATH} ").as_bytes()), "{head:?} by {step}");
                assert_eq!(refused(&out), Some(why), "{head:?} by {step}");
            }
        }
    }

    #[tokio::test]
    async fn bounds_of_a_head_are_exact() {
        let of = |bytes: usize| {
            let used = "GET / HTTP/1.1\r\nhost: x\r\na: \r\n\r\n".len();
            format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "b".repeat(bytes - used))
        };
        assert_eq!(refused(&through(of(BOUNDS.bytes).as_bytes(), 64).await), None);
        assert_eq!(refused(&through(of(BOUNDS.bytes + 1).as_bytes(), 64).await), Some(Malformed::TooLarge));
        let endless = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(5_000));
        assert_eq!(refused(&through(endless.as_bytes(), 64).await), Some(Malformed::TooLarge));
        let lines = |n: usize| format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(n - 1));
        assert_eq!(refused(&through(lines(BOUNDS.lines).as_bytes(), 64).await), None);
        assert_eq!(refused(&through(lines(BOUNDS.lines + 1).as_bytes(), 64).await), Some(Malformed::TooMany));
    }

    #[tokio::test]
    async fn unfinished_heads_of_all_connections_are_bounded() {
        const LARGE: HeadBounds = HeadBounds { bytes: 64 << 10, lines: 100 };
        let budget = Budget::new(100 << 10);
        let open = |bytes: usize, end: &str| {
            let text = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}{end}", "b".repeat(bytes));
            let pieces = text.as_bytes().chunks(1000).map(<[u8]>::to_vec).collect();
            Screen::new(Pieces(pieces), Heads { bounds: LARGE, patience: PATIENCE, share: budget.share() })
        };
        let mut buffer = vec![0; 200 << 10];
        let mut read = |screen: &mut Screen<Pieces>| {
            let mut buf = ReadBuf::new(&mut buffer);
            let _ = Pin::new(screen).poll_read(&mut Context::from_waker(std::task::Waker::noop()), &mut buf);
            String::from_utf8(buf.filled().to_vec()).unwrap()
        };
        let mut first = open(60 << 10, "");
        assert_eq!(read(&mut first), "");
        assert!(first.heads.share.bytes() >= 56 << 10);
        // The second finds no room once it is larger than what is free to all.
        let mut second = open(60 << 10, "");
        assert_eq!(refused(read(&mut second).as_bytes()), Some(Malformed::Busy));
        assert_eq!((second.heads.share.bytes(), second.partial.capacity()), (0, 0));
        let small: Vec<_> = (0..50).map(|_| open(3 << 10, "")).map(|mut s| (read(&mut s), s)).collect();
        assert!(small.iter().all(|(out, s)| out.is_empty() && s.heads.share.bytes() == 0 && !s.over));
        // A head that ends gives its room back.
        drop(first);
        let mut third = open(60 << 10, "\r\n\r\n");
        assert!(read(&mut third).ends_with("b\r\n\r\n"));
        assert_eq!(third.heads.share.bytes(), 0);
    }

    /// A head has its time from its first byte, however it trickles; between two there is no limit here.
    #[tokio::test(start_paused = true)]
    async fn heads_that_do_not_end_have_their_time() {
        use tokio::io::AsyncWriteExt;
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let mut screen = Screen::alone(server, BOUNDS, PATIENCE);
        let mut read = [0; 256];
        tokio::time::sleep(PATIENCE / 2).await;
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert!(screen.read(&mut read).await.unwrap() > 0);
        assert!(tokio::time::timeout(PATIENCE * 50, screen.read(&mut read)).await.is_err(), "it is idle");
        client.write_all(b"GET").await.unwrap();
        for _ in 0..9 {
            assert!(tokio::time::timeout(PATIENCE / 10, screen.read(&mut read)).await.is_err());
            client.write_all(b"x").await.unwrap();
        }
        let error = screen.read(&mut read).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // The first has it from the beginning on, whatever empty lines come before it.
        for lines in ["", "\r\n", "\r\n\r\n\r\n", "\r\n\r"] {
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let mut screen = Screen::alone(server, BOUNDS, PATIENCE);
            client.write_all(lines.as_bytes()).await.unwrap();
            let begun = tokio::time::Instant::now();
            let error = loop {
                match screen.read(&mut read).await {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!((error.kind(), begun.elapsed() < PATIENCE * 11 / 10), (io::ErrorKind::TimedOut, true));
        }
    }

    /// Empty lines between two heads neither end a connection nor shorten the next head's time, and go no further alone.
    #[tokio::test(start_paused = true)]
    async fn empty_lines_between_heads_leave_the_next_its_time() {
        use tokio::io::AsyncWriteExt;
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let mut screen = Screen::alone(server, BOUNDS, PATIENCE);
        let mut read = [0; 256];
        for round in 0..3 {
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            assert!(screen.read(&mut read).await.unwrap() > 2, "round {round}");
            for byte in [b"\r", b"\n"] {
                client.write_all(byte).await.unwrap();
                let waits = tokio::time::timeout(PATIENCE * 5, screen.read(&mut read)).await;
                assert!(waits.is_err(), "round {round}: it is idle");
            }
            client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            let waits = tokio::time::timeout(PATIENCE * 9 / 10, screen.read(&mut read)).await;
            assert!(waits.is_err(), "round {round}: its time has only begun");
            client.write_all(b"host: x\r\n\r\n").await.unwrap();
            assert!(screen.read(&mut read).await.unwrap() > 2, "round {round}");
        }
    }

    #[tokio::test]
    async fn a_chunked_body_that_breaks_its_form_goes_no_further() {
        let head = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        for body in [
            "5\nhello\r\n",
            "5 \r\nhello\r\n",
            "0x5\r\nhello\r\n",
            "\r\nhello",
            "-5\r\n",
            "5\r\nhello!\r\n",
            "5;a\nb\r\nhello\r\n",
            "1000000000000\r\n",
            "0\r\na: b\nc: d\r\n\r\n",
        ] {
            let smuggled = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
            for step in [1, 10_000] {
                let out = through(format!("{head}{body}{smuggled}").as_bytes(), step).await;
                assert_eq!(out.last(), Some(&0x01), "{body:?}");
                assert!(!String::from_utf8_lossy(&out).contains("smuggled"), "{body:?}");
            }
        }
    }
}
