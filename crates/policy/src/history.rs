//! L16: what a limit's past leaves behind.
//!
//! The engine remembers no limits, so this does, from the history in the store: what a limit was, version by version,
//! and since when. A changed ceiling meets the same account and leaves nothing. A changed window starts an empty
//! account, and the old one is enforced beside it for one window of the old length. A changed zone or anchor takes effect at
//! the next boundary of the old calendar; until then the new account is only written, so that it starts full. A quota
//! that is added in mid-period needs the total its period has in the journal.
//! A limit that is removed is gone at once. History rows are never changed; with the same rows and time, the same result.

use crate::calendar::{Calendar, PeriodRule};
use crate::catalog::{Catalog, Rule};
use crate::digest::Digest;
use crate::limit::{Form, Limit, Opening, PeriodKind};
use crate::meter::MeterPair;
use crate::subject::{Scope, Subject};
use std::collections::{BTreeMap, BTreeSet};
use tollbook_ledger::{AccountId, LimitId, Measure};

/// One version of a limit, as it was first seen. Unique by (limit, version); append-only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryRow {
    /// The limit's name.
    pub limit: String,
    /// From 1, without gaps.
    pub version: u32,
    /// Engine time, UTC seconds.
    pub seen_at: u64,
    /// Absent: the limit was removed. Stored as [`Limit::to_text`].
    pub definition: Option<Limit>,
}

/// A quota that needs the total its period already has in the journal, written by `adjust`: the journal's total of the
/// subject since `period`, less what the account has posted. An executor that finds its id in the journal is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpeningNeeded {
    pub limit: LimitId,
    pub scope: Scope,
    pub model: Option<String>,
    pub measure: Measure,
    /// Weights by which usage parts make the account's amount.
    pub meter: MeterPair,
    /// Start of the period, UTC seconds; 0 for lifetime.
    pub period: u64,
    /// UTC seconds since when the account counts by itself.
    pub since: u64,
    /// Since when it counted before, within this period: it was away in between, and was opened then too.
    before: Vec<u64>,
    account_name: u64,
}

impl OpeningNeeded {
    /// The account, or that of one user where the limit covers each user.
    pub fn account(&self, user: Option<&str>) -> Option<AccountId> {
        let subject = match (&self.scope, user) {
            (Scope::One(subject), _) => subject.id(),
            (Scope::EachUser { tenant }, Some(user)) => {
                Subject::User { tenant: tenant.clone(), user: user.to_owned() }.id()
            }
            (Scope::EachUser { .. }, None) => return None,
        };
        Some(AccountId { subject, name: self.account_name })
    }

    /// The id of the adjustment: the same for the same opening, whoever makes it and however often.
    pub fn adjust_id(&self, account: AccountId) -> u128 {
        self.adjust_id_since(account, self.since)
    }

    /// The ids under which the same account was opened for this period before: what they posted is in it still.
    pub fn earlier_ids(&self, account: AccountId) -> Vec<u128> {
        self.before.iter().map(|since| self.adjust_id_since(account, *since)).collect()
    }

    fn adjust_id_since(&self, account: AccountId, since: u64) -> u128 {
        let mut digest = Digest::new("tollbook opening 1");
        digest.number(account.subject.0);
        digest.number(account.name);
        digest.number(self.period);
        digest.number(since);
        digest.long()
    }
}

/// The rows to append so that the history ends with what the catalog says. `now` is engine time in UTC seconds; a step
/// back of the clock does not make a later version older than an earlier one.
pub fn diff(rows: &[HistoryRow], catalog: &Catalog, now: u64) -> Vec<HistoryRow> {
    let histories = by_limit(rows);
    let row = |limit: &str, last: Option<&HistoryRow>, definition: Option<Limit>| HistoryRow {
        limit: limit.to_owned(),
        version: last.map_or(1, |last| last.version.saturating_add(1)),
        seen_at: last.map_or(now, |last| last.seen_at.max(now)),
        definition,
    };
    let mut new = Vec::new();
    let mut current = BTreeSet::new();
    for rule in catalog.rules.iter().filter(|rule| !rule.is_left_behind()) {
        let limit = &rule.limit;
        current.insert(limit.name.as_str());
        let last = histories.get(limit.name.as_str()).and_then(|rows| rows.last().copied());
        let is_known = last.and_then(|last| last.definition.as_ref()).is_some_and(|last| last.says(limit));
        if !is_known {
            new.push(row(&limit.name, last, Some(limit.clone())));
        }
    }
    for (name, rows) in &histories {
        let last = rows.last().copied();
        if !current.contains(name) && last.is_some_and(|last| last.definition.is_some()) {
            new.push(row(name, last, None));
        }
    }
    new
}

impl Catalog {
    /// Adds what the history leaves behind at `now` (UTC seconds), and tells the openings that are needed.
    ///
    /// `rows` already ends with what [`diff`] said. Call it on a catalog as it came from [`Catalog::new`].
    #[must_use]
    pub fn with_history(mut self, rows: &[HistoryRow], now: u64) -> (Self, Vec<OpeningNeeded>) {
        let histories = by_limit(rows);
        let mut left_behind = Vec::new();
        for rule in &mut self.rules {
            let Some(versions) = histories.get(rule.limit.name.as_str()) else { continue };
            match &rule.limit.form {
                Form::Rate { .. } | Form::Forecast { .. } => {
                    old_windows(rule, versions, now, &mut left_behind);
                }
                Form::Quota(_) => old_calendar(rule, versions, now, &mut left_behind),
                Form::Concurrency => {}
            }
        }
        let openings = openings(&self, rows, now);
        for (limit, until) in left_behind {
            self.add_rule(limit, 0, until);
        }
        (self, openings)
    }
}

/// Rows of each limit in the order of versions.
fn by_limit(rows: &[HistoryRow]) -> BTreeMap<&str, Vec<&HistoryRow>> {
    let mut histories: BTreeMap<&str, Vec<&HistoryRow>> = BTreeMap::new();
    for row in rows {
        histories.entry(&row.limit).or_default().push(row);
    }
    for versions in histories.values_mut() {
        versions.sort_by_key(|row| row.version);
    }
    histories
}

/// Whether two definitions limit the same thing, so that one can be the older form of the other.
fn same_subject_matter(a: &Limit, b: &Limit) -> bool {
    a.scope == b.scope && a.model == b.model && a.measure == b.measure
}

fn account_name(limit: &Limit) -> u64 {
    crate::account::account_name(limit)
}

/// A changed window: the old account is enforced for one window of the old length.
fn old_windows(rule: &Rule, versions: &[&HistoryRow], now: u64, left_behind: &mut Vec<(Limit, u64)>) {
    for (row, next) in versions.iter().zip(versions.iter().skip(1)) {
        let (Some(old), Some(successor)) = (&row.definition, &next.definition) else { continue };
        let window_s = match old.form {
            Form::Rate { window_s, .. } => window_s,
            Form::Forecast { window_s, .. } => u32::from(window_s),
            Form::Quota(_) | Form::Concurrency => continue,
        };
        let until = next.seen_at.saturating_add(u64::from(window_s));
        let old_account = account_name(old);
        let changed = old_account != account_name(successor) && old_account != rule.account_name;
        if changed && until > now && same_subject_matter(old, &rule.limit) {
            left_behind.push((old.clone(), until));
        }
    }
}

/// A changed zone or anchor: the old calendar is enforced until its next boundary, the new one from then on.
fn old_calendar(rule: &mut Rule, versions: &[&HistoryRow], now: u64, left_behind: &mut Vec<(Limit, u64)>) {
    let Form::Quota(current) = &rule.limit.form else { return };
    // the versions that differ in zone and anchor at most, up to the current one
    let alike = versions.iter().rev().map_while(|row| {
        let old = row.definition.as_ref().filter(|old| same_subject_matter(old, &rule.limit))?;
        match &old.form {
            Form::Quota(calendar) if calendar.kind == current.kind && old.meter == rule.limit.meter => {
                Some((row.seen_at, calendar))
            }
            _ => None,
        }
    });
    let mut alike: Vec<(u64, &PeriodRule)> = alike.collect();
    alike.reverse();
    let Some(&(_, first)) = alike.first() else { return };
    let mut active = first;
    let mut pending: Option<(u64, &PeriodRule)> = None;
    for &(seen_at, calendar) in alike.iter().skip(1) {
        if let Some((_, next)) = pending.filter(|&(from, _)| from <= seen_at) {
            active = next;
        }
        let boundary = Calendar::new(active.clone()).current(seen_at).1;
        pending = (calendar != active).then_some((boundary, calendar));
    }
    let Some((from, _)) = pending.filter(|&(from, _)| from > now) else { return };
    // the ceiling changes at once, only the calendar waits
    left_behind.push((Limit { form: Form::Quota(active.clone()), ..rule.limit.clone() }, from));
    rule.enforced_from = from;
}

/// Quotas whose account has not counted since the start of the period in which they are enforced.
fn openings(catalog: &Catalog, rows: &[HistoryRow], now: u64) -> Vec<OpeningNeeded> {
    let counted = counted_since(rows, now);
    let mut needed = Vec::new();
    for (id, rule) in catalog.own_rules() {
        let limit = &rule.limit;
        let Some(calendar) = rule.calendar.and_then(|id| catalog.calendar(id)) else { continue };
        if limit.opening == Opening::Zero {
            continue;
        }
        let starts = counted.get(&(&limit.scope, rule.account_name)).map_or(&[][..], Vec::as_slice);
        let (since, before) = starts.split_last().map_or((now, &[][..]), |(since, before)| (*since, before));
        let (period, _) = calendar.current(now.max(rule.enforced_from));
        let period = if calendar.rule().kind == PeriodKind::Lifetime { 0 } else { period };
        if period < since {
            needed.push(OpeningNeeded {
                limit: id,
                scope: limit.scope.clone(),
                model: limit.model.clone(),
                measure: limit.measure,
                meter: limit.meter,
                period,
                since,
                before: before.iter().copied().filter(|since| period < *since).collect(),
                account_name: rule.account_name,
            });
        }
    }
    needed
}

/// Since when each account that counts at `now` has done so without a gap, whatever the limits over it were called: the
/// last of these times; those before it begin spans that ended.
fn counted_since(rows: &[HistoryRow], now: u64) -> BTreeMap<(&Scope, u64), Vec<u64>> {
    let mut spans: BTreeMap<(&Scope, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for versions in by_limit(rows).values() {
        for (at, row) in versions.iter().enumerate() {
            let Some(limit) = &row.definition else { continue };
            let end = versions.get(at + 1).map_or(u64::MAX, |next| next.seen_at);
            spans.entry((&limit.scope, account_name(limit))).or_default().push((row.seen_at, end));
        }
    }
    let mut since = BTreeMap::new();
    for (account, mut spans) in spans {
        spans.sort_unstable();
        let (mut starts, mut last) = (Vec::new(), 0);
        for (start, end) in spans {
            if starts.is_empty() || start > last {
                starts.push(start);
                last = end;
            }
            last = last.max(end);
        }
        if last > now {
            since.insert(account, starts);
        }
    }
    since
}
