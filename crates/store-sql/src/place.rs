//! Where a store is: a file, or a database of a server.
//!
//! Invariant: a password is in no text that this makes, errors and `Debug` included.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;

const SCHEMES: [&str; 2] = ["mysql", "mariadb"];
/// What a URL may say after `?`. The others that the driver knows would change what texts mean.
const PARAMETERS: [&str; 5] = ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket"];

/// What `ssl-mode` may be, and whether the server's certificate is checked. `VERIFY_CA` is none: the driver trusts public
/// authorities beside the one that is given, so that anybody's certificate would do.
const MODES: [(&str, bool); 4] =
    [("DISABLED", false), ("PREFERRED", false), ("REQUIRED", false), ("VERIFY_IDENTITY", true)];
/// Longest certificate or key that is read.
const PEM_MAX: u64 = 1 << 20;

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
        let given = pairs(parameters);
        for (at, (key, _)) in given.iter().enumerate() {
            if !PARAMETERS.contains(key) {
                let known = PARAMETERS.join(", ");
                return Err(PlaceError(format!("the URL says `{key}`; it may say {known}")));
            }
            if given.iter().take(at).any(|(other, _)| other == key) {
                return Err(PlaceError(format!("the URL says `{key}` twice")));
            }
        }
        check_tls(&given)?;
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

    /// What a person has to mend before anything is tried: the driver does not name a file that it cannot read.
    pub(crate) fn unreadable(&self) -> Option<String> {
        let (_, parameters) = self.url.split_once('?')?;
        let files = pairs(parameters).into_iter().filter(|(key, path)| {
            // One that is written in another way is left to the driver.
            key.starts_with("ssl-") && *key != "ssl-mode" && !path.contains(['%', '+'])
        });
        files.into_iter().find_map(|(key, path)| {
            let mut text = String::new();
            let read = File::open(path).and_then(|file| file.take(PEM_MAX).read_to_string(&mut text));
            match read {
                Err(error) => Some(format!("{key}: {path}: {error}")),
                Ok(_) if !text.contains("-----BEGIN ") => Some(format!("{key}: {path}: no PEM in it")),
                Ok(_) => None,
            }
        })
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

fn pairs(parameters: &str) -> Vec<(&str, &str)> {
    let each = parameters.split('&').filter(|one| !one.is_empty());
    each.map(|one| one.split_once('=').unwrap_or((one, ""))).collect()
}

/// Nothing that says how to be safe is without effect: the driver takes a certificate authority and checks nothing by it
/// unless it is told to verify.
fn check_tls(given: &[(&str, &str)]) -> Result<(), PlaceError> {
    let find = |key: &str| given.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let mode = find("ssl-mode").unwrap_or("PREFERRED");
    let Some((mode, verifies)) = MODES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(mode)) else {
        let known = MODES.map(|(known, _)| known).join(", ");
        let why = if mode.eq_ignore_ascii_case("VERIFY_CA") {
            " (VERIFY_CA would take anybody's certificate of a public authority)"
        } else {
            ""
        };
        return Err(PlaceError(format!("ssl-mode is one of {known}{why}")));
    };
    if find("ssl-ca").is_some() && !verifies {
        return Err(PlaceError(format!("ssl-ca checks nothing with ssl-mode={mode}; say VERIFY_IDENTITY")));
    }
    match (find("ssl-cert"), find("ssl-key")) {
        (None, None) => Ok(()),
        (Some(_), Some(_)) if verifies || mode == "REQUIRED" => Ok(()),
        (Some(_), Some(_)) => {
            Err(PlaceError(format!("ssl-cert says nothing with ssl-mode={mode}; say VERIFY_IDENTITY")))
        }
        _ => Err(PlaceError("ssl-cert and ssl-key belong together".to_owned())),
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
            (
                "mysql://tb@h/d?ssl-mode=PERHAPS",
                "ssl-mode is one of DISABLED, PREFERRED, REQUIRED, VERIFY_IDENTITY",
            ),
            ("mysql://tb@h/d?ssl-mode=VERIFY_CA&ssl-ca=/ca.pem", "anybody's certificate"),
            ("mysql://tb@h/d?ssl-mode=VERIFY_IDENTITY&ssl-mode=DISABLED", "twice"),
            ("mysql://tb@h/d?ssl-ca=/ca.pem", "checks nothing with ssl-mode=PREFERRED"),
            ("mysql://tb@h/d?ssl-mode=required&ssl-ca=/ca.pem", "checks nothing with ssl-mode=REQUIRED"),
            ("mysql://tb@h/d?ssl-cert=/c.pem&ssl-key=/k.pem", "says nothing with ssl-mode=PREFERRED"),
            ("mysql://tb@h/d?ssl-mode=REQUIRED&ssl-cert=/c.pem", "belong together"),
            ("mysql://tb@h/d?ssl%2Dmode=DISABLED", "`ssl%2Dmode`"),
            ("mysql://tb@h:x/d", "cannot be read"),
        ] {
            let error = wrong.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        for right in [
            "mysql://tb@h/d?ssl-mode=VERIFY_IDENTITY&ssl-ca=/etc/ca.pem&ssl-cert=/c.pem&ssl-key=/k.pem",
            "mysql://tb@h/d?ssl-mode=verify_identity",
            "mysql://tb@h/d?ssl-mode=REQUIRED&ssl-cert=/c.pem&ssl-key=/k.pem",
            "mysql://tb@h/d?ssl-mode=DISABLED",
        ] {
            server(right);
        }
    }

    #[test]
    fn a_url_tells_whether_it_has_a_password() {
        assert!(server("mysql://tb:p@h/d").has_password());
        assert!(!server("mysql://tb@h:3306/d").has_password());
        assert!(!server("mysql://h:3306/d").has_password());
    }
}
