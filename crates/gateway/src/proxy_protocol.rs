//! The PROXY header, versions 1 and 2: whom a proxy in front of us serves.
//!
//! Asked of trusted peers only, and of those always: a peer that may send it and does not is cut off, so that nobody can
//! choose between the two. Nothing is read beyond the header; checksums and other extensions are skipped unread.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::AsyncRead;

use crate::prefixed::Prefixed;

/// Longest header of version 1, its line end included.
const LINE_MAX: usize = 107;
/// The first bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, length.
const FIXED: usize = 16;
/// Longest rest of version 2: addresses and extensions.
const REST_MAX: usize = 2048;

/// What should have been a header and is none.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the connection does not begin with a PROXY header")]
pub(crate) struct BadHeader;

/// Takes the header off a stream. `None`: the proxy speaks for itself, or does not say for whom.
pub(crate) async fn read<S: AsyncRead + Unpin>(
    stream: &mut Prefixed<S>,
) -> Result<Option<IpAddr>, BadHeader> {
    loop {
        match parse(stream.ahead())? {
            Parsed::Whole { length, client } => {
                stream.skip(length);
                return Ok(client);
            }
            Parsed::Needs(length) => match stream.look(length).await {
                Ok(true) => {}
                Ok(false) | Err(_) => return Err(BadHeader),
            },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Whole {
        length: usize,
        client: Option<IpAddr>,
    },
    /// That many bytes from the start, at most.
    Needs(usize),
}

fn parse(bytes: &[u8]) -> Result<Parsed, BadHeader> {
    let common = SIGNATURE.iter().zip(bytes).take_while(|(a, b)| a == b).count();
    if common == bytes.len().min(SIGNATURE.len()) { second(bytes) } else { first(bytes) }
}

fn first(bytes: &[u8]) -> Result<Parsed, BadHeader> {
    const BEGIN: &[u8] = b"PROXY ";
    if !BEGIN.iter().zip(bytes).all(|(a, b)| a == b) {
        return Err(BadHeader);
    }
    let window = bytes.get(..LINE_MAX).unwrap_or(bytes);
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LINE_MAX { Ok(Parsed::Needs(LINE_MAX)) } else { Err(BadHeader) };
    };
    let line = window.get(..end).and_then(|line| std::str::from_utf8(line).ok()).ok_or(BadHeader)?;
    Ok(Parsed::Whole { length: end.saturating_add(2), client: line_client(line)? })
}

/// `PROXY TCP4 source destination port port`.
fn line_client(line: &str) -> Result<Option<IpAddr>, BadHeader> {
    let mut words = line.split(' ').skip(1);
    let family = words.next().ok_or(BadHeader)?;
    if family == "UNKNOWN" {
        return Ok(None);
    }
    let words: Vec<&str> = words.collect();
    let [source, destination, source_port, destination_port] = words.as_slice() else {
        return Err(BadHeader);
    };
    for port in [source_port, destination_port] {
        port.parse::<u16>().map_err(|_| BadHeader)?;
    }
    let address = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| BadHeader),
        "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| BadHeader),
        _ => Err(BadHeader),
    };
    address(destination)?;
    address(source).map(|source| Some(source.to_canonical()))
}

fn second(bytes: &[u8]) -> Result<Parsed, BadHeader> {
    let Some([command, family, high, low]) = bytes.get(SIGNATURE.len()..FIXED) else {
        return Ok(Parsed::Needs(FIXED));
    };
    let rest = usize::from(u16::from_be_bytes([*high, *low]));
    if rest > REST_MAX {
        return Err(BadHeader);
    }
    let length = FIXED.saturating_add(rest);
    let Some(rest) = bytes.get(FIXED..length) else { return Ok(Parsed::Needs(length)) };
    let client = match (command, family >> 4) {
        (0x20, _) | (0x21, 0 | 3) => None,
        (0x21, 1) => {
            let source =
                rest.get(..12).and_then(|addresses| addresses.first_chunk::<4>()).ok_or(BadHeader)?;
            Some(IpAddr::from(*source))
        }
        (0x21, 2) => {
            let source =
                rest.get(..36).and_then(|addresses| addresses.first_chunk::<16>()).ok_or(BadHeader)?;
            Some(IpAddr::from(*source).to_canonical())
        }
        _ => return Err(BadHeader),
    };
    Ok(Parsed::Whole { length, client })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend_from_slice(&[command, family]);
        bytes.extend_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(rest);
        bytes
    }

    /// The client, and what is left of the stream.
    async fn read_all(bytes: &[u8]) -> Result<(Option<String>, Vec<u8>), BadHeader> {
        let mut stream = Prefixed::new(bytes);
        let client = read(&mut stream).await?;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        Ok((client.map(|c| c.to_string()), rest))
    }

    #[tokio::test]
    async fn both_versions_name_the_client_and_leave_the_rest() {
        let v4 = [&[203, 0, 113, 9, 10, 0, 0, 1, 0x12, 0x34, 0x01, 0xbb][..], &[3, 0, 1, 7]].concat();
        let mut v6 = vec![0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        v6.extend_from_slice(&[0; 20]);
        let rows: [(Vec<u8>, Option<&str>); 8] = [
            (b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n".to_vec(), Some("203.0.113.9")),
            (b"PROXY TCP6 2001:db8::7 ::1 4711 443\r\n".to_vec(), Some("2001:db8::7")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN what ever\r\n".to_vec(), None),
            (version_2(0x21, 0x11, &v4), Some("203.0.113.9")),
            (version_2(0x21, 0x21, &v6), Some("2001:db8::7")),
            (version_2(0x20, 0, &[]), None),
            (version_2(0x21, 0x31, &[0; 216]), None),
        ];
        for (header, client) in rows {
            let bytes = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
            let (named, rest) = read_all(&bytes).await.unwrap();
            assert_eq!(named.as_deref(), client, "{header:?}");
            assert_eq!(rest, b"GET / HTTP/1.1\r\n");
            // Cut anywhere it is no header.
            for cut in 0..header.len() {
                assert!(read_all(&header[..cut]).await.is_err(), "cut at {cut}: {header:?}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE_MAX - 16));
        assert_eq!(long.len(), LINE_MAX);
        assert!(read_all(long.as_bytes()).await.is_ok());
        let longer = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE_MAX - 15));
        for bytes in [
            longer.as_bytes(),
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            b"PROXY TCP4 203.0.113.9 10.0.0.1 4711\r\n",
            b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 70000\r\n",
            b"PROXY TCP4 ::1 10.0.0.1 4711 443\r\n",
            b"PROXY UDP4 203.0.113.9 10.0.0.1 4711 443\r\n",
            b"PROXY TCP4 203.0.113.9  10.0.0.1 4711 443\r\n",
            &version_2(0x31, 0x11, &[0; 12]),
            &version_2(0x22, 0x11, &[0; 12]),
            &version_2(0x21, 0x11, &[0; 11]),
            &version_2(0x21, 0x21, &[0; 35]),
            &version_2(0x21, 0x41, &[0; 40]),
        ] {
            assert_eq!(read_all(bytes).await, Err(BadHeader), "{bytes:?}");
        }
        assert!(read_all(&version_2(0x20, 0, &vec![0; REST_MAX])).await.is_ok());
        assert!(read_all(&version_2(0x20, 0, &vec![0; REST_MAX + 1])).await.is_err());
    }
}
