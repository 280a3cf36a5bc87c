//! What a change has to be right with: the objects it names, the tenants they belong to, and where it changes what is
//! everybody's, the tenants that make use of that.
//!
//! What a change names is looked at as of one revision, that of the state: where the store has gone on, nothing is said
//! (`None`), and the change is looked at anew. Of those that make use of what is everybody's, who was found right stays so
//! until the feed names them: a stream of others' changes does not begin a long look anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollbook_policy::Catalog;
use tollbook_store::{OBJECTS_MAX, ObjectKind, ObjectName, ObjectsQuery};

use super::marks::{marks, taken};
use super::reading::directory;
use super::write::{Changed, Order};
use super::{COMMON, Office, OfficeError, State, Whole, operators};
use crate::config::{Directory, Fault, Form};

/// Tenants of one change that are read one by one; beyond it everything is read at once.
const ONE_BY_ONE_MAX: usize = 64;
/// Faults told of one change.
const FAULTS_MAX: usize = 100;

/// What is known of those that make use of what a change changes, while it is tried again.
#[derive(Default)]
pub(super) struct Looked {
    /// As of this revision everybody was found right, but for those below.
    as_of: Option<u64>,
    /// What was read of them is newer than what it was checked with, and does not fit that.
    again: BTreeSet<String>,
}

/// What tenants are checked with.
struct Common<'a> {
    whole: Arc<Whole>,
    shared: Arc<Catalog>,
    objects: &'a Directory,
}

impl Common<'_> {
    fn check(&self, tenant: &Directory, faults: &mut Vec<Fault>) -> Vec<String> {
        match self.whole.of_tenant(&self.shared, self.objects, tenant) {
            Ok((_, warnings)) => warnings,
            Err(found) => {
                faults.extend(found);
                Vec::new()
            }
        }
    }
}

impl Office {
    /// What an order may change: what is everybody's, and all of the tenants that it names.
    pub(super) async fn concerned(
        &self,
        state: &State,
        order: &Order,
    ) -> Result<Option<Directory>, OfficeError> {
        let named = order.wishes.iter().map(|wish| &wish.name).filter(|name| !COMMON.contains(&name.kind));
        let tenants: BTreeSet<&str> = named.map(|name| name.tenant.as_str()).collect();
        let mut objects = Directory::clone(&state.common);
        if tenants.len() > ONE_BY_ONE_MAX {
            let all = self.store.objects().await?;
            if all.revision != state.revision {
                return Ok(None);
            }
            let of_them =
                all.objects.into_iter().filter(|object| tenants.contains(object.name.tenant.as_str()));
            objects.extend(directory(of_them.collect())?);
            return Ok(Some(objects));
        }
        for tenant in tenants {
            let Some(mut found) = self.of(state, tenant).await? else { return Ok(None) };
            objects.append(&mut found);
        }
        Ok(Some(objects))
    }

    async fn of(&self, state: &State, tenant: &str) -> Result<Option<Directory>, OfficeError> {
        let found = self.store.tenant_objects(tenant).await?;
        if found.revision != state.revision {
            return Ok(None);
        }
        Ok(Some(directory(found.objects)?))
    }

    /// Checks what a change makes of the objects it may change; what is legal in it, but probably not meant.
    pub(super) async fn check(
        &self,
        state: &State,
        (before, next): (&Directory, &Directory),
        changed: &[Changed],
        looked: &mut Looked,
    ) -> Result<Option<Vec<String>>, OfficeError> {
        let (common, tenants) = parted(next);
        let whole = state.whole_with(&common).map_err(OfficeError::Wrong)?;
        let shared = Arc::new(whole.base.shared(&common).map_err(OfficeError::Wrong)?);
        let with = Common { whole, shared, objects: &common };
        let (mut faults, mut warnings) = (Vec::new(), Vec::new());
        for objects in tenants.values() {
            warnings.extend(with.check(objects, &mut faults));
        }
        let changes = |kind| changed.iter().any(|changed| changed.name.kind == kind);
        if changes(ObjectKind::Operator) || changes(ObjectKind::Tenant) {
            faults.extend(self.check_operators(&common, (before, next), changed).await?);
        }
        if faults.is_empty()
            && [ObjectKind::Plan, ObjectKind::Upstream, ObjectKind::Model].map(changes).contains(&true)
        {
            let users = Users::of(state, &with, changed);
            let Some(found) = self.check_users(state, (&with, &users), &tenants, looked).await? else {
                return Ok(None);
            };
            faults.extend(found);
        }
        if faults.is_empty() { Ok(Some(warnings)) } else { Err(OfficeError::Wrong(faults)) }
    }

    /// Operators are bound to tenants that exist. One that is not among the objects is there if an operator is bound to it
    /// already; else it is looked up, and the write, which takes no other revision, says that it still was.
    async fn check_operators(
        &self,
        common: &Directory,
        (before, next): (&Directory, &Directory),
        changed: &[Changed],
    ) -> Result<Vec<Fault>, OfficeError> {
        let bound_before = operators::bound_to(before);
        let mut there = BTreeSet::new();
        for tenant in operators::bound_to(common) {
            let name = ObjectName::tenant(&tenant);
            let is_gone = changed.iter().any(|changed| changed.name == name && changed.after.is_none());
            if next.contains_key(&name)
                || !is_gone && bound_before.contains(&tenant)
                || !is_gone && self.store.object(&name).await?.is_some()
            {
                there.insert(tenant);
            }
        }
        Ok(operators::check(common, &there))
    }

    /// Checks the other tenants that make use of what is everybody's and changes: all of them, or where that was done
    /// before, those that were changed since.
    async fn check_users(
        &self,
        state: &State,
        (with, users): (&Common<'_>, &Users),
        checked: &BTreeMap<String, Directory>,
        looked: &mut Looked,
    ) -> Result<Option<Vec<Fault>>, OfficeError> {
        let mut faults = Vec::new();
        if users.is_nobody() {
            return Ok(Some(faults));
        }
        let touched = match looked.as_of {
            Some(as_of) => self.touched(as_of, state.revision).await?,
            None => None,
        };
        let mut again = std::mem::take(&mut looked.again);
        let mut all = touched.is_none().then(|| ObjectsQuery::of(ObjectKind::Tenant, OBJECTS_MAX));
        again.extend(touched.into_iter().flatten());
        loop {
            if let Some(query) = &mut all {
                // Whoever is made behind this page is named by the feed.
                let tenants = directory(self.store.objects_page(query).await?.objects)?;
                query.after = tenants.keys().next_back().cloned();
                if query.after.is_none() {
                    break;
                }
                let using = tenants.into_iter().filter(|(_, kept)| users.has(&kept.form));
                again.extend(using.map(|(name, _)| name.tenant));
            }
            for tenant in std::mem::take(&mut again) {
                if checked.contains_key(&tenant) {
                    continue;
                }
                let is_now = self.check_user(state.revision, (with, users), &tenant, &mut faults).await?;
                if !is_now {
                    looked.again.insert(tenant);
                }
                if faults.len() >= FAULTS_MAX {
                    return Ok(Some(faults));
                }
            }
            if all.is_none() {
                break;
            }
        }
        looked.as_of = Some(state.revision);
        let is_sure = looked.again.is_empty() || !faults.is_empty();
        Ok(is_sure.then_some(faults))
    }

    /// Checks one tenant. What is wrong with it is said only if it is as of that revision: what is newer may be right with
    /// what is newer; then the answer is no.
    async fn check_user(
        &self,
        revision: u64,
        (with, users): (&Common<'_>, &Users),
        tenant: &str,
        faults: &mut Vec<Fault>,
    ) -> Result<bool, OfficeError> {
        let found = self.store.tenant_objects(tenant).await?;
        let objects = directory(found.objects)?;
        let is_user = objects.get(&ObjectName::tenant(tenant)).is_some_and(|kept| users.has(&kept.form));
        let mut wrong = Vec::new();
        if is_user {
            with.check(&objects, &mut wrong);
        }
        let is_now = wrong.is_empty() || found.revision == revision;
        if is_now {
            faults.append(&mut wrong);
        }
        Ok(is_now)
    }

    /// The tenants that were changed after one revision, up to another; none if what is everybody's was too.
    async fn touched(&self, after: u64, upto: u64) -> Result<Option<BTreeSet<String>>, OfficeError> {
        let (mut seen, mut tenants) = (after, BTreeSet::new());
        while seen < upto {
            let changes = self.store.changes_since(seen).await?;
            let Some(last) = changes.last() else { break };
            seen = last.number;
            for change in changes {
                if !COMMON.contains(&change.name.kind) {
                    tenants.insert(change.name.tenant);
                } else if change.name.kind != ObjectKind::Operator {
                    return Ok(None);
                }
            }
        }
        Ok(Some(tenants))
    }

    /// Whether all tenants of the store fit what they are to stand on.
    pub(crate) async fn check_all(&self, state: &State) -> anyhow::Result<()> {
        let shared = state.whole.base.shared(&state.common).map_err(|faults| super::unfit(&faults))?;
        let with =
            Common { whole: Arc::clone(&state.whole), shared: Arc::new(shared), objects: &state.common };
        let everybody = Users { plans: BTreeSet::new(), all: true };
        let found =
            self.check_users(state, (&with, &everybody), &BTreeMap::new(), &mut Looked::default()).await?;
        // What was changed meanwhile was checked by whoever changed it, with their file; with this one it is when it is read.
        match found {
            Some(faults) if !faults.is_empty() => Err(super::unfit(&faults)),
            _ => Ok(()),
        }
    }

    /// What would be refused where it is written: marks that others have.
    pub(super) async fn check_marks(&self, next: &Directory, changed: &[Changed]) -> Result<(), OfficeError> {
        let gone = |name: &ObjectName| {
            changed.iter().any(|changed| changed.name == *name && changed.after.is_none())
        };
        let mut faults = Vec::new();
        for changed in changed.iter().filter(|changed| changed.after.is_some()) {
            let Some(kept) = next.get(&changed.name) else { continue };
            for mark in marks(&kept.form) {
                if let Some(by) = self.store.marked(&mark).await?
                    && by != changed.name
                    && !gone(&by)
                {
                    faults.push(taken(&changed.name, Some(&kept.form), &mark, &by));
                }
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(OfficeError::Wrong(faults)) }
    }
}

/// Who makes use of what changes.
struct Users {
    plans: BTreeSet<String>,
    /// Everybody: a model that limits and keys may name is gone.
    all: bool,
}

impl Users {
    fn of(state: &State, with: &Common<'_>, changed: &[Changed]) -> Self {
        let plans = changed.iter().filter(|changed| changed.name.kind == ObjectKind::Plan);
        let plans = plans.map(|changed| changed.name.id.clone()).collect();
        let is_gone = |id: &String| with.shared.model(id).is_none_or(|model| model.id != *id);
        Self { plans, all: state.whole.models.keys().any(is_gone) }
    }

    fn is_nobody(&self) -> bool {
        !self.all && self.plans.is_empty()
    }

    fn has(&self, form: &Form) -> bool {
        match form {
            Form::Tenant(tenant) => {
                self.all || tenant.plan.as_ref().is_some_and(|plan| self.plans.contains(plan))
            }
            _ => false,
        }
    }
}

/// What is everybody's, and what each tenant has.
fn parted(objects: &Directory) -> (Directory, BTreeMap<String, Directory>) {
    let (mut common, mut tenants) = (Directory::new(), BTreeMap::<String, Directory>::new());
    for (name, kept) in objects {
        let of = if COMMON.contains(&name.kind) {
            &mut common
        } else {
            tenants.entry(name.tenant.clone()).or_default()
        };
        of.insert(name.clone(), Arc::clone(kept));
    }
    (common, tenants)
}
