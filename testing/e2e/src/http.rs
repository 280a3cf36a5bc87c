//! A blocking HTTP/1.1 client over a bare socket, so that a test decides each byte, each pause and each close.
//!
//! Invariants: every read has a deadline; an answer says whether its body was complete; nothing is retried.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

pub const LIMIT: Duration = Duration::from_secs(20);
const HEADERS_MAX: usize = 128;
const READ_BYTES: usize = 16 * 1024;
/// Relayed in the pieces in which it was sent, so no chunk framing stands inside.
const EVENT: &[u8] = b"\ndata:";
const GOOD: &[u8] = b"HTTP/1.1 200";

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body ended where its framing said.
    pub complete: bool,
}

impl Answer {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Null if the body is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// One connection, for any number of calls.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    ahead: Vec<u8>,
}

impl Connection {
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self { stream, ahead: Vec::new() })
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a whole call; `headers` are added to host, content type and length.
    pub fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
        let length = body.len().to_string();
        let mut all = head("POST", path, headers);
        all.truncate(all.len().saturating_sub(2));
        all.extend_from_slice(
            format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n").as_bytes(),
        );
        all.extend_from_slice(body);
        self.send(&all)
    }

    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        self.send(&head("GET", path, headers))
    }

    /// Reads until `mark` has been received (head included) and returns all that was; nothing is consumed.
    pub fn read_until(&mut self, mark: &str) -> io::Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let text = String::from_utf8_lossy(&self.ahead).into_owned();
            if text.contains(mark) {
                return Ok(text);
            }
            if self.more(deadline)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("no {mark:?} in {text:?}")));
            }
        }
    }

    /// Reads until so many lines of an event stream have been received that begin with `data:`; nothing is consumed.
    /// A refusal, which has none, is an error.
    pub fn read_events(&mut self, count: usize) -> io::Result<()> {
        let deadline = Instant::now() + LIMIT;
        while self.ahead.windows(EVENT.len()).filter(|bytes| *bytes == EVENT).count() < count {
            if self.ahead.len() >= GOOD.len() && !self.ahead.starts_with(GOOD) {
                return Err(io::Error::other("no stream"));
            }
            if self.more(deadline)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// The next answer. An error is a connection that broke within the head, or silence beyond the limit.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let deadline = Instant::now() + LIMIT;
        let (status, headers) = loop {
            if let Some((status, headers, length)) = parse_head(&self.ahead)? {
                self.ahead.drain(..length);
                if status != 100 {
                    break (status, headers);
                }
            } else if self.more(deadline)? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "connection ended before an answer",
                ));
            }
        };
        let mut answer = Answer { status, headers, body: Vec::new(), complete: false };
        match self.body(&mut answer, deadline) {
            Ok(()) => answer.complete = true,
            Err(error) if timed_out(&error) => return Err(error),
            Err(_) => {}
        }
        Ok(answer)
    }

    fn body(&mut self, answer: &mut Answer, deadline: Instant) -> io::Result<()> {
        let chunked = answer
            .header("transfer-encoding")
            .is_some_and(|coding| coding.to_ascii_lowercase().contains("chunked"));
        let length = answer.header("content-length").map(str::parse::<usize>);
        if chunked {
            loop {
                // A stream may take long; it may not be silent for long.
                let deadline = Instant::now() + LIMIT;
                let line = self.line(deadline)?;
                let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
                    .map_err(|_| io::Error::other("bad chunk size"))?;
                if size == 0 {
                    while !self.line(deadline)?.is_empty() {}
                    return Ok(());
                }
                self.take(size, &mut answer.body, deadline)?;
                self.line(deadline)?;
            }
        }
        match length {
            Some(Ok(length)) => self.take(length, &mut answer.body, deadline),
            Some(Err(_)) => Err(io::Error::other("bad content-length")),
            None => {
                answer.body.append(&mut self.ahead);
                while self.more(deadline)? > 0 {
                    answer.body.append(&mut self.ahead);
                }
                Ok(())
            }
        }
    }

    fn line(&mut self, deadline: Instant) -> io::Result<String> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|two| two == b"\r\n") {
                let line = self.ahead.drain(..end).collect();
                self.ahead.drain(..2);
                return String::from_utf8(line).map_err(io::Error::other);
            }
            if self.more(deadline)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Moves `length` bytes into `body`, or as many as there are.
    fn take(&mut self, length: usize, body: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
        let mut left = length;
        loop {
            let now = left.min(self.ahead.len());
            body.extend(self.ahead.drain(..now));
            left = left.saturating_sub(now);
            if left == 0 {
                return Ok(());
            }
            if self.more(deadline)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn more(&mut self, deadline: Instant) -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(left))?;
        let mut bytes = vec![0; READ_BYTES];
        let count = self.stream.read(&mut bytes)?;
        self.ahead.extend(bytes.into_iter().take(count));
        Ok(count)
    }

    /// True if the other side has closed or reset, within the limit.
    pub fn ends(&mut self) -> bool {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.more(deadline) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !timed_out(&error),
            }
        }
    }

    /// A TCP reset instead of an orderly close.
    pub fn reset(self) {
        // A socket that refuses this is closed in the orderly way, which the test will notice.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}

fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut lines = vec![format!("{method} {path} HTTP/1.1"), "host: e2e".to_owned()];
    lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
    (lines.join("\r\n") + "\r\n\r\n").into_bytes()
}

fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

type Head = (u16, Vec<(String, String)>, usize);

fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes).map_err(io::Error::other)? {
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete(length) => {
            let headers = response
                .headers
                .iter()
                .map(|header| (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned()))
                .collect();
            Ok(Some((response.code.unwrap_or_default(), headers, length)))
        }
    }
}

/// One call on a connection of its own, with a bearer key.
pub fn post(addr: SocketAddr, path: &str, api_key: &str, body: &Value) -> io::Result<Answer> {
    let mut connection = Connection::open(addr)?;
    let bearer = format!("Bearer {api_key}");
    connection.post(path, &[("authorization", &bearer)], body.to_string().as_bytes())?;
    connection.answer()
}

pub fn get(addr: SocketAddr, path: &str, api_key: &str) -> io::Result<Answer> {
    let mut connection = Connection::open(addr)?;
    let bearer = format!("Bearer {api_key}");
    connection.get(path, &[("authorization", &bearer)])?;
    connection.answer()
}

/// Runs `work` in that many threads, let go at the same instant.
pub fn together<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(count);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    work(index)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

/// Sum over all lines of one metric whose labels contain each of `labels` (as `name="value"`); fractions are cut off.
pub fn metric(exposition: &str, name: &str, labels: &[&str]) -> Option<u64> {
    let values: Vec<u64> = exposition
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with('{') || rest.starts_with(' '))
        .filter(|rest| labels.iter().all(|label| rest.contains(label)))
        .filter_map(|rest| rest.rsplit(' ').next()?.split('.').next()?.parse().ok())
        .collect();
    if values.is_empty() { None } else { Some(values.iter().sum()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_matching_lines() {
        let text = "# HELP calls x\ncalls_total{a=\"1\",b=\"2\"} 3\ncalls_total{a=\"1\",b=\"3\"} 4.0\ncalls_total_more 9\nup 1\n";
        assert_eq!(metric(text, "calls_total", &["a=\"1\""]), Some(7));
        assert_eq!(metric(text, "calls_total", &["b=\"3\""]), Some(4));
        assert_eq!(metric(text, "calls_total", &["b=\"9\""]), None);
        assert_eq!(metric(text, "up", &[]), Some(1));
    }
}
