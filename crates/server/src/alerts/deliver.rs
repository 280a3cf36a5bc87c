//! Delivers events to webhooks, as Standard Webhooks says it: signed, at least once, always under the event's id.
//!
//! Invariants: to one webhook one event is under way at a time, so one that is slow holds up itself alone; a try is bounded
//! in time, redirects are not followed, of an answer the status alone counts. What is delivered is 2xx; 410 ends deliveries
//! to that webhook until the next start; anything else is tried again, ten times over a day, then given up.
//! No secret and no body is ever logged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tokio::sync::watch;
use tokio::task::{self, JoinError, JoinSet};
use tollbook_store::{Alerts, Delivery, GatewayId, JobLeases, Told};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Delivery as Outcome, Job, Run};

use crate::config::Webhook;

const JOB: &str = "webhooks";
/// How long another gateway waits for one that delivers and fell silent.
const LEASE: Duration = Duration::from_secs(15);
/// Pause between two looks for what is to be delivered.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest one try may take.
const TRY_WITHIN: Duration = Duration::from_secs(10);
/// Events of one webhook that are taken at a look.
const EVENTS_MAX: usize = 16;
/// Pauses after tries that failed, in seconds; after the last one an event is given up.
const PAUSES: [u64; 9] = [5, 30, 120, 600, 1_800, 3_600, 10_800, 21_600, 43_200];
/// Longest pause that a receiver may ask for, in seconds.
const RETRY_AFTER_MAX: u64 = 3_600;
/// A fifth at most is added to pauses, so that many do not come back at once.
const JITTER: u64 = 5;
/// Looks between two that forget what is old, and how old that is, in milliseconds: a week.
const FORGET_EVERY: u32 = 600;
const KEPT_FOR: u64 = 7 * 86_400_000;

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

pub(crate) struct Deliver {
    webhooks: Vec<Arc<Webhook>>,
    store: Arc<dyn Alerts>,
    leases: Arc<dyn JobLeases>,
    metrics: Arc<Metrics>,
    gateway: GatewayId,
    http: Http,
    /// Those that have answered 410.
    gone: BTreeSet<String>,
}

/// What a try of all events of one webhook came to.
struct Tried {
    gone: bool,
}

/// What a receiver answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answered {
    Took,
    Gone,
    /// With the pause it asks for, in seconds.
    Not(Option<u64>),
}

impl Deliver {
    pub(crate) fn new(
        webhooks: &[Webhook],
        store: Arc<dyn Alerts>,
        leases: Arc<dyn JobLeases>,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        let mut gateway = [0; 8];
        getrandom::fill(&mut gateway).map_err(|error| anyhow!("no random bits: {error}"))?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(TRY_WITHIN));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::aws_lc_rs::default_provider())
            .context("TLS cannot be set up")?
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        // A connection of a minute ago is as likely closed as not.
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(https);
        let webhooks = webhooks.iter().cloned().map(Arc::new).collect();
        let gateway = GatewayId::from_le_bytes(gateway);
        Ok(Self { webhooks, store, leases, metrics, gateway, http, gone: BTreeSet::new() })
    }

    /// Delivers until `stop` turns true; a try under way is given up then, and made again after the next start.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut busy, mut under_way) = (BTreeMap::new(), JoinSet::new());
        let (mut told, mut looks) = (false, 0_u32);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stopped| *stopped) => break,
            }
            while let Some(done) = under_way.try_join_next_with_id() {
                let task = done.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
                let Some(webhook) = busy.remove(&task) else { continue };
                if matches!(done, Ok((_, Tried { gone: true }))) {
                    tracing::warn!(
                        webhook,
                        "a webhook answered 410: nothing is sent there until the next start"
                    );
                    self.gone.insert(webhook);
                }
            }
            looks = looks.wrapping_add(1);
            match self.look(looks, &mut busy, &mut under_way).await {
                Ok(()) => told = false,
                Err(error) => {
                    self.metrics.jobs_runs.inc((Job::Alerts, Run::Failed));
                    if !told {
                        tracing::warn!(error = format!("{error:#}"), "webhooks wait; it is tried again");
                    }
                    told = true;
                }
            }
        }
        under_way.shutdown().await;
        if let Err(error) = self.leases.job_leave(JOB, self.gateway).await {
            tracing::debug!(%error, "the lease of the webhooks ends by itself");
        }
    }

    async fn look(
        &self,
        looks: u32,
        busy: &mut BTreeMap<task::Id, String>,
        under_way: &mut JoinSet<Tried>,
    ) -> anyhow::Result<()> {
        if !self.leases.job_lease(JOB, self.gateway, LEASE).await? {
            self.metrics.webhook_waiting.set((), 0);
            return Ok(());
        }
        let now = now();
        for webhook in &self.webhooks {
            if busy.values().any(|id| *id == webhook.id) || self.gone.contains(&webhook.id) {
                continue;
            }
            let due = self.store.deliveries_due(&webhook.id, now, EVENTS_MAX).await?;
            if due.is_empty() {
                continue;
            }
            let sender = Sender {
                webhook: Arc::clone(webhook),
                store: Arc::clone(&self.store),
                metrics: Arc::clone(&self.metrics),
                http: self.http.clone(),
            };
            let task = under_way.spawn(async move { sender.send(due).await });
            busy.insert(task.id(), webhook.id.clone());
        }
        self.metrics.webhook_waiting.set((), self.store.deliveries_waiting().await?);
        if looks % FORGET_EVERY == 1 {
            self.store.alerts_forget(now / 1_000, now.saturating_sub(KEPT_FOR)).await?;
        }
        Ok(())
    }
}

/// Sends what is due to one webhook, one after another.
struct Sender {
    webhook: Arc<Webhook>,
    store: Arc<dyn Alerts>,
    metrics: Arc<Metrics>,
    http: Http,
}

impl Sender {
    async fn send(&self, due: Vec<Delivery>) -> Tried {
        let mut gone = false;
        for delivery in due {
            let (answered, why) = self.try_one(&delivery).await;
            gone = answered == Answered::Gone;
            let (told, outcome) = outcome(answered, delivery.tries, now());
            self.metrics.webhook_deliveries.inc((outcome,));
            let (webhook, id) = (self.webhook.id.as_str(), delivery.id.as_str());
            match outcome {
                Outcome::Delivered => tracing::debug!(webhook, id, "an event was delivered"),
                Outcome::Failed => {
                    tracing::info!(webhook, id, why, "an event was not delivered; it is tried again");
                }
                Outcome::GivenUp => tracing::error!(webhook, id, why, "an event was given up"),
            }
            if let Err(error) = self.store.delivery_told(webhook, id, told).await {
                tracing::warn!(webhook, id, %error, "what became of an event cannot be written; it is sent again");
            }
            if outcome != Outcome::Delivered {
                // Those behind it would meet the same; they are looked at again in a moment.
                break;
            }
        }
        Tried { gone }
    }

    async fn try_one(&self, delivery: &Delivery) -> (Answered, String) {
        let seconds = (now() / 1_000).to_string();
        let request = Request::post(self.webhook.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("tollbook/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", delivery.id.as_str())
            .header("webhook-timestamp", seconds.as_str())
            .header("webhook-signature", signature(&self.webhook, &delivery.id, &seconds, &delivery.body))
            .body(Full::new(Bytes::from(delivery.body.clone())));
        let Ok(request) = request else { return (Answered::Not(None), "it cannot be sent".to_owned()) };
        match tokio::time::timeout(TRY_WITHIN, self.http.request(request)).await {
            Err(_) => (Answered::Not(None), format!("no answer within {} s", TRY_WITHIN.as_secs())),
            // The kind of the failure; its text may name what is in the address.
            Ok(Err(error)) if error.is_connect() => (Answered::Not(None), "no connection".to_owned()),
            Ok(Err(_)) => (Answered::Not(None), "the connection ended".to_owned()),
            Ok(Ok(response)) => {
                let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let after = after.and_then(|text| text.trim().parse().ok());
                (answered(response.status(), after), format!("status {}", response.status().as_u16()))
            }
        }
    }
}

fn answered(status: StatusCode, after: Option<u64>) -> Answered {
    match status {
        StatusCode::GONE => Answered::Gone,
        status if status.is_success() => Answered::Took,
        _ => Answered::Not(after),
    }
}

/// What becomes of an event after a try, of which `failed` came before.
fn outcome(answered: Answered, failed: u32, now: u64) -> (Told, Outcome) {
    let pause = usize::try_from(failed).ok().and_then(|failed| PAUSES.get(failed));
    match (answered, pause) {
        (Answered::Took, _) => (Told::Delivered, Outcome::Delivered),
        (Answered::Not(after), Some(&pause)) => {
            let pause = pause.max(after.unwrap_or(0).min(RETRY_AFTER_MAX)).saturating_mul(1_000);
            let at = now.saturating_add(pause).saturating_add(jitter(pause / JITTER));
            (Told::Again(at), Outcome::Failed)
        }
        (Answered::Gone, _) | (Answered::Not(_), None) => (Told::GivenUp, Outcome::GivenUp),
    }
}

fn jitter(most: u64) -> u64 {
    let mut bits = [0; 8];
    // Without randomness everybody comes back at once, which is no error.
    let _ = getrandom::fill(&mut bits);
    u64::from_le_bytes(bits) % most.saturating_add(1)
}

/// The standard's: `v1,` and the HMAC-SHA256 of id, seconds and body with points between, in base64.
fn signature(webhook: &Webhook, id: &str, seconds: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, webhook.secret.expose_secret());
    let tag = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(tag.as_ref()))
}

/// Unix milliseconds.
fn now() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretSlice;

    use super::*;

    /// The example of the standard's own text.
    #[test]
    fn the_signature_is_the_standards() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let webhook = Webhook {
            id: "x".to_owned(),
            url: http::Uri::from_static("https://example.com"),
            secret: SecretSlice::from(secret),
            tenant: None,
            events: None,
        };
        let signed =
            signature(&webhook, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn an_event_is_tried_so_often_and_then_given_up() {
        let mut tries = 0;
        while let (Told::Again(_), _) = outcome(Answered::Not(None), tries, 0) {
            tries += 1;
        }
        assert_eq!(tries + 1, 10);
        let day: u64 = PAUSES.iter().sum();
        assert!((72_000..100_000).contains(&day), "{day}");
    }

    #[test]
    fn pauses_have_jitter_and_heed_the_receiver_within_a_bound() {
        let at = |answered, failed| match outcome(answered, failed, 1_000) {
            (Told::Again(at), Outcome::Failed) => at,
            other => panic!("{other:?}"),
        };
        assert!((6_000..=7_000).contains(&at(Answered::Not(None), 0)));
        assert!((61_000..=73_000).contains(&at(Answered::Not(Some(60)), 0)));
        assert!((6_000..=7_000).contains(&at(Answered::Not(Some(1)), 0)));
        assert!(at(Answered::Not(Some(u64::MAX)), 0) <= 1_000 + RETRY_AFTER_MAX * 1_200);
        assert_eq!(outcome(Answered::Gone, 0, 0), (Told::GivenUp, Outcome::GivenUp));
        assert_eq!(answered(StatusCode::FOUND, None), Answered::Not(None));
        assert_eq!(answered(StatusCode::NO_CONTENT, None), Answered::Took);
        assert_eq!(answered(StatusCode::GONE, None), Answered::Gone);
    }
}
