//! By what else objects are found than by their names.

use tollbook_store::{
    Applied, Edit, MARK_MAX, MARKS_MAX, ObjectKind, ObjectName, ObjectStore, StoreError, StoreErrorKind,
};

use crate::make::{World, both};

both!(
    a_mark_finds_its_object_and_goes_with_it,
    b216_marks_compare_byte_for_byte,
    a_mark_of_another_object_refuses_the_whole_write,
    a_mark_goes_from_one_object_to_another_in_one_write,
    two_objects_of_one_write_cannot_want_one_mark,
    marks_have_bounds,
    many_marks_are_written_at_once,
);

fn key(tenant: &str, id: &str) -> ObjectName {
    let (tenant, project, id) = (tenant.to_owned(), "web".to_owned(), id.to_owned());
    ObjectName { kind: ObjectKind::Key, tenant, project, id }
}

fn put(name: ObjectName, marks: &[&str]) -> Edit {
    Edit { name, document: Some("{}".to_owned()), marks: marks.iter().map(|&mark| mark.to_owned()).collect() }
}

fn delete(name: ObjectName) -> Edit {
    Edit { name, document: None, marks: Vec::new() }
}

fn taken(mark: &str, by: ObjectName) -> StoreError {
    StoreError::not_applied(StoreErrorKind::Taken { mark: mark.to_owned(), by: Box::new(by) })
}

async fn a_mark_finds_its_object_and_goes_with_it(world: World) {
    let store = world.open().await;
    let one = key("acme", "one");
    store.write(0, "ann", &[put(one.clone(), &["key one", "h1", "é "])]).await.unwrap();
    for mark in ["key one", "h1", "é "] {
        assert_eq!(store.marked(mark).await, Ok(Some(one.clone())), "{mark}");
    }
    assert_eq!(store.marked("h2").await, Ok(None));
    store.write(1, "ann", &[put(key("acme", "two"), &["key two"])]).await.unwrap();
    assert_eq!(store.marked("key two").await, Ok(Some(key("acme", "two"))));
    // An edit replaces all of them.
    store.write(2, "ann", &[put(one.clone(), &["key one", "h2"])]).await.unwrap();
    assert_eq!(store.marked("h1").await, Ok(None));
    assert_eq!(store.marked("h2").await, Ok(Some(one.clone())));
    store.write(3, "ann", &[put(one.clone(), &["h2", "key one"])]).await.unwrap();
    assert_eq!(store.marked("key one").await, Ok(Some(one.clone())));
    store.write(4, "ann", &[delete(one.clone())]).await.unwrap();
    for mark in ["key one", "h2"] {
        assert_eq!(store.marked(mark).await, Ok(None), "{mark}");
    }
    // One that comes back has what it is given, and nothing of before.
    store.write(5, "ann", &[put(one, &[])]).await.unwrap();
    assert_eq!(store.marked("key one").await, Ok(None));
}

async fn b216_marks_compare_byte_for_byte(world: World) {
    let store = world.open().await;
    // Case, accents, composed or not, letters of full width, spaces behind: to some collations one and the same.
    let marks =
        ["sk-AbC", "sk-aBc", "sk-é", "sk-e", "sk-e\u{301}", "sk-ａ", "sk-a", "sk-a ", "sk-ß", "sk-ss"];
    let edits: Vec<Edit> = marks.iter().map(|mark| put(key("acme", mark), &[mark])).collect();
    assert_eq!(store.write(0, "ann", &edits).await, Ok(Some(10)));
    for mark in marks {
        assert_eq!(store.marked(mark).await, Ok(Some(key("acme", mark))), "{mark}");
    }
    for mark in ["", "sk-abc", "SK-AbC", "sk-É", " sk-a", "sk-a  ", "sk-AbC\0"] {
        assert_eq!(store.marked(mark).await, Ok(None), "{mark}");
    }
    // One of them goes, the others stay.
    store.write(10, "ann", &[delete(key("acme", "sk-a"))]).await.unwrap();
    assert_eq!(store.marked("sk-a").await, Ok(None));
    for mark in ["sk-a ", "sk-ａ"] {
        assert_eq!(store.marked(mark).await, Ok(Some(key("acme", mark))), "{mark}");
    }
}

async fn a_mark_of_another_object_refuses_the_whole_write(world: World) {
    let store = world.open().await;
    store.write(0, "ann", &[put(key("acme", "one"), &["key one", "h1"])]).await.unwrap();
    let edits = [put(key("b", "x"), &["key x"]), put(key("b", "one"), &["key two", "h1"])];
    let error = store.write(1, "bob", &edits).await.unwrap_err();
    assert_eq!(error, taken("h1", key("acme", "one")));
    assert!(error.applied == Applied::No && !error.is_transient());
    let told = error.to_string();
    assert!(!told.contains("acme") && !told.contains("h1"), "{told}");
    let kept = store.objects().await.unwrap();
    assert_eq!((kept.revision, kept.objects.len()), (1, 1));
    assert_eq!(store.marked("key x").await, Ok(None));
    // The next write finds the store in good order.
    assert_eq!(store.write(1, "bob", &edits[..1]).await, Ok(Some(2)));
    assert_eq!(store.marked("key x").await, Ok(Some(key("b", "x"))));
}

async fn a_mark_goes_from_one_object_to_another_in_one_write(world: World) {
    let store = world.open().await;
    let (one, two) = (key("acme", "one"), key("acme", "two"));
    store.write(0, "ann", &[put(one.clone(), &["m"])]).await.unwrap();
    store.write(1, "ann", &[delete(one.clone()), put(two.clone(), &["m"])]).await.unwrap();
    assert_eq!(store.marked("m").await, Ok(Some(two.clone())));
    // In whatever order the edits stand.
    store.write(3, "ann", &[put(one.clone(), &["m"]), delete(two.clone())]).await.unwrap();
    assert_eq!(store.marked("m").await, Ok(Some(one.clone())));
    store.write(5, "ann", &[put(two.clone(), &["n"])]).await.unwrap();
    store.write(6, "ann", &[put(one.clone(), &["n"]), put(two.clone(), &["m"])]).await.unwrap();
    assert_eq!(store.marked("n").await, Ok(Some(one.clone())));
    assert_eq!(store.marked("m").await, Ok(Some(two.clone())));
    // Of an object that is edited more than once, its last edit counts.
    let edits = [put(one.clone(), &["m"]), delete(one.clone()), put(one.clone(), &["o"]), put(two, &["n"])];
    assert_eq!(store.write(8, "ann", &edits).await, Ok(Some(12)));
    assert_eq!(store.marked("m").await, Ok(None));
    assert_eq!(store.marked("o").await, Ok(Some(one.clone())));
    let made_and_gone = [put(key("b", "x"), &["x"]), delete(key("b", "x"))];
    assert_eq!(store.write(12, "ann", &made_and_gone).await, Ok(Some(14)));
    assert_eq!(store.marked("x").await, Ok(None));
}

async fn two_objects_of_one_write_cannot_want_one_mark(world: World) {
    let store = world.open().await;
    let edits = [put(key("acme", "two"), &["m"]), put(key("acme", "one"), &["m"])];
    let error = store.write(0, "ann", &edits).await.unwrap_err();
    assert_eq!(error, taken("m", key("acme", "one")));
    assert_eq!(store.objects().await.unwrap().revision, 0);
    // One that is there twice in one edit is there.
    assert_eq!(store.write(0, "ann", &[put(key("acme", "one"), &["m", "m"])]).await, Ok(Some(1)));
}

async fn marks_have_bounds(world: World) {
    let store = world.open().await;
    let most: Vec<String> = (0..MARKS_MAX).map(|n| format!("{n}{}", "é".repeat(63)) + "x").collect();
    assert!(most.iter().all(|mark| mark.len() == MARK_MAX));
    let of = |marks: Vec<String>| Edit { marks, ..put(key("acme", "one"), &[]) };
    let refused = async |edit: Edit| {
        let error = store.write(0, "ann", &[edit]).await.unwrap_err();
        assert!(matches!(error.kind, StoreErrorKind::Refused(_)) && error.applied == Applied::No, "{error}");
    };
    refused(of(most.iter().cloned().chain(["more".to_owned()]).collect())).await;
    refused(of(vec![format!("{}x", most[0])])).await;
    refused(of(vec![String::new()])).await;
    refused(Edit { document: None, ..of(vec!["m".to_owned()]) }).await;
    assert_eq!(store.write(0, "ann", &[of(most.clone())]).await, Ok(Some(1)));
    for mark in &most {
        assert_eq!(store.marked(mark).await, Ok(Some(key("acme", "one"))));
    }
}

async fn many_marks_are_written_at_once(world: World) {
    let store = world.open().await;
    let names: Vec<String> = (0..151).map(|n| format!("k{n:03}")).collect();
    let edits: Vec<Edit> =
        names.iter().map(|id| put(key("acme", id), &[id, &format!("hash of {id}")])).collect();
    store.write(0, "ann", &edits).await.unwrap();
    for id in &names {
        assert_eq!(store.marked(id).await, Ok(Some(key("acme", id))));
        assert_eq!(store.marked(&format!("hash of {id}")).await, Ok(Some(key("acme", id))));
    }
    let mut others: Vec<Edit> = names.iter().map(|id| put(key("b", id), &[&format!("{id} of b")])).collect();
    others[130].marks.push("hash of k077".to_owned());
    let error = store.write(151, "bob", &others).await.unwrap_err();
    assert_eq!(error, taken("hash of k077", key("acme", "k077")));
}
