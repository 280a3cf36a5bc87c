//! Random commands against the engine and, in lockstep, against a bare book. Every answer must be equal.
//!
//! Beside the model an auditor keeps books of its own from the answers alone: held is the sum of what admitted calls
//! hold, a quota is the sum of its journal entries and of the requests of live calls, and nothing was admitted above a
//! ceiling. A failure names the seed.

use std::collections::{BTreeMap, BTreeSet};

use tollbook_engine::ledger;
use tollbook_engine::ledger::{
    AccountId, Adjust, Book, EstimatorKind, Event, ExpireOne, Full, Growth, Log, Measure, Met, Micros,
    Profile, Progress, Rebook, Release, ReleaseWhy, Renew, Renewed, ReservationId, Settle, Shape,
    Verdict as BookVerdict,
};
use tollbook_engine::{
    AdjustCall, Claim, EngineError, ErrorKind, ExpireCall, ProgressCall, RebookCall, Receipt, ReleaseCall,
    RenewCall, ReserveCall, SettleCall, Source, Verdict,
};

use crate::harness::{Factory, Harness, wait};
use crate::legs::{D, H, L, M, MS, R, S, SHARD, START, account, daily, forecast, lifetime, rpm, slots, tpm};
use crate::random::Random;
use crate::table::{journal, no_drift};

/// The model keeps no log.
struct Nowhere;

impl Log for Nowhere {
    fn append(&mut self, _event: &Event<'_>) -> Result<(), Full> {
        Ok(())
    }
}

const NAMES: [&str; 11] =
    ["t:plan", "k:plan", "t:rpm", "t:tpm", "t:cost", "p:rpm", "p:tpm", "k:rpm", "k:slots", "k:day", "k:life"];

/// Steps of one run.
const STEPS: usize = 250;

pub fn random_commands_answer_as_the_model_does(factory: Factory) {
    for seed in 0..seeds(24) {
        Run::new(factory, seed, false).all();
    }
}

pub fn random_commands_with_kills_answer_as_the_model_does(factory: Factory) {
    for seed in 0..seeds(12) {
        Run::new(factory, 1_000_000 + seed, true).all();
    }
}

/// Output of every settle that landed.
const LANDED: u64 = 25;

/// Calls of one id stream alike.
fn profile(id: u128) -> Profile {
    let id = u64::try_from(id).expect("small ids");
    Profile { ttft: id % 5 * 400_000, pace: 1 + id % 7 * 60_000 }
}

/// For servers that take long: a few seeds, with kills.
pub fn a_short_run_answers_as_the_model_does(factory: Factory) {
    for seed in 0..seeds(2) {
        Run::new(factory, 2_000_000 + seed, true).all();
    }
}

/// Calls as nearly all are: new ones, few repeats, no estimator that has to sort; ends of what is under way.
pub fn usual_commands_answer_as_the_model_does(factory: Factory) {
    for seed in 0..seeds(4) {
        Run { usual: true, ..Run::new(factory, 3_000_000 + seed, false) }.all();
    }
}

/// More seeds for a long run: `TOLLBOOK_SEEDS`.
fn seeds(usual: u64) -> u64 {
    std::env::var("TOLLBOOK_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

struct Run {
    seed: u64,
    random: Random,
    harness: Box<dyn Harness>,
    model: Book,
    kills: bool,
    usual: bool,
    receipts: BTreeMap<(u128, u16), Receipt>,
    auditor: Auditor,
    step: usize,
}

/// Account, place, and what is held there.
type Audited = (AccountId, u64, i64);

/// Books kept from answers alone.
#[derive(Default)]
struct Auditor {
    /// What each live reservation holds, per leg.
    held: BTreeMap<(u128, u16), Vec<Audited>>,
    /// Requests that live calls have posted to quotas: (account, period) by reservation.
    at_door: BTreeMap<(u128, u16), Vec<(AccountId, u64)>>,
    /// Sums of the journal per (account, period).
    journal: BTreeMap<(AccountId, u64), i64>,
    entries: BTreeSet<(u128, u16, u16, Micros)>,
}

impl Run {
    fn new(factory: Factory, seed: u64, kills: bool) -> Self {
        Self {
            seed,
            random: Random::new(seed),
            harness: factory(START + 23 * H),
            model: Book::new(),
            kills,
            usual: false,
            receipts: BTreeMap::new(),
            auditor: Auditor::default(),
            step: 0,
        }
    }

    fn all(mut self) {
        for step in 0..STEPS {
            self.step = step;
            self.pass_time();
            match self.random.below(18) {
                1..9 if self.usual => self.reserve(),
                9..16 if self.usual => self.settle(),
                0..5 => self.reserve(),
                5..8 => self.settle(),
                8 => self.release(),
                9 | 10 => self.renew(),
                11 => self.rebook(),
                12 => self.sweep(),
                13 => self.adjust(),
                16 | 17 => self.progress(),
                // What is forgotten when idle is missed only by a clock that steps back over it.
                14 if self.kills => self.forget(),
                _ => self.happen(),
            }
            self.compare();
        }
    }

    fn at(&self) -> String {
        format!("seed {}, step {}", self.seed, self.step)
    }

    fn pass_time(&mut self) {
        let spans = [0, 0, 0, 1, 300 * MS, S, 5 * S, 16 * S, M, 3 * M];
        let span = *self.random.of(&spans);
        self.harness.advance(span);
        if self.random.one_in(120) {
            self.harness.advance(31 * M);
        }
        if self.random.one_in(150) {
            self.harness.advance(D);
        }
    }

    /// Lets both forget what is past: what was forgotten cannot be given back.
    fn forget(&mut self) {
        self.harness.tick();
        let now = self.harness.now();
        self.model.prune(now, 1000, &mut Nowhere).expect("the model forgets");
    }

    /// What happens to the engine from outside.
    fn happen(&mut self) {
        if self.kills {
            if self.random.one_in(2) {
                self.harness.kill();
            } else {
                self.harness.restart();
            }
        } else if self.random.one_in(4) {
            let by = *self.random.of(&[S, 30 * S, 10 * M]);
            if self.harness.step_back(by) {
                // Time that went back is noticed by the next event; let both notice it now.
                let id = u128::from(self.random.draw()) | 1 << 90;
                let call = R {
                    id,
                    attempt: 1,
                    life: S,
                    legs: vec![slots("k:other", 1000)],
                    context: Vec::new(),
                    profile: Profile::default(),
                };
                self.reserve_with(&call.at(self.harness.now()));
            }
        }
    }

    fn leg(&mut self, name: &str) -> L {
        let demand = 1 + self.random.below(60);
        let leg = match name {
            "t:rpm" => rpm(name, 30),
            "p:rpm" => rpm(name, 12).window(7, 10 * S).refunds_failed(),
            "k:rpm" => rpm(name, 5).shadow(),
            "t:tpm" => tpm(name, 800, demand).output(100).learning("k:m", 40),
            "p:tpm" => tpm(name, 300, demand).output(200).also(250).counts_denied(),
            "t:plan" => {
                forecast(name, 900).demand(demand).output(150).learns(EstimatorKind::Forecast, "k:f", 50)
            }
            "k:plan" => {
                let kind = if self.usual { EstimatorKind::Forecast } else { EstimatorKind::P95 };
                forecast(name, 400).demand(demand).output(90).learns(kind, "k:p", 30).also(350)
            }
            "t:cost" => daily(name, Measure::Cost, 2000, demand).output(50).expecting(20),
            "k:day" => daily(name, Measure::Requests, 60, 1).refunds_failed(),
            "k:life" => lifetime(name, 3000, demand).holds_expected().output(300).expecting(30).releases(),
            _ => slots(name, 6),
        };
        // A renewed wish for the same call must not change it.
        leg
    }

    fn call(&mut self) -> R {
        let mut legs: Vec<L> = Vec::new();
        for name in NAMES {
            if self.random.one_in(3) {
                legs.push(self.leg(name));
            }
        }
        if legs.is_empty() {
            legs.push(self.leg("t:tpm"));
        }
        let id = if self.usual { self.step as u128 } else { u128::from(self.random.below(60)) };
        let life = *self.random.of(&[5 * S, 15 * S, M]);
        R { id, attempt: 1, life, legs, context: id.to_le_bytes().to_vec(), profile: profile(id) }
    }

    /// Some reservation that was admitted once, or one that never was.
    fn known(&mut self) -> Option<Receipt> {
        let wanted = |key: &(u128, u16)| !self.usual || self.auditor.held.contains_key(key);
        let receipts: Vec<_> =
            self.receipts.iter().filter(|(key, _)| wanted(key)).map(|(_, receipt)| receipt.clone()).collect();
        if receipts.is_empty() { None } else { Some(self.random.of(&receipts).clone()) }
    }

    fn reserve(&mut self) {
        let call = self.call().at(self.harness.now());
        self.reserve_with(&call);
        if self.random.one_in(if self.usual { 30 } else { 4 }) {
            self.reserve_with(&call);
        }
    }

    fn reserve_with(&mut self, call: &ReserveCall) {
        let got = wait(self.harness.engine().reserve(call));
        let now = got.as_ref().map_or(self.harness.now(), |reply| reply.now);
        let want = self.model.reserve(now, &call.reserve, &mut Nowhere);
        self.verdict(got.map(|reply| reply.value), want, true);
    }

    /// Compares; `decided`: an admission was decided against every ceiling now.
    fn verdict(
        &mut self,
        got: Result<Verdict, EngineError>,
        want: Result<BookVerdict, ledger::Refusal>,
        decided: bool,
    ) {
        let at = self.at();
        match (got, want) {
            (Ok(Verdict::Admit(got)), Ok(BookVerdict::Admit(want))) => {
                assert_eq!(got.receipt, want, "{at}");
                self.admitted(got, decided);
            }
            (Ok(Verdict::Deny { denial, .. }), Ok(BookVerdict::Deny(want))) => {
                assert_eq!(promised(denial), promised(want), "{at}");
            }
            (Ok(Verdict::Ended(got)), Ok(BookVerdict::Ended(want))) => assert_eq!(got, want, "{at}"),
            (Ok(Verdict::Conflict(got)), Ok(BookVerdict::Conflict(want))) => assert_eq!(got, want, "{at}"),
            (Ok(Verdict::Recalendar), Ok(BookVerdict::Recalendar)) => {}
            (got, want) => same_refusal(&at, got, want),
        }
    }

    fn admitted(&mut self, receipt: Receipt, decided: bool) {
        let key = (receipt.receipt.id.0, receipt.receipt.attempt);
        let is_new = !self.auditor.held.contains_key(&key);
        if is_new && decided {
            for leg in receipt.receipt.legs.iter().filter(|leg| leg.account != account("k:rpm")) {
                let total = leg.posted + leg.held_total;
                assert!(total <= leg.ceiling.cast_signed(), "{}: above a ceiling: {leg:?}", self.at());
            }
        }
        let held = receipt.receipt.legs.iter().map(|leg| (leg.account, leg.place, leg.held.cast_signed()));
        self.auditor.held.insert(key, held.collect());
        let days = receipt.receipt.legs.iter().filter(|leg| leg.account == account("k:day"));
        self.auditor.at_door.insert(key, days.map(|leg| (leg.account, leg.place)).collect());
        self.receipts.insert(key, receipt);
    }

    fn ended(&mut self, key: (u128, u16)) {
        self.auditor.held.remove(&key);
        self.auditor.at_door.remove(&key);
    }

    fn settle(&mut self) {
        let Some(receipt) = self.known() else { return };
        let actual: Vec<u64> = receipt.receipt.legs.iter().map(|_| self.random.below(90)).collect();
        let learn = self.random.one_in(2).then(|| self.random.below(120));
        let accounts = receipt.receipt.legs.iter().map(|leg| leg.account).collect();
        let age = if self.random.one_in(20) { 26 * M } else { 0 };
        let claim = receipt.claim();
        let call = SettleCall {
            claim,
            accounts,
            actual: actual.clone(),
            landed: LANDED,
            learn,
            entry: b"settle".to_vec(),
            age,
        };
        let repeats = if self.random.one_in(4) { 2 } else { 1 };
        for _ in 0..repeats {
            let got = wait(self.harness.engine().settle(&call)).map(|reply| (reply.now, reply.value));
            if age > 0 {
                assert_eq!(got.expect("settle answers").1.before, Met::Unknown, "{}", self.at());
                continue;
            }
            let now = got.as_ref().map_or(self.harness.now(), |(now, _)| *now);
            let command = Settle {
                id: claim.id,
                attempt: claim.attempt,
                actual: actual.clone(),
                landed: LANDED,
                learn,
            };
            let want = self.model.settle(now, &command, &mut Nowhere);
            self.settled(claim, got.map(|(_, value)| value), want);
        }
    }

    fn settled(
        &mut self,
        claim: Claim,
        got: Result<ledger::Settled, EngineError>,
        want: Result<ledger::Settled, ledger::Refusal>,
    ) {
        let at = self.at();
        match (got, want) {
            (Ok(got), Ok(want)) if want.before == Met::Unknown => {
                assert_eq!(got.before, Met::Unknown, "{at}");
            }
            (Ok(got), Ok(want)) => {
                assert_eq!(got, want, "{at}");
                if got.before == Met::Held {
                    self.ended((claim.id.0, claim.attempt));
                }
            }
            (got, want) => same_refusal(&at, got, want),
        }
    }

    fn release(&mut self) {
        let Some(receipt) = self.known() else { return };
        let why = *self.random.of(&[ReleaseWhy::NeverSent, ReleaseWhy::Failed]);
        let claim = receipt.claim();
        let entry = (why == ReleaseWhy::Failed).then(|| b"failed".to_vec());
        let accounts = receipt.receipt.legs.iter().map(|leg| leg.account).collect();
        let call = ReleaseCall { claim, accounts, why, entry };
        let got = wait(self.harness.engine().release(&call)).map(|reply| (reply.now, reply.value));
        let now = got.as_ref().map_or(self.harness.now(), |(now, _)| *now);
        let command = Release { id: claim.id, attempt: claim.attempt, why };
        let want = self.model.release(now, &command, &mut Nowhere);
        self.settled(claim, got.map(|(_, value)| value), want);
    }

    /// What some gateway says of its streams, now and then twice, or older than before.
    fn progress(&mut self) {
        let now = self.harness.now();
        let batch = |random: &mut Random| Progress {
            gateway: random.below(3),
            account: account(["t:plan", "k:plan", "t:tpm"][usize::try_from(random.below(3)).expect("small")]),
            seq: random.below(200),
            base_second: (now / S).saturating_sub(random.below(10)),
            deltas: (0..random.below(20)).map(|_| random.below(60).cast_signed() - 30).collect(),
        };
        let batches: Vec<Progress> = (0..=self.random.below(3)).map(|_| batch(&mut self.random)).collect();
        let call = ProgressCall { shard: SHARD, batches };
        let reply = wait(self.harness.engine().progress(&call)).expect("progress answers");
        self.model.progress(reply.now, &call.batches, &mut Nowhere).expect("the model progresses");
    }

    fn renew(&mut self) {
        let Some(receipt) = self.known() else { return };
        let output = self.random.one_in(2).then(|| self.random.below(250));
        let claim = receipt.claim();
        let sent = !self.random.one_in(4);
        let outgrown = self.random.one_in(3).then(|| self.random.below(400));
        let subjects = receipt.subjects();
        let call = RenewCall { claim, subjects, sent, life: M, output_expected: output, outgrown };
        let reply = wait(self.harness.engine().renew(std::slice::from_ref(&call))).expect("renew answers");
        let growth = output.map_or(Growth::Unchanged, Growth::Output);
        let command = Renew { id: claim.id, attempt: claim.attempt, life: M, sent, growth, outgrown };
        let want = self.model.renew(reply.now, &command, &mut Nowhere).expect("the model renews");
        assert_eq!(reply.value, std::slice::from_ref(&want), "{}", self.at());
        let key = (claim.id.0, claim.attempt);
        if let (Renewed::Held(held), Some(audited)) = (&want, self.auditor.held.get_mut(&key)) {
            for ((_, _, audited), held) in audited.iter_mut().zip(held) {
                *audited = held.cast_signed();
            }
        }
        if matches!(want, Renewed::Short(_)) {
            // Which soft legs grew is not told; ask for the same again without growth.
            let again = RenewCall { output_expected: None, outgrown: None, ..call };
            let reply = wait(self.harness.engine().renew(&[again])).expect("renew answers");
            let command = Renew { growth: Growth::Unchanged, outgrown: None, ..command };
            let want = self.model.renew(reply.now, &command, &mut Nowhere).expect("the model renews");
            assert_eq!(reply.value, std::slice::from_ref(&want), "{}", self.at());
            if let (Renewed::Held(held), Some(audited)) = (want, self.auditor.held.get_mut(&key)) {
                for ((_, _, audited), held) in audited.iter_mut().zip(held) {
                    *audited = held.cast_signed();
                }
            }
        }
    }

    fn rebook(&mut self) {
        let Some(receipt) = self.known() else { return };
        let old = &receipt.receipt;
        let mut next = self.call();
        next.id = old.id.0;
        next.attempt = old.attempt + 1;
        let actual: Option<Vec<u64>> =
            self.random.one_in(2).then(|| old.legs.iter().map(|_| self.random.below(60)).collect());
        let next = next.at(self.harness.now());
        let call = RebookCall {
            receipt: receipt.clone(),
            actual: actual.clone(),
            landed: 0,
            entry: Some(b"rebooked".to_vec()),
            next: next.clone(),
        };
        let got = wait(self.harness.engine().rebook(&call));
        let now = got.as_ref().map_or(self.harness.now(), |reply| reply.now);
        let command = Rebook { ended: old.attempt, actual, landed: 0, reserve: next.reserve };
        match self.model.rebook(now, &command, &mut Nowhere) {
            Ok((verdict, settled)) => {
                let moved = settled.is_some_and(|settled| settled.before == Met::Held);
                if moved && matches!(verdict, BookVerdict::Admit(_)) {
                    self.ended((old.id.0, old.attempt));
                }
                // Requests that were posted for the ended attempt are not decided again.
                self.verdict(got.map(|reply| reply.value), Ok(verdict), false);
            }
            Err(refusal) => self.verdict(got.map(|reply| reply.value), Err(refusal), false),
        }
    }

    fn sweep(&mut self) {
        for shard in self.harness.engine().shards() {
            let reply = wait(self.harness.engine().due(shard, 100)).expect("due answers");
            for due in reply.value {
                let call = ExpireCall { claim: due.claim, subjects: due.subjects };
                let reply = wait(self.harness.engine().expire(&[call])).expect("expire answers");
                let command = ExpireOne { id: due.claim.id, attempt: due.claim.attempt };
                let want = self.model.expire(reply.now, &command, &mut Nowhere).expect("the model expires");
                assert_eq!(reply.value, [want], "{}", self.at());
                self.ended((due.claim.id.0, due.claim.attempt));
            }
        }
        let now = self.harness.now();
        assert_eq!(self.model.due(now, 10), [], "{}: the model has more due", self.at());
    }

    fn adjust(&mut self) {
        let day = self.harness.now() / D * (D / S);
        let id = u128::from(self.random.below(40)) | 1 << 100;
        let delta = 20 - i64::try_from(self.random.below(40)).expect("small");
        let adjust = Adjust { id, account: account("t:cost"), period: day, delta, opening: None };
        let call = AdjustCall { shard: SHARD, adjust, entry: b"adjust".to_vec() };
        let got = wait(self.harness.engine().adjust(&call));
        let now = got.as_ref().map_or(self.harness.now(), |reply| reply.now);
        let want = self.model.adjust(now, &adjust, &mut Nowhere);
        match (got.map(|reply| reply.value), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{}", self.at()),
            (got, want) => same_refusal(&self.at(), got, want),
        }
    }

    /// Balances, drift, and the auditor's books.
    fn compare(&mut self) {
        let at = self.at();
        let accounts: Vec<_> = NAMES.iter().map(|name| account(name)).collect();
        let reply = wait(self.harness.engine().balances(SHARD, &accounts)).expect("balances answer");
        for record in journal(&*self.harness) {
            // Ids come again once their end has been forgotten; the admission tells their lives apart.
            let key = (record.id.0, record.attempt, record.seq, record.admitted);
            let first = self.auditor.entries.insert(key);
            let may_repeat = matches!(record.source, Source::Unbooked | Source::Adjusted);
            assert!(first || may_repeat, "{at}: {key:?} was journaled twice");
            for posted in record.posted {
                *self.auditor.journal.entry((posted.account, posted.period)).or_default() += posted.amount;
            }
        }
        for ((name, account), got) in NAMES.iter().zip(&accounts).zip(&reply.value) {
            let at = format!("{at}, {name}");
            let want = self.model.balance(reply.now, *account);
            let figures = want.map(|want| (want.posted, want.held, want.reset)).unwrap_or_default();
            let period = want.and_then(|want| want.period).map_or(0, |(start, _)| start);
            let standing = got.map(|got| got.standing);
            let got_figures = standing.map(|got| (got.posted, got.held, got.reset)).unwrap_or_default();
            assert_eq!(got_figures, figures, "{at}");
            if let (Some(want), Some(standing)) = (want, standing) {
                self.audit(&at, *account, want.shape, want.period.is_some(), period, standing);
            }
        }
        no_drift(&*self.harness, &at);
    }

    fn audit(
        &self,
        at: &str,
        account: AccountId,
        shape: Shape,
        has_period: bool,
        period: u64,
        standing: tollbook_engine::Standing,
    ) {
        let is_quota = shape == Shape::Quota;
        // What is planned is no hold; receipts have shown it equal to the model's.
        if (is_quota && !has_period) || matches!(shape, Shape::Forecast { .. }) {
            return;
        }
        let legs = self.auditor.held.values().flatten();
        let held: i64 = legs
            .filter(|(of, place, _)| *of == account && (!is_quota || *place == period))
            .map(|(_, _, held)| held)
            .sum();
        assert_eq!(standing.held, held, "{at}: held is what admitted calls hold");
        if is_quota {
            let doors = self.auditor.at_door.values().flatten();
            let door = doors.filter(|(of, place)| *of == account && *place == period).count();
            let journal = self.auditor.journal.get(&(account, period)).copied().unwrap_or(0);
            let door = i64::try_from(door).expect("small");
            assert_eq!(standing.posted, journal + door, "{at}: a quota is the sum of its entries");
        }
    }
}

/// A denial without its guess: how long holds last on average may be forgotten with an idle account.
fn promised(mut denial: ledger::Denial) -> ledger::Denial {
    if let ledger::DenyKind::Busy(hint) = &mut denial.binding.kind
        && !hint.firm
    {
        hint.after = 0;
    }
    // Due holds of one second come in any order.
    denial.due.sort_unstable();
    denial
}

/// Both refused, for the same reason.
fn same_refusal<T: std::fmt::Debug, U: std::fmt::Debug>(
    at: &str,
    got: Result<T, EngineError>,
    want: Result<U, ledger::Refusal>,
) {
    match (got, want) {
        (Err(EngineError { kind: ErrorKind::Refused(got), .. }), Err(want)) => assert_eq!(got, want, "{at}"),
        (got, want) => panic!("{at}: the engine says {got:?}, the model {want:?}"),
    }
}

/// Denied firmly: denied until the promised instant, admitted then.
pub fn l14_firm_hints_are_kept(factory: Factory) {
    let mut kept = 0;
    for seed in 0..seeds(200) {
        let mut random = Random::new(5_000_000 + seed);
        let harness = factory(START);
        let width = *random.of(&[S, 10 * S]);
        let buckets = u8::try_from(2 + random.below(20)).expect("small");
        let weights = *random.of(&[ledger::Weights::Whole, ledger::Weights::Oldest, ledger::Weights::Decay]);
        let leg = |demand: u64| tpm("k:tpm", 100, demand).window(buckets, width).weights(weights);
        let reserve = |id: u128, demand: u64| {
            let legs = vec![leg(demand)];
            let call = R { id, attempt: 1, life: D, legs, context: Vec::new(), profile: Profile::default() }
                .at(harness.now());
            wait(harness.engine().reserve(&call)).expect("reserve answers").value
        };
        for id in 0..30_u128 {
            let demand = 1 + random.below(60);
            if let Verdict::Admit(receipt) = reserve(id, demand) {
                if random.one_in(10) {
                    continue;
                }
                let call = SettleCall {
                    claim: receipt.claim(),
                    accounts: vec![account("k:tpm")],
                    actual: vec![random.below(80)],
                    landed: 0,
                    learn: None,
                    entry: Vec::new(),
                    age: 0,
                };
                wait(harness.engine().settle(&call)).expect("settle answers");
            }
            harness.advance(random.below(2 * width));
        }
        let demand = 1 + random.below(60);
        let Verdict::Deny { denial, .. } = reserve(99, demand) else { continue };
        let ledger::DenyKind::Busy(hint) = denial.binding.kind else { continue };
        if !hint.firm {
            continue;
        }
        kept += 1;
        let again = |step: Micros| {
            harness.advance(step);
            matches!(reserve(99, demand), Verdict::Admit(_))
        };
        if hint.after > width {
            assert!(
                !again(hint.after - width - 1),
                "seed {seed}: admitted more than a bucket early: {denial:?}"
            );
            assert!(again(width + 1), "seed {seed}: not admitted when promised: {denial:?}");
        } else {
            assert!(again(hint.after), "seed {seed}: not admitted when promised: {denial:?}");
        }
    }
    assert!(kept > 20, "only {kept} firm hints were tried");
}

/// Identity is (id, attempt); a name is no more than that.
pub fn ids_are_used_in_full(factory: Factory) {
    let harness = factory(START);
    let call = |id: u128| R {
        id,
        attempt: 1,
        life: M,
        legs: vec![tpm("k:tpm", 1000, 1)],
        context: Vec::new(),
        profile: Profile::default(),
    };
    let far = [1, 1 << 64, 1 << 127, (1 << 64) | 1];
    for id in far {
        let call = call(id).at(harness.now());
        let verdict = wait(harness.engine().reserve(&call)).expect("reserve answers").value;
        let Verdict::Admit(receipt) = verdict else { panic!("{verdict:?}") };
        assert_eq!(receipt.receipt.id, ReservationId(id));
    }
    let balances =
        wait(harness.engine().balances(SHARD, &[account("k:tpm")])).expect("balances answer").value;
    assert_eq!(balances[0].expect("the account exists").standing.held, 4);
}
