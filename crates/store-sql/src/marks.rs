//! By what else objects are found: what a write makes of it.
//!
//! A mark is asked for as of the end of the write: it may go from an object to another in one of them, in whatever order
//! the edits stand. Two objects that want one mark refuse the whole write, and who has it is told.

use std::collections::{BTreeMap, BTreeSet};

use tollbook_store::{Edit, MARK_MAX, MARKS_MAX, ObjectName, StoreError, StoreErrorKind};

use crate::db::{Tx, Value, ask};
use crate::edits::{ROWS, name_values, names};
use crate::error::not_applied;
use crate::objects::name;
use crate::row;
use crate::sql::{MARK_DELETES, MARK_FIND, MARK_INSERTS, MARK_LIST};

/// What each edited object is found by after a write.
pub(crate) struct Marks<'a>(BTreeMap<&'a ObjectName, BTreeSet<&'a str>>);

impl<'a> Marks<'a> {
    /// Of an object that is edited more than once, those of its last edit.
    pub(crate) fn of(edits: &'a [Edit]) -> Result<Self, StoreError> {
        let mut marks = BTreeMap::new();
        for edit in edits {
            check(edit)?;
            marks.insert(&edit.name, edit.marks.iter().map(String::as_str).collect());
        }
        let marks = Self(marks);
        let mut owners = BTreeMap::new();
        for (mark, object) in marks.all() {
            if let Some(other) = owners.insert(mark, object) {
                return Err(taken(mark, other.clone()));
            }
        }
        Ok(marks)
    }

    fn all(&self) -> impl Iterator<Item = (&'a str, &'a ObjectName)> {
        self.0.iter().flat_map(|(object, marks)| marks.iter().map(|mark| (*mark, *object)))
    }

    /// Puts them in place of those that the objects had; `there` are the objects that were there before.
    pub(crate) async fn put(
        mut self,
        tx: &mut Tx<'_>,
        there: &BTreeSet<&'a ObjectName>,
    ) -> Result<(), StoreError> {
        let there: Vec<&ObjectName> = there.iter().copied().collect();
        let mut gone = Vec::new();
        for some in there.chunks(ROWS) {
            let rows = tx.rows(ask(&MARK_LIST).bind(names(some.iter().copied())?)).await?;
            for row in &rows {
                let number: usize = row::number(row, "number").map_err(not_applied)?;
                let mark = row.text("mark").map_err(not_applied)?;
                let wanted = some.get(number).and_then(|object| self.0.get_mut(*object));
                // One that it has is not written again.
                if !wanted.is_some_and(|marks| marks.remove(mark)) {
                    gone.push(vec![Value::Text(mark.to_owned())]);
                }
            }
        }
        tx.change_all(&MARK_DELETES, gone).await?;
        let new: Vec<(&str, &ObjectName)> = self.all().collect();
        for some in new.chunks(ROWS) {
            if let Err(error) = tx.change_all(&MARK_INSERTS, values(some)).await {
                return Err(taken_of(tx, some).await?.unwrap_or(error));
            }
        }
        Ok(())
    }
}

fn check(edit: &Edit) -> Result<(), StoreError> {
    let refused = |what| Err(StoreError::not_applied(StoreErrorKind::Refused(what)));
    if edit.document.is_none() && !edit.marks.is_empty() {
        return refused("an object that is deleted has no marks");
    }
    if edit.marks.len() > MARKS_MAX {
        return refused("an object has too many marks");
    }
    if edit.marks.iter().any(|mark| mark.is_empty() || mark.len() > MARK_MAX) {
        return refused("a mark is empty or too long");
    }
    Ok(())
}

fn values(marks: &[(&str, &ObjectName)]) -> Vec<Vec<Value>> {
    let row = |(mark, object): &(&str, &ObjectName)| {
        std::iter::once(Value::from(*mark)).chain(name_values(object)).collect()
    };
    marks.iter().map(row).collect()
}

/// Which of these marks is another object's.
async fn taken_of(tx: &mut Tx<'_>, marks: &[(&str, &ObjectName)]) -> Result<Option<StoreError>, StoreError> {
    for (mark, object) in marks {
        let Some(row) = tx.row(ask(&MARK_FIND).bind(*mark)).await? else { continue };
        let by = name(&row).map_err(not_applied)?;
        if by != **object {
            return Ok(Some(taken(mark, by)));
        }
    }
    Ok(None)
}

fn taken(mark: &str, by: ObjectName) -> StoreError {
    let by = Box::new(by);
    StoreError::not_applied(StoreErrorKind::Taken { mark: mark.to_owned(), by })
}
