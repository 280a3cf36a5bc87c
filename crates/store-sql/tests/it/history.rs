//! The limit history.

use tollbook_store::{LIMIT_ROWS_MAX, LimitHistory, LimitPlace, LimitRow, Name};

use crate::make::{World, both};

both!(
    l16_definitions_come_back_by_limit_and_version,
    l16_a_repeated_definition_changes_nothing,
    a_row_against_the_schema_leaves_none_of_its_batch,
    each_tenant_has_rows_of_its_own,
    the_rows_of_all_tenants_are_read_in_pages,
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
    assert_eq!(store.limit_rows_append("", &rows).await, Ok(4));
    assert_eq!(store.limit_rows("").await.unwrap(), [row("A", 1), row("a", 1), row("a", 2), row("b", 1)]);
}

async fn l16_a_repeated_definition_changes_nothing(world: World) {
    let store = world.open().await;
    store.limit_rows_append("", &[row("a", 1)]).await.unwrap();
    let later = LimitRow { seen_at: 9, definition: String::new(), ..row("a", 1) };
    assert_eq!(store.limit_rows_append("", &[later, row("a", 2)]).await, Ok(1));
    assert_eq!(store.limit_rows("").await.unwrap(), [row("a", 1), row("a", 2)]);
}

async fn a_row_against_the_schema_leaves_none_of_its_batch(world: World) {
    let store = world.open().await;
    assert!(store.limit_rows_append("", &[row("a", 1), row("a", 0)]).await.is_err());
    assert!(store.limit_rows("").await.unwrap().is_empty());
}

async fn each_tenant_has_rows_of_its_own(world: World) {
    let store = world.open().await;
    let other = LimitRow { definition: "other".to_owned(), ..row("a", 1) };
    for (tenant, rows) in
        [("acme", vec![row("a", 1)]), ("Acme", vec![other.clone()]), ("", vec![row("b", 1)])]
    {
        assert_eq!(store.limit_rows_append(tenant, &rows).await, Ok(1));
        assert_eq!(store.limit_rows_append(tenant, &rows).await, Ok(0));
    }
    assert_eq!(store.limit_rows("acme").await.unwrap(), [row("a", 1)]);
    assert_eq!(store.limit_rows("Acme").await.unwrap(), [other]);
    assert_eq!(store.limit_rows("").await.unwrap(), [row("b", 1)]);
    assert!(store.limit_rows("acme ").await.unwrap().is_empty());
}

async fn the_rows_of_all_tenants_are_read_in_pages(world: World) {
    let store = world.open().await;
    let mut all = Vec::new();
    for tenant in ["", "Acme", "acme", "acme ", "b", "é"] {
        let rows = [row("a", 1), row("a", 2), row("é", 1)];
        store.limit_rows_append(tenant, &rows).await.unwrap();
        all.extend(rows.map(|row| (Name::from(tenant), row)));
    }
    for max in 1..=all.len() + 1 {
        let (mut read, mut after) = (Vec::new(), Some(LimitPlace::default()));
        while let Some(place) = after {
            let page = store.limit_rows_page(&place, max).await.unwrap();
            assert!(page.rows.len() <= max);
            read.extend(page.rows);
            after = page.next;
        }
        assert_eq!(read, all, "pages of {max}");
    }
    let many: Vec<_> = (1..=1_005).map(|version| row("a", version)).collect();
    store.limit_rows_append("ê", &many).await.unwrap();
    let place = LimitPlace { tenant: Name::from("ê"), ..LimitPlace::default() };
    let page = store.limit_rows_page(&place, usize::MAX).await.unwrap();
    assert_eq!(page.rows.len(), LIMIT_ROWS_MAX);
    assert_eq!(store.limit_rows_page(&page.next.unwrap(), usize::MAX).await.unwrap().rows.len(), 5);
}
