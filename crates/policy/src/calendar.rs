//! When the periods of a quota begin.
//!
//! A period is identified by the calendar of a named zone, never by when a job ran or a key was made (B188). Zones come
//! from the bundled table only, so every gateway of one version agrees whatever its host has installed (L12).
//! Invariants: starts are strictly increasing; a period is the half-open time between two starts; a start that the
//! clock skips is the first valid instant after it; a start that occurs twice counts at its first occurrence (B180).
//! An hour that is repeated by the clock is two hours. Months are clamped to their length and never drift (B178).
//! When an instant is outside the table's reach (years beyond ±9999), starts saturate.

use crate::limit::PeriodKind;
use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};
use tollbook_ledger::Periods;

/// The zone of a quota that names none.
pub const DEFAULT_ZONE: &str = "UTC";

/// Where in the week or month a period begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Anchor {
    /// 1 Monday … 7 Sunday.
    Weekday(u8),
    /// 1 … 31; in shorter months their last day.
    DayOfMonth(u8),
}

/// The calendar of a quota: kind, zone and anchor. Checked: the zone exists, the anchor fits the kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PeriodRule {
    pub kind: PeriodKind,
    /// Name in the bundled table; `UTC` for minutes and lifetimes, which have no zone.
    pub zone: String,
    /// Weekday for weeks, day for months, else nothing.
    pub anchor: Option<Anchor>,
}

/// What is wrong with the parts of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RuleProblem {
    UnknownZone,
    MeaninglessZone,
    Anchor,
}

impl PeriodRule {
    /// A rule in UTC with the default anchor (Monday, the first).
    pub fn utc(kind: PeriodKind) -> Self {
        Self { kind, zone: DEFAULT_ZONE.to_owned(), anchor: default_anchor(kind) }
    }

    pub(crate) fn new(
        kind: PeriodKind,
        zone: Option<&str>,
        anchor: Option<Anchor>,
    ) -> Result<Self, RuleProblem> {
        let fits = match (kind, anchor) {
            (_, None) => true,
            (PeriodKind::Week, Some(Anchor::Weekday(day))) => (1..=7).contains(&day),
            (PeriodKind::Month, Some(Anchor::DayOfMonth(day))) => (1..=31).contains(&day),
            _ => false,
        };
        if !fits {
            return Err(RuleProblem::Anchor);
        }
        let zone = match zone {
            None => DEFAULT_ZONE.to_owned(),
            Some(_) if matches!(kind, PeriodKind::Minute | PeriodKind::Lifetime) => {
                return Err(RuleProblem::MeaninglessZone);
            }
            Some(name) => zone_named(name).ok_or(RuleProblem::UnknownZone)?.0,
        };
        Ok(Self { kind, zone, anchor: anchor.or(default_anchor(kind)) })
    }
}

fn default_anchor(kind: PeriodKind) -> Option<Anchor> {
    match kind {
        PeriodKind::Week => Some(Anchor::Weekday(1)),
        PeriodKind::Month => Some(Anchor::DayOfMonth(1)),
        _ => None,
    }
}

/// A zone of the bundled table under the table's own spelling.
fn zone_named(name: &str) -> Option<(String, TimeZone)> {
    let zone = TimeZoneDatabase::bundled().get(name).ok()?;
    let spelling = zone.iana_name().unwrap_or(DEFAULT_ZONE).to_owned();
    Some((spelling, zone))
}

/// A rule with its zone at hand.
#[derive(Clone, Debug)]
pub struct Calendar {
    rule: PeriodRule,
    zone: TimeZone,
}

impl Calendar {
    /// A rule with an unknown zone, which validation lets no one make, counts in UTC.
    pub fn new(rule: PeriodRule) -> Self {
        let zone = zone_named(&rule.zone).map_or(TimeZone::UTC, |(_, zone)| zone);
        Self { rule, zone }
    }

    pub fn rule(&self) -> &PeriodRule {
        &self.rule
    }

    /// The starts of the previous, the current, the next and the period after that, around `now` (UTC seconds).
    pub fn periods_around(&self, now: u64) -> Periods {
        match self.rule.kind {
            PeriodKind::Lifetime => Periods::Lifetime,
            PeriodKind::Minute => Periods::Calendar(minutes_around(now)),
            _ => Periods::Calendar(around(now, &self.candidates(now))),
        }
    }

    /// The start of the period that contains `now` and the start of the next; a lifetime never ends.
    pub fn current(&self, now: u64) -> (u64, u64) {
        match self.periods_around(now) {
            Periods::Calendar([_, start, end, _]) if start <= now => (start, end),
            // near the epoch the first start is the current one
            Periods::Calendar([start, end, ..]) => (start, end),
            Periods::None | Periods::Lifetime => (0, u64::MAX),
        }
    }

    /// Starts of enough periods before and after `now`, in no order, perhaps repeated.
    fn candidates(&self, now: u64) -> Vec<i64> {
        let now = Timestamp::from_second(i64::try_from(now).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
        let local = self.zone.to_datetime(now);
        let mut starts = Vec::with_capacity(12);
        // two back, because the clock may have been set back over a start; four on, because starts may coincide
        for step in -3..=4 {
            match self.rule.kind {
                PeriodKind::Hour => self.hour_starts(local, step, &mut starts),
                PeriodKind::Week => self.day_start(self.week(local.date(), step), &mut starts),
                PeriodKind::Month => self.day_start(self.month(local.date(), step), &mut starts),
                _ => self.day_start(days_on(local.date(), i64::from(step)), &mut starts),
            }
        }
        starts
    }

    fn week(&self, today: Date, step: i32) -> Option<Date> {
        let anchor = match self.rule.anchor {
            Some(Anchor::Weekday(day)) => i64::from(day),
            _ => 1,
        };
        let since = (i64::from(weekday_number(today.weekday())) - anchor).rem_euclid(7);
        days_on(today, 7 * i64::from(step) - since)
    }

    fn month(&self, today: Date, step: i32) -> Option<Date> {
        let anchor = match self.rule.anchor {
            Some(Anchor::DayOfMonth(day)) => i8::try_from(day).unwrap_or(1),
            _ => 1,
        };
        let months = i32::from(today.year()) * 12 + i32::from(today.month()) - 1 + step;
        let year = i16::try_from(months.div_euclid(12)).ok()?;
        let month = i8::try_from(months.rem_euclid(12) + 1).ok()?;
        let first = Date::new(year, month, 1).ok()?;
        Date::new(year, month, anchor.min(first.days_in_month())).ok()
    }

    fn day_start(&self, date: Option<Date>, starts: &mut Vec<i64>) {
        let Some(date) = date else { return };
        starts.extend(self.first_instant(date.to_datetime(jiff::civil::Time::midnight())));
    }

    /// The instants at which the local clock shows the full hour `step` hours from `local`.
    fn hour_starts(&self, local: DateTime, step: i32, starts: &mut Vec<i64>) {
        let full = local.date().at(local.hour(), 0, 0, 0);
        let Ok(civil) = full.checked_add(Span::new().hours(i64::from(step))) else { return };
        starts.extend(self.first_instant(civil));
        // repeated by the clock: the second passage starts an hour of its own
        if let AmbiguousOffset::Fold { after, .. } = self.zone.to_ambiguous_timestamp(civil).offset() {
            starts.extend(after.to_timestamp(civil).ok().map(Timestamp::as_second));
        }
    }

    /// The first instant at which the local clock shows `civil` or, where it is skipped, anything later.
    fn first_instant(&self, civil: DateTime) -> Option<i64> {
        let ambiguous = self.zone.to_ambiguous_timestamp(civil);
        let earlier = ambiguous.earlier().ok()?;
        let start = match ambiguous.offset() {
            AmbiguousOffset::Gap { .. } => self.zone.following(earlier).next()?.timestamp(),
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => earlier,
        };
        Some(start.as_second())
    }
}

fn weekday_number(day: Weekday) -> i8 {
    day.to_monday_one_offset()
}

fn days_on(date: Date, days: i64) -> Option<Date> {
    date.checked_add(Span::new().try_days(days).ok()?).ok()
}

/// Minutes have no zone: no zone's offset has seconds today.
fn minutes_around(now: u64) -> [u64; 4] {
    let current = now / 60 * 60;
    // in the epoch's first minute there is no minute before
    let first = current.saturating_sub(60);
    [first, first + 60, first + 120, first + 180]
}

/// The start before the current one, the current one and two more; near the epoch, from 0 on.
fn around(now: u64, candidates: &[i64]) -> [u64; 4] {
    let mut starts: Vec<u64> = candidates.iter().map(|&start| u64::try_from(start).unwrap_or(0)).collect();
    starts.sort_unstable();
    starts.dedup();
    let current = starts.iter().rposition(|&start| start <= now).unwrap_or(0);
    let mut chosen = starts.into_iter().skip(current.saturating_sub(1));
    let first = chosen.next().unwrap_or(0);
    // beyond the table's reach the missing starts follow by a second each, so they stay increasing
    let mut last = first;
    let mut next = || {
        last = chosen.next().unwrap_or(last.saturating_add(1));
        last
    };
    [first, next(), next(), next()]
}

/// Names a calendar of a catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CalendarId(pub u16);

/// The periods of one calendar around the last time asked; a hit is a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodCache {
    periods: Periods,
    from: u64,
    until: u64,
}

impl PeriodCache {
    pub const EMPTY: Self = Self { periods: Periods::None, from: 1, until: 0 };

    /// What is cached, if it is centred on `now` (UTC seconds).
    pub fn get(&self, now: u64) -> Option<Periods> {
        (self.from <= now && now < self.until).then_some(self.periods)
    }

    /// The periods around `now`, computed only if the cached ones are not centred on it.
    pub fn refresh(&mut self, calendar: &Calendar, now: u64) -> Periods {
        if let Some(periods) = self.get(now) {
            return periods;
        }
        let (from, until) = calendar.current(now);
        *self = Self { periods: calendar.periods_around(now), from, until };
        self.periods
    }
}

/// The periods of all calendars of a catalog around one time; shared as it is until [`Self::valid`] says no.
#[derive(Clone, Debug, Default)]
pub struct PeriodTable {
    rows: Vec<Periods>,
    from: u64,
    until: u64,
}

impl PeriodTable {
    /// Computes all rows around `now` (UTC seconds).
    pub fn new<'a>(calendars: impl Iterator<Item = &'a Calendar>, now: u64) -> Self {
        let mut table = Self { rows: Vec::new(), from: 0, until: u64::MAX };
        for calendar in calendars {
            let (from, until) = calendar.current(now);
            table.rows.push(calendar.periods_around(now));
            table.from = table.from.max(from);
            table.until = table.until.min(until);
        }
        table
    }

    /// Whether every row is centred on `now`.
    pub fn valid(&self, now: u64) -> bool {
        self.from <= now && now < self.until
    }

    /// `Periods::None` for an account that is no quota.
    pub fn get(&self, calendar: Option<CalendarId>) -> Periods {
        calendar.and_then(|id| self.rows.get(usize::from(id.0)).copied()).unwrap_or(Periods::None)
    }
}
