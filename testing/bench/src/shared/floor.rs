//! What no layout gets below: the indispensable commands of a reserve and a settle, with keys and arguments of their sizes,
//! and nothing decided.
//!
//! A repeat's answer is looked for, what the book holds is read once and written once, one field for all accounts of a
//! subject; the hold is due some time, ends as a tombstone that the server forgets, and leaves an entry in the journal.
//! What is written is what was read.

use anyhow::Result;
use tollbook_engine_redis::{Link, Script};

/// Bytes of a field: four accounts; of the quick form without and with a level, of the caller's context, of the claim with
/// its amounts, of the journal's entry.
const FIELD: usize = 340;
const FORM: (usize, usize) = (312, 144);
const CONTEXT: usize = 160;
const CLAIM: (usize, usize) = (37, 32);
const ENTRY: usize = 320;

const RESERVE: &str = "
local call, book = redis.call, KEYS[1]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
call('GET', KEYS[3])
local told = call('HMGET', book, 'c', 's', 'e-own', 'e-prior'FIELDS)
call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[3])
call('SET', KEYS[3], ARGV[1])
call('HSET', book, 'c', told[1]PAIRS)
return { 1, now, told[2] }";

const SETTLE: &str = "
local call, book = redis.call, KEYS[1]
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
call('GET', KEYS[3])
local told = call('HMGET', book, 'c', 's', 'e-own', 'e-prior'FIELDS)
call('XADD', KEYS[4], '*', 'e', ARGV[1], 'b', ARGV[2])
call('ZREM', KEYS[2], ARGV[3])
call('SET', KEYS[3], 'what a tombstone is', 'PX', '3600000')
call('HSET', book, 'c', told[1], 'e-own', told[3], 'e-prior', told[4]PAIRS)
return { 1, now, ARGV[1] }";

#[derive(Debug)]
pub(super) struct Floor {
    levels: usize,
    reserve: Script,
    settle: Script,
}

impl Floor {
    /// With the book's fields in place.
    pub(super) async fn new(link: &Link, levels: usize) -> Result<Self> {
        let each = |text: fn(usize) -> String| (0..levels).map(text).collect::<Vec<_>>().concat();
        let names = each(|level| format!(", 'account-{level:08}'"));
        let pairs = each(|level| format!(", 'account-{level:08}', told[{}]", level + 5));
        let rows = each(|level| format!(", 'account-{level:08}', ('r'):rep({FIELD})"));
        let script = |text: &str| Script::new(&text.replace("FIELDS", &names).replace("PAIRS", &pairs));
        let first = format!(
            "return redis.call('HSET', KEYS[1], 'c', ('c'):rep(16), 's', ('s'):rep(49), 'e-own', ('e'):rep(25), \
             'e-prior', ('e'):rep(25){rows})"
        );
        link.call(&Script::new(&first), &keys(0), &[]).await?;
        Ok(Self { levels, reserve: script(RESERVE), settle: script(SETTLE) })
    }

    pub(super) async fn pair(&self, link: &Link, id: u128) -> Result<()> {
        let keys = keys(id);
        let mut member = id.to_be_bytes().to_vec();
        member.extend([b'm'; 2]);
        member.extend(vec![b's'; 8 * self.levels]);
        let of = |byte: u8, bytes: usize| vec![byte; bytes];
        let form = of(b'f', FORM.0 + FORM.1 * self.levels);
        let reserve = [form, of(b'c', CONTEXT), member.clone()];
        link.call(&self.reserve, keys.get(..3).unwrap_or_default(), &reserve).await?;
        let claim = of(b'a', CLAIM.0 + CLAIM.1 * self.levels);
        link.call(&self.settle, &keys, &[claim, of(b'e', ENTRY), member]).await?;
        Ok(())
    }
}

/// Book, due set, reservation, journal.
fn keys(id: u128) -> Vec<Vec<u8>> {
    ["b".to_owned(), "due".to_owned(), format!("r:{id:032x}:0"), "j".to_owned()]
        .map(|name| format!("tb:{{0}}:{name}").into_bytes())
        .to_vec()
}
