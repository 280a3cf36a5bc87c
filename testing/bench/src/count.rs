//! Counting of input: bytes per second and core, on this thread's CPU time.
//!
//! Texts of a mebibyte: prose, code, Chinese. The classes look at the text alone; the exact rows are the vocabulary over
//! the same text in one piece, which is how a long message comes.
//! Invariant: each count is compared with the first of its text; another one ends the run.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use tollbook_pricing::Vocabulary;
use tollbook_wire::Classes;

use crate::report::{Must, Row, median};

const MEBIBYTE: usize = 1 << 20;
const MIB: f64 = 1_048_576.0;
const ENGLISH: &str = "The ferry leaves at half past seven, unless the wind turns; then nobody leaves, and the baker \
    sells his rolls on the pier. Ask the woman in the yellow coat, she has lived here for thirty years.\n\n";
const CODE: &str = "fn held(book: &Book, account: AccountId) -> u64 {\n    let live = book.live(account);\n    \
    live.map(|hold| hold.amount).sum::<u64>() // between verbs it is the sum\n}\n\n";
const CHINESE: &str = "渡船七点半开,要是变了风向,就谁也走不成,面包师会把面包拿到码头上来卖。问问穿黄大衣的那位女士,她在这里住了三十年。\n\n";

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub rounds: u32,
    pub round: Duration,
}

pub fn rows(plan: Plan) -> Result<Vec<Row>> {
    let texts = [("prose", ENGLISH), ("code", CODE), ("Chinese", CHINESE)];
    let mut rows = Vec::new();
    for (name, text) in texts {
        let text = of_a_mebibyte(text);
        let classes = speed(plan, &text, |text| Ok(black_box(Classes::of(text)).bytes))? / 1_024.0;
        let must = Some(Must::ValueAtLeast(1.0));
        rows.push(Row::single(&format!("byte classes, {name}, per core"), "GiB/s", classes, must));
    }
    for (name, text) in texts {
        let text = of_a_mebibyte(text);
        let exact = speed(plan, &text, |text| Ok(Vocabulary::O200k.count(text)))?;
        let must = Some(Must::ValueAtLeast(15.0));
        rows.push(Row::single(&format!("exact count, {name}, per core"), "MiB/s", exact, must));
    }
    Ok(rows)
}

/// Whole repetitions, as many as a mebibyte has room for.
fn of_a_mebibyte(text: &str) -> String {
    text.repeat((MEBIBYTE / text.len()).max(1))
}

/// MiB per second of CPU, the median of the rounds.
fn speed(plan: Plan, text: &str, mut count: impl FnMut(&str) -> Result<u64>) -> Result<f64> {
    // tables load with the first count
    let first = count(text)?;
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        let (before, mut counted) = (thread_time(), 0_usize);
        let took = loop {
            ensure!(count(black_box(text))? == first, "one text was counted in two ways");
            counted += text.len();
            let took = thread_time().saturating_sub(before);
            if took >= plan.round {
                break took;
            }
        };
        rounds.push(counted as f64 / MIB / took.as_secs_f64());
    }
    Ok(median(rounds))
}

fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
