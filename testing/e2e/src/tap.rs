//! A wire between clients and the gateway that writes down what passes and changes nothing.
//!
//! It proves from outside what a client did: how often it asked, with which key, what it was told and how long it waited.
//! Invariants: bytes are forwarded as they came, both ways; the record is kept from a copy, one entry per request in the
//! order in which their heads came. A connection whose bytes cannot be followed is still forwarded, but the entry that
//! could not be read says so by its missing status.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const READ_BYTES: usize = 16 * 1024;
const HEADERS_MAX: usize = 128;

/// One request and the head of its answer.
#[derive(Debug, Clone)]
pub struct Passed {
    pub path: String,
    /// From `authorization` or `x-api-key`, without the scheme.
    pub api_key: String,
    /// When the request's head had come.
    pub asked: Instant,
    /// When the answer's head had come.
    pub answered: Option<Instant>,
    pub status: Option<u16>,
    headers: Vec<(String, String)>,
}

impl Passed {
    /// A header of the answer.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    #[cfg(test)]
    pub(crate) fn made(path: &str, asked: Instant, status: u16) -> Self {
        Self {
            path: path.to_owned(),
            api_key: String::new(),
            asked,
            answered: Some(asked),
            status: Some(status),
            headers: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn told(mut self, wait_ms: u64) -> Self {
        self.headers.push(("retry-after-ms".to_owned(), wait_ms.to_string()));
        self
    }

    /// The wait that the answer asks for, at the finest it tells.
    pub fn wait(&self) -> Option<Duration> {
        let number = |name| self.header(name).and_then(|value| value.parse::<u64>().ok());
        let fine = number("retry-after-ms").map(Duration::from_millis);
        fine.or_else(|| number("retry-after").map(Duration::from_secs))
    }
}

/// Listens until the process ends; tests have a process each.
#[derive(Debug)]
pub struct Tap {
    addr: SocketAddr,
    record: Record,
}

impl Tap {
    pub fn start(gateway: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let tap = Self { addr: listener.local_addr()?, record: Record::default() };
        let record = tap.record.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let record = record.clone();
                std::thread::spawn(move || connect(&client, gateway, &record));
            }
        });
        Ok(tap)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What passed with this key, in order.
    pub fn passed(&self, api_key: &str) -> Vec<Passed> {
        self.record.lock().iter().filter(|passed| passed.api_key == api_key).cloned().collect()
    }
}

#[derive(Debug, Clone, Default)]
struct Record(Arc<Mutex<Vec<Passed>>>);

impl Record {
    fn lock(&self) -> MutexGuard<'_, Vec<Passed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, passed: Passed) -> usize {
        let mut all = self.lock();
        all.push(passed);
        all.len().saturating_sub(1)
    }

    fn answer(&self, place: usize, status: u16, headers: Vec<(String, String)>) {
        if let Some(passed) = self.lock().get_mut(place) {
            passed.answered = Some(Instant::now());
            passed.status = Some(status);
            passed.headers = headers;
        }
    }
}

/// Requests of one connection that have no answer yet, oldest first.
type Waiting = Arc<Mutex<std::collections::VecDeque<usize>>>;

fn connect(client: &TcpStream, gateway: SocketAddr, record: &Record) {
    let Ok(server) = TcpStream::connect(gateway) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let waiting = Waiting::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut requests = Follow::default();
            forward(client, &server, |bytes| {
                for head in requests.take(bytes, request_head) {
                    let place = record.open(passed(head));
                    waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(place);
                }
            });
        });
        let mut answers = Follow::default();
        forward(&server, client, |bytes| {
            for head in answers.take(bytes, answer_head) {
                // An interim answer belongs to the one that follows.
                if head.status == 100 {
                    continue;
                }
                let place = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                if let Some(place) = place {
                    record.answer(place, head.status, head.headers);
                }
            }
        });
    });
}

/// Hands on until the end, which is handed on too.
fn forward(mut from: &TcpStream, mut to: &TcpStream, mut look: impl FnMut(&[u8])) {
    let mut bytes = vec![0; READ_BYTES];
    while let Ok(count) = from.read(&mut bytes) {
        let part = bytes.get(..count).unwrap_or_default();
        // Looked at first: what was written down is complete when the other side has its answer.
        look(part);
        if part.is_empty() || to.write_all(part).is_err() {
            break;
        }
    }
    // A side that has ended ends the other; nothing more can be said to it.
    let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
}

/// A head that was read, and how its body is framed.
#[derive(Debug, Default)]
struct Head {
    path: String,
    status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    fn body(&self) -> Body {
        let coding = self.header("transfer-encoding").unwrap_or_default();
        if coding.to_ascii_lowercase().contains("chunked") {
            return Body::Size(Vec::new());
        }
        let length = self.header("content-length").and_then(|length| length.parse().ok());
        Body::Length(length.unwrap_or(0))
    }
}

#[derive(Debug)]
enum Body {
    Length(usize),
    /// A line with the size of a chunk, as far as it came.
    Size(Vec<u8>),
    /// A chunk with its line end.
    Chunk(usize),
    /// The lines behind the last chunk.
    Trailer(Vec<u8>),
}

/// Follows the messages of one direction.
#[derive(Debug, Default)]
struct Follow {
    head: Vec<u8>,
    body: Option<Body>,
}

type ReadHead = fn(&[u8]) -> Option<(Head, usize)>;

impl Follow {
    fn take(&mut self, bytes: &[u8], read: ReadHead) -> Vec<Head> {
        let mut heads = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(body) = self.body.take() else {
                let before = self.head.len();
                self.head.extend_from_slice(rest);
                let Some((head, length)) = read(&self.head) else { return heads };
                rest = rest.get(length.saturating_sub(before)..).unwrap_or_default();
                self.head.clear();
                self.body = Some(head.body());
                heads.push(head);
                continue;
            };
            (self.body, rest) = body.skip(rest);
        }
        heads
    }
}

impl Body {
    /// What is left of the body, and of the bytes.
    fn skip(self, bytes: &[u8]) -> (Option<Self>, &[u8]) {
        let after = |count: usize| bytes.get(count.min(bytes.len())..).unwrap_or_default();
        match self {
            Self::Length(left) | Self::Chunk(left) if left > bytes.len() => {
                let left = left.saturating_sub(bytes.len());
                let rest =
                    if matches!(self, Self::Length(_)) { Self::Length(left) } else { Self::Chunk(left) };
                (Some(rest), &[])
            }
            Self::Length(left) => (None, after(left)),
            Self::Chunk(left) => (Some(Self::Size(Vec::new())), after(left)),
            Self::Size(mut line) => match line_end(&mut line, bytes) {
                None => (Some(Self::Size(line)), &[]),
                Some(count) => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    let digits = text.split(';').next().unwrap_or_default().trim().to_owned();
                    match usize::from_str_radix(&digits, 16) {
                        Ok(size) if size > 0 => (Some(Self::Chunk(size.saturating_add(2))), after(count)),
                        _ => (Some(Self::Trailer(Vec::new())), after(count)),
                    }
                }
            },
            Self::Trailer(mut line) => match line_end(&mut line, bytes) {
                None => (Some(Self::Trailer(line)), &[]),
                Some(count) if line == b"\r\n" => (None, after(count)),
                Some(count) => (Some(Self::Trailer(Vec::new())), after(count)),
            },
        }
    }
}

/// Adds to the line up to its end; how many bytes that took, none if the end has not come.
fn line_end(line: &mut Vec<u8>, bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at.saturating_add(1));
    line.extend_from_slice(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default());
    end
}

fn request_head(bytes: &[u8]) -> Option<(Head, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = complete(request.parse(bytes))?;
    let path = request.path.unwrap_or_default().to_owned();
    Some((Head { path, status: 0, headers: owned(request.headers) }, length))
}

fn answer_head(bytes: &[u8]) -> Option<(Head, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let length = complete(answer.parse(bytes))?;
    let status = answer.code.unwrap_or_default();
    Some((Head { path: String::new(), status, headers: owned(answer.headers) }, length))
}

fn complete(parsed: httparse::Result<usize>) -> Option<usize> {
    match parsed {
        Ok(httparse::Status::Complete(length)) => Some(length),
        Ok(httparse::Status::Partial) | Err(_) => None,
    }
}

fn owned(headers: &[httparse::Header<'_>]) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers.iter().map(|header| (header.name.to_owned(), text(header.value))).collect()
}

fn passed(head: Head) -> Passed {
    let bearer = head.header("authorization").map(|value| value.strip_prefix("Bearer ").unwrap_or(value));
    let api_key = bearer.or_else(|| head.header("x-api-key")).unwrap_or_default().to_owned();
    Passed {
        path: head.path,
        api_key,
        asked: Instant::now(),
        answered: None,
        status: None,
        headers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_followed_however_they_are_cut() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc\
            HTTP/1.1 429 No\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: 1\r\n\r\n\
            HTTP/1.1 204 None\r\nretry-after: 2\r\n\r\n";
        for size in 1..bytes.len() {
            let mut follow = Follow::default();
            let heads: Vec<Head> =
                bytes.chunks(size).flat_map(|part| follow.take(part, answer_head)).collect();
            let statuses: Vec<u16> = heads.iter().map(|head| head.status).collect();
            assert_eq!(statuses, [200, 429, 204], "{size}");
            assert_eq!(heads[2].header("Retry-After"), Some("2"));
        }
    }
}
