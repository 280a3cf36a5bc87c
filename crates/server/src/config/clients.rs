//! How clients come in and how providers are reached: certificates, HTTP/2, CORS, proxies.

use std::net::IpAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use tollbook_gateway as gateway;
use tollbook_gateway::{Network, TlsFile};

use super::file::{self, File};
use super::mistakes::Mistakes;
use super::setup::secret;
use super::upstreams::at_least;

/// Smallest window of HTTP/2 that makes sense, and the largest its frames can tell.
const WINDOW_MIN: u64 = 16 << 10;
const WINDOW_MAX: u64 = (1 << 31) - 1;

/// The listener's certificate; its files must be good.
pub(super) fn tls(mistakes: &mut Mistakes, file: &File, folder: &Path) -> Option<gateway::Tls> {
    let given = file.tls.as_ref()?;
    at_least(mistakes, "tls.check_every", given.check_every);
    let tls = gateway::Tls {
        certificate: folder.join(&given.certificate_file),
        key: folder.join(&given.key_file),
        check_every: given.check_every.0,
    };
    if let Err(error) = tls.check() {
        let member = match error.file {
            TlsFile::Certificate => "tls.certificate_file",
            TlsFile::Key => "tls.key_file",
        };
        mistakes.add(member, error.text);
    }
    Some(tls)
}

pub(super) fn http2(mistakes: &mut Mistakes, given: &file::Http2) -> gateway::Http2 {
    at_least(mistakes, "http2.ping_every", given.ping_every);
    at_least(mistakes, "http2.ping_within", given.ping_within);
    if given.streams_max == 0 {
        mistakes.add("http2.streams_max", "must be at least 1");
    }
    let mut window = |field: &str, size: super::values::Size| {
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&size.0) {
            mistakes
                .add(format!("http2.{field}"), format!("must be from {WINDOW_MIN} to {WINDOW_MAX} bytes"));
        }
        u32::try_from(size.0).unwrap_or(u32::MAX)
    };
    gateway::Http2 {
        enabled: given.enabled,
        streams_max: given.streams_max,
        stream_window: window("stream_window", given.stream_window),
        connection_window: window("connection_window", given.connection_window),
        resets_max: given.resets_max,
        ping_every: given.ping_every.0,
        ping_within: given.ping_within.0,
    }
}

pub(super) fn cors(mistakes: &mut Mistakes, given: Option<&file::Cors>) -> Option<gateway::Cors> {
    let given = given?;
    for (index, origin) in given.origins.iter().enumerate() {
        if origin != "*" && !is_origin(origin) {
            let what = format!("must be an origin, as https://app.example.com, or *, not `{origin}`");
            mistakes.add(format!("cors.origins[{index}]"), what);
        }
    }
    Some(gateway::Cors { origins: given.origins.clone(), max_age: given.max_age.0 })
}

/// Scheme, host and perhaps a port; no path, which a browser never sends.
fn is_origin(text: &str) -> bool {
    let uri: Option<http::Uri> = text.parse().ok();
    uri.is_some_and(|uri| {
        uri.scheme().is_some()
            && uri.authority().is_some_and(|a| text.ends_with(a.as_str()) && !text.contains('@'))
    })
}

pub(super) fn proxies(mistakes: &mut Mistakes, given: &file::Proxies) -> gateway::Proxies {
    let mut trusted = Vec::new();
    for (index, text) in given.trusted.iter().enumerate() {
        let network = Network::parse(text);
        if network.is_none() {
            let what = format!("must be an address or a network, as 10.0.0.0/8, not `{text}`");
            mistakes.add(format!("proxies.trusted[{index}]"), what);
        }
        trusted.extend(network);
    }
    if given.proxy_protocol && given.trusted.is_empty() {
        mistakes
            .add("proxies.proxy_protocol", "is asked of trusted addresses only, and `trusted` names none");
    }
    gateway::Proxies { trusted, proxy_protocol: given.proxy_protocol }
}

/// The proxy that upstreams are reached through.
pub(super) fn upstream_proxy(mistakes: &mut Mistakes, file: &File, folder: &Path) -> Option<gateway::Proxy> {
    let given = file.upstream_proxy.as_ref()?;
    let password = secret(
        mistakes,
        "upstream_proxy.password",
        given.password.as_ref(),
        given.password_file.as_deref(),
        folder,
    );
    let authorization = match (&given.user, password) {
        (Some(user), password) if !user.contains(':') => {
            let pair = format!("{user}:{}", password.as_ref().map_or("", |p| p.expose_secret()));
            Some(SecretString::from(format!("Basic {}", STANDARD.encode(pair))))
        }
        (Some(_), _) => {
            mistakes.add("upstream_proxy.user", "must hold no colon");
            None
        }
        (None, Some(_)) => {
            mistakes.add("upstream_proxy.password", "needs a `user`");
            None
        }
        (None, None) => None,
    };
    for (index, entry) in given.except.iter().enumerate() {
        if entry.is_empty() || (entry.contains('/') && Network::parse(entry).is_none()) {
            let what = format!("must be a host, an address, a network or *, not `{entry}`");
            mistakes.add(format!("upstream_proxy.except[{index}]"), what);
        }
    }
    let url: Option<http::Uri> = given.url.parse().ok();
    let good = |uri: &http::Uri| {
        uri.scheme_str() == Some("http") && uri.host().is_some() && matches!(uri.path(), "" | "/")
    };
    let url = url.filter(good).filter(|_| !given.url.contains('@'));
    if url.is_none() {
        // Not shown: a password may stand in it.
        let what = "must be a URL as http://proxy.example.com:3128, without user or path";
        mistakes.add("upstream_proxy.url", what);
    }
    url.map(|url| gateway::Proxy { url, authorization })
}

/// Whether a host is reached without the proxy.
pub(super) fn is_excepted(host: &str, except: &[String]) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    except.iter().any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some(network) = Network::parse(entry) {
            return address.is_some_and(|address| network.contains(address));
        }
        let domain = entry.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
        host == domain || host.strip_suffix(&domain).is_some_and(|front| front.ends_with('.'))
    })
}

/// An upstream's certificates; its files must be good.
pub(super) fn upstream_tls(
    mistakes: &mut Mistakes,
    path: &str,
    given: &file::UpstreamTls,
    folder: &Path,
) -> gateway::UpstreamTls {
    let client = match (&given.certificate_file, &given.key_file) {
        (Some(certificate), Some(key)) => Some((folder.join(certificate), folder.join(key))),
        (None, None) => None,
        _ => {
            mistakes.add(format!("{path}.tls"), "`certificate_file` and `key_file` belong together");
            None
        }
    };
    let mut tls = gateway::UpstreamTls {
        public_roots: given.public_roots,
        ca_files: given.ca_files.iter().map(|file| folder.join(file)).collect(),
        client,
        digest: 0,
    };
    if let Err((member, text)) = tls.read() {
        mistakes.add(format!("{path}.tls{member}"), text);
    }
    tls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_excepted_as_people_expect() {
        let except: Vec<String> =
            ["example.com", ".internal", "*.corp", "10.0.0.0/8", "192.0.2.7"].map(str::to_owned).into();
        for (host, excepted) in [
            ("example.com", true),
            ("EXAMPLE.com", true),
            ("api.example.com", true),
            ("badexample.com", false),
            ("vllm.internal", true),
            ("internal", true),
            ("a.corp", true),
            ("10.1.2.3", true),
            ("11.1.2.3", false),
            ("192.0.2.7", true),
            ("[::1]", false),
            ("api.openai.com", false),
        ] {
            assert_eq!(is_excepted(host, &except), excepted, "{host}");
        }
        assert!(is_excepted("anything", &["*".to_owned()]));
    }

    #[test]
    fn an_origin_has_no_path() {
        for (text, good) in [
            ("https://app.example.com", true),
            ("http://localhost:3000", true),
            ("https://app.example.com/", false),
            ("app.example.com", false),
            ("https://u@app.example.com", false),
            ("null", false),
        ] {
            assert_eq!(is_origin(text), good, "{text}");
        }
    }
}
