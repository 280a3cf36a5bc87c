//! Reading a part of the objects.

use tollbook_store::{
    Edit, OBJECTS_MAX, Object, ObjectKind, ObjectName, ObjectStore, Objects, ObjectsQuery, StoreErrorKind,
};
use tollbook_store_sql::SqlStore;

use crate::make::{World, both};

both!(
    kinds_are_read_with_their_revision,
    a_tenant_is_read_with_what_belongs_to_it_and_nothing_else,
    one_object_is_read_by_its_name,
    pages_hold_what_is_asked_for_and_all_of_it,
    a_page_has_a_bound,
    what_is_read_is_of_the_revision_that_is_told,
);

fn name(kind: ObjectKind, tenant: &str, project: &str, id: &str) -> ObjectName {
    ObjectName { kind, tenant: tenant.to_owned(), project: project.to_owned(), id: id.to_owned() }
}

fn put(name: ObjectName) -> Edit {
    let document = Some(format!("{{\"of\":{:?}}}", name.id));
    Edit { name, document, marks: Vec::new() }
}

/// Names that a comparison which is not byte for byte takes for one another, or for neighbours.
const IDS: [&str; 9] = ["A", "a", "a ", "a\u{10ffff}", "a\u{10ffff}b", "ab", "b", "é", "\u{10ffff}"];

/// Objects of every kind.
async fn filled(world: &World) -> SqlStore {
    let store = world.open().await;
    let mut edits = Vec::new();
    for id in IDS {
        edits.extend([ObjectKind::Plan, ObjectKind::Operator].map(|kind| put(name(kind, "", "", id))));
        edits.push(put(name(ObjectKind::Tenant, id, "", "")));
        for other in IDS {
            edits.push(put(name(ObjectKind::Project, id, other, "")));
            edits.push(put(name(ObjectKind::Service, id, "", other)));
            if id.len() == 1 {
                edits.extend(["k", "kä", "l"].map(|key| put(name(ObjectKind::Key, id, other, key))));
            }
        }
    }
    store.write(0, "ann", &edits).await.unwrap();
    store
}

fn some(all: &Objects, is_meant: impl Fn(&ObjectName) -> bool) -> Vec<Object> {
    all.objects.iter().filter(|object| is_meant(&object.name)).cloned().collect()
}

async fn kinds_are_read_with_their_revision(world: World) {
    let store = filled(&world).await;
    let all = store.objects().await.unwrap();
    let of = |kinds: &[ObjectKind]| some(&all, |name| kinds.contains(&name.kind));
    for kinds in [
        &[][..],
        &[ObjectKind::Plan][..],
        &[ObjectKind::Model][..],
        &[ObjectKind::Operator, ObjectKind::Plan, ObjectKind::Plan][..],
        &ObjectKind::ALL[..],
    ] {
        let read = store.objects_of(kinds).await.unwrap();
        assert_eq!((read.revision, read.objects), (all.revision, of(kinds)), "{kinds:?}");
    }
}

async fn a_tenant_is_read_with_what_belongs_to_it_and_nothing_else(world: World) {
    let store = filled(&world).await;
    let all = store.objects().await.unwrap();
    for tenant in IDS.iter().copied().chain(["", "nobody", "a  "]) {
        let read = store.tenant_objects(tenant).await.unwrap();
        let want = some(&all, |name| name.tenant == tenant && !tenant.is_empty());
        assert_eq!((read.revision, read.objects), (all.revision, want), "{tenant}");
    }
}

async fn one_object_is_read_by_its_name(world: World) {
    let store = filled(&world).await;
    let all = store.objects().await.unwrap();
    for object in all.objects.iter().step_by(7) {
        assert_eq!(store.object(&object.name).await, Ok(Some(object.clone())));
    }
    for absent in [
        name(ObjectKind::Key, "a", "b", "K"),
        name(ObjectKind::Key, "a", "b", "k "),
        name(ObjectKind::Tenant, "a  ", "", ""),
        name(ObjectKind::Model, "", "", "a"),
    ] {
        assert_eq!(store.object(&absent).await, Ok(None), "{absent:?}");
    }
}

/// Every question of pages against all objects.
async fn pages_hold_what_is_asked_for_and_all_of_it(world: World) {
    let store = filled(&world).await;
    let all = store.objects().await.unwrap();
    let texts = [None, Some("a"), Some("a "), Some("é"), Some("x")].map(|text| text.map(str::to_owned));
    let mut asked = 0;
    for kind in ObjectKind::ALL {
        for (tenant, project) in texts.iter().flat_map(|tenant| texts.iter().map(move |one| (tenant, one))) {
            for prefix in ["", "a", "k", "\u{10ffff}"] {
                let query = ObjectsQuery {
                    tenant: tenant.clone(),
                    project: project.clone(),
                    prefix: prefix.to_owned(),
                    ..ObjectsQuery::of(kind, 5)
                };
                let own = |name: &ObjectName| match kind {
                    ObjectKind::Tenant => name.tenant.clone(),
                    ObjectKind::Project => name.project.clone(),
                    _ => name.id.clone(),
                };
                let want = some(&all, |name| {
                    name.kind == kind
                        && tenant.as_ref().is_none_or(|tenant| *tenant == name.tenant)
                        && project.as_ref().is_none_or(|project| *project == name.project)
                        && own(name).starts_with(prefix)
                });
                if let Some(read) = walked(&store, query.clone(), all.revision).await {
                    assert_eq!(read, want, "{query:?}");
                    asked += 1;
                }
            }
        }
    }
    assert!(asked > 200, "{asked}");
}

/// All pages; none where the question is refused.
async fn walked(store: &SqlStore, mut query: ObjectsQuery, revision: u64) -> Option<Vec<Object>> {
    let mut read = Vec::new();
    loop {
        let page = match store.objects_page(&query).await {
            Ok(page) => page,
            Err(error) => {
                assert!(matches!(error.kind, StoreErrorKind::Refused(_)), "{error}");
                assert!(query.project.is_some() || !query.prefix.is_empty(), "{query:?}");
                return None;
            }
        };
        assert!(page.revision == revision && page.objects.len() <= query.limit);
        let Some(last) = page.objects.last() else { return Some(read) };
        query.after = Some(last.name.clone());
        read.extend(page.objects);
    }
}

async fn a_page_has_a_bound(world: World) {
    let store = world.open().await;
    let many: Vec<Edit> =
        (0..OBJECTS_MAX + 5).map(|n| put(name(ObjectKind::Plan, "", "", &format!("{n:05}")))).collect();
    store.write(0, "ann", &many).await.unwrap();
    let first = store.objects_page(&ObjectsQuery::of(ObjectKind::Plan, usize::MAX)).await.unwrap();
    assert_eq!(first.objects.len(), OBJECTS_MAX);
    let after = first.objects.last().map(|last| last.name.clone());
    let rest = ObjectsQuery { after, ..ObjectsQuery::of(ObjectKind::Plan, usize::MAX) };
    assert_eq!(store.objects_page(&rest).await.unwrap().objects.len(), 5);
    assert!(store.objects_page(&ObjectsQuery::of(ObjectKind::Plan, 0)).await.unwrap().objects.is_empty());
}

/// While somebody writes, each answer is of one moment: the documents tell the revision that they were written on.
async fn what_is_read_is_of_the_revision_that_is_told(world: World) {
    const KEYS: u64 = 20;
    let (writer, reader) = (world.open().await, world.open().await);
    let edits = |revision: u64| {
        let edit = |key: u64| {
            let name = name(ObjectKind::Key, "acme", "web", &format!("k{key:02}"));
            Edit { name, document: Some(revision.to_string()), marks: Vec::new() }
        };
        (0..KEYS).map(edit).collect::<Vec<_>>()
    };
    writer.write(0, "ann", &edits(0)).await.unwrap();
    let writing = tokio::spawn(async move {
        let mut revision = KEYS;
        while revision < KEYS * 100 {
            revision = writer.write(revision, "ann", &edits(revision)).await.unwrap().unwrap();
        }
    });
    let page = ObjectsQuery { tenant: Some("acme".to_owned()), ..ObjectsQuery::of(ObjectKind::Key, 100) };
    let mut seen = std::collections::BTreeSet::new();
    while !writing.is_finished() {
        for read in [
            reader.tenant_objects("acme").await.unwrap(),
            reader.objects_of(&[ObjectKind::Key, ObjectKind::Plan]).await.unwrap(),
            reader.objects_page(&page).await.unwrap(),
        ] {
            let written_on = (read.revision - KEYS).to_string();
            assert_eq!(read.objects.len(), 20);
            assert!(read.objects.iter().all(|object| object.document == written_on), "{read:?}");
            seen.insert(read.revision);
        }
    }
    writing.await.unwrap();
    assert!(seen.len() > 3, "{seen:?}");
}
