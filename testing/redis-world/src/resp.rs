//! As much of the servers' protocol as tests need to look into a server and to order it about.
//!
//! Invariants: blocking, with a bound on every wait; a reply that cannot be read is an error, never a guess.

use std::io::{self, BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Deepest nesting of a reply that is read.
const DEPTH_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Simple and bulk strings alike.
    Text(Vec<u8>),
    Int(i64),
    Array(Vec<Reply>),
    Error(String),
    Nil,
}

impl Reply {
    /// The text, or the number as text; empty for anything else.
    pub fn text(&self) -> String {
        match self {
            Self::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Int(number) => number.to_string(),
            Self::Error(error) => error.clone(),
            Self::Array(_) | Self::Nil => String::new(),
        }
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Text(bytes) => String::from_utf8_lossy(bytes).parse().ok(),
            _ => None,
        }
    }

    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// No wait on it is longer than `limit`.
    pub fn connect(addr: SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command and reads its reply.
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.send(words)?;
        self.read()
    }

    /// Sends one command and reads nothing.
    pub fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// Reads one reply.
    pub fn read(&mut self) -> io::Result<Reply> {
        read(&mut self.stream, DEPTH_MAX)
    }
}

fn read(from: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut chars = line.chars();
    let kind = chars.next();
    let rest = chars.as_str();
    let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line:?}"));
    let number = || rest.parse::<i64>().map_err(|_| bad());
    match kind {
        Some('+') => Ok(Reply::Text(rest.as_bytes().to_vec())),
        Some('-') => Ok(Reply::Error(rest.to_owned())),
        Some(':') => Ok(Reply::Int(number()?)),
        Some('$') => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Reply::Nil) };
            let mut bytes = vec![0; length + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Reply::Text(bytes))
        }
        Some('*') => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Reply::Nil) };
            let depth = depth.checked_sub(1).ok_or_else(bad)?;
            let items: io::Result<Vec<Reply>> = (0..length).map(|_| read(from, depth)).collect();
            Ok(Reply::Array(items?))
        }
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read() {
        let mut bytes: &[u8] = b"*5\r\n+OK\r\n:-3\r\n$4\r\na\r\nb\r\n$-1\r\n*1\r\n-ERR no\r\n+next\r\n";
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        let inner = Reply::Array(vec![Reply::Error("ERR no".to_owned())]);
        let want = Reply::Array(vec![text("OK"), Reply::Int(-3), text("a\r\nb"), Reply::Nil, inner]);
        assert_eq!(read(&mut bytes, DEPTH_MAX).unwrap(), want);
        assert_eq!(read(&mut bytes, DEPTH_MAX).unwrap(), text("next"));
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for bytes in [&b"hello\r\n"[..], b"$5\r\nabc", b":x\r\n", b"", b"+cut"] {
            assert!(read(&mut &*bytes, DEPTH_MAX).is_err(), "{bytes:?}");
        }
        let deep = "*1\r\n".repeat(DEPTH_MAX + 1);
        assert!(read(&mut deep.as_bytes(), DEPTH_MAX).is_err());
    }
}
