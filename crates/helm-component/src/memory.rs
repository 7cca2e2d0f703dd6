//! What is kept in memory of each component between reconciles. All of it can be rebuilt.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::{
    CreatedResource, Digests, FailedRelease, HelmComponent, HelmComponentStatus, HelmHistory, Hooks,
    InventoryEntry, InventoryGroup, KeptRelease, Reason, ResolvedVersion, TakenOver, condition,
};
use kyma_object_set::drift::Flaps;
use kyma_object_set::{Entry, Identity, Inventory, Object};
use kyma_sdk::Failure;
use serde_json::{Value, json};

use crate::content::Loaded;
use crate::expressions::Rules;
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
    /// The version that the chart's range stands for.
    pub resolved: Option<ResolvedVersion>,
    /// How far the chart's hooks are.
    pub hooks: Option<Hooks>,
    /// What Helm's record on the target says.
    pub history: Option<HelmHistory>,
    /// From whom it was taken over.
    pub taken_over: Option<TakenOver>,
    /// The release that was Ready last, where a rollback may be wanted.
    pub kept: Option<KeptRelease>,
    /// The release that failed, and in whose place that one is wished.
    pub rollback: Option<FailedRelease>,
    /// How far the chart's tests are.
    pub tests: Option<Hooks>,
    /// The request for tests that was followed last.
    pub tested: Option<String>,
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
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
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
    /// When a newer version in the chart's range is looked for; `None` where it is only when asked.
    pub(crate) next_check: Option<Instant>,
    /// What `valuesFrom` names, as it was read last.
    pub(crate) referenced: Option<Referenced>,
    /// Whether the release's namespace was seen or made.
    pub namespace_ready: bool,
    /// Namespaces that are being deleted, and when the target last said so.
    pub(crate) ending: BTreeMap<String, Instant>,
    /// Since when the objects are awaited to work, in Unix seconds; `None` while they do.
    pub unready_since: Option<i64>,
    /// Whether the component was reported unhealthy: failures need not last before they are told.
    pub(crate) unhealthy: bool,
    /// `spec.health.expressions`, compiled.
    pub(crate) rules: Arc<Rules>,
    /// StorageClasses of claims that wait, and whether each binds only with the first Pod.
    pub(crate) classes: BTreeMap<String, bool>,
    /// What was found to hold objects up, while they are awaited.
    pub(crate) holdups: BTreeMap<Identity, String>,
    /// Of which wait that is: when it began, in Unix seconds.
    pub(crate) explained_of: Option<i64>,
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
                Session {
                    kinds_awaited: recorded.pending,
                    recorded,
                    unready_since: unready_since(component),
                    unhealthy: is_unhealthy(component),
                    ..Session::default()
                }
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
            inventory: status.entries().iter().map(of_entry).collect(),
            digests: status.digests.clone().unwrap_or_default(),
            resource: status.resource.clone(),
            resolved: status.resolved.clone(),
            hooks: status.hooks.clone(),
            history: status.history.clone(),
            taken_over: status.taken_over.clone(),
            kept: status.kept.clone(),
            rollback: status.rollback.clone(),
            tests: status.tests.clone(),
            tested: status.last_handled_test_at.clone(),
            overridden: status.overridden.clone().unwrap_or_default(),
            pending: dependencies.any(|condition| condition.status != "True"),
            left: left(status.conditions.as_deref().unwrap_or_default()),
        }
    }

    /// Whether this content was not there before, as far as releases count: hooks run for it.
    pub(crate) fn is_other_release(&self, loaded: &Loaded) -> bool {
        let Digests { source, values, .. } = &self.digests;
        source.as_deref() != Some(&*loaded.source) || values.as_deref() != Some(&*loaded.values)
    }

    /// Whether another system's objects were taken over, and nothing else was asked for since.
    pub(crate) fn is_as_taken_over(&self, wish: &str) -> bool {
        self.taken_over.as_ref().is_some_and(|taken| taken.wish.as_deref() == Some(wish))
    }

    /// Whether this content is what was applied.
    pub(crate) fn is(&self, loaded: &Loaded) -> bool {
        self.digests.inputs.as_ref() == Some(&loaded.inputs) && self.digests.kinds == loaded.kinds
    }

    /// The inventory as the status holds it: in the form of earlier versions while what `status` has in that form still
    /// says the same, so that an upgrade of the operator alone rewrites nothing.
    pub(crate) fn report(&self, status: Option<&HelmComponentStatus>) -> (Value, Value) {
        let entries = self.inventory.iter().map(|(identity, entry)| to_entry(identity, entry));
        let held = status.and_then(|status| status.inventory.as_ref());
        match held.filter(|held| self.inventory == held.iter().map(of_entry).collect::<Inventory>()) {
            Some(held) => (json!(held), Value::Null),
            None => (Value::Null, json!(InventoryGroup::of(entries))),
        }
    }
}

/// What a component's status says that is on its target in its name.
pub fn inventory(component: &HelmComponent) -> Inventory {
    Recorded::of(component).inventory
}

/// Bytes that the record of a component's objects may take in its status: etcd takes little more for the whole object.
const RECORD: usize = 480 << 10;

/// Refuses content of which the status could not say what is on the target: nothing of it is sent then.
///
/// # Errors
/// The objects at hand and those already recorded would take more than 480 KiB together; the rest of the status has its
/// place in the 512 KiB that it may take as a whole.
pub(crate) fn check_record(recorded: &Inventory, objects: &[Object]) -> Result<(), Failure> {
    let wanted = objects.iter().map(|object| (object.identity(), object.version().to_owned()));
    let mut all: BTreeMap<Identity, String> = wanted.collect();
    all.extend(recorded.iter().map(|(identity, entry)| (identity.clone(), entry.version.clone())));
    let full = |(identity, version): (&Identity, &String)| {
        // As long as they ever are.
        let (uid, hash) = ("0".repeat(36), "0".repeat(16));
        let entry = Entry {
            version: version.clone(),
            uid,
            fingerprint: hash.clone(),
            hash,
            created: false,
            finished: false,
        };
        to_entry(identity, &entry)
    };
    let bytes = serde_json::to_vec(&InventoryGroup::of(all.iter().map(full))).map_or(0, |json| json.len());
    if bytes <= RECORD {
        return Ok(());
    }
    let message = format!("the record of {} objects would take {bytes} bytes, more than {RECORD}", all.len());
    Err(Failure::new(Reason::InventoryTooLarge, message))
}

/// What the component says that it left on the target.
fn left(conditions: &[Condition]) -> Vec<String> {
    let applied = condition::get(conditions, condition::types::APPLIED);
    let said = applied.and_then(|applied| applied.message.split_once(LEFT));
    said.map(|(_, left)| left.to_owned()).into_iter().collect()
}

/// Since when the component says that its objects do not work.
fn unready_since(component: &HelmComponent) -> Option<i64> {
    unready(component).map(|healthy| healthy.last_transition_time.0.as_second())
}

/// Whether the component says that objects of its failed.
fn is_unhealthy(component: &HelmComponent) -> bool {
    unready(component).is_some_and(|healthy| healthy.reason == Reason::Unhealthy.as_str())
}

fn unready(component: &HelmComponent) -> Option<&Condition> {
    let conditions = component.status.as_ref()?.conditions.as_deref()?;
    condition::get(conditions, condition::types::HEALTHY).filter(|healthy| healthy.status == "False")
}

fn of_entry(entry: &InventoryEntry) -> (Identity, Entry) {
    let identity = Identity::new(&entry.group, &entry.kind, entry.namespace.as_deref(), &entry.name);
    let InventoryEntry { version, uid, hash, fingerprint, created, finished, .. } = entry.clone();
    (identity, Entry { version, uid, hash, fingerprint, created, finished })
}

fn to_entry(identity: &Identity, entry: &Entry) -> InventoryEntry {
    let Identity { group, kind, namespace, name } = identity.clone();
    let Entry { version, uid, hash, fingerprint, created, finished } = entry.clone();
    InventoryEntry { group, version, kind, namespace, name, uid, hash, fingerprint, created, finished }
}

#[cfg(test)]
mod tests {
    use kyma_api::HelmComponentSpec;

    use super::*;

    #[test]
    fn an_inventory_survives_the_status_in_either_form() {
        let identity = Identity::new("apps", "Deployment", Some("n"), "d");
        let entry = Entry {
            version: "v1".to_owned(),
            uid: "u".to_owned(),
            hash: "h".to_owned(),
            fingerprint: "f".to_owned(),
            created: true,
            finished: true,
        };
        let recorded = Recorded {
            inventory: [(identity.clone(), entry.clone())].into_iter().collect(),
            ..Recorded::default()
        };
        let status = |(old, new): (Value, Value)| -> HelmComponentStatus {
            let mut status = json!({"inventory": old, "objects": new});
            status.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            serde_json::from_value(status).unwrap()
        };
        let component = |status: HelmComponentStatus| {
            let mut component = HelmComponent::new("c", HelmComponentSpec::default());
            component.status = Some(status);
            component
        };
        let grouped = status(recorded.report(None));
        assert!(grouped.inventory.is_none());
        assert_eq!(inventory(&component(grouped)), recorded.inventory);
        let old = HelmComponentStatus {
            inventory: Some(vec![to_entry(&identity, &entry)]),
            ..HelmComponentStatus::default()
        };
        assert_eq!(inventory(&component(old.clone())), recorded.inventory);
        assert_eq!(status(recorded.report(Some(&old))), old, "nothing is rewritten");
        let changed = Recorded::default();
        assert!(status(changed.report(Some(&old))).inventory.is_none());
    }

    #[test]
    fn more_objects_than_the_status_holds_are_refused_those_recorded_included() {
        let map = |number: usize| {
            let metadata = json!({"name": format!("a-config-map-{number:05}"), "namespace": "somewhere"});
            Object::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
                .unwrap()
        };
        let objects: Vec<Object> = (0..3_200).map(map).collect();
        assert_eq!(check_record(&Inventory::default(), &objects), Ok(()));
        let recorded = |from: usize| -> Inventory {
            (from..from + 3_200).map(|number| (map(number).identity(), Entry::default())).collect()
        };
        assert_eq!(check_record(&recorded(0), &objects), Ok(()), "the same objects");
        let refused = check_record(&recorded(1_500), &objects).unwrap_err();
        assert_eq!(refused.reason, Reason::InventoryTooLarge);
        assert!(refused.message.starts_with("the record of 4700 objects would take "), "{refused}");
    }
}
