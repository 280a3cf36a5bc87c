//! What operators define, and how it changed.

use tollbook_store::{
    Applied, CHANGES_MAX, ChangesQuery, DOCUMENT_MAX, Edit, ObjectKind, ObjectName, ObjectStore,
    StoreErrorKind,
};

use crate::make::{World, both};

both!(
    an_object_and_its_change_are_written_together,
    a_write_on_what_has_changed_since_writes_nothing,
    a_version_never_comes_back,
    one_edit_that_is_refused_leaves_none_of_them,
    changes_are_read_in_pages_and_by_tenant,
);

fn tenant(id: &str) -> ObjectName {
    ObjectName { kind: ObjectKind::Tenant, tenant: id.to_owned(), project: String::new(), id: String::new() }
}

fn put(name: ObjectName, document: &str) -> Edit {
    Edit { name, document: Some(document.to_owned()), marks: Vec::new() }
}

fn delete(name: ObjectName) -> Edit {
    Edit { name, document: None, marks: Vec::new() }
}

async fn an_object_and_its_change_are_written_together(world: World) {
    let store = world.open().await;
    let edits = [put(tenant("acme"), "1"), put(tenant("Acme"), "2"), put(tenant("a:{b}é"), "3")];
    assert_eq!(store.write(0, "ann", &edits).await, Ok(Some(3)));
    let kept = store.objects().await.unwrap();
    let found: Vec<_> = kept.objects.iter().map(|o| (o.name.tenant.as_str(), o.version)).collect();
    // Byte for byte: two tenants whose names differ in case are two.
    assert_eq!((kept.revision, found), (3, vec![("Acme", 2), ("a:{b}é", 3), ("acme", 1)]));
    let feed = store.changes_since(1).await.unwrap();
    assert_eq!(
        feed.iter().map(|c| (c.number, c.after.as_deref())).collect::<Vec<_>>(),
        [(2, Some("2")), (3, Some("3"))]
    );
    assert!(feed.iter().all(|change| change.who == "ann" && change.before.is_none()));
}

async fn a_write_on_what_has_changed_since_writes_nothing(world: World) {
    let store = world.open().await;
    store.write(0, "ann", &[put(tenant("acme"), "1")]).await.unwrap();
    assert_eq!(store.write(0, "bob", &[put(tenant("acme"), "2")]).await, Ok(None));
    let kept = store.objects().await.unwrap();
    assert_eq!((kept.revision, kept.objects[0].document.as_str()), (1, "1"));
}

async fn a_version_never_comes_back(world: World) {
    let store = world.open().await;
    store.write(0, "ann", &[put(tenant("acme"), "1")]).await.unwrap();
    store.write(1, "ann", &[delete(tenant("acme"))]).await.unwrap();
    assert!(store.objects().await.unwrap().objects.is_empty());
    store.write(2, "ann", &[put(tenant("acme"), "1")]).await.unwrap();
    assert_eq!(store.objects().await.unwrap().objects[0].version, 3);
    let history = store.changes(&ChangesQuery { limit: 10, ..ChangesQuery::default() }).await.unwrap();
    let told: Vec<_> = history.iter().map(|c| (c.number, c.before.as_deref(), c.after.as_deref())).collect();
    assert_eq!(told, [(3, None, Some("1")), (2, Some("1"), None), (1, None, Some("1"))]);
}

async fn one_edit_that_is_refused_leaves_none_of_them(world: World) {
    let store = world.open().await;
    let edits = [put(tenant("acme"), "1"), delete(tenant("nobody"))];
    let error = store.write(0, "ann", &edits).await.unwrap_err();
    assert!(matches!(error.kind, StoreErrorKind::Refused(_)) && error.applied == Applied::No, "{error}");
    let kept = store.objects().await.unwrap();
    assert_eq!((kept.revision, kept.objects.len()), (0, 0));
    let longest = "x".repeat(DOCUMENT_MAX);
    assert!(store.write(0, "ann", &[put(tenant("acme"), &format!("{longest}x"))]).await.is_err());
    assert_eq!(store.write(0, "ann", &[put(tenant("acme"), &longest)]).await, Ok(Some(1)));
}

async fn changes_are_read_in_pages_and_by_tenant(world: World) {
    let store = world.open().await;
    let many: Vec<_> =
        (0..CHANGES_MAX + 5).map(|n| put(tenant(if n % 2 == 0 { "even" } else { "odd" }), "1")).collect();
    store.write(0, "ann", &many).await.unwrap();
    assert_eq!(store.changes_since(0).await.unwrap().len(), CHANGES_MAX);
    assert_eq!(store.changes_since(1_000).await.unwrap().len(), 5);
    let query = |before| ChangesQuery { tenant: Some("odd".to_owned()), before, limit: 2 };
    let numbers = |changes: Vec<tollbook_store::Change>| changes.iter().map(|c| c.number).collect::<Vec<_>>();
    assert_eq!(numbers(store.changes(&query(None)).await.unwrap()), [1004, 1002]);
    assert_eq!(numbers(store.changes(&query(Some(1002))).await.unwrap()), [1000, 998]);
}
