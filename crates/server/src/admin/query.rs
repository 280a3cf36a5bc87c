//! The query of a question: only what its action has, each once, all of it readable before anything is done.

use std::collections::BTreeMap;

use tollbook_store::ObjectKind;

use super::routes::Action;
use super::{Refusal, bad};
use crate::text::unescaped;

const FLAGS: [&str; 4] = ["dry_run", "prune", "cascade", "disabled"];
const NUMBERS: [&str; 2] = ["limit", "before"];
/// Lines of an answer, and the most that may be asked for.
pub(super) const PAGE: usize = 100;
pub(super) const PAGE_MAX: usize = 1_000;

/// Fields by which a list of a kind can be filtered.
pub(super) fn filters(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        ObjectKind::Plan => &[],
        ObjectKind::Tenant => &["disabled", "plan"],
        ObjectKind::Project => &["disabled"],
        ObjectKind::Key => &["disabled", "service"],
        ObjectKind::Service | ObjectKind::User => &["status"],
        ObjectKind::Operator => &["disabled", "role", "tenant"],
        ObjectKind::Upstream => &["dialect"],
        ObjectKind::Model => &["upstream"],
    }
}

/// The parameters of an action, but for its filters.
fn parameters(action: Action) -> &'static [&'static str] {
    match action {
        Action::List(_) => &["limit", "after", "prefix"],
        Action::Changes => &["limit", "before", "tenant"],
        Action::Limits => &["limit", "after", "tenant"],
        Action::Prices => &["model", "version"],
        Action::Create(_) | Action::Replace(_) | Action::Merge(_) | Action::Rotate(_) => &["dry_run"],
        Action::Delete(_) => &["dry_run", "cascade"],
        Action::Apply => &["dry_run", "prune"],
        Action::Explain
        | Action::Accounts
        | Action::Inspect
        | Action::Adjust
        | Action::Release
        | Action::Show(_)
        | Action::Export
        | Action::Reconcile
        | Action::OpenApi => &[],
    }
}

pub(super) struct Query {
    fields: BTreeMap<String, String>,
    filters: &'static [&'static str],
}

impl Query {
    pub(super) fn parse(action: Action, text: &str) -> Result<Self, Refusal> {
        let filters = match action {
            Action::List(kind) => filters(kind),
            _ => &[],
        };
        let mut fields = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (field, value) = pair.split_once('=').unwrap_or((pair, "true"));
            let value = unescaped(&value.replace('+', " "));
            let value = value.ok_or_else(|| bad(format!("`{field}` is not percent-encoded UTF-8")))?;
            if !parameters(action).contains(&field) && !filters.contains(&field) {
                return Err(bad(format!("`{field}` is no parameter here")));
            }
            if fields.insert(field.to_owned(), value).is_some() {
                return Err(bad(format!("`{field}` is given twice")));
            }
        }
        let query = Self { fields, filters };
        for field in FLAGS {
            query.flag(field)?;
        }
        for field in NUMBERS {
            query.number(field)?;
        }
        query.limit()?;
        Ok(query)
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    pub(super) fn number(&self, field: &str) -> Result<Option<usize>, Refusal> {
        let number = self.text(field).map(str::parse).transpose();
        number.map_err(|_| bad(format!("`{field}` is no number")))
    }

    /// How many lines are asked for.
    pub(super) fn limit(&self) -> Result<usize, Refusal> {
        match self.number("limit")? {
            None => Ok(PAGE),
            Some(limit) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
            Some(_) => Err(bad(format!("`limit` is from 1 to {PAGE_MAX}"))),
        }
    }

    pub(super) fn flag(&self, field: &str) -> Result<bool, Refusal> {
        match self.text(field) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(bad(format!("`{field}` is true or false"))),
        }
    }

    pub(super) fn filters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.filters.iter().filter_map(|field| Some((*field, self.text(field)?)))
    }
}
