//! Whose request it is: the address behind trusted proxies.
//!
//! A header that names an address is believed only from a peer whose address is trusted, and read from its end: each
//! proxy appends whom it saw, so the first address from the right that is not trusted is the client. What stands left of
//! it was written by the client and is never looked at. What cannot be read ends the search where it is.

use std::net::IpAddr;

use http::header::{self, HeaderMap};
use tollbook_admission::Network;

/// Most addresses looked at in one request.
const HOPS_MAX: usize = 16;

/// Whose request it is, as it goes with the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(pub(crate) IpAddr);

/// The client's address that goes with a request.
pub(crate) fn told(extensions: &http::Extensions) -> Option<IpAddr> {
    extensions.get::<Client>().map(|client| client.0)
}

/// Whether an address is one of ours.
pub(crate) fn is_trusted(trusted: &[Network], address: IpAddr) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

/// The client's address: the peer's, or what trusted proxies say of it.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let mut nearest = peer;
    if !is_trusted(trusted, peer) {
        return peer;
    }
    let plain = headers.contains_key("x-forwarded-for");
    let lines = if plain { headers.get_all("x-forwarded-for") } else { headers.get_all(header::FORWARDED) };
    let lines: Vec<&str> = lines.iter().map(|line| line.to_str().unwrap_or("")).collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(',')).take(HOPS_MAX);
    for hop in hops {
        let named = if plain { address(hop.trim()) } else { forwarded(hop).and_then(address) };
        let Some(named) = named else { return nearest };
        nearest = named;
        if !is_trusted(trusted, named) {
            return named;
        }
    }
    nearest
}

/// The `for` of one element of `Forwarded`.
fn forwarded(element: &str) -> Option<&str> {
    let pair = |pair: &str| pair.split_once('=').map(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
    let mut found = element.split(';').filter(|part| pair(part) == Some(true));
    let (_, value) = found.next()?.split_once('=')?;
    // Two of them contradict each other.
    found.next().is_none().then(|| value.trim().trim_matches('"'))
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(plain) = text.parse::<IpAddr>() {
        return Some(plain.to_canonical());
    }
    if let Ok(with_port) = text.parse::<std::net::SocketAddr>() {
        return Some(with_port.ip().to_canonical());
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    inner.parse::<std::net::Ipv6Addr>().ok().map(|v6| IpAddr::V6(v6).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[&str]) -> Vec<Network> {
        list.iter().map(|text| Network::parse(text).unwrap()).collect()
    }

    fn seen(peer: &str, pairs: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        client(peer.parse().unwrap(), &headers, &networks(&["10.0.0.0/8", "fd00::/8"])).to_string()
    }

    #[test]
    fn networks_are_read_and_compared() {
        for text in
            ["", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "10.0.0/8", "10.0.0.0/+8", "a", "10.0.0.0/8/8"]
        {
            assert_eq!(Network::parse(text), None, "{text}");
        }
        for (network, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
        ] {
            let network = Network::parse(network).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{network:?} {address}");
        }
    }

    #[test]
    fn what_an_untrusted_peer_says_is_never_believed() {
        let lies = [("x-forwarded-for", "1.2.3.4"), ("forwarded", "for=1.2.3.4")];
        assert_eq!(seen("203.0.113.9", &lies), "203.0.113.9");
        assert_eq!(seen("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn the_first_address_from_the_right_that_is_not_ours_is_the_client() {
        let rows: [(&[(&'static str, &str)], &str); 12] = [
            (&[("x-forwarded-for", "203.0.113.9")], "203.0.113.9"),
            (&[("x-forwarded-for", "1.2.3.4, 203.0.113.9, 10.0.0.7")], "203.0.113.9"),
            (&[("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "203.0.113.9,10.0.0.7")], "203.0.113.9"),
            (&[("x-forwarded-for", "203.0.113.9:4711")], "203.0.113.9"),
            (&[("x-forwarded-for", "[2001:db8::1]:4711")], "2001:db8::1"),
            (&[("x-forwarded-for", "::ffff:203.0.113.9")], "203.0.113.9"),
            // What cannot be read ends the search.
            (&[("x-forwarded-for", "203.0.113.9, unknown, 10.0.0.7")], "10.0.0.7"),
            (&[("x-forwarded-for", "")], "10.0.0.1"),
            (
                &[("forwarded", "for=1.2.3.4, for=\"[2001:db8::2]:80\";proto=https;by=10.0.0.7")],
                "2001:db8::2",
            ),
            (&[("forwarded", "For=203.0.113.9")], "203.0.113.9"),
            (&[("forwarded", "for=203.0.113.9;for=1.2.3.4")], "10.0.0.1"),
            (&[("forwarded", "by=203.0.113.9")], "10.0.0.1"),
        ];
        for (pairs, want) in rows {
            assert_eq!(seen("10.0.0.1", pairs), want, "{pairs:?}");
        }
    }

    #[test]
    fn so_many_hops_are_looked_at() {
        let chain = |hops: usize| format!("203.0.113.9{}", ", 10.0.0.7".repeat(hops));
        assert_eq!(seen("10.0.0.1", &[("x-forwarded-for", &chain(HOPS_MAX - 1))]), "203.0.113.9");
        assert_eq!(seen("10.0.0.1", &[("x-forwarded-for", &chain(HOPS_MAX))]), "10.0.0.7");
    }
}
