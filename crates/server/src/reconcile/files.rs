//! Files of what providers counted, taken as one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Columns, Usage, Whose, add, read};
use crate::config::LoadError;

/// What all files say together.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) usage: Usage,
    /// What a reader must know of the files.
    pub(crate) told: String,
    pub(crate) currencies: BTreeSet<String>,
}

impl Read {
    /// Adds what files of one account say.
    ///
    /// # Errors
    /// A file that is wrong, twice the same, or a last page that is none.
    pub(crate) fn take(
        &mut self,
        files: &[PathBuf],
        columns: Option<&Columns>,
        whose: &Whose,
    ) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        let mut goes_on = None;
        for path in files {
            let name = path.display().to_string();
            let text =
                crate::import::read(path).map_err(|error| format!("{name}: cannot be read: {error}"))?;
            if !seen.insert(*blake3::hash(text.as_bytes()).as_bytes()) {
                return Err(format!("{name}: has the same content as a file before it"));
            }
            let file = read(&name, &text, columns, whose)
                .map_err(|report| LoadError::Invalid(report).to_string())?;
            for (key, amounts) in &file.usage {
                add(self.usage.entry(key.clone()).or_default(), amounts);
            }
            if !file.unknown.is_empty() {
                let unknown = file.unknown.join(", ");
                // Writing into a string cannot fail.
                let _ = writeln!(self.told, "{name}: taken as {}; not looked at: {unknown}", file.format);
            }
            self.currencies.extend(file.currencies);
            goes_on = file.goes_on.then_some(name);
        }
        let what = "is a page that another one follows; give all pages, in their order";
        goes_on.map_or(Ok(()), |name| Err(format!("{name}: {what}")))
    }

    /// # Errors
    /// Amounts in several currencies, which no sum has.
    pub(crate) fn in_one_currency(&self) -> Result<(), String> {
        if self.currencies.len() <= 1 {
            return Ok(());
        }
        let all: Vec<&str> = self.currencies.iter().map(String::as_str).collect();
        Err(format!("the files are in several currencies: {}", all.join(", ")))
    }
}
