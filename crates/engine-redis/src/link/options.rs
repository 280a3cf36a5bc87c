//! Where the servers are and how they are met.
//!
//! Invariants: what is shown of options holds no secret; a bound that is broken is told before anything is connected.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

/// Most connections to one node.
pub(super) const CONNECTIONS_MAX: usize = 16;
/// Most nodes or sentinels that can be named.
pub(super) const NODES_MAX: usize = 64;
/// Shortest and longest a call may take.
pub(super) const DEADLINES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));
/// Longest key prefix.
pub(super) const PREFIX_MAX: usize = 64;

/// How to reach the servers. The password is not shown by `Debug`.
#[derive(Clone, Debug)]
pub struct Options {
    pub place: Place,
    pub username: Option<String>,
    pub password: Option<SecretString>,
    /// For the sentinels themselves, where they ask for one.
    pub sentinel_password: Option<SecretString>,
    pub tls: Option<Tls>,
    /// Of a single server or of one behind sentinels; a cluster has only number 0.
    pub database: u32,
    /// What every key of ours begins with.
    pub prefix: String,
    /// Per node.
    pub connections: usize,
    /// Longest a call takes, whatever happens.
    pub deadline: Duration,
    /// Longest one try to connect takes.
    pub connect_timeout: Duration,
}

/// Which servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Single(Address),
    /// The primary that these sentinels name for the service.
    Sentinel {
        service: String,
        nodes: Vec<Address>,
    },
    /// Any nodes of a cluster; the others are found through them.
    Cluster(Vec<Address>),
}

/// Host and port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Whom to trust, and who we are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The authorities that browsers trust.
    pub public_roots: bool,
    /// More authorities, in PEM.
    pub ca_files: Vec<PathBuf>,
    /// Certificate and key of ours, in PEM.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { public_roots: true, ca_files: Vec::new(), client: None }
    }
}

/// What is wrong with options; names no secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WrongOptions {
    #[error("no '://' after the scheme")]
    NoScheme,
    #[error(
        "unknown scheme '{0}': redis, rediss, redis+sentinel, rediss+sentinel, redis+cluster, rediss+cluster"
    )]
    Scheme(String),
    #[error("no server is named")]
    NoNodes,
    #[error("more than {NODES_MAX} servers are named")]
    TooManyNodes,
    #[error("'{0}' is not a host with a port")]
    Address(String),
    #[error("one server is meant, and several are named")]
    OneNode,
    #[error("the name of the service is missing: redis+sentinel://host:port/service")]
    NoService,
    #[error("'{0}' is not the number of a database")]
    Database(String),
    #[error("a cluster has no numbered databases")]
    ClusterDatabase,
    #[error("user or password is not percent-encoded UTF-8")]
    Encoding,
    #[error("the address has more than host, port and database: {0}")]
    Rest(&'static str),
    #[error("connections: 1 to {CONNECTIONS_MAX}")]
    Connections,
    #[error("a deadline: {} ms to {} s", DEADLINES.0.as_millis(), DEADLINES.1.as_secs())]
    Deadline,
    #[error("the prefix: at most {PREFIX_MAX} letters, digits, '-', '_', '.' and ':'")]
    Prefix,
    #[error("TLS: {0}")]
    Tls(String),
}

impl Options {
    /// Without user, TLS and deviations from the defaults.
    pub fn new(place: Place) -> Self {
        Self {
            place,
            username: None,
            password: None,
            sentinel_password: None,
            tls: None,
            database: 0,
            prefix: "tb".to_owned(),
            connections: 2,
            deadline: Duration::from_millis(250),
            connect_timeout: Duration::from_secs(1),
        }
    }

    /// Whether they can be used.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), WrongOptions> {
        let nodes = match &self.place {
            Place::Single(_) => 1,
            Place::Sentinel { nodes, .. } | Place::Cluster(nodes) => nodes.len(),
        };
        match nodes {
            0 => return Err(WrongOptions::NoNodes),
            1..=NODES_MAX => {}
            _ => return Err(WrongOptions::TooManyNodes),
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(WrongOptions::Connections);
        }
        let (shortest, longest) = DEADLINES;
        if [self.deadline, self.connect_timeout].iter().any(|time| !(shortest..=longest).contains(time)) {
            return Err(WrongOptions::Deadline);
        }
        if matches!(self.place, Place::Cluster(_)) && self.database != 0 {
            return Err(WrongOptions::ClusterDatabase);
        }
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        if self.prefix.len() > PREFIX_MAX || !self.prefix.chars().all(good) {
            return Err(WrongOptions::Prefix);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(Place::Single(Address { host: "h".to_owned(), port: 1 }))
    }

    #[test]
    fn bounds_are_checked_at_the_bound() {
        assert_eq!(options().check(), Ok(()));
        let with = |change: fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            options.check()
        };
        assert_eq!(with(|o| o.connections = CONNECTIONS_MAX), Ok(()));
        assert_eq!(with(|o| o.connections = CONNECTIONS_MAX + 1), Err(WrongOptions::Connections));
        assert_eq!(with(|o| o.connections = 0), Err(WrongOptions::Connections));
        assert_eq!(with(|o| (o.deadline, o.connect_timeout) = DEADLINES), Ok(()));
        assert_eq!(with(|o| o.deadline = DEADLINES.1 + Duration::from_nanos(1)), Err(WrongOptions::Deadline));
        assert_eq!(with(|o| o.connect_timeout = Duration::from_millis(4)), Err(WrongOptions::Deadline));
        assert_eq!(with(|o| o.prefix = "a".repeat(PREFIX_MAX)), Ok(()));
        assert_eq!(with(|o| o.prefix = "a".repeat(PREFIX_MAX + 1)), Err(WrongOptions::Prefix));
        // It would change which slot a key is in.
        assert_eq!(with(|o| o.prefix = "{a}".to_owned()), Err(WrongOptions::Prefix));
        let nodes = |count| vec![Address { host: "h".to_owned(), port: 1 }; count];
        let cluster = |count| Options::new(Place::Cluster(nodes(count))).check();
        assert_eq!(cluster(NODES_MAX), Ok(()));
        assert_eq!(cluster(NODES_MAX + 1), Err(WrongOptions::TooManyNodes));
        assert_eq!(cluster(0), Err(WrongOptions::NoNodes));
    }

    #[test]
    fn a_password_is_not_shown() {
        let mut options = options();
        options.password = Some("topsecret".into());
        options.sentinel_password = Some("topsecret".into());
        assert!(!format!("{options:?}").contains("topsecret"));
    }
}
