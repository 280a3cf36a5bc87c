//! The port of the durable store: what calls were charged, how limits were defined over time, what operators define, what
//! the gateways of one shared book tell each other, what they keep of it nearer to them, and what is told to webhooks.
//!
//! Invariants: the journal is insert-only and unique by [`EntryKey`]; a repeat changes nothing; a mistake gets an entry
//! that corrects it, and the sum of a call's entries is the call. Amounts are integers (L13).
//! When the store is away: appending fails and says whether it may have been applied; the caller keeps its entries and
//! repeats them, which is harmless.
//! Knows no driver and no SQL. JSON is known to `codec` and `encode` alone.

mod alerts;
mod cache;
mod calls;
mod code;
mod codec;
mod days;
mod desk;
mod encode;
mod entry;
mod error;
mod fleet;
mod history;
mod journal;
mod money;
mod objects;

use std::future::Future;
use std::pin::Pin;

pub use alerts::{ALERT_BODY_MAX, ALERT_ID_MAX, ALERTS_MAX, AlertMark, Alerts, Delivery, Told};
pub use cache::{
    CACHE_ID_MAX, CACHED_FOR, CACHED_MAX, CACHED_REVISION_MAX, Cached, ConfigCache, FORGOTTEN_FOR, Gap, Look,
    is_cache_id, is_cacheable,
};
pub use calls::{Call, CallPage, CallPlace, Calls, CallsQuery, READ_AHEAD};
pub use codec::{BODY_MAX, CodecError};
pub use days::{DayRows, Due, Gone, JournalDays, KEEP_DAYS_MAX, KEEP_DAYS_MIN, SETTLED_DAYS};
pub use desk::{JOB_NAME_MAX, JobLeases, PRICE_BOOK_MAX, PriceBooks, PriceVersion};
pub use entry::{
    Ending, Entry, EntryBody, EntryKey, Figures, Flags, Hold, LADDER_MAX, Lapse, Line, NAME_MAX, Name,
    Origin, Overrun, REQUEST_ID_MAX, Side, Usage, signed,
};
pub use error::{Applied, StoreError, StoreErrorKind};
pub use fleet::{
    BEAT_EVERY, EpochCause, FORGOTTEN_AFTER, Fleet, GatewayId, LEASE, LIVE_WITHIN, Restored, Restorer,
    ShardEpoch, ShardSums, Stage, shard_of,
};
pub use history::{LIMIT_ROWS_MAX, LimitHistory, LimitPage, LimitPlace, LimitRow};
pub use journal::{
    Appended, BATCH_MAX, Day, DayRange, EntryPlace, Journal, PAGE_MAX, Page, PostedSum, Span, Total,
    TotalsQuery, UsageQuery, UsageSum,
};
pub use money::nano_text;
pub use objects::{
    CHANGES_MAX, Change, ChangesQuery, DOCUMENT_MAX, EDITS_MAX, Edit, MARK_MAX, MARKS_MAX, OBJECTS_MAX,
    Object, ObjectKind, ObjectName, ObjectStore, Objects, ObjectsQuery,
};

/// A question to the store under way.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;
