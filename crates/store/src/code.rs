//! Stored codes of the entry's enums: small numbers and words, stable for ever.

use crate::{Ending, Figures, Flags, Origin, Side};

/// Gives an enum its stored number and its word in reports. A number is never given to another meaning.
macro_rules! codes {
    ($kind:ident, unknown $unknown:ident, $($variant:ident = $code:literal $word:literal),+ $(,)?) => {
        impl $kind {
            /// Every variant, by code.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The stored number.
            pub fn code(self) -> u8 {
                match self { $(Self::$variant => $code),+ }
            }

            /// The variant of a stored number; a number of a later version reads as the vaguest one.
            pub fn of(code: u8) -> Self {
                match code { $($code => Self::$variant,)+ _ => Self::$unknown }
            }

            /// The word in reports and metrics.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

codes!(Side, unknown Unreadable, Tenant = 0 "tenant", Pool = 1 "pool", Unreadable = 2 "unreadable");

codes!(
    Origin, unknown Unbooked,
    Settled = 0 "settled",
    Released = 1 "released",
    Expired = 2 "expired",
    Rebooked = 3 "rebooked",
    Late = 4 "late",
    Adjusted = 5 "adjusted",
    Unbooked = 6 "unbooked",
);

codes!(
    Figures, unknown Unknown,
    Reported = 0 "reported",
    Metered = 1 "metered",
    Partial = 2 "partial",
    Unknown = 3 "unknown",
    Expired = 4 "expired",
    Adjusted = 5 "adjusted",
    Nothing = 6 "nothing",
);

codes!(
    Ending, unknown Reset,
    Complete = 0 "complete",
    NeverSent = 1 "never_sent",
    UpstreamError = 2 "upstream_error",
    Reset = 3 "reset",
    Truncated = 4 "truncated",
    ClientGone = 5 "client_gone",
    Timeout = 6 "timeout",
    StoppedAtLimit = 7 "stopped_at_limit",
    Shutdown = 8 "shutdown",
    Expired = 9 "expired",
    Adjusted = 10 "adjusted",
);

impl Flags {
    /// The stored bits.
    pub fn bits(self) -> u8 {
        u8::from(self.unpriced)
            | u8::from(self.degraded) << 1
            | u8::from(self.shortened) << 2
            | u8::from(self.damaged) << 3
    }

    /// The flags of stored bits; unknown bits are ignored.
    pub fn of(bits: u8) -> Self {
        Self {
            unpriced: bits & 1 != 0,
            degraded: bits & 2 != 0,
            shortened: bits & 4 != 0,
            damaged: bits & 8 != 0,
        }
    }
}
