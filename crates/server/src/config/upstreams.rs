//! The data plane's settings: addresses, bounds, timeouts, providers.

use std::net::SocketAddr;
use std::path::Path;

use tollbook_admission::{
    AwayBounds, BreakerBounds, CountingBounds, FAILURES_MAX, Lives, OF_LAST_MAX, Settings, SettleBounds,
    VoucherBounds,
};
use tollbook_gateway as gateway;

use super::clients;
use super::file::{self, File};
use super::mistakes::Mistakes;
use super::models::{dialect, surface};
use super::setup::secret;
use super::values::{Size, Span};

/// Shortest time limit that makes sense; a zero would end every call.
const TIMEOUT_MIN: Span = Span(std::time::Duration::from_millis(1));

pub(super) fn gateway(
    mistakes: &mut Mistakes,
    file: &File,
    folder: &Path,
    listen: SocketAddr,
) -> gateway::Config {
    let mut upstreams = Vec::new();
    let proxy = clients::upstream_proxy(mistakes, file, folder);
    for (index, given) in file.upstreams.iter().enumerate() {
        let path = format!("upstreams[{index}]");
        if file.upstreams.iter().take(index).any(|other| other.name == given.name) {
            mistakes.add(format!("{path}.name"), format!("`{}` is already taken", given.name));
        }
        let mut made = upstream(mistakes, &path, given, folder);
        if let (Some(made), Some(asked)) = (&mut made, &file.upstream_proxy) {
            let excepted = made.base_url.host().is_some_and(|host| clients::is_excepted(host, &asked.except));
            made.proxy = proxy.clone().filter(|_| !excepted);
        }
        upstreams.extend(made);
    }
    gateway::Config {
        listen,
        tls: clients::tls(mistakes, file, folder),
        http2: clients::http2(mistakes, &file.http2),
        cors: clients::cors(mistakes, file.cors.as_ref()),
        proxies: clients::proxies(mistakes, &file.proxies),
        bounds: bounds(mistakes, &file.http),
        timeouts: timeouts(mistakes, &file.timeouts),
        passes: passes(mistakes, file),
        upstreams,
    }
}

/// Paths that are passed through: the upstreams named must be there and speak the dialect.
fn passes(mistakes: &mut Mistakes, file: &File) -> gateway::Passes {
    let given = &file.passes;
    for (field, name, wanted) in [
        ("openai", &given.openai, file::Dialect::Openai),
        ("anthropic", &given.anthropic, file::Dialect::Anthropic),
    ] {
        let Some(name) = name else { continue };
        match file.upstreams.iter().find(|upstream| upstream.name == *name) {
            None => mistakes.add(format!("passes.{field}"), format!("there is no upstream `{name}`")),
            Some(upstream) if upstream.dialect != wanted => {
                mistakes.add(format!("passes.{field}"), format!("`{name}` speaks the other dialect"));
            }
            Some(_) => {}
        }
    }
    for (index, off) in given.off.iter().enumerate() {
        if !gateway::passed_paths().any(|path| below(off, path)) {
            let what = format!("no path that is passed through is `{off}` or lies below it");
            mistakes.add(format!("passes.off[{index}]"), what);
        }
    }
    gateway::Passes {
        openai: given.openai.clone(),
        anthropic: given.anthropic.clone(),
        off: given.off.clone(),
    }
}

/// A prefix opens nothing that the gateway serves, or passes, by other rules.
fn opened(mistakes: &mut Mistakes, path: &str, prefixes: &[String]) {
    for (index, prefix) in prefixes.iter().enumerate() {
        let at = format!("{path}.passes[{index}]");
        if !gateway::may_be_opened(prefix) {
            let what = "must be a path as /v1/vector_stores, of plain segments, without `/` at its end";
            mistakes.add(at, what);
        } else if gateway::passed_paths().chain(gateway::served_paths()).any(|taken| {
            let taken = taken.replace('*', "x");
            below(prefix, &taken) || below(&taken, prefix)
        }) {
            mistakes.add(at, format!("`{prefix}` holds paths that have rules of their own"));
        }
    }
}

/// `path` is `prefix` or lies below it.
fn below(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn upstream(
    mistakes: &mut Mistakes,
    path: &str,
    given: &file::Upstream,
    folder: &Path,
) -> Option<gateway::Upstream> {
    let api_key = secret(
        mistakes,
        &format!("{path}.api_key"),
        given.api_key.as_ref(),
        given.api_key_file.as_deref(),
        folder,
    );
    if given.name.is_empty() {
        mistakes.add(format!("{path}.name"), "must not be empty");
    }
    let speaks = dialect(given.dialect);
    for (index, name) in given.surfaces.iter().flatten().copied().map(surface).enumerate() {
        if name.dialect() != speaks {
            let text = format!("`{}` belongs to the other dialect", name.word());
            mistakes.add(format!("{path}.surfaces[{index}]"), text);
        }
    }
    if given.surfaces.as_ref().is_some_and(Vec::is_empty) {
        mistakes.add(format!("{path}.surfaces"), "must not be empty");
    }
    let times = &given.timeouts;
    for (field, span) in [
        ("connect", times.connect),
        ("first_byte", times.first_byte),
        ("silence", times.silence),
        ("event", times.event),
        ("idle", times.idle),
    ] {
        at_least(mistakes, &format!("{path}.timeouts.{field}"), span);
    }
    opened(mistakes, path, &given.passes);
    let base_url = url(mistakes, &format!("{path}.base_url"), &given.base_url)?;
    Some(gateway::Upstream {
        api_key,
        retries: given.retries,
        asks_usage: given.asks_usage,
        drains: given.drains,
        trace_context: given.trace_context,
        passes: given.passes.clone(),
        tls: clients::upstream_tls(mistakes, path, &given.tls, folder),
        connect_timeout: times.connect.0,
        first_byte_timeout: times.first_byte.0,
        silence_timeout: times.silence.0,
        event_timeout: times.event.0,
        idle_timeout: times.idle.0,
        ..gateway::Upstream::new(given.name.clone(), speaks, base_url)
    })
}

pub(super) fn url(mistakes: &mut Mistakes, path: &str, text: &str) -> Option<http::Uri> {
    let uri: Option<http::Uri> = text.parse().ok();
    let good = uri.filter(|uri: &http::Uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    match good {
        Some(uri) if uri.query().is_none() && !text.contains('@') && !text.contains('#') => Some(uri),
        Some(_) => {
            // Not shown: a password may stand in it.
            mistakes.add(path, "must have no user, query or fragment");
            None
        }
        None => {
            mistakes.add(path, format!("must be a URL, as https://api.openai.com/v1, not `{text}`"));
            None
        }
    }
}

fn bounds(mistakes: &mut Mistakes, given: &file::Http) -> gateway::Bounds {
    let mut size = |field: &str, given: Size| {
        if given.0 == 0 {
            mistakes.add(format!("http.{field}"), "must be at least 1");
        }
        usize::try_from(given.0).unwrap_or(usize::MAX)
    };
    let bounds = gateway::Bounds {
        body_max: size("body_max", given.body_max),
        bodies_in_flight_max: size("bodies_in_flight_max", given.bodies_in_flight_max),
        head_max: size("head_max", given.head_max),
        heads_in_flight_max: size("heads_in_flight_max", given.heads_in_flight_max),
        headers_max: size("headers_max", Size(u64::from(given.headers_max))),
        answer_max: size("answer_max", given.answer_max),
        answers_in_flight_max: size("answers_in_flight_max", given.answers_in_flight_max),
        connections_max: size("connections_max", Size(u64::from(given.connections_max))),
        upload_max: u64::try_from(size("upload_max", given.upload_max)).unwrap_or(u64::MAX),
        pace_min: usize::try_from(given.pace_min.0).unwrap_or(usize::MAX),
        streams_per_key_max: size("streams_per_key_max", Size(u64::from(given.streams_per_key_max))),
        drains_max: usize::try_from(given.drains_max).unwrap_or(usize::MAX),
    };
    // What is encoded is held beside what it decodes to.
    if bounds.bodies_in_flight_max < bounds.body_max.saturating_mul(2) {
        mistakes.add("http.bodies_in_flight_max", "must be at least twice `body_max`");
    }
    if bounds.answers_in_flight_max < bounds.answer_max {
        mistakes.add("http.answers_in_flight_max", "must be at least `answer_max`");
    }
    if bounds.heads_in_flight_max < bounds.head_max {
        mistakes.add("http.heads_in_flight_max", "must be at least `head_max`");
    }
    bounds
}

fn timeouts(mistakes: &mut Mistakes, given: &file::Timeouts) -> gateway::Timeouts {
    for (field, span) in [
        ("handshake", given.handshake),
        ("head", given.head),
        ("idle", given.idle),
        ("body_silence", given.body_silence),
        ("write_stall", given.write_stall),
    ] {
        at_least(mistakes, &format!("timeouts.{field}"), span);
    }
    gateway::Timeouts {
        handshake: given.handshake.0,
        head: given.head.0,
        idle: given.idle.0,
        body_silence: given.body_silence.0,
        write_stall: given.write_stall.0,
        keepalive: given.keepalive.0,
        drain: given.drain.0,
        detached: given.detached.0,
    }
}

/// Longest pause between two batches of progress.
const FLUSH_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// How calls are booked.
pub(super) fn calls(mistakes: &mut Mistakes, given: &file::Calls) -> Settings {
    let spans = [
        ("door_life", given.door_life),
        ("renewed_life", given.renewed_life),
        ("renew_every", given.renew_every),
        ("flush_every", given.flush_every),
        ("decide_within", given.decide_within),
        ("settle_within", given.settle_within),
    ];
    for (field, span) in spans {
        at_least(mistakes, &format!("calls.{field}"), span);
    }
    if given.renew_every.0.saturating_mul(2) >= given.renewed_life.0 {
        mistakes.add("calls.renew_every", "must be less than half of `renewed_life`");
    }
    if given.flush_every.0 > FLUSH_MAX {
        mistakes.add("calls.flush_every", "must be at most 30 s: a plan dies after a minute");
    }
    if given.settle_queue_max == 0 {
        mistakes.add("calls.settle_queue_max", "must be at least 1");
    }
    let breaker = breaker(mistakes, &given.breaker);
    Settings {
        lives: Lives {
            door: given.door_life.0,
            renewed: given.renewed_life.0,
            every: given.renew_every.0,
            flush: given.flush_every.0,
        },
        settle: SettleBounds {
            queue_max: usize::try_from(given.settle_queue_max).unwrap_or(usize::MAX),
            deadline: given.settle_within.0,
        },
        deadline: given.decide_within.0,
        spool_max: given.spool_max.0,
        vouchers: VoucherBounds { memory_max: given.vouchers_max.0, wait: given.lost_wait.0 },
        counting: CountingBounds {
            jobs_max: usize::try_from(given.count_jobs_max).unwrap_or(usize::MAX),
            bytes_max: usize::try_from(given.count_bytes_max.0).unwrap_or(usize::MAX),
        },
        away: AwayBounds { breaker, ..AwayBounds::default() },
    }
}

fn breaker(mistakes: &mut Mistakes, given: &file::Breaker) -> BreakerBounds {
    at_least(mistakes, "calls.breaker.slow", given.slow);
    for (field, number, max) in [
        ("failures", given.failures, FAILURES_MAX),
        ("of_last", given.of_last, OF_LAST_MAX),
        ("share", given.share, 100),
    ] {
        if !(1..=max).contains(&number) {
            mistakes.add(format!("calls.breaker.{field}"), format!("must be from 1 to {max}"));
        }
    }
    BreakerBounds { failures: given.failures, of_last: given.of_last, share: given.share, slow: given.slow.0 }
}

pub(super) fn at_least(mistakes: &mut Mistakes, path: &str, span: Span) {
    if span < TIMEOUT_MIN {
        mistakes.add(path, format!("must be at least {TIMEOUT_MIN}"));
    }
}
