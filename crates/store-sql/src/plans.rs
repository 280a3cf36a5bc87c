//! How questions about parts of the objects, and about the history of limits, are answered: by an index, and reading little
//! more than is told.

use tollbook_store::{Edit, LimitHistory, LimitRow, Name, ObjectKind, ObjectName, ObjectStore, ObjectsQuery};

use crate::SqlStore;
use crate::db::{Ask, Pools, Row, ask};
use crate::edits::{name_values, names};
use crate::objects::code;
use crate::range::Range;
use crate::sql::{
    CHANGE_LIST, CHANGE_NEWEST, CHANGE_OF_TENANT, CHANGE_SINCE, LIMIT_INSERT, LIMIT_LIST, LIMIT_PAGE,
    MARK_DELETE, MARK_FIND, MARK_LIST, OBJECT_DELETE, OBJECT_DOCUMENTS, OBJECT_LIST_OF, OBJECT_OF_TENANT,
    OBJECT_ONE, OBJECT_PAGE,
};

const TENANTS: usize = 40;
const KEYS: usize = 50;

fn name(kind: ObjectKind, tenant: &str, project: &str, id: &str) -> ObjectName {
    ObjectName { kind, tenant: tenant.to_owned(), project: project.to_owned(), id: id.to_owned() }
}

/// Tenants, each with a project of keys that have a mark, a service, and rows of the history.
async fn filled(store: &SqlStore) {
    let put = |name: ObjectName, marks| Edit { name, document: Some("x".repeat(300)), marks };
    let mut edits = Vec::new();
    for tenant in (0..TENANTS).map(|tenant| format!("t{tenant:03}")) {
        edits.push(put(name(ObjectKind::Tenant, &tenant, "", ""), Vec::new()));
        edits.push(put(name(ObjectKind::Project, &tenant, "web", ""), Vec::new()));
        edits.push(put(name(ObjectKind::Service, &tenant, "", "s"), Vec::new()));
        for key in (0..KEYS).map(|key| format!("k{key:03}")) {
            let mark = format!("key {key} of {tenant}");
            edits.push(put(name(ObjectKind::Key, &tenant, "web", &key), vec![mark]));
        }
        let row = |version| LimitRow {
            limit: Name::from("r"),
            version,
            seen_at: 1,
            digest: [1; 32],
            definition: "x".repeat(100),
        };
        let rows: Vec<_> = (1..=20).map(row).collect();
        store.limit_rows_append(&tenant, &rows).await.unwrap();
    }
    store.write(0, "ann", &edits).await.unwrap();
}

fn page(query: &ObjectsQuery) -> Ask {
    let page = ask(&OBJECT_PAGE).bind(code(query.kind));
    Range::of(query).unwrap().values().fold(page, Ask::bind).bind(10)
}

/// The questions, and the most rows that an answer may read.
fn questions() -> Vec<(&'static str, Ask, i64)> {
    let key = name(ObjectKind::Key, "t020", "web", "k010");
    let of = |kind| ObjectsQuery::of(kind, 10);
    let text = |text: &str| Some(text.to_owned());
    let keys = ObjectsQuery { tenant: text("t020"), ..of(ObjectKind::Key) };
    let inside = ObjectsQuery { project: text("web"), ..keys.clone() };
    let next = ObjectsQuery { after: Some(key.clone()), ..inside.clone() };
    let begun = ObjectsQuery { prefix: "k01".to_owned(), ..inside.clone() };
    let rows = |count: usize| i64::try_from(count).unwrap() + 5;
    let some: Vec<_> =
        (10..14).map(|id| name(ObjectKind::Key, "t020", "web", &format!("k{id:03}"))).collect();
    let some = names(some.iter()).unwrap();
    vec![
        ("kind", ask(&OBJECT_LIST_OF).bind(code(ObjectKind::Project)), rows(TENANTS)),
        ("tenant", ask(&OBJECT_OF_TENANT).bind("t020"), rows(KEYS + 3) + 5),
        ("one", name_values(&key).into_iter().fold(ask(&OBJECT_ONE), Ask::bind), 5),
        ("documents", ask(&OBJECT_DOCUMENTS).bind(some.as_str()), 12),
        ("mark", ask(&MARK_FIND).bind("key k010 of t020"), 5),
        ("marks", ask(&MARK_LIST).bind(some), 14),
        ("page of tenants", page(&of(ObjectKind::Tenant)), rows(10)),
        (
            "page of some tenants",
            page(&ObjectsQuery { prefix: "t02".to_owned(), ..of(ObjectKind::Tenant) }),
            rows(10),
        ),
        (
            "page of all keys",
            page(&ObjectsQuery { after: Some(key.clone()), ..of(ObjectKind::Key) }),
            rows(10),
        ),
        ("page of a tenant's keys", page(&keys), rows(10)),
        ("next page of them", page(&ObjectsQuery { after: Some(key.clone()), ..keys }), rows(10)),
        ("page of a project's keys", page(&inside), rows(10)),
        ("next page of those", page(&next), rows(10)),
        ("page of some keys", page(&begun), rows(10)),
        ("limits", ask(&LIMIT_LIST).bind("t020"), rows(20)),
        ("page of limits", ask(&LIMIT_PAGE).bind("t020").bind("r").bind(10).bind(15), rows(15)),
        ("newest change", ask(&CHANGE_NEWEST), 5),
        ("feed", ask(&CHANGE_SINCE).bind(1_990).bind(10), rows(10)),
        ("history", ask(&CHANGE_LIST).bind(1_000).bind(10), rows(10)),
        ("history of a tenant", ask(&CHANGE_OF_TENANT).bind("t020").bind(5_000).bind(10), rows(10)),
    ]
}

/// What writes look for.
fn writes() -> Vec<(&'static str, Ask)> {
    let key = name(ObjectKind::Key, "t020", "web", "k010");
    let row = ask(&LIMIT_INSERT).bind("t020").bind("r").bind(3).bind(4).bind([5; 32].as_slice()).bind("x");
    vec![
        ("delete", ask(&OBJECT_DELETE).bind(names([&key].into_iter()).unwrap())),
        ("delete a mark", ask(&MARK_DELETE).bind("key k010 of t020")),
        ("insert a row of the history", row),
    ]
}

#[tokio::test]
async fn a_file_is_searched_by_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqlStore::open(&dir.path().join("store.db")).await.unwrap();
    filled(&store).await;
    let Pools::Sqlite { readers, .. } = &store.pools else { panic!("a server") };
    let questions = questions().into_iter().map(|(what, question, _)| (what, question));
    for (what, question) in questions.chain(writes()) {
        let (text, arguments) = question.sqlite().unwrap();
        let text = format!("EXPLAIN QUERY PLAN {text}");
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as_with(sqlx::AssertSqlSafe(text), arguments).fetch_all(readers).await.unwrap();
        let steps: Vec<_> = plan.into_iter().map(|(_, _, _, step)| step).collect();
        // What is wanted is a list of its own, and the newest number one row.
        let own = ["wanted", "json_each", "newest"];
        let scans = |step: &String| step.starts_with("SCAN") && !own.iter().any(|table| step.contains(table));
        let sorts = |step: &String| step.contains("TEMP B-TREE");
        assert!(!steps.iter().any(|step| scans(step) || sorts(step)), "{what}: {steps:?}");
        let is_found = steps.iter().any(|step| step.starts_with("SEARCH"));
        assert!(is_found || what.starts_with("insert"), "{what}: {steps:?}");
        if what.contains("page of") && what != "page of limits" {
            let by_both_ends = steps.iter().all(|step| step.contains(")>(") && step.contains(")<("));
            assert!(by_both_ends, "{what}: {steps:?}");
        }
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_reads_little_more_than_it_tells() {
    let server = tollbook_sql_world::Server::start();
    let place: crate::Place = server.url().parse().unwrap();
    let store = SqlStore::open(place).await.unwrap();
    filled(&store).await;
    let Pools::MySql { readers, .. } = &store.pools else { panic!("a file") };
    let mut connection = readers.acquire().await.unwrap();
    // On a first and on a later run.
    for round in 0..2 {
        for (what, question, most) in questions() {
            sqlx::raw_sql("FLUSH STATUS").execute(&mut *connection).await.unwrap();
            let (text, arguments) = question.mysql().unwrap();
            let told = sqlx::query_with(text, arguments).fetch_all(&mut *connection).await.unwrap();
            assert!(!told.is_empty(), "{what}");
            let read: i64 = sqlx::query_scalar(
                "SELECT CAST(SUM(variable_value) AS SIGNED) FROM information_schema.session_status \
                 WHERE variable_name LIKE 'HANDLER_READ%'",
            )
            .fetch_one(&mut *connection)
            .await
            .unwrap();
            assert!(read <= most, "{what}, round {round}: {read} rows were read for {}", told.len());
        }
    }
    let questions = questions().into_iter().map(|(what, question, _)| (what, question));
    for (what, question) in questions.chain(writes()) {
        let (text, arguments) = question.mysql().unwrap();
        let text = format!("EXPLAIN {text}");
        let plan = sqlx::query_with(sqlx::AssertSqlSafe(text), arguments).fetch_all(&mut *connection).await;
        for row in plan.unwrap().into_iter().map(Row::MySql) {
            let told = |column| row.maybe_text(column).unwrap();
            let (table, how, key, extra) = (told("table"), told("type"), told("key"), told("Extra"));
            let of_no_table = table.is_none_or(|table| table == "wanted" || table.starts_with("<derived"));
            let is_found = key.is_some() && how != Some("ALL") && how != Some("index");
            let is_sorted = extra.is_some_and(|extra| extra.contains("filesort"));
            let plan = format!("{what}: {table:?} {how:?} {key:?} {extra:?}");
            assert!((of_no_table || is_found) && !is_sorted, "{plan}");
        }
    }
    drop(connection);
    store.close().await;
}
