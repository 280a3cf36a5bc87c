//! The rules L1–L15, L17 and L18 as tables, by what they are about. L16 is `policy`'s.

mod denial;
mod ends;
mod expiry;
mod growth;
mod late;
mod rebook;
mod reserve;
mod shadow;
mod time;

pub use denial::*;
pub use ends::*;
pub use expiry::*;
pub use growth::*;
pub use late::*;
pub use rebook::*;
pub use reserve::*;
pub use shadow::*;
pub use time::*;
