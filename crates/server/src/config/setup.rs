//! What the program is set up with: everything of the file that has a meaning, checked.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tollbook_admission::{ApiKeyHash, Settings, Snapshot, TokenizerFile};
use tollbook_gateway as gateway;
use tollbook_pricing::PriceBook;
use tollbook_store::{KEEP_DAYS_MAX, KEEP_DAYS_MIN};
use tollbook_store_sql::Place;

use super::alerts::{Alerts, alerts};
use super::engine::{Book, book, gateways};
use super::environment::Lookup;
use super::file::{File, Log, Origin, default_data_dir};
use super::mistakes::Mistakes;
use super::objects::Base;
use super::problem::LoadError;
use super::reconcile::{Reconcile, reconcile};
use super::tokenizers::{Look, Tokenizers};
use super::traces::{Traces, traces};
use super::values::Secret;
use super::{Source, catalog, models, read_fields, read_file, read_text, upstreams, warnings};
use crate::seal::Seal;

/// Shortest key that seals secrets, in bytes.
const SECRETS_KEY_MIN: usize = 24;

/// A checked configuration.
#[derive(Debug)]
pub struct Setup {
    pub gateway: gateway::Config,
    /// `None`: closed, no key was given.
    pub admin: Option<Admin>,
    pub data_dir: PathBuf,
    /// Where the journal is.
    pub journal: Place,
    /// How many days its entries are kept; `None`: for ever.
    pub journal_keep_days: Option<u32>,
    /// Where the book is kept.
    pub book: Book,
    pub log: Log,
    /// `None`: off, no collector was named.
    pub traces: Option<Traces>,
    pub calls: Settings,
    /// `None`: off, no folder was named.
    pub reconcile: Option<Reconcile>,
    /// `None`: off, no webhook was named.
    pub alerts: Option<Alerts>,
    pub snapshot: Snapshot,
    /// Where the store defines who may ask: what its objects are checked against. The snapshot knows none of them yet.
    pub base: Option<Arc<Base>>,
    /// Legal, but probably not meant.
    pub warnings: Vec<String>,
    /// The files it was read from: the configuration itself and those it names.
    pub files: Vec<PathBuf>,
    /// Of everything that was read from them: the same digest, the same configuration.
    pub digest: blake3::Hash,
}

/// The operator's listener.
#[derive(Debug)]
pub struct Admin {
    pub listen: SocketAddr,
    pub api_key: SecretString,
}

/// Reads and checks a file. Paths in it are relative to its folder. Tokenizers are left to be made in the background.
pub fn load(path: &Path, lookup: Lookup<'_>) -> Result<Setup, LoadError> {
    load_with(path, lookup, Look::Light)
}

/// The same, with the tokenizers made; those among `known` are taken where their files have not changed.
pub fn load_whole(path: &Path, lookup: Lookup<'_>, known: &[Arc<TokenizerFile>]) -> Result<Setup, LoadError> {
    load_with(path, lookup, Look::Whole(known))
}

fn load_with(path: &Path, lookup: Lookup<'_>, look: Look<'_>) -> Result<Setup, LoadError> {
    let (file, source) = read_file(path, lookup)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut setup = check(file, &source, folder, look)?;
    setup.files.insert(0, path.to_owned());
    Ok(setup)
}

/// The same for a text; `name` stands for the file in messages.
pub fn load_text(name: &str, text: &str, folder: &Path, lookup: Lookup<'_>) -> Result<Setup, LoadError> {
    let (file, source) = read_text(name, text, lookup).map_err(LoadError::Invalid)?;
    check(file, &source, folder, Look::Whole(&[]))
}

/// What objects of the store are checked against, if it has any.
fn base(
    mistakes: &mut Mistakes,
    (file, source, folder): (&Arc<File>, &Source, &Path),
    hasher: &ApiKeyHash,
    prices: &PriceBook,
) -> Option<Arc<Base>> {
    let (given, from) = (file.config.secrets_key.as_ref(), file.config.secrets_key_file.as_deref());
    let key = secret(mistakes, "config.secrets_key", given, from, folder);
    if key.as_ref().is_some_and(|key| key.expose_secret().len() < SECRETS_KEY_MIN) {
        let what = format!("has less than {SECRETS_KEY_MIN} bytes, and can be guessed");
        mistakes.add_with_help("config.secrets_key", what, "`openssl rand -base64 32` makes a good one");
    }
    if file.config.source == Origin::File {
        return None;
    }
    for (field, given) in [("plans", !file.plans.is_empty()), ("tenants", !file.tenants.is_empty())] {
        if given {
            let what = "are in the store, as config.source says";
            let help = "put them there with `tollbook apply -f FILE`, and leave them out here";
            mistakes.add_with_help(field, what, help);
        }
    }
    Some(Arc::new(Base {
        file: Arc::clone(file),
        source: source.clone(),
        folder: folder.to_owned(),
        hasher: hasher.clone(),
        prices: prices.clone(),
        seal: key.as_ref().and_then(Seal::new).map(Arc::new),
    }))
}

pub(super) fn check(file: File, source: &Source, folder: &Path, look: Look<'_>) -> Result<Setup, LoadError> {
    let (file, mut mistakes) = (Arc::new(file), Mistakes::default());
    let files = named_files(&file, folder);
    let listen = address(&mut mistakes, "listen", &file.listen).unwrap_or(SocketAddr::from(([0; 4], 0)));
    let gateway = upstreams::gateway(&mut mistakes, &file, folder, listen);
    let mut calls = upstreams::calls(&mut mistakes, &file.calls);
    let admin = admin(&mut mistakes, &file, folder, listen);
    let traces = traces(&mut mistakes, &file.traces);
    let reconcile = reconcile(&mut mistakes, folder, file.reconcile.as_ref());
    let alerts = alerts(&mut mistakes, folder, file.alerts.as_ref());
    let book = book(&mut mistakes, &file, folder);
    let (named, password) = (file.journal.as_deref(), file.journal_password_file.as_deref());
    let journal = place(&mut mistakes, folder, &file.data_dir, named, password);
    keep_days(&mut mistakes, file.journal_keep_days);
    let api_key_hash =
        hash_of(&mut mistakes, file.key_pepper.as_ref(), file.key_pepper_file.as_deref(), folder);
    let prices = models::prices(&mut mistakes, &file);
    let models = models::plans(&mut mistakes, &file, &mut Tokenizers::new(folder, look));
    let base = base(&mut mistakes, (&file, source, folder), &api_key_hash, &prices);
    let catalog = catalog::catalog(&mut mistakes, &file, &api_key_hash);
    calls.away.gateways = gateways(&mut mistakes, &file, catalog.as_ref().map(|(catalog, _)| catalog));
    match catalog {
        Some((catalog, mut warnings)) if mistakes.0.is_empty() => {
            warnings.extend(warnings::unpriced(&file, &prices, &catalog));
            warnings.extend(warnings::weak_secrets(&file, admin.as_ref().map(|admin| &admin.api_key)));
            Ok(Setup {
                gateway,
                admin,
                data_dir: folder.join(&file.data_dir),
                journal,
                journal_keep_days: file.journal_keep_days,
                book,
                log: file.log.clone(),
                traces,
                calls,
                reconcile,
                alerts,
                snapshot: Snapshot::new(1, catalog, prices, models, api_key_hash),
                base,
                warnings,
                digest: digest(source, &files),
                files,
            })
        }
        _ => Err(LoadError::Invalid(source.report(mistakes.0))),
    }
}

/// Every file that the configuration names and that is read with it.
fn named_files(file: &File, folder: &Path) -> Vec<PathBuf> {
    let redis = file.engine.redis.as_ref();
    let password = redis.and_then(|redis| redis.password_file.clone());
    let (secrets, journal) = (&file.config.secrets_key_file, &file.journal_password_file);
    let own = [&file.key_pepper_file, &file.admin.api_key_file, secrets, journal, &password];
    let named = own.into_iter().chain(file.upstreams.iter().map(|upstream| &upstream.api_key_file));
    let proxy = file.upstream_proxy.iter().flat_map(|proxy| &proxy.password_file);
    let tls = file.upstreams.iter().map(|upstream| &upstream.tls);
    let tls = tls.flat_map(|tls| tls.ca_files.iter().chain(&tls.certificate_file).chain(&tls.key_file));
    let tls = tls.chain(redis.into_iter().flat_map(|redis| &redis.ca_files));
    let webhooks = file.alerts.iter().flat_map(|alerts| &alerts.webhooks);
    let webhooks = webhooks.filter_map(|webhook| webhook.secret_file.as_ref());
    let tokenizers = file.models.iter().filter_map(|model| model.tokenizer.as_ref());
    let all = named.flatten().chain(proxy).chain(tls).chain(webhooks).chain(tokenizers);
    // Models may share one.
    let all: std::collections::BTreeSet<PathBuf> = all.map(|path| folder.join(path)).collect();
    all.into_iter().collect()
}

/// Of the text, and of what the files it names hold.
fn digest(source: &Source, files: &[PathBuf]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(source.digest.as_bytes());
    for path in files {
        // One that went away since it was read differs from what it was.
        let content = std::fs::read(path).unwrap_or_default();
        hasher.update(blake3::hash(&content).as_bytes());
    }
    hasher.finalize()
}

/// The hash of keys that a file's pepper makes; nothing else of the file is looked at, so that the
/// variables of the rest need not be set.
pub fn api_key_hash(path: &Path, lookup: Lookup<'_>) -> Result<ApiKeyHash, LoadError> {
    let (pepper, source): (Pepper, _) = read_fields(path, &["key_pepper", "key_pepper_file"], lookup)?;
    let mut mistakes = Mistakes::default();
    let hash = pepper.hash(&mut mistakes, path.parent().unwrap_or(Path::new("")));
    if mistakes.0.is_empty() { Ok(hash) } else { Err(LoadError::Invalid(source.report(mistakes.0))) }
}

/// Where a file keeps the journal; nothing else of it is looked at.
pub fn journal(path: &Path, lookup: Lookup<'_>) -> Result<Place, LoadError> {
    let fields = ["data_dir", "journal", "journal_password_file"];
    let (kept, source): (Kept, _) = read_fields(path, &fields, lookup)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut mistakes = Mistakes::default();
    let (named, password) = (kept.journal.as_deref(), kept.journal_password_file.as_deref());
    let journal = place(&mut mistakes, folder, &kept.data_dir, named, password);
    if mistakes.0.is_empty() { Ok(journal) } else { Err(LoadError::Invalid(source.report(mistakes.0))) }
}

fn keep_days(mistakes: &mut Mistakes, given: Option<u32>) {
    let path = "journal_keep_days";
    match given {
        Some(days) if days < KEEP_DAYS_MIN => {
            let what = format!(
                "must be at least {KEEP_DAYS_MIN}: a quota that is added during a month is opened from that month's calls"
            );
            mistakes.add(path, what);
        }
        Some(days) if days > KEEP_DAYS_MAX => {
            let help = "leave it out to keep the journal for ever";
            mistakes.add_with_help(path, format!("must be at most {KEEP_DAYS_MAX}"), help);
        }
        _ => {}
    }
}

/// How many days a file keeps the journal; nothing else of it is looked at.
pub fn journal_keep_days(path: &Path, lookup: Lookup<'_>) -> Result<Option<u32>, LoadError> {
    #[derive(Deserialize)]
    struct KeptFor {
        #[serde(default)]
        journal_keep_days: Option<u32>,
    }
    let (kept, source): (KeptFor, _) = read_fields(path, &["journal_keep_days"], lookup)?;
    let mut mistakes = Mistakes::default();
    keep_days(&mut mistakes, kept.journal_keep_days);
    if mistakes.0.is_empty() {
        Ok(kept.journal_keep_days)
    } else {
        Err(LoadError::Invalid(source.report(mistakes.0)))
    }
}

/// Where the journal is, given what a file says of it.
fn place(
    mistakes: &mut Mistakes,
    folder: &Path,
    data_dir: &Path,
    named: Option<&str>,
    password_file: Option<&Path>,
) -> Place {
    let file = |name: &Path| Place::File(folder.join(name));
    let password = secret(mistakes, "journal_password", None, password_file, folder);
    let place = match named.map(str::parse) {
        None => file(&data_dir.join("journal.sqlite")),
        Some(Ok(Place::File(name))) => file(&name),
        Some(Ok(place)) => place,
        Some(Err(error)) => {
            mistakes.add("journal", error.to_string());
            return file(Path::new(""));
        }
    };
    match (place, password) {
        (Place::Server(server), Some(_)) if server.has_password() => {
            mistakes.add("journal_password_file", "is of no use: the URL of `journal` has a password");
            Place::Server(server)
        }
        (Place::Server(server), Some(password)) => {
            Place::Server(server.with_password(password.expose_secret().to_owned()))
        }
        (Place::File(path), Some(_)) => {
            mistakes.add("journal_password_file", "is of use with a `mysql` URL in `journal` alone");
            Place::File(path)
        }
        (place, None) => place,
    }
}

#[derive(Deserialize)]
struct Kept {
    #[serde(default = "default_data_dir")]
    data_dir: PathBuf,
    #[serde(default)]
    journal: Option<String>,
    #[serde(default)]
    journal_password_file: Option<PathBuf>,
}

/// What the hash of keys depends on.
#[derive(Deserialize)]
struct Pepper {
    key_pepper: Option<Secret>,
    key_pepper_file: Option<PathBuf>,
}

impl Pepper {
    fn hash(&self, mistakes: &mut Mistakes, folder: &Path) -> ApiKeyHash {
        let (given, from) = (self.key_pepper.as_ref(), self.key_pepper_file.as_deref());
        hash_of(mistakes, given, from, folder)
    }
}

fn hash_of(
    mistakes: &mut Mistakes,
    given: Option<&Secret>,
    from: Option<&Path>,
    folder: &Path,
) -> ApiKeyHash {
    let pepper = secret(mistakes, "key_pepper", given, from, folder);
    ApiKeyHash::new(pepper.as_ref().map(ExposeSecret::expose_secret))
}

fn address(mistakes: &mut Mistakes, path: &str, text: &str) -> Option<SocketAddr> {
    let address = text.parse().ok();
    if address.is_none() {
        mistakes.add(path, format!("must be an IP address and a port, as 127.0.0.1:8080, not `{text}`"));
    }
    address
}

fn admin(mistakes: &mut Mistakes, file: &File, folder: &Path, clients: SocketAddr) -> Option<Admin> {
    let given = &file.admin;
    let listen = address(mistakes, "admin.listen", &given.listen);
    let key =
        secret(mistakes, "admin.api_key", given.api_key.as_ref(), given.api_key_file.as_deref(), folder);
    let admin = Admin { listen: listen?, api_key: key? };
    if admin.listen == clients && clients.port() != 0 {
        mistakes.add("admin.listen", "is the address of `listen`; operators need one of their own");
    }
    Some(admin)
}

/// A secret from the file itself or from a file it names; a line end at the end of that one does not count.
pub(super) fn secret(
    mistakes: &mut Mistakes,
    path: &str,
    given: Option<&Secret>,
    from: Option<&Path>,
    folder: &Path,
) -> Option<SecretString> {
    match (given, from) {
        (None, None) => None,
        (Some(secret), None) => Some(secret.0.clone()),
        (Some(_), Some(_)) => {
            let what = format!("give it here or in `{path}_file`, not in both");
            mistakes.add(path, what);
            None
        }
        (None, Some(from)) => {
            let from = folder.join(from);
            let what = match std::fs::read_to_string(&from) {
                Ok(text) if !text.trim_end_matches(['\r', '\n']).is_empty() => {
                    return Some(SecretString::from(text.trim_end_matches(['\r', '\n'])));
                }
                Ok(_) => format!("{} is empty", from.display()),
                Err(error) => format!("cannot read {}: {error}", from.display()),
            };
            mistakes.add(format!("{path}_file"), what);
            None
        }
    }
}
