//! `tollbook keys new`.

use anyhow::Context;
use serde_json::json;
use tollbook_admission::ApiKeyHash;

use super::args::KeysNew;
use super::{Console, Failure, environment};
use crate::config;
use crate::key::{self, KeyHash};

pub(super) fn new(args: &KeysNew, console: &mut Console<'_>) -> Result<(), Failure> {
    // The same rule as for the file, so that what is printed can be used.
    tollbook_policy::check_id(&args.id, tollbook_policy::ID_MAX)
        .map_err(|kind| Failure::Usage(format!("--id {kind}")))?;
    let hasher = match &args.config {
        Some(path) => config::api_key_hash(path, &environment)?,
        None => ApiKeyHash::new(None),
    };
    let secret = key::generate().context("cannot get random bits")?;
    let hash = KeyHash(hasher.digest(&secret));
    if args.json {
        return super::json(console, &json!({"id": args.id, "secret": secret, "hash": hash.to_string()}));
    }
    writeln!(console.out, "{secret}")?;
    writeln!(console.out, "- {{ id: {}, hash: \"{hash}\" }}", serde_json::Value::from(args.id.as_str()))?;
    if console.terminal {
        writeln!(
            console.err,
            "\nThe first line is the secret; it is not shown again. The second goes under `keys`."
        )?;
        if args.config.is_none() {
            writeln!(console.err, "Made without a pepper; give -c if the configuration has one.")?;
        }
    }
    Ok(())
}
