//! The cheapest provider there is: fixed answers, so that almost all CPU time is left to what is measured.
//!
//! It understands as much of a body as the scenarios need: `"stream":true`, `"include_usage":true`, the number behind
//! `"max_tokens":` (chunks of a stream) and the one behind `every_ms=` anywhere (pause before each chunk).
//! Invariants: no record, no script, no check; each chunk is one write. A broken connection is dropped in silence.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

const CHUNKS_DEFAULT: u64 = 12;

/// A connection, with TLS or without.
trait Wire: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire for S {}

pub async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>) -> io::Result<()> {
    let answers = Arc::new(Answers::new());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answers = Arc::clone(&answers);
        match tls.clone() {
            None => drop(tokio::spawn(connection(stream, answers))),
            Some(tls) => drop(tokio::spawn(async move {
                match tls.accept(stream).await {
                    Ok(stream) => connection(stream, answers).await,
                    Err(_) => None,
                }
            })),
        }
    }
}

#[derive(Debug)]
struct Answers {
    plain: Vec<u8>,
    stream_head: Vec<u8>,
    chunk: Vec<u8>,
    finish: Vec<u8>,
    usage: Vec<u8>,
    done: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        let body = r#"{"id":"chatcmpl-bench","object":"chat.completion","created":0,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"The book of all calls is kept here."},"finish_reason":"stop"}],"usage":{"prompt_tokens":70,"completion_tokens":12,"total_tokens":82}}"#;
        let mut plain = String::new();
        let length = body.len();
        let _ = write!(
            plain,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let event = |choices: &str, usage: &str| {
            let data = format!(
                "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":0,\
                 \"model\":\"bench\",\"choices\":[{choices}]{usage}}}\n\n"
            );
            framed(&data)
        };
        let mut done = framed("data: [DONE]\n\n");
        done.extend_from_slice(b"0\r\n\r\n");
        Self {
            plain: plain.into_bytes(),
            stream_head:
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                    .to_vec(),
            chunk: event(r#"{"index":0,"delta":{"content":" book"},"finish_reason":null}"#, ""),
            finish: event(r#"{"index":0,"delta":{},"finish_reason":"stop"}"#, ""),
            usage: event("", r#","usage":{"prompt_tokens":70,"completion_tokens":12,"total_tokens":82}"#),
            done,
        }
    }
}

fn framed(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

async fn connection<S: Wire>(mut stream: S, answers: Arc<Answers>) -> Option<()> {
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    loop {
        let head = loop {
            if let Some(end) = memmem::find(&buffer, b"\r\n\r\n") {
                break buffer.split_to(end.saturating_add(4));
            }
            read(&mut stream, &mut buffer).await?;
        };
        let body = match number_after(&lower(&head), b"content-length: ") {
            Some(length) => {
                let length = usize::try_from(length).ok()?;
                while buffer.len() < length {
                    read(&mut stream, &mut buffer).await?;
                }
                buffer.split_to(length)
            }
            None => chunked(&mut stream, &mut buffer, &head).await?,
        };
        if memmem::find(&body, b"\"stream\":true").is_some() {
            events(&mut stream, &answers, &body).await?;
        } else {
            write(&mut stream, &answers.plain).await?;
        }
    }
}

async fn read<S: Wire>(stream: &mut S, buffer: &mut BytesMut) -> Option<()> {
    match stream.read_buf(buffer).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}

/// One write; what TLS holds back is sent too.
async fn write<S: Wire>(stream: &mut S, bytes: &[u8]) -> Option<()> {
    stream.write_all(bytes).await.ok()?;
    stream.flush().await.ok()
}

/// A body in chunks, or none at all.
async fn chunked<S: Wire>(stream: &mut S, buffer: &mut BytesMut, head: &[u8]) -> Option<BytesMut> {
    let mut body = BytesMut::new();
    if memmem::find(&lower(head), b"transfer-encoding: chunked").is_none() {
        return Some(body);
    }
    loop {
        let end = loop {
            match memmem::find(buffer, b"\r\n") {
                Some(end) => break end,
                None => read(stream, buffer).await?,
            }
        };
        let size = usize::from_str_radix(std::str::from_utf8(buffer.get(..end)?).ok()?, 16).ok()?;
        let whole = end.checked_add(size)?.checked_add(4)?;
        while buffer.len() < whole {
            read(stream, buffer).await?;
        }
        buffer.advance(end.saturating_add(2));
        body.extend_from_slice(buffer.get(..size)?);
        buffer.advance(size.saturating_add(2));
        if size == 0 {
            return Some(body);
        }
    }
}

async fn events<S: Wire>(stream: &mut S, answers: &Answers, body: &[u8]) -> Option<()> {
    let chunks = number_after(body, b"\"max_tokens\":").unwrap_or(CHUNKS_DEFAULT);
    let every = number_after(body, b"every_ms=").map(Duration::from_millis).filter(|every| !every.is_zero());
    write(stream, &answers.stream_head).await?;
    let mut ticks = every.map(tokio::time::interval);
    if let Some(ticks) = &mut ticks {
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    for _ in 0..chunks {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        write(stream, &answers.chunk).await?;
    }
    write(stream, &answers.finish).await?;
    if memmem::find(body, b"\"include_usage\":true").is_some() {
        write(stream, &answers.usage).await?;
    }
    write(stream, &answers.done).await
}

fn lower(bytes: &[u8]) -> Vec<u8> {
    bytes.to_ascii_lowercase()
}

fn number_after(bytes: &[u8], mark: &[u8]) -> Option<u64> {
    let start = memmem::find(bytes, mark)?.checked_add(mark.len())?;
    let digits: Vec<u8> = bytes.get(start..)?.iter().copied().take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found() {
        assert_eq!(number_after(b"{\"max_tokens\":40}", b"\"max_tokens\":"), Some(40));
        assert_eq!(number_after(b"every_ms=5 x", b"every_ms="), Some(5));
        assert_eq!(number_after(b"every_ms=", b"every_ms="), None);
        assert_eq!(number_after(b"", b"every_ms="), None);
    }
}
