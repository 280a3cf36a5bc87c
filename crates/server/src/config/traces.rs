//! Traces: where they go and which calls have one.

use http::header::{self, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tollbook_otlp as otlp;
use tollbook_telemetry::trace::{ONE, TracerSettings};

use super::file;
use super::mistakes::Mistakes;
use super::upstreams::{at_least, url};

/// Most fields sent to the collector.
const HEADERS_MAX: usize = 16;
/// Most spans that may wait: about a gigabyte.
const QUEUE_MAX: u32 = 1 << 20;
/// Most bytes of the service's name.
const NAME_MAX: usize = 128;

/// Everything there is to know of traces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traces {
    pub tracer: TracerSettings,
    pub export: otlp::Settings,
}

/// `None` where no collector is named.
pub(super) fn traces(mistakes: &mut Mistakes, given: &file::Traces) -> Option<Traces> {
    for (field, span) in [("timeout", given.timeout), ("every", given.every)] {
        at_least(mistakes, &format!("traces.{field}"), span);
    }
    let ratio = ratio(mistakes, given);
    if given.queue_max == 0 || given.queue_max > QUEUE_MAX {
        mistakes.add("traces.queue_max", format!("must be from 1 to {QUEUE_MAX}"));
    }
    if given.service_name.is_empty() || given.service_name.len() > NAME_MAX {
        mistakes.add("traces.service_name", format!("must have from 1 to {NAME_MAX} bytes"));
    }
    let headers = headers(mistakes, given);
    let endpoint = given.endpoint.as_ref();
    if endpoint.is_none() && !given.headers.is_empty() {
        mistakes.add("traces.headers", "there is no `traces.endpoint` to send them to");
    }
    let endpoint = url(mistakes, "traces.endpoint", endpoint?)?;
    Some(Traces {
        tracer: TracerSettings {
            ratio: ratio?,
            follow_client: given.follow_client,
            queue_max: usize::try_from(given.queue_max).unwrap_or(usize::MAX),
            batch: otlp::BATCH_MAX,
        },
        export: otlp::Settings {
            endpoint,
            headers,
            timeout: given.timeout.0,
            every: given.every.0,
            flush: given.flush.0,
            resource: otlp::Resource {
                service: given.service_name.clone(),
                instance: String::new(),
                version: env!("CARGO_PKG_VERSION"),
            },
        },
    })
}

fn ratio(mistakes: &mut Mistakes, given: &file::Traces) -> Option<u32> {
    let millionths = mistakes.amount("traces.sample", &given.sample, 6, "0.000001")?;
    let ratio = u32::try_from(millionths).ok().filter(|ratio| *ratio <= ONE);
    if ratio.is_none() {
        mistakes.add("traces.sample", format!("must be from 0 to 1, not `{}`", given.sample.0));
    }
    ratio
}

fn headers(mistakes: &mut Mistakes, given: &file::Traces) -> Vec<(HeaderName, HeaderValue)> {
    if given.headers.len() > HEADERS_MAX {
        mistakes.add("traces.headers", format!("must be at most {HEADERS_MAX}"));
    }
    let mut headers = Vec::new();
    for (name, secret) in &given.headers {
        let path = format!("traces.headers.{name}");
        let Ok(read) = HeaderName::try_from(name) else {
            mistakes.add(path, "cannot be the name of a header");
            continue;
        };
        // The transport's own: a second length or coding would break the request.
        if [
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
            header::HOST,
            header::CONNECTION,
            header::CONTENT_TYPE,
        ]
        .contains(&read)
        {
            mistakes.add(path, "is set by the gateway itself");
            continue;
        }
        match HeaderValue::from_str(secret.0.expose_secret()) {
            Ok(mut value) => {
                value.set_sensitive(true);
                headers.push((read, value));
            }
            // Not shown: it is a secret.
            Err(_) => mistakes.add(path, "has characters a header cannot carry"),
        }
    }
    headers
}
