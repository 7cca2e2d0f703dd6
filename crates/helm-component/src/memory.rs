//! In-memory state of each component between reconciles. All of it can be rebuilt.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::{
    Adoption, CreatedResource, Digests, FreeForm, HelmComponent, HelmComponentStatus, InstalledValues,
    PruneBaseline, Reason, ReleaseRecord, ReleaseRevision, ResolvedVersion, condition,
};
use kyma_object_set::drift::Flaps;
use kyma_object_set::{Identity, Inventory, Kinds};
use parking_lot::Mutex;

use crate::actions::hooks::state::{HookRecords, RemovalHooks};
use crate::actions::rollback::record::RollbackRecord;
use crate::component_key::ComponentKey;
use crate::content::LoadedContent;
use crate::expressions::Rules;
use crate::inventory_status::{self, InventoryEncoding};
use crate::referenced::ReferencedValues;
use crate::release_store::slot::RevisionCriteria;
use crate::watch_wait::WatchWait;

/// Last reported status of a component: newer than the hub's watch right after a report.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedStatus {
    /// The applied inventory.
    pub inventory: Inventory,
    /// Encoding of the inventory in the status.
    pub encoding: InventoryEncoding,
    /// Digests of the applied content and its inputs.
    pub digests: Digests,
    /// The default custom resource, once it was created.
    pub resource: Option<CreatedResource>,
    /// Number of objects before the current content, until surplus objects are deleted.
    pub prune_baseline: Option<PruneBaseline>,
    /// The version that the chart's range resolved to.
    pub resolved: Option<ResolvedVersion>,
    /// Revision of the last applied release, if its chart reads it.
    pub revision: Option<ReleaseRevision>,
    /// Progress of the chart's hooks and tests.
    pub hooks: HookRecords,
    /// State of Helm's release record on the target.
    pub release_record: Option<ReleaseRecord>,
    /// Adoption of objects from another system.
    pub adopted: Option<Adoption>,
    /// Target and cause of a rollback.
    pub rollback: RollbackRecord,
    /// Key paths at which overrides replaced the user's values.
    pub overridden: Vec<String>,
    /// Optional entries of `valuesFrom` whose values the applied objects have.
    pub values_from: Vec<InstalledValues>,
    /// Whether some content is not applied yet because its kind is missing.
    pub pending: bool,
    /// Objects that are no longer owned and stay on the target, with reasons.
    pub left: Vec<String>,
}

/// Prefix of the list of released objects in conditions and events.
pub(crate) const LEFT_OBJECTS_PREFIX: &str = "left on the target: ";

/// In-memory state of one component.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone, Default)]
pub(crate) struct ComponentState {
    /// Last reported status.
    pub recorded: RecordedStatus,
    /// The content while it is needed: dropped when everything is applied and healthy.
    pub loaded: Option<LoadedContent>,
    /// API versions of the target when the recorded content was applied, if its chart reads them.
    pub(crate) rendered_with: Option<Arc<Kinds>>,
    /// Digest of the objects whose warnings were last reported.
    pub(crate) warned: Option<String>,
    /// The current wait for the watches, if any.
    pub(crate) watch_wait: Option<WatchWait>,
    /// Whether an object waits for a kind, so that each pass repeats discovery.
    pub(crate) kinds_awaited: bool,
    /// Whether the render failed and the chart reads the API versions, so that a new kind may resolve it.
    pub(crate) render_awaits_kinds: bool,
    /// Whether objects were applied.
    pub(crate) has_sent: bool,
    /// Whether a pass with other content than the recorded one may have been interrupted, so that its applied objects
    /// are unknown.
    pub(crate) is_cut_off: bool,
    /// Whether the target was searched for objects with the component's owner label.
    pub(crate) swept: bool,
    /// Whether the deletion of all known objects on the target was requested.
    pub(crate) removed: bool,
    /// Hooks of the removal that this process read or stored.
    pub(crate) removal_hooks: RemovalHooks,
    /// Digests of nondeterministic renders that this process made or found in the status.
    pub(crate) renders_made: BTreeSet<String>,
    /// Whether a nondeterministic render was stored on the hub.
    pub(crate) has_stored_render: bool,
    /// Names of the hub's Secrets that the content requested when it was last loaded.
    pub(crate) injected: BTreeSet<String>,
    /// Time of the next check for a newer version in the chart's range; `None` if it is only checked on request.
    pub(crate) next_check: Option<Instant>,
    /// Last read content of the objects in `valuesFrom`.
    pub(crate) referenced: Option<ReferencedValues>,
    /// Whether the release's namespace was seen or created.
    pub namespace_ready: bool,
    /// Namespaces that are being deleted, with the time of the last answer of the target that said so.
    pub(crate) terminating_namespaces: BTreeMap<String, Instant>,
    /// Time since which objects are not ready, in Unix seconds; `None` while they are.
    pub unready_since: Option<i64>,
    /// Whether the component was reported unhealthy: then failures are reported without delay.
    pub(crate) unhealthy: bool,
    /// `spec.health.expressions`, compiled.
    pub(crate) rules: Arc<Rules>,
    /// StorageClasses of pending claims, and whether each binds only with the first Pod.
    pub(crate) classes: BTreeMap<String, bool>,
    /// Causes that hold up objects, while they are not ready.
    pub(crate) delay_causes: BTreeMap<Identity, String>,
    /// Time of the last read of these causes.
    pub(crate) cause_read: Option<CauseReadTime>,
    /// Whether a read found the default custom resource although no watch shows it.
    pub(crate) default_confirmed: bool,
    /// Recent corrections of drift, by object.
    pub flaps: BTreeMap<Identity, Flaps>,
}

/// A read of the causes that hold up objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CauseReadTime {
    /// Beginning of the wait that it belongs to, in Unix seconds.
    pub(crate) wait: i64,
    /// Time of the read, in Unix seconds.
    pub(crate) at: i64,
}

impl ComponentState {
    /// Keeps the kinds with which content was rendered, if it has a digest of them. Otherwise each component would keep
    /// a result of discovery that is outdated soon.
    pub(crate) fn store_kinds(&mut self, digest: Option<&str>, kinds: &Arc<Kinds>) {
        self.rendered_with = digest.map(|_| Arc::clone(kinds));
    }
}

/// The states of all components.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    states: Mutex<HashMap<ComponentKey, (String, ComponentState)>>,
}

impl Memory {
    /// Returns the state of a component. It starts from the status if there is none, if the uid differs, or if the
    /// record could not be read before.
    pub(crate) fn recall(&self, component_key: &ComponentKey, component: &HelmComponent) -> ComponentState {
        let uid = component.metadata.uid.clone().unwrap_or_default();
        match self.states.lock().get(component_key) {
            Some((held, state)) if *held == uid && !state.recorded.encoding.is_unread() => state.clone(),
            _ => {
                let recorded = RecordedStatus::of(component);
                ComponentState {
                    kinds_awaited: recorded.pending,
                    is_cut_off: recorded.digests.inputs.is_none() && !recorded.inventory.is_empty(),
                    recorded,
                    unready_since: unready_since(component),
                    unhealthy: is_unhealthy(component),
                    ..ComponentState::default()
                }
            }
        }
    }

    /// Stores the state of a component.
    pub(crate) fn keep(&self, component_key: ComponentKey, component: &HelmComponent, state: ComponentState) {
        let uid = component.metadata.uid.clone().unwrap_or_default();
        self.states.lock().insert(component_key, (uid, state));
    }

    /// Forgets a component.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.states.lock().remove(component_key);
    }
}

impl RecordedStatus {
    /// Reads the status of a component.
    pub(crate) fn of(component: &HelmComponent) -> Self {
        let Some(status) = &component.status else { return Self::default() };
        let dependencies = status.conditions.iter().flatten();
        let mut dependencies = dependencies.filter(|one| one.type_ == condition::types::DEPENDENCIES_READY);
        let (inventory, encoding) = inventory_status::read(status);
        let mut digests = status.digests.clone().unwrap_or_default();
        if encoding.is_unread() {
            // The objects found on the target instead may be incomplete, so all content is applied again.
            digests.inputs = None;
        }
        Self {
            inventory,
            encoding,
            digests,
            resource: status.resource.clone(),
            prune_baseline: status.prune_baseline.clone(),
            resolved: status.resolved.clone(),
            revision: status.revision.clone(),
            hooks: HookRecords::of(status),
            release_record: status.release_record.clone(),
            adopted: status.adopted.clone(),
            rollback: RollbackRecord::of(status),
            overridden: status.overridden.clone().unwrap_or_default(),
            values_from: status.values_from.clone().unwrap_or_default(),
            pending: dependencies.any(|condition| condition.status != "True"),
            left: left(status.conditions.as_deref().unwrap_or_default()),
        }
    }

    /// Records the optional values of these inputs if their content is applied. No apply records values that change
    /// nothing, such as those of an object that is created later, and earlier versions recorded none.
    pub(crate) fn note_values(&mut self, inputs: &str, values_from: &[InstalledValues]) {
        if self.digests.inputs.as_deref() == Some(inputs) {
            values_from.clone_into(&mut self.values_from);
        }
    }

    /// Returns the criteria for the parts of revisions that the component needs.
    pub(crate) fn revision_criteria(&self) -> RevisionCriteria {
        RevisionCriteria::of(&self.digests, self.rollback.target(), self.hooks.release.as_ref())
    }

    /// Returns the inventory as fields of the status; see [`InventoryEncoding::report`].
    pub(crate) fn report(&mut self, status: Option<&HelmComponentStatus>) -> FreeForm {
        self.encoding.report(&self.inventory, status)
    }

    /// Reports whether this content is a new release, so that hooks run for it.
    pub(crate) fn is_other_release(&self, loaded: &LoadedContent) -> bool {
        let Digests { source, values, .. } = &self.digests;
        source.as_deref() != Some(&*loaded.source) || values.as_deref() != Some(&*loaded.values)
    }

    /// Reports whether objects of another system were adopted and the requested inputs are unchanged since.
    pub(crate) fn is_as_adopted(&self, requested_digest: &str) -> bool {
        self.adopted
            .as_ref()
            .is_some_and(|adopted| adopted.inputs_digest.as_deref() == Some(requested_digest))
    }

    /// Reports whether this content is the applied one.
    pub(crate) fn is(&self, loaded: &LoadedContent) -> bool {
        self.digests.inputs.as_ref() == Some(&loaded.inputs) && self.digests.api_versions == loaded.kinds
    }
}

/// Returns the objects that the component reported as released.
fn left(conditions: &[Condition]) -> Vec<String> {
    let applied = condition::get(conditions, condition::types::APPLIED);
    let said = applied.and_then(|applied| applied.message.split_once(LEFT_OBJECTS_PREFIX));
    said.map(|(_, left)| left.to_owned()).into_iter().collect()
}

/// Returns the time since which the component reports its objects as not healthy.
fn unready_since(component: &HelmComponent) -> Option<i64> {
    unready(component).map(|healthy| healthy.last_transition_time.0.as_second())
}

/// Reports whether the component reports failed objects.
fn is_unhealthy(component: &HelmComponent) -> bool {
    unready(component).is_some_and(|healthy| healthy.reason == Reason::Unhealthy.as_str())
}

fn unready(component: &HelmComponent) -> Option<&Condition> {
    let conditions = component.status.as_ref()?.conditions.as_deref()?;
    condition::get(conditions, condition::types::HEALTHY).filter(|healthy| healthy.status == "False")
}

#[cfg(test)]
impl Memory {
    /// Reports whether no component has a state.
    pub(crate) fn is_empty(&self) -> bool {
        self.states.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_values_are_read_from_the_status() {
        let status = |values: serde_json::Value| {
            let mut component = HelmComponent::new("c", kyma_api::HelmComponentSpec::default());
            component.status = Some(serde_json::from_value(values).unwrap());
            RecordedStatus::of(&component).values_from
        };
        assert!(status(serde_json::json!({})).is_empty(), "of an earlier version");
        let entry = serde_json::json!({"kind": "Secret", "name": "s", "key": "k"});
        let read = status(serde_json::json!({"valuesFrom": [entry]}));
        let key = Some("k".to_owned());
        let expected = InstalledValues { kind: kyma_api::ValuesFromKind::Secret, name: "s".to_owned(), key };
        assert_eq!(read, [expected]);
    }

    #[test]
    fn optional_values_are_recorded_without_apply_of_equal_inputs() {
        let digests =
            |inputs: Option<&str>| Digests { inputs: inputs.map(str::to_owned), ..Digests::default() };
        let entry = InstalledValues { name: "c".to_owned(), ..InstalledValues::default() };
        let mut recorded = RecordedStatus { digests: digests(Some("sha256:1")), ..RecordedStatus::default() };
        recorded.note_values("sha256:1", std::slice::from_ref(&entry));
        assert_eq!(recorded.values_from, std::slice::from_ref(&entry));

        recorded.note_values("sha256:2", &[]);
        assert_eq!(recorded.values_from, std::slice::from_ref(&entry), "other inputs are not applied yet");
        recorded.digests = digests(None);
        recorded.note_values("sha256:1", &[]);
        assert_eq!(recorded.values_from, [entry], "an interrupted apply");

        recorded.digests = digests(Some("sha256:1"));
        recorded.note_values("sha256:1", &[]);
        assert!(recorded.values_from.is_empty(), "the entry is removed");
    }

    #[test]
    fn kinds_are_kept_only_for_content_that_depends_on_them() {
        let (mut state, kinds) = (ComponentState::default(), Arc::<Kinds>::default());
        state.store_kinds(Some("sha256:1"), &kinds);
        assert!(state.rendered_with.is_some());
        state.store_kinds(None, &kinds);
        assert!(state.rendered_with.is_none());
        assert_eq!(Arc::strong_count(&kinds), 1);
    }
}
