//! A database of an earlier layout, with something in it, is brought up to date: its schema is a fresh one's, and what was in
//! it is found the new way.

use tollbook_ledger::{AccountId, ReservationId, SubjectId};
use tollbook_store::{Fleet, Journal, LimitHistory, ObjectKind, ObjectName, ObjectStore, shard_of};

use crate::layouts::{DAYS, database, make, opened};
use crate::make::{Other, World, both, call};

both!(
    a_store_of_the_fourth_layout_is_brought_up_to_date,
    entries_of_every_earlier_layout_are_brought_up_to_date
);

/// What the fourth layout has of operators: keys of two tenants, one of them rotated, one whose hash is in large letters, one
/// that cannot be read; a plan; limits.
const FILLED: &str = "INSERT INTO object (kind, tenant, project, id, version, document, created_at, changed_at) VALUES
    (0, '', '', 'gold', 1, '{\"hash\":\"blake3:no-key\"}', 1, 1),
    (1, 'acme', '', '', 2, '{\"plan\":\"gold\"}', 1, 1),
    (2, 'acme', 'web', '', 3, '{}', 1, 1),
    (3, 'acme', 'web', 'k', 4, '{\"hash\":\"blake3:aa\",\"previous\":{\"hash\":\"blake3:BB\",\"until\":\"2027-01-01T00:00:00Z\"}}', 1, 1),
    (3, 'acme', 'web', 'K', 5, '{\"hash\":\"blake3:CC\",\"previous\":null}', 1, 1),
    (3, 'bé', 'web', 'é', 6, '{\"hash\":null}', 1, 1),
    (3, 'bé', 'web', 'x', 7, 'x', 1, 1);
INSERT INTO limit_history (limit_name, version, seen_at, digest, definition) VALUES
    ('r', 1, 5, '12345678901234567890123456789012', 'one'), ('r', 2, 6, '12345678901234567890123456789012', '');";

async fn a_store_of_the_fourth_layout_is_brought_up_to_date(world: World) {
    let mut other = world.other().await;
    match &other {
        Other::File(_) => {
            for layout in [
                include_str!("../../sql/sqlite/migrations/0001_journal.sql"),
                include_str!("../../sql/sqlite/migrations/0002_limit_history.sql"),
                include_str!("../../sql/sqlite/migrations/0003_fleet.sql"),
                include_str!("../../sql/sqlite/migrations/0004_objects.sql"),
                "PRAGMA user_version = 4; PRAGMA application_id = 1414283851; PRAGMA journal_mode = WAL",
            ] {
                other.say(layout).await;
            }
            // A digest is bytes there.
            other.say(&FILLED.replace("'12345678901234567890123456789012'", "zeroblob(32)")).await;
        }
        Other::Server(_) => {
            for layout in [
                include_str!("../../sql/mysql/migrations/0001_journal.sql"),
                include_str!("../../sql/mysql/migrations/0002_limit_history.sql"),
                include_str!("../../sql/mysql/migrations/0003_fleet.sql"),
                include_str!("../../sql/mysql/migrations/0004_objects.sql"),
                "CREATE TABLE tollbook_layout (layout SMALLINT NOT NULL, step SMALLINT NOT NULL, \
                 PRIMARY KEY (layout, step)) ENGINE = InnoDB; INSERT INTO tollbook_layout VALUES (4, 2)",
            ] {
                other.say(layout).await;
            }
            other.say(FILLED).await;
        }
    }
    other.close().await;

    let store = world.open().await;
    let key = |tenant: &str, id: &str| ObjectName {
        kind: ObjectKind::Key,
        tenant: tenant.to_owned(),
        project: "web".to_owned(),
        id: id.to_owned(),
    };
    for (mark, owner) in [
        ("key k", Some(key("acme", "k"))),
        ("key K", Some(key("acme", "K"))),
        ("key é", Some(key("bé", "é"))),
        ("key x", Some(key("bé", "x"))),
        ("blake3:aa", Some(key("acme", "k"))),
        ("blake3:bb", Some(key("acme", "k"))),
        ("blake3:cc", Some(key("acme", "K"))),
        ("blake3:BB", None),
        ("blake3:no-key", None),
        ("null", None),
        ("key gold", None),
    ] {
        assert_eq!(store.marked(mark).await, Ok(owner), "{mark}");
    }
    let rows = store.limit_rows("").await.unwrap();
    let told: Vec<_> = rows.iter().map(|row| (&*row.limit, row.version, row.definition.as_str())).collect();
    assert_eq!(told, [("r", 1, "one"), ("r", 2, "")]);
    assert_eq!(store.limit_rows_append("acme", &rows).await, Ok(2), "a tenant's are apart from them");
    assert_eq!(store.tenant_objects("acme").await.unwrap().objects.len(), 4);
    store.close().await;

    let fresh = match world {
        World::File(_) => World::file(),
        World::Server(_) => World::server(),
    };
    fresh.open().await.close().await;
    let (upgraded, made) = (schema(&mut world.other().await).await, schema(&mut fresh.other().await).await);
    assert!(made.len() > 10 && upgraded == made, "{upgraded:#?} is not that of a fresh store: {made:#?}");
}

/// The first layout alone included. What an earlier version would write fails, and so stays where it waits.
async fn entries_of_every_earlier_layout_are_brought_up_to_date(world: World) {
    let entries: Vec<_> = (1..=40).map(call).collect();
    let (_fresh, mut fresh) = match &world {
        World::File(_) => {
            let fresh = World::file();
            fresh.open().await.close().await;
            let other = fresh.other().await;
            (Some(fresh), other)
        }
        World::Server(_) => {
            let (place, other) = database(&world, "fresh").await;
            opened(&place).await.close().await;
            (None, other)
        }
    };
    let fresh = schema(&mut fresh).await;
    for layout in 1..DAYS {
        let own = matches!(world, World::File(_)).then(World::file);
        let (place, mut other) = database(own.as_ref().unwrap_or(&world), &format!("layout_{layout}")).await;
        make(&mut other, layout, &entries).await;
        let store = opened(&place).await;
        assert_eq!(store.append(&entries).await.unwrap().repeated, 40, "{layout}");
        assert_eq!(store.append(&[call(41)]).await.unwrap().inserted, 1, "{layout}");
        assert_eq!(store.by_reservation(ReservationId(7)).await.as_deref(), Ok(&entries[6..7]), "{layout}");
        let account = AccountId { subject: SubjectId(1), name: 1 };
        assert_eq!(store.posted_sum(account, 100).await, Ok(41 * 15), "{layout}");
        assert!(store.newest_end(shard_of("acme")).await.unwrap().is_some(), "{layout}");
        store.close().await;
        assert_eq!(schema(&mut other).await, fresh, "{layout}");
        let old = "INSERT INTO entry (reservation) VALUES ('x')";
        let refused = match &mut other {
            Other::File(connection) => sqlx::raw_sql(old).execute(connection).await.err(),
            Other::Server(connection) => sqlx::raw_sql(old).execute(connection).await.err(),
        };
        let refused = refused.unwrap().to_string();
        assert!(refused.contains("no such table") || refused.contains("doesn't exist"), "{refused}");
        other.close().await;
    }
}

/// Everything that a database is made of.
async fn schema(other: &mut Other) -> Vec<String> {
    match other {
        Other::File(connection) => sqlx::query_scalar(
            "SELECT type || ' ' || name || ' ' || sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name",
        )
        .fetch_all(connection)
        .await
        .unwrap(),
        Other::Server(connection) => sqlx::query_scalar(
            "SELECT CAST(CONCAT_WS(' ', table_name, ordinal_position, column_name, column_type, is_nullable, \
                 COALESCE(column_default, '-'), collation_name) AS CHAR) AS told \
             FROM information_schema.columns WHERE table_schema = DATABASE() \
             UNION ALL SELECT CAST(CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name, non_unique) AS CHAR) \
             FROM information_schema.statistics WHERE table_schema = DATABASE() ORDER BY told",
        )
        .fetch_all(connection)
        .await
        .unwrap(),
    }
}
