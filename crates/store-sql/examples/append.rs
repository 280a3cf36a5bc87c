//! Entries per second into a fresh file, and CPU time per entry:
//! `cargo run --release -p tollbook-store-sql --example append`; into an empty database with its URL behind `--`, or
//! with `mariadb` into a server of its own.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::time::Instant;

use tollbook_ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_store::{BATCH_MAX, Entry, EntryBody, Journal, Name, Origin, Usage};
use tollbook_store_sql::{Place, SqlStore};

const ENTRIES: u128 = 100_000;

fn entry(id: u128) -> Entry {
    let subject = SubjectId(u64::try_from(id % 50).unwrap_or(0));
    let leg = |name| Posted { account: AccountId { subject, name }, period: 1_772_323_200, amount: 310 };
    Entry {
        // Ids as a gateway makes them: random, then counted.
        reservation: ReservationId((0x9e37_79b9_7f4a_7c15 << 64) + id),
        attempt: 0,
        seq: 0,
        origin: Origin::Settled,
        admitted_at: 1_772_323_200_000_000,
        ended_at: 1_772_323_200_000_000 + u64::try_from(id).unwrap_or(0),
        requests: 1,
        posted: vec![leg(1), leg(2)],
        body: EntryBody {
            request_id: Name::from(format!("req_{id:032x}")),
            tenant: Name::from(format!("tenant-{}", id % 50)),
            project: Name::from("semantic-search"),
            key: Name::from(format!("key-{}", id % 500)),
            model_used: Name::from("gpt-5-mini"),
            pool: Name::from("openai-europe"),
            usage: Usage { input: 1_234, output: 310, ..Usage::default() },
            cost_nano: 1_234_567,
            ..EntryBody::default()
        },
    }
}

/// The kernel counts in hundredths of a second.
const MICROS_PER_TICK: u64 = 10_000;

/// User and system time of this process.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args().nth(1);
    let own = (given.as_deref() == Some("mariadb")).then(tollbook_sql_world::Server::start);
    let url = own.as_ref().map(tollbook_sql_world::Server::url).or(given);
    let server: Option<Place> = url.map(|url| url.parse()).transpose()?;
    let folder = std::env::temp_dir().join(format!("tollbook-append-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let entries: Vec<Entry> = (0..ENTRIES).map(entry).collect();
    let mut rest = entries.as_slice();
    for batch in [BATCH_MAX, 64, 1] {
        let file = || Place::File(folder.join(format!("{batch}.db")));
        let store = SqlStore::open(server.clone().unwrap_or_else(file)).await?;
        let share = entries.len() * batch / (BATCH_MAX + 64 + 1);
        let Some((some, more)) = rest.split_at_checked(share) else { break };
        rest = more;
        let (start, cpu) = (Instant::now(), cpu_ticks());
        for part in some.chunks(batch) {
            store.append(part).await?;
        }
        let per_second = share as u128 * 1_000_000 / start.elapsed().as_micros().max(1);
        let cpu = cpu_ticks().saturating_sub(cpu) * MICROS_PER_TICK / (share as u64).max(1);
        println!("batches of {batch}: {per_second} entries per second, {cpu} µs of CPU each");
        store.close().await;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
