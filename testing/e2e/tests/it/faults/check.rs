//! What must be true once a fault is healed, judged by the provider's record, the journal and the clients' answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use tollbook_e2e::gateway::Account;
use tollbook_e2e::journal::{Entry, Journal};
use tollbook_e2e::load::{Job, Leaves, Outcome};
use tollbook_mock_upstream::{Ending, Recorded};

use super::world::{DEADLINE, Fault, IN_FLIGHT_MAX, LLM_TOKENS_MAX, RATE_MAX, REQUESTS_MAX};
use crate::kills::equals_the_record;

/// First try and repeat, of the tenant's reservation and of the pool's.
const TRIES: u32 = 4;
/// The provider's own time, and a machine that does other things too.
const MARGIN: Duration = Duration::from_secs(4);
/// A call whose end its gateway had not told the book yet may have been answered so long before a kill.
const UNTOLD: Duration = Duration::from_millis(1_000);

/// A call, and what its client saw.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) job: Job,
    pub(crate) tenant: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) gateway: usize,
}

/// A gateway that did not run, or stood still, as microseconds after the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gone {
    pub(crate) gateway: usize,
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) killed: bool,
}

/// Everything that is known after a run.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) fault: Fault,
    pub(crate) calls: Vec<Called>,
    pub(crate) provider: Vec<Recorded>,
    pub(crate) journal: Journal,
    pub(crate) accounts: Vec<Account>,
    pub(crate) gone: Vec<Gone>,
    /// From the fault to the first answers of all gateways after it was healed; microseconds after the start.
    pub(crate) trouble: (u64, u64),
    pub(crate) freed_after: Duration,
    /// Entries and reservations that the servers still have.
    pub(crate) left_over: (i64, i64),
    pub(crate) spooled: u64,
}

/// How many calls ended in which way.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    statuses: BTreeMap<String, usize>,
    pub(crate) served: usize,
    /// Of those: ended while the fault lasted.
    during: usize,
    pub(crate) refused_away: usize,
    settled: usize,
    /// Their hold was expired, and the truth came after it.
    late: usize,
    pub(crate) expired: usize,
    pub(crate) at_the_door: usize,
    longest: Duration,
}

fn span(from: u64, until: u64) -> Duration {
    Duration::from_micros(until.saturating_sub(from))
}

impl Story {
    pub(crate) fn judge(&self) -> Figures {
        let mut figures = Figures::default();
        for called in &self.calls {
            self.is_documented(called, &mut figures);
            self.did_not_hang(called, &mut figures);
        }
        self.journal_is_the_record(&mut figures);
        self.sums_are_kept();
        self.no_limit_was_passed(&figures);
        assert_eq!(self.left_over, (0, 0), "entries and reservations left with the servers");
        figures
    }

    /// Its gateway was killed while it was under way, or was not there.
    fn was_killed(&self, called: &Called, before: Duration) -> bool {
        let before = u64::try_from(before.as_micros()).unwrap();
        self.gone.iter().any(|gone| {
            gone.killed
                && gone.gateway == called.gateway
                && called.outcome.begun_us <= gone.until
                && called.outcome.ended_us.saturating_add(before) >= gone.from
        })
    }

    fn is_documented(&self, called: &Called, figures: &mut Figures) {
        let outcome = &called.outcome;
        let messages = called.job.path == "/v1/messages";
        let word = format!("{} {}", outcome.status, outcome.code);
        let left = called.job.leaves != Leaves::AtTheEnd;
        match (outcome.status, outcome.code.as_str()) {
            (200, "") if outcome.complete => figures.served += 1,
            (0 | 200, "") if left => figures.served += 1,
            (0 | 200, "") => {
                assert!(self.was_killed(called, Duration::ZERO), "broken off: {called:?}");
            }
            (429, "rate_limit_exceeded" | "insufficient_quota") if !messages => {}
            (429, "rate_limit_error") | (402, "billing_error") if messages => {}
            (503, code) => {
                let documented = if messages { "overloaded_error" } else { "ledger_unavailable" };
                assert_eq!(code, documented, "{called:?}");
                figures.refused_away += 1;
                let (from, until) = self.trouble;
                let meanwhile = outcome.ended_us >= from && outcome.begun_us <= until;
                let only = self.fault.refuses;
                let allowed = only == ["*"] || only.contains(&called.tenant);
                assert!(meanwhile && allowed, "refused without need {:?}: {called:?}", self.trouble);
            }
            _ => panic!("no documented answer: {called:?}"),
        }
        if outcome.status == 200 && outcome.ended_us >= self.trouble.0 && outcome.ended_us <= self.trouble.1 {
            figures.during += 1;
        }
        *figures.statuses.entry(word).or_default() += 1;
    }

    fn did_not_hang(&self, called: &Called, figures: &mut Figures) {
        let outcome = &called.outcome;
        let stood = self.gone.iter().filter(|gone| gone.gateway == called.gateway && !gone.killed);
        let stood: Duration = stood.map(|gone| span(gone.from, gone.until)).sum();
        let took = span(outcome.begun_us, outcome.ended_us);
        assert!(took <= DEADLINE * TRIES + MARGIN + stood, "hung for {took:?}: {called:?}");
        figures.longest = figures.longest.max(took);
    }

    fn journal_is_the_record(&self, figures: &mut Figures) {
        assert_eq!(self.journal.repeated(), Vec::<String>::new());
        assert!(self.journal.entries.iter().all(|entry| entry.unbooked == 0), "unbooked entries");
        let provider: BTreeMap<&str, &Recorded> =
            self.provider.iter().map(|call| (call.label.as_deref().unwrap(), call)).collect();
        assert_eq!(provider.len(), self.provider.len(), "a call came twice");
        let (entries, pools) = (self.journal.by_call("tenant"), self.journal.by_call("pool"));
        for called in &self.calls {
            let label = called.job.label.as_str();
            let found = entries.get(label).map_or(&[][..], Vec::as_slice);
            let record = provider.get(label).copied();
            match (found, record) {
                ([], None) => {}
                ([], Some(_)) => {
                    self.may_expire(called, "no entry");
                    figures.at_the_door += 1;
                }
                ([entry], _) if entry.origin == "expired" => {
                    self.may_expire(called, "expired");
                    expired_as_configured(entry);
                    figures.expired += 1;
                }
                (entries, Some(record)) => {
                    equals_the_record(entries, record);
                    self.pool_agrees(called, entries, pools.get(label).map_or(&[], Vec::as_slice));
                    figures.settled += 1;
                    figures.late += usize::from(entries.len() > 1);
                }
                // Its client, or its gateway, went away while it was on the way.
                ([entry], None) => assert_eq!(entry.output, 0, "never sent: {entry:?}"),
                (entries, None) => panic!("never sent: {entries:?}"),
            }
        }
        let known = self.calls.iter().filter(|called| entries.contains_key(called.job.label.as_str()));
        assert_eq!(known.count(), entries.len(), "entries of calls that nobody made");
    }

    /// The pool's side of a call says the same, unless its gateway died between the two.
    fn pool_agrees(&self, called: &Called, tenant: &[&Entry], pool: &[&Entry]) {
        let sum = |entries: &[&Entry]| entries.iter().map(|entry| entry.llm_tokens()).sum::<i64>();
        let agrees = sum(pool) == sum(tenant) && !pool.is_empty();
        assert!(agrees || self.was_killed(called, UNTOLD), "{tenant:?}, but its pool {pool:?}");
    }

    /// Only a call whose gateway was killed before the book was told of its end.
    fn may_expire(&self, called: &Called, how: &str) {
        assert!(self.was_killed(called, UNTOLD), "{how}, but its gateway lived: {called:?}, {:?}", self.gone);
    }

    /// What the accounts show is what the entries posted, and each request that was not given back.
    fn sums_are_kept(&self) {
        assert_eq!(self.journal.posted(), self.journal.sums);
        for tenant in super::world::TENANTS {
            let of_it = |entry: &&Entry| entry.tenant == tenant && entry.side == "tenant";
            let own = || self.journal.entries.iter().filter(of_it);
            let requests: i64 = own().map(|entry| entry.requests).sum();
            assert_eq!(self.posted(tenant, "requests"), requests, "requests of {tenant}");
            let posted: i64 = own().flat_map(|entry| &entry.posted).map(|posted| posted.amount).sum();
            assert_eq!(self.posted(tenant, "tokens") + requests, posted, "llm_tokens of {tenant}");
        }
    }

    fn posted(&self, tenant: &str, measure: &str) -> i64 {
        let name = format!("{tenant} {measure}");
        self.accounts.iter().find(|account| account.limit == name).map_or(0, |account| account.posted)
    }

    /// Calls at the door of a gateway that was killed were given back, though the provider may have seen them.
    fn no_limit_was_passed(&self, figures: &Figures) {
        let of = |tenant: &str| {
            let own: BTreeMap<&str, &Called> = self
                .calls
                .iter()
                .filter(|called| called.tenant == tenant)
                .map(|called| (called.job.label.as_str(), called))
                .collect();
            let seen = self.provider.iter().filter_map(|record| {
                own.get(record.label.as_deref().unwrap_or_default()).map(|called| (record, *called))
            });
            seen.collect::<Vec<_>>()
        };
        let given_back = u64::try_from(figures.at_the_door).unwrap();
        let scarce = u64::try_from(of("scarce").len()).unwrap();
        assert!((REQUESTS_MAX..=REQUESTS_MAX + given_back).contains(&scarce), "{scarce} of a hard quota");
        let posted = self.posted("scarce", "requests");
        assert_eq!(u64::try_from(posted), Ok(REQUESTS_MAX), "all of it is used, and no more");
        let metered = self.posted("metered", "tokens");
        let worst = 200;
        let room = i64::try_from(LLM_TOKENS_MAX).unwrap() - metered;
        assert!((0..worst).contains(&room), "{metered} posted on a hard quota of {LLM_TOKENS_MAX}");
        if self.gone.is_empty() {
            let used: u64 = of("metered")
                .iter()
                .map(|(record, _)| record.generated.input + record.generated.output)
                .sum();
            assert!(used <= LLM_TOKENS_MAX, "{used} used of a hard quota of {LLM_TOKENS_MAX}");
        }
        let rated = u64::try_from(of("rated").len()).unwrap();
        let windows = if self.fault.forgets_rates { 2 } else { 1 };
        assert!(rated <= windows * RATE_MAX + given_back, "{rated} of {RATE_MAX} in a minute");
        let narrow = overlap(&of("narrow"));
        assert!(narrow <= IN_FLIGHT_MAX, "{narrow} at once of {IN_FLIGHT_MAX}");
    }

    pub(crate) fn print(&self, figures: &Figures) {
        let mut line = format!("faults: {}: {} calls:", self.fault.name, self.calls.len());
        for (word, count) in &figures.statuses {
            write!(line, " {count} × {},", word.trim()).unwrap();
        }
        let Figures { served, during, settled, late, expired, at_the_door, longest, .. } = figures;
        let lasted = span(self.trouble.0, self.trouble.1).as_millis();
        writeln!(
            line,
            "\nfaults: {}: trouble {lasted} ms, {served} served ({during} meanwhile), {} at the provider, {} entries, \
             {settled} settled ({late} late), {} spooled, {expired} expired, {at_the_door} given back at the door; \
             longest answer {} ms; nothing held {} ms after the load",
            self.fault.name,
            self.provider.len(),
            self.journal.entries.len(),
            self.spooled,
            longest.as_millis(),
            self.freed_after.as_millis(),
        )
        .unwrap();
        io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

/// A hard quota is charged what was expected, a soft one nothing. The request is kept.
fn expired_as_configured(entry: &Entry) {
    assert_eq!((entry.figures.as_str(), entry.ending.as_str(), entry.requests), ("expired", "expired", 1));
    let charged = entry.posted.iter().map(|posted| posted.amount).sum::<i64>() - entry.requests;
    assert!((entry.hold_input..=entry.hold_worst).contains(&charged), "{entry:?}");
}

/// Most calls that were at the provider at once. A call that was answered whole is there at least as long as its script
/// says, whenever the provider came to write down that it was over.
fn overlap(calls: &[(&Recorded, &Called)]) -> u64 {
    let mut moments: Vec<(u64, i8)> = Vec::new();
    for (record, called) in calls {
        let generate = &called.job.script["answer"]["generate"];
        let number = |name: &str| generate[name].as_u64().unwrap_or_default();
        let least = number("output_llm_tokens") * number("chunk_every_ms");
        let end = record.arrived_ms + least;
        let end =
            if record.ending == Ending::Complete { end } else { end.min(record.ended_ms.unwrap_or(end)) };
        moments.extend([(record.arrived_ms, 1), (end, -1)]);
    }
    // Ends first.
    moments.sort_unstable();
    let (mut now, mut most) = (0_i64, 0_i64);
    for (_, step) in moments {
        now += i64::from(step);
        most = most.max(now);
    }
    u64::try_from(most).unwrap_or_default()
}
