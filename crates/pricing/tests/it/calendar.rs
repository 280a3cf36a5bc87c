//! Field cases TIM from the calendar to the verdict: the period that a limit's zone gives, decided by the book.

use tollbook_ledger::{
    Book, DenyKind, Event, Full, Leg, Log, Profile, ReservationId, Reserve, SECOND, Settle, Verdict, Wait,
};
use tollbook_policy::{LimitDraft, Measure, PeriodKind, ShapeDraft};
use tollbook_pricing::{Asked, Demand, Family, InputCount, Learned, ModelFacts, Output, legs};

use crate::world::{bind_at, daily};

struct Nothing;

impl Log for Nothing {
    fn append(&mut self, _: &Event<'_>) -> Result<(), Full> {
        Ok(())
    }
}

/// UTC seconds of an RFC 3339 time.
fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_second()).unwrap()
}

/// A quota of 100 llm_tokens in a zone, and the book that keeps it.
struct Quota {
    limit: LimitDraft,
    book: Book,
    calls: u128,
}

impl Quota {
    fn new(period: PeriodKind, zone: &str) -> Self {
        let shape = ShapeDraft::Quota { period, zone: Some(zone.to_owned()), anchor: None };
        let limit = LimitDraft { shape, ..daily(Measure::InputTokens, 100) };
        Self { limit, book: Book::new(), calls: 0 }
    }

    /// A call of 80 llm_tokens (100 at worst) at that second.
    fn ask(&mut self, now: u64) -> Verdict {
        let (bound, periods) = bind_at(vec![self.limit.clone()], now);
        let input = InputCount { llm_tokens: 80, built_in: crate::world::kinds(80), images: 0, exact: false };
        let asked = Asked { output_cap: Some(1), choices: 1, ..Asked::default() };
        let demand = Demand::new(&asked, input, &ModelFacts::of(Family::O200k), &Learned::default(), false);
        let legs: Vec<Leg> = legs(&bound, &demand, None, Output::Known(0), &periods).unwrap();
        self.calls += 1;
        let id = ReservationId(self.calls);
        let reserve =
            Reserve { id, attempt: 0, life: SECOND, profile: Profile::default(), legs, context: Vec::new() };
        self.book.reserve(now * SECOND, &reserve, &mut Nothing).unwrap()
    }

    /// Uses all of the period that contains that second.
    fn exhaust(&mut self, now: u64) {
        assert!(matches!(self.ask(now), Verdict::Admit(_)), "{now}");
        let settle =
            Settle { id: ReservationId(self.calls), attempt: 0, actual: vec![100], learn: None, landed: 0 };
        self.book.settle(now * SECOND, &settle, &mut Nothing).unwrap();
    }

    /// Whole seconds until the next period, as a refusal tells them.
    fn wait(&mut self, now: u64) -> u64 {
        match self.ask(now) {
            Verdict::Deny(denial) => match denial.binding.kind {
                DenyKind::Spent(Wait { after, firm: true }) => after / SECOND,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn b176_a_month_that_is_spent_is_open_again_from_local_midnight() {
    for (zone, offset) in
        [("Asia/Tokyo", "+09:00"), ("America/Los_Angeles", "-07:00"), ("Asia/Kathmandu", "+05:45")]
    {
        let mut quota = Quota::new(PeriodKind::Month, zone);
        quota.exhaust(at("2026-10-15T12:00:00Z"));
        let before = at(&format!("2026-10-31T23:59:59{offset}"));
        assert_eq!(quota.wait(before), 1, "{zone}");
        let after = at(&format!("2026-11-01T00:00:01{offset}"));
        assert!(matches!(quota.ask(after), Verdict::Admit(_)), "{zone}");
    }
}

/// Change days: how long the day is, one reset, and what a refusal says at its first and at its last second.
#[test]
fn b180_a_refusal_waits_as_long_as_the_day_is() {
    for (zone, start, hours) in [
        ("Europe/Amsterdam", "2026-03-29T00:00:00+01:00", 23),
        ("Europe/Amsterdam", "2026-10-25T00:00:00+02:00", 25),
        // There is no midnight: the day begins at one.
        ("Africa/Cairo", "2026-04-24T01:00:00+03:00", 23),
        // There are two: it begins at the first.
        ("America/Havana", "2023-11-05T00:00:00-04:00", 25),
    ] {
        let (start, length) = (at(start), hours * 3_600);
        let mut quota = Quota::new(PeriodKind::Day, zone);
        quota.exhaust(start - 1);
        assert_eq!(quota.wait(start - 1), 1, "{zone}: the day before ends here");
        quota.exhaust(start);
        // Every quarter of an hour, the repeated ones too: nothing resets in between.
        for now in (start..start + length).step_by(900) {
            assert_eq!(quota.wait(now), start + length - now, "{zone}");
        }
        assert_eq!(quota.wait(start + length - 1), 1, "{zone}");
        assert!(matches!(quota.ask(start + length), Verdict::Admit(_)), "{zone}");
    }
}
