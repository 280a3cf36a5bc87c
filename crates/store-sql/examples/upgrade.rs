//! How long a store of the sixth layout with a million entries takes to open:
//! `cargo run -p tollbook-store-sql --example upgrade` for a file, with `mariadb` behind `--` for a server of its own.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::time::Instant;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tollbook_sql_world::Server;
use tollbook_store_sql::{Place, SqlStore};

const SQLITE: [&str; 6] = [
    include_str!("../sql/sqlite/migrations/0001_journal.sql"),
    include_str!("../sql/sqlite/migrations/0002_limit_history.sql"),
    include_str!("../sql/sqlite/migrations/0003_fleet.sql"),
    include_str!("../sql/sqlite/migrations/0004_objects.sql"),
    include_str!("../sql/sqlite/migrations/0005_marks.sql"),
    include_str!("../sql/sqlite/migrations/0006_prices_and_jobs.sql"),
];
const MYSQL: [&str; 6] = [
    include_str!("../sql/mysql/migrations/0001_journal.sql"),
    include_str!("../sql/mysql/migrations/0002_limit_history.sql"),
    include_str!("../sql/mysql/migrations/0003_fleet.sql"),
    include_str!("../sql/mysql/migrations/0004_objects.sql"),
    include_str!("../sql/mysql/migrations/0005_marks.sql"),
    include_str!("../sql/mysql/migrations/0006_prices_and_jobs.sql"),
];
/// Of the last days, in the order of their ends; ids as if random.
const COLUMNS: &str = "0, 0, 0, 0, 0, (NOW - 1000000 + i) * 1000000, (NOW - 1000000 + i) * 1000000 + 5, 1";
const TEXTS: &str = "'[[1,1,1772323200,310],[1,2,1772323200,310]]', \
     '{\"p\":\"semantic-search\",\"k\":\"key-1\",\"m\":\"gpt-5-mini\",\"ui\":1234,\"uo\":310,\"c\":1234567,\"d\":812}'";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("mariadb") {
        let server = Server::start();
        let mut raw = server.url().parse::<MySqlConnectOptions>()?.connect().await?;
        let mut script = MYSQL.join("\n");
        script.push_str("CREATE TABLE tollbook_layout (layout SMALLINT NOT NULL, step SMALLINT NOT NULL, PRIMARY KEY (layout, step)) ENGINE = InnoDB; INSERT INTO tollbook_layout VALUES (6, 2);");
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut raw).await?;
        let columns = COLUMNS.replace("NOW", "UNIX_TIMESTAMP()").replace("i)", "seq)");
        let fill = format!(
            "INSERT INTO entry SELECT seq, UNHEX(MD5(seq)), {columns}, CONCAT('req_', MD5(seq)), CONCAT('tenant-', seq % 50), 'openai-europe', {TEXTS} FROM seq_1_to_1000000"
        );
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(&mut raw).await?;
        raw.close().await?;
        return timed(server.url().parse()?).await;
    }
    let folder = std::env::temp_dir().join(format!("tollbook-upgrade-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("store.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true).page_size(16_384);
    let mut raw = options.connect().await?;
    let script = format!(
        "{}; PRAGMA user_version = 6; PRAGMA application_id = 1414283851; PRAGMA journal_mode = WAL",
        SQLITE.join("\n")
    );
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut raw).await?;
    let columns = COLUMNS.replace("NOW", "unixepoch()");
    let fill = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
         INSERT INTO entry SELECT i, randomblob(16), {columns}, 'req_' || hex(randomblob(16)), 'tenant-' || (i % 50), 'openai-europe', {TEXTS} FROM n"
    );
    sqlx::raw_sql(AssertSqlSafe(fill)).execute(&mut raw).await?;
    raw.close().await?;
    let done = timed(Place::File(path)).await;
    std::fs::remove_dir_all(&folder)?;
    done
}

async fn timed(place: Place) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let store = SqlStore::open(place).await?;
    println!("brought up to date in {:.1} s", start.elapsed().as_secs_f64());
    store.close().await;
    Ok(())
}
