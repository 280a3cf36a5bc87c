//! Offers calls to the real book on virtual time.
//!
//! Each call is reserved when it arrives; an admitted one streams at its pace and is settled with the truth when its last
//! llm_token has landed. On a forecast account the streams are told of every two seconds, as a gateway does. A refused
//! call is gone: nobody asks again. At one instant ends come first, then what is told, then arrivals.
//! Invariant: every verb is answered as the ledger answers a call that was booked and not yet ended; any other answer is
//! an error, never a figure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollbook_ledger::units::PROGRESS_ACCOUNTS_MAX;
use tollbook_ledger::{
    Book, Event, Full, Growth, Log, Met, Micros, Profile, Refusal, Renew, Renewed, ReservationId, Reserve,
    SECOND, Settle, Verdict,
};

use crate::counts::{index, wide};
use crate::limits::Limits;
use crate::offer::{Call, Offer};
use crate::settings::{Booking, Place, Settings};
use crate::teller::Teller;

/// Book time of the trace's beginning: a full minute.
const START: Micros = 1_800_000_000 * SECOND;
/// Holds outlive every stream here: gateways that die are no part of this.
const LIFE: Micros = 365 * 86_400 * SECOND;
/// Calls between two rounds of forgetting, and two reports of progress.
const ROUND: usize = 4_096;
const PRUNE_MAX: usize = 16_384;
/// Least bound of a model's output.
const MODEL_CAP_MIN: u64 = 4_096;

/// What became of one call, as the judge sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Number of the call in its trace, from 0.
    pub id: u64,
    pub arrival: Micros,
    pub key: u32,
    /// Account it was booked on.
    pub account: u32,
    pub admitted: bool,
    /// When its first llm_token lands, or would.
    pub start: Micros,
    /// Time per llm_token after that.
    pub pace: Micros,
    pub input: u64,
    pub output: u64,
    /// What was held or planned for it in all, or would have been.
    pub expected: u64,
}

/// All decisions, in the order of arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    pub decisions: Vec<Decision>,
}

/// The ledger gave an answer that cannot be here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("call {call}: the ledger refused the command: {refusal}")]
    Refused { call: usize, refusal: Refusal },
    #[error("call {call}: unexpected answer of the ledger: {answer}")]
    Answer { call: usize, answer: String },
}

/// Throws events away: a simulation is not recovered.
pub(crate) struct NoLog;

impl Log for NoLog {
    fn append(&mut self, _: &Event<'_>) -> Result<(), Full> {
        Ok(())
    }
}

/// Replays every call; `progress` hears from time to time how many are done.
pub fn replay(
    offer: &Offer,
    settings: &Settings,
    limits: &Limits,
    progress: &mut dyn FnMut(usize),
) -> Result<Replay, ReplayError> {
    let mut run = Run::new(offer, settings, limits);
    for (number, call) in offer.calls.iter().enumerate() {
        run.go_to(START.saturating_add(call.arrival))?;
        run.arrive(number, call)?;
        if number.is_multiple_of(ROUND) {
            let forgotten = run.book.prune(START.saturating_add(call.arrival), PRUNE_MAX, &mut NoLog);
            forgotten.map_err(|refusal| ReplayError::Refused { call: number, refusal })?;
            progress(number);
        }
    }
    run.go_to(Micros::MAX)?;
    progress(offer.calls.len());
    Ok(Replay { decisions: run.decisions })
}

struct Run<'a> {
    offer: &'a Offer,
    settings: &'a Settings,
    limits: &'a Limits,
    book: Book,
    /// Engine time at which live streams end, soonest first.
    ends: BinaryHeap<Reverse<(Micros, usize)>>,
    /// Of a forecast booking: the gateways that share the book.
    tellers: Vec<Teller>,
    model_cap: u64,
    reserve: Reserve,
    settle: Settle,
    decisions: Vec<Decision>,
}

impl<'a> Run<'a> {
    fn new(offer: &'a Offer, settings: &'a Settings, limits: &'a Limits) -> Self {
        let longest = offer.calls.iter().map(|call| call.output).max().unwrap_or(0);
        let (id, profile) = (ReservationId(0), Profile::default());
        let legs = vec![settings.leg()];
        Self {
            offer,
            settings,
            limits,
            book: Book::new(),
            ends: BinaryHeap::new(),
            tellers: match settings.booking {
                Booking::Forecast { .. } => Teller::all(START, settings.gateways),
                Booking::Held(_) => Vec::new(),
            },
            model_cap: longest.max(MODEL_CAP_MIN),
            reserve: Reserve { id, attempt: 0, life: LIFE, profile, legs, context: Vec::new() },
            settle: Settle { id, attempt: 0, actual: vec![0], landed: 0, learn: None },
            decisions: Vec::with_capacity(offer.calls.len()),
        }
    }

    fn arrive(&mut self, number: usize, call: &Call) -> Result<(), ReplayError> {
        let account = self.limits.account(call.key);
        let now = START.saturating_add(call.arrival);
        let place = Place { now, account, ceiling: self.limits.ceiling(account), model_cap: self.model_cap };
        self.reserve.id = id(number);
        self.reserve.profile =
            teller_of(&mut self.tellers, number).map_or_else(Profile::default, |teller| teller.profile());
        for leg in &mut self.reserve.legs {
            self.settings.fill(leg, call, &place);
        }
        let verdict = self.book.reserve(now, &self.reserve, &mut NoLog);
        let verdict = verdict.map_err(|refusal| ReplayError::Refused { call: number, refusal })?;
        let (admitted, expected) = match &verdict {
            Verdict::Admit(receipt) => {
                (receipt.legs.first(), receipt.legs.first().map_or(0, |leg| leg.expected))
            }
            Verdict::Deny(denial) => (None, denial.binding.demand),
            other => return Err(ReplayError::Answer { call: number, answer: format!("{other:?}") }),
        };
        if let Some(receipt) = admitted {
            self.ends.push(Reverse((START.saturating_add(call.end()), number)));
            let teller = teller_of(&mut self.tellers, number);
            if let (Some(teller), Some(leg)) = (teller, self.reserve.legs.first()) {
                teller.admitted(now, number, leg, receipt.output);
            }
        }
        self.decisions.push(Decision {
            id: wide(number),
            arrival: call.arrival,
            key: call.key,
            account,
            admitted: admitted.is_some(),
            start: call.arrival.saturating_add(call.first),
            pace: call.pace,
            input: call.input,
            output: call.output,
            expected,
        });
        Ok(())
    }

    /// Does what happens up to an engine time, that included: streams end, and are told of.
    fn go_to(&mut self, until: Micros) -> Result<(), ReplayError> {
        loop {
            let end = self.ends.peek().map(|Reverse(end)| *end);
            let next = self.tellers.iter().enumerate().filter_map(|(at, teller)| Some((teller.next()?, at)));
            let tells = next.min().filter(|(tells, _)| *tells <= until);
            match (end, tells) {
                (Some((end, number)), tells)
                    if end <= until && tells.is_none_or(|(tells, _)| end <= tells) =>
                {
                    self.ends.pop();
                    self.end(end, number)?;
                }
                (_, Some((tells, gateway))) => self.tell(tells, gateway)?,
                _ => return Ok(()),
            }
        }
    }

    fn end(&mut self, now: Micros, number: usize) -> Result<(), ReplayError> {
        let Some(call) = self.offer.calls.get(number) else { return Ok(()) };
        if let Some(teller) = teller_of(&mut self.tellers, number) {
            teller.ended(now, number, call, START.saturating_add(call.arrival));
        }
        self.settle.id = id(number);
        (self.settle.landed, self.settle.learn) = (call.output, Some(call.output));
        for actual in &mut self.settle.actual {
            *actual = self.settings.counted.of(call.input, call.output);
        }
        let settled = self.book.settle(now, &self.settle, &mut NoLog);
        match settled.map_err(|refusal| ReplayError::Refused { call: number, refusal })?.before {
            Met::Held => Ok(()),
            met => Err(ReplayError::Answer { call: number, answer: format!("{met:?}") }),
        }
    }

    /// A gateway's round, and what it has said once that has arrived.
    fn tell(&mut self, now: Micros, gateway: usize) -> Result<(), ReplayError> {
        let Some(teller) = self.tellers.get_mut(gateway) else { return Ok(()) };
        let seen = |number: usize| {
            let call = self.offer.calls.get(number);
            call.map_or((0, now), |call| {
                let arrival = START.saturating_add(call.arrival);
                (call.streamed(now.saturating_sub(START)), arrival.saturating_add(call.first))
            })
        };
        let mut said = teller.arrived(now);
        if said.is_none() {
            teller.round(now, seen);
            said = teller.arrived(now);
        }
        let Some(said) = said else { return Ok(()) };
        for (number, output) in said.outgrown {
            let renew = Renew {
                id: id(number),
                attempt: 0,
                life: LIFE,
                sent: true,
                growth: Growth::Unchanged,
                outgrown: Some(output),
            };
            let renewed = self.book.renew(now, &renew, &mut NoLog);
            match renewed.map_err(|refusal| ReplayError::Refused { call: number, refusal })? {
                // It may have ended while this was under way.
                Renewed::Held(_) | Renewed::Ended(_) => {}
                other => return Err(ReplayError::Answer { call: number, answer: format!("{other:?}") }),
            }
        }
        for batches in said.batches.chunks(PROGRESS_ACCOUNTS_MAX) {
            let told = self.book.progress(now, batches, &mut NoLog);
            let call = self.decisions.len();
            told.map_err(|refusal| ReplayError::Refused { call, refusal })?;
        }
        Ok(())
    }
}

/// Calls go round the gateways.
fn teller_of(tellers: &mut [Teller], number: usize) -> Option<&mut Teller> {
    tellers.get_mut(number.checked_rem(tellers.len())?)
}

fn id(number: usize) -> ReservationId {
    ReservationId(u128::from(wide(number)) + 1)
}

/// The decisions as CSV, with the names of keys.
pub fn csv(decisions: &[Decision], keys: &[String]) -> String {
    use std::fmt::Write as _;
    let mut out =
        String::from("id,arrival_s,key,admitted,start_s,pace_s,input_tokens,output_tokens,expected_tokens\n");
    let seconds = |time: Micros| format!("{}.{:06}", time / SECOND, time % SECOND);
    for decision in decisions {
        let key = keys.get(index(u64::from(decision.key))).map_or("", String::as_str);
        // Writing into a string cannot fail.
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{}",
            decision.id,
            seconds(decision.arrival),
            crate::trace::quoted(key),
            u8::from(decision.admitted),
            seconds(decision.start),
            seconds(decision.pace),
            decision.input,
            decision.output,
            decision.expected
        );
    }
    out
}
