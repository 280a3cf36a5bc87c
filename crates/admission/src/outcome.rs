//! How a call ended, as the data plane saw it, and what is sent to the engine for it.

use std::time::Instant;

use tollbook_engine::{Claim, ReleaseCall, RestoreCall, SettleCall};
pub use tollbook_store::Ending;
use tollbook_wire::{Anomalies, BodyMeter, Classes, HostedCalls, Usage};

/// What the data plane knows of a call at its end. Facts only; what is charged follows from them (design, section 5).
#[derive(Clone, Debug)]
pub struct Outcome {
    pub ending: Ending,
    /// As the provider reported it, if it did.
    pub usage: Option<Usage>,
    /// Text received.
    pub output: Classes,
    pub output_seen: bool,
    pub anomalies: Anomalies,
    pub first_output: Option<Instant>,
    /// The service tier the provider says it used.
    pub service_tier: Option<String>,
    /// Web searches that the answer told of.
    pub web_searches: u64,
    /// Calls of other hosted tools that the answer told of.
    pub hosted: HostedCalls,
    /// Nothing of the answer can be read, though there may be one: the estimate stands.
    pub blind: bool,
}

impl Outcome {
    /// A call that ended so, with nothing received.
    pub fn bare(ending: Ending) -> Self {
        Self {
            ending,
            usage: None,
            output: Classes::default(),
            output_seen: false,
            anomalies: Anomalies::default(),
            first_output: None,
            service_tier: None,
            web_searches: 0,
            hosted: HostedCalls::default(),
            blind: false,
        }
    }

    /// Nothing left the gateway.
    pub fn never_sent() -> Self {
        Self::bare(Ending::NeverSent)
    }

    /// The provider's complete error, without usage.
    pub fn upstream_error() -> Self {
        Self::bare(Ending::UpstreamError)
    }

    /// A buffered call whose answer never came whole: nobody knows what it used.
    pub fn buffered_cut(ending: Ending) -> Self {
        Self { blind: true, ..Self::bare(ending) }
    }

    /// An answer came that cannot be read: what it used stands in it, and nobody here can tell.
    pub fn unreadable(ending: Ending) -> Self {
        Self { blind: true, output_seen: true, ..Self::bare(ending) }
    }

    /// A complete answer that was read whole.
    pub fn buffered(meter: &BodyMeter) -> Self {
        Self {
            usage: meter.usage,
            output: meter.output,
            // A failure that came as an answer may have written nothing.
            output_seen: meter.error.is_none() || !meter.output.is_empty(),
            anomalies: meter.anomalies,
            service_tier: meter.service_tier.clone(),
            web_searches: meter.web_searches,
            hosted: meter.hosted,
            ..Self::bare(if meter.error.is_some() { Ending::UpstreamError } else { Ending::Complete })
        }
    }
}

/// One reservation's end on its way to the engine.
#[derive(Clone, Debug)]
pub(crate) enum Posting {
    Settle(SettleCall),
    Release(ReleaseCall),
    /// Of a reservation that a local book has admitted.
    Restore(Box<RestoreCall>),
}

impl Posting {
    pub(crate) fn claim(&self) -> Claim {
        match self {
            Self::Settle(call) => call.claim,
            Self::Release(call) => call.claim,
            Self::Restore(call) => call.receipt.claim(),
        }
    }
}
