//! Which path is what: the one table of all that is served.
//!
//! Deny by default: what has no row is 404, and what has one under another method is 405. A row that is a `Call` goes
//! through admission; nothing else here costs anything.

use http::Method;
use tollbook_wire::Surface;

/// What stands behind a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Admitted, sent upstream, metered, settled.
    Call(Surface),
    Healthz,
    Readyz,
    Metrics,
    Models,
    /// One model; its name is what follows the row's path.
    Model,
    Limits,
}

/// What a request's method and path come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Door(Door),
    /// The path is served, by this method.
    OnlyBy(&'static str),
    Nothing,
}

const ROWS: [(&str, Door); 10] = [
    ("/v1/chat/completions", Door::Call(Surface::Chat)),
    ("/v1/responses", Door::Call(Surface::Responses)),
    ("/v1/completions", Door::Call(Surface::Completions)),
    ("/v1/embeddings", Door::Call(Surface::Embeddings)),
    ("/v1/messages", Door::Call(Surface::Messages)),
    ("/v1/models", Door::Models),
    ("/v1/limits", Door::Limits),
    ("/healthz", Door::Healthz),
    ("/readyz", Door::Readyz),
    ("/metrics", Door::Metrics),
];

/// In front of the name of one model.
const MODEL: &str = "/v1/models/";
/// What an upstream's base URL already holds of a path.
const VERSION: &str = "/v1";

/// The paths that are served, and what must not be opened with them; for the configuration's checks.
pub fn served_paths() -> impl Iterator<Item = &'static str> {
    let rows = ROWS.iter().map(|(path, _)| *path);
    // Where the dialects' metered surfaces are or will be, and what is refused by name.
    rows.chain(["/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/realtime", "/v1/models/x"])
}

/// Looks a request up.
pub(crate) fn find(method: &Method, path: &str) -> Found {
    if let Some((_, door)) = ROWS.iter().find(|(row, _)| *row == path) {
        return if door.takes(method) { Found::Door(*door) } else { Found::OnlyBy(door.method()) };
    }
    if *method == Method::GET && path.starts_with(MODEL) {
        return Found::Door(Door::Model);
    }
    Found::Nothing
}

/// The name in the path of one model.
pub(crate) fn model_name(path: &str) -> &str {
    path.strip_prefix(MODEL).unwrap_or_default()
}

/// The path of a surface.
pub(crate) fn route(surface: Surface) -> &'static str {
    let row = ROWS.iter().find(|(_, door)| *door == Door::Call(surface));
    row.map_or("", |(path, _)| path)
}

/// What of a path follows an upstream's base URL.
pub(crate) fn below_version(path: &str) -> &str {
    path.strip_prefix(VERSION).filter(|rest| rest.starts_with('/')).unwrap_or(path)
}

/// Where a surface lives below an upstream's base URL, e.g. `/chat/completions`.
pub(crate) fn upstream_path(surface: Surface) -> &'static str {
    let row = ROWS.iter().find(|(_, door)| *door == Door::Call(surface));
    row.map_or("", |(path, _)| path.strip_prefix(VERSION).unwrap_or(path))
}

impl Door {
    fn method(self) -> &'static str {
        match self {
            Self::Call(_) => "POST",
            _ => "GET",
        }
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Self::Call(_) => *method == Method::POST,
            Self::Models | Self::Model | Self::Limits => *method == Method::GET,
            Self::Healthz | Self::Readyz | Self::Metrics => *method == Method::GET || *method == Method::HEAD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_method_and_refused_by_others() {
        for (path, door) in ROWS {
            let method = Method::from_bytes(door.method().as_bytes()).unwrap();
            assert_eq!(find(&method, path), Found::Door(door));
            assert_eq!(find(&Method::DELETE, path), Found::OnlyBy(door.method()));
            assert_eq!(find(&method, &format!("{path}x")), Found::Nothing);
        }
        assert_eq!(find(&Method::GET, "/v1/models/a/b"), Found::Door(Door::Model));
        assert_eq!(model_name("/v1/models/a/b"), "a/b");
        assert_eq!(find(&Method::POST, "/v1/models/a"), Found::Nothing);
    }

    #[test]
    fn every_surface_has_one_place_upstream() {
        let paths = Surface::ALL.map(upstream_path);
        assert_eq!(paths, ["/chat/completions", "/responses", "/completions", "/embeddings", "/messages"]);
    }
}
