//! The engine: verbs as calls of scripts, and their answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::future::try_join_all;
use redis::Value;
use tokio::runtime::Handle;
use tollbook_engine::ledger::codes::{MEASURES, value_of};
use tollbook_engine::ledger::{
    AccountId, Expired, Leg, LegReceipt, Measure, Progress, Receipt as LedgerReceipt, Refusal, ReleaseWhy,
    Renewed, Reserve, Settled, Shape, Weights,
};
use tollbook_engine::{
    AdjustCall, Answer, Balance, Claim, Cursor, Drift, DueHold, ENTRY_MAX, Engine, EngineError, ErrorKind,
    ExpireCall, ExpireNow, Inspection, JournalRecord, LiveHold, Loss, ProgressCall, RebookCall, Receipt,
    ReleaseCall, RenewCall, Repair, Reply, ReserveCall, RestoreCall, SETTLE_AGE_MAX, SettleCall, Shard,
    Standing, Survey, Verdict,
};

use crate::keys::{self, Keys};
use crate::link::{Kind, Link, LinkError, Script};
use crate::number::double;
use crate::pack::{self, Raw, exact, packed};
use crate::quick::Quick;
use crate::recovery::{Epochs, Guard};
use crate::reply::{self, Items, Odd};
use crate::script::{ClockSource, Scripts};

/// Where the time of a test engine comes from.
#[cfg(feature = "test-clock")]
pub type GivenClock = std::sync::Arc<dyn Fn() -> tollbook_engine::ledger::Micros + Send + Sync>;

/// The shared book. Verbs may be called from any thread; the connection lives on the runtime that made the engine.
pub struct RedisEngine {
    link: Link,
    prefix: String,
    pub(crate) scripts: &'static Scripts,
    runtime: Handle,
    /// Those that are swept and checked here.
    shards: Vec<Shard>,
    /// What is known of the shards' epochs, where somebody rebuilds what is lost.
    pub(crate) epochs: Option<Epochs>,
    /// Time of the last answer: which period a call falls into, most likely.
    now: AtomicU64,
    #[cfg(feature = "test-clock")]
    clock: Option<GivenClock>,
}

impl std::fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisEngine")
            .field("link", &self.link)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// An answer of a script: epoch, now, and what the verb says.
pub(crate) type Said = Reply<Value>;

impl RedisEngine {
    /// On a connection that was made; to be called on the runtime that it lives on.
    pub fn new(link: Link, prefix: impl Into<String>) -> Self {
        Self::with_scripts(link, prefix, Scripts::of(ClockSource::Server))
    }

    fn with_scripts(link: Link, prefix: impl Into<String>, scripts: &'static Scripts) -> Self {
        Self {
            link,
            prefix: prefix.into(),
            scripts,
            runtime: Handle::current(),
            shards: (0..=u8::MAX).map(Shard).collect(),
            epochs: None,
            now: AtomicU64::new(0),
            #[cfg(feature = "test-clock")]
            clock: None,
        }
    }

    /// The same with scripts that take their time from `clock`.
    #[cfg(feature = "test-clock")]
    pub fn with_clock(link: Link, prefix: impl Into<String>, shards: Vec<Shard>, clock: GivenClock) -> Self {
        let scripts = Scripts::of(ClockSource::Given);
        Self { shards, clock: Some(clock), ..Self::with_scripts(link, prefix, scripts) }
    }

    /// The same where somebody rebuilds what a server loses: every verb says which epoch it expects and which server it meets,
    /// and a shard that has lost something answers so until it is opened ([`tollbook_engine::Recovery`]).
    #[must_use]
    pub fn guarded(self) -> Self {
        Self { epochs: Some(Epochs::default()), ..self }
    }

    pub(crate) fn keys(&self, shard: Shard) -> Keys {
        Keys::of(&self.prefix, shard)
    }

    /// The key of the whole book: who keeps it.
    pub(crate) fn owner_key(&self) -> Vec<u8> {
        format!("{}:owner", self.prefix).into_bytes()
    }

    pub(crate) async fn call(
        &self,
        script: &Script,
        keys: &Keys,
        args: Vec<Vec<u8>>,
    ) -> Result<Said, EngineError> {
        self.call_as(Guard::Whole, script, keys, args).await
    }

    /// The arguments of the verb, the time in a test, the epoch expected; the link adds the server.
    pub(crate) async fn call_as(
        &self,
        guard: Guard,
        script: &Script,
        keys: &Keys,
        mut args: Vec<Vec<u8>>,
    ) -> Result<Said, EngineError> {
        #[cfg(feature = "test-clock")]
        args.extend(self.clock.as_ref().map(|clock| clock().to_string().into_bytes()));
        args.push(self.epochs.as_ref().map_or_else(Vec::new, |epochs| epochs.expects(guard, keys.shard())));
        let value = self.link.call(script, keys.list(), &args).await.map_err(trouble)?;
        let mut items = Items::of(value)?;
        let (epoch, now) = (items.number()?, items.number()?);
        self.now.store(now, Ordering::Relaxed);
        if let Some(epochs) = &self.epochs {
            epochs.told(keys.shard(), epoch);
        }
        // What the verb says may be of two parts.
        let value = match (items.value(), items.value()) {
            (value, Value::Nil) => value,
            (first, second) => Value::Array(vec![first, second]),
        };
        Ok(Reply { epoch, now, value })
    }

    pub(crate) fn on<'a, T: 'a>(
        &'a self,
        verb: impl Future<Output = Result<Reply<T>, EngineError>> + Send + 'a,
    ) -> Answer<'a, T> {
        self.inside(verb)
    }

    pub(crate) fn inside<'a, T: 'a>(
        &'a self,
        verb: impl Future<Output = T> + Send + 'a,
    ) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> {
        Box::pin(Inside { runtime: &self.runtime, verb: Box::pin(verb) })
    }

    async fn reserve_call(&self, call: &ReserveCall) -> Result<Reply<Verdict>, EngineError> {
        let reserve = &call.reserve;
        reserve.check()?;
        let keys = self.keys(call.shard).reservation(reserve.id, reserve.attempt);
        let member = member(reserve);
        let quick = Quick::of(reserve, &member, self.now.load(Ordering::Relaxed));
        let (life, profile, legs) = long_form(reserve);
        let args = vec![
            quick.as_ref().map_or_else(Vec::new, |quick| quick.text().to_vec()),
            reserve.context.clone(),
            packed(&(Raw(&member), life, profile, legs)),
        ];
        let said = self.call(&self.scripts.reserve, &keys, args).await?;
        #[cfg(feature = "test-clock")]
        let is_quick = matches!(said.value, Value::BulkString(_));
        let value = match (said.value, quick) {
            (Value::BulkString(text), Some(quick)) => {
                let legs = quick.legs(reserve, said.now, &text)?;
                admitted(call, said.epoch, said.now, legs)
            }
            (value, _) => verdict(Items::of(value)?, call, said.epoch)?,
        };
        #[cfg(feature = "test-clock")]
        if matches!(value, Verdict::Admit(_)) {
            crate::quick::RESERVES.add(is_quick);
        }
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    async fn rebook_call(&self, call: &RebookCall) -> Result<Reply<Verdict>, EngineError> {
        let (reserve, ended) = (&call.next.reserve, call.receipt.claim());
        if ended.shard != call.next.shard {
            return Err(EngineError::not_applied(ErrorKind::NoSuchShard));
        }
        reserve.check()?;
        check_amounts(call.actual.as_deref().unwrap_or_default())?;
        check_entry(call.entry.as_deref())?;
        let keys = self.keys(call.next.shard).reservation(reserve.id, reserve.attempt);
        let keys = keys.reservation(ended.id, ended.attempt).journal();
        let (life, profile, legs) = long_form(reserve);
        let args = packed(&(
            reserve.attempt,
            Raw(member(reserve)),
            life,
            profile,
            legs,
            ended.attempt,
            &call.actual,
            exact(call.landed),
            call.entry.is_some(),
        ));
        let args = vec![
            args,
            keys::claim(ended.id.0, ended.attempt),
            reserve.context.clone(),
            call.entry.clone().unwrap_or_default(),
        ];
        let said = self.call(&self.scripts.rebook, &keys, args).await?;
        let value = verdict(Items::of(said.value)?.items()?, &call.next, said.epoch)?;
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    async fn renew_call(&self, call: &RenewCall) -> Result<Reply<Renewed>, EngineError> {
        let keys = self.keys(call.claim.shard).reservation(call.claim.id, call.claim.attempt);
        let output = |output: Option<u64>| output.map_or(-1, signed);
        let args = packed(&(
            exact(call.life),
            u8::from(call.sent),
            output(call.output_expected),
            output(call.outgrown),
        ));
        let said = self.call(&self.scripts.renew, &keys, vec![args]).await?;
        let mut items = Items::of(said.value)?;
        let value = match items.text()?.as_str() {
            "held" => Renewed::Held(items.numbers()?),
            "short" => Renewed::Short(items.each(Items::index)?),
            "ended" => Renewed::Ended(reply::end(items.number()?)?),
            "unknown" => Renewed::Unknown,
            _ => return Err(Odd("renewal").into()),
        };
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    async fn progress_call(&self, call: &ProgressCall) -> Result<Reply<()>, EngineError> {
        Progress::check(&call.batches)?;
        let keys = self.keys(call.shard);
        let batches: Vec<_> = (call.batches.iter())
            .map(|batch| {
                let gateway = Raw(batch.gateway.to_be_bytes());
                let account = pack::account(&batch.account);
                (gateway, account, exact(batch.seq), exact(batch.base_second), &batch.deltas)
            })
            .collect();
        let said = self.call(&self.scripts.progress, &keys, vec![packed(&batches)]).await?;
        Ok(Reply { epoch: said.epoch, now: said.now, value: () })
    }

    pub(crate) async fn settle_call(
        &self,
        call: &SettleCall,
        guard: Guard,
    ) -> Result<Reply<Settled>, EngineError> {
        check_amounts(&call.actual)?;
        check_entry(Some(&call.entry))?;
        let args =
            claim_args(call.claim, 1, &call.actual, call.landed, call.learn, true, call.age > SETTLE_AGE_MAX);
        self.claim(guard, call.claim, call.actual.len(), vec![args, call.entry.clone()]).await
    }

    pub(crate) async fn release_call(
        &self,
        call: &ReleaseCall,
        guard: Guard,
    ) -> Result<Reply<Settled>, EngineError> {
        check_entry(call.entry.as_deref())?;
        let how = match call.why {
            ReleaseWhy::NeverSent => 2_u8,
            ReleaseWhy::Failed => 3,
        };
        let args = claim_args(call.claim, how, &[], 0, None, call.entry.is_some(), false);
        self.claim(guard, call.claim, 0, vec![args, call.entry.clone().unwrap_or_default()]).await
    }

    async fn claim(
        &self,
        guard: Guard,
        claim: Claim,
        legs: usize,
        args: Vec<Vec<u8>>,
    ) -> Result<Reply<Settled>, EngineError> {
        let keys = self.keys(claim.shard).reservation(claim.id, claim.attempt).journal();
        let said = self.call_as(guard, &self.scripts.settle, &keys, args).await?;
        let mut items = reply::array(said.value)?;
        #[cfg(feature = "test-clock")]
        let is_quick = matches!(items.as_slice(), [Value::BulkString(_), _]);
        let value = match items.as_mut_slice() {
            [Value::BulkString(entry), Value::BulkString(overrun)] => {
                reply::settled_quickly(entry, overrun, legs)?
            }
            _ => reply::settled(Items::of(Value::Array(items))?)?,
        };
        #[cfg(feature = "test-clock")]
        if legs > 0 && value.before == tollbook_engine::ledger::Met::Held {
            crate::quick::SETTLES.add(is_quick);
        }
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    /// `early`: due or not, if it was sent, with this entry.
    async fn expire_call(&self, claim: Claim, early: Option<&[u8]>) -> Result<Reply<Expired>, EngineError> {
        check_entry(early)?;
        let keys = self.keys(claim.shard).reservation(claim.id, claim.attempt).journal();
        let args = vec![keys::claim(claim.id.0, claim.attempt), early.unwrap_or_default().to_vec()];
        let said = self.call(&self.scripts.expire, &keys, args).await?;
        let mut items = Items::of(said.value)?;
        let value = match items.text()?.as_str() {
            "expired" => Expired::Expired {
                posted: items.each(reply::posted)?,
                context: items.bytes()?,
                admitted: items.number()?,
                sent: items.flag()?,
            },
            "not_due" => Expired::NotDue,
            "ended" => Expired::Ended(reply::end(items.number()?)?),
            "unknown" => Expired::Unknown,
            _ => return Err(Odd("expiry").into()),
        };
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    async fn adjust_call(&self, call: &AdjustCall) -> Result<Reply<bool>, EngineError> {
        let adjust = &call.adjust;
        adjust.check()?;
        check_entry(Some(&call.entry))?;
        let keys = self.keys(call.shard).adjust(adjust.id).journal();
        let opening = adjust.opening.map(|opening| (pack::measure(opening.measure), exact(opening.end)));
        let args = packed(&(pack::account(&adjust.account), adjust.period, adjust.delta, opening));
        let args = vec![args, keys::claim(adjust.id, 0), call.entry.clone()];
        let said = self.call_as(Guard::Rebuilding, &self.scripts.adjust, &keys, args).await?;
        let value = match said.value {
            Value::Int(applied) => applied == 1,
            _ => return Err(Odd("adjust").into()),
        };
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    pub(crate) async fn balances_call(
        &self,
        shard: Shard,
        accounts: &[AccountId],
    ) -> Result<Reply<Vec<Option<Balance>>>, EngineError> {
        let names: Vec<_> = accounts.iter().map(pack::account).collect();
        let said = self.call(&self.scripts.balances, &self.keys(shard), vec![packed(&names)]).await?;
        let mut items = Items::of(said.value)?;
        let mut value = Vec::with_capacity(accounts.len());
        for account in accounts {
            value.push(balance(items.items()?, *account)?);
        }
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    async fn demands_call(&self, shard: Shard, legs: &[Leg]) -> Result<Reply<Vec<u64>>, EngineError> {
        let args = packed(&pack::legs(legs));
        let said = self.call(&self.scripts.demands, &self.keys(shard), vec![args]).await?;
        let value = Items::of(Value::Array(vec![said.value]))?.numbers()?;
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    async fn due_call(&self, shard: Shard, most: usize) -> Result<Reply<Vec<DueHold>>, EngineError> {
        let said =
            self.call(&self.scripts.due, &self.keys(shard), vec![most.to_string().into_bytes()]).await?;
        let value =
            Items::of(Value::Array(vec![said.value]))?.each(|items| reply::due(&items.bytes()?, shard))?;
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    /// Epoch and time beside what was read without a script.
    pub(crate) async fn stamped<T>(&self, shard: Shard, value: T) -> Result<Reply<T>, EngineError> {
        let nothing: [u8; 0] = [];
        let said = self.call(&self.scripts.balances, &self.keys(shard), vec![packed(&nothing)]).await?;
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    /// The same of what is read whatever was lost.
    async fn stamped_unguarded<T>(&self, shard: Shard, value: T) -> Result<Reply<T>, EngineError> {
        let nothing: [u8; 0] = [];
        let (keys, args) = (self.keys(shard), vec![packed(&nothing)]);
        let said = self.call_as(Guard::Off, &self.scripts.balances, &keys, args).await?;
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    pub(crate) async fn command(&self, name: &str, key: &[u8], args: &[&[u8]]) -> Result<Value, EngineError> {
        let mut command = redis::cmd(name);
        command.arg(key);
        for arg in args {
            command.arg(*arg);
        }
        self.link.command(&command, Some(key)).await.map_err(trouble)
    }

    async fn journal_read_call(
        &self,
        shard: Shard,
        after: Cursor,
        most: usize,
    ) -> Result<Reply<Vec<JournalRecord>>, EngineError> {
        let (from, most) = (format!("({}", stream_id(after)), most.to_string());
        let key = self.keys(shard).own("j");
        let read = self.command("XRANGE", &key, &[from.as_bytes(), b"+", b"COUNT", most.as_bytes()]).await?;
        let records = Items::of(Value::Array(vec![read]))?.each(crate::journal::record)?;
        self.stamped_unguarded(shard, records).await
    }

    async fn journal_trim_call(&self, shard: Shard, upto: Cursor) -> Result<Reply<()>, EngineError> {
        let (key, from) = (self.keys(shard).own("j"), stream_id(Cursor(upto.0.saturating_add(1))));
        self.command("XTRIM", &key, &[b"MINID", from.as_bytes()]).await?;
        self.stamped_unguarded(shard, ()).await
    }

    /// A read would be answered by a server that takes no writes: a replica, or one whose memory is full.
    async fn takes_call(&self, shard: Shard) -> Result<Reply<()>, EngineError> {
        self.command("SET", &self.keys(shard).own("takes"), &[b"1", b"PX", b"1000"]).await?;
        self.stamped(shard, ()).await
    }

    /// Forgets what no rule needs any more, of some accounts and estimators of one shard; how
    /// much went. To be called every few seconds; several gateways may.
    ///
    /// # Errors
    /// As any verb; what was not forgotten is forgotten another time.
    pub async fn tidy(&self, shard: Shard) -> Result<u64, EngineError> {
        self.on(self.tidy_call(shard)).await.map(|reply| reply.value)
    }

    async fn tidy_call(&self, shard: Shard) -> Result<Reply<u64>, EngineError> {
        let keys = self.keys(shard);
        let some = TIDIED_AT_ONCE.to_string();
        // Random ones: nothing has to be remembered, and everything has its turn.
        let fields = self.command("HRANDFIELD", &keys.own("b"), &[some.as_bytes()]).await?;
        let (mut accounts, mut estimators) = (Vec::new(), Vec::new());
        for field in Items::of(Value::Array(vec![fields]))?.each(Items::bytes)? {
            if let Some(account) = keys::account_of(&field) {
                accounts.push(pack::account(&account));
            } else if let Some((&keys::ESTIMATOR, id)) = field.split_first()
                && id.len() == ESTIMATOR_BYTES
            {
                estimators.push(Raw(id.to_vec()));
            }
        }
        let said = self.call(&self.scripts.prune, &keys, vec![packed(&(accounts, estimators))]).await?;
        let Value::Int(gone) = said.value else { return Err(Odd("prune").into()) };
        Ok(Reply { epoch: said.epoch, now: said.now, value: u64::try_from(gone).unwrap_or(0) })
    }

    /// Writes a wrong `held`, as a fault would.
    #[cfg(feature = "test-clock")]
    pub async fn corrupt_held(&self, shard: Shard, account: AccountId, held: i64) -> Result<(), EngineError> {
        let corrupting = async {
            let (key, name) = (self.keys(shard).own("b"), keys::account(&account));
            let row = self.command("HGET", &key, &[&name]).await?;
            let mut row = Items::of(Value::Array(vec![row]))?.bytes()?;
            let at = if row.first() == Some(&3) { row.len().saturating_sub(8) } else { crate::rows::HELD_AT };
            let mut wrong = double(held.unsigned_abs());
            // The sign of a double.
            wrong[7] |= if held < 0 { 0x80 } else { 0 };
            row.splice(at..at + wrong.len(), wrong);
            self.command("HSET", &key, &[&name, &row]).await?;
            self.stamped(shard, ()).await
        };
        self.on(corrupting).await.map(|reply| reply.value)
    }

    async fn inspect_call(&self, shard: Shard, what: &Inspection) -> Result<Reply<String>, EngineError> {
        let text = crate::inspect::text(self, shard, what).await?;
        self.stamped(shard, text).await
    }

    /// For people: the raw fields of a hash, or the value of a key.
    pub(crate) async fn read(&self, name: &str, key: &[u8], args: &[&[u8]]) -> Result<Value, EngineError> {
        self.command(name, key, args).await
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// Fields of the book looked at in one step of tidying.
const TIDIED_AT_ONCE: usize = 96;
/// Bytes of an estimator's id.
const ESTIMATOR_BYTES: usize = 8;

pub(crate) fn member(reserve: &Reserve) -> Vec<u8> {
    keys::member(reserve.id, reserve.attempt, reserve.legs.iter().map(|leg| &leg.account))
}

/// Life, profile, legs.
fn long_form(reserve: &Reserve) -> (u64, (u64, u64), pack::LegRows) {
    let profile = (exact(reserve.profile.ttft), exact(reserve.profile.pace));
    (exact(reserve.life), profile, pack::legs(&reserve.legs))
}

/// As `settle.lua` reads them.
fn claim_args(
    claim: Claim,
    how: u8,
    actual: &[u64],
    landed: u64,
    learn: Option<u64>,
    has_entry: bool,
    is_stale: bool,
) -> Vec<u8> {
    let mut args = keys::claim(claim.id.0, claim.attempt);
    args.push(how);
    args.extend(double(landed));
    args.extend(learn.map_or_else(|| (-1.0_f64).to_le_bytes(), double));
    args.extend([u8::from(has_entry), u8::from(is_stale)]);
    for amount in actual {
        args.extend(double(*amount));
    }
    args
}

fn admitted(call: &ReserveCall, epoch: u64, now: u64, legs: Vec<LegReceipt>) -> Verdict {
    let receipt = LedgerReceipt { id: call.reserve.id, attempt: call.reserve.attempt, now, legs };
    Verdict::Admit(Receipt { shard: call.shard, epoch, receipt })
}

fn verdict(mut items: Items, call: &ReserveCall, epoch: u64) -> Result<Verdict, Odd> {
    let reserve = &call.reserve;
    Ok(match items.text()?.as_str() {
        "admit" => {
            let now = items.number()?;
            let mut accounts = reserve.legs.iter().map(|leg| leg.account);
            let legs = items.each(|items| reply::leg_receipt(items, accounts.next().ok_or(Odd("leg"))?))?;
            admitted(call, epoch, now, legs)
        }
        "ended" => Verdict::Ended(reply::end(items.number()?)?),
        "conflict" => Verdict::Conflict(items.index()?),
        "recalendar" => Verdict::Recalendar,
        "deny" => {
            let (denial, due) = reply::denial(&mut items, call.shard)?;
            Verdict::Deny { denial, due }
        }
        _ => return Err(Odd("verdict")),
    })
}

fn balance(mut items: Items, account: AccountId) -> Result<Option<Balance>, Odd> {
    if items.is_empty() {
        return Ok(None);
    }
    let code = items.number()?;
    let measure = u8::try_from(code).ok().and_then(|code| value_of(&MEASURES, code));
    let (kind, p1, p2, p3) = (items.number()?, items.number()?, items.number()?, items.number()?);
    let small = |number| u8::try_from(number).map_err(|_| Odd("shape"));
    let shape = match kind {
        1 => {
            let weights = [Weights::Whole, Weights::Oldest, Weights::Decay];
            let weights = weights.get(usize::from(small(p3)?)).ok_or(Odd("weights"))?;
            Shape::Rate { buckets: small(p1)?, width: p2, weights: *weights }
        }
        2 => Shape::Forecast { window: small(p1)?, strict: p2 == 1 },
        3 => Shape::Quota,
        4 => Shape::Concurrency,
        _ => return Err(Odd("shape")),
    };
    let standing = Standing {
        period: items.number()?,
        posted: items.signed()?,
        held: items.signed()?,
        reset: items.span()?,
    };
    Ok(Some(Balance {
        account,
        measure: measure.unwrap_or(Measure::Requests),
        shape,
        standing,
        live_holds: items.number()?,
        shadow_denied: items.number()?,
        shadow_demand: items.number()?,
        version: items.number()?,
    }))
}

pub(crate) fn check_amounts(actual: &[u64]) -> Result<(), EngineError> {
    match actual.iter().position(|amount| exact(*amount) != *amount) {
        Some(leg) => Err(Refusal::Amount(leg).into()),
        None => Ok(()),
    }
}

pub(crate) fn check_entry(entry: Option<&[u8]>) -> Result<(), EngineError> {
    match entry {
        Some(entry) if entry.len() > ENTRY_MAX => Err(EngineError::not_applied(ErrorKind::EntryTooLong)),
        _ => Ok(()),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(exact(number)).unwrap_or(i64::MAX)
}

/// A cursor holds a stream's milliseconds and its number within them.
fn stream_id(cursor: Cursor) -> String {
    format!("{}-{}", cursor.0 >> SEQ_BITS, cursor.0 & ((1 << SEQ_BITS) - 1))
}

/// Bits of a cursor for the number within a millisecond.
pub(crate) const SEQ_BITS: u32 = 20;

/// What a script itself refused, by its message; else trouble on the way.
fn trouble(error: LinkError) -> EngineError {
    // Redis adds which script and line it was.
    let plain = |text: &str| text.split(" script: ").next().unwrap_or_default().trim().to_owned();
    let told = |mark: &str| error.message.split_once(mark).map(|(_, rest)| plain(rest));
    if let Some(rest) = told("TB-LOST") {
        let loss = match rest.as_str() {
            "tail" => Loss::Tail,
            "rebuilding" => Loss::Rebuilding,
            _ => Loss::All,
        };
        return EngineError::not_applied(ErrorKind::Lost(loss));
    }
    if let Some(rest) = told("TB-DAMAGED") {
        return EngineError::not_applied(ErrorKind::Damaged(rest));
    }
    let Some(rest) = told("TB-REFUSED") else {
        let kind = match error.kind {
            Kind::Deadline => ErrorKind::Deadline,
            Kind::Script => ErrorKind::Damaged(error.message),
            _ => ErrorKind::Away(error.to_string()),
        };
        return EngineError { kind, applied: error.applied };
    };
    let mut words = rest.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let index = words.next().and_then(|index| index.parse().ok()).unwrap_or(0);
    let refusal = match kind {
        "shape" => Refusal::Shape(index),
        "actual_count" => Refusal::ActualCount,
        "attempt" => Refusal::Attempt,
        "no_such_quota" => Refusal::NoSuchQuota,
        _ => return EngineError::not_applied(ErrorKind::Damaged(format!("the script refused: {rest}"))),
    };
    refusal.into()
}

/// A verb polled on the engine's runtime, whatever thread waits for it.
struct Inside<'a, F: ?Sized> {
    runtime: &'a Handle,
    verb: Pin<Box<F>>,
}

impl<F: Future + ?Sized> Future for Inside<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _inside = self.runtime.enter();
        self.verb.as_mut().poll(context)
    }
}

/// The answers of several calls as one, in order; the latest time.
async fn all<T>(
    answers: impl IntoIterator<Item = impl Future<Output = Result<Reply<T>, EngineError>>>,
) -> Result<Reply<Vec<T>>, EngineError> {
    let answers = try_join_all(answers).await?;
    let (epoch, now) = answers.iter().map(|reply| (reply.epoch, reply.now)).max().unwrap_or_default();
    Ok(Reply { epoch, now, value: answers.into_iter().map(|reply| reply.value).collect() })
}

impl Engine for RedisEngine {
    fn reserve<'a>(&'a self, call: &'a ReserveCall) -> Answer<'a, Verdict> {
        self.on(self.reserve_call(call))
    }

    fn rebook<'a>(&'a self, call: &'a RebookCall) -> Answer<'a, Verdict> {
        self.on(self.rebook_call(call))
    }

    fn renew<'a>(&'a self, calls: &'a [RenewCall]) -> Answer<'a, Vec<Renewed>> {
        self.on(all(calls.iter().map(|call| self.renew_call(call))))
    }

    fn progress<'a>(&'a self, call: &'a ProgressCall) -> Answer<'a, ()> {
        self.on(self.progress_call(call))
    }

    fn settle<'a>(&'a self, call: &'a SettleCall) -> Answer<'a, Settled> {
        self.on(self.settle_call(call, Guard::Whole))
    }

    fn release<'a>(&'a self, call: &'a ReleaseCall) -> Answer<'a, Settled> {
        self.on(self.release_call(call, Guard::Whole))
    }

    fn expire<'a>(&'a self, calls: &'a [ExpireCall]) -> Answer<'a, Vec<Expired>> {
        self.on(all(calls.iter().map(|call| self.expire_call(call.claim, None))))
    }

    fn expire_now<'a>(&'a self, call: &'a ExpireNow) -> Answer<'a, Expired> {
        self.on(self.expire_call(call.claim, Some(&call.entry)))
    }

    fn restore<'a>(&'a self, call: &'a RestoreCall) -> Answer<'a, ()> {
        self.on(self.restore_call(call))
    }

    fn adjust<'a>(&'a self, call: &'a AdjustCall) -> Answer<'a, bool> {
        self.on(self.adjust_call(call))
    }

    fn balances<'a>(&'a self, shard: Shard, accounts: &'a [AccountId]) -> Answer<'a, Vec<Option<Balance>>> {
        self.on(self.balances_call(shard, accounts))
    }

    fn demands<'a>(&'a self, shard: Shard, legs: &'a [Leg]) -> Answer<'a, Vec<u64>> {
        self.on(self.demands_call(shard, legs))
    }

    fn due(&self, shard: Shard, max: usize) -> Answer<'_, Vec<DueHold>> {
        self.on(self.due_call(shard, max))
    }

    fn shards(&self) -> Vec<Shard> {
        self.shards.clone()
    }

    fn inspect<'a>(&'a self, shard: Shard, what: &'a Inspection) -> Answer<'a, String> {
        self.on(self.inspect_call(shard, what))
    }

    fn live(&self, shard: Shard, id: tollbook_engine::ledger::ReservationId) -> Answer<'_, Vec<LiveHold>> {
        self.on(crate::survey::of_reservation(self, shard, id))
    }

    fn survey(&self, shard: Shard, max: usize) -> Answer<'_, Survey> {
        self.on(crate::survey::survey(self, shard, max))
    }

    fn drift(&self, shard: Shard, cursor: u64, max: usize) -> Answer<'_, Drift> {
        self.on(self.drift_call(shard, cursor, max))
    }

    fn repair<'a>(&'a self, call: &'a Repair) -> Answer<'a, bool> {
        self.on(self.repair_call(call))
    }

    fn journal_read(&self, shard: Shard, after: Cursor, max: usize) -> Answer<'_, Vec<JournalRecord>> {
        self.on(self.journal_read_call(shard, after, max))
    }

    fn journal_trim(&self, shard: Shard, upto: Cursor) -> Answer<'_, ()> {
        self.on(self.journal_trim_call(shard, upto))
    }

    fn takes(&self, shard: Shard) -> Answer<'_, ()> {
        self.on(self.takes_call(shard))
    }

    fn flush(&self) -> Answer<'_, ()> {
        self.on(self.stamped_unguarded(Shard(0), ()))
    }
}
