//! Drives scenarios written as account books: rows of time, verb and expected answer.
//!
//! A scenario first names its legs, then lists its rows. Times are seconds after a midnight UTC.
//!
//! ```text
//! leg rpm requests 61x1 soft 2        # measure, shape (n x seconds, minute, hour, day, life, held), limits
//! leg tok tokens day hard 500 worst ; soft 400
//! 0    reserve 1 rpm tok=100+50       => admit 0 150
//! 3.5  settle 1 1 120                 => held
//! 4    book tok                       => posted 120 held 0
//! ```
//!
//! A leg in a reserve reads `name[=base][+output][^cap][~estimator][:worst]`. An answer is compared with the start of
//! what the desk says, word by word, so a row may leave the rest out. Rows without `=>` only must not be refused.
//! Nothing here knows the book: any engine that is a [`Desk`] runs the same rows.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tollbook_ledger::{
    AccountId, Adjust, Attempt, Balance, Denial, DenyKind, Drift, Due, End, Estimator, EstimatorId,
    EstimatorKind, ExpireOne, Expired, Growth, Hold, Leg, Limit, LimitId, Measure, Met, Micros, OnExpiry,
    Opening, Periods, Posted, Rebook, Refusal, Release, ReleaseWhy, Renew, Renewed, ReservationId, Reserve,
    SECOND, Settle, Settled, Shape, SubjectId, Verdict, Wait, Weights,
};

/// Whatever keeps accounts.
pub(crate) trait Desk {
    fn reserve(&mut self, now: Micros, cmd: &Reserve) -> Result<Verdict, Refusal>;
    fn rebook(&mut self, now: Micros, cmd: &Rebook) -> Result<(Verdict, Option<Settled>), Refusal>;
    fn renew(&mut self, now: Micros, cmd: &Renew) -> Result<Renewed, Refusal>;
    fn settle(&mut self, now: Micros, cmd: &Settle) -> Result<Settled, Refusal>;
    fn release(&mut self, now: Micros, cmd: &Release) -> Result<Settled, Refusal>;
    fn expire(&mut self, now: Micros, cmd: &ExpireOne) -> Result<Expired, Refusal>;
    fn adjust(&mut self, now: Micros, cmd: &Adjust) -> Result<bool, Refusal>;
    fn balance(&mut self, now: Micros, account: AccountId) -> Option<Balance>;
    fn period(&mut self, account: AccountId, start: u64) -> Option<(i64, i64)>;
    /// Things only some desks know; `None`: not this one.
    fn extra(&mut self, now: Micros, verb: &str, words: &[&str]) -> Option<String>;
    /// Called after every row.
    fn audit(&mut self) {}
}

/// Midnight at which scenarios begin.
pub(crate) const T0: u64 = 20_000 * 86_400;

/// Run one scenario; panics with its row where an answer differs.
pub(crate) fn check(desk: &mut impl Desk, scenario: &str) {
    let mut world = World::default();
    for (number, line) in scenario.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (row, expected) = match line.split_once("=>") {
            Some((row, expected)) => (row.trim(), Some(expected.trim())),
            None => (line, None),
        };
        let words: Vec<&str> = row.split_whitespace().collect();
        if words[0] == "leg" {
            world.leg(&words[1..]);
            continue;
        }
        let answer = world.row(desk, at(words[0]), words[1], &words[2..]);
        match expected {
            Some(expected) => assert!(
                starts_with(&answer, expected),
                "row {}: {row}\n  expected: {expected}\n  answered: {answer}",
                number + 1
            ),
            None => {
                assert!(!answer.starts_with("refused"), "row {}: {row}\n  answered: {answer}", number + 1);
            }
        }
        desk.audit();
    }
}

fn starts_with(answer: &str, expected: &str) -> bool {
    let mut words = answer.split_whitespace();
    expected.split_whitespace().all(|word| words.next() == Some(word))
}

/// Seconds after midnight as engine time.
pub(crate) fn at(text: &str) -> Micros {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let mut micros = whole.parse::<u64>().expect("seconds") * SECOND;
    if !part.is_empty() {
        micros += format!("{part:0<6}").parse::<u64>().expect("fraction");
    }
    let midnight = T0 * SECOND;
    if negative { midnight - micros } else { midnight + micros }
}

pub(crate) fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

struct Kind {
    account: AccountId,
    measure: Measure,
    shape: Shape,
    /// Length of the calendar period in seconds; 0: lifetime or none.
    period: u64,
    refund_failed: bool,
    limits: Vec<Limit>,
}

#[derive(Default)]
struct World {
    kinds: BTreeMap<String, Kind>,
    names: BTreeMap<AccountId, String>,
    limits: u32,
    /// The caller's calendar runs behind the engine by so many seconds.
    calendar: i64,
    legs: BTreeMap<(u128, Attempt), Vec<Leg>>,
}

impl World {
    fn leg(&mut self, words: &[&str]) {
        let (name, mut rest) = (words[0], &words[1..]);
        let measure = match rest[0] {
            "requests" => Measure::Requests,
            "tokens" => Measure::Tokens,
            "input" => Measure::InputTokens,
            "output" => Measure::OutputTokens,
            "cost" => Measure::Cost,
            "calls" => Measure::Concurrency,
            other => panic!("measure {other}"),
        };
        let (shape, period) = shape(rest[1]);
        rest = &rest[2..];
        let refund_failed = rest[0] == "refund";
        if refund_failed {
            rest = &rest[1..];
        }
        let limits = self.limits(rest);
        let account = AccountId { subject: SubjectId(digest("subject")), name: digest(name) };
        self.names.insert(account, name.to_owned());
        self.kinds.insert(name.to_owned(), Kind { account, measure, shape, period, refund_failed, limits });
    }

    fn limits(&mut self, words: &[&str]) -> Vec<Limit> {
        let limit = |words: &[&str]| {
            self.limits += 1;
            let has = |word| words.contains(&word);
            Limit {
                id: LimitId(self.limits),
                ceiling: words[1].parse().expect("ceiling"),
                hard: words[0] == "hard",
                shadow: has("shadow"),
                count_denied: has("count"),
                hold: if has("worst") { Hold::Worst } else { Hold::Expected },
                on_expiry: if has("charge") { OnExpiry::Charge } else { OnExpiry::Release },
            }
        };
        words.split(|word| *word == ";").map(limit).collect()
    }

    fn row(&mut self, desk: &mut impl Desk, now: Micros, verb: &str, words: &[&str]) -> String {
        match verb {
            "limit" => {
                let limits = self.limits(&words[1..]);
                self.kinds.get_mut(words[0]).expect("leg").limits = limits;
                String::new()
            }
            "calendar" => {
                self.calendar = words[0].parse().expect("seconds");
                String::new()
            }
            "reserve" => {
                let cmd = self.reserve(now, words[0], &words[1..]);
                refused(desk.reserve(now, &cmd), |verdict| self.verdict(&cmd, &verdict))
            }
            "rebook" => self.rebook(desk, now, words),
            "renew" => {
                let (id, attempt) = key(words[0]);
                let growth = words.iter().find_map(|word| word.strip_prefix("output:"));
                let growth = growth.map_or(Growth::Unchanged, |n| Growth::Output(n.parse().expect("output")));
                let sent = words.contains(&"sent");
                let life = words[1].parse::<u64>().expect("life") * SECOND;
                refused(desk.renew(now, &Renew { id, attempt, life, sent, growth, outgrown: None }), renewed)
            }
            "settle" => {
                let (id, attempt) = key(words[0]);
                let learn = words
                    .iter()
                    .find_map(|word| word.strip_prefix("learn:"))
                    .map(|n| n.parse().expect("learn"));
                let actual = words[1..].iter().filter_map(|word| word.parse().ok()).collect();
                refused(desk.settle(now, &Settle { id, attempt, actual, landed: 0, learn }), |settled| {
                    self.settled(&settled)
                })
            }
            "release" => {
                let (id, attempt) = key(words[0]);
                let why = if words[1] == "never" { ReleaseWhy::NeverSent } else { ReleaseWhy::Failed };
                refused(desk.release(now, &Release { id, attempt, why }), |settled| self.settled(&settled))
            }
            "expire" => {
                let (id, attempt) = key(words[0]);
                refused(desk.expire(now, &ExpireOne { id, attempt }), |expired| self.expired(&expired))
            }
            "adjust" => self.adjust(desk, now, words),
            "book" => match desk.balance(now, self.account(words[0])) {
                Some(book) => format!("posted {} held {} live {}", book.posted, book.held, book.live_holds),
                None => "none".to_owned(),
            },
            "reset" => desk
                .balance(now, self.account(words[0]))
                .map_or("none".to_owned(), |book| seconds(book.reset)),
            "shadow" => {
                let book = desk.balance(now, self.account(words[0])).expect("account");
                format!("denied {} demand {}", book.shadow_denied, book.shadow_demand)
            }
            "period" => {
                match desk
                    .period(self.account(words[0]), at(words[1]) / SECOND * u64::from(words[1] != "life"))
                {
                    Some((posted, held)) => format!("posted {posted} held {held}"),
                    None => "none".to_owned(),
                }
            }
            other => desk.extra(now, other, words).unwrap_or_else(|| panic!("verb {other}")),
        }
    }

    fn reserve(&mut self, now: Micros, id: &str, words: &[&str]) -> Reserve {
        let (id, attempt) = key(id);
        let life = words.iter().find_map(|word| word.strip_prefix("life:")).unwrap_or("15");
        let legs: Vec<Leg> = words
            .iter()
            .filter(|word| !word.starts_with("life:"))
            .map(|word| self.demand(now, word))
            .collect();
        self.legs.insert((id.0, attempt), legs.clone());
        let life = life.parse::<u64>().expect("life") * SECOND;
        Reserve {
            id,
            attempt,
            life,
            profile: tollbook_ledger::Profile::default(),
            legs,
            context: format!("call {id}").into_bytes(),
        }
    }

    /// `name[=base][+output][^cap][~estimator][:worst]`
    fn demand(&self, now: Micros, word: &str) -> Leg {
        let part = |mark: char| {
            let (_, rest) = word.split_once(mark)?;
            Some(rest.split(['=', '+', '^', '~', ':']).next().unwrap_or_default())
        };
        let number = |mark| part(mark).map(|text| text.parse::<u64>().expect("number"));
        let name = word.split(['=', '+', '^', '~', ':']).next().unwrap_or_default();
        let kind = self.kinds.get(name).unwrap_or_else(|| panic!("leg {name}"));
        let counts_calls = matches!(kind.measure, Measure::Requests | Measure::Concurrency);
        let base = number('=').unwrap_or(u64::from(counts_calls));
        let output = number('+').unwrap_or(0);
        let cap = number('^').unwrap_or(if part('~').is_some() { 4_096 } else { output });
        let estimator = match part('~') {
            Some(own) => Estimator::Learned {
                kind: EstimatorKind::Ema,
                own: EstimatorId(digest(own)),
                prior: EstimatorId(digest("model")),
                first: 500,
            },
            None => Estimator::Constant { output },
        };
        Leg {
            account: kind.account,
            measure: kind.measure,
            shape: kind.shape,
            periods: self.periods(now, kind),
            base: base * 1000,
            per_output: if counts_calls { 0 } else { 1000 },
            cap,
            worst: number(':').unwrap_or(base + cap),
            estimator,
            refund_failed: kind.refund_failed,
            limits: kind.limits.clone(),
        }
    }

    fn periods(&self, now: Micros, kind: &Kind) -> Periods {
        match (kind.shape, kind.period) {
            (Shape::Quota, 0) => Periods::Lifetime,
            (Shape::Quota, length) => {
                let told = (now / SECOND).checked_add_signed(self.calendar).expect("calendar");
                let start = told / length * length;
                Periods::Calendar([start - length, start, start + length, start + 2 * length])
            }
            _ => Periods::None,
        }
    }

    /// `rebook 1.0 1.1 used 1 50 : rpm tok=10` or `rebook 1.0 1.1 unused : …`
    fn rebook(&mut self, desk: &mut impl Desk, now: Micros, words: &[&str]) -> String {
        let colon = words.iter().position(|word| *word == ":").expect("colon");
        let actual =
            (words[2] == "used").then(|| words[3..colon].iter().map(|n| n.parse().expect("used")).collect());
        let reserve = self.reserve(now, words[1], &words[colon + 1..]);
        let cmd = Rebook { ended: key(words[0]).1, actual, landed: 0, reserve };
        refused(desk.rebook(now, &cmd), |(verdict, settled)| {
            let mut text = self.verdict(&cmd.reserve, &verdict);
            if let Some(settled) = settled {
                write!(text, " before {}", self.settled(&settled)).expect("write");
            }
            text
        })
    }

    /// `adjust id leg start delta [open]`
    fn adjust(&self, desk: &mut impl Desk, now: Micros, words: &[&str]) -> String {
        let kind = &self.kinds[words[1]];
        let period = if words[2] == "life" { 0 } else { at(words[2]) / SECOND };
        let end = if words[2] == "life" { u64::MAX } else { period + kind.period };
        let opening = words.contains(&"open").then_some(Opening { measure: kind.measure, end });
        let id = words[0].parse().expect("id");
        let delta = words[3].parse().expect("delta");
        let cmd = Adjust { id, account: kind.account, period, delta, opening };
        refused(desk.adjust(now, &cmd), |applied| if applied { "applied" } else { "known" }.to_owned())
    }

    fn account(&self, name: &str) -> AccountId {
        self.kinds.get(name).unwrap_or_else(|| panic!("leg {name}")).account
    }

    fn verdict(&self, cmd: &Reserve, verdict: &Verdict) -> String {
        match verdict {
            Verdict::Admit(receipt) => {
                assert_eq!((receipt.id, receipt.attempt), (cmd.id, cmd.attempt));
                let leg = |leg: &tollbook_ledger::LegReceipt| {
                    let shadow = if leg.shadow_denied { "!" } else { "" };
                    format!(" {}{shadow}", leg.held)
                };
                format!("admit{}", receipt.legs.iter().map(leg).collect::<String>())
            }
            Verdict::Ended(end) => format!("ended {}", end_word(*end)),
            Verdict::Conflict(leg) => format!("conflict {leg}"),
            Verdict::Recalendar => "recalendar".to_owned(),
            Verdict::Deny(denial) => self.denied(cmd, denial),
        }
    }

    fn denied(&self, cmd: &Reserve, denial: &Denial) -> String {
        let leg = &cmd.legs[denial.binding.leg];
        assert!(leg.limits.iter().any(|limit| limit.id == denial.binding.limit && !limit.shadow));
        let kind = match denial.binding.kind {
            DenyKind::TooLarge => "too_large".to_owned(),
            DenyKind::Exhausted => "exhausted".to_owned(),
            DenyKind::Spent(wait) => format!("spent {}", wait_words(wait)),
            DenyKind::Busy(wait) => format!("busy {}", wait_words(wait)),
        };
        let mut text = format!("deny {} {kind}", self.names[&leg.account]);
        if denial.firm {
            text.push_str(" all");
        }
        write!(text, " ceiling {} room", denial.binding.ceiling).expect("write");
        for room in &denial.room {
            write!(text, " {room}").expect("write");
        }
        for Due { id, attempt } in &denial.due {
            write!(text, " due {}.{attempt}", id.0).expect("write");
        }
        text
    }

    fn settled(&self, settled: &Settled) -> String {
        let mut text = match settled.before {
            Met::Held => "held".to_owned(),
            Met::Late => "late".to_owned(),
            Met::Ended(end) => format!("ended {}", end_word(end)),
            Met::Unknown => "unknown".to_owned(),
        };
        if settled.overrun.iter().any(|over| *over > 0) {
            text.push_str(" over");
            settled.overrun.iter().for_each(|over| write!(text, " {over}").expect("write"));
        }
        text + &self.posted(&settled.posted)
    }

    fn expired(&self, expired: &Expired) -> String {
        match expired {
            Expired::Expired { posted, context, .. } => {
                assert!(context.starts_with(b"call "), "the context comes back");
                format!("expired{}", self.posted(posted))
            }
            Expired::NotDue => "not due".to_owned(),
            Expired::Ended(end) => format!("ended {}", end_word(*end)),
            Expired::Unknown => "unknown".to_owned(),
        }
    }

    fn posted(&self, posted: &[Posted]) -> String {
        posted.iter().map(|post| format!(" posted {} {}", self.names[&post.account], post.amount)).collect()
    }
}

fn shape(word: &str) -> (Shape, u64) {
    match word {
        "minute" => (Shape::Quota, 60),
        "hour" => (Shape::Quota, 3_600),
        "day" => (Shape::Quota, 86_400),
        "life" => (Shape::Quota, 0),
        "held" => (Shape::Concurrency, 0),
        rate => {
            let (rate, weights) = rate.split_once(':').unwrap_or((rate, "whole"));
            let weights = match weights {
                "oldest" => Weights::Oldest,
                "decay" => Weights::Decay,
                _ => Weights::Whole,
            };
            let (buckets, width) = rate.split_once('x').expect("n x width");
            let width = width.parse::<u64>().expect("width") * SECOND;
            (Shape::Rate { buckets: buckets.parse().expect("buckets"), width, weights }, 0)
        }
    }
}

/// `id` or `id.attempt`
fn key(text: &str) -> (ReservationId, Attempt) {
    let (id, attempt) = text.split_once('.').unwrap_or((text, "0"));
    (ReservationId(id.parse().expect("id")), attempt.parse().expect("attempt"))
}

fn refused<T>(answer: Result<T, Refusal>, say: impl FnOnce(T) -> String) -> String {
    answer.map_or_else(|refusal| format!("refused {refusal}"), say)
}

fn renewed(renewed: Renewed) -> String {
    let numbers = |numbers: Vec<String>| numbers.into_iter().map(|n| format!(" {n}")).collect::<String>();
    match renewed {
        Renewed::Held(held) => format!("holds{}", numbers(held.iter().map(ToString::to_string).collect())),
        Renewed::Short(legs) => format!("short{}", numbers(legs.iter().map(ToString::to_string).collect())),
        Renewed::Ended(end) => format!("ended {}", end_word(end)),
        Renewed::Unknown => "unknown".to_owned(),
    }
}

fn end_word(end: End) -> &'static str {
    match end {
        End::Settled => "settled",
        End::Released => "released",
        End::Expired => "expired",
        End::Corrected => "corrected",
        End::Rebooked => "rebooked",
    }
}

fn wait_words(wait: Wait) -> String {
    format!("{} {}", seconds(wait.after), if wait.firm { "firm" } else { "likely" })
}

fn seconds(micros: Micros) -> String {
    if micros == Micros::MAX {
        return "never".to_owned();
    }
    let (whole, part) = (micros / SECOND, micros % SECOND);
    if part == 0 { whole.to_string() } else { format!("{whole}.{part:06}").trim_end_matches('0').to_owned() }
}

/// A drift as a row shows it.
pub(crate) fn drift_words(drifts: &[Drift]) -> String {
    drifts.iter().map(|drift| format!("held {} sum {} ", drift.held, drift.sum)).collect()
}
