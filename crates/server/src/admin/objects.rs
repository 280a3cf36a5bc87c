//! The operators' API on objects: lists, documents, changes of them, their history, all of them at once.
//!
//! A document that was read can be written back as it was: what cannot be changed in it (ids, version, times) is passed
//! over, and a key's hash, which is never shown, stays. A secret is shown once, where it is made.

use std::sync::Arc;

use http::StatusCode;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tollbook_store::{ChangesQuery, OBJECTS_MAX, ObjectKind, ObjectName, ObjectsQuery};

use super::answer::away;
use super::query::{PAGE_MAX, Query};
use super::routes::{Action, Ids, ROOT};
use super::strict::Strict;
use super::{Admin, Answer, Asked, Refusal, bad, nothing};
use crate::config::file::Role;
use crate::config::{Fault, Kept, SEALED, place};
use crate::key::{self, KeyHash};
use crate::office::{
    Changed, Counter, Done, OfficeError, Order, Secrets, When, Wish, closed, nested, wishes,
};
use crate::seal::Seal;
use crate::text::instant;

/// How often a merge is tried while others change the same object.
const MERGES: usize = 64;
/// How many characters of a secret tell keys apart.
const PREFIX_LENGTH: usize = 8;
/// Members that tell of an object and are not of its document; so do the ids in its path.
const TOLD: [&str; 3] = ["version", "created_at", "changed_at"];
/// Members of a document that are not shown.
const HIDDEN: [&str; 2] = ["hash", SEALED];

pub(super) async fn answer(admin: &Admin, action: Action, asked: Asked<'_>) -> Result<Answer, Refusal> {
    let Some(counter) = &admin.counter else { return Err(in_the_file(action)) };
    let query = Query::parse(action, asked.query)?;
    let dry_run = query.flag("dry_run")?;
    let desk = Desk { admin, counter, asked, query, dry_run };
    match action {
        Action::List(kind) => desk.list(kind).await,
        Action::Create(kind) => desk.create(kind).await,
        Action::Show(kind) => desk.show(kind).await,
        Action::Replace(kind) => desk.replace(kind).await,
        Action::Merge(kind) => desk.merge(kind).await,
        Action::Delete(kind) => desk.delete(kind).await,
        Action::Rotate(kind) => desk.rotate(kind).await,
        Action::Changes => desk.changes().await,
        Action::Apply => desk.apply().await,
        Action::Export => desk.export().await,
        Action::Explain
        | Action::Accounts
        | Action::Limits
        | Action::Prices
        | Action::Inspect
        | Action::Adjust
        | Action::Release
        | Action::Reconcile
        | Action::OpenApi => Err(nothing()),
    }
}

fn in_the_file(action: Action) -> Refusal {
    let reads = matches!(action, Action::List(_) | Action::Show(_) | Action::Changes | Action::Export);
    let status = if reads { StatusCode::NOT_FOUND } else { StatusCode::METHOD_NOT_ALLOWED };
    Refusal::new(status, "in_the_file", OfficeError::File.to_string())
}

/// One question under way.
struct Desk<'a> {
    admin: &'a Admin,
    counter: &'a Counter,
    asked: Asked<'a>,
    query: Query,
    dry_run: bool,
}

impl Desk<'_> {
    fn name(&self, kind: ObjectKind) -> ObjectName {
        self.asked.ids.clone().name(kind)
    }

    async fn list(&self, kind: ObjectKind) -> Result<Answer, Refusal> {
        let (after, prefix) = (self.query.text("after"), self.query.text("prefix").unwrap_or_default());
        let limit = self.query.limit()?;
        let Ids { tenant, project, .. } = &self.asked.ids;
        let inside = match kind {
            ObjectKind::Project | ObjectKind::Service | ObjectKind::User | ObjectKind::Key => {
                Some(tenant.clone())
            }
            // Of somebody who is bound to a tenant, that one.
            _ => self.asked.grant.tenant.clone(),
        };
        let mut query = ObjectsQuery {
            tenant: inside,
            project: (kind == ObjectKind::Key).then(|| project.clone()),
            prefix: prefix.to_owned(),
            after: after.map(|after| {
                let mut name = self.name(kind);
                after.clone_into(own_id_mut(&mut name));
                name
            }),
            // What is filtered here may need more than a page of it; one more tells that there is more.
            ..ObjectsQuery::of(kind, if self.query.filters().next().is_some() { PAGE_MAX } else { limit + 1 })
        };
        let (mut data, mut next, mut revision) = (Vec::new(), None, None);
        while next.is_none() {
            let (of, page) = self.counter.page(&query).await.map_err(refused)?;
            revision.get_or_insert(of);
            for (name, kept) in &page {
                let document = kept.as_ref().map(|kept| document(kept)).unwrap_or_default();
                let is_wanted = |(field, wanted)| matches(document.get(field), wanted);
                if !self.asked.grant.sees(name) || !self.query.filters().all(is_wanted) {
                    continue;
                }
                if data.len() == limit {
                    next = data.last().and_then(|last: &Value| last.get("id").cloned());
                    break;
                }
                data.push(match kept {
                    Ok(kept) => shown(name, kept),
                    Err(version) => json!({"id": own_id(name), "version": version, "unreadable": true}),
                });
            }
            if page.len() < query.limit.min(OBJECTS_MAX) {
                break;
            }
            query.after = page.into_keys().next_back();
        }
        if data.is_empty() && !self.owner_is_there(kind).await? {
            return Err(nothing());
        }
        Ok(json!({"object": "list", "data": data, "next": next, "revision": revision}).into())
    }

    /// Whether what a list hangs on exists.
    async fn owner_is_there(&self, kind: ObjectKind) -> Result<bool, Refusal> {
        let owner = match kind {
            ObjectKind::Project | ObjectKind::Service | ObjectKind::User => ObjectKind::Tenant,
            ObjectKind::Key => ObjectKind::Project,
            _ => return Ok(true),
        };
        Ok(self.kept(&self.name(owner)).await?.is_some())
    }

    /// An object as it is now.
    async fn kept(&self, name: &ObjectName) -> Result<Option<Arc<Kept>>, Refusal> {
        self.counter.object(name).await.map_err(refused)
    }

    async fn show(&self, kind: ObjectKind) -> Result<Answer, Refusal> {
        let name = self.name(kind);
        let kept = self.kept(&name).await?.ok_or_else(nothing)?;
        Ok(of_object(&name, &kept, StatusCode::OK))
    }

    async fn create(self, kind: ObjectKind) -> Result<Answer, Refusal> {
        let mut document = self.document()?;
        let Some(Value::String(id)) = document.remove("id") else {
            return Err(bad("the body has no `id`, or it is no text"));
        };
        let mut name = self.name(kind);
        *own_id_mut(&mut name) = id;
        self.put(name, document, When::New).await
    }

    async fn replace(self, kind: ObjectKind) -> Result<Answer, Refusal> {
        let (mut document, name) = (self.document()?, self.name(kind));
        is_own(&name, &mut document)?;
        let header = |header| self.asked.headers.get(header).and_then(|value| value.to_str().ok());
        let when = match (self.if_match()?, header(IF_NONE_MATCH)) {
            (Some(when), _) => when,
            (None, Some("*")) => When::New,
            (None, _) if self.kept(&name).await?.is_some() => {
                let message = "it is there: say by `If-Match` which version is replaced, or `*` for any";
                return Err(Refusal::new(StatusCode::PRECONDITION_REQUIRED, "no_version", message));
            }
            (None, _) => When::New,
        };
        self.put(name, document, when).await
    }

    /// Writes a document; a key without a hash gets a secret, which is shown in the answer.
    async fn put(
        &self,
        name: ObjectName,
        document: Map<String, Value>,
        when: When,
    ) -> Result<Answer, Refusal> {
        let mut document = document;
        self.is_to_come(&name, &document).await?;
        self.close(&name, &mut document)?;
        let is_new = when == When::New;
        let secret = if is_new { self.secret_for(&name, &mut document)? } else { None };
        let done = self.order(vec![wish(name.clone(), Some(document), when)]).await?;
        Ok(self.written(&name, &done, secret).await)
    }

    /// That something ends in the past is a slip, unless it was so before; `apply` may bring what has ended.
    async fn is_to_come(&self, name: &ObjectName, given: &Map<String, Value>) -> Result<(), Refusal> {
        let expires = |document: &Map<String, Value>| {
            document.get("expires").and_then(Value::as_str).map(str::to_owned)
        };
        if !given.contains_key("expires") {
            return Ok(());
        }
        let before = self.kept(name).await?.and_then(|kept| expires(&document(&kept)));
        let Some(text) = expires(given).filter(|text| before.as_ref() != Some(text)) else { return Ok(()) };
        // One that cannot be read is told with everything else that is wrong.
        let Ok(at) = text.parse::<Timestamp>() else { return Ok(()) };
        if u64::try_from(at.as_microsecond()).unwrap_or(0) <= self.admin.admission.now() {
            return Err(bad("`expires` is in the past; `disabled: true` refuses it at once"));
        }
        Ok(())
    }

    /// Secrets in the clear are not for the store.
    fn close(&self, name: &ObjectName, document: &mut Map<String, Value>) -> Result<(), Refusal> {
        if name.kind == ObjectKind::Upstream {
            closed(&self.keeper(), name, document).map_err(bad)?;
        }
        Ok(())
    }

    fn keeper(&self) -> Keeper<'_> {
        Keeper { admin: self.admin, seal: self.counter.view().seal.clone() }
    }

    /// A key or an operator that is new and has no hash gets one.
    fn secret_for(
        &self,
        name: &ObjectName,
        document: &mut Map<String, Value>,
    ) -> Result<Option<String>, Refusal> {
        if !matches!(name.kind, ObjectKind::Key | ObjectKind::Operator) {
            return Ok(None);
        }
        if document.get("hash").is_some_and(|hash| !hash.is_null()) {
            return Ok(None);
        }
        let (secret, hash, prefix) = self.new_secret()?;
        document.insert("hash".to_owned(), hash);
        document.insert("prefix".to_owned(), prefix);
        Ok(Some(secret))
    }

    fn new_secret(&self) -> Result<(String, Value, Value), Refusal> {
        let secret = key::generate().map_err(|error| away(&format!("no random bits: {error}")))?;
        let hash = KeyHash(self.admin.admission.snapshot().api_key_hash.digest(&secret)).to_string();
        let prefix: String = secret.chars().take(PREFIX_LENGTH).collect();
        Ok((secret, Value::from(hash), Value::from(prefix)))
    }

    async fn merge(self, kind: ObjectKind) -> Result<Answer, Refusal> {
        let (mut patch, name, wanted) = (self.document()?, self.name(kind), self.if_match()?);
        is_own(&name, &mut patch)?;
        self.close(&name, &mut patch)?;
        self.is_to_come(&name, &patch).await?;
        let change = |document: &mut Map<String, Value>| {
            merged(document, &patch);
            // To be without a secret is said; not to speak of it keeps it.
            let without = patch.iter().filter(|(_, value)| value.is_null());
            document.extend(without.map(|(member, _)| (member.clone(), Value::Null)));
        };
        let done = self.change(&name, wanted, change).await?;
        Ok(self.written(&name, &done, None).await)
    }

    async fn rotate(self, kind: ObjectKind) -> Result<Answer, Refusal> {
        let (name, wanted) = (self.name(kind), self.if_match()?);
        let asked = if self.asked.body.is_empty() { Map::new() } else { self.document()? };
        let overlap = overlap(kind, &asked)?;
        let (secret, hash, prefix) = self.new_secret()?;
        let now = i64::try_from(self.admin.admission.now() / 1_000_000).unwrap_or(i64::MAX);
        let until =
            Timestamp::from_second(now.saturating_add(overlap)).map_err(|_| bad("`overlap` is too long"))?;
        let done = self.change(&name, wanted, |document| {
            let before = document.insert("hash".to_owned(), hash.clone());
            document.insert("prefix".to_owned(), prefix.clone());
            match before {
                Some(hash) if overlap > 0 => {
                    document.insert("previous".to_owned(), json!({"hash": hash, "until": until.to_string()}));
                }
                _ => drop(document.remove("previous")),
            }
        });
        let done = done.await?;
        Ok(self.written(&name, &done, Some(secret)).await)
    }

    /// Changes what is there, whatever others change at the same time, unless a version is wanted.
    async fn change(
        &self,
        name: &ObjectName,
        wanted: Option<When>,
        change: impl Fn(&mut Map<String, Value>),
    ) -> Result<Done, Refusal> {
        let of_version = matches!(wanted, Some(When::Version(_)));
        let mut tries = 0;
        loop {
            tries += 1;
            let kept = match self.kept(name).await? {
                Some(kept) => kept,
                // Another gateway may have made it a moment ago: nothing is ordered, but what is new is read.
                None if tries == 1 => {
                    self.order(Vec::new()).await?;
                    continue;
                }
                None => return Err(nothing()),
            };
            let mut document = document(&kept);
            change(&mut document);
            let when = match wanted {
                Some(When::Version(version)) => When::Version(version),
                _ => When::Version(kept.version),
            };
            match self.ordered(vec![wish(name.clone(), Some(document), when)]).await {
                Err(OfficeError::Conflict { .. }) if !of_version && tries < MERGES => {}
                // Nobody named a version, so none can be wrong.
                Err(OfficeError::Conflict { .. }) if !of_version => return Err(refused(OfficeError::Busy)),
                other => return other.map_err(|error| self.refused(error)),
            }
        }
    }

    async fn delete(self, kind: ObjectKind) -> Result<Answer, Refusal> {
        let name = self.name(kind);
        let when = self.if_match()?.unwrap_or(When::There);
        let cascade = self.query.flag("cascade")?;
        let done = self.order(vec![Wish { cascade, ..wish(name, None, when) }]).await?;
        let told = json!({"revision": done.revision, "changed": done.changed.iter().map(changed).collect::<Vec<_>>()});
        Ok(told.into())
    }

    async fn changes(self) -> Result<Answer, Refusal> {
        let tenant = self.asked.grant.tenant.clone().or_else(|| self.query.text("tenant").map(str::to_owned));
        let before = self.query.number("before")?.and_then(|before| u64::try_from(before).ok());
        let limit = self.query.limit()?;
        let query = ChangesQuery { tenant, before, limit };
        let changes = self.counter.store().changes(&query).await.map_err(|error| away(&error.to_string()))?;
        let next = (changes.len() == limit).then(|| changes.last().map(|change| change.number)).flatten();
        // What operators are is for owners alone.
        let seen = changes.iter().filter(|change| {
            self.asked.grant.role == Role::Owner || change.name.kind != ObjectKind::Operator
        });
        let data: Vec<Value> = seen
            .map(|change| {
                let text = |document: &Option<String>| document.as_deref().map_or(Value::Null, hidden);
                json!({
                    "number": change.number, "at": instant(change.at), "who": change.who,
                    "object": place(&change.name), "before": text(&change.before), "after": text(&change.after),
                })
            })
            .collect();
        Ok(json!({"object": "list", "data": data, "next": next}).into())
    }

    async fn apply(self) -> Result<Answer, Refusal> {
        let document = self.document()?;
        let prune = self.query.flag("prune")?;
        let all = if prune { Some(self.counter.all().await.map_err(refused)?) } else { None };
        let wishes = wishes(document, &self.keeper(), all.as_ref().map(|(_, objects)| objects));
        let wishes = wishes.map_err(|faults| refused(OfficeError::Wrong(faults)))?;
        let as_of = match self.if_match()? {
            Some(When::Version(revision)) => Some(revision),
            _ => None,
        };
        let done = self.counter.order(Order { as_of, ..self.plan(wishes) }).await;
        let done = done.map_err(|error| self.refused(error))?;
        Ok(json!({
            "revision": done.revision, "dry_run": self.dry_run,
            "changed": done.changed.iter().map(changed).collect::<Vec<_>>(), "warnings": done.warnings,
        })
        .into())
    }

    async fn export(&self) -> Result<Answer, Refusal> {
        let (_, objects) = self.counter.all().await.map_err(refused)?;
        Ok(nested(&objects).into())
    }

    async fn order(&self, wishes: Vec<Wish>) -> Result<Done, Refusal> {
        self.ordered(wishes).await.map_err(|error| self.refused(error))
    }

    /// Why it was not done, as far as it is any business of theirs.
    fn refused(&self, error: OfficeError) -> Refusal {
        refused(match error {
            OfficeError::Wrong(faults) => OfficeError::Wrong(self.asked.grant.faults(faults)),
            OfficeError::Unreadable(object) if !self.asked.grant.sees(&object.name) => {
                let message = "what others defined cannot be read, and this change has to be checked with it";
                return Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", message);
            }
            other => other,
        })
    }

    async fn ordered(&self, wishes: Vec<Wish>) -> Result<Done, OfficeError> {
        self.counter.order(self.plan(wishes)).await
    }

    fn plan(&self, wishes: Vec<Wish>) -> Order {
        Order { who: self.asked.grant.who.clone(), wishes, as_of: None, dry_run: self.dry_run }
    }

    /// The object as it is after a change.
    async fn written(&self, name: &ObjectName, done: &Done, secret: Option<String>) -> Answer {
        let was_there = done.changed.iter().all(|changed| changed.before.is_some());
        let status = if was_there || self.dry_run { StatusCode::OK } else { StatusCode::CREATED };
        // It is written, whatever becomes of the reading.
        let kept = if self.dry_run { None } else { self.kept(name).await.ok().flatten() };
        let mut answer = match kept {
            Some(kept) => of_object(name, &kept, status),
            // Others may have deleted it since.
            None => json!({
                "dry_run": self.dry_run, "changed": done.changed.iter().map(changed).collect::<Vec<_>>(),
            })
            .into(),
        };
        if let Value::Object(members) = &mut answer.body {
            if let Some(secret) = secret.filter(|_| !self.dry_run) {
                members.insert("secret".to_owned(), Value::from(secret));
            }
            let grant = self.asked.grant;
            let warnings: Vec<&String> = done.warnings.iter().filter(|told| grant.may_hear(told)).collect();
            if !warnings.is_empty() {
                members.insert("warnings".to_owned(), json!(warnings));
            }
        }
        answer
    }

    /// The body's members, without those that are no part of a document.
    fn document(&self) -> Result<Map<String, Value>, Refusal> {
        let value = serde_json::from_slice(&self.asked.body);
        let Strict(value) = value.map_err(|error| bad(format!("the body cannot be read: {error}")))?;
        let Value::Object(mut document) = value else { return Err(bad("the body is no JSON object")) };
        for member in TOLD {
            document.remove(member);
        }
        let Ids { tenant, project, .. } = &self.asked.ids;
        for (member, id) in [("tenant", tenant), ("project", project)].iter().filter(|(_, id)| !id.is_empty())
        {
            if document.remove(*member).is_some_and(|given| given != id.as_str()) {
                return Err(bad(format!("`{member}` is not the one in the path")));
            }
        }
        Ok(document)
    }

    fn if_match(&self) -> Result<Option<When>, Refusal> {
        let Some(value) = self.asked.headers.get(IF_MATCH) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Some(When::There));
        }
        let version = text.trim_start_matches("W/").trim_matches('"').parse();
        version
            .map(|version| Some(When::Version(version)))
            .map_err(|_| bad("`If-Match` is no version of ours"))
    }
}

/// What the store has in place of secrets.
struct Keeper<'a> {
    admin: &'a Admin,
    seal: Option<Arc<Seal>>,
}

impl Secrets for Keeper<'_> {
    fn hash(&self, secret: &str) -> String {
        KeyHash(self.admin.admission.snapshot().api_key_hash.digest(secret)).to_string()
    }

    fn seal(&self, name: &ObjectName, secret: &str) -> Result<String, String> {
        let Some(seal) = &self.seal else {
            return Err(
                "a secret cannot be kept: set config.secrets_key, the same for all gateways".to_owned()
            );
        };
        seal.close(name, secret).ok_or_else(|| "the secret could not be sealed".to_owned())
    }
}

fn wish(name: ObjectName, document: Option<Map<String, Value>>, when: When) -> Wish {
    Wish { name, document, when, cascade: false }
}

/// An answer tells the id, and may come back as it is.
fn is_own(name: &ObjectName, document: &mut Map<String, Value>) -> Result<(), Refusal> {
    match document.remove("id") {
        Some(id) if id != own_id(name) => Err(bad("`id` is not the one in the path")),
        _ => Ok(()),
    }
}

fn own_id(name: &ObjectName) -> &str {
    match name.kind {
        ObjectKind::Tenant => &name.tenant,
        ObjectKind::Project => &name.project,
        _ => &name.id,
    }
}

fn own_id_mut(name: &mut ObjectName) -> &mut String {
    match name.kind {
        ObjectKind::Tenant => &mut name.tenant,
        ObjectKind::Project => &mut name.project,
        _ => &mut name.id,
    }
}

/// The document as the store has it.
fn document(kept: &Kept) -> Map<String, Value> {
    serde_json::from_str(&kept.document).unwrap_or_default()
}

/// Without what is not shown.
fn hidden(document: &str) -> Value {
    let mut value: Value = serde_json::from_str(document).unwrap_or_default();
    hide(&mut value);
    value
}

fn hide(value: &mut Value) {
    let Value::Object(members) = value else { return };
    members.retain(|member, _| !HIDDEN.contains(&member.as_str()));
    members.values_mut().for_each(hide);
}

fn shown(name: &ObjectName, kept: &Kept) -> Value {
    let mut members = Map::new();
    for (member, id) in [("tenant", &name.tenant), ("project", &name.project)] {
        if !id.is_empty() {
            members.insert(member.to_owned(), Value::from(id.as_str()));
        }
    }
    members.insert("id".to_owned(), Value::from(own_id(name)));
    members.insert("version".to_owned(), Value::from(kept.version));
    members.insert("created_at".to_owned(), Value::from(instant(kept.created_at)));
    members.insert("changed_at".to_owned(), Value::from(instant(kept.changed_at)));
    if let Value::Object(document) = hidden(&kept.document) {
        members.extend(document);
    }
    Value::Object(members)
}

fn of_object(name: &ObjectName, kept: &Arc<Kept>, status: StatusCode) -> Answer {
    let location = (status == StatusCode::CREATED).then(|| format!("{ROOT}/{}", place(name)));
    Answer { status, body: shown(name, kept), version: Some(kept.version), location }
}

fn changed(changed: &Changed) -> Value {
    let what = match (&changed.before, &changed.after) {
        (None, _) => "created",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "deleted",
    };
    let text = |document: &Option<String>| document.as_deref().map_or(Value::Null, hidden);
    json!({
        "object": place(&changed.name), "change": what, "version": changed.version,
        "before": text(&changed.before), "after": text(&changed.after),
    })
}

/// A JSON merge patch (RFC 7396).
fn merged(document: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (member, value) in patch {
        match value {
            Value::Null => drop(document.remove(member)),
            Value::Object(inner) => {
                let slot = document.entry(member.clone()).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    merged(slot, inner);
                }
            }
            other => drop(document.insert(member.clone(), other.clone())),
        }
    }
}

/// Seconds for which the secret before works too.
fn overlap(kind: ObjectKind, asked: &Map<String, Value>) -> Result<i64, Refusal> {
    // A slip of the pen here would end the secret before at once.
    if let Some(member) = asked.keys().find(|member| *member != "overlap") {
        return Err(bad(format!("`{member}` is not known here; a rotation has `overlap`")));
    }
    if kind != ObjectKind::Key && !asked.is_empty() {
        return Err(bad("an operator's secret before works no longer; `overlap` is for keys"));
    }
    let Some(value) = asked.get("overlap") else { return Ok(0) };
    let span = value.as_str().and_then(crate::config::values::Span::parse);
    let span = span.ok_or_else(|| bad("`overlap` must be a length of time with its unit, as 24h"))?;
    Ok(i64::try_from(span.0.as_secs()).unwrap_or(i64::MAX))
}

fn matches(value: Option<&Value>, wanted: &str) -> bool {
    match value {
        // What a field is that is not told.
        None | Some(Value::Null) => matches!(wanted, "false" | "on" | ""),
        Some(Value::String(text)) => text == wanted,
        Some(Value::Bool(truth)) => wanted == if *truth { "true" } else { "false" },
        Some(_) => false,
    }
}

fn fault(fault: &Fault) -> Value {
    json!({"object": fault.object, "field": fault.field, "what": fault.what})
}

fn refused(error: OfficeError) -> Refusal {
    let message = error.to_string();
    match error {
        OfficeError::File => Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "in_the_file", message),
        OfficeError::Wrong(faults) => {
            let faults: Vec<Value> = faults.iter().map(fault).collect();
            Refusal::new(StatusCode::BAD_REQUEST, "not_right", message).with("faults", json!(faults))
        }
        OfficeError::Conflict { name, now, .. } => {
            let now = now.map_or(Value::Null, |kept| shown(&name, &kept));
            Refusal::new(StatusCode::CONFLICT, "conflict", message).with("current", now)
        }
        OfficeError::Moved(revision) => {
            Refusal::new(StatusCode::CONFLICT, "conflict", message).with("revision", json!(revision))
        }
        OfficeError::Unsure(_) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unsure", message),
        OfficeError::Missing(_) => Refusal::new(StatusCode::NOT_FOUND, "not_found", message),
        OfficeError::Busy | OfficeError::Away(_) => away(&message),
        OfficeError::Unreadable(_) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", message),
    }
}
