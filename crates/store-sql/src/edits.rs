//! Writing edits: documents, the records of their changes, and marks.
//!
//! Whoever writes holds up all others that write, so rows go many at a time. What one statement takes is bounded by rows and
//! by bytes: a server refuses a longer one.

use std::collections::BTreeSet;

use tollbook_store::{DOCUMENT_MAX, EDITS_MAX, Edit, ObjectName, StoreError, StoreErrorKind};

use crate::db::{Tx, Value, ask};
use crate::error::not_applied;
use crate::line::{json, stored};
use crate::marks::Marks;
use crate::objects::code;
use crate::row;
use crate::sql::{CHANGE_INSERTS, OBJECT_DELETE, OBJECT_DOCUMENTS, OBJECT_PUTS};

/// Rows that are read or written at once, at most.
pub(crate) const ROWS: usize = 64;
/// New documents that are written at once, in bytes; what they take the place of comes on top.
const BYTES: usize = 1 << 20;

/// Edits that can be written, and the marks of their objects.
pub(crate) struct Edits<'a> {
    edits: &'a [Edit],
    marks: Marks<'a>,
}

impl<'a> Edits<'a> {
    pub(crate) fn of(edits: &'a [Edit]) -> Result<Self, StoreError> {
        if edits.len() > EDITS_MAX {
            return refused("too many objects in one change");
        }
        if edits.iter().filter_map(|edit| edit.document.as_ref()).any(|text| text.len() > DOCUMENT_MAX) {
            return refused("an object is too large");
        }
        if edits.iter().any(|Edit { name, .. }| {
            [&name.tenant, &name.project, &name.id].iter().any(|id| id.contains('\0'))
        }) {
            return refused("a name has a zero byte");
        }
        Ok(Self { edits, marks: Marks::of(edits)? })
    }

    /// Writes them all; the changes are numbered from the one after `revision`. `at` is the store's time.
    pub(crate) async fn write(
        self,
        tx: &mut Tx<'_>,
        (revision, at): (u64, i64),
        who: &str,
    ) -> Result<u64, StoreError> {
        let mut number = revision;
        let (mut seen, mut there) = (BTreeSet::new(), BTreeSet::new());
        let mut rest = self.edits;
        while let Some((some, more)) = rest.split_at_checked(part(rest)).filter(|(some, _)| !some.is_empty())
        {
            let before = write_some(tx, (number, at), who, some).await?;
            for (edit, before) in some.iter().zip(before) {
                number = number.saturating_add(1);
                if seen.insert(&edit.name) && before {
                    there.insert(&edit.name);
                }
            }
            rest = more;
        }
        self.marks.put(tx, &there).await?;
        Ok(number)
    }
}

fn refused<T>(what: &'static str) -> Result<T, StoreError> {
    Err(StoreError::not_applied(StoreErrorKind::Refused(what)))
}

/// How many of the edits are written at once: no object twice, since each is written on what is there.
fn part(edits: &[Edit]) -> usize {
    let (mut names, mut bytes) = (BTreeSet::new(), 0_usize);
    for edit in edits.iter().take(ROWS) {
        bytes = bytes.saturating_add(edit.document.as_ref().map_or(0, String::len));
        if !names.is_empty() && bytes > BYTES || !names.insert(&edit.name) {
            break;
        }
    }
    names.len()
}

/// Writes edits of different objects; whether each was there before.
async fn write_some(
    tx: &mut Tx<'_>,
    (mut number, at): (u64, i64),
    who: &str,
    edits: &[Edit],
) -> Result<Vec<bool>, StoreError> {
    let before = documents(tx, edits).await?;
    let (mut puts, mut deletes, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    let was_there = before.iter().map(Option::is_some).collect();
    for (Edit { name, document, .. }, before) in edits.iter().zip(before) {
        number = number.saturating_add(1);
        let version = Value::Int(stored(number));
        match document {
            Some(document) => {
                let rest = [version.clone(), Value::from(document.as_str()), Value::Int(at), Value::Int(at)];
                puts.push(name_values(name).into_iter().chain(rest).collect());
            }
            None if before.is_none() => return refused("the object is not there"),
            None => deletes.push(name),
        }
        let first = [version, Value::Int(at), Value::from(who)];
        let documents = [Value::from(before), Value::from(document.as_deref())];
        changes.push(first.into_iter().chain(name_values(name)).chain(documents).collect());
    }
    tx.change_all(&OBJECT_PUTS, puts).await?;
    if !deletes.is_empty() {
        tx.change(ask(&OBJECT_DELETE).bind(names(deletes.into_iter())?)).await?;
    }
    tx.change_all(&CHANGE_INSERTS, changes).await?;
    Ok(was_there)
}

/// The documents that are there, by the edits' order.
async fn documents(tx: &mut Tx<'_>, edits: &[Edit]) -> Result<Vec<Option<String>>, StoreError> {
    let wanted = names(edits.iter().map(|edit| &edit.name))?;
    let mut documents = vec![None; edits.len()];
    for found in tx.rows(ask(&OBJECT_DOCUMENTS).bind(wanted)).await? {
        let number: usize = row::number(&found, "number").map_err(not_applied)?;
        if let Some(document) = documents.get_mut(number) {
            *document = Some(found.text("document").map_err(not_applied)?.to_owned());
        }
    }
    Ok(documents)
}

/// Names as statements take them that are about many.
pub(crate) fn names<'a>(names: impl Iterator<Item = &'a ObjectName>) -> Result<String, StoreError> {
    let line = |name: &'a ObjectName| (code(name.kind), &name.tenant, &name.project, &name.id);
    json(&names.map(line).collect::<Vec<_>>())
}

/// A name as the columns of a row.
pub(crate) fn name_values(name: &ObjectName) -> [Value; 4] {
    let text = |text: &String| Value::from(text.as_str());
    [Value::Int(code(name.kind)), text(&name.tenant), text(&name.project), text(&name.id)]
}

#[cfg(test)]
mod tests {
    use tollbook_store::ObjectKind;

    use super::*;

    fn edit(id: usize, bytes: usize) -> Edit {
        let name = ObjectName::common(ObjectKind::Plan, &id.to_string());
        Edit { name, document: Some("x".repeat(bytes)), marks: Vec::new() }
    }

    #[test]
    fn what_is_written_at_once_is_bounded_and_has_no_object_twice() {
        let many: Vec<_> = (0..=ROWS).map(|id| edit(id, 1)).collect();
        assert_eq!(part(&many), ROWS);
        assert_eq!(part(&many[..ROWS - 1]), ROWS - 1);
        assert_eq!(part(&[]), 0);
        assert_eq!(part(&[edit(1, 1), edit(2, 1), edit(1, 1)]), 2);
        assert_eq!(part(&[edit(1, 1), edit(1, 1)]), 1);
        let long: Vec<_> = (0..ROWS).map(|id| edit(id, DOCUMENT_MAX)).collect();
        assert_eq!(part(&long), BYTES / DOCUMENT_MAX);
        let longer: Vec<_> = (0..ROWS).map(|id| edit(id, BYTES + 1)).collect();
        assert_eq!(part(&longer), 1, "one is always written");
    }
}
