//! Every path of the operators' API, as one table: what it does, who may, what it takes.
//!
//! The listener finds its way by this table, the OpenAPI document is made of it, and the tests of authorization go
//! through it; a path that is not here does not exist.

use std::sync::LazyLock;

use http::Method;
use tollbook_store::{ObjectKind, ObjectName};

use crate::config::file::Role;
use crate::text::unescaped;

/// What all paths begin with.
pub(crate) const ROOT: &str = "/admin/v1";

/// What a path does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Explain,
    Accounts,
    Limits,
    Prices,
    Inspect,
    Adjust,
    Release,
    Reconcile,
    List(ObjectKind),
    Create(ObjectKind),
    Show(ObjectKind),
    Replace(ObjectKind),
    Merge(ObjectKind),
    Delete(ObjectKind),
    Rotate(ObjectKind),
    Changes,
    Apply,
    Export,
    OpenApi,
}

/// Whom a path is for, of those whose role suffices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Operators of all tenants.
    All,
    /// Those of the tenant in the path too; to others of one tenant it does not exist.
    Tenant,
    /// Everybody: they see what is theirs.
    Filtered,
}

#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Below [`ROOT`]; parts in braces stand for ids.
    pub(crate) path: String,
    pub(crate) action: Action,
    pub(crate) role: Role,
    pub(crate) reach: Reach,
    pub(crate) summary: String,
}

/// The ids of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ids {
    pub(crate) tenant: String,
    pub(crate) project: String,
    pub(crate) id: String,
}

impl Ids {
    pub(crate) fn name(self, kind: ObjectKind) -> ObjectName {
        let Self { tenant, project, id } = self;
        ObjectName { kind, tenant, project, id }
    }
}

/// What a request's path and method come to.
pub(crate) enum Found {
    Route(&'static Route, Ids),
    /// The path exists, for these methods.
    Method(Vec<&'static Method>),
    /// An id is not percent-encoded UTF-8.
    BadId,
    Nothing,
}

pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut routes = vec![
        route(
            Method::POST,
            "/explain",
            Action::Explain,
            Role::Viewer,
            Reach::All,
            "What would become of a call, or what became of one",
        ),
        route(
            Method::GET,
            "/accounts",
            Action::Accounts,
            Role::Viewer,
            Reach::All,
            "All accounts that limits name, with their figures",
        ),
        route(
            Method::GET,
            "/limits",
            Action::Limits,
            Role::Viewer,
            Reach::Filtered,
            "All limits in force, and where each is written",
        ),
        route(
            Method::GET,
            "/prices",
            Action::Prices,
            Role::Viewer,
            Reach::All,
            "The price book in force, or what another version of it said",
        ),
        route(
            Method::GET,
            "/inspect/{tenant}",
            Action::Inspect,
            Role::Viewer,
            Reach::Tenant,
            "What the book keeps of a tenant",
        ),
        route(
            Method::POST,
            "/tenants/{tenant}/adjust",
            Action::Adjust,
            Role::Admin,
            Reach::All,
            "Post a difference to a quota of the tenant, with a reason",
        ),
        route(
            Method::POST,
            "/holds/{id}/release",
            Action::Release,
            Role::Admin,
            Reach::Filtered,
            "Free what a call holds that nobody ends; what it has consumed stays charged",
        ),
        route(
            Method::POST,
            "/reconcile",
            Action::Reconcile,
            Role::Admin,
            Reach::All,
            "Post what a provider counted and the journal does not have, or has too much",
        ),
        route(
            Method::GET,
            "/changes",
            Action::Changes,
            Role::Viewer,
            Reach::Filtered,
            "What was changed, when and by whom; the newest first",
        ),
        route(
            Method::POST,
            "/apply",
            Action::Apply,
            Role::Admin,
            Reach::All,
            "Make the objects be what a document says, all of them or none",
        ),
        route(
            Method::GET,
            "/export",
            Action::Export,
            Role::Admin,
            Reach::All,
            "All plans and tenants as one document, which apply takes",
        ),
        route(
            Method::GET,
            "/openapi.json",
            Action::OpenApi,
            Role::Viewer,
            Reach::Filtered,
            "This description",
        ),
    ];
    for kind in ObjectKind::ALL {
        routes.extend(of_kind(kind));
    }
    routes
});

fn route(method: Method, path: &str, action: Action, role: Role, reach: Reach, summary: &str) -> Route {
    Route { method, path: path.to_owned(), action, role, reach, summary: summary.to_owned() }
}

/// The collection of a kind, and one of it.
fn paths(kind: ObjectKind) -> (&'static str, &'static str) {
    match kind {
        ObjectKind::Plan => ("/plans", "/plans/{id}"),
        ObjectKind::Tenant => ("/tenants", "/tenants/{tenant}"),
        ObjectKind::Project => ("/tenants/{tenant}/projects", "/tenants/{tenant}/projects/{project}"),
        ObjectKind::Key => {
            ("/tenants/{tenant}/projects/{project}/keys", "/tenants/{tenant}/projects/{project}/keys/{id}")
        }
        ObjectKind::Service => ("/tenants/{tenant}/services", "/tenants/{tenant}/services/{id}"),
        ObjectKind::User => ("/tenants/{tenant}/users", "/tenants/{tenant}/users/{id}"),
        ObjectKind::Operator => ("/operators", "/operators/{id}"),
        ObjectKind::Upstream => ("/upstreams", "/upstreams/{id}"),
        ObjectKind::Model => ("/models", "/models/{id}"),
    }
}

fn of_kind(kind: ObjectKind) -> Vec<Route> {
    let (all, one) = paths(kind);
    let word = kind.word();
    let read = if kind == ObjectKind::Operator { Role::Owner } else { Role::Viewer };
    // Who names upstreams decides where prompts and keys go.
    let write = match kind {
        ObjectKind::Operator | ObjectKind::Upstream | ObjectKind::Model => Role::Owner,
        _ => Role::Admin,
    };
    // What binds a whole tenant is not for those to change whom it binds.
    let (seen, listed, changed) = match kind {
        ObjectKind::Tenant => (Reach::Tenant, Reach::Filtered, Reach::All),
        ObjectKind::Project | ObjectKind::Key | ObjectKind::Service | ObjectKind::User => {
            (Reach::Tenant, Reach::Tenant, Reach::Tenant)
        }
        _ => (Reach::All, Reach::All, Reach::All),
    };
    let mut routes = vec![
        route(Method::GET, all, Action::List(kind), read, listed, &format!("List {word}s")),
        route(Method::POST, all, Action::Create(kind), write, changed, &format!("Make a {word}")),
        route(Method::GET, one, Action::Show(kind), read, seen, &format!("Show a {word}")),
        route(
            Method::PUT,
            one,
            Action::Replace(kind),
            write,
            changed,
            &format!("Make a {word}, or replace what it says"),
        ),
        route(
            Method::PATCH,
            one,
            Action::Merge(kind),
            write,
            changed,
            &format!("Change parts of a {word} (JSON merge patch)"),
        ),
        route(Method::DELETE, one, Action::Delete(kind), write, changed, &format!("Delete a {word}")),
    ];
    if matches!(kind, ObjectKind::Key | ObjectKind::Operator) {
        let path = format!("{one}/rotate");
        let summary = format!("Give a {word} a new secret");
        routes.push(route(Method::POST, &path, Action::Rotate(kind), write, changed, &summary));
    }
    routes
}

/// Finds the route of a request.
pub(crate) fn find(method: &Method, path: &str) -> Found {
    let Some(rest) = path.strip_prefix(ROOT) else { return Found::Nothing };
    let mut methods = Vec::new();
    for route in ROUTES.iter() {
        match matched(&route.path, rest) {
            Some(Ok(ids)) if route.method == *method => return Found::Route(route, ids),
            Some(Ok(_)) => methods.push(&route.method),
            Some(Err(())) => return Found::BadId,
            None => {}
        }
    }
    if methods.is_empty() { Found::Nothing } else { Found::Method(methods) }
}

/// The ids of a path that fits; an error if one cannot be read.
fn matched(pattern: &str, path: &str) -> Option<Result<Ids, ()>> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let (mut ids, mut readable) = (Ids::default(), true);
    loop {
        let (want, part) = match (wanted.next(), given.next()) {
            (None, None) => return Some(if readable { Ok(ids) } else { Err(()) }),
            (Some(want), Some(part)) => (want, part),
            _ => return None,
        };
        let slot = match want {
            "{tenant}" => &mut ids.tenant,
            "{project}" => &mut ids.project,
            "{id}" => &mut ids.id,
            literal if literal == part => continue,
            _ => return None,
        };
        match unescaped(part) {
            Some(id) if !id.is_empty() => *slot = id,
            Some(_) => return None,
            None => readable = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(method: &Method, path: &str) -> Option<(Action, Ids)> {
        match find(method, path) {
            Found::Route(route, ids) => Some((route.action, ids)),
            _ => None,
        }
    }

    #[test]
    fn a_path_leads_to_its_route_with_its_ids() {
        let (action, ids) = at(&Method::GET, "/admin/v1/tenants/a%2Fb/projects/p/keys/k%20k").unwrap();
        assert_eq!(action, Action::Show(ObjectKind::Key));
        assert_eq!((ids.tenant.as_str(), ids.project.as_str(), ids.id.as_str()), ("a/b", "p", "k k"));
        let (action, _) = at(&Method::POST, "/admin/v1/tenants/a/projects/p/keys/k/rotate").unwrap();
        assert_eq!(action, Action::Rotate(ObjectKind::Key));
    }

    #[test]
    fn what_is_not_in_the_table_does_not_exist() {
        for path in [
            "/admin/v1",
            "/admin/v1/",
            "/admin/v2/tenants",
            "/admin/v1/tenants/",
            "/admin/v1/tenants/a/keys",
            "/",
        ] {
            assert!(matches!(find(&Method::GET, path), Found::Nothing), "{path}");
        }
        assert!(matches!(find(&Method::GET, "/admin/v1/tenants/%ff"), Found::BadId));
        let Found::Method(methods) = find(&Method::PUT, "/admin/v1/tenants") else { panic!("a route") };
        assert_eq!(methods, [&Method::GET, &Method::POST]);
    }

    #[test]
    fn no_two_routes_are_the_same() {
        let mut seen = std::collections::BTreeSet::new();
        assert!(ROUTES.iter().all(|route| seen.insert((route.method.as_str(), &route.path))));
    }
}
