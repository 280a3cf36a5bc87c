//! The auditor: books of its own, kept from what callers asked and what the engine answered.
//!
//! It never asks the code under test for a sum. It works every verb out by the rules, from lists of postings, of live
//! holds and of the seconds of forecast accounts, compares the answer, writes the effect into its own books, and compares the balances with those.
//! Where engine time has stepped back, lives and memory are known within bounds; an answer outside of them is wrong.
//! A difference is told as a sentence; the run ends there.

mod books;
mod decide;
mod ends;
mod journal;
mod progress;
mod seconds;
mod verdicts;
mod window;

use std::collections::BTreeMap;

use tollbook_engine::ledger::units::REMEMBER;
use tollbook_engine::ledger::{AccountId, EstimatorId, Met, Micros, Reserve, Shape};
use tollbook_engine::{Balance, Claim, EngineError, ErrorKind, Shard};
use tollbook_engine_suite::random::Random;

use books::{Account, Ended, Live, Mean, Place, Sides, until};
use journal::Journal;

use books::Key;

use crate::clock::{Age, Moment};
use crate::stats::Stats;

/// A difference between the engine and the books, in words.
pub(crate) type Checked = Result<(), String>;

/// Books over all shards of an engine.
#[derive(Debug)]
pub(crate) struct Auditor {
    accounts: BTreeMap<Place, Account>,
    lives: BTreeMap<Key, Live>,
    ended: BTreeMap<Key, Ended>,
    means: BTreeMap<(u8, EstimatorId), Mean>,
    adjusts: BTreeMap<(u8, u128), Moment>,
    pub(crate) journal: Journal,
    pub(crate) stats: Stats,
    /// Accounts that a denied call named and nobody else: they must not be there (L1).
    never_opened: Vec<Place>,
    /// Where the clock stands, brought up to date before every verb.
    moment: Moment,
    /// Engine time has stepped back in this run, so windows may show again what had left them.
    stepped_back: bool,
}

/// What is known of a reservation.
enum Known<'a> {
    Live(&'a Live),
    /// It must be remembered.
    Ended(&'a Ended),
    /// It may have been forgotten.
    Fading(&'a Ended),
    Unknown,
}

macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}
use ensure;

impl Auditor {
    pub(crate) fn new() -> Self {
        Self {
            accounts: BTreeMap::new(),
            lives: BTreeMap::new(),
            ended: BTreeMap::new(),
            means: BTreeMap::new(),
            adjusts: BTreeMap::new(),
            journal: Journal::default(),
            stats: Stats::default(),
            never_opened: Vec::new(),
            moment: Moment::default(),
            stepped_back: false,
        }
    }

    /// Tells where the clock stands.
    pub(crate) fn at(&mut self, moment: Moment) {
        self.stepped_back |= moment.is_behind();
        self.moment = moment;
        self.never_opened.clear();
    }

    /// Some reservation that is live.
    pub(crate) fn any_live(&self, random: &mut Random) -> Option<Claim> {
        let live: Vec<&Key> = self.lives.keys().collect();
        let key = if live.is_empty() { return None } else { random.of(&live) };
        Some(Claim { shard: Shard(key.shard), id: key.id, attempt: key.attempt })
    }

    fn age(&self, since: Moment) -> Age {
        since.age(self.moment)
    }

    fn known(&self, key: Key) -> Known<'_> {
        if let Some(live) = self.lives.get(&key) {
            return Known::Live(live);
        }
        let Some(ended) = self.ended.get(&key) else { return Known::Unknown };
        let age = self.age(ended.at);
        if age.most < REMEMBER {
            Known::Ended(ended)
        } else if age.least < REMEMBER {
            Known::Fading(ended)
        } else {
            Known::Unknown
        }
    }

    /// A claim on a reservation that is not live: what it meets, if that is what the books allow.
    fn met(&self, key: Key, before: Met) -> Result<Option<&Ended>, String> {
        match (self.known(key), before) {
            (Known::Ended(ended) | Known::Fading(ended), Met::Ended(end)) if end == ended.end => {
                Ok(Some(ended))
            }
            (Known::Fading(_) | Known::Unknown, Met::Unknown) => Ok(None),
            (known, before) => {
                let known = match known {
                    Known::Live(_) => "it is live".to_owned(),
                    Known::Ended(ended) | Known::Fading(ended) => format!("it has ended as {:?}", ended.end),
                    Known::Unknown => "it is unknown".to_owned(),
                };
                Err(format!("a claim on {key:?} met {before:?}, and {known}"))
            }
        }
    }

    /// The accounts of a shard that the books know, to ask for their balances.
    pub(crate) fn accounts_of(&self, shard: u8) -> Vec<AccountId> {
        let all = self.accounts.keys().chain(&self.never_opened);
        all.filter(|(of, _)| *of == shard).map(|(_, account)| *account).collect()
    }

    /// Compares balances with the books (L10), and looks for accounts above their ceilings.
    pub(crate) fn balances(
        &mut self,
        now: Micros,
        shard: u8,
        asked: &[AccountId],
        got: &[Option<Balance>],
    ) -> Checked {
        ensure!(asked.len() == got.len(), "{} balances for {} accounts", got.len(), asked.len());
        for (id, got) in asked.iter().zip(got) {
            let Some(account) = self.accounts.get(&(shard, *id)) else {
                ensure!(got.is_none(), "an account was opened that no call was admitted to: {got:?}");
                continue;
            };
            let Some(got) = got else {
                self.closed(now, account)?;
                self.accounts.remove(&(shard, *id));
                continue;
            };
            balance(now, account, got)?;
            if !self.stepped_back {
                self.within_ceiling(now, *id, account)?;
            }
        }
        Ok(())
    }

    /// Only an account that nobody could tell from a new one may be forgotten.
    fn closed(&self, now: Micros, account: &Account) -> Checked {
        let is_clear = match &account.sides {
            Sides::Rate { window, held } => *held == 0 && window.is_clear(now),
            Sides::Concurrency { held } => *held == 0,
            Sides::Forecast(seconds) => !seconds.is_busy(now),
            Sides::Quota(_) => false,
        };
        let idle = self.age(account.used).most;
        ensure!(
            is_clear && account.live == 0 && idle >= tollbook_engine::ledger::units::IDLE,
            "an account in use was forgotten after {idle} us: {account:?}"
        );
        Ok(())
    }

    /// Above its ceiling is an account only by what nobody decided: overruns and growth that was not asked about.
    fn within_ceiling(&self, now: Micros, id: AccountId, account: &Account) -> Checked {
        // Streams are told of, not asked about: a plan that was too small lets its account pass.
        let Some(ceiling) = account.ceiling.filter(|ceiling| *ceiling > 0 && account.seconds().is_none())
        else {
            return Ok(());
        };
        let place = account.newest().map_or(0, |(start, _)| start);
        let total = account.posted(now, place) + account.held(now, place);
        if total <= ceiling.cast_signed() {
            return Ok(());
        }
        let posted = match &account.excused.window {
            Some(window) => window.posted(now).cast_signed(),
            None => account.excused.periods.get(&place).copied().unwrap_or(0),
        };
        let legs = self.lives.values().flat_map(|live| &live.legs);
        let forced: u64 = legs
            .filter(|leg| leg.account == id && (!account.is_quota() || leg.place == place))
            .map(|leg| leg.held.saturating_sub(leg.within_all))
            .sum();
        let excused = posted + forced.cast_signed();
        ensure!(
            total <= ceiling.cast_signed() + excused,
            "{id:?} stands at {total}, its ceiling is {ceiling}, and only {excused} came without being decided"
        );
        Ok(())
    }

    /// A verb that failed without a trace; a refusal of the command itself is the caller's fault or the engine's.
    pub(crate) fn refused(&mut self, error: &EngineError) -> Checked {
        match &error.kind {
            ErrorKind::Away(why) => {
                self.stats.journal_full += u64::from(why.contains("ended calls wait"));
                Ok(())
            }
            kind => Err(format!("the engine refused: {kind}")),
        }
    }

    /// After everything has ended: nothing is held, by anybody (L10).
    pub(crate) fn nothing_is_held(&self) -> Checked {
        ensure!(self.lives.is_empty(), "{} reservations never ended: {:?}", self.lives.len(), self.lives);
        let held = |account: &Account| match &account.sides {
            Sides::Rate { held, .. } | Sides::Concurrency { held } => *held,
            Sides::Forecast(_) => 0,
            Sides::Quota(periods) => periods.values().map(|period| period.held).sum(),
        };
        for (place, account) in &self.accounts {
            ensure!(held(account) == 0, "{place:?} holds {} with nobody there", held(account));
        }
        Ok(())
    }

    /// Every quota is the sum of its journal (section 12).
    pub(crate) fn quotas_are_their_journal(&self) -> Checked {
        let sums = self.journal.sums();
        for ((shard, id), account) in &self.accounts {
            let Sides::Quota(periods) = &account.sides else { continue };
            for (start, period) in periods {
                let sum = sums.get(&(*shard, *id, *start)).copied().unwrap_or(0);
                ensure!(
                    period.posted == sum,
                    "{id:?} of period {start} has {} posted, its journal says {sum}",
                    period.posted
                );
            }
        }
        Ok(())
    }
}

/// One balance against the books.
fn balance(now: Micros, account: &Account, got: &Balance) -> Checked {
    let standing = got.standing;
    let newest = account.newest().filter(|(_, period)| until(now, period.end) > 0);
    let place = newest.map_or(0, |(start, _)| start);
    let is_between = account.is_quota() && newest.is_none();
    let (posted, held, reset) = if is_between {
        (0, 0, 0)
    } else {
        let (posted, held) = account.figures(now, place);
        (posted, held, account.reset(now))
    };
    let want = (place, posted, held, reset);
    let is = (standing.period, standing.posted, standing.held, standing.reset);
    ensure!(is == want, "{:?} has (period, posted, held, reset) {is:?}, not {want:?}", got.account);
    let want = (account.measure, account.shape, account.live, account.shadow_denied, account.shadow_demand);
    let is = (got.measure, got.shape, got.live_holds, got.shadow_denied, got.shadow_demand);
    ensure!(is == want, "{:?} shows (.., live, shadow) {is:?}, not {want:?}", got.account);
    Ok(())
}

/// The account a leg of a reserve is about, opened if it is new.
fn open<'a>(
    accounts: &'a mut BTreeMap<Place, Account>,
    shard: u8,
    reserve: &Reserve,
    index: usize,
    moment: Moment,
) -> &'a mut Account {
    let leg = &reserve.legs[index];
    let shape: Shape = leg.shape;
    accounts.entry((shard, leg.account)).or_insert_with(|| Account::new(leg.measure, shape, moment))
}
