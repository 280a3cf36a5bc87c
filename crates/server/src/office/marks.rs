//! By what else an object is found in the store than by its name: keys by their ids, which no two tenants share, and by
//! the hashes of the secrets that they are shown by.

use tollbook_store::ObjectName;

use crate::config::{Fault, Form, place};
use crate::key::KeyHash;

/// Begins the mark of an id; no hash begins so.
const ID: &str = "key ";

/// The mark of the key with this id.
pub fn mark_of_id(id: &str) -> String {
    format!("{ID}{id}")
}

/// The mark of the key with a secret of this hash, however it is spelled.
pub fn mark_of_hash(text: &str) -> String {
    KeyHash::parse(text).map_or_else(|| text.to_owned(), |hash| hash.to_string())
}

/// The marks of a document's object.
pub(super) fn marks(form: &Form) -> Vec<String> {
    let Form::Key(key) = form else { return Vec::new() };
    let hashes = key.hash.iter().chain(key.previous.as_ref().map(|previous| &previous.hash));
    std::iter::once(mark_of_id(&key.id)).chain(hashes.map(|hash| mark_of_hash(hash))).collect()
}

/// What is wrong with a key whose mark is another object's. Whose an id is, is told to whom it concerns
/// ([`super::Grant::faults`]); whose a secret is, to nobody.
pub(super) fn taken(key: &ObjectName, form: Option<&Form>, mark: &str, by: &ObjectName) -> Fault {
    let is_present = matches!(form, Some(Form::Key(key)) if key.hash.as_deref().is_some_and(|hash| mark_of_hash(hash) == mark));
    let (field, what) = match mark.strip_prefix(ID) {
        Some(id) => ("id", format!("`{id}` is already taken by {}", place(by))),
        None if is_present => ("hash", "the secret is already another key's".to_owned()),
        None => ("previous.hash", "the secret is already another key's".to_owned()),
    };
    Fault { object: place(key), field: field.to_owned(), what }
}
