//! Just enough HTTP/1.1 on a bare socket to know, write by write, what has left and when the client was gone.
//!
//! Invariants: heads and bodies are bounded; framing that two readers could understand differently is refused; bytes
//! that arrive while an answer is being written are kept for the next call.
//! A client that closes or resets while it is owed an answer counts as gone; half-closed clients do not exist here.

use std::io;

use bytes::{Buf as _, BytesMut};
use tokio::net::TcpStream;

pub(crate) const HEAD_BYTES_MAX: usize = 256 * 1024;
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
const HEADERS_MAX: usize = 512;
const AHEAD_BYTES_MAX: usize = 1024 * 1024;
const CHUNK_LINE_BYTES_MAX: usize = 4096;

/// How a client left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    Closed,
    Reset,
}

#[derive(Debug)]
pub(crate) enum ReadError {
    Gone(Gone),
    /// What was received is not acceptable; status and reason.
    Bad(u16, &'static str),
}

impl From<io::Error> for ReadError {
    fn from(_: io::Error) -> Self {
        Self::Gone(Gone::Reset)
    }
}

#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) keep_alive: bool,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    ahead: BytesMut,
    gone: Option<Gone>,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, ahead: BytesMut::new(), gone: None }
    }

    /// Waits for the first byte of a call.
    pub(crate) async fn wait_for_call(&mut self) -> Result<(), Gone> {
        while self.ahead.is_empty() {
            self.fill().await?;
        }
        Ok(())
    }

    pub(crate) async fn read_head(&mut self) -> Result<RequestHead, ReadError> {
        loop {
            if let Some((head, length)) = parse_head(&self.ahead)? {
                self.ahead.advance(length);
                return Ok(head);
            }
            if self.ahead.len() >= HEAD_BYTES_MAX {
                return Err(ReadError::Bad(431, "head too large"));
            }
            self.fill().await.map_err(ReadError::Gone)?;
        }
    }

    pub(crate) async fn read_body(&mut self, head: &RequestHead) -> Result<BytesMut, ReadError> {
        let framing = body_framing(&head.headers)?;
        let expects = head.headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("expect") && value.eq_ignore_ascii_case("100-continue")
        });
        if expects && framing != RequestBody::Length(0) {
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(ReadError::Gone)?;
        }
        match framing {
            RequestBody::Length(length) if length > BODY_BYTES_MAX => {
                Err(ReadError::Bad(413, "body too large"))
            }
            RequestBody::Length(length) => self.take(length).await,
            RequestBody::Chunked => self.read_chunks().await,
        }
    }

    async fn take(&mut self, length: usize) -> Result<BytesMut, ReadError> {
        self.ahead.reserve(length.saturating_sub(self.ahead.len()));
        while self.ahead.len() < length {
            self.fill().await.map_err(ReadError::Gone)?;
        }
        Ok(self.ahead.split_to(length))
    }

    async fn read_chunks(&mut self) -> Result<BytesMut, ReadError> {
        let mut body = BytesMut::new();
        loop {
            let line = self.line().await?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size =
                usize::from_str_radix(digits, 16).map_err(|_| ReadError::Bad(400, "bad chunk size"))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            if body.len().saturating_add(size) > BODY_BYTES_MAX {
                return Err(ReadError::Bad(413, "body too large"));
            }
            body.extend_from_slice(&self.take(size).await?);
            if !self.line().await?.is_empty() {
                return Err(ReadError::Bad(400, "chunk longer than its size"));
            }
        }
    }

    async fn line(&mut self) -> Result<String, ReadError> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.ahead.split_to(end);
                self.ahead.advance(2);
                return String::from_utf8(line.to_vec()).map_err(|_| ReadError::Bad(400, "bad chunk line"));
            }
            if self.ahead.len() > CHUNK_LINE_BYTES_MAX {
                return Err(ReadError::Bad(400, "chunk line too long"));
            }
            self.fill().await.map_err(ReadError::Gone)?;
        }
    }

    /// Reads at least one byte.
    async fn fill(&mut self) -> Result<(), Gone> {
        loop {
            if let Some(gone) = self.gone {
                return Err(gone);
            }
            if self.stream.readable().await.is_err() {
                self.gone = Some(Gone::Reset);
            } else if self.read_now() {
                return Ok(());
            }
        }
    }

    /// Takes what is there; true if there was something.
    fn read_now(&mut self) -> bool {
        match self.stream.try_read_buf(&mut self.ahead) {
            Ok(0) => self.gone = Some(Gone::Closed),
            Ok(_) => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.gone = Some(Gone::Reset),
        }
        false
    }

    /// Whether the client is known to be gone, now.
    pub(crate) fn look(&mut self) -> Option<Gone> {
        while self.gone.is_none() && self.ahead.len() < AHEAD_BYTES_MAX && self.read_now() {}
        self.gone
    }

    /// What has been seen, without looking again.
    pub(crate) fn known_gone(&self) -> Option<Gone> {
        self.gone
    }

    /// Ends when the client is gone.
    pub(crate) async fn gone(&mut self) -> Gone {
        loop {
            if let Some(gone) = self.look() {
                return gone;
            }
            if self.ahead.len() >= AHEAD_BYTES_MAX {
                // A client that writes megabytes ahead is not watched any longer; its writes will fail instead.
                std::future::pending::<()>().await;
            }
            if self.stream.readable().await.is_err() {
                self.gone = Some(Gone::Reset);
            }
        }
    }

    /// Hands all bytes to the kernel.
    pub(crate) async fn send(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            if self.stream.writable().await.is_err() {
                return Err(self.lost());
            }
            match self.stream.try_write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(self.lost()),
            }
        }
        Ok(())
    }

    fn lost(&mut self) -> Gone {
        self.gone = Some(Gone::Reset);
        Gone::Reset
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<(RequestHead, usize)>, ReadError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ReadError::Bad(431, "too many headers")),
        Err(_) => return Err(ReadError::Bad(400, "not an http/1 request")),
    };
    let headers: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|header| (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned()))
        .collect();
    let closes = headers.iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("connection") && value.to_ascii_lowercase().contains("close")
    });
    let head = RequestHead {
        method: request.method.unwrap_or_default().to_owned(),
        target: request.path.unwrap_or_default().to_owned(),
        keep_alive: request.version == Some(1) && !closes,
        headers,
    };
    Ok(Some((head, length)))
}

#[derive(Debug, PartialEq, Eq)]
enum RequestBody {
    Length(usize),
    Chunked,
}

fn body_framing(headers: &[(String, String)]) -> Result<RequestBody, ReadError> {
    let all = |wanted: &str| {
        headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let lengths = all("content-length");
    let codings = all("transfer-encoding");
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(RequestBody::Length(0)),
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(RequestBody::Chunked),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            length.parse().map(RequestBody::Length).map_err(|_| ReadError::Bad(400, "bad content-length"))
        }
        _ => Err(ReadError::Bad(400, "ambiguous body length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(headers: &[(&str, &str)]) -> Option<RequestBody> {
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        body_framing(&headers).ok()
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        assert_eq!(framing(&[]), Some(RequestBody::Length(0)));
        assert_eq!(framing(&[("Content-Length", "12")]), Some(RequestBody::Length(12)));
        assert_eq!(framing(&[("transfer-encoding", "Chunked")]), Some(RequestBody::Chunked));
        assert_eq!(framing(&[("content-length", "1"), ("transfer-encoding", "chunked")]), None);
        assert_eq!(framing(&[("content-length", "1"), ("content-length", "1")]), None);
        assert_eq!(framing(&[("content-length", "+1")]), None);
        assert_eq!(framing(&[("transfer-encoding", "gzip, chunked")]), None);
    }

    #[test]
    fn head_is_parsed_when_complete() {
        let text = b"POST /v1/x?a=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nrest";
        for cut in 0..text.len() - 4 {
            assert!(parse_head(&text[..cut]).unwrap().is_none(), "{cut}");
        }
        let (head, length) = parse_head(text).unwrap().unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str()), ("POST", "/v1/x?a=1"));
        assert_eq!(&text[length..], b"rest");
        assert!(!head.keep_alive);
    }
}
