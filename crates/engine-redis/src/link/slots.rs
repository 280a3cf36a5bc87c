//! Slots of a cluster: of a key, of a map, of a hint. Pure.
//!
//! Invariant: what a server says is read without trust; what cannot be read is nothing.

use redis::Value;

use super::options::Address;

const SLOTS: u16 = 16_384;

/// Slots that one primary has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: Address,
}

/// Where a server sends a call on to. An empty host is that of the server itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hint {
    Moved(String, u16),
    Ask(String, u16),
    TryAgain,
}

/// The slot of a key: of what stands between the first '{' and the next '}', if anything does, else of all of it.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}').filter(|length| *length > 0)?;
        rest.get(..close)
    };
    crc16(tag().unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let start = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(start, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    })
}

/// The answer of `CLUSTER SLOTS`. A node that does not know its own name is where it was asked.
pub(super) fn ranges(map: &Value, asked: &str) -> Option<Vec<Range>> {
    let Value::Array(entries) = map else { return None };
    let range = |entry: &Value| -> Option<Range> {
        let Value::Array(parts) = entry else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            Value::SimpleString(host) => host.clone(),
            _ => String::new(),
        };
        let host = if host.is_empty() || host == "?" { asked.to_owned() } else { host };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        let port = u16::try_from(*port).ok()?;
        (first <= last && last < SLOTS).then_some(Range { first, last, primary: Address { host, port } })
    };
    entries.iter().map(range).collect()
}

/// What a refusal says about where to go: `MOVED 3999 10.0.0.1:6381`.
pub(super) fn hint(message: &str) -> Option<Hint> {
    let mut words = message.split_ascii_whitespace();
    let word = words.next()?;
    if word == "TRYAGAIN" {
        return Some(Hint::TryAgain);
    }
    let (host, port) = words.nth(1)?.rsplit_once(':')?;
    let (host, port) = (if host == "?" { String::new() } else { host.to_owned() }, port.parse().ok()?);
    match word {
        "MOVED" => Some(Hint::Moved(host, port)),
        "ASK" => Some(Hint::Ask(host, port)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"tb:{a}:x"), slot(b"a"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % SLOTS);
        assert!(slot(b"") < SLOTS);
    }

    #[test]
    fn hints_are_read() {
        let moved = |host: &str, port| Some(Hint::Moved(host.to_owned(), port));
        assert_eq!(hint("MOVED 3999 10.0.0.1:6381"), moved("10.0.0.1", 6381));
        assert_eq!(hint("ASK 3999 2001:db8::1:6381"), Some(Hint::Ask("2001:db8::1".to_owned(), 6381)));
        assert_eq!(hint("MOVED 3999 :6381"), moved("", 6381));
        assert_eq!(hint("TRYAGAIN Multiple keys request during rehashing of slot"), Some(Hint::TryAgain));
        let others = [
            "CLUSTERDOWN The cluster is down",
            "MOVED",
            "MOVED 1 nowhere",
            "MOVED 1 h:99999",
            "",
            "ERR a b:1",
        ];
        for other in others {
            assert_eq!(hint(other), None, "{other}");
        }
    }

    #[test]
    fn a_map_is_read_without_trust() {
        let host = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let entry =
            |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(node)]);
        let good = Value::Array(vec![
            entry(0, 5, vec![host("a"), Value::Int(7), host("id")]),
            entry(6, 16_383, vec![host(""), Value::Int(8)]),
        ]);
        let want = [
            Range { first: 0, last: 5, primary: at("a", 7) },
            Range { first: 6, last: 16_383, primary: at("h", 8) },
        ];
        assert_eq!(ranges(&good, "h").unwrap(), want);
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![entry(0, 16_384, vec![host("a"), Value::Int(7)])]),
            Value::Array(vec![entry(6, 5, vec![host("a"), Value::Int(7)])]),
            Value::Array(vec![entry(0, 5, vec![host("a"), Value::Int(70_000)])]),
            Value::Array(vec![entry(0, 5, vec![])]),
        ] {
            assert_eq!(ranges(&bad, "h"), None, "{bad:?}");
        }
    }
}
