//! Why a call is not admitted, in words and figures, without HTTP.
//!
//! A refusal quotes the figures the engine decided with; nothing is computed anew (B232).

use std::sync::Arc;

use tollbook_ledger::{DenyKind, Measure, Micros};

use crate::figures::Figures;

/// A call that is not admitted.
#[derive(Clone, Debug)]
pub enum Refused {
    /// No API key was shown.
    NoApiKey,
    /// The API key is unknown, disabled or expired; which of these is not told.
    BadApiKey,
    /// The API key is good, but not from where the call comes.
    AddressForbidden,
    /// The API key is unknown, and what was changed of keys since cannot be read or used here.
    KeysBehind,
    ModelUnknown(String),
    /// The model exists, but not for this API key.
    ModelForbidden(String),
    /// The service or user named cannot be one.
    BadSubject(String),
    /// The end user that the call is for is disabled.
    UserDisabled,
    /// A limit counts cost and the model has no price.
    Unpriced(String),
    /// A limit counts cost, and a hosted tool that the call offers has no fee.
    UnpricedTool(&'static str),
    /// The model speaks the other dialect, or its targets do not serve this surface.
    WrongDialect(String),
    /// The provider would bill what the gateway never sees, and a limit of this key counts that.
    Unmetered,
    /// The demand is larger than any account can hold.
    Immense,
    Limit(Box<LimitRefusal>),
    /// The engine is away and a limit of this call is closed then, or the spool is full.
    Away {
        /// The limit that is closed.
        limit: Option<Arc<str>>,
    },
    /// The gateway is shutting down.
    Stopping,
    /// The gateway's own fault; the inside is in the log.
    Internal,
}

impl Refused {
    /// Nothing can be decided, whatever the limits say.
    pub(crate) const AWAY: Self = Self::Away { limit: None };

    /// A hard limit refused, of tenant or pool, to which a better count of the input might have mattered.
    pub(crate) fn is_by_hard_limit_on_input(&self) -> bool {
        matches!(self, Self::Limit(refusal) if refusal.hard && counts_input(refusal.measure))
    }
}

/// Whether the input of a call is part of what a limit counts.
pub(crate) fn counts_input(measure: Measure) -> bool {
    match measure {
        Measure::Tokens | Measure::InputTokens | Measure::Cost => true,
        Measure::OutputTokens | Measure::Requests | Measure::Concurrency => false,
    }
}

/// The limit that refused, with the figures it was decided with.
#[derive(Clone, Debug)]
pub struct LimitRefusal {
    /// The limit's name.
    pub limit: String,
    /// For people: `tenant acme`.
    pub subject: String,
    /// A limit of an upstream account, not of a caller.
    pub pool: bool,
    pub measure: Measure,
    /// For people: `per 60 s`, `per month`, `in flight`.
    pub span: String,
    pub hard: bool,
    pub kind: DenyKind,
    pub ceiling: u64,
    pub posted: i64,
    pub held: i64,
    pub demand: u64,
    /// Time until the account is empty if nothing else comes.
    pub reset: Micros,
    /// Engine time of the decision.
    pub now: Micros,
    /// What the other limits of this call stand at.
    pub figures: Figures,
}

impl LimitRefusal {
    /// How long to wait; `None` where waiting cannot help.
    pub fn wait(&self) -> Option<Micros> {
        match self.kind {
            DenyKind::TooLarge | DenyKind::Exhausted => None,
            DenyKind::Spent(wait) | DenyKind::Busy(wait) => Some(wait.after),
        }
    }

    /// A quota that is used up, as against one that others hold at the moment.
    pub fn is_spent(&self) -> bool {
        matches!(self.kind, DenyKind::Exhausted | DenyKind::Spent(_))
    }
}
