//! What is kept in memory of each component between reconciles. All of it can be rebuilt.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::{
    CreatedResource, Digests, HelmComponent, HelmHistory, Hooks, InventoryEntry, TakenOver, condition,
};
use kyma_object_set::drift::Flaps;
use kyma_object_set::{Entry, Identity, Inventory};

use crate::content::Loaded;
use crate::referenced::Referenced;
use crate::sight::Dependent;

/// What was reported of a component: newer than what the hub's watch shows right after a report.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// What was applied.
    pub inventory: Inventory,
    /// What it was made from.
    pub digests: Digests,
    /// The default custom resource, once it was made.
    pub resource: Option<CreatedResource>,
    /// How far the chart's hooks are.
    pub hooks: Option<Hooks>,
    /// What Helm's record on the target says.
    pub history: Option<HelmHistory>,
    /// From whom it was taken over.
    pub taken_over: Option<TakenOver>,
    /// Key paths that overrides replaced.
    pub overridden: Vec<String>,
    /// Whether something of the content is still to be applied once its kind comes.
    pub pending: bool,
    /// What was given up and stays on the target, with reasons.
    pub left: Vec<String>,
}

/// What stands before the objects that were given up, in conditions and events.
pub(crate) const LEFT: &str = "left on the target: ";

/// One component's memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    /// What was reported last.
    pub recorded: Recorded,
    /// The content while it is needed: dropped when everything is applied and works.
    pub loaded: Option<Loaded>,
    /// Since when the watches are awaited to show what is there, or since they were last opened anew.
    pub(crate) looking_since: Option<Instant>,
    /// Whether something waits for a kind, so that each pass asks anew what the target serves.
    pub(crate) kinds_awaited: bool,
    /// Whether the target was searched for what is ours.
    pub(crate) swept: bool,
    /// Names of the hub's Secrets that the content wanted when it was last loaded.
    pub(crate) injected: BTreeSet<String>,
    /// What `valuesFrom` names, as it was read last.
    pub(crate) referenced: Option<Referenced>,
    /// Whether the release's namespace was seen or made.
    pub namespace_ready: bool,
    /// Since when the objects are awaited to work, in Unix seconds; `None` while they do.
    pub unready_since: Option<i64>,
    /// How often drift of each object was put right lately.
    pub flaps: BTreeMap<Identity, Flaps>,
}

/// The memory of all components.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sessions: Mutex<HashMap<Dependent, (String, Session)>>,
}

impl Memory {
    /// The memory of a component; one of another uid, or none, starts from what its status says.
    pub(crate) fn recall(&self, dependent: &Dependent, component: &HelmComponent) -> Session {
        let uid = component.metadata.uid.clone().unwrap_or_default();
        match self.sessions().get(dependent) {
            Some((held, session)) if *held == uid => session.clone(),
            _ => {
                let recorded = Recorded::of(component);
                let unready_since = unready_since(component);
                Session { kinds_awaited: recorded.pending, recorded, unready_since, ..Session::default() }
            }
        }
    }

    /// Keeps the memory of a component.
    pub(crate) fn keep(&self, dependent: Dependent, component: &HelmComponent, session: Session) {
        let uid = component.metadata.uid.clone().unwrap_or_default();
        self.sessions().insert(dependent, (uid, session));
    }

    /// Forgets a component and tells who it was.
    pub(crate) fn forget(&self, namespace: &str, name: &str) -> Option<Dependent> {
        let mut sessions = self.sessions();
        let found = sessions.keys().find(|one| one.namespace == namespace && one.name == name).cloned()?;
        sessions.remove(&found);
        Some(found)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Dependent, (String, Session)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    /// Reads what a component's status says.
    pub(crate) fn of(component: &HelmComponent) -> Self {
        let Some(status) = &component.status else { return Self::default() };
        let dependencies = status.conditions.iter().flatten();
        let mut dependencies = dependencies.filter(|one| one.type_ == condition::types::DEPENDENCIES_READY);
        Self {
            inventory: status.inventory.iter().flatten().map(of_entry).collect(),
            digests: status.digests.clone().unwrap_or_default(),
            resource: status.resource.clone(),
            hooks: status.hooks.clone(),
            history: status.history.clone(),
            taken_over: status.taken_over.clone(),
            overridden: status.overridden.clone().unwrap_or_default(),
            pending: dependencies.any(|condition| condition.status != "True"),
            left: left(status.conditions.as_deref().unwrap_or_default()),
        }
    }

    /// Whether this content was not there before, as far as releases count: hooks run for it.
    pub(crate) fn is_other_release(&self, loaded: &Loaded, values: &str) -> bool {
        let Digests { source, values: applied, .. } = &self.digests;
        source.as_deref() != Some(&*loaded.source) || applied.as_deref() != Some(values)
    }

    /// Whether another system's objects were taken over, and nothing else was asked for since.
    pub(crate) fn is_as_taken_over(&self, wish: &str) -> bool {
        self.taken_over.as_ref().is_some_and(|taken| taken.wish.as_deref() == Some(wish))
    }

    /// Whether this content is what was applied.
    pub(crate) fn is(&self, loaded: &Loaded) -> bool {
        self.digests.inputs.as_ref() == Some(&loaded.inputs) && self.digests.kinds == loaded.kinds
    }

    /// The inventory as the status holds it.
    pub(crate) fn entries(&self) -> Vec<InventoryEntry> {
        self.inventory.iter().map(|(identity, entry)| to_entry(identity, entry)).collect()
    }
}

/// What the component says that it left on the target.
fn left(conditions: &[Condition]) -> Vec<String> {
    let applied = condition::get(conditions, condition::types::APPLIED);
    let said = applied.and_then(|applied| applied.message.split_once(LEFT));
    said.map(|(_, left)| left.to_owned()).into_iter().collect()
}

/// Since when the component says that its objects do not work.
fn unready_since(component: &HelmComponent) -> Option<i64> {
    let conditions = component.status.as_ref()?.conditions.as_deref()?;
    let healthy = condition::get(conditions, condition::types::HEALTHY)?;
    (healthy.status == "False").then(|| healthy.last_transition_time.0.as_second())
}

fn of_entry(entry: &InventoryEntry) -> (Identity, Entry) {
    let identity = Identity::new(&entry.group, &entry.kind, entry.namespace.as_deref(), &entry.name);
    let InventoryEntry { version, uid, hash, fingerprint, created, .. } = entry.clone();
    (identity, Entry { version, uid, hash, fingerprint, created })
}

fn to_entry(identity: &Identity, entry: &Entry) -> InventoryEntry {
    let Identity { group, kind, namespace, name } = identity.clone();
    let Entry { version, uid, hash, fingerprint, created } = entry.clone();
    InventoryEntry { group, version, kind, namespace, name, uid, hash, fingerprint, created }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_survives_the_status() {
        let identity = Identity::new("apps", "Deployment", Some("n"), "d");
        let entry = Entry {
            version: "v1".to_owned(),
            uid: "u".to_owned(),
            hash: "h".to_owned(),
            fingerprint: "f".to_owned(),
            created: true,
        };
        let recorded = Recorded {
            inventory: [(identity.clone(), entry.clone())].into_iter().collect(),
            ..Recorded::default()
        };
        let back: Inventory = recorded.entries().iter().map(of_entry).collect();
        assert_eq!(back.get(&identity), Some(&entry));
    }
}
