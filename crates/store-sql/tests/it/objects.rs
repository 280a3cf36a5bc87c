//! What operators define, and how it changed.

use tollbook_store::{
    Applied, CHANGES_MAX, ChangesQuery, DOCUMENT_MAX, Edit, ObjectName, ObjectStore, StoreErrorKind,
};

use crate::make::{World, both};

both!(
    an_object_and_its_change_are_written_together,
    a_write_on_what_has_changed_since_writes_nothing,
    a_version_never_comes_back,
    one_edit_that_is_refused_leaves_none_of_them,
    changes_are_read_in_pages_and_by_tenant,
    the_history_can_be_cut_down_to_its_newest_row,
    the_largest_documents_are_written_many_at_once,
    one_write_has_one_time,
);

fn tenant(id: &str) -> ObjectName {
    ObjectName::tenant(id)
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

/// As the operations manual says.
async fn the_history_can_be_cut_down_to_its_newest_row(world: World) {
    let store = world.open().await;
    let edits = ["a", "b", "c"].map(|id| put(tenant(id), "1"));
    store.write(0, "ann", &edits).await.unwrap();
    let table = if matches!(world, World::File(_)) { "change" } else { "`change`" };
    world.change(&format!("DELETE FROM {table} WHERE number < 3")).await;
    let kept = store.objects().await.unwrap();
    assert_eq!((kept.revision, kept.objects.len()), (3, 3));
    assert_eq!(store.write(3, "ann", &[put(tenant("d"), "1")]).await, Ok(Some(4)));
    let feed = store.changes_since(2).await.unwrap();
    assert_eq!(feed.iter().map(|change| change.number).collect::<Vec<_>>(), [3, 4]);
}

async fn the_largest_documents_are_written_many_at_once(world: World) {
    let store = world.open().await;
    let ids: Vec<String> = (0..70).map(|n| format!("{n:02}")).collect();
    let longest = |text: &str| text.repeat(DOCUMENT_MAX / text.len());
    let edits = |text: &str| ids.iter().map(|id| put(tenant(id), &longest(text))).collect::<Vec<_>>();
    assert_eq!(store.write(0, "ann", &edits("x")).await, Ok(Some(70)));
    // What is there before goes into the records too.
    let small: Vec<_> = ids.iter().map(|id| put(tenant(id), "1")).collect();
    assert_eq!(store.write(70, "ann", &small).await, Ok(Some(140)));
    assert_eq!(store.write(140, "ann", &edits("é\"")).await, Ok(Some(210)));
    let deletes: Vec<_> = ids.iter().map(|id| delete(tenant(id))).collect();
    assert_eq!(store.write(210, "ann", &deletes[..69]).await, Ok(Some(279)));
    let kept = store.objects().await.unwrap();
    assert_eq!((kept.objects.len(), kept.objects[0].document == longest("é\"")), (1, true));
    let feed = store.changes_since(70).await.unwrap();
    assert_eq!(feed.len(), 209);
    assert!(feed[0].before == Some(longest("x")) && feed[0].after.as_deref() == Some("1"));
    let last = feed.last().unwrap();
    assert_eq!((last.number, last.before.as_deref() == Some(longest("é\"").as_str())), (279, true));
}

async fn one_write_has_one_time(world: World) {
    let store = world.open().await;
    let many: Vec<_> = (0..200).map(|n| put(tenant(&format!("{n:03}")), "1")).collect();
    store.write(0, "ann", &many).await.unwrap();
    store.write(200, "ann", &many[..1]).await.unwrap();
    let kept = store.objects().await.unwrap().objects;
    let feed = store.changes_since(0).await.unwrap();
    let at = feed[0].at;
    assert!(at > 1_700_000_000_000, "{at}");
    assert!(feed[..200].iter().all(|change| change.at == at));
    assert!(kept[1..].iter().all(|object| (object.created_at, object.changed_at) == (at, at)));
    // What is written again keeps when it was made.
    assert_eq!((kept[0].created_at, kept[0].changed_at), (at, feed[200].at));
    assert!(feed[200].at >= at);
}
