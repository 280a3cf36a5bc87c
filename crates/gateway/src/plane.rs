//! One generation of the data plane: settings, providers, and the snapshot that calls are decided under.
//!
//! Invariant: a call takes one plane, whole, when its body is there, and keeps it to its end; so no call is decided by
//! one configuration and sent by another. What has not changed between two planes is shared: connections to a provider
//! live on, and the bytes of bodies are counted together.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollbook_admission::Snapshot;

use crate::budget::Budget;
use crate::config::Config;
use crate::cors::Cors;
use crate::intake::Intake;
use crate::listen::Front;
use crate::pace::Pace;
use crate::tls::Tls;
use crate::upstream::Upstream;

/// Settings in force.
pub(crate) struct Plane {
    pub(crate) config: Config,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) intake: Intake,
    /// What answers that come in one piece may hold.
    pub(crate) answers: Budget,
    pub(crate) front: Arc<Front>,
    upstreams: BTreeMap<String, Arc<Upstream>>,
}

/// What all planes count together.
struct Shared {
    intake: Intake,
    answers: Budget,
    heads: Budget,
}

impl Plane {
    /// What is asked of a client that sends a body.
    pub(crate) fn body_pace(&self) -> Pace {
        pace(&self.config)
    }

    /// The first one. Builds the upstreams' clients; nothing is connected yet.
    pub(crate) fn new(config: Config, snapshot: Arc<Snapshot>) -> Result<Self, String> {
        let bounds = config.bounds;
        let intake = Intake::new(bounds.body_max, bounds.bodies_in_flight_max, pace(&config));
        let heads = Budget::new(bounds.heads_in_flight_max);
        let counted = Shared { intake, answers: Budget::new(answers_max(&config)), heads };
        Self::build(config, snapshot, counted, None, &BTreeMap::new())
    }

    /// The next one. Clients know by the scheme how to come in: TLS is neither begun nor ended in a running gateway.
    pub(crate) fn after(&self, mut config: Config, snapshot: Arc<Snapshot>) -> Result<Self, String> {
        if config.tls.is_some() != self.config.tls.is_some() {
            config.tls.clone_from(&self.config.tls);
        }
        let bounds = config.bounds;
        let intake = self.intake.with(bounds.body_max, bounds.bodies_in_flight_max, pace(&config));
        let heads = self.front.heads.with(bounds.heads_in_flight_max);
        let counted = Shared { intake, answers: self.answers.with(answers_max(&config)), heads };
        Self::build(config, snapshot, counted, self.front.tls.as_ref(), &self.upstreams)
    }

    /// The same one for other keys and limits.
    pub(crate) fn with(&self, snapshot: Arc<Snapshot>) -> Self {
        Self {
            config: self.config.clone(),
            snapshot,
            intake: self.intake.clone(),
            answers: self.answers.clone(),
            front: Arc::clone(&self.front),
            upstreams: self.upstreams.clone(),
        }
    }

    fn build(
        config: Config,
        snapshot: Arc<Snapshot>,
        counted: Shared,
        tls: Option<&Arc<Tls>>,
        before: &BTreeMap<String, Arc<Upstream>>,
    ) -> Result<Self, String> {
        let mut upstreams = BTreeMap::new();
        for given in &config.upstreams {
            let same = before.get(&given.name).filter(|upstream| upstream.config.is_same(given));
            let upstream = match same {
                Some(upstream) => Arc::clone(upstream),
                None => Arc::new(Upstream::new(given.clone())?),
            };
            upstreams.insert(given.name.clone(), upstream);
        }
        let tls = match (&config.tls, tls) {
            (None, _) => None,
            (Some(given), Some(tls)) if tls.serves(given, config.http2.enabled) => Some(Arc::clone(tls)),
            (Some(given), _) => Some(Arc::new(Tls::new(given.clone(), config.http2.enabled)?)),
        };
        let Shared { intake, answers, heads } = counted;
        let front = Front {
            bounds: config.bounds,
            heads,
            timeouts: config.timeouts,
            http2: config.http2,
            tls,
            cors: config.cors.as_ref().map(Cors::new),
            proxies: config.proxies.clone(),
        };
        Ok(Self { config, snapshot, intake, answers, front: Arc::new(front), upstreams })
    }

    pub(crate) fn upstream(&self, name: &str) -> Option<Arc<Upstream>> {
        self.upstreams.get(name).cloned()
    }
}

/// One answer of the largest size always fits.
fn answers_max(config: &Config) -> usize {
    config.bounds.answers_in_flight_max.max(config.bounds.answer_max)
}

/// How fast a body has to come in.
fn pace(config: &Config) -> Pace {
    Pace { patience: config.timeouts.body_silence, bytes_per_s: config.bounds.pace_min }
}

/// A plane that was built and is not in force yet.
pub struct Prepared(pub(crate) Arc<Plane>);

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("generation", &self.0.snapshot.generation).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tollbook_admission::ApiKeyHash;
    use tollbook_policy::{Catalog, Draft};
    use tollbook_pricing::PriceBook;
    use tollbook_wire::Dialect;

    use super::*;
    use crate::config;

    fn snapshot(generation: u64) -> Arc<Snapshot> {
        let prices = PriceBook { version: 1, models: BTreeMap::new(), default: None };
        let catalog = Catalog::new(Draft::default()).unwrap();
        Arc::new(Snapshot::new(generation, catalog, prices, BTreeMap::new(), ApiKeyHash::new(None)))
    }

    fn config(upstreams: Vec<config::Upstream>) -> Config {
        Config {
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            http2: config::Http2::default(),
            cors: None,
            proxies: config::Proxies::default(),
            bounds: config::Bounds::default(),
            timeouts: config::Timeouts::default(),
            passes: config::Passes::default(),
            upstreams,
        }
    }

    #[tokio::test]
    async fn only_a_provider_that_changed_is_connected_anew() {
        let given = |name: &str, url: &str, key: &str| {
            let mut given = config::Upstream::new(name, Dialect::OpenAi, url.parse().unwrap());
            given.api_key = Some(key.to_owned().into());
            given
        };
        let first = Plane::new(
            config(vec![
                given("a", "http://a/v1", "1"),
                given("b", "http://b/v1", "1"),
                given("c", "http://c", "1"),
            ]),
            snapshot(1),
        )
        .unwrap();
        let next =
            vec![given("a", "http://a/v1", "1"), given("b", "http://b/v2", "1"), given("c", "http://c", "2")];
        let second = first.after(config(next), snapshot(2)).unwrap();
        let same = |name| Arc::ptr_eq(&first.upstream(name).unwrap(), &second.upstream(name).unwrap());
        assert_eq!((same("a"), same("b"), same("c")), (true, false, false));
        let broken = vec![given("a", "http://a/v1", "with\nline")];
        assert!(second.after(config(broken), snapshot(3)).is_err());
    }
}
