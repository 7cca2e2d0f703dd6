//! In-memory state of each component between reconciles. All of it can be rebuilt.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::{
    CreatedResource, Digests, FailedRelease, FreeForm, HelmComponent, HelmComponentStatus, HelmHistory,
    Hooks, KeptRelease, Reason, ReleaseRevision, Replaced, ResolvedVersion, TakenOver, condition,
};
use kyma_object_set::drift::Flaps;
use kyma_object_set::{Identity, Inventory, Kinds};

use crate::content::Loaded;
use crate::expressions::Rules;
use crate::looking::Looking;
use crate::objects::Prepared;
use crate::record::{self, Form};
use crate::referenced::Referenced;
use crate::sight::Dependent;

/// What was reported of a component: newer than what the hub's watch shows right after a report.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// The applied inventory.
    pub inventory: Inventory,
    /// How the status holds that.
    pub form: Form,
    /// Inputs from which it was rendered.
    pub digests: Digests,
    /// The default custom resource, once it was made.
    pub resource: Option<CreatedResource>,
    /// What the content at hand takes the place of, until what it does not have is gone.
    pub replaces: Option<Replaced>,
    /// The version that the chart's range stands for.
    pub resolved: Option<ResolvedVersion>,
    /// Revision of the release that was sent last, if its chart reads it.
    pub revision: Option<ReleaseRevision>,
    /// Progress of the chart's hooks.
    pub hooks: Option<Hooks>,
    /// State of Helm's release record on the target.
    pub history: Option<HelmHistory>,
    /// From whom it was taken over.
    pub taken_over: Option<TakenOver>,
    /// The release that was Ready last, where a rollback may be wanted.
    pub kept: Option<KeptRelease>,
    /// The release that failed, and in whose place that one is wished.
    pub rollback: Option<FailedRelease>,
    /// Progress of the chart's tests.
    pub tests: Option<Hooks>,
    /// The request for tests that was followed last.
    pub tested: Option<String>,
    /// Key paths that overrides replaced.
    pub overridden: Vec<String>,
    /// Whether something of the content is still to be applied once its kind comes.
    pub pending: bool,
    /// Objects that are no longer owned and stay on the target, with reasons.
    pub left: Vec<String>,
}

/// What stands before the objects that were given up, in conditions and events.
pub(crate) const LEFT: &str = "left on the target: ";

/// In-memory state of one component.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    /// Last reported status.
    pub recorded: Recorded,
    /// The content while it is needed: dropped when everything is applied and works.
    pub loaded: Option<Loaded>,
    /// API versions of the target when the recorded content was applied.
    pub(crate) rendered_with: Option<Arc<Kinds>>,
    /// Digest of the objects of which people were last told what is doubtful in them.
    pub(crate) warned: Option<String>,
    /// The wait for the watches to show what is there, while there is one.
    pub(crate) looking: Option<Looking>,
    /// Whether something waits for a kind, so that each pass asks anew what the target serves.
    pub(crate) kinds_awaited: bool,
    /// Whether the render failed and the chart reads the API versions, so that a new kind may resolve it.
    pub(crate) render_awaits_kinds: bool,
    /// Whether objects were sent.
    pub(crate) has_sent: bool,
    /// Whether a pass that sent other content than what is on record may have been cut off: what it sent is not known.
    pub(crate) is_cut_off: bool,
    /// Whether the target was searched for what is ours.
    pub(crate) swept: bool,
    /// Whether what was known to be on the target was given the order to go.
    pub(crate) removed: bool,
    /// The hooks of the removal, once they were read.
    pub(crate) parting: Option<Arc<Prepared>>,
    /// The release of which they were kept last.
    pub(crate) parting_of: Option<String>,
    /// Digest of the hooks that this process stored.
    pub(crate) parting_digest: Option<String>,
    /// Digests of nondeterministic renders that this process made or found in the status.
    pub(crate) renders_made: BTreeSet<String>,
    /// Whether a render by chance was kept on the hub.
    pub(crate) has_frozen: bool,
    /// Names of the hub's Secrets that the content wanted when it was last loaded.
    pub(crate) injected: BTreeSet<String>,
    /// When a newer version in the chart's range is looked for; `None` where it is only when asked.
    pub(crate) next_check: Option<Instant>,
    /// Last read content of the objects in `valuesFrom`.
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
    /// When that was looked at.
    pub(crate) explained: Option<Explained>,
    /// Whether a read found the default custom resource although no watch shows it.
    pub(crate) default_confirmed: bool,
    /// Recent corrections of drift, by object.
    pub flaps: BTreeMap<Identity, Flaps>,
}

/// A look at what holds objects up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Explained {
    /// Of which wait it is: when that began, in Unix seconds.
    pub(crate) wait: i64,
    /// When it was, in Unix seconds.
    pub(crate) at: i64,
}

/// The memory of all components.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sessions: Mutex<HashMap<Dependent, (String, Session)>>,
}

impl Memory {
    /// Returns the session of a component. It starts from the status if there is none, if the uid differs, or if the record
    /// could not be read before.
    pub(crate) fn recall(&self, dependent: &Dependent, component: &HelmComponent) -> Session {
        let uid = component.metadata.uid.clone().unwrap_or_default();
        match self.sessions().get(dependent) {
            Some((held, session)) if *held == uid && !session.recorded.form.is_unread() => session.clone(),
            _ => {
                let recorded = Recorded::of(component);
                Session {
                    kinds_awaited: recorded.pending,
                    is_cut_off: recorded.digests.inputs.is_none() && !recorded.inventory.is_empty(),
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

    /// Forgets a component.
    pub(crate) fn forget(&self, dependent: &Dependent) {
        self.sessions().remove(dependent);
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
        let (inventory, form) = record::read(status);
        let mut digests = status.digests.clone().unwrap_or_default();
        if form.is_unread() {
            // What is found in its place need not be all of the content, which is sent anew.
            digests.inputs = None;
        }
        Self {
            inventory,
            form,
            digests,
            resource: status.resource.clone(),
            replaces: status.replaces.clone(),
            resolved: status.resolved.clone(),
            revision: status.revision.clone(),
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

    /// What is on the target, as fields of the status; see [`Form::report`].
    pub(crate) fn report(&mut self, status: Option<&HelmComponentStatus>) -> FreeForm {
        self.form.report(&self.inventory, status)
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
