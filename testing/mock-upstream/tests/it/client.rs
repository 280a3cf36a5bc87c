//! A client made of a bare socket, so that a test decides each byte and each close.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(addr).await.unwrap(), buffer: Vec::new() }
    }

    pub(crate) async fn post(&mut self, path: &str, headers: &str, body: &str) {
        let length = body.len();
        let text =
            format!("POST {path} HTTP/1.1\r\nhost: mock\r\n{headers}content-length: {length}\r\n\r\n{body}");
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str, headers: &str) {
        let text = format!("GET {path} HTTP/1.1\r\nhost: mock\r\n{headers}\r\n");
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until `mark` has been seen.
    pub(crate) async fn read_until(&mut self, mark: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.buffer).into_owned();
            if text.contains(mark) {
                return text;
            }
            assert!(self.more().await > 0, "connection ended before {mark:?}: {text}");
        }
    }

    /// Everything up to the end of the connection; false if it was reset.
    pub(crate) async fn read_to_end(&mut self) -> (Vec<u8>, bool) {
        let mut rest = std::mem::take(&mut self.buffer);
        let clean = timeout(LIMIT, self.stream.read_to_end(&mut rest)).await.unwrap().is_ok();
        (rest, clean)
    }

    async fn more(&mut self) -> usize {
        timeout(LIMIT, self.stream.read_buf(&mut self.buffer)).await.expect("answer in time").unwrap()
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        self.read_until("\r\n\r\n").await;
        let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let body = match length {
            Some(length) => self.take(length.parse().unwrap()).await,
            None => self.chunks().await,
        };
        Answer { status, head, body }
    }

    async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.more().await > 0, "body was cut");
        }
        self.buffer.drain(..length).collect()
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                    break end;
                }
                assert!(self.more().await > 0, "body was cut");
            };
            let line: Vec<u8> = self.take(end + 2).await;
            let size = usize::from_str_radix(std::str::from_utf8(&line[..end]).unwrap(), 16).unwrap();
            body.extend(self.take(size).await);
            self.take(2).await;
            if size == 0 {
                return body;
            }
        }
    }
}
