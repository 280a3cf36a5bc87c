//! Who has shown wrong operators' keys lately, and is not listened to for a while.
//!
//! Ten wrong keys from an address (of IPv6: from a /64) within a minute are told to be wrong. After them, until the minute
//! is over, no key from there is looked at, so that a guess tells nothing: a right one is refused like all others. But a
//! key that has been good from that address within a day is looked at as ever. So a stranger behind the same proxy locks
//! nobody out who works there, and what he can go on guessing is the keys that are used there, not the others.
//!
//! Invariants: both tables are bounded; what was longest ago leaves. Keys are kept as digests under a secret of this
//! process. What shows no key is not counted: it guesses nothing. A restart forgets all of it.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong keys of an address that are told to be wrong, in a [`WINDOW`].
pub(super) const WRONG_MAX: u32 = 10;
/// From the first wrong key on.
pub(super) const WINDOW: Duration = Duration::from_mins(1);
/// Addresses of which wrong keys are counted.
const PEERS_MAX: usize = 10_000;
/// Good keys that are remembered, each with the address it came from.
const GOOD_MAX: usize = 1_000;
const GOOD_FOR: Duration = Duration::from_hours(24);

/// What a shown key comes to.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Login<G> {
    Good(G),
    Wrong {
        /// It was the last that is told to be wrong.
        is_last: bool,
    },
    /// Too many wrong ones from there; for so long.
    Limited(Duration),
}

/// An address, of IPv6 its /64: one customer has at least that much.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Peer(IpAddr);

impl Peer {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
            four @ IpAddr::V4(_) => four,
        })
    }
}

type Digest = [u8; 32];

/// Wrong keys of one address.
#[derive(Clone, Copy)]
struct Tries {
    since: Instant,
    wrong: u32,
}

struct Tables {
    tries: Latest<Peer, Tries>,
    good: Latest<(Peer, Digest), Instant>,
}

pub(super) struct Logins {
    /// What keys are hashed with: random, so that nobody knows a digest.
    secret: Digest,
    tables: Mutex<Tables>,
}

impl Logins {
    /// `None` where the system gives no randomness.
    pub(super) fn new() -> Option<Self> {
        let mut secret = Digest::default();
        getrandom::fill(&mut secret).ok()?;
        let tables = Tables { tries: Latest::new(PEERS_MAX), good: Latest::new(GOOD_MAX) };
        Some(Self { secret, tables: Mutex::new(tables) })
    }

    /// Looks at a key, unless too many wrong ones came from there. `open` says what it opens; keys are tried one after
    /// another, so that many at once are not more than are counted.
    pub(super) fn try_key<G>(
        &self,
        from: IpAddr,
        key: &str,
        now: Instant,
        open: impl FnOnce() -> Option<G>,
    ) -> Login<G> {
        let peer = Peer::of(from);
        let entry = (peer, *blake3::keyed_hash(&self.secret, key.as_bytes()).as_bytes());
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let running = tables.tries.get(&peer).copied();
        let running = running.filter(|tries| now.saturating_duration_since(tries.since) < WINDOW);
        let limited = running.filter(|tries| tries.wrong >= WRONG_MAX);
        let good = tables.good.get(&entry);
        let known = good.is_some_and(|at| now.saturating_duration_since(*at) < GOOD_FOR);
        let wait =
            |tries: Tries| Login::Limited(WINDOW.saturating_sub(now.saturating_duration_since(tries.since)));
        if let Some(tries) = limited
            && !known
        {
            return wait(tries);
        }
        if let Some(opened) = open() {
            tables.good.put(entry, now);
            return Login::Good(opened);
        }
        tables.good.remove(&entry);
        if let Some(tries) = limited {
            return wait(tries);
        }
        let Tries { since, wrong } = running.unwrap_or(Tries { since: now, wrong: 0 });
        let wrong = wrong.saturating_add(1);
        tables.tries.put(peer, Tries { since, wrong });
        Login::Wrong { is_last: wrong == WRONG_MAX }
    }
}

/// At most so many rows; where there is one more, that which was put longest ago leaves.
struct Latest<K, V> {
    most: usize,
    rows: HashMap<K, (u64, V)>,
    turns: BTreeMap<u64, K>,
    next: u64,
}

impl<K: Copy + Eq + Hash, V> Latest<K, V> {
    fn new(most: usize) -> Self {
        Self { most, rows: HashMap::new(), turns: BTreeMap::new(), next: 0 }
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key).map(|(_, value)| value)
    }

    fn put(&mut self, key: K, value: V) {
        self.next = self.next.saturating_add(1);
        if let Some((turn, _)) = self.rows.insert(key, (self.next, value)) {
            self.turns.remove(&turn);
        }
        self.turns.insert(self.next, key);
        if self.turns.len() > self.most
            && let Some((_, oldest)) = self.turns.pop_first()
        {
            self.rows.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some((turn, _)) = self.rows.remove(key) {
            self.turns.remove(&turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "192.0.2.1";

    struct Door {
        logins: Logins,
        now: Instant,
    }

    impl Door {
        fn new() -> Self {
            Self { logins: Logins::new().unwrap(), now: Instant::now() }
        }

        /// Keys that begin with `right` open.
        fn shown(&self, from: &str, key: &str) -> Login<()> {
            self.logins
                .try_key(from.parse().unwrap(), key, self.now, || key.starts_with("right").then_some(()))
        }

        fn is_limited(&self, from: &str, key: &str) -> bool {
            matches!(self.shown(from, key), Login::Limited(_))
        }

        fn guess(&self, from: &str, times: u32) {
            for guess in 0..times {
                let told = self.shown(from, &format!("wrong-{guess}"));
                assert_eq!(told, Login::Wrong { is_last: guess + 1 == WRONG_MAX });
            }
        }
    }

    #[test]
    fn after_ten_wrong_keys_in_a_minute_an_address_waits_for_the_rest_of_it() {
        let mut door = Door::new();
        door.guess(HOME, WRONG_MAX);
        door.now += Duration::from_secs(20);
        assert_eq!(door.shown(HOME, "wrong"), Login::Limited(Duration::from_secs(40)));
        assert_eq!(door.shown("192.0.2.2", "right"), Login::Good(()));
        door.now += Duration::from_secs(40);
        door.guess(HOME, WRONG_MAX);
        assert!(door.is_limited(HOME, "wrong"));
    }

    #[test]
    fn a_guess_beyond_them_tells_nothing_of_a_right_key() {
        let door = Door::new();
        assert_eq!(door.shown("192.0.2.2", "right-elsewhere"), Login::Good(()));
        door.guess(HOME, WRONG_MAX);
        for key in ["wrong", "right", "right-elsewhere"] {
            assert_eq!(door.shown(HOME, key), Login::Limited(WINDOW), "{key}");
        }
    }

    #[test]
    fn a_stranger_locks_out_nobody_who_works_at_the_same_address() {
        let mut door = Door::new();
        assert_eq!(door.shown(HOME, "right"), Login::Good(()));
        door.guess(HOME, WRONG_MAX);
        for _ in 0..50 {
            assert!(door.is_limited(HOME, "wrong"));
            assert_eq!(door.shown(HOME, "right"), Login::Good(()));
        }
        // Not a day after it was last used.
        door.now += GOOD_FOR;
        door.guess(HOME, WRONG_MAX);
        assert!(door.is_limited(HOME, "right"));
    }

    #[test]
    fn a_key_that_was_good_and_is_not_any_more_is_refused_like_a_guess() {
        let door = Door::new();
        let from: IpAddr = HOME.parse().unwrap();
        assert_eq!(door.shown(HOME, "right"), Login::Good(()));
        door.guess(HOME, WRONG_MAX);
        let told = door.logins.try_key(from, "right", door.now, || None::<()>);
        assert_eq!(told, Login::Limited(WINDOW));
        assert!(door.is_limited(HOME, "right"), "it is forgotten");
    }

    #[test]
    fn an_address_of_ipv6_is_a_network_of_64_bits() {
        let door = Door::new();
        door.guess("2001:db8:1:1::1", WRONG_MAX);
        assert!(door.is_limited("2001:db8:1:1:ffff::7", "wrong"));
        assert!(!door.is_limited("2001:db8:1:2::1", "wrong"));
        // IPv4 over IPv6 is the IPv4 address, not one network for all of them.
        door.guess("::ffff:192.0.2.9", WRONG_MAX);
        assert!(door.is_limited("192.0.2.9", "wrong"));
        assert!(!door.is_limited("::ffff:192.0.2.10", "wrong"));
    }

    #[test]
    fn so_many_addresses_are_counted_and_the_oldest_leaves() {
        let door = Door::new();
        let address = |n: usize| format!("10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
        for n in 0..PEERS_MAX {
            door.guess(&address(n), WRONG_MAX - 1);
        }
        // Another wrong key makes the first the newest.
        assert_eq!(door.shown(&address(0), "wrong"), Login::Wrong { is_last: true });
        let count = || {
            let tables = door.logins.tables.lock().unwrap();
            (tables.tries.rows.len(), tables.tries.turns.len())
        };
        assert_eq!(count(), (PEERS_MAX, PEERS_MAX));
        door.guess(&address(PEERS_MAX), 1);
        assert_eq!(count(), (PEERS_MAX, PEERS_MAX));
        assert!(door.is_limited(&address(0), "wrong"));
        // The second was the oldest, and begins anew; the third is counted still.
        assert_eq!(door.shown(&address(2), "wrong"), Login::Wrong { is_last: true });
        assert_eq!(door.shown(&address(1), "wrong"), Login::Wrong { is_last: false });
    }

    #[test]
    fn so_many_good_keys_are_remembered() {
        let door = Door::new();
        for n in 0..=GOOD_MAX {
            assert_eq!(door.shown(HOME, &format!("right-{n}")), Login::Good(()));
        }
        assert_eq!(door.logins.tables.lock().unwrap().good.rows.len(), GOOD_MAX);
        door.guess(HOME, WRONG_MAX);
        assert!(door.is_limited(HOME, "right-0"));
        assert_eq!(door.shown(HOME, "right-1"), Login::Good(()));
    }
}
