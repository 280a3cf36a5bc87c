//! Labels whose values are fixed at compile time, and sets of labels.

use std::sync::Arc;

use crate::names::Names;

/// One label: a name and a bounded number of values.
pub trait Label: Copy + Send + Sync + 'static {
    const NAME: &'static str;
    /// How many values there are.
    const SIZE: usize;
    /// 0 up to but not including `SIZE`.
    fn index(self) -> usize;
    fn value(self, names: &Names) -> Arc<str>;
    /// The values, or what bounds them, for the docs.
    fn values() -> String;
}

/// The labels of one series; tuples of up to four labels.
pub trait LabelSet: Copy + Send + Sync + 'static {
    const SIZE: usize;
    fn index(self) -> usize;
    fn pairs(self, names: &Names) -> Vec<(&'static str, Arc<str>)>;
    fn docs() -> Vec<LabelDoc>;
}

/// One label of one metric, for the docs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelDoc {
    pub name: &'static str,
    pub values: String,
    /// Most values it can take.
    pub max: usize,
}

/// Defines label enums: Rust name, label name, values.
macro_rules! labels {
    ($( $(#[$doc:meta])* $kind:ident $name:literal { $( $(#[$vdoc:meta])* $variant:ident $word:literal ),+ $(,)? } )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $kind { $( $(#[$vdoc])* $variant ),+ }

        impl $kind {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The value as it is written.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The variant of a value, if there is one.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl Label for $kind {
            const NAME: &'static str = $name;
            const SIZE: usize = Self::ALL.len();

            fn index(self) -> usize {
                self as usize
            }

            fn value(self, _: &Names) -> Arc<str> {
                Arc::from(self.word())
            }

            fn values() -> String {
                [$($word),+].join(", ")
            }
        }
    )+ };
}

labels! {
    /// Whose shapes the client speaks.
    Dialect "dialect" { OpenAi "openai", Anthropic "anthropic" }
    /// What was called.
    Surface "surface" { Chat "chat", Responses "responses", Completions "completions", Embeddings "embeddings", Messages "messages", Models "models", Limits "limits", Other "other" }
    /// Whether the answer came as a stream.
    Form "form" { Plain "plain", Stream "stream" }
    /// Status of the answer; 429 is apart from the other client errors.
    Status "status" { Ok "2xx", Redirect "3xx", ClientError "4xx", Refused "429", ServerError "5xx", None "none" }
    /// How a call ended; the words of the journal.
    Ending "ending" {
        Complete "complete", NeverSent "never_sent", UpstreamError "upstream_error", Reset "reset",
        Truncated "truncated", ClientGone "client_gone", Timeout "timeout", StoppedAtLimit "stopped_at_limit",
        Shutdown "shutdown", Expired "expired", Adjusted "adjusted",
    }
    /// Why a call was not admitted, other than by a limit.
    Problem "problem" {
        BadRequest "bad_request", Unauthorized "unauthorized", Forbidden "forbidden", UnknownModel "unknown_model",
        UnknownPath "unknown_path", TooLarge "too_large", Unpriced "unpriced", Timeout "timeout",
        Draining "draining", EngineAway "engine_away", Overloaded "overloaded", Internal "internal",
    }
    /// What a limit counts.
    Measure "measure" {
        Requests "requests", LlmTokens "tokens", InputLlmTokens "input_tokens", OutputLlmTokens "output_tokens",
        Cost "cost", Concurrency "concurrency",
    }
    /// What a denial says.
    Denial "denial" { TooLarge "too_large", Exhausted "exhausted", Spent "spent", Busy "busy" }
    /// Which reservation of the call.
    Side "side" { Tenant "tenant", Pool "pool" }
    /// Where the figures of a charge come from; the words of the journal.
    Figures "figures" {
        Reported "reported", Metered "metered", Partial "partial", Unknown "unknown", Expired "expired",
        Adjusted "adjusted", Nothing "nothing",
    }
    /// What was wrong with a provider's usage.
    Anomaly "anomaly" {
        Negative "negative", TooLarge "too_large", NotANumber "not_a_number", Fraction "fraction",
        Inconsistent "inconsistent", AboveContext "above_context", Missing "missing", Other "other",
    }
    /// A part of usage. `cached` is in `input` and `reasoning` in `output` too.
    Part "part" { Input "input", Cached "cached", CacheWrite "cache_write", Output "output", Reasoning "reasoning" }
    /// What a mode of degradation did.
    Away "away" { Closed "closed", Local "local", Open "open" }
    /// What an operator's key that opened nothing was told.
    Login "login" { Wrong "wrong", Limited "limited" }
    /// What a breaker did.
    Turn "turn" { Opened "opened", Closed "closed" }
    /// How the input of a call was counted.
    Counted "by" {
        Learned "learned", Exact "exact", Budget "budget", Loading "loading", Failed "failed",
    }
    /// A verb of the engine.
    Verb "verb" {
        Reserve "reserve", Rebook "rebook", Renew "renew", Progress "progress", Settle "settle", Release "release",
        Expire "expire", Restore "restore", Adjust "adjust", Read "read",
    }
    /// Why a verb failed.
    EngineTrouble "trouble" {
        Refused "refused", Unsupported "unsupported", Away "away", Deadline "deadline", Lost "lost", Damaged "damaged",
    }
    /// Why the book raised an alarm.
    Alarm "alarm" {
        NegativeHeld "negative_held", RingRestart "ring_restart", Drift "drift", TornTail "torn_tail",
        DroppedPeriod "dropped_period", PlanOutside "plan_outside", PlanBelow "plan_below", Other "other",
    }
    /// Trouble with the journal's store.
    StoreTrouble "trouble" { Away "away", Busy "busy", Refused "refused", Damaged "damaged" }
    /// A background job.
    Job "task" {
        Sweep "sweep", Drain "drain", Drift "drift", Openings "openings", Recovery "recovery", Vouchers "vouchers",
        Beat "beat",
        Forgets "forgets", Reconcile "reconcile", Days "days", Alerts "alerts",
    }
    /// What became of a try to deliver an event to a webhook.
    Delivery "result" { Delivered "delivered", Failed "failed", GivenUp "given_up" }
    /// Why a shard was made whole.
    Lost "lost" { First "first", Tail "tail", All "all" }
    /// Why a span was never seen by a collector.
    SpanLoss "loss" {
        QueueFull "queue_full", Refused "refused", Away "away", Shutdown "shutdown",
    }
    /// How a job's run ended.
    Run "run" { Ok "ok", Failed "failed" }
    /// What a client's connection speaks.
    Protocol "protocol" { Http1 "http1", Http2 "http2" }
    /// Why the gateway ended a client's connection.
    ConnectionCut "why" {
        /// What comes before the first request took too long.
        HandshakeTime "handshake_time",
        Tls "tls",
        ProxyHeader "proxy_header",
        /// The client reset more calls than it may.
        Resets "resets",
        /// It stayed after it was told to go.
        Idle "idle",
    }
    /// Whether new content could be used.
    Loaded "result" { Good "good", Bad "bad" }
    /// Where a tenant was read.
    ReadFrom "from" { Cache "cache", Store "store", Failed "failed" }
    /// Trouble with an upstream.
    UpstreamTrouble "trouble" {
        Connect "connect", Tls "tls", Timeout "timeout", Reset "reset", RateLimited "rate_limited", Quota "quota",
        Overloaded "overloaded", ServerError "server_error", ClientError "client_error", BadAnswer "bad_answer",
    }
}

impl LabelSet for () {
    const SIZE: usize = 1;

    fn index(self) -> usize {
        0
    }

    fn pairs(self, _: &Names) -> Vec<(&'static str, Arc<str>)> {
        Vec::new()
    }

    fn docs() -> Vec<LabelDoc> {
        Vec::new()
    }
}

/// Tuples of labels are label sets; the index counts in mixed base.
macro_rules! label_tuples {
    ($( ($($kind:ident $field:tt),+) )+) => { $(
        impl<$($kind: Label),+> LabelSet for ($($kind,)+) {
            const SIZE: usize = 1 $(* $kind::SIZE)+;

            fn index(self) -> usize {
                let mut index = 0;
                $( index = index * $kind::SIZE + self.$field.index(); )+
                index
            }

            fn pairs(self, names: &Names) -> Vec<(&'static str, Arc<str>)> {
                vec![$(($kind::NAME, self.$field.value(names))),+]
            }

            fn docs() -> Vec<LabelDoc> {
                vec![$(LabelDoc { name: $kind::NAME, values: $kind::values(), max: $kind::SIZE }),+]
            }
        }
    )+ };
}

label_tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
}
