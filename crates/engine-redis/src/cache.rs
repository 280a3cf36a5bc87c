//! What the gateways of a fleet have read of the store, beside their book: the port `ConfigCache`.
//!
//! Invariants: all keys of one id share a hash tag, one of 256; what is under them and is not ours, or damaged, is a gap.
//! A script's text and its keys' values begin with a version: another one is not ours.
//! When the server is away: a question fails after two fifths of the time that a verb has. It gives up no connection, so
//! that calls of the book which are on it go on; it asks no breaker and tells none.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::Value;
use tokio::time::timeout;
use tollbook_engine::Applied;
use tollbook_store::{
    Answer, CACHED_REVISION_MAX, Cached, ConfigCache, Gap, Look, StoreError, StoreErrorKind, is_cache_id,
    is_cacheable, shard_of,
};

use crate::engine::RedisEngine;
use crate::link::{Kind, LinkError, Script};
use crate::reply::{Items, Odd};
use crate::script::assemble;

/// Ids that are forgotten at a time.
const FORGOTTEN_AT_ONCE: usize = 64;
/// Hexadecimal digits in front of a text.
const SUM_DIGITS: usize = 8;

#[derive(Debug)]
struct Scripts {
    get: Script,
    put: Script,
    forget: Script,
    below: Script,
}

impl Scripts {
    fn all() -> &'static Self {
        static ALL: OnceLock<Scripts> = OnceLock::new();
        ALL.get_or_init(|| {
            let script = |verb| Script::new(&assemble(&[include_str!("../lua/cache.lua"), verb]));
            Self {
                get: script(include_str!("../lua/cache_get.lua")),
                put: script(include_str!("../lua/cache_put.lua")),
                forget: script(include_str!("../lua/cache_forget.lua")),
                below: script(include_str!("../lua/cache_below.lua")),
            }
        })
    }
}

impl RedisEngine {
    /// An id comes last in it: whatever is in that, the tag is the first one.
    pub(crate) fn cache_key(&self, tag: u8, name: &str) -> Vec<u8> {
        format!("{}:cfg:{{{tag}}}:{name}", self.prefix()).into_bytes()
    }

    fn floor_key(&self, tag: u8) -> Vec<u8> {
        self.cache_key(tag, "floor")
    }

    /// Floor, version, entry.
    fn cache_keys(&self, id: &str) -> [Vec<u8>; 3] {
        let tag = shard_of(id);
        let key = |what| self.cache_key(tag, &format!("{what}:{id}"));
        [self.floor_key(tag), key("v"), key("e")]
    }

    async fn cache_call(
        &self,
        script: &Script,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Result<Value, StoreError> {
        // Shorter than the link's own: who asks first gives up first, and leaves the connection to others.
        let limit: Duration = self.link().deadline() * 2 / 5;
        match timeout(limit, self.link().call(script, keys, args)).await {
            Ok(answer) => answer.map_err(trouble),
            Err(_) => Err(StoreError::unknown(StoreErrorKind::Away("no answer in time".to_owned()))),
        }
    }

    async fn cache_get(&self, id: &str, least: u64) -> Result<Look, StoreError> {
        if !is_cache_id(id) {
            return Err(StoreError::not_applied(StoreErrorKind::Refused("nothing is kept under such an id")));
        }
        let said = self.cache_call(&Scripts::all().get, &self.cache_keys(id), &[number(least)]).await?;
        let mut items = Items::of(said).map_err(odd)?;
        let gap = Gap(items.number().map_err(odd)?);
        if items.is_empty() {
            return Ok(Look::Gap(gap));
        }
        let (revision, at) = (items.number().map_err(odd)?, items.index().map_err(odd)?);
        let entry = items.bytes().map_err(odd)?;
        Ok(unpacked(id, revision, entry, at.saturating_sub(1))
            .map_or(Look::Gap(gap), |text| Look::Kept(Cached { revision, text })))
    }

    async fn cache_put(&self, gap: Gap, id: &str, read: &Cached) -> Result<bool, StoreError> {
        if !is_cache_id(id) || !is_cacheable(read) {
            return Ok(false);
        }
        let args = [number(gap.0), number(read.revision), packed(id, read)];
        let said = self.cache_call(&Scripts::all().put, &self.cache_keys(id), &args).await?;
        is_done(&said)
    }

    async fn cache_forget(&self, ids: &[(String, u64)]) -> Result<(), StoreError> {
        for some in ids.chunks(FORGOTTEN_AT_ONCE) {
            let some = some.iter().filter(|(id, _)| is_cache_id(id));
            try_join_all(some.map(async |(id, revision)| {
                let (keys, args) = (self.cache_keys(id), [number(*revision)]);
                is_done(&self.cache_call(&Scripts::all().forget, &keys, &args).await?)
            }))
            .await?;
        }
        Ok(())
    }

    async fn cache_forget_below(&self, revision: u64) -> Result<(), StoreError> {
        let tags: Vec<u8> = (0..=u8::MAX).collect();
        for some in tags.chunks(FORGOTTEN_AT_ONCE) {
            try_join_all(some.iter().map(async |tag| {
                let (keys, args) = ([self.floor_key(*tag)], [number(revision)]);
                is_done(&self.cache_call(&Scripts::all().below, &keys, &args).await?)
            }))
            .await?;
        }
        Ok(())
    }

    fn cached<'a, T: Send + 'a>(
        &'a self,
        verb: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> Answer<'a, T> {
        self.inside(verb)
    }
}

/// Larger ones are none: what was read later can be no larger.
fn number(number: u64) -> Vec<u8> {
    number.min(CACHED_REVISION_MAX).to_string().into_bytes()
}

fn is_done(said: &Value) -> Result<bool, StoreError> {
    match said {
        Value::Int(done) => Ok(*done == 1),
        _ => Err(odd(Odd("cache"))),
    }
}

/// What a text is kept as: its sum, over all that has to be as it was, and itself.
fn packed(id: &str, read: &Cached) -> Vec<u8> {
    let mut body = format!("{:08x}", sum(id, read.revision, &read.text)).into_bytes();
    body.extend_from_slice(read.text.as_bytes());
    body
}

/// The text of an entry in which what was packed begins at `at`.
fn unpacked(id: &str, revision: u64, entry: Vec<u8>, at: usize) -> Option<String> {
    let mut entry = String::from_utf8(entry).ok()?;
    let (digits, text) = entry.split_at_checked(at)?.1.split_at_checked(SUM_DIGITS)?;
    if digits != format!("{:08x}", sum(id, revision, text)) {
        return None;
    }
    entry.drain(..at + SUM_DIGITS);
    Some(entry)
}

fn sum(id: &str, revision: u64, text: &str) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(id.as_bytes());
    sum.update(&revision.to_be_bytes());
    sum.update(text.as_bytes());
    sum.finalize()
}

fn trouble(error: LinkError) -> StoreError {
    let kind = match error.kind {
        Kind::Script => StoreErrorKind::Damaged(error.message),
        _ => StoreErrorKind::Away(error.to_string()),
    };
    match error.applied {
        Applied::No => StoreError::not_applied(kind),
        Applied::Unknown => StoreError::unknown(kind),
    }
}

fn odd(Odd(what): Odd) -> StoreError {
    StoreError::unknown(StoreErrorKind::Damaged(format!("the answer's {what} cannot be read")))
}

impl ConfigCache for RedisEngine {
    fn get<'a>(&'a self, id: &'a str, least: u64) -> Answer<'a, Look> {
        self.cached(self.cache_get(id, least))
    }

    fn put<'a>(&'a self, gap: Gap, id: &'a str, read: &'a Cached) -> Answer<'a, bool> {
        self.cached(self.cache_put(gap, id, read))
    }

    fn forget<'a>(&'a self, ids: &'a [(String, u64)]) -> Answer<'a, ()> {
        self.cached(self.cache_forget(ids))
    }

    fn forget_below(&self, revision: u64) -> Answer<'_, ()> {
        self.cached(self.cache_forget_below(revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_only_as_it_was_kept() {
        let read = Cached { revision: 7, text: "two keys, ünd more".to_owned() };
        let entry = [b"1 7 1 ", packed("acme", &read).as_slice()].concat();
        let of = |id, revision, entry: &[u8]| unpacked(id, revision, entry.to_vec(), 6);
        assert_eq!(of("acme", 7, &entry), Some(read.text));
        assert_eq!(of("acme", 8, &entry), None);
        assert_eq!(of("acne", 7, &entry), None);
        for length in 0..entry.len() {
            assert_eq!(of("acme", 7, &entry[..length]), None, "{length}");
        }
        for at in 6..entry.len() {
            let mut other = entry.clone();
            other[at] ^= 1;
            assert_eq!(of("acme", 7, &other), None, "{at}");
        }
        let empty = Cached { revision: 0, text: String::new() };
        assert_eq!(unpacked("acme", 0, packed("acme", &empty), 0), Some(String::new()));
    }

    #[test]
    fn lives_are_those_that_the_port_tells() {
        let common = include_str!("../lua/cache.lua");
        let known = tollbook_store::CACHED_FOR + tollbook_store::FORGOTTEN_FOR;
        let (entry, known) = (tollbook_store::CACHED_FOR.as_millis(), known.as_millis());
        assert!(common.contains(&format!("const ENTRY_LIFE, KNOWN_LIFE = {entry}, {known}\n")));
        assert!(common.contains(&format!("const NUMBER_MAX = {CACHED_REVISION_MAX}\n")));
        assert!(!Scripts::all().get.text().contains("KNOWN_LIFE"), "a constant is left over");
    }
}
