//! Which names a page is of: one stretch of the order of names, so that an index finds it and nothing is passed over.

use tollbook_store::{ObjectKind, ObjectsQuery, StoreError, StoreErrorKind};

use crate::db::Value;

/// From a name (tenant, project, id) up to but not including another.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) from: [String; 3],
    /// `None` is after every text.
    pub(crate) to: [Option<String>; 3],
}

impl Range {
    pub(crate) fn of(query: &ObjectsQuery) -> Result<Self, StoreError> {
        let refused = |what| Err(StoreError::not_applied(StoreErrorKind::Refused(what)));
        if query.tenant.is_none() && query.project.is_some() {
            return refused("a project needs its tenant");
        }
        if query.after.as_ref().is_some_and(|after| after.kind != query.kind) {
            return refused("a page goes on after an object of its kind");
        }
        let leading = leading(query);
        if !query.prefix.is_empty() && leading.len() != own_place(query.kind) {
            return refused("a prefix needs the ids that lead to it");
        }
        let mut from = leading.clone();
        from.push(query.prefix.clone());
        from.resize(3, String::new());
        let mut to: Vec<_> = leading.into_iter().map(Some).collect();
        to.push(following(&query.prefix));
        to.resize(3, Some(String::new()));
        if let Some(after) = &query.after {
            // The next text after one is that with a zero byte behind it.
            let next = vec![after.tenant.clone(), after.project.clone(), format!("{}\0", after.id)];
            from = from.max(next);
        }
        let (Ok(from), Ok(to)) = (from.try_into(), to.try_into()) else {
            return refused("a name has three parts");
        };
        Ok(Self { from, to })
    }

    /// As the statement takes it.
    pub(crate) fn values(self) -> impl Iterator<Item = Value> {
        // No UTF-8 has this byte, and every blob is after every text.
        let after_all = || Value::Bytes(vec![0xff]);
        let to = self.to.into_iter().map(move |text| text.map_or_else(after_all, Value::Text));
        self.from.into_iter().map(Value::Text).chain(to)
    }
}

/// The ids that are the same in every name of the page.
fn leading(query: &ObjectsQuery) -> Vec<String> {
    use ObjectKind::{Key, Project, Service, Tenant, User};
    let has_tenant = matches!(query.kind, Tenant | Project | Key | Service | User);
    let has_project = matches!(query.kind, Project | Key);
    let mut leading = Vec::new();
    match &query.tenant {
        Some(tenant) => leading.push(tenant.clone()),
        None if has_tenant => return leading,
        None => leading.push(String::new()),
    }
    match &query.project {
        Some(project) => leading.push(project.clone()),
        None if has_project => {}
        None => leading.push(String::new()),
    }
    leading
}

/// Where in a name an object's own id stands.
fn own_place(kind: ObjectKind) -> usize {
    match kind {
        ObjectKind::Tenant => 0,
        ObjectKind::Project => 1,
        _ => 2,
    }
}

/// The first text after all that begin so.
fn following(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tollbook_store::ObjectName;

    use super::*;

    fn range(query: &ObjectsQuery) -> (Vec<String>, Vec<String>) {
        let Range { from, to } = Range::of(query).unwrap();
        (from.to_vec(), to.into_iter().map(|text| text.unwrap_or_else(|| "∞".to_owned())).collect())
    }

    #[test]
    fn a_page_is_one_stretch_of_names() {
        let all = |kind| ObjectsQuery::of(kind, 10);
        let some = |text: &str| Some(text.to_owned());
        let stretch = |from: [&str; 3], to: [&str; 3]| {
            (from.map(str::to_owned).to_vec(), to.map(str::to_owned).to_vec())
        };
        assert_eq!(range(&all(ObjectKind::Key)), stretch(["", "", ""], ["∞", "", ""]));
        assert_eq!(range(&all(ObjectKind::Plan)), stretch(["", "", ""], ["", "", "∞"]));
        let tenants = ObjectsQuery { prefix: "ac".to_owned(), ..all(ObjectKind::Tenant) };
        assert_eq!(range(&tenants), stretch(["ac", "", ""], ["ad", "", ""]));
        let projects = ObjectsQuery { tenant: some("t"), prefix: "p".to_owned(), ..all(ObjectKind::Project) };
        assert_eq!(range(&projects), stretch(["t", "p", ""], ["t", "q", ""]));
        let services = ObjectsQuery { tenant: some("t"), ..all(ObjectKind::Service) };
        assert_eq!(range(&services), stretch(["t", "", ""], ["t", "", "∞"]));
        let keys = ObjectsQuery { tenant: some("t"), project: some("p"), ..all(ObjectKind::Key) };
        assert_eq!(range(&keys), stretch(["t", "p", ""], ["t", "p", "∞"]));
        let after = ObjectName {
            kind: ObjectKind::Key,
            tenant: "t".to_owned(),
            project: "p".to_owned(),
            id: "k".to_owned(),
        };
        let next = ObjectsQuery { after: Some(after), ..keys };
        assert_eq!(range(&next), stretch(["t", "p", "k\0"], ["t", "p", "∞"]));
        let later = ObjectsQuery { prefix: "l".to_owned(), ..next };
        assert_eq!(range(&later), stretch(["t", "p", "l"], ["t", "p", "m"]), "the later of the two");
    }

    #[test]
    fn what_follows_a_prefix() {
        for (prefix, want) in [
            ("", None),
            ("a", Some("b")),
            ("a\u{7f}", Some("a\u{80}")),
            ("é", Some("ê")),
            ("\u{d7ff}", Some("\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
        ] {
            assert_eq!(following(prefix).as_deref(), want, "{prefix:?}");
        }
    }

    #[test]
    fn a_question_that_no_index_answers_is_refused() {
        let keys = ObjectsQuery::of(ObjectKind::Key, 10);
        let tenant = Some("t".to_owned());
        for query in [
            ObjectsQuery { project: Some("p".to_owned()), ..keys.clone() },
            ObjectsQuery { prefix: "k".to_owned(), ..keys.clone() },
            ObjectsQuery { tenant, prefix: "k".to_owned(), ..keys.clone() },
            ObjectsQuery { prefix: "p".to_owned(), ..ObjectsQuery::of(ObjectKind::Project, 10) },
            ObjectsQuery {
                after: Some(ObjectName {
                    kind: ObjectKind::Plan,
                    tenant: String::new(),
                    project: String::new(),
                    id: "k".to_owned(),
                }),
                ..keys
            },
        ] {
            assert!(Range::of(&query).is_err(), "{query:?}");
        }
    }
}
