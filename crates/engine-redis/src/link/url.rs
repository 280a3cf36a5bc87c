//! Addresses as people write them: `redis://user:password@host:6379/0`, `rediss+cluster://a:7000,b:7000`.
//!
//! Invariants: any text gives options or one error; an error repeats nothing that could be a password.

use secrecy::SecretString;

use super::options::{Address, Options, Place, Tls, WrongOptions};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

impl Options {
    /// Reads an address; what it does not tell is as in `new`.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, WrongOptions> {
        let (scheme, rest) = text.split_once("://").ok_or(WrongOptions::NoScheme)?;
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let is_tls = match base {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(unknown(scheme)),
        };
        if rest.contains(['?', '#']) {
            return Err(WrongOptions::Rest("no '?' and no '#' here; encode them in a password"));
        }
        // A password holds no '/': that is encoded. The last '@' ends it.
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(WrongOptions::Rest("encode a '/' in user or password as %2F"));
        }
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let mut options = match kind {
            "" => Self::new(Place::Single(one(addresses(hosts, PORT)?)?)),
            "sentinel" => return sentinel(login, addresses(hosts, SENTINEL_PORT)?, path, is_tls),
            "cluster" => Self::new(Place::Cluster(addresses(hosts, PORT)?)),
            _ => return Err(unknown(scheme)),
        };
        options.database = database(path)?;
        options.login(login)?;
        options.tls = is_tls.then(Tls::default);
        options.check().map(|()| options)
    }

    fn login(&mut self, login: Option<&str>) -> Result<(), WrongOptions> {
        let Some(login) = login else { return Ok(()) };
        let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
        self.username = Some(decode(user)?).filter(|user| !user.is_empty());
        self.password = password.map(decode).transpose()?.map(SecretString::from);
        Ok(())
    }
}

fn sentinel(
    login: Option<&str>,
    nodes: Vec<Address>,
    path: &str,
    is_tls: bool,
) -> Result<Options, WrongOptions> {
    let (service, number) = path.split_once('/').unwrap_or((path, ""));
    let service = decode(service)?;
    if service.is_empty() {
        return Err(WrongOptions::NoService);
    }
    let mut options = Options::new(Place::Sentinel { service, nodes });
    options.database = database(number)?;
    options.login(login)?;
    options.tls = is_tls.then(Tls::default);
    options.check().map(|()| options)
}

fn unknown(scheme: &str) -> WrongOptions {
    WrongOptions::Scheme(shown(scheme))
}

/// What was meant as something else may be long, or be a password that was not encoded.
fn shown(text: &str) -> String {
    text.chars().take(32).collect()
}

fn one(nodes: Vec<Address>) -> Result<Address, WrongOptions> {
    let mut nodes = nodes.into_iter();
    match (nodes.next(), nodes.next()) {
        (Some(node), None) => Ok(node),
        (None, _) => Err(WrongOptions::NoNodes),
        (Some(_), Some(_)) => Err(WrongOptions::OneNode),
    }
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, WrongOptions> {
    if hosts.is_empty() {
        return Err(WrongOptions::NoNodes);
    }
    hosts.split(',').map(|host| address(host, port)).collect()
}

fn address(text: &str, port: u16) -> Result<Address, WrongOptions> {
    // Behind the colon may stand a password whose host was forgotten.
    let wrong = || WrongOptions::Address(shown(text.split(':').next().unwrap_or_default()));
    let (host, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or_else(wrong)?,
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port = match rest.strip_prefix(':') {
        Some(digits) => digits.parse().map_err(|_| wrong())?,
        None if rest.is_empty() => port,
        None => return Err(wrong()),
    };
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if host.is_empty() || !host.chars().all(good) || port == 0 {
        return Err(wrong());
    }
    Ok(Address { host: host.to_owned(), port })
}

fn database(text: &str) -> Result<u32, WrongOptions> {
    match text {
        "" => Ok(0),
        digits => digits.parse().map_err(|_| WrongOptions::Database(shown(digits))),
    }
}

/// Percent-decoded.
fn decode(text: &str) -> Result<String, WrongOptions> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit =
            |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push(high << 4 | low),
            _ => return Err(WrongOptions::Encoding),
        }
    }
    String::from_utf8(bytes).map_err(|_| WrongOptions::Encoding)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn every_form_is_read() {
        let single = Options::parse("redis://redis.local").unwrap();
        assert_eq!(single.place, Place::Single(at("redis.local", 6379)));
        assert!(single.username.is_none() && single.password.is_none() && single.tls.is_none());
        let full = Options::parse("rediss://gate:p%40s%2Fs@[2001:db8::1]:7000/3").unwrap();
        assert_eq!(full.place, Place::Single(at("2001:db8::1", 7000)));
        assert_eq!(full.username.as_deref(), Some("gate"));
        assert_eq!(full.password.unwrap().expose_secret(), "p@s/s");
        assert_eq!((full.database, full.tls), (3, Some(Tls::default())));
        let only_password = Options::parse("redis://:p:q@h").unwrap();
        assert_eq!(only_password.username, None);
        assert_eq!(only_password.password.unwrap().expose_secret(), "p:q");
        let sentinel = Options::parse("redis+sentinel://u:p@a,b:1/book/2").unwrap();
        let nodes = vec![at("a", 26379), at("b", 1)];
        assert_eq!(sentinel.place, Place::Sentinel { service: "book".to_owned(), nodes });
        assert_eq!(sentinel.database, 2);
        let cluster = Options::parse("rediss+cluster://a:7000,b,c:7002").unwrap();
        assert_eq!(cluster.place, Place::Cluster(vec![at("a", 7000), at("b", 6379), at("c", 7002)]));
        assert!(cluster.tls.is_some());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| Options::parse(text).unwrap_err();
        assert_eq!(wrong("localhost:6379"), WrongOptions::NoScheme);
        assert_eq!(wrong("http://h"), WrongOptions::Scheme("http".to_owned()));
        assert_eq!(wrong("redis+ring://h"), WrongOptions::Scheme("redis+ring".to_owned()));
        assert_eq!(wrong("redis://"), WrongOptions::NoNodes);
        assert_eq!(wrong("redis://a,b"), WrongOptions::OneNode);
        assert_eq!(wrong("redis://h:port"), WrongOptions::Address("h".to_owned()));
        assert_eq!(wrong("redis://h:0"), WrongOptions::Address("h".to_owned()));
        assert_eq!(wrong("redis://[::1"), WrongOptions::Address("[".to_owned()));
        assert_eq!(wrong("redis://h/x"), WrongOptions::Database("x".to_owned()));
        assert_eq!(wrong("redis+cluster://h/1"), WrongOptions::ClusterDatabase);
        assert_eq!(wrong("redis+sentinel://h"), WrongOptions::NoService);
        assert_eq!(wrong("redis://:%zz@h"), WrongOptions::Encoding);
        assert!(matches!(wrong("redis://h?protocol=3"), WrongOptions::Rest(_)));
    }

    proptest! {
        #[test]
        fn any_text_gives_options_or_an_error(text in "(redis|rediss)?(\\+(sentinel|cluster))?(://)?.{0,60}") {
            let _ = Options::parse(&text);
        }

        #[test]
        fn what_is_written_out_is_read_back(host in "[a-z][a-z0-9.-]{0,20}", port in 1u16.., database in 0u32..16) {
            let read = Options::parse(&format!("redis://{host}:{port}/{database}")).unwrap();
            prop_assert_eq!(read.place, Place::Single(at(&host, port)));
            prop_assert_eq!(read.database, database);
        }

        #[test]
        fn no_error_repeats_a_password(user in "[a-z]{0,5}", end in "[/?#@:,%]{0,3}") {
            for host in ["@h", ""] {
                let text = format!("redis://{user}:topsecretword{end}{host}");
                if let Err(error) = Options::parse(&text) {
                    prop_assert!(!error.to_string().contains("topsecretword"), "{}", error);
                }
            }
        }
    }
}
