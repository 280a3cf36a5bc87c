//! Which paths are passed through: the one table of them.
//!
//! A path is matched segment by segment, and a segment is letters, digits, `_`, `-`, `.` and `~`, not dots alone: what
//! is checked here is what the provider reads, whatever it makes of `..`, `//`, `%2f`, `;` or `\`. Deny by default.
//! A path that names no model goes to the upstream that the configuration says; without one it is not served.

use http::Method;
use tollbook_wire::Dialect;

use crate::config::Config;

/// Longest path that is passed on.
pub(crate) const PATH_MAX: usize = 512;

/// What a passed call names, and what of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its body names a model. Charged what the answer reports, else what was held.
    Model,
    /// Its body names a model; the provider bills nothing.
    ModelFree,
    /// It may name a model; the provider bills nothing.
    Free,
    /// Things kept in the provider's account. Nothing is billed for the call.
    Stored,
    /// Starts work that is billed later and reported nowhere near this call.
    Spends,
    /// Below a prefix that the operator opened: a usage in its answer counts.
    Opened,
}

/// A path that is passed, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) dialect: Dialect,
    pub(crate) kind: Kind,
    /// The upstream, where no model in the body says it.
    pub(crate) upstream: Option<String>,
}

/// What a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    Pass(Pass),
    OnlyBy(&'static str),
    Nothing,
}

const OPENAI: Dialect = Dialect::OpenAi;
const ANTHROPIC: Dialect = Dialect::Anthropic;

/// Dialect, methods, path with `*` for one segment, kind. Every row with its dialect and path once per kind.
const ROWS: [(Dialect, &str, &str, Kind); 24] = [
    (OPENAI, "POST", "/v1/audio/transcriptions", Kind::Model),
    (OPENAI, "POST", "/v1/audio/translations", Kind::Model),
    (OPENAI, "POST", "/v1/audio/speech", Kind::Model),
    (OPENAI, "POST", "/v1/images/generations", Kind::Model),
    (OPENAI, "POST", "/v1/images/edits", Kind::Model),
    (OPENAI, "POST", "/v1/images/variations", Kind::Model),
    (OPENAI, "POST", "/v1/moderations", Kind::Free),
    (OPENAI, "GET, POST", "/v1/files", Kind::Stored),
    (OPENAI, "GET, DELETE", "/v1/files/*", Kind::Stored),
    (OPENAI, "GET", "/v1/files/*/content", Kind::Stored),
    (OPENAI, "POST", "/v1/uploads", Kind::Stored),
    (OPENAI, "POST", "/v1/uploads/*/parts", Kind::Stored),
    (OPENAI, "POST", "/v1/uploads/*/complete", Kind::Stored),
    (OPENAI, "POST", "/v1/uploads/*/cancel", Kind::Stored),
    (OPENAI, "GET", "/v1/batches", Kind::Stored),
    (OPENAI, "POST", "/v1/batches", Kind::Spends),
    (OPENAI, "GET", "/v1/batches/*", Kind::Stored),
    (OPENAI, "POST", "/v1/batches/*/cancel", Kind::Stored),
    (ANTHROPIC, "POST", "/v1/messages/count_tokens", Kind::ModelFree),
    (ANTHROPIC, "GET", "/v1/messages/batches", Kind::Stored),
    (ANTHROPIC, "POST", "/v1/messages/batches", Kind::Spends),
    (ANTHROPIC, "GET, DELETE", "/v1/messages/batches/*", Kind::Stored),
    (ANTHROPIC, "GET", "/v1/messages/batches/*/results", Kind::Stored),
    (ANTHROPIC, "POST", "/v1/messages/batches/*/cancel", Kind::Stored),
];
/// The same, of a service that both dialects have under one path: whose it is, the client's headers say.
const ROWS_ANTHROPIC_FILES: [(Dialect, &str, &str, Kind); 3] = [
    (ANTHROPIC, "GET, POST", "/v1/files", Kind::Stored),
    (ANTHROPIC, "GET, DELETE", "/v1/files/*", Kind::Stored),
    (ANTHROPIC, "GET", "/v1/files/*/content", Kind::Stored),
];
/// By which methods a path below an opened prefix may be called.
const OPENED_METHODS: &str = "GET, POST, PUT, PATCH, DELETE";

/// The paths of the table; for the configuration's checks.
pub fn passed_paths() -> impl Iterator<Item = &'static str> {
    ROWS.iter().chain(&ROWS_ANTHROPIC_FILES).map(|(_, _, path, _)| *path)
}

/// Whether a prefix can be opened: plain segments below the version.
pub fn may_be_opened(prefix: &str) -> bool {
    is_plain(prefix) && prefix.strip_prefix("/v1/").is_some_and(|rest| !rest.is_empty())
}

/// Looks a request up. `spoken`: the dialect its headers speak.
pub(crate) fn find(config: &Config, method: &Method, path: &str, spoken: Dialect) -> Passing {
    if !is_plain(path) {
        return Passing::Nothing;
    }
    let rows: &mut dyn Iterator<Item = &(Dialect, &str, &str, Kind)> = match spoken {
        Dialect::OpenAi => &mut ROWS.iter(),
        Dialect::Anthropic => &mut ROWS_ANTHROPIC_FILES.iter().chain(&ROWS),
    };
    let mut other = None;
    let mut row_dialect = None;
    for (dialect, methods, row, kind) in rows {
        let open = matches(row, path) && !config.passes.off.iter().any(|off| below(off, row));
        if !open || row_dialect.is_some_and(|d| d != *dialect) {
            continue;
        }
        row_dialect = Some(*dialect);
        if !allows(methods, method) {
            other = other.or(Some(*methods));
            continue;
        }
        let upstream = match dialect {
            Dialect::OpenAi => config.passes.openai.clone(),
            Dialect::Anthropic => config.passes.anthropic.clone(),
        };
        return Passing::Pass(Pass { dialect: *dialect, kind: *kind, upstream });
    }
    if let Some(methods) = other {
        return Passing::OnlyBy(methods);
    }
    for upstream in &config.upstreams {
        if upstream.passes.iter().any(|prefix| below(prefix, path)) {
            if !allows(OPENED_METHODS, method) {
                return Passing::OnlyBy(OPENED_METHODS);
            }
            let upstream = (upstream.dialect, Some(upstream.name.clone()));
            return Passing::Pass(Pass { dialect: upstream.0, kind: Kind::Opened, upstream: upstream.1 });
        }
    }
    Passing::Nothing
}

/// The path consists of plain segments only.
pub(crate) fn is_plain(path: &str) -> bool {
    path.len() <= PATH_MAX
        && path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|segment| {
                segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.~".contains(&b))
                    && segment.bytes().any(|b| b != b'.')
            })
        })
}

fn allows(methods: &str, method: &Method) -> bool {
    methods.split(", ").any(|allowed| allowed == method.as_str())
}

fn matches(row: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    let all = row.split('/').all(|want| segments.next().is_some_and(|have| want == "*" || want == have));
    all && segments.next().is_none()
}

/// `path` is `prefix` or lies below it.
fn below(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bounds, Passes, Timeouts, Upstream};

    fn config() -> Config {
        let url: http::Uri = "http://127.0.0.1:1/v1".parse().unwrap();
        let mut local = Upstream::new("local", OPENAI, url.clone());
        local.passes = vec!["/v1/vector_stores".into()];
        Config {
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            http2: crate::Http2::default(),
            cors: None,
            proxies: crate::Proxies::default(),
            bounds: Bounds::default(),
            timeouts: Timeouts::default(),
            passes: Passes { openai: Some("local".into()), ..Passes::default() },
            upstreams: vec![local, Upstream::new("claude", ANTHROPIC, url)],
        }
    }

    #[test]
    fn every_row_is_found_by_its_methods_and_refused_by_others() {
        let config = config();
        for (dialect, methods, row, kind) in ROWS.iter().chain(&ROWS_ANTHROPIC_FILES) {
            let path = row.replace('*', "id_1");
            for method in methods.split(", ") {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let Passing::Pass(pass) = find(&config, &method, &path, *dialect) else {
                    panic!("{method} {path}")
                };
                assert_eq!((pass.dialect, pass.kind), (*dialect, *kind), "{method} {path}");
                let upstream = (*dialect == OPENAI).then_some("local");
                assert_eq!(pass.upstream.as_deref(), upstream);
            }
            assert!(matches!(find(&config, &Method::PUT, &path, *dialect), Passing::OnlyBy(_)), "{path}");
            assert_eq!(find(&config, &Method::GET, &format!("{path}/x/y/z"), *dialect), Passing::Nothing);
        }
    }

    #[test]
    fn paths_that_readers_take_apart_differently_are_not_passed() {
        let config = config();
        for path in [
            "//v1/files",
            "/v1//files",
            "/v1/files/",
            "/v1/files/..",
            "/v1/files/.",
            "/v1/files/...",
            "/v1/files/../batches",
            "/v1/files/%2e%2e",
            "/v1/files/a%2fb",
            "/v1/files%2fa",
            "/v1/files;a=b",
            "/v1/files/a;b",
            "/v1/files\\a",
            "/v1/files/a b",
            "/V1/files",
            "/v1/Files",
            "v1/files",
            "",
            "*",
            "/v1/vector_stores/../chat/completions",
            "/v1/vector_stores/%2e%2e/x",
            "/v1/vector_storesx",
            "/v1/files/ä",
        ] {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert_eq!(find(&config, &method, path, OPENAI), Passing::Nothing, "{method} {path}");
            }
        }
        let long = format!("/v1/files/{}", "a".repeat(PATH_MAX - 10));
        assert_eq!(long.len(), PATH_MAX);
        assert!(matches!(find(&config, &Method::GET, &long, OPENAI), Passing::Pass(_)));
        assert_eq!(find(&config, &Method::GET, &format!("{long}a"), OPENAI), Passing::Nothing);
    }

    #[test]
    fn rows_are_switched_off_and_prefixes_opened() {
        let mut config = config();
        config.passes.off = vec!["/v1/files".into(), "/v1/audio".into()];
        for path in ["/v1/files", "/v1/files/a", "/v1/files/a/content", "/v1/audio/speech"] {
            assert_eq!(find(&config, &Method::GET, path, OPENAI), Passing::Nothing, "{path}");
            assert_eq!(find(&config, &Method::POST, path, OPENAI), Passing::Nothing, "{path}");
        }
        assert!(matches!(find(&config, &Method::POST, "/v1/moderations", OPENAI), Passing::Pass(_)));
        for path in ["/v1/vector_stores", "/v1/vector_stores/vs_1/files"] {
            let Passing::Pass(pass) = find(&config, &Method::POST, path, ANTHROPIC) else { panic!("{path}") };
            assert_eq!((pass.kind, pass.upstream.as_deref()), (Kind::Opened, Some("local")));
        }
        assert!(matches!(find(&config, &Method::TRACE, "/v1/vector_stores", OPENAI), Passing::OnlyBy(_)));
    }
}
