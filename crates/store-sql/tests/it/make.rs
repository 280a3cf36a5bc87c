//! Stores in a fresh directory, and entries to put into them.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, MySqlConnection, SqliteConnection};
use tempfile::TempDir;
use tollbook_ledger::units::SECOND;
use tollbook_ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_sql_world::Server;
use tollbook_store::{
    Day, DayRange, Ending, Entry, EntryBody, Figures, Flags, Hold, Journal, Name, Origin, Overrun, Side,
    Total, TotalsQuery, Usage,
};
use tollbook_store_sql::{Place, SqlStore};

/// 2026-03-01 00:00 UTC.
pub(crate) const DAY_0: u32 = 20_513;
pub(crate) const DAY_MICROS: u64 = 86_400 * SECOND;

pub(crate) async fn store() -> (TempDir, SqlStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqlStore::open(&dir.path().join("store.db")).await.unwrap();
    (dir, store)
}

/// Runs the functions once on a file and once on a server.
macro_rules! both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::make::World::file()).await;
            })+
        }

        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::make::World::server()).await;
            })+
        }
    };
}
pub(crate) use both;

/// A place for one store, empty at first.
pub(crate) enum World {
    File(TempDir),
    Server(Server),
}

/// A connection beside the store's own.
pub(crate) enum Other {
    File(SqliteConnection),
    Server(MySqlConnection),
}

impl World {
    pub(crate) fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    pub(crate) fn server() -> Self {
        Self::Server(Server::start())
    }

    pub(crate) fn place(&self) -> Place {
        match self {
            Self::File(dir) => Place::File(dir.path().join("store.db")),
            Self::Server(server) => server.url().parse().unwrap(),
        }
    }

    /// Each store that is opened stands for a process of its own.
    pub(crate) async fn open(&self) -> SqlStore {
        SqlStore::open(self.place()).await.unwrap()
    }

    pub(crate) async fn other(&self) -> Other {
        match self {
            Self::File(dir) => {
                let options = SqliteConnectOptions::new().filename(dir.path().join("store.db"));
                let options = options.create_if_missing(true);
                Other::File(options.connect().await.unwrap())
            }
            Self::Server(server) => {
                let options: MySqlConnectOptions = server.url().parse().unwrap();
                Other::Server(options.connect().await.unwrap())
            }
        }
    }

    /// The clock is the database's: instead of waiting, what it has written is made older.
    pub(crate) async fn change(&self, statement: &str) {
        let mut other = self.other().await;
        other.say(statement).await;
        other.close().await;
    }
}

impl Other {
    pub(crate) async fn say(&mut self, statement: &str) {
        let statement = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
        match self {
            Self::File(connection) => drop(statement.execute(connection).await.unwrap()),
            Self::Server(connection) => drop(statement.execute(connection).await.unwrap()),
        }
    }

    /// The first column of an answer, of a server.
    pub(crate) async fn numbers(&mut self, question: &str) -> Vec<i64> {
        let Self::Server(connection) = self else { panic!("a file") };
        let question = AssertSqlSafe(question.to_owned());
        sqlx::query_scalar(question).fetch_all(connection).await.unwrap()
    }

    /// Takes the turn of those that write, until it is given back by `COMMIT`.
    pub(crate) async fn take_turn(&mut self) {
        match self {
            Self::File(_) => self.say("BEGIN IMMEDIATE").await,
            Self::Server(_) => self.say("START TRANSACTION; UPDATE turn SET taken = taken + 1").await,
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::File(connection) => connection.close().await.unwrap(),
            Self::Server(connection) => connection.close().await.unwrap(),
        }
    }
}

pub(crate) fn at(day: u32, second: u64) -> u64 {
    u64::from(DAY_0 + day) * DAY_MICROS + second * SECOND
}

/// A settled call of tenant `acme` on day 0, with usage and one quota leg.
pub(crate) fn call(id: u128) -> Entry {
    Entry {
        reservation: ReservationId(id),
        attempt: 0,
        seq: 0,
        origin: Origin::Settled,
        admitted_at: at(0, 10),
        ended_at: at(0, 12),
        requests: 1,
        posted: vec![leg(1, 1, 100, 15)],
        body: EntryBody {
            request_id: Name::from(format!("req_{id}")),
            tenant: Name::from("acme"),
            project: Name::from("search"),
            key: Name::from("key-1"),
            model_asked: Name::from("fast"),
            model_priced: Name::from("gpt-5"),
            model_used: Name::from("gpt-5"),
            pool: Name::from("openai"),
            usage: Usage { input: 10, cached: 4, output: 5, reasoning: 2, ..Usage::default() },
            cost_nano: 8_000,
            price_version: 3,
            ..EntryBody::default()
        },
    }
}

/// An entry with something in every column.
pub(crate) fn full(id: u128) -> Entry {
    let entry = call(id);
    Entry {
        attempt: 2,
        seq: 1,
        origin: Origin::Late,
        posted: vec![leg(u64::MAX, 1 << 63, u64::from(DAY_0) * 86_400, -7), leg(2, 3, 0, 9)],
        requests: -1,
        body: EntryBody {
            side: Side::Pool,
            service: Name::from("ranker"),
            user: Name::from("u-é\"\\7"),
            usage: Usage {
                input: -1,
                cached: 2,
                cache_write: 3,
                cache_write_1h: 4,
                output: 5,
                reasoning: 6,
                audio_input: 7,
                audio_output: 8,
                image_input: 9,
                web_searches: 10,
            },
            cost_nano: -11,
            price_version: u64::MAX,
            hold: Hold {
                input_llm_tokens: 12,
                expected_llm_tokens: 13,
                worst_llm_tokens: 14,
                expected_cost_nano: 15,
                worst_cost_nano: 16,
                charged_on_expiry: true,
            },
            figures: Figures::Partial,
            ending: Ending::ClientGone,
            overrun: Overrun { llm_tokens: 17, cost_nano: 18 },
            ladder: vec![Name::from("wait 1"), Name::from("clamp 2")],
            latency_ms: u32::MAX,
            ttft_ms: Some(0),
            attempts: u16::MAX,
            flags: Flags { unpriced: true, degraded: true, shortened: true, damaged: true },
            ..entry.body
        },
        ..entry
    }
}

pub(crate) fn leg(subject: u64, name: u64, period: u64, amount: i64) -> Posted {
    Posted { account: AccountId { subject: SubjectId(subject), name }, period, amount }
}

/// All totals of one side.
pub(crate) async fn totals(store: &SqlStore, side: Side) -> Vec<Total> {
    let days = DayRange { from: Day(0), to: Day(u32::MAX) };
    let all = Name::default;
    store.totals(&TotalsQuery { days, side, tenant: all(), pool: all(), model: all() }).await.unwrap()
}
