//! Observed state as input of decisions, and predicates over it.

use std::collections::BTreeSet;
use std::time::Duration;

use kyma_controller::Failure;
use kyma_health::HealthStatus;
use kyma_object_set::drift::Drift;
use kyma_object_set::{Identity, Inventory};

use crate::actions::history::due::HistoryDue;
use crate::actions::hooks::due::HooksDue;
use crate::actions::rollback::state::ObservedRollback;
use crate::deadline::Deadline;

/// Operation that the component's spec requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Install the content on the target.
    Install,
    /// Remove all objects, after an explicit deletion request.
    Remove,
}

/// State of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Unchanged since it was completely applied: the inventory represents it.
    Recorded,
    /// The content must be fetched and rendered before any decision.
    Stale,
    /// The content is loaded.
    Loaded,
}

/// One desired object and its observed state.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectState {
    /// Identity of the object.
    pub identity: Identity,
    /// Whether its content is newer than the applied one.
    pub changed: bool,
    /// Whether the target serves its kind; for loaded content, in its exact version.
    pub served: bool,
    /// Version of the object, if the target serves its kind only in other versions.
    pub lacks_version: Option<String>,
    /// Drift since the apply; `None` if it was never applied, or until the watch reports it.
    pub drift: Option<Drift>,
    /// Health; `None` while it is unknown. A failure counts only after it lasted for the time limit.
    pub health: Option<HealthStatus>,
    /// Why it is not healthy, if that is known; otherwise empty.
    pub why: String,
    /// Whether the health is older than the apply: the watch has not reported the object since.
    pub health_is_old: bool,
    /// Whether its health counts.
    pub counts: bool,
    /// Whether it was corrected so often that it is left alone for a while.
    pub flapping: bool,
    /// Cause of the wait, if the apply of this pass could not send it yet.
    pub waiting: Option<String>,
    /// Failure of the apply in this pass.
    pub fault: Option<Failure>,
}

impl ObjectState {
    /// Reports whether another writer changed, adopted or deleted the object, so that it must be applied again.
    pub fn has_drifted(&self) -> bool {
        matches!(self.drift, Some(Drift::Gone | Drift::Recreated | Drift::Changed | Drift::Taken))
    }

    /// Returns the kind that the target does not serve: `Kind.group`, with the version if others are served.
    pub(super) fn lacks(&self) -> Option<String> {
        let kind = self.identity.group_kind();
        (!self.served).then(|| match &self.lacks_version {
            Some(version) => format!("{kind} in version {version}"),
            None => kind.to_string(),
        })
    }
}

/// Whether drift may be corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftMode {
    /// Correct drift.
    Correct,
    /// Report drift only.
    Warn,
    /// Ignore drift.
    Off,
}

/// The state of the module's default custom resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultResource {
    /// No default custom resource is requested.
    None,
    /// Created once already; later changes are left to the user.
    Created,
    /// Requested; its kind is not served yet.
    Unserved,
    /// Requested, and its kind is served.
    Due,
}

/// Previous installation of a module that was not applied yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExistingInstallation {
    /// Not read yet.
    Unread,
    /// There is no previous installation, or one that the module may replace.
    None,
    /// The previous installation has this version, which is newer than the desired one.
    Newer(String),
    /// The previous installation has this object, whose version is unknown.
    UnknownVersion(String),
}

/// Everything that the next decision needs.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone)]
pub struct Observed {
    /// The requested operation.
    pub operation: Operation,
    /// Why the spec cannot be executed.
    pub refusal: Option<Failure>,
    /// State of the content.
    pub content: Content,
    /// Whether watches were started for all kinds concerned.
    pub watching: bool,
    /// Whether these watches have delivered their lists; true without watches.
    pub watched: bool,
    /// Whether the release's namespace exists or is not requested.
    pub namespace_ready: bool,
    /// The chart's hooks.
    pub hooks: HooksDue,
    /// Helm release records that have to be written.
    pub history: HistoryDue,
    /// State of a rollback and of its target.
    pub rollback: ObservedRollback,
    /// Whether the user requested the chart's tests and this pass has not handled the request.
    pub tests_due: bool,
    /// Desired objects; for recorded content, those of the inventory.
    pub objects: Vec<ObjectState>,
    /// Whether objects were applied in this pass.
    pub applied: bool,
    /// Applied inventory.
    pub inventory: Inventory,
    /// Whether the record of applied objects exists and cannot be read.
    pub unread: bool,
    /// Objects on the target that carry the component's owner label, whatever the inventory says.
    pub owned: BTreeSet<Identity>,
    /// Whether the wait for the watches is so long that a kind may no longer be served.
    pub sync_timed_out: bool,
    /// Why the streams of some kinds deliver nothing, after repeated waits.
    pub sync_failure: Option<Failure>,
    /// Whether objects carry the version of the module.
    pub versioned: bool,
    /// Version on the target, if it is newer than the desired one.
    pub newer: Option<String>,
    /// Previous installation by a user.
    pub existing_installation: ExistingInstallation,
    /// Whether a Helm release of the same name still has to be searched.
    pub helm_release_unread: bool,
    /// Objects that were taken over from another system and differ from the content, while the requested inputs are
    /// unchanged since; `None` if nothing was taken over.
    pub as_found: Option<Vec<String>>,
    /// Why the release could not be recorded as Helm does.
    pub unrecorded: Option<String>,
    /// Whether everything is applied again: the target has an older version than the applied one, or the user
    /// requested it.
    pub set_back: bool,
    /// Whether the desired content differs from the completely applied one.
    pub changes: bool,
    /// Whether the loaded content is not recorded as applied.
    pub unsent: bool,
    /// Whether the target was searched for objects with the owner label, beyond the inventory.
    pub swept: bool,
    /// Objects that a rule protects from deletion: they stay.
    pub kept: BTreeSet<Identity>,
    /// Result of the prune in this pass.
    pub pruned: Option<Result<(), Failure>>,
    /// Whether objects are still being deleted, or wait for such a deletion.
    pub pruning: bool,
    /// Whether drift is corrected.
    pub drift: DriftMode,
    /// The default custom resource.
    pub default_resource: DefaultResource,
    /// Whether a watch shows the default custom resource.
    pub default_seen: bool,
    /// Whether the status may be wrong about the default custom resource: present or gone.
    pub default_unconfirmed: bool,
    /// Time limit for objects to become ready, or to be deleted.
    pub deadline: Deadline,
    /// Whether the applied content was not reported as healthy yet: it is new, or the component was not Ready.
    pub awaited: bool,
    /// Objects that are no longer owned and stay on the target, with reasons.
    pub left: Vec<String>,
    /// Object of `spec.manager`, if neither the content nor the default custom resource is it.
    pub stray_manager: Option<String>,
    /// The default custom resource and its health, if `spec.manager` names it.
    pub manager: Option<(String, Option<HealthStatus>)>,
    /// Time until the first failed object has been failed for long enough.
    pub fails_in: Option<Duration>,
    /// Whether the health of objects was determined by other rules than the component has now, and this pass did not
    /// read them.
    pub unjudged: bool,
    /// Whether objects take so long that the causes should be read, and this pass did not read them.
    pub causes_due: bool,
    /// Remaining objects of the removal, once it was tried in this pass.
    pub removal: Option<Result<Vec<String>, Failure>>,
}

impl Observed {
    /// Reports whether an object must be applied.
    pub fn needs_apply(&self, object: &ObjectState) -> bool {
        let new = object.changed || !self.inventory.was_sent(&object.identity);
        match self.operation {
            Operation::Install => new || self.needs_repair(object),
            Operation::Remove => (new && self.changes) || (!new && self.needs_repair(object)),
        }
    }

    /// Reports whether everything desired is on the target, of kinds that it serves: the condition for pruning.
    pub fn is_complete(&self) -> bool {
        self.objects.iter().all(|object| object.served && object.fault.is_none() && self.is_sent(object))
    }

    pub(super) fn is_sent(&self, object: &ObjectState) -> bool {
        object.waiting.is_none() && self.inventory.was_sent(&object.identity)
    }

    fn needs_repair(&self, object: &ObjectState) -> bool {
        self.drift == DriftMode::Correct && object.has_drifted() && !object.flapping
    }

    /// Returns the objects that another manager changed and that are not corrected for a while.
    pub fn flapping(&self) -> Vec<String> {
        let left = |object: &&ObjectState| {
            self.drift == DriftMode::Correct && object.flapping && object.has_drifted()
        };
        self.objects.iter().filter(left).map(|object| object.identity.to_string()).collect()
    }

    /// Returns the objects that count and have failed.
    pub fn failing(&self) -> Vec<String> {
        self.named(|health| health == Some(HealthStatus::Failed))
    }

    /// Reports whether an object that counts failed after its last apply.
    pub fn fails_as_it_is(&self) -> bool {
        let there = |object: &&ObjectState| object.counts && self.inventory.contains(&object.identity);
        let old = |object: &ObjectState| object.health == Some(HealthStatus::Failed) && object.health_is_old;
        let old = self.objects.iter().filter(there).filter(|object| old(object)).count();
        self.failing().len() > old
    }

    /// Returns the objects that count and have not been reported since their apply.
    pub fn unreported(&self) -> Vec<String> {
        let there = |object: &&ObjectState| object.counts && self.inventory.contains(&object.identity);
        let unreported = self.objects.iter().filter(there).filter(|object| object.health_is_old);
        unreported.map(|object| object.identity.to_string()).collect()
    }

    /// Reports whether the health of newly applied objects must be awaited, not only that of earlier ones. A
    /// correction of drift in a healthy component need not be.
    pub fn awaits_news(&self) -> bool {
        (self.awaited || self.rollback.needs_current_health()) && !self.unreported().is_empty()
    }

    /// Returns the objects that count and are not healthy.
    pub fn unready(&self) -> Vec<String> {
        self.named(|health| health != Some(HealthStatus::Current))
    }

    /// Returns the objects that count and were not applied yet: their health is unknown.
    pub fn unapplied(&self) -> Vec<String> {
        let counting = self.objects.iter().filter(|object| object.counts);
        let absent = counting.filter(|object| !self.inventory.contains(&object.identity));
        absent.map(|object| object.identity.to_string()).collect()
    }

    /// Returns the objects with this health among those that count and are on the target.
    fn named(&self, is_named: fn(Option<HealthStatus>) -> bool) -> Vec<String> {
        let there =
            self.objects.iter().filter(|object| object.counts && self.inventory.contains(&object.identity));
        let name = |object: &ObjectState| match object.why.as_str() {
            "" => object.identity.to_string(),
            why => format!("{} ({why})", object.identity),
        };
        let there = there.map(|object| (name(object), object.health));
        let all = there.chain(self.manager.clone());
        all.filter(|(_, health)| is_named(*health)).map(|(name, _)| name).collect()
    }

    /// Reports whether an object stays even if the content lacks it: until the user requests a change after a
    /// takeover, objects that only the record of the other system names stay.
    pub fn stays(&self, identity: &Identity) -> bool {
        self.as_found.is_some() && self.inventory.contains(identity) && !self.inventory.was_sent(identity)
    }

    /// Returns the objects that were applied or carry the owner label, are no longer desired and do not
    /// [stay](Self::stays).
    pub fn surplus(&self) -> Vec<Identity> {
        let desired: BTreeSet<&Identity> = self.objects.iter().map(|object| &object.identity).collect();
        let applied = self.inventory.iter().map(|(identity, _)| identity);
        let surplus: BTreeSet<&Identity> = applied
            .chain(self.owned.iter())
            .filter(|identity| {
                !desired.contains(identity) && !self.kept.contains(*identity) && !self.stays(identity)
            })
            .collect();
        surplus.into_iter().cloned().collect()
    }

    /// Returns the kinds that objects need and the target does not serve. Kinds of the content's own CRDs return with
    /// these; objects that are to be removed need none.
    pub fn missing(&self) -> BTreeSet<String> {
        let own = self.groups_of_own_crds();
        let returns = |object: &ObjectState| match self.operation {
            Operation::Install => {
                own.contains(&*object.identity.group) && self.inventory.was_sent(&object.identity)
            }
            Operation::Remove => self.inventory.contains(&object.identity),
        };
        self.objects.iter().filter(|object| !returns(object)).filter_map(ObjectState::lacks).collect()
    }

    /// Returns the API groups whose kinds CRDs of the same content define; the target will serve them soon.
    pub(super) fn groups_of_own_crds(&self) -> BTreeSet<&str> {
        let crds = self.objects.iter().filter(|object| object.identity.is_crd());
        crds.filter_map(|crd| Some(crd.identity.name.split_once('.')?.1)).collect()
    }
}
