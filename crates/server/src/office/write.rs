//! A change of objects: looked at, checked with everything else, written or refused as a whole.

use std::sync::Arc;

use serde_json::{Map, Value};
use tollbook_store::{
    Applied, DOCUMENT_MAX, EDITS_MAX, Edit, ObjectKind, ObjectName, StoreError, StoreErrorKind,
};

use super::check::Looked;
use super::marks::{marks, taken};
use super::{Office, OfficeError, State};
use crate::config::{Directory, Fault, Kept, SEALED, form, id_member, place, unrounded};

/// How often a change is checked anew because others were faster.
const TRIES: usize = 32;

/// What a document says of secrets.
const SECRET_MEMBERS: [&str; 4] = ["hash", "prefix", "previous", SEALED];

/// What an object must be for a change of it to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Whatever it is.
    Any,
    /// Not there.
    New,
    /// There.
    There,
    /// Of this version.
    Version(u64),
}

/// One object's next document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    pub name: ObjectName,
    /// `None`: it is deleted.
    pub document: Option<Map<String, Value>>,
    pub when: When,
    /// What is below a deleted object is deleted too; else that it is there is a conflict.
    pub cascade: bool,
}

/// A change that is made as a whole or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    pub who: String,
    pub wishes: Vec<Wish>,
    /// Only if nothing was changed since this revision.
    pub as_of: Option<u64>,
    /// Only say what would become of it.
    pub dry_run: bool,
}

/// What became of one object.
#[derive(Clone, Debug)]
pub struct Changed {
    pub name: ObjectName,
    /// `None`: deleted, or (in a dry run) not written.
    pub version: Option<u64>,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// A change that was made. Objects that were already as wished are not among it.
#[derive(Clone, Debug)]
pub struct Done {
    pub revision: u64,
    pub changed: Vec<Changed>,
    /// Legal, but probably not meant.
    pub warnings: Vec<String>,
}

impl Office {
    /// Checks an order and writes it.
    pub(crate) async fn write(&self, state: &mut State, order: &Order) -> Result<Done, OfficeError> {
        let mut looked = Looked::default();
        for _ in 0..TRIES {
            let behind = |error: anyhow::Error| match error.downcast() {
                Ok(away) => OfficeError::Away(away),
                Err(other) => OfficeError::Wrong(vec![fault("", "", format!("{other:#}"))]),
            };
            self.read_on(state).await.map_err(behind)?;
            if order.as_of.is_some_and(|revision| revision != state.revision) {
                return Err(OfficeError::Moved(state.revision));
            }
            let Some(objects) = self.concerned(state, order).await? else { continue };
            let (next, mut done) = planned(&objects, order)?;
            let checked = self.check(state, (&objects, &next), &done.changed, &mut looked).await?;
            let Some(warnings) = checked else { continue };
            (done.revision, done.warnings) = (state.revision, warnings);
            if order.dry_run {
                self.check_marks(&next, &done.changed).await?;
            }
            if order.dry_run || done.changed.is_empty() {
                return Ok(done);
            }
            let edits: Vec<Edit> = done.changed.iter().map(|changed| edit(changed, &next)).collect();
            let written = self.store.write(state.revision, &order.who, &edits).await;
            let Some(revision) = written.map_err(|error| unwritten(error, &edits, &next))? else { continue };
            let first = state.revision.saturating_add(1);
            for (number, changed) in (first..).zip(&mut done.changed) {
                changed.version = changed.after.is_some().then_some(number);
            }
            done.revision = revision;
            if let Err(error) = self.read_on(state).await {
                // It is written, whatever becomes of the reading: who asked is told so, and the next look reads it.
                tracing::error!(
                    error = format!("{error:#}"),
                    "a change is written and cannot be read here yet"
                );
            }
            return Ok(done);
        }
        Err(OfficeError::Busy)
    }
}

/// What an order makes of the objects; each wish meets what those before it left.
fn planned(objects: &Directory, order: &Order) -> Result<(Directory, Done), OfficeError> {
    let mut next = objects.clone();
    let mut faults = Vec::new();
    for wish in &order.wishes {
        let now = next.get(&wish.name).cloned();
        may(wish, now.as_ref())?;
        match &wish.document {
            Some(document) => match document_of(&wish.name, document, now.as_ref()) {
                Ok(kept) => drop(next.insert(wish.name.clone(), Arc::new(kept))),
                Err(found) => faults.extend(found),
            },
            None => delete(&mut next, wish)?,
        }
    }
    if !faults.is_empty() {
        return Err(OfficeError::Wrong(faults));
    }
    let changed = difference(objects, &next);
    if changed.len() > EDITS_MAX {
        let what = format!("{} objects would change, more than {EDITS_MAX} at once", changed.len());
        return Err(OfficeError::Wrong(vec![fault("", "", what)]));
    }
    Ok((next, Done { revision: 0, changed, warnings: Vec::new() }))
}

fn may(wish: &Wish, now: Option<&Arc<Kept>>) -> Result<(), OfficeError> {
    let conflict = |why, now: Option<&Arc<Kept>>| {
        Err(OfficeError::Conflict { name: Box::new(wish.name.clone()), why, now: now.cloned() })
    };
    match (wish.when, now) {
        (When::New, Some(_)) => conflict("is already there", now),
        (When::There | When::Version(_), None) => Err(OfficeError::Missing(Box::new(wish.name.clone()))),
        (When::Version(version), Some(kept)) if kept.version != version => {
            conflict("was changed since it was read", now)
        }
        (When::Any, None) if wish.document.is_none() => {
            Err(OfficeError::Missing(Box::new(wish.name.clone())))
        }
        _ => Ok(()),
    }
}

/// The document as it is kept: without what is absent anyway.
fn document_of(
    name: &ObjectName,
    document: &Map<String, Value>,
    now: Option<&Arc<Kept>>,
) -> Result<Kept, Vec<Fault>> {
    unrounded(name, document).map_err(|fault| vec![fault])?;
    let mut document = document.clone();
    keep_secret(name, &mut document, now);
    // Absent and null are the same.
    document.retain(|_, value| !value.is_null());
    let form = form(name, &document)?;
    document.remove(id_member(name.kind));
    let mut document = Value::Object(document);
    // The same document is the same text.
    document.sort_all_objects();
    let text = document.to_string();
    if text.len() > DOCUMENT_MAX {
        let what = format!("has {} bytes, more than {DOCUMENT_MAX}", text.len());
        return Err(vec![fault(&place(name), "", what)]);
    }
    let (version, created_at, changed_at) =
        now.map_or((0, 0, 0), |now| (now.version, now.created_at, now.changed_at));
    Ok(Kept { version, document: text, created_at, changed_at, form })
}

/// The hash of a secret is never shown; a document without one means the one that is there.
fn keep_secret(name: &ObjectName, document: &mut Map<String, Value>, now: Option<&Arc<Kept>>) {
    let secret = match name.kind {
        ObjectKind::Key | ObjectKind::Operator => "hash",
        ObjectKind::Upstream => SEALED,
        _ => return,
    };
    let (Some(now), false) = (now, document.contains_key(secret)) else { return };
    let before: Map<String, Value> = serde_json::from_str(&now.document).unwrap_or_default();
    for (member, value) in before {
        if SECRET_MEMBERS.contains(&member.as_str()) {
            document.insert(member, value);
        }
    }
}

fn delete(next: &mut Directory, wish: &Wish) -> Result<(), OfficeError> {
    let below = below(next, &wish.name);
    if !below.is_empty() && !wish.cascade {
        let (name, now) = (Box::new(wish.name.clone()), next.get(&wish.name).cloned());
        let why = "has objects below it; delete those first, or all together (cascade)";
        return Err(OfficeError::Conflict { name, why, now });
    }
    for name in below {
        next.remove(&name);
    }
    next.remove(&wish.name);
    Ok(())
}

/// What belongs to a tenant or a project.
fn below(objects: &Directory, owner: &ObjectName) -> Vec<ObjectName> {
    let (kinds, project): (&[ObjectKind], &str) = match owner.kind {
        ObjectKind::Tenant => {
            (&[ObjectKind::Project, ObjectKind::Key, ObjectKind::Service, ObjectKind::User], "")
        }
        ObjectKind::Project => (&[ObjectKind::Key], &owner.project),
        _ => (&[], ""),
    };
    let mut names = Vec::new();
    for &kind in kinds {
        let (tenant, project) = (owner.tenant.clone(), project.to_owned());
        let first = ObjectName { kind, tenant, project: project.clone(), id: String::new() };
        // Names are in the order of kind, tenant, project.
        let mine = objects.range(first..).map(|(name, _)| name).take_while(|name| {
            name.kind == kind
                && name.tenant == owner.tenant
                && (project.is_empty() || name.project == project)
        });
        names.extend(mine.cloned());
    }
    names
}

/// What has to be written, parents before children.
fn difference(before: &Directory, after: &Directory) -> Vec<Changed> {
    let gone = before.keys().rev().filter(|name| !after.contains_key(name));
    let names = after.keys().chain(gone);
    let changed = names.filter_map(|name| {
        let text = |objects: &Directory| objects.get(name).map(|kept| kept.document.clone());
        let (old, new) = (before.get(name), after.get(name));
        if let (Some(old), Some(new)) = (old, new)
            && (Arc::ptr_eq(old, new) || old.document == new.document)
        {
            return None;
        }
        Some(Changed { name: name.clone(), version: None, before: text(before), after: text(after) })
    });
    changed.collect()
}

/// What is written of an object: its document, and by what else it is found.
fn edit(changed: &Changed, next: &Directory) -> Edit {
    let marks = next.get(&changed.name).map(|kept| marks(&kept.form)).unwrap_or_default();
    Edit { name: changed.name.clone(), document: changed.after.clone(), marks }
}

fn unwritten(error: StoreError, edits: &[Edit], next: &Directory) -> OfficeError {
    match (&error.kind, error.applied) {
        (StoreErrorKind::Taken { mark, by }, _) => {
            let wanted = edits.iter().find(|edit| edit.name != **by && edit.marks.contains(mark));
            let form = |name| next.get(name).map(|kept| &kept.form);
            let fault = wanted.map(|edit| taken(&edit.name, form(&edit.name), mark, by));
            fault.map_or(OfficeError::Away(error), |fault| OfficeError::Wrong(vec![fault]))
        }
        (_, Applied::No) => OfficeError::Away(error),
        (_, Applied::Unknown) => OfficeError::Unsure(error),
    }
}

pub(super) fn fault(object: &str, field: &str, what: String) -> Fault {
    Fault { object: object.to_owned(), field: field.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
    use std::time::Duration;

    use serde_json::json;
    use tollbook_store::{Answer, Change, ChangesQuery, Object, ObjectStore, Objects, ObjectsQuery};
    use tollbook_store_sql::SqlStore;

    use super::*;
    use crate::office::{Grant, Reader, mark_of_hash, mark_of_id};

    /// Nothing fails; the answer to a write is lost; reading fails from the next write on.
    const WELL: u8 = 0;
    const LOST: u8 = 1;
    const LAST: u8 = 2;
    const MUTE: u8 = 3;

    struct Failing {
        store: SqlStore,
        how: AtomicU8,
        /// How many tenants were read.
        reads: AtomicUsize,
        /// What somebody else writes just before the next write.
        meanwhile: Mutex<Vec<Edit>>,
    }

    fn error(applied: Applied) -> StoreError {
        StoreError { kind: StoreErrorKind::Away("a cable".to_owned()), applied }
    }

    impl ObjectStore for Failing {
        fn objects(&self) -> Answer<'_, Objects> {
            self.store.objects()
        }

        fn objects_of<'a>(&'a self, kinds: &'a [ObjectKind]) -> Answer<'a, Objects> {
            self.store.objects_of(kinds)
        }

        fn tenant_objects<'a>(&'a self, tenant: &'a str) -> Answer<'a, Objects> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.store.tenant_objects(tenant)
        }

        fn object<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Option<Object>> {
            self.store.object(name)
        }

        fn marked<'a>(&'a self, mark: &'a str) -> Answer<'a, Option<ObjectName>> {
            self.store.marked(mark)
        }

        fn objects_page<'a>(&'a self, query: &'a ObjectsQuery) -> Answer<'a, Objects> {
            self.store.objects_page(query)
        }

        fn changes_since(&self, revision: u64) -> Answer<'_, Vec<Change>> {
            if self.how.load(Ordering::Relaxed) == MUTE {
                Box::pin(async { Err(error(Applied::No)) })
            } else {
                self.store.changes_since(revision)
            }
        }

        fn write<'a>(&'a self, revision: u64, who: &'a str, edits: &'a [Edit]) -> Answer<'a, Option<u64>> {
            Box::pin(async move {
                let meanwhile = std::mem::take(&mut *self.meanwhile.lock().unwrap());
                if !meanwhile.is_empty() {
                    self.store.write(revision, "elsewhere", &meanwhile).await.unwrap().unwrap();
                }
                let written = self.store.write(revision, who, edits).await;
                match self.how.load(Ordering::Relaxed) {
                    LOST => return Err(error(Applied::Unknown)),
                    LAST => self.how.store(MUTE, Ordering::Relaxed),
                    _ => {}
                }
                written
            })
        }

        fn changes<'a>(&'a self, query: &'a ChangesQuery) -> Answer<'a, Vec<Change>> {
            self.store.changes(query)
        }
    }

    async fn opened(folder: &Path, how: u8) -> (SqlStore, Arc<Failing>, Office) {
        let text = "config: { source: sql }\nadmin: { api_key: long-enough-to-be-no-trouble }\n\
            upstreams: [{ name: u, dialect: openai, base_url: http://127.0.0.1:9/v1 }]\n\
            models: [{ name: m, upstream: u, output: { default: 50 }, price: { input: 1, output: 2 } }]\n";
        let base = crate::config::load_text("t", text, folder, &|_| None).unwrap().base.unwrap();
        let store = SqlStore::open(&folder.join("store.sqlite")).await.unwrap();
        let failing = Arc::new(Failing {
            store: store.clone(),
            how: AtomicU8::new(how),
            reads: AtomicUsize::default(),
            meanwhile: Mutex::default(),
        });
        let (history, journal) = (Arc::new(store.clone()), Arc::new(store.clone()));
        let reader = |objects| Reader {
            objects,
            history,
            journal,
            cache: None,
            forgets: None,
            metrics: Arc::default(),
        };
        let (office, _) = Office::open(failing.clone(), reader, base).await.unwrap();
        (store, failing, office)
    }

    fn tenant(id: &str) -> Order {
        let wish = Wish {
            name: ObjectName::tenant(id),
            document: Some(Map::new()),
            when: When::New,
            cascade: false,
        };
        Order { who: "ann".to_owned(), wishes: vec![wish], as_of: None, dry_run: false }
    }

    /// "Nothing of it stays" is said only where it is so.
    #[tokio::test]
    async fn what_may_be_written_is_not_told_as_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (store, failing, office) = opened(folder.path(), WELL).await;
        let mut state = office.lock().await;
        let how = |how| failing.how.store(how, Ordering::Relaxed);

        how(LOST);
        let lost = office.write(&mut state, &tenant("lost")).await;
        assert!(matches!(lost, Err(OfficeError::Unsure(_))), "{lost:?}");
        how(WELL);
        let again = office.write(&mut state, &tenant("lost")).await;
        assert!(matches!(again, Err(OfficeError::Conflict { .. })), "{again:?}");

        let stale = Order { as_of: Some(0), ..tenant("stale") };
        let stale = office.write(&mut state, &stale).await;
        assert!(matches!(stale, Err(OfficeError::Moved(1))), "{stale:?}");

        how(LAST);
        let done = office.write(&mut state, &tenant("last")).await.unwrap();
        assert_eq!(
            (done.revision, done.changed[0].version),
            (2, Some(2)),
            "it is made, and cannot be read back"
        );
        let away = office.write(&mut state, &tenant("next")).await;
        assert!(matches!(away, Err(OfficeError::Away(_))), "{away:?}");
        drop(state);
        store.close().await;
    }

    fn wish(name: ObjectName, document: &Value) -> Wish {
        Wish { name, document: document.as_object().cloned(), when: When::Any, cascade: false }
    }

    fn of(kind: ObjectKind, tenant: &str, project: &str, id: &str) -> ObjectName {
        ObjectName { kind, tenant: tenant.to_owned(), project: project.to_owned(), id: id.to_owned() }
    }

    /// A key is found by its id and by its secrets, also after it was moved to another project in one change.
    #[tokio::test]
    async fn a_key_has_its_marks_in_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _, office) = opened(folder.path(), WELL).await;
        let hash = |digit: &str| format!("blake3:{}", digit.repeat(64));
        let previous = json!({"hash": hash("b"), "until": "2027-01-01T00:00:00Z"});
        let document = json!({"hash": hash("A"), "previous": previous});
        let (web, app) =
            (of(ObjectKind::Project, "acme", "web", ""), of(ObjectKind::Project, "acme", "app", ""));
        let key = of(ObjectKind::Key, "acme", "web", "k");
        let wishes = vec![
            wish(of(ObjectKind::Tenant, "acme", "", ""), &json!({})),
            wish(web, &json!({})),
            wish(app, &json!({})),
            wish(key.clone(), &document),
        ];
        let order = |wishes| Order { who: "ann".to_owned(), wishes, as_of: None, dry_run: false };
        let mut state = office.lock().await;
        office.write(&mut state, &order(wishes)).await.unwrap();
        for mark in [mark_of_id("k"), mark_of_hash(&hash("a")), mark_of_hash(&hash("B"))] {
            assert_eq!(store.marked(&mark).await, Ok(Some(key.clone())), "{mark}");
        }
        let moved = of(ObjectKind::Key, "acme", "app", "k");
        let away = Wish { document: None, ..wish(key, &json!({})) };
        office.write(&mut state, &order(vec![wish(moved.clone(), &document), away])).await.unwrap();
        for mark in [mark_of_id("k"), hash("a"), hash("b")] {
            assert_eq!(store.marked(&mark).await, Ok(Some(moved.clone())), "{mark}");
        }
        drop(state);
        store.close().await;
    }

    /// What the store refuses as another's is told at the key, and not whose it is to those who must not know.
    #[tokio::test]
    async fn a_mark_that_is_taken_is_a_fault_of_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _, office) = opened(folder.path(), WELL).await;
        let hash = |digit: &str| format!("blake3:{}", digit.repeat(64));
        let marks = vec![mark_of_id("k"), hash("a"), hash("b")];
        // As another version may write it: this one's checks find nothing.
        let other = of(ObjectKind::Tenant, "other", "", "");
        let edit = Edit { name: other, document: Some("{}".to_owned()), marks };
        assert_eq!(store.write(0, "elsewhere", &[edit]).await, Ok(Some(1)));
        let mut state = office.lock().await;
        let until = "2027-01-01T00:00:00Z";
        for (id, document, want) in [
            ("k", json!({"hash": hash("c")}), "id: `k` is already taken by tenants/other"),
            ("l", json!({"hash": hash("a")}), "hash: the secret is already another key's"),
            (
                "l",
                json!({"hash": hash("c"), "previous": {"hash": hash("b"), "until": until}}),
                "previous.hash: the secret is already another key's",
            ),
        ] {
            let wishes = vec![
                wish(of(ObjectKind::Tenant, "acme", "", ""), &json!({})),
                wish(of(ObjectKind::Project, "acme", "web", ""), &json!({})),
                wish(of(ObjectKind::Key, "acme", "web", id), &document),
            ];
            let order = Order { who: "ann".to_owned(), wishes, as_of: None, dry_run: false };
            let Err(OfficeError::Wrong(faults)) = office.write(&mut state, &order).await else {
                panic!("{id}")
            };
            assert_eq!(faults[0].to_string(), format!("tenants/acme/projects/web/keys/{id}: {want}"));
            let bound = Grant { tenant: Some("acme".to_owned()), ..Grant::owner() };
            let told = bound.faults(faults);
            assert!(told.len() == 1 && !told[0].to_string().contains("tenants/other"), "{told:?}");
            assert_eq!(store.objects().await.unwrap().revision, 1, "nothing of it stays");
        }
        drop(state);
        store.close().await;
    }

    fn put(name: ObjectName, document: &Value) -> Edit {
        Edit { name, document: Some(document.to_string()), marks: Vec::new() }
    }

    /// Gives the plan one limit.
    fn plans_limit() -> Order {
        let limits = json!({"limits": [{"name": "r", "measure": "requests", "window": "60s", "ceiling": 9}]});
        let wishes = vec![wish(ObjectName::common(ObjectKind::Plan, "gold"), &limits)];
        Order { who: "ann".to_owned(), wishes, as_of: None, dry_run: false }
    }

    /// A plan, and so many tenants that have it.
    async fn with_tenants(store: &SqlStore, tenants: usize) {
        let mut edits = vec![put(ObjectName::common(ObjectKind::Plan, "gold"), &json!({}))];
        let of_plan = json!({"plan": "gold"});
        edits.extend((0..tenants).map(|at| put(ObjectName::tenant(&format!("t{at}")), &of_plan)));
        store.write(0, "elsewhere", &edits).await.unwrap().unwrap();
    }

    /// Who was looked at is looked at again only where somebody changed it: a stream of others' changes, faster than all can
    /// be looked at, keeps no plan from being changed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_plan_is_changed_while_others_change_its_tenants() {
        const TENANTS: usize = 2_000;
        let folder = tempfile::tempdir().unwrap();
        let (store, failing, office) = opened(folder.path(), WELL).await;
        with_tenants(&store, TENANTS).await;
        let other = SqlStore::open(&folder.path().join("store.sqlite")).await.unwrap();
        let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&made));
        let others = tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(20));
            while !over.load(Ordering::Relaxed) {
                pace.tick().await;
                let at = count.load(Ordering::Relaxed);
                let name = ObjectName::tenant(&format!("t{}", at % TENANTS));
                let edit = put(name, &json!({"plan": "gold", "disabled": true}));
                let revision = other.objects_of(&[]).await.unwrap().revision;
                if other.write(revision, "elsewhere", &[edit]).await.unwrap().is_some() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            other.close().await;
        });
        let done = office.write(&mut *office.lock().await, &plans_limit()).await;
        is_over.store(true, Ordering::Relaxed);
        others.await.unwrap();
        assert_eq!(done.unwrap().changed.len(), 1);
        let (reads, made) = (failing.reads.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
        println!("{reads} tenants were read, others made {made} changes meanwhile");
        assert!(made > 1, "others made {made} changes");
        assert!(reads < 2 * TENANTS, "{reads} tenants were read");
        store.close().await;
    }

    /// What others changed since a tenant was looked at is looked at before anything is written.
    #[tokio::test]
    async fn what_is_changed_between_the_look_and_the_write_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let (store, failing, office) = opened(folder.path(), WELL).await;
        with_tenants(&store, 3).await;
        // What the plan's limit is called for `t1`.
        let taken = json!({"plan": "gold", "limits": [
            {"name": "r of t1", "measure": "requests", "window": "1h", "ceiling": 9}]});
        *failing.meanwhile.lock().unwrap() = vec![put(ObjectName::tenant("t1"), &taken)];
        let mut state = office.lock().await;
        let Err(OfficeError::Wrong(faults)) = office.write(&mut state, &plans_limit()).await else {
            panic!("it does not fit")
        };
        assert!(faults[0].to_string().contains("r of t1"), "{faults:?}");
        assert_eq!(failing.reads.load(Ordering::Relaxed), 4, "all three, and the one again");
        // A plan that others change is another plan to look at everybody with.
        let fits = put(ObjectName::tenant("t1"), &json!({"plan": "gold"}));
        let plan = put(ObjectName::common(ObjectKind::Plan, "silver"), &json!({}));
        let revision = store.objects_of(&[]).await.unwrap().revision;
        store.write(revision, "elsewhere", &[fits]).await.unwrap().unwrap();
        *failing.meanwhile.lock().unwrap() = vec![plan];
        failing.reads.store(0, Ordering::Relaxed);
        office.write(&mut state, &plans_limit()).await.unwrap();
        assert_eq!(failing.reads.load(Ordering::Relaxed), 6, "all three twice");
        drop(state);
        store.close().await;
    }
}
