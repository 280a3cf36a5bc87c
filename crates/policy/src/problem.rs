//! What is wrong with a configuration, and where.
//!
//! A problem names its object by list and index and its field by name, so a loader can point at line and column.

use core::fmt;

/// Where a problem is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub list: List,
    pub index: usize,
    /// As the field is called in the draft; empty when it is about the whole object.
    pub field: &'static str,
}

/// The lists of a draft.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum List {
    Tenants,
    Projects,
    Keys,
    Services,
    Users,
    Pools,
    Models,
    Limits,
}

impl List {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenants => "tenants",
            Self::Projects => "projects",
            Self::Keys => "keys",
            Self::Services => "services",
            Self::Users => "users",
            Self::Pools => "pools",
            Self::Models => "models",
            Self::Limits => "limits",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.list.name(), self.index)?;
        if self.field.is_empty() { Ok(()) } else { write!(f, ".{}", self.field) }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {kind}")]
pub struct Problem {
    pub place: Place,
    pub kind: ProblemKind,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProblemKind {
    #[error("must not be empty")]
    Empty,
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    #[error("contains a control character")]
    ControlCharacter,
    #[error("`{0}` is already taken")]
    Repeated(String),
    #[error("there is no {kind} `{id}`")]
    Unknown { kind: &'static str, id: String },
    #[error("`{alias}` is an alias; a limit names the model itself, `{model}`")]
    Alias { alias: String, model: String },
    #[error("a limit names one model; `{0}` is a pattern")]
    Pattern(String),
    #[error("must not be negative")]
    Negative,
    #[error("must be from {min} to {max}")]
    Range { min: u64, max: u64 },
    #[error("must be from {min} s to {max} s")]
    Seconds { min: u64, max: u64 },
    #[error("a ring of {0} buckets is too long, 64 is the most; use wider buckets")]
    TooManyBuckets(u32),
    #[error("a bucket is wider than the window")]
    BucketWiderThanWindow,
    #[error("{measure} cannot have the shape {shape}")]
    ShapeOfMeasure { measure: &'static str, shape: &'static str },
    #[error("{setting} has no meaning for {what}")]
    Meaningless { setting: &'static str, what: &'static str },
    #[error("cannot be booked by forecast: {0}")]
    CannotForecast(&'static str),
    #[error(
        "a provider that charges as llm_tokens stream is booked by forecast, one that charges at the start as held"
    )]
    ChargeAgainstBooking,
    #[error("there is no time zone `{0}` in the bundled table")]
    UnknownZone(String),
    #[error("a month's anchor is a day from 1 to 31, a week's a weekday; no other period has one")]
    Anchor,
    #[error("a hard limit cannot hold less than the demand")]
    HardFactorBelowOne,
    #[error("contradicts limits[{other}], which shares its account: {setting} differs")]
    Contradicts { other: usize, setting: &'static str },
    #[error("is one user more than the {max} of whom a tenant can say something")]
    TooManyUsers { max: usize },
    #[error("more than {max} limits share this account")]
    TooManyLimits { max: usize },
    #[error("a call of {who} would touch {legs} accounts on one side, {max} is the most")]
    TooManyLegs { who: String, legs: usize, max: usize },
    #[error("can never apply: {0}")]
    NeverApplies(String),
    #[error("needs a name: another limit has the same scope, measure and shape")]
    NeedsName,
}

/// Something legal that is probably not meant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {kind}")]
pub struct Warning {
    pub place: Place,
    pub kind: WarningKind,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WarningKind {
    #[error("is above limits[{parent}] of its {level}, which binds first")]
    AboveParent { parent: usize, level: &'static str },
}
