//! Scenarios as rows: a time, a verb, what it must answer.
//!
//! One driver runs every row. After each row it checks L10 over all shards, and that engine time is what the row says,
//! so a table can be read like a book of accounts.

use std::collections::BTreeMap;

use tollbook_engine::ledger::{
    self, Adjust, DenyKind, End, Expired, Measure, Met, Micros, Opening, Progress, Refusal, ReleaseWhy,
    Renewed, ReservationId,
};
use tollbook_engine::{
    AdjustCall, Applied, Claim, Cursor, EngineError, ErrorKind, ExpireCall, ExpireNow, JournalRecord,
    ProgressCall, RebookCall, Receipt, ReleaseCall, RenewCall, SettleCall, Source, Verdict,
};

use crate::harness::{Factory, Harness, wait};
use crate::legs::{R, S, SHARD, START, account};

/// A verb of a table.
#[derive(Clone, Debug)]
pub enum Do {
    Reserve(R),
    /// Ends the attempt before the given one, with what it used.
    Rebook(Option<Vec<u64>>, R),
    Renew {
        id: u128,
        sent: bool,
        output: Option<u64>,
    },
    Settle {
        id: u128,
        attempt: u16,
        actual: Vec<u64>,
        learn: Option<u64>,
        age: Micros,
    },
    /// A settle that tells how much of its amounts was output.
    SettleLanded {
        id: u128,
        actual: Vec<u64>,
        landed: u64,
        learn: Option<u64>,
    },
    /// A renewal that says what a stream is expected to reach.
    Outgrown(u128, u64),
    /// A batch of one gateway for one account; the first second counts from the start of the table.
    Progress {
        account: &'static str,
        gateway: u64,
        seq: u64,
        base: i64,
        deltas: Vec<i64>,
    },
    /// The output each leg of an admitted call was expected to have.
    Expected(u128),
    Release {
        id: u128,
        attempt: u16,
        why: ReleaseWhy,
    },
    Expire(u128),
    /// Expires one before it is due, because somebody says so.
    ExpireNow(u128),
    /// Expires everything that is due, in every shard.
    Sweep,
    Adjust {
        id: u128,
        account: &'static str,
        day: u64,
        delta: i64,
        opens: bool,
    },
    Balance(&'static str),
    /// Everything the journal holds; trims it.
    Journal,
    Tick,
    Restart,
    Kill,
    StepBack(Micros),
}

/// What a row must answer.
#[derive(Clone, Debug)]
pub enum Want {
    Admit,
    /// Admitted; what each leg holds.
    Holds(Vec<u64>),
    /// Expected output per leg.
    Outputs(Vec<u64>),
    /// Denied by the limit of a leg.
    TooLarge(usize),
    Exhausted(usize),
    Spent(usize, Micros),
    /// Denied for now; a firm wait.
    Firm(usize, Micros),
    /// Denied for now; holds stand in the way.
    Likely(usize),
    Ended(End),
    Conflict(usize),
    Recalendar,
    /// A settle or release and the state it met.
    Met(Met),
    /// A settle that ended the hold, with the overrun per leg.
    Overruns(Vec<u64>),
    Renewed(Vec<u64>),
    Short(Vec<usize>),
    RenewEnded(End),
    RenewUnknown,
    Expired,
    NotDue,
    Swept(usize),
    Applied(bool),
    /// Posted and held.
    Is(i64, i64),
    /// Posted, held, and what shadow limits would have denied: calls and demand.
    Shadow(i64, i64, u64, u64),
    NoAccount,
    /// (id, attempt, seq, source, sum posted to quotas).
    Entries(Vec<(u128, u16, u16, Source, i64)>),
    EntriesInAnyOrder(Vec<(u128, u16, u16, Source, i64)>),
    Refused(Refusal),
    Nothing,
}

/// A row: microseconds since the start of the table, the verb, the answer.
pub type Row = (Micros, Do, Want);

pub fn renew(id: u128) -> Do {
    Do::Renew { id, sent: true, output: None }
}

/// A renewal of a call that has not left the gateway.
pub fn renew_at_door(id: u128) -> Do {
    Do::Renew { id, sent: false, output: None }
}

pub fn grow(id: u128, output: u64) -> Do {
    Do::Renew { id, sent: true, output: Some(output) }
}

pub fn settle<const N: usize>(id: u128, actual: [u64; N]) -> Do {
    Do::Settle { id, attempt: 1, actual: actual.into(), learn: None, age: 0 }
}

pub fn settle_attempt<const N: usize>(id: u128, attempt: u16, actual: [u64; N]) -> Do {
    Do::Settle { id, attempt, actual: actual.into(), learn: None, age: 0 }
}

/// A settle whose output the provider reported.
pub fn settle_learn<const N: usize>(id: u128, actual: [u64; N], output: u64) -> Do {
    Do::Settle { id, attempt: 1, actual: actual.into(), learn: Some(output), age: 0 }
}

/// A settle of a call that ended some time ago.
pub fn settle_old<const N: usize>(id: u128, actual: [u64; N], age: Micros) -> Do {
    Do::Settle { id, attempt: 1, actual: actual.into(), learn: None, age }
}

/// A settle of whose amounts so much was output.
pub fn settle_landed<const N: usize>(id: u128, actual: [u64; N], landed: u64) -> Do {
    Do::SettleLanded { id, actual: actual.into(), landed, learn: None }
}

impl Do {
    /// The provider reported the output.
    pub fn learning(self, output: u64) -> Self {
        match self {
            Self::SettleLanded { id, actual, landed, .. } => {
                Self::SettleLanded { id, actual, landed, learn: Some(output) }
            }
            other => panic!("{other:?} does not learn"),
        }
    }
}

pub fn never_sent(id: u128) -> Do {
    Do::Release { id, attempt: 1, why: ReleaseWhy::NeverSent }
}

pub fn failed(id: u128) -> Do {
    Do::Release { id, attempt: 1, why: ReleaseWhy::Failed }
}

pub fn adjust(id: u128, account: &'static str, delta: i64) -> Do {
    Do::Adjust { id, account, day: START / S, delta, opens: false }
}

/// Runs the rows of a table against a new engine.
pub fn check(factory: Factory, rows: Vec<Row>) {
    let mut table = Table { harness: factory(START), receipts: BTreeMap::new() };
    for (number, (at, verb, want)) in rows.into_iter().enumerate() {
        let at = START + at;
        let now = table.harness.now();
        if at > now {
            table.harness.advance(at - now);
        }
        let row = format!("row {}: at {} ms, {verb:?}", number + 1, (at - START) / 1000);
        table.run(&row, verb, &want);
        if table.harness.now() != at {
            // The rest of the table is written in the time that stepped back.
            assert!(table.harness.now() < at, "{row}: time ran ahead");
        }
        no_drift(&*table.harness, &row);
    }
}

/// L10: every held is the sum of its live holds.
pub fn no_drift(harness: &dyn Harness, context: &str) {
    for shard in harness.engine().shards() {
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let drift = wait(harness.engine().drift(shard, at, 64)).expect("drift answers").value;
            assert_eq!(drift.differences, [], "{context}: held is not the sum of live holds");
            assert_eq!(drift.unconfirmed, 0, "{context}: all can be compared");
            cursor = drift.next;
        }
    }
}

/// Everything the journal of every shard holds, then trimmed.
pub fn journal(harness: &dyn Harness) -> Vec<JournalRecord> {
    let mut all = Vec::new();
    for shard in harness.engine().shards() {
        let mut after = Cursor(0);
        loop {
            let batch =
                wait(harness.engine().journal_read(shard, after, 7)).expect("the journal reads").value;
            let Some(last) = batch.last() else { break };
            after = last.cursor;
            all.extend(batch);
        }
        wait(harness.engine().journal_trim(shard, after)).expect("the journal trims");
    }
    all
}

/// Expires everything that is due; how many.
pub fn sweep(harness: &dyn Harness) -> usize {
    let mut swept = 0;
    for shard in harness.engine().shards() {
        loop {
            let due = wait(harness.engine().due(shard, 16)).expect("due answers").value;
            if due.is_empty() {
                break;
            }
            let calls: Vec<_> =
                due.into_iter().map(|due| ExpireCall { claim: due.claim, subjects: due.subjects }).collect();
            let expired = wait(harness.engine().expire(&calls)).expect("expire answers").value;
            assert!(expired.iter().all(|one| matches!(one, Expired::Expired { .. })), "{expired:?}");
            swept += expired.len();
        }
    }
    swept
}

struct Table {
    harness: Box<dyn Harness>,
    receipts: BTreeMap<(u128, u16), Receipt>,
}

impl Table {
    fn run(&mut self, row: &str, verb: Do, want: &Want) {
        match verb {
            Do::Reserve(call) => {
                let call = call.at(self.harness.now());
                let answer = wait(self.harness.engine().reserve(&call));
                self.verdict(row, answer.map(|reply| reply.value), want);
            }
            Do::Rebook(actual, next) => {
                let ended = self.receipt(row, next.id, next.attempt - 1);
                let next = next.at(self.harness.now());
                let call =
                    RebookCall { receipt: ended, actual, landed: 0, entry: Some(b"rebooked".to_vec()), next };
                let answer = wait(self.harness.engine().rebook(&call));
                self.verdict(row, answer.map(|reply| reply.value), want);
            }
            Do::Renew { id, sent, output } => {
                let call = RenewCall {
                    claim: claim(id, 1),
                    subjects: self.subjects(id),
                    sent,
                    life: 60 * S,
                    output_expected: output,
                    outgrown: None,
                };
                let renewed = wait(self.harness.engine().renew(&[call])).expect(row).value.remove(0);
                match (&want, renewed) {
                    (Want::Renewed(held), Renewed::Held(got)) => assert_eq!(got, *held, "{row}"),
                    (Want::Short(legs), Renewed::Short(got)) => assert_eq!(got, *legs, "{row}"),
                    (Want::RenewEnded(end), Renewed::Ended(got)) => assert_eq!(got, *end, "{row}"),
                    (Want::RenewUnknown, Renewed::Unknown) => {}
                    (_, got) => panic!("{row}: {got:?}, not {want:?}"),
                }
            }
            Do::SettleLanded { id, actual, landed, learn } => {
                let (claim, accounts) = (claim(id, 1), self.accounts(id, 1));
                let entry = b"settled".to_vec();
                let call = SettleCall { claim, accounts, actual, landed, learn, entry, age: 0 };
                settled(row, wait(self.harness.engine().settle(&call)).map(|reply| reply.value), want);
            }
            Do::Outgrown(id, output) => {
                let claim = claim(id, 1);
                let (sent, life, outgrown) = (true, 60 * S, Some(output));
                let subjects = Vec::new();
                let call = RenewCall { claim, subjects, sent, life, output_expected: None, outgrown };
                let renewed = wait(self.harness.engine().renew(&[call])).expect(row).value.remove(0);
                let Want::Renewed(held) = want else { panic!("{row}: a renewal is wanted") };
                assert_eq!(renewed, Renewed::Held(held.clone()), "{row}");
            }
            Do::Progress { account: name, gateway, seq, base, deltas } => {
                let base_second = (START / S).saturating_add_signed(base);
                let batch = Progress { gateway, account: account(name), seq, base_second, deltas };
                let call = ProgressCall { shard: SHARD, batches: vec![batch] };
                wait(self.harness.engine().progress(&call)).expect(row);
            }
            Do::Expected(id) => {
                let receipt = self.receipt(row, id, 1);
                let outputs: Vec<u64> = receipt.receipt.legs.iter().map(|leg| leg.output).collect();
                let Want::Outputs(wanted) = want else { panic!("{row}: outputs are wanted") };
                assert_eq!(outputs, *wanted, "{row}");
            }
            Do::Settle { id, attempt, actual, learn, age } => {
                let claim = Claim { attempt, ..claim(id, 1) };
                let accounts = self.accounts(id, attempt);
                let call =
                    SettleCall { claim, accounts, actual, landed: 0, learn, entry: b"settled".to_vec(), age };
                settled(row, wait(self.harness.engine().settle(&call)).map(|reply| reply.value), want);
            }
            Do::Release { id, attempt, why } => {
                let claim = Claim { attempt, ..claim(id, 1) };
                let accounts = self.accounts(id, attempt);
                let entry = (why == ReleaseWhy::Failed).then(|| b"failed".to_vec());
                let call = ReleaseCall { claim, accounts, why, entry };
                settled(row, wait(self.harness.engine().release(&call)).map(|reply| reply.value), want);
            }
            Do::Expire(id) => {
                let call = ExpireCall { claim: claim(id, 1), subjects: Vec::new() };
                let expired = wait(self.harness.engine().expire(&[call])).expect(row).value.remove(0);
                is_expired(row, expired, want);
            }
            Do::ExpireNow(id) => {
                let call = ExpireNow { claim: claim(id, 1), entry: b"somebody says so".to_vec() };
                let expired = wait(self.harness.engine().expire_now(&call)).expect(row).value;
                is_expired(row, expired, want);
            }
            Do::Adjust { id, account: name, day, delta, opens } => {
                let opening = opens.then_some(Opening { measure: Measure::Cost, end: day + 86_400 });
                let adjust = Adjust { id, account: account(name), period: day, delta, opening };
                let call = AdjustCall { shard: SHARD, adjust, entry: b"adjusted".to_vec() };
                match (&want, wait(self.harness.engine().adjust(&call))) {
                    (Want::Applied(applied), Ok(got)) => assert_eq!(got.value, *applied, "{row}"),
                    (Want::Refused(refusal), Err(error)) => refused(row, &error, *refusal),
                    (_, got) => panic!("{row}: {got:?}, not {want:?}"),
                }
            }
            other => self.look(row, &other, want),
        }
    }

    /// Rows that only look, or that happen to the engine from outside.
    fn look(&mut self, row: &str, verb: &Do, want: &Want) {
        match (verb, want) {
            (Do::Sweep, Want::Swept(count)) => assert_eq!(sweep(&*self.harness), *count, "{row}"),
            (Do::Balance(name), _) => self.balance(row, name, want),
            (Do::Journal, Want::Entries(entries)) => assert_eq!(self.entries(), *entries, "{row}"),
            (Do::Journal, Want::EntriesInAnyOrder(entries)) => {
                let mut got = self.entries();
                got.sort_by_key(|(id, attempt, seq, ..)| (*id, *attempt, *seq));
                assert_eq!(got, *entries, "{row}");
            }
            (Do::Tick, _) => self.harness.tick(),
            (Do::Restart, _) => drop(self.harness.restart()),
            (Do::Kill, _) => drop(self.harness.kill()),
            (Do::StepBack(by), _) => {
                assert!(self.harness.step_back(*by), "{row}: this engine's time is fixed");
            }
            _ => panic!("{row}: the table expects {want:?}"),
        }
    }

    fn entries(&self) -> Vec<(u128, u16, u16, Source, i64)> {
        let sum = |record: &JournalRecord| record.posted.iter().map(|posted| posted.amount).sum();
        let entry =
            |record: &JournalRecord| (record.id.0, record.attempt, record.seq, record.source, sum(record));
        journal(&*self.harness).iter().map(entry).collect()
    }

    fn balance(&self, row: &str, name: &str, want: &Want) {
        let balances = wait(self.harness.engine().balances(SHARD, &[account(name)])).expect(row).value;
        let got = balances.first().copied().flatten();
        let got = got.map(|balance| {
            let (posted, held) = (balance.standing.posted, balance.standing.held);
            (posted, held, balance.shadow_denied, balance.shadow_demand)
        });
        match (want, got) {
            (Want::Is(posted, held), Some((got_posted, got_held, ..))) => {
                assert_eq!((got_posted, got_held), (*posted, *held), "{row}");
            }
            (Want::Shadow(posted, held, denied, demand), Some(got)) => {
                assert_eq!(got, (*posted, *held, *denied, *demand), "{row}");
            }
            (Want::NoAccount, None) => {}
            (_, got) => panic!("{row}: {got:?}, not {want:?}"),
        }
    }

    fn verdict(&mut self, row: &str, answer: Result<Verdict, EngineError>, want: &Want) {
        let verdict = match (answer, want) {
            (Ok(verdict), _) => verdict,
            (Err(error), Want::Refused(refusal)) => return refused(row, &error, *refusal),
            (Err(error), _) => panic!("{row}: {error}, not {want:?}"),
        };
        match (want, &verdict) {
            (Want::Admit, Verdict::Admit(_)) | (Want::Recalendar, Verdict::Recalendar) => {}
            (Want::Holds(held), Verdict::Admit(receipt)) => {
                let got: Vec<u64> = receipt.receipt.legs.iter().map(|leg| leg.held).collect();
                assert_eq!(got, *held, "{row}");
            }
            (Want::Ended(end), Verdict::Ended(got)) => assert_eq!(got, end, "{row}"),
            (Want::Conflict(leg), Verdict::Conflict(got)) => assert_eq!(got, leg, "{row}"),
            (_, Verdict::Deny { denial, .. }) => denied(row, denial, want),
            (_, got) => panic!("{row}: {got:?}, not {want:?}"),
        }
        if let Verdict::Admit(receipt) = verdict {
            self.receipts.insert((receipt.receipt.id.0, receipt.receipt.attempt), receipt);
        }
    }

    fn receipt(&self, row: &str, id: u128, attempt: u16) -> Receipt {
        self.receipts
            .get(&(id, attempt))
            .cloned()
            .unwrap_or_else(|| panic!("{row}: no receipt of that attempt"))
    }

    fn subjects(&self, id: u128) -> Vec<ledger::SubjectId> {
        self.receipts.get(&(id, 1)).map(Receipt::subjects).unwrap_or_default()
    }

    fn accounts(&self, id: u128, attempt: u16) -> Vec<ledger::AccountId> {
        let receipt = self.receipts.get(&(id, attempt));
        receipt
            .map(|receipt| receipt.receipt.legs.iter().map(|leg| leg.account).collect())
            .unwrap_or_default()
    }
}

fn claim(id: u128, attempt: u16) -> Claim {
    Claim { shard: SHARD, id: ReservationId(id), attempt }
}

fn denied(row: &str, denial: &ledger::Denial, want: &Want) {
    let binding = &denial.binding;
    let got = (binding.leg, binding.kind);
    match (want, got) {
        (Want::TooLarge(leg), (at, DenyKind::TooLarge))
        | (Want::Exhausted(leg), (at, DenyKind::Exhausted)) => {
            assert_eq!(at, *leg, "{row}");
            assert!(!denial.firm, "{row}: never is not a wait");
        }
        (Want::Spent(leg, after), (at, DenyKind::Spent(wait))) => {
            assert_eq!((at, wait.after, wait.firm), (*leg, *after, true), "{row}");
        }
        (Want::Firm(leg, after), (at, DenyKind::Busy(wait))) => {
            assert_eq!((at, wait.after, wait.firm), (*leg, *after, true), "{row}");
            assert!(denial.firm, "{row}: every blocked leg is firm");
        }
        (Want::Likely(leg), (at, DenyKind::Busy(wait))) => {
            assert_eq!((at, wait.firm, denial.firm), (*leg, false, false), "{row}");
            assert!(wait.after > 0, "{row}: a wait takes time");
        }
        _ => panic!("{row}: {denial:?}, not {want:?}"),
    }
}

fn is_expired(row: &str, expired: Expired, want: &Want) {
    match (want, expired) {
        (Want::Expired, Expired::Expired { .. }) | (Want::NotDue, Expired::NotDue) => {}
        (Want::Ended(end), Expired::Ended(got)) => assert_eq!(got, *end, "{row}"),
        (_, got) => panic!("{row}: {got:?}, not {want:?}"),
    }
}

fn settled(row: &str, answer: Result<ledger::Settled, EngineError>, want: &Want) {
    match (want, answer) {
        (Want::Met(met), Ok(got)) => assert_eq!(got.before, *met, "{row}"),
        (Want::Overruns(overrun), Ok(got)) => {
            assert_eq!((got.before, &got.overrun), (Met::Held, overrun), "{row}");
        }
        (Want::Refused(refusal), Err(error)) => refused(row, &error, *refusal),
        (_, got) => panic!("{row}: {got:?}, not {want:?}"),
    }
}

fn refused(row: &str, error: &EngineError, refusal: Refusal) {
    assert_eq!((&error.kind, error.applied), (&ErrorKind::Refused(refusal), Applied::No), "{row}");
}
