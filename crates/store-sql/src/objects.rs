//! What operators define: documents and their changes.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use tollbook_store::{
    Answer, CHANGES_MAX, Change, ChangesQuery, DOCUMENT_MAX, EDITS_MAX, Edit, Object, ObjectKind, ObjectName,
    ObjectStore, Objects, StoreError, StoreErrorKind,
};

use crate::error::{commit, not_applied};
use crate::line::stored;
use crate::sql::{
    CHANGE_INSERT, CHANGE_LIST, CHANGE_NEWEST, CHANGE_SINCE, OBJECT_DELETE, OBJECT_DOCUMENT, OBJECT_LIST,
    OBJECT_PUT,
};
use crate::{SqliteStore, row};

type Connection = sqlx::SqliteConnection;

impl ObjectStore for SqliteStore {
    fn objects(&self) -> Answer<'_, Objects> {
        Box::pin(async move {
            // One transaction: both questions see the same moment.
            let mut tx = self.readers.begin().await.map_err(not_applied)?;
            let revision = newest(&mut tx).await?;
            let rows = sqlx::query(OBJECT_LIST).fetch_all(&mut *tx).await.map_err(not_applied)?;
            let objects = rows.iter().map(object).collect::<Result<_, _>>().map_err(not_applied)?;
            Ok(Objects { revision, objects })
        })
    }

    fn changes_since(&self, revision: u64) -> Answer<'_, Vec<Change>> {
        Box::pin(async move {
            let rows = sqlx::query(CHANGE_SINCE).bind(stored(revision)).bind(page(CHANGES_MAX));
            let rows = rows.fetch_all(&self.readers).await.map_err(not_applied)?;
            rows.iter().map(change).collect::<Result<_, _>>().map_err(not_applied)
        })
    }

    fn write<'a>(&'a self, revision: u64, who: &'a str, edits: &'a [Edit]) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            check(edits)?;
            let mut tx = self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
            if newest(&mut tx).await? != revision {
                return Ok(None);
            }
            let mut number = revision;
            for edit in edits {
                number = number.saturating_add(1);
                write_one(&mut tx, number, who, edit).await?;
            }
            tx.commit().await.map_err(commit)?;
            Ok(Some(number))
        })
    }

    fn changes<'a>(&'a self, query: &'a ChangesQuery) -> Answer<'a, Vec<Change>> {
        Box::pin(async move {
            let before = query.before.map_or(i64::MAX, stored);
            let rows = sqlx::query(CHANGE_LIST).bind(query.tenant.as_deref()).bind(before);
            let rows = rows.bind(page(query.limit)).fetch_all(&self.readers).await.map_err(not_applied)?;
            rows.iter().map(change).collect::<Result<_, _>>().map_err(not_applied)
        })
    }
}

fn check(edits: &[Edit]) -> Result<(), StoreError> {
    let refused = |what| Err(StoreError::not_applied(StoreErrorKind::Refused(what)));
    if edits.len() > EDITS_MAX {
        return refused("too many objects in one change");
    }
    if edits.iter().filter_map(|edit| edit.document.as_ref()).any(|text| text.len() > DOCUMENT_MAX) {
        return refused("an object is too large");
    }
    Ok(())
}

async fn newest(connection: &mut Connection) -> Result<u64, StoreError> {
    let newest: i64 = sqlx::query_scalar(CHANGE_NEWEST).fetch_one(connection).await.map_err(not_applied)?;
    Ok(u64::try_from(newest).unwrap_or(0))
}

/// The object, and the record of its change.
async fn write_one(
    connection: &mut Connection,
    number: u64,
    who: &str,
    edit: &Edit,
) -> Result<(), StoreError> {
    let ObjectName { kind, tenant, project, id } = &edit.name;
    let kind = code(*kind);
    let before = sqlx::query_scalar(OBJECT_DOCUMENT).bind(kind).bind(tenant).bind(project).bind(id);
    let before: Option<String> = before.fetch_optional(&mut *connection).await.map_err(not_applied)?;
    let write = match &edit.document {
        Some(document) => {
            let put = sqlx::query(OBJECT_PUT).bind(kind).bind(tenant).bind(project).bind(id);
            put.bind(stored(number)).bind(document)
        }
        None if before.is_none() => {
            return Err(StoreError::not_applied(StoreErrorKind::Refused("the object is not there")));
        }
        None => sqlx::query(OBJECT_DELETE).bind(kind).bind(tenant).bind(project).bind(id),
    };
    write.execute(&mut *connection).await.map_err(not_applied)?;
    let record = sqlx::query(CHANGE_INSERT).bind(stored(number)).bind(who).bind(kind).bind(tenant);
    let record = record.bind(project).bind(id).bind(before).bind(edit.document.as_deref());
    record.execute(connection).await.map(|_| ()).map_err(not_applied)
}

fn page(limit: usize) -> i64 {
    i64::try_from(limit.min(CHANGES_MAX)).unwrap_or(i64::MAX)
}

fn code(kind: ObjectKind) -> i64 {
    let place = ObjectKind::ALL.iter().position(|known| *known == kind);
    place.and_then(|place| i64::try_from(place).ok()).unwrap_or(i64::MAX)
}

fn name(row: &SqliteRow) -> Result<ObjectName, sqlx::Error> {
    let kind: usize = row::number(row, "kind")?;
    // The table's own check allows no other.
    let kind = ObjectKind::ALL.get(kind).copied().unwrap_or(ObjectKind::Operator);
    Ok(ObjectName {
        kind,
        tenant: row.try_get("tenant")?,
        project: row.try_get("project")?,
        id: row.try_get("id")?,
    })
}

fn object(row: &SqliteRow) -> Result<Object, sqlx::Error> {
    Ok(Object {
        name: name(row)?,
        version: row::number(row, "version")?,
        document: row.try_get("document")?,
        created_at: row::number(row, "created_at")?,
        changed_at: row::number(row, "changed_at")?,
    })
}

fn change(row: &SqliteRow) -> Result<Change, sqlx::Error> {
    Ok(Change {
        number: row::number(row, "number")?,
        at: row::number(row, "at")?,
        who: row.try_get("who")?,
        name: name(row)?,
        before: row.try_get("before")?,
        after: row.try_get("after")?,
    })
}
