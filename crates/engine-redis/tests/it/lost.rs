//! A server that lost what it had: no verb is taken until the shard is whole again, and then it is what it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollbook_engine::ledger::{AMOUNT_MAX, AccountId, End, Measure, Met, ReleaseWhy, ReservationId};
use tollbook_engine::{
    Applied, Balance, Claim, Cursor, Engine, EngineError, ErrorKind, Loss, PeriodSum, Receipt, Recovery,
    ReleaseCall, RenewCall, ReserveCall, RestoreCall, RestoredState, SettleCall, Verdict,
};
use tollbook_engine_redis::{Link, Options, RedisEngine};
use tollbook_engine_suite::legs::{
    D, L, M, R, S, SHARD, START, account, call, daily, lifetime, rpm, slots, tpm,
};
use tollbook_engine_suite::random::Random;
use tollbook_engine_suite::wait;
use tollbook_redis_world::{Plan, Server, wait_for};

const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) server: Server,
    runtime: tokio::runtime::Runtime,
    pub(crate) now: Arc<AtomicU64>,
}

impl World {
    pub(crate) fn start() -> Self {
        let server = Plan::redis().line("appendonly yes").line("appendfsync no").start();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { server, runtime, now: Arc::new(AtomicU64::new(START)) }
    }

    /// A gateway's engine on the book of a prefix.
    pub(crate) fn gateway(&self, prefix: &str) -> RedisEngine {
        let _inside = self.runtime.enter();
        let mut options = Options::parse(&self.server.url()).unwrap();
        options.deadline = ANSWERS_WITHIN;
        let now = Arc::clone(&self.now);
        let clock = Arc::new(move || now.load(Ordering::Acquire));
        let engine =
            RedisEngine::with_clock(Link::open(&options).unwrap(), prefix, vec![SHARD], clock).guarded();
        self.answers(&engine);
        engine
    }

    fn answers(&self, engine: &RedisEngine) {
        let answer = || wait(engine.state(SHARD)).ok();
        assert!(wait_for(ANSWERS_WITHIN, answer).is_some(), "{}", self.server.log());
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    pub(crate) fn advance(&self, by: u64) {
        self.now.fetch_add(by, Ordering::AcqRel);
    }

    /// All keys of a prefix become those of another, which loses its own.
    fn copy(&self, from: &str, to: &str) {
        let text = "for _, key in ipairs(redis.call('KEYS', ARGV[2] .. ':*')) do redis.call('DEL', key) end
            for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do
              redis.call('COPY', key, ARGV[2] .. string.sub(key, #ARGV[1] + 1))
            end return redis.status_reply('OK')";
        self.server.ask(&["EVAL", text, "0", from, to]);
    }

    fn forget(&self, prefix: &str) {
        self.copy("nothing", prefix);
    }
}

fn loss<T: std::fmt::Debug>(answer: Result<T, EngineError>) -> Loss {
    match answer {
        Err(EngineError { kind: ErrorKind::Lost(loss), applied: Applied::No }) => loss,
        other => panic!("not lost: {other:?}"),
    }
}

pub(crate) fn reserve(engine: &RedisEngine, call: &ReserveCall) -> Result<Verdict, EngineError> {
    wait(engine.reserve(call)).map(|reply| reply.value)
}

/// Begins a rebuild of the shard as it is.
pub(crate) fn begins(engine: &RedisEngine, epoch: u64, clear: bool) -> bool {
    let known = wait(engine.state(SHARD)).unwrap().value;
    wait(engine.begin(SHARD, epoch, clear, known)).unwrap().value
}

/// The shard is made whole by somebody who knows it all.
pub(crate) fn open(engine: &RedisEngine, epoch: u64, clear: bool) {
    engine.expect(SHARD, epoch);
    assert!(begins(engine, epoch, clear));
    assert!(wait(engine.open(SHARD, epoch)).unwrap().value);
}

#[test]
fn a_shard_is_lost_until_it_is_opened() {
    let world = World::start();
    let engine = world.gateway("tb");
    let ask = call(1, [tpm("k:tpm", 100, 10)]).at(world.now());
    assert_eq!(loss(reserve(&engine, &ask)), Loss::All);
    let state = wait(engine.state(SHARD)).unwrap().value;
    assert_eq!((state.epoch, state.same_server, state.closed, state.seen), (0, false, false, 0));
    assert!(begins(&engine, 1, false));
    engine.expect(SHARD, 1);
    assert_eq!(loss(reserve(&engine, &ask)), Loss::Rebuilding);
    assert_eq!(loss(wait(engine.due(SHARD, 1))), Loss::Rebuilding);
    assert_eq!(loss(wait(engine.takes(SHARD))), Loss::Rebuilding);
    assert!(wait(engine.open(SHARD, 1)).unwrap().value);
    assert!(matches!(reserve(&engine, &ask), Ok(Verdict::Admit(_))));
    wait(engine.takes(SHARD)).unwrap();
    let state = wait(engine.state(SHARD)).unwrap().value;
    assert_eq!((state.epoch, state.same_server, state.closed, state.seen), (1, true, false, world.now()));
    // One that knew nothing yet learns the epoch by the way.
    let other = world.gateway("tb");
    assert!(matches!(reserve(&other, &ask), Ok(Verdict::Admit(_))));
    assert_eq!(other.epoch(SHARD), 1);
}

#[test]
fn a_server_that_starts_again_may_have_lost_its_tail() {
    let mut world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 1, false);
    let ask = call(1, [tpm("k:tpm", 100, 10)]).at(world.now());
    assert!(matches!(reserve(&engine, &ask), Ok(Verdict::Admit(_))));
    world.server.restart();
    world.answers(&engine);
    assert_eq!(loss(reserve(&engine, &ask)), Loss::Tail);
    assert!(!wait(engine.state(SHARD)).unwrap().value.same_server);
    open(&engine, 2, false);
    assert!(matches!(reserve(&engine, &ask), Ok(Verdict::Admit(_))));
    assert_eq!(balance(&engine, account("k:tpm")).unwrap().standing.held, 10, "nothing was lost");
}

#[test]
fn an_empty_server_is_never_nothing_spent() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 1, false);
    let legs = || [daily("k:day", Measure::Tokens, 100, 90)];
    let Ok(Verdict::Admit(receipt)) = reserve(&engine, &call(1, legs()).at(world.now())) else {
        panic!("admitted")
    };
    assert_eq!(settle(&engine, &receipt, &[90]), Met::Held);
    world.server.ask(&["FLUSHALL"]);
    for id in 2..50 {
        assert_eq!(loss(reserve(&engine, &call(id, legs()).at(world.now()))), Loss::All);
    }
    let second = |engine: &RedisEngine| loss(wait(engine.settle(&settle_call(&receipt, &[90]))));
    assert_eq!(second(&engine), Loss::All);
    // An older epoch is as good as none.
    assert!(begins(&engine, 2, true));
    assert!(wait(engine.open(SHARD, 2)).unwrap().value);
    engine.expect(SHARD, 3);
    assert_eq!(second(&engine), Loss::All);
}

#[test]
fn steps_of_a_rebuild_that_come_late_change_nothing() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 5, false);
    let ask = call(1, [daily("k:day", Measure::Tokens, 100, 90)]).at(world.now());
    assert!(matches!(reserve(&engine, &ask), Ok(Verdict::Admit(_))));
    let sum = PeriodSum {
        account: account("k:day"),
        measure: Measure::Tokens,
        period: START / S,
        end: (START + D) / S,
        posted: 70,
    };
    let before = world.server.ask(&["DUMP", "tb:{7}:b"]);
    assert!(!begins(&engine, 4, true), "an older one");
    assert!(!wait(engine.open(SHARD, 4)).unwrap().value);
    assert!(!wait(engine.post(SHARD, 4, &[sum])).unwrap().value);
    assert!(!wait(engine.post(SHARD, 5, &[sum])).unwrap().value, "it is open");
    assert!(begins(&engine, 5, true), "a repeat");
    assert_eq!(world.server.ask(&["DUMP", "tb:{7}:b"]), before);
    assert_eq!(balance(&engine, account("k:day")).unwrap().standing.held, 90);
    // A newer one begins, and its sums are what is posted, however often.
    assert!(begins(&engine, 6, true));
    engine.expect(SHARD, 6);
    for _ in 0..2 {
        assert!(wait(engine.post(SHARD, 6, &[sum])).unwrap().value);
    }
    assert!(wait(engine.post(SHARD, 6, &[])).unwrap().value);
    assert!(!wait(engine.post(SHARD, 5, &[])).unwrap().value);
    assert!(!wait(engine.open(SHARD, 5)).unwrap().value);
    assert!(wait(engine.open(SHARD, 6)).unwrap().value);
    let balance = balance(&engine, account("k:day")).unwrap();
    assert_eq!((balance.standing.posted, balance.standing.held), (70, 0));
}

/// A part was lost when it was judged, more of it when the rebuild begins: what is restored then would be too little.
#[test]
fn a_shard_that_lost_more_since_it_was_judged_is_judged_anew() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 3, false);
    let ask = |id| call(id, [tpm("k:tpm", 100, 10)]).at(world.now());
    assert!(matches!(reserve(&engine, &ask(1)), Ok(Verdict::Admit(_))));
    world.copy("tb", "replica");
    world.advance(S);
    assert!(matches!(reserve(&engine, &ask(2)), Ok(Verdict::Admit(_))));
    let judged = wait(engine.state(SHARD)).unwrap().value;
    let begin = |clear| wait(engine.begin(SHARD, 4, clear, judged)).unwrap().value;
    world.copy("replica", "tb");
    assert!(!begin(false), "its last second is gone");
    world.forget("tb");
    assert!(!begin(false), "everything is gone");
    assert_eq!(wait(engine.state(SHARD)).unwrap().value.epoch, 0);
    assert!(begin(true), "nothing is missed where all is restored");
    assert!(begin(false), "a repeat");
}

/// Who comes first keeps the book; a server that is emptied forgets it.
#[test]
fn a_book_is_kept_by_one_fleet() {
    let world = World::start();
    let (engine, other) = (world.gateway("tb"), world.gateway("tb"));
    let ours = |engine: &RedisEngine, fleet| wait(engine.belongs(fleet)).unwrap().value;
    assert!(ours(&engine, u64::MAX) && ours(&other, u64::MAX));
    assert!(!ours(&other, 1) && !ours(&engine, 0));
    assert_eq!(world.server.ask(&["GET", "tb:owner"]).text(), "ffffffffffffffff");
    assert!(ours(&world.gateway("others"), 1), "another book");
    world.server.ask(&["FLUSHALL"]);
    assert!(ours(&other, 1) && !ours(&engine, u64::MAX));
}

#[test]
fn a_rebuild_begun_on_a_server_that_is_gone_begins_anew() {
    let mut world = World::start();
    let engine = world.gateway("tb");
    assert!(begins(&engine, 1, false));
    world.server.restart();
    world.answers(&engine);
    assert!(!begins(&engine, 1, false));
    assert!(!wait(engine.open(SHARD, 1)).unwrap().value);
    open(&engine, 2, false);
    wait(engine.takes(SHARD)).unwrap();
}

pub(crate) fn balance(engine: &RedisEngine, account: AccountId) -> Option<Balance> {
    wait(engine.balances(SHARD, &[account])).unwrap().value[0]
}

fn settle_call(receipt: &Receipt, actual: &[u64]) -> SettleCall {
    SettleCall {
        claim: receipt.claim(),
        accounts: receipt.receipt.legs.iter().map(|leg| leg.account).collect(),
        actual: actual.to_vec(),
        landed: 0,
        learn: None,
        entry: b"entry".to_vec(),
        age: 0,
    }
}

pub(crate) fn settle(engine: &RedisEngine, receipt: &Receipt, actual: &[u64]) -> Met {
    wait(engine.settle(&settle_call(receipt, actual))).unwrap().value.before
}

// --- a book that is lost and rebuilt is like its twin that was not ---

const ACCOUNTS: [&str; 7] = ["k:rpm", "k:tpm", "p:tpm", "t:day", "t:dayr", "t:life", "k:slots"];

/// Longer than every window of them.
const WINDOWS: u64 = 80 * S;

/// Legs of a random call, over few accounts.
fn legs(random: &mut Random) -> Vec<L> {
    let demand = 1 + random.below(50);
    let all: [L; 7] = [
        rpm("k:rpm", 1_000),
        tpm("k:tpm", 100_000, demand),
        tpm("p:tpm", 100_000, demand).window(7, 10 * S),
        daily("t:day", Measure::Tokens, 100_000, demand),
        daily("t:dayr", Measure::Requests, 1_000, 1),
        lifetime("t:life", 1_000_000, demand * 3),
        slots("k:slots", 1_000),
    ];
    let mut legs: Vec<L> = all.into_iter().filter(|_| random.one_in(2)).collect();
    if legs.is_empty() {
        legs.push(slots("k:slots", 1_000));
    }
    legs
}

/// What a gateway keeps of one call.
#[derive(Clone)]
struct Voucher {
    asked: ReserveCall,
    receipt: Receipt,
    state: RestoredState,
    /// When it ended.
    ended: u64,
}

impl Voucher {
    fn restore(&self, now: u64) -> RestoreCall {
        let mut state = self.state.clone();
        if let RestoredState::Ended { age, .. } = &mut state {
            *age = now - self.ended;
        }
        let age = now - self.receipt.receipt.now;
        RestoreCall { asked: self.asked.clone(), receipt: self.receipt.clone(), age, state }
    }

    fn is_held(&self) -> bool {
        matches!(self.state, RestoredState::Held { .. })
    }
}

/// Random calls on two books at once.
struct Twins {
    world: World,
    whole: RedisEngine,
    lost: RedisEngine,
    random: Random,
    vouchers: Vec<Voucher>,
    next: u128,
}

impl Twins {
    fn start(seed: u64) -> Self {
        let world = World::start();
        let (whole, lost) = (world.gateway("whole"), world.gateway("lost"));
        open(&whole, 1, false);
        open(&lost, 1, false);
        Self { world, whole, lost, random: Random::new(seed), vouchers: Vec::new(), next: 1 }
    }

    fn both<T: PartialEq + std::fmt::Debug>(&self, verb: impl Fn(&RedisEngine) -> T) -> T {
        let answer = verb(&self.whole);
        assert_eq!(verb(&self.lost), answer);
        answer
    }

    fn step(&mut self) {
        self.world.advance(self.random.below(3 * S));
        let open: Vec<usize> = (0..self.vouchers.len()).filter(|at| self.vouchers[*at].is_held()).collect();
        if open.is_empty() || self.random.one_in(2) {
            return self.begin();
        }
        let at = open[usize::try_from(self.random.below(open.len() as u64)).unwrap()];
        if self.random.one_in(4) { self.renew(at) } else { self.end(at) }
    }

    fn begin(&mut self) {
        let legs = legs(&mut self.random);
        let plain = R { legs, ..call(self.next, []) };
        self.next += 1;
        let asked = plain.life(10 * M).at(self.world.now());
        let verdict = self.both(|engine| match reserve(engine, &asked).unwrap() {
            Verdict::Admit(receipt) => receipt.receipt,
            other => panic!("{other:?}"),
        });
        let receipt = Receipt { shard: SHARD, epoch: 1, receipt: verdict };
        let state = RestoredState::Held { sent: false };
        self.vouchers.push(Voucher { asked, receipt, state, ended: 0 });
    }

    fn renew(&mut self, at: usize) {
        let claim = self.vouchers[at].receipt.claim();
        let renewal = RenewCall {
            claim,
            subjects: Vec::new(),
            sent: true,
            life: 10 * M,
            output_expected: None,
            outgrown: None,
        };
        self.both(|engine| wait(engine.renew(std::slice::from_ref(&renewal))).unwrap().value);
        self.vouchers[at].state = RestoredState::Held { sent: true };
    }

    fn end(&mut self, at: usize) {
        let (receipt, asked) = (self.vouchers[at].receipt.clone(), self.vouchers[at].asked.clone());
        let requests = |leg: usize| asked.reserve.legs[leg].measure == Measure::Requests;
        let counted = |leg: usize| asked.reserve.legs[leg].measure != Measure::Concurrency;
        let used: Vec<u64> = (0..receipt.receipt.legs.len())
            .map(|leg| if requests(leg) { 1 } else { u64::from(counted(leg)) * self.random.below(60) })
            .collect();
        let (how, posted, has_entry) = if self.random.one_in(4) {
            let why = if self.random.one_in(2) { ReleaseWhy::NeverSent } else { ReleaseWhy::Failed };
            let call = ReleaseCall {
                claim: receipt.claim(),
                accounts: receipt.receipt.legs.iter().map(|leg| leg.account).collect(),
                why,
                entry: (why == ReleaseWhy::Failed).then(|| b"entry".to_vec()),
            };
            self.both(|engine| wait(engine.release(&call)).unwrap().value);
            let kept = |leg: usize| u64::from(requests(leg) && why == ReleaseWhy::Failed);
            (End::Released, (0..used.len()).map(kept).collect(), why == ReleaseWhy::Failed)
        } else {
            self.both(|engine| settle(engine, &receipt, &used));
            (End::Settled, used, true)
        };
        let entry = has_entry.then(|| b"entry".to_vec());
        let state = RestoredState::Ended { how, posted: Some(posted), landed: 0, age: 0, entry };
        let ended = self.world.now();
        self.vouchers[at] = Voucher { asked, receipt, state, ended };
    }

    fn restore(&self, vouchers: &[Voucher]) {
        for voucher in vouchers {
            let call = voucher.restore(self.world.now());
            for _ in 0..2 {
                wait(self.lost.restore(&call)).unwrap();
            }
        }
    }

    fn are_alike(&self) {
        for name in ACCOUNTS {
            let told = |engine: &RedisEngine| {
                let told = balance(engine, account(name));
                told.map(|told| (told.measure, told.standing.posted, told.standing.held, told.live_holds))
            };
            let (whole, lost) = (told(&self.whole), told(&self.lost));
            let zero =
                |told: Option<(Measure, i64, i64, u64)>| told.is_none_or(|t| (t.1, t.2, t.3) == (0, 0, 0));
            assert!(whole == lost || zero(whole) && zero(lost), "{name}: {whole:?}, rebuilt {lost:?}");
        }
        assert_eq!(wait(self.lost.drift(SHARD, 0, 100)).unwrap().value.differences, []);
    }

    /// Every call comes to its end, in both books.
    fn ends(&mut self) {
        for at in 0..self.vouchers.len() {
            if self.vouchers[at].is_held() {
                self.end(at);
            }
        }
        self.are_alike();
        assert!(
            ACCOUNTS.iter().all(|name| {
                balance(&self.lost, account(name)).is_none_or(|told| told.standing.held == 0)
            })
        );
    }
}

#[test]
fn what_everything_was_lost_of_is_restored_from_vouchers() {
    for seed in 1..=6 {
        let mut twins = Twins::start(seed);
        for round in 0..60 {
            twins.step();
            if round % 20 == 13 {
                let epoch = 2 + round;
                twins.world.forget("lost");
                twins.lost.expect(SHARD, epoch);
                assert!(begins(&twins.lost, epoch, true));
                twins.restore(&twins.vouchers);
                assert!(wait(twins.lost.open(SHARD, epoch)).unwrap().value);
                twins.are_alike();
            }
        }
        twins.ends();
    }
}

#[test]
fn a_tail_that_was_lost_is_restored_from_vouchers() {
    for seed in 11..=16 {
        let mut twins = Twins::start(seed);
        for round in 0..90_u64 {
            twins.step();
            // The copy is what a replica has.
            if round % 30 == 10 {
                twins.world.copy("lost", "replica");
            }
            if round % 30 == 20 {
                let epoch = 2 + round;
                twins.world.copy("replica", "lost");
                twins.lost.expect(SHARD, epoch);
                assert!(begins(&twins.lost, epoch, false));
                twins.restore(&twins.vouchers);
                assert!(wait(twins.lost.open(SHARD, epoch)).unwrap().value);
                twins.are_alike();
                // An end that was lost is posted to the bucket in which it is restored, so it leaves its window later.
                twins.world.advance(WINDOWS);
                twins.are_alike();
            }
        }
        twins.ends();
    }
}

/// With sums from the journal, an ended call whose entry is in them restores no amounts; its entry is written once.
#[test]
fn sums_and_vouchers_together_are_the_whole() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 1, false);
    let mut vouchers = Vec::new();
    for id in 1..=4 {
        let asked = call(id, [daily("k:day", Measure::Tokens, 1_000, 100)]).life(10 * M).at(world.now());
        let Ok(Verdict::Admit(receipt)) = reserve(&engine, &asked) else { panic!("admitted") };
        let state = RestoredState::Held { sent: true };
        vouchers.push(Voucher { asked, receipt, state, ended: 0 });
    }
    // Of four calls one is in the journal, one has ended and is not, two are under way.
    for (at, posted) in [(0, None), (1, Some(vec![40]))] {
        assert_eq!(settle(&engine, &vouchers[at].receipt, &[40]), Met::Held);
        let entry = posted.is_some().then(|| b"the entry".to_vec());
        let (how, ended) = (End::Settled, world.now());
        vouchers[at].state = RestoredState::Ended { how, posted, landed: 0, age: 0, entry };
        vouchers[at].ended = ended;
    }
    world.server.ask(&["FLUSHALL"]);
    assert!(begins(&engine, 2, true));
    engine.expect(SHARD, 2);
    let (period, end) = (START / S, (START + D) / S);
    let sum = PeriodSum { account: account("k:day"), measure: Measure::Tokens, period, end, posted: 40 };
    assert!(wait(engine.post(SHARD, 2, &[sum])).unwrap().value);
    world.advance(S);
    for voucher in vouchers.iter().chain(&vouchers) {
        wait(engine.restore(&voucher.restore(world.now()))).unwrap();
    }
    assert!(wait(engine.open(SHARD, 2)).unwrap().value);
    let found = balance(&engine, account("k:day")).unwrap();
    assert_eq!((found.standing.posted, found.standing.held, found.live_holds), (80, 200, 2));
    let records = wait(engine.journal_read(SHARD, Cursor(0), 100)).unwrap().value;
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!((records[0].id, records[0].body.as_slice()), (ReservationId(2), &b"the entry"[..]));
    // Repeats get the first answer, ended ones say so.
    assert!(matches!(reserve(&engine, &vouchers[0].asked), Ok(Verdict::Ended(End::Settled))));
    assert!(matches!(reserve(&engine, &vouchers[2].asked), Ok(Verdict::Admit(_))));
    assert_eq!(settle(&engine, &vouchers[0].receipt, &[1]), Met::Ended(End::Settled));
    assert_eq!(settle(&engine, &vouchers[2].receipt, &[100]), Met::Held);
}

#[test]
fn a_voucher_that_is_none_is_refused() {
    let world = World::start();
    let engine = world.gateway("tb");
    open(&engine, 1, false);
    let asked = call(1, [tpm("k:tpm", 100, 10)]).at(world.now());
    let Ok(Verdict::Admit(receipt)) = reserve(&engine, &asked) else { panic!("admitted") };
    let ended = |posted: Vec<u64>| RestoredState::Ended {
        how: End::Settled,
        posted: Some(posted),
        landed: 0,
        age: 0,
        entry: None,
    };
    let restore = |receipt: &Receipt, state| {
        let call = RestoreCall { asked: asked.clone(), receipt: receipt.clone(), age: 0, state };
        wait(engine.restore(&call)).map(|reply| reply.value)
    };
    let refused =
        |answer| matches!(answer, Err(EngineError { kind: ErrorKind::Refused(_), applied: Applied::No }));
    assert!(refused(restore(&receipt, ended(vec![1, 2]))), "more amounts than legs");
    assert!(refused(restore(&receipt, ended(vec![AMOUNT_MAX + 1]))), "an amount that is none");
    let mut other = receipt.clone();
    other.receipt.legs[0].account = account("k:other");
    assert!(refused(restore(&other, ended(vec![1]))), "another account");
    let mut other = receipt.clone();
    other.receipt.id = ReservationId(9);
    assert!(refused(restore(&other, ended(vec![1]))), "another call");
    let claim = Claim { shard: SHARD, ..receipt.claim() };
    assert_eq!(claim, receipt.claim());
}
