//! Where a store is: a file, or a database of a server.
//!
//! Invariant: a password is in no text that this makes, errors and `Debug` included.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;

const SCHEMES: [&str; 2] = ["mysql", "mariadb"];
/// What a URL may say after `?`. The others that the driver knows would change what texts mean.
const PARAMETERS: [&str; 5] = ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket"];

/// Where a store is.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// An SQLite file.
    File(PathBuf),
    /// A database of a MySQL or MariaDB server.
    Server(Server),
}

/// A database, and how to get to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    url: String,
    password: Option<String>,
    shown: String,
}

/// What is wrong with a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceError(String);

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlaceError {}

impl Place {
    /// The place is a server's.
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// The file's path.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Server(_) => None,
        }
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        match text.split_once("://") {
            None => Ok(Self::File(PathBuf::from(text))),
            Some((scheme, _)) if SCHEMES.contains(&scheme) => Server::parse(text).map(Self::Server),
            Some(_) => Err(PlaceError("a store is a file, or begins with mysql:// or mariadb://".to_owned())),
        }
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<&PathBuf> for Place {
    fn from(path: &PathBuf) -> Self {
        Self::File(path.clone())
    }
}

impl From<&Self> for Place {
    fn from(place: &Self) -> Self {
        place.clone()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(server) => f.write_str(&server.shown),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Server {
    fn parse(url: &str) -> Result<Self, PlaceError> {
        let refused = |what: &str| PlaceError(what.to_owned());
        let (before, parameters) = url.split_once('?').unwrap_or((url, ""));
        let keys = parameters.split('&').filter(|one| !one.is_empty()).map(|one| one.split('=').next());
        for key in keys.flatten() {
            if !PARAMETERS.contains(&key) {
                let known = PARAMETERS.join(", ");
                return Err(PlaceError(format!("the URL says `{key}`; it may say {known}")));
            }
        }
        let host = before.split_once("://").map_or("", |(_, rest)| rest);
        let host = host.rsplit_once('@').map_or(host, |(_, rest)| rest);
        if host.is_empty() || host.starts_with(['/', ':']) {
            return Err(refused("the URL names no host"));
        }
        // What the driver says of a URL repeats none of it but the value of ssl-mode.
        let options = MySqlConnectOptions::from_str(url)
            .map_err(|error| PlaceError(format!("the URL cannot be read: {error}")))?;
        let Some(database) = options.get_database() else {
            return Err(refused("the URL names no database: it ends with /NAME"));
        };
        let (user, host, port) = (options.get_username(), options.get_host(), options.get_port());
        let shown = format!("mysql://{user}@{host}:{port}/{database}");
        Ok(Self { url: url.to_owned(), password: None, shown })
    }

    /// The same with a password that is in no URL.
    #[must_use]
    pub fn with_password(self, password: String) -> Self {
        Self { password: Some(password), ..self }
    }

    /// Whether the URL has a password in it.
    pub fn has_password(&self) -> bool {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let rest = rest.split('/').next().unwrap_or_default();
        rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    }

    /// As the driver takes it; `None` cannot be, as the URL was read before.
    pub(crate) fn options(&self) -> Option<MySqlConnectOptions> {
        let options = MySqlConnectOptions::from_str(&self.url).ok()?;
        Some(match &self.password {
            Some(password) => options.password(password),
            None => options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Server};

    fn server(text: &str) -> Server {
        match text.parse().unwrap() {
            Place::Server(server) => server,
            Place::File(path) => panic!("{}", path.display()),
        }
    }

    #[test]
    fn a_path_is_a_file_and_a_url_a_server() {
        assert_eq!("data/journal.sqlite".parse(), Ok(Place::File("data/journal.sqlite".into())));
        for scheme in ["mysql", "mariadb"] {
            let place: Place = format!("{scheme}://tb:s3cret@db.example:3307/tollbook").parse().unwrap();
            assert_eq!(place.to_string(), "mysql://tb@db.example:3307/tollbook");
        }
        assert!("postgres://h/d".parse::<Place>().is_err());
    }

    #[test]
    fn a_password_is_never_shown() {
        let given = server("mysql://tb:s3cret@h/d").with_password("0ther".to_owned());
        let place = Place::Server(given.clone());
        let shown = format!("{given:?} {place:?} {place}");
        assert!(!shown.contains("s3cret") && !shown.contains("0ther"), "{shown}");
        for wrong in
            ["mysql://tb:s3cret@h:99999/d", "mysql://tb:s3cret@/d", "mysql://tb:s3cret@h/d?ssl-mode=NO"]
        {
            let error = wrong.parse::<Place>().unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_url_must_say_what_is_needed_and_nothing_unknown() {
        for (wrong, why) in [
            ("mysql://tb@h", "no database"),
            ("mysql:///d", "no host"),
            ("mysql://tb@h/d?charset=latin1", "`charset`"),
            ("mysql://tb@h/d?ssl-mode=PERHAPS", "cannot be read"),
            ("mysql://tb@h:x/d", "cannot be read"),
        ] {
            let error = wrong.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        server("mysql://tb@h/d?ssl-mode=VERIFY_IDENTITY&ssl-ca=/etc/ca.pem");
    }

    #[test]
    fn a_url_tells_whether_it_has_a_password() {
        assert!(server("mysql://tb:p@h/d").has_password());
        assert!(!server("mysql://tb@h:3306/d").has_password());
        assert!(!server("mysql://h:3306/d").has_password());
    }
}
