//! The daily look at what providers counted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Decimal;

/// Once a day what providers counted is compared with the journal, as `tollbook reconcile` does it. Nothing is posted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// Folder of the files, `.csv` or `.json`, relative to this file. Those in a folder of it are of the upstream that is named
    /// so, those in the folder itself say whose they are.
    pub folder: PathBuf,
    /// When, in UTC. At a start it is done too.
    #[serde(default = "default_at")]
    pub at: String,
    /// Percent of the provider's amount that may differ; 5 if absent.
    #[serde(default)]
    pub tolerance: Option<Decimal>,
    /// So many days back are compared, as far as the files have them.
    #[serde(default = "default_days")]
    pub days: u32,
    /// Names of the provider's and ours.
    #[serde(default)]
    pub models: BTreeMap<String, String>,
    /// What the files' columns are, where their format is not known: `day=COLUMN,model=COLUMN,…`.
    #[serde(default)]
    pub columns: Option<String>,
}

fn default_at() -> String {
    "06:00".to_owned()
}

fn default_days() -> u32 {
    7
}
