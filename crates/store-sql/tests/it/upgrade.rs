//! A database of an earlier layout, with something in it, is brought up to date: its schema is a fresh one's, and what was in
//! it is found the new way.

use tollbook_store::{LimitHistory, ObjectKind, ObjectName, ObjectStore};

use crate::make::{Other, World, both};

both!(a_store_of_the_fourth_layout_is_brought_up_to_date);

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
    let (upgraded, made) = (schema(&world).await, schema(&fresh).await);
    assert!(made.len() > 10 && upgraded == made, "{upgraded:#?} is not that of a fresh store: {made:#?}");
}

/// Everything that a database is made of.
async fn schema(world: &World) -> Vec<String> {
    match &mut world.other().await {
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
