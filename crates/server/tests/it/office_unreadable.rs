//! An object of the store that this version cannot read: it is told where it is, and hides no other.

use serde_json::{Value, json};
use tollbook::office::mark_of_id;
use tollbook_store::{Edit, ObjectKind, ObjectName, ObjectStore as _};
use tollbook_store_sql::SqlStore;

use crate::office_world::{World, chat, cli};
use crate::process::{call, until};

/// As a gateway of another version might write it.
fn write(world: &World, name: ObjectName, document: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let edit = [Edit { marks: vec![mark_of_id(&name.id)], name, document: Some(document.to_owned()) }];
    runtime.block_on(async {
        let store = SqlStore::open(&world.folder.path().join("store.sqlite")).await.unwrap();
        let revision = store.objects().await.unwrap().revision;
        assert!(store.write(revision, "another version", &edit).await.unwrap().is_some());
        store.close().await;
    });
}

fn key(tenant: &str, id: &str) -> ObjectName {
    let (tenant, project, id) = (tenant.to_owned(), "web".to_owned(), id.to_owned());
    ObjectName { kind: ObjectKind::Key, tenant, project, id }
}

#[test]
fn what_cannot_be_read_is_told_by_its_name_and_hides_nothing_else() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    gateway.ask("POST", "/tenants", json!({"id": "other"}), 201);
    gateway.ask("POST", "/tenants/other/projects", json!({"id": "web"}), 201);
    for (id, document) in [("odd", r#"{"colour": "s3cret"}"#), ("torn", r#"{"hash": "s3cret"#)] {
        write(&world, key("other", id), document);
        let path = format!("/tenants/other/projects/web/keys/{id}");
        for (method, body) in [("GET", Value::Null), ("PATCH", json!({"models": ["m"]}))] {
            let told = gateway.ask(method, &path, body, 500);
            assert_eq!(told["code"], "unreadable", "{told}");
            let detail = told["detail"].as_str().unwrap();
            assert!(detail.contains(&format!("other/projects/web/keys/{id}")), "{told}");
            assert!(!told.to_string().contains("s3cret"), "{told}");
        }
    }
    let listed = gateway.ask("GET", "/tenants/other/projects/web/keys", Value::Null, 200);
    let data: Vec<(&str, bool)> = (listed["data"].as_array().unwrap().iter())
        .map(|key| (key["id"].as_str().unwrap(), key["unreadable"] == json!(true)))
        .collect();
    assert_eq!(data, [("odd", true), ("torn", true)], "{listed}");
    let (code, out, err) = cli(&gateway, &["key", "list", "other", "web"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("odd") && out.contains("torn"), "{out}");

    // Of an export nothing may be missing.
    assert_eq!(gateway.ask("GET", "/export", Value::Null, 500)["code"], "unreadable");
    // Whoever else calls, or is changed, does not notice.
    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
    gateway.ask("PATCH", "/tenants/acme", json!({"zone": "Asia/Tokyo"}), 200);
    until("the change is in force", || (gateway.chat(&secret, &chat()).0 == 200).then_some(()));

    // Somebody of another tenant is not told its name.
    let operator = json!({"id": "theirs", "role": "admin", "tenant": "acme"});
    let theirs = gateway.ask("POST", "/operators", operator, 201)["secret"].as_str().unwrap().to_owned();
    let path = "/admin/v1/tenants/other/projects/web/keys/odd";
    let (status, told) = call(gateway.admin.unwrap(), "GET", path, &theirs, "");
    assert!(status == 404 && !told.to_string().contains("odd"), "{status} {told}");
}
