//! The limit history.

use tollbook_store::{LimitHistory, LimitRow, Name};

use crate::make::{World, both};

both!(
    l16_definitions_come_back_by_limit_and_version,
    l16_a_repeated_definition_changes_nothing,
    a_row_against_the_schema_leaves_none_of_its_batch,
);

fn row(limit: &str, version: u32) -> LimitRow {
    LimitRow {
        limit: Name::from(limit),
        version,
        seen_at: u64::from(version) * 1_000,
        digest: [7; 32],
        definition: format!("{{\"ceiling\":{version},\"zone\":\"Europe/Zürich\"}}"),
    }
}

async fn l16_definitions_come_back_by_limit_and_version(world: World) {
    let store = world.open().await;
    let rows = [row("b", 1), row("a", 2), row("a", 1), row("A", 1)];
    assert_eq!(store.limit_rows_append(&rows).await, Ok(4));
    assert_eq!(store.limit_rows().await.unwrap(), [row("A", 1), row("a", 1), row("a", 2), row("b", 1)]);
}

async fn l16_a_repeated_definition_changes_nothing(world: World) {
    let store = world.open().await;
    store.limit_rows_append(&[row("a", 1)]).await.unwrap();
    let later = LimitRow { seen_at: 9, definition: String::new(), ..row("a", 1) };
    assert_eq!(store.limit_rows_append(&[later, row("a", 2)]).await, Ok(1));
    assert_eq!(store.limit_rows().await.unwrap(), [row("a", 1), row("a", 2)]);
}

async fn a_row_against_the_schema_leaves_none_of_its_batch(world: World) {
    let store = world.open().await;
    assert!(store.limit_rows_append(&[row("a", 1), row("a", 0)]).await.is_err());
    assert!(store.limit_rows().await.unwrap().is_empty());
}
