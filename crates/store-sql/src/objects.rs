//! What operators define: documents and their changes.

use tollbook_store::{
    Answer, CHANGES_MAX, Change, ChangesQuery, DOCUMENT_MAX, EDITS_MAX, Edit, Object, ObjectKind, ObjectName,
    ObjectStore, Objects, StoreError, StoreErrorKind,
};

use crate::db::{Row, Tx, ask};
use crate::error::not_applied;
use crate::line::stored;
use crate::sql::{
    CHANGE_INSERT, CHANGE_LIST, CHANGE_NEWEST, CHANGE_SINCE, OBJECT_DELETE, OBJECT_DOCUMENT, OBJECT_LIST,
    OBJECT_PUT,
};
use crate::{SqlStore, row};

impl ObjectStore for SqlStore {
    fn objects(&self) -> Answer<'_, Objects> {
        self.pools.again(move || {
            Box::pin(async move {
                // Both questions see the same moment.
                let mut tx = self.pools.look().await?;
                let revision = newest(&mut tx).await?;
                let rows = tx.rows(ask(&OBJECT_LIST)).await?;
                tx.commit().await?;
                let objects = rows.iter().map(object).collect::<Result<_, _>>().map_err(not_applied)?;
                Ok(Objects { revision, objects })
            })
        })
    }

    fn changes_since(&self, revision: u64) -> Answer<'_, Vec<Change>> {
        let question = move || ask(&CHANGE_SINCE).bind(stored(revision)).bind(page(CHANGES_MAX));
        self.found(question, |rows| rows.iter().map(change).collect())
    }

    fn write<'a>(&'a self, revision: u64, who: &'a str, edits: &'a [Edit]) -> Answer<'a, Option<u64>> {
        self.pools.again(move || {
            Box::pin(async move {
                check(edits)?;
                let mut tx = self.pools.begin().await?;
                if newest(&mut tx).await? != revision {
                    return Ok(None);
                }
                let mut number = revision;
                for edit in edits {
                    number = number.saturating_add(1);
                    write_one(&mut tx, number, who, edit).await?;
                }
                tx.commit().await?;
                Ok(Some(number))
            })
        })
    }

    fn changes<'a>(&'a self, query: &'a ChangesQuery) -> Answer<'a, Vec<Change>> {
        let before = query.before.map_or(i64::MAX, stored);
        let question =
            move || ask(&CHANGE_LIST).bind(query.tenant.as_deref()).bind(before).bind(page(query.limit));
        self.found(question, |rows| rows.iter().map(change).collect())
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

async fn newest(tx: &mut Tx<'_>) -> Result<u64, StoreError> {
    let newest = tx.row(ask(&CHANGE_NEWEST)).await?;
    let newest = newest.map_or(Ok(0), |row| row.int(0)).map_err(not_applied)?;
    Ok(u64::try_from(newest).unwrap_or(0))
}

/// The object, and the record of its change.
async fn write_one(tx: &mut Tx<'_>, number: u64, who: &str, edit: &Edit) -> Result<(), StoreError> {
    let ObjectName { kind, tenant, project, id } = &edit.name;
    let kind = code(*kind);
    let named =
        |statement| ask(statement).bind(kind).bind(tenant.as_str()).bind(project.as_str()).bind(id.as_str());
    let before = tx.row(named(&OBJECT_DOCUMENT)).await?;
    let before =
        before.map(|row| row.text("document").map(str::to_owned)).transpose().map_err(not_applied)?;
    let write = match &edit.document {
        Some(document) => named(&OBJECT_PUT).bind(stored(number)).bind(document.as_str()),
        None if before.is_none() => {
            return Err(StoreError::not_applied(StoreErrorKind::Refused("the object is not there")));
        }
        None => named(&OBJECT_DELETE),
    };
    tx.change(write).await?;
    let record = ask(&CHANGE_INSERT).bind(stored(number)).bind(who).bind(kind).bind(tenant.as_str());
    let record = record.bind(project.as_str()).bind(id.as_str()).bind(before).bind(edit.document.as_deref());
    tx.change(record).await.map(|_| ())
}

fn page(limit: usize) -> i64 {
    i64::try_from(limit.min(CHANGES_MAX)).unwrap_or(i64::MAX)
}

fn code(kind: ObjectKind) -> i64 {
    let place = ObjectKind::ALL.iter().position(|known| *known == kind);
    place.and_then(|place| i64::try_from(place).ok()).unwrap_or(i64::MAX)
}

fn name(row: &Row) -> Result<ObjectName, sqlx::Error> {
    let kind: usize = row::number(row, "kind")?;
    // The table's own check allows no other.
    let kind = ObjectKind::ALL.get(kind).copied().unwrap_or(ObjectKind::Operator);
    Ok(ObjectName {
        kind,
        tenant: row.text("tenant")?.to_owned(),
        project: row.text("project")?.to_owned(),
        id: row.text("id")?.to_owned(),
    })
}

fn object(row: &Row) -> Result<Object, sqlx::Error> {
    Ok(Object {
        name: name(row)?,
        version: row::number(row, "version")?,
        document: row.text("document")?.to_owned(),
        created_at: row::number(row, "created_at")?,
        changed_at: row::number(row, "changed_at")?,
    })
}

fn change(row: &Row) -> Result<Change, sqlx::Error> {
    Ok(Change {
        number: row::number(row, "number")?,
        at: row::number(row, "at")?,
        who: row.text("who")?.to_owned(),
        name: name(row)?,
        before: row.maybe_text("before")?.map(str::to_owned),
        after: row.maybe_text("after")?.map(str::to_owned),
    })
}
