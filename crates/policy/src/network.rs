//! Addresses that something is open to: plain numbers, nothing is connected.

use core::net::IpAddr;

/// Addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u8,
}

impl Network {
    /// `10.0.0.0/8`, `fd00::/8`, or one address.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = address.parse().ok()?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        (bits <= most).then_some(Self { base, bits })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let (base, other, size) = match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(other)) => {
                (u128::from(u32::from(base)), u128::from(u32::from(other)), 32_u8)
            }
            (IpAddr::V6(base), IpAddr::V6(other)) => (u128::from(base), u128::from(other), 128),
            _ => return false,
        };
        let rest = u32::from(size.saturating_sub(self.bits));
        base.checked_shr(rest).unwrap_or(0) == other.checked_shr(rest).unwrap_or(0)
    }
}
