//! The life of one call through the real admission.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tollbook_admission::{Asking, Ending, Leave, Outcome, Refused, Ticket};
use tollbook_engine_suite::random::Random;
use tollbook_wire::{Classes, Surface, Usage, decode_request};

use super::catalog;
use super::gateway::Gateway;
use super::store::{Record, Truth};

/// How a call will go.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    api_key: String,
    model: String,
    /// Words of the question, and of the whole answer.
    question: usize,
    answer: usize,
    cap: Option<u64>,
    stream: bool,
    first_byte: Duration,
    span: Duration,
    retries: u64,
    ending: Way,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    NeverSent,
    ProviderError,
    Reported,
    Unreported,
    Reset,
    Blind,
    /// The body is dropped without a word.
    Dropped,
}

impl Fate {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let (api_key, model) = catalog::any_caller(random);
        let size = |random: &mut Random, most| usize::try_from(1 + random.below(most)).unwrap_or(1);
        let span = match random.below(10) {
            0 => 20_000 + random.below(60_000),
            1 | 2 => 5_000 + random.below(15_000),
            _ => random.below(3_000),
        };
        let ending = match random.below(20) {
            0 => Way::NeverSent,
            1 | 2 => Way::ProviderError,
            3 => Way::Unreported,
            4 => Way::Reset,
            5 => Way::Blind,
            6 => Way::Dropped,
            _ => Way::Reported,
        };
        Self {
            api_key,
            model,
            question: size(random, 120),
            answer: size(random, 250),
            cap: random.one_in(2).then(|| 1 + random.below(400)),
            stream: random.one_in(2),
            first_byte: Duration::from_millis(10 + random.below(1500)),
            span: Duration::from_millis(span),
            retries: if random.one_in(8) { 1 + random.below(2) } else { 0 },
            ending,
        }
    }

    fn body(&self) -> String {
        let cap = self.cap.map(|cap| format!(r#""max_tokens":{cap},"#)).unwrap_or_default();
        let question = "word ".repeat(self.question);
        format!(
            r#"{{"model":"{}",{cap}"stream":{},"messages":[{{"role":"user","content":"{question}"}}]}}"#,
            self.model, self.stream
        )
    }
}

/// Lives a call; what the provider told is in its record before the gateway hears of it.
pub(crate) async fn live(gateway: Arc<Gateway>, fate: Fate, request_id: Arc<str>, record: Arc<Record>) {
    let bank = Arc::clone(gateway.bank());
    bank.stats(|stats| stats.calls += 1);
    let mut ticket = match admit(&gateway, &fate, &request_id).await {
        Ok(Some(ticket)) => ticket,
        Ok(None) => return,
        Err(finding) => return bank.fail(finding),
    };
    sleep(Duration::from_millis(3)).await;
    if fate.ending == Way::NeverSent {
        return ticket.end(&Outcome::never_sent());
    }
    ticket.sending();
    for _ in 0..fate.retries {
        sleep(fate.first_byte).await;
        bank.stats(|stats| stats.retries += 1);
        if ticket.tried_again().await.is_err() {
            return ticket.end(&Outcome::upstream_error());
        }
        ticket.sending();
    }
    sleep(fate.first_byte).await;
    relay(&gateway, fate, ticket, request_id, &record).await;
}

/// A ticket, or nothing if a limit refused; what must never be answered is a finding.
async fn admit(gateway: &Gateway, fate: &Fate, request_id: &Arc<str>) -> Result<Option<Ticket>, String> {
    let admission = gateway.admission();
    let body = fate.body();
    let request = decode_request(Surface::Chat, body.as_bytes()).map_err(|error| format!("{error:?}"))?;
    let principal = admission.identify_in(&admission.snapshot(), &fate.api_key, None).await;
    let principal = principal.map_err(|refused| format!("{refused:?}"))?;
    let asking = Asking {
        principal: &principal,
        request: &request,
        body: body.as_bytes(),
        service: None,
        user: None,
        task: None,
        request_id,
        way: tollbook_admission::Way::Surface,
    };
    match admission.admit(asking).await {
        Ok(admitted) => Ok(Some(admitted.ticket)),
        Err(Refused::Limit(limit)) => {
            gateway.bank().stats(|stats| stats.denied_by_pool += u64::from(limit.pool));
            Ok(None)
        }
        Err(Refused::Away { .. } | Refused::Stopping) => Ok(None),
        Err(other) => Err(format!("a call was refused with {other:?}")),
    }
}

async fn relay(gateway: &Gateway, fate: Fate, ticket: Ticket, request_id: Arc<str>, record: &Record) {
    if fate.ending == Way::ProviderError {
        return ticket.end(&Outcome::upstream_error());
    }
    let began = tokio::time::Instant::now();
    let mut words = 0;
    while began.elapsed() < fate.span {
        sleep(fate.span.saturating_sub(began.elapsed()).min(Duration::from_millis(700))).await;
        if gateway.is_stopping.load(Ordering::Relaxed) {
            return end(ticket, Ending::Shutdown, words, None);
        }
        let share = began.elapsed().as_millis().min(fate.span.as_millis());
        words = usize::try_from(fate.answer as u128 * share / fate.span.as_millis().max(1)).unwrap_or(0);
        if ticket.streamed(&said(words), Some(Instant::now()), None) == Leave::Stop {
            gateway.bank().stats(|stats| stats.stopped_at_limit += 1);
            return end(ticket, Ending::StoppedAtLimit, words, None);
        }
    }
    let words = fate.answer;
    match fate.ending {
        Way::Reported => {
            let (input, output) = (fate.question as u64 + 9, words as u64 + 1);
            let truth = Truth {
                input: input.cast_signed(),
                output: output.cast_signed(),
                gateway_died: Arc::clone(&gateway.has_died),
            };
            record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(request_id, truth);
            let usage = Usage {
                input,
                output,
                input_reported: true,
                output_reported: true,
                complete: true,
                ..Usage::default()
            };
            end(ticket, Ending::Complete, words, Some(usage));
        }
        Way::Unreported => end(ticket, Ending::Complete, words, None),
        Way::Blind => ticket.end(&Outcome::buffered_cut(Ending::Timeout)),
        Way::Dropped => drop(ticket),
        Way::Reset | Way::NeverSent | Way::ProviderError => end(ticket, Ending::Reset, words / 2, None),
    }
}

fn end(ticket: Ticket, ending: Ending, words: usize, usage: Option<Usage>) {
    let output = said(words);
    ticket.end(&Outcome { usage, output, output_seen: words > 0, ..Outcome::bare(ending) });
}

fn said(words: usize) -> Classes {
    Classes::of(&"word ".repeat(words))
}
