//! Names of reservations, attempts and limits.

/// A reservation's id, made by the gateway: 64 random bits drawn at its start, then a counter. Never taken from a client (L2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReservationId(pub u128);

/// One upstream target tried inside a call; identity of a reservation is (id, attempt).
pub type Attempt = u16;

/// Names a limit in verdicts. Issued by `policy`; the book neither stores nor interprets it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LimitId(pub u32);

impl ReservationId {
    /// As it is displayed: 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| digits).map(Self)
    }
}

impl core::fmt::Display for ReservationId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
