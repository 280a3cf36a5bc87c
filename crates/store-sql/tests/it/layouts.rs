//! Databases of earlier layouts with entries in them, as an earlier version left them.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tollbook_store::{Entry, Journal as _};
use tollbook_store_sql::{Place, SqlStore};

use crate::make::{Other, World, store};

const SQLITE: [&str; 7] = [
    include_str!("../../sql/sqlite/migrations/0001_journal.sql"),
    include_str!("../../sql/sqlite/migrations/0002_limit_history.sql"),
    include_str!("../../sql/sqlite/migrations/0003_fleet.sql"),
    include_str!("../../sql/sqlite/migrations/0004_objects.sql"),
    include_str!("../../sql/sqlite/migrations/0005_marks.sql"),
    include_str!("../../sql/sqlite/migrations/0006_prices_and_jobs.sql"),
    include_str!("../../sql/sqlite/migrations/0007_days.sql"),
];
const MYSQL: [&str; 7] = [
    include_str!("../../sql/mysql/migrations/0001_journal.sql"),
    include_str!("../../sql/mysql/migrations/0002_limit_history.sql"),
    include_str!("../../sql/mysql/migrations/0003_fleet.sql"),
    include_str!("../../sql/mysql/migrations/0004_objects.sql"),
    include_str!("../../sql/mysql/migrations/0005_marks.sql"),
    include_str!("../../sql/mysql/migrations/0006_prices_and_jobs.sql"),
    include_str!("../../sql/mysql/migrations/0007_days.sql"),
];
const LAYOUTS: &str = "CREATE TABLE tollbook_layout (layout SMALLINT NOT NULL, step SMALLINT NOT NULL, \
     PRIMARY KEY (layout, step)) ENGINE = InnoDB";

/// Of the layout that divides the journal by day.
pub(crate) const DAYS: usize = 7;

/// The steps of a layout on a server.
pub(crate) fn steps(layout: usize) -> Vec<String> {
    let lines = MYSQL[layout - 1].lines().filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let steps = text.split(';').map(str::trim).filter(|one| !one.is_empty());
    steps.map(|step| step.replace("/*days*/", "")).collect()
}

/// A database of this name on a server, or the file.
pub(crate) async fn database(world: &World, name: &str) -> (Place, Other) {
    match world {
        World::File(_) => (world.place(), world.other().await),
        World::Server(server) => {
            world.change(&format!("CREATE DATABASE IF NOT EXISTS {name}")).await;
            let url = server.url_of(name);
            let options: MySqlConnectOptions = url.parse().unwrap();
            (url.parse().unwrap(), Other::Server(options.connect().await.unwrap()))
        }
    }
}

/// Makes a layout and fills it with entries, their sums and totals.
pub(crate) async fn make(other: &mut Other, layout: usize, entries: &[Entry]) {
    match other {
        Other::File(_) => {
            for text in &SQLITE[..layout] {
                other.say(text).await;
            }
            let marks = "PRAGMA application_id = 1414283851; PRAGMA journal_mode = WAL";
            other.say(&format!("PRAGMA user_version = {layout}; {marks}")).await;
        }
        Other::Server(_) => {
            other.say(LAYOUTS).await;
            for (at, text) in MYSQL[..layout].iter().enumerate() {
                other.say(text).await;
                let (layout, steps) = (at + 1, steps(at + 1).len());
                other.say(&format!("INSERT INTO tollbook_layout VALUES ({layout}, {steps})")).await;
            }
        }
    }
    let has_shards = layout >= 3 || matches!(other, Other::Server(_));
    for insert in inserts(entries, layout, has_shards).await {
        other.say(&insert).await;
    }
}

/// What entries are in the tables of a layout before the journal was divided by day.
async fn inserts(entries: &[Entry], layout: usize, has_shards: bool) -> Vec<String> {
    let (dir, made) = store().await;
    for some in entries.chunks(tollbook_store::BATCH_MAX) {
        made.append(some).await.unwrap();
    }
    made.close().await;
    let world = World::File(dir);
    let Other::File(mut connection) = world.other().await else { panic!("a server") };
    let rows = texts(
        &mut connection,
        "SELECT format('(%d,X''%s'',%d,%d,%d,%d,%d,%d,%d,%d,%Q,%Q,%Q,%Q,%Q)', place, hex(reservation), side, attempt, \
         seq, unbooked, origin, admitted_at, ended_at, requests, request_id, tenant, pool, posted, body) FROM entry_row",
    )
    .await;
    let (columns, sums) = if has_shards {
        (
            "subject, account, period, amount, shard",
            "SELECT format('(%d,%d,%d,%d,%d)', subject, account, period, amount, shard) FROM posted",
        )
    } else {
        (
            "subject, account, period, amount",
            "SELECT format('(%d,%d,%d,%d)', subject, account, period, amount) FROM posted",
        )
    };
    let sums = texts(&mut connection, sums).await;
    let totals = texts(
        &mut connection,
        "SELECT format('(%d,%d,%Q,%Q,%Q,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d)', day, side, tenant, pool, model, \
         entries, requests, input, cached, cache_write, cache_write_1h, output, reasoning, audio_input, audio_output, \
         image_input, web_searches, cost_nano) FROM total",
    )
    .await;
    let mut inserts = vec![
        format!("INSERT INTO entry VALUES {rows}"),
        format!("INSERT INTO posted ({columns}) VALUES {sums}"),
        format!("INSERT INTO total VALUES {totals}"),
    ];
    if layout >= 3 {
        let ends = texts(&mut connection, "SELECT format('(%d,%d)', shard, ended_at) FROM shard_end").await;
        inserts.push(format!("INSERT INTO shard_end VALUES {ends}"));
    }
    inserts
}

async fn texts(connection: &mut SqliteConnection, question: &'static str) -> String {
    let texts: Vec<String> = sqlx::query_scalar(question).fetch_all(connection).await.unwrap();
    texts.join(",")
}

/// Opens it, as a gateway of this version does.
pub(crate) async fn opened(place: &Place) -> SqlStore {
    SqlStore::open(place.clone()).await.unwrap()
}
