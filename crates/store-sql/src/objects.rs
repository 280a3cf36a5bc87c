//! What operators define: documents and their changes.

use std::collections::BTreeSet;

use tollbook_store::{
    Answer, CHANGES_MAX, Change, ChangesQuery, Edit, OBJECTS_MAX, Object, ObjectKind, ObjectName,
    ObjectStore, Objects, ObjectsQuery, StoreError,
};

use crate::db::{Ask, Row, Tx, ask};
use crate::edits::{Edits, name_values};
use crate::error::not_applied;
use crate::line::stored;
use crate::range::Range;
use crate::sql::{
    CHANGE_LIST, CHANGE_NEWEST, CHANGE_OF_TENANT, CHANGE_SINCE, MARK_FIND, OBJECT_LIST, OBJECT_LIST_OF,
    OBJECT_OF_TENANT, OBJECT_ONE, OBJECT_PAGE,
};
use crate::{SqlStore, row};

impl ObjectStore for SqlStore {
    fn objects(&self) -> Answer<'_, Objects> {
        self.seen(|| Ok(vec![ask(&OBJECT_LIST)]))
    }

    fn objects_of<'a>(&'a self, kinds: &'a [ObjectKind]) -> Answer<'a, Objects> {
        self.seen(move || {
            // Each once, in their order.
            let kinds = kinds.iter().copied().collect::<BTreeSet<_>>().into_iter();
            Ok(kinds.map(|kind| ask(&OBJECT_LIST_OF).bind(code(kind))).collect())
        })
    }

    fn tenant_objects<'a>(&'a self, tenant: &'a str) -> Answer<'a, Objects> {
        self.found(
            move || ask(&OBJECT_OF_TENANT).bind(tenant),
            |rows| {
                let revision = rows.first().map_or(Ok(0), |row| row::number(row, "revision"))?;
                let there = rows.iter().filter(|row| !matches!(row.maybe_text("document"), Ok(None)));
                let mut objects: Vec<Object> = there.map(object).collect::<Result<_, _>>()?;
                objects.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(Objects { revision, objects })
            },
        )
    }

    fn object<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Option<Object>> {
        let question = move || name_values(name).into_iter().fold(ask(&OBJECT_ONE), Ask::bind);
        self.found(question, |rows| rows.first().map(object).transpose())
    }

    fn marked<'a>(&'a self, mark: &'a str) -> Answer<'a, Option<ObjectName>> {
        self.found(move || ask(&MARK_FIND).bind(mark), |rows| rows.first().map(name).transpose())
    }

    fn objects_page<'a>(&'a self, query: &'a ObjectsQuery) -> Answer<'a, Objects> {
        self.seen(move || {
            let page = ask(&OBJECT_PAGE).bind(code(query.kind));
            let page = Range::of(query)?.values().fold(page, Ask::bind);
            Ok(vec![page.bind(at_most(query.limit, OBJECTS_MAX))])
        })
    }

    fn changes_since(&self, revision: u64) -> Answer<'_, Vec<Change>> {
        let question =
            move || ask(&CHANGE_SINCE).bind(stored(revision)).bind(at_most(CHANGES_MAX, CHANGES_MAX));
        self.found(question, |rows| rows.iter().map(change).collect())
    }

    fn write<'a>(&'a self, revision: u64, who: &'a str, edits: &'a [Edit]) -> Answer<'a, Option<u64>> {
        self.pools.again(move || {
            Box::pin(async move {
                let edits = Edits::of(edits)?;
                let mut tx = self.pools.begin().await?;
                let (newest, now) = newest(&mut tx).await?;
                if newest != revision {
                    return Ok(None);
                }
                let number = edits.write(&mut tx, (revision, now), who).await?;
                tx.commit().await?;
                Ok(Some(number))
            })
        })
    }

    fn changes<'a>(&'a self, query: &'a ChangesQuery) -> Answer<'a, Vec<Change>> {
        let before = query.before.map_or(i64::MAX, stored);
        let question = move || {
            let list = match query.tenant.as_deref() {
                Some(tenant) => ask(&CHANGE_OF_TENANT).bind(tenant),
                None => ask(&CHANGE_LIST),
            };
            list.bind(before).bind(at_most(query.limit, CHANGES_MAX))
        };
        self.found(question, |rows| rows.iter().map(change).collect())
    }
}

impl SqlStore {
    /// The objects that the questions find, by name, and the revision of the same moment.
    fn seen<'a>(
        &'a self,
        questions: impl Fn() -> Result<Vec<Ask>, StoreError> + Send + 'a,
    ) -> Answer<'a, Objects> {
        self.pools.again(move || {
            let questions = questions();
            Box::pin(async move {
                let questions = questions?;
                let mut tx = self.pools.look().await?;
                let (revision, _) = newest(&mut tx).await?;
                let mut objects: Vec<Object> = Vec::new();
                for question in questions {
                    for row in tx.rows(question).await? {
                        objects.push(object(&row).map_err(not_applied)?);
                    }
                }
                tx.commit().await?;
                // Most of them are in order already.
                objects.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(Objects { revision, objects })
            })
        })
    }
}

/// The newest change's number, and the time of the store.
async fn newest(tx: &mut Tx<'_>) -> Result<(u64, i64), StoreError> {
    let Some(row) = tx.row(ask(&CHANGE_NEWEST)).await? else { return Ok((0, 0)) };
    let read = || Ok((row::number(&row, "number")?, row.int("at")?));
    read().map_err(not_applied)
}

fn at_most(limit: usize, max: usize) -> i64 {
    i64::try_from(limit.min(max)).unwrap_or(i64::MAX)
}

pub(crate) fn code(kind: ObjectKind) -> i64 {
    let place = ObjectKind::ALL.iter().position(|known| *known == kind);
    place.and_then(|place| i64::try_from(place).ok()).unwrap_or(i64::MAX)
}

pub(crate) fn name(row: &Row) -> Result<ObjectName, sqlx::Error> {
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
