//! Steps of a reconcile, and reasons for which it ends. Pure.

use kyma_controller::Failure;
use kyma_helm::hooks::Event;
use kyma_helm::storage::ReleaseStatus;
use kyma_object_set::Identity;

use crate::actions::rollback::state::RollbackAction;

/// One step of a reconcile.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Fetch the artifact and turn it into objects.
    Load,
    /// Subscribe to the watches of all kinds concerned.
    Watch,
    /// Repeat discovery, and subscribe to the kinds that it finds.
    Rediscover,
    /// Read a previous installation of the module by a user.
    ReadExistingInstallation,
    /// Read Helm's record of a release of the same name.
    FindHelmRelease,
    /// Create the release's namespace.
    Namespace,
    /// Apply CRDs alone: hooks before the apply may need their kinds.
    ApplyCrds,
    /// Run the hooks of an event, as far as possible without waiting.
    Hooks(Event),
    /// Apply pending objects, stage by stage.
    Apply,
    /// Search the target for objects with the component's owner label.
    Sweep,
    /// Read objects whose health was determined by other rules than the component has now.
    Judge,
    /// Read once what holds up objects that take long.
    ReadCauses,
    /// Delete objects that are no longer desired.
    Prune(Vec<Identity>),
    /// Record the content as a revision of the release, as Helm does.
    Record(ReleaseStatus),
    /// Create the default custom resource.
    DefaultResource,
    /// Read whether the default custom resource still exists.
    ConfirmDefaultResource,
    /// Execute one step of a rollback, or of the preparation for one.
    Rollback(RollbackAction),
    /// Run the chart's tests, as far as possible without waiting.
    Test,
    /// Execute one step of the removal.
    Remove,
    /// No further step in this reconcile.
    Stop(StopReason),
}

/// Reason for which a pass has no further step.
#[derive(Debug, Clone, PartialEq)]
pub enum StopReason {
    /// Everything is as desired.
    Ready,
    /// The release that was Ready before is installed again, since the desired one failed.
    RolledBack,
    /// Waiting for the first lists of the watches.
    WaitingForSync,
    /// The streams of some kinds deliver nothing, for this reason.
    SyncFailed(Failure),
    /// Waiting until a hook ends; the text names the hook and its event.
    Hook(String),
    /// Waiting until these objects are healthy (`Kind namespace/name`).
    Progressing(Vec<String>),
    /// These objects have failed.
    Unhealthy(Vec<String>),
    /// These objects did not become healthy in time.
    HealthTimeout(Vec<String>),
    /// Another manager changes these objects repeatedly; their drift is not corrected for a while.
    DriftFlapping(Vec<String>),
    /// `spec.manager` names this object, which the component does not have.
    StrayManager(String),
    /// The target runs this version, which is newer than the desired one.
    NewerVersion(String),
    /// A user installed this version before, which is newer than the desired one.
    NewerInstallation(String),
    /// A user installed this object before, and its version is unknown.
    UnknownInstallation(String),
    /// Kinds that parts of the content need are missing; the rest is applied.
    MissingKinds(Vec<String>),
    /// Something failed.
    Failed(Failure),
    /// Waiting until these objects are gone.
    Removing(Vec<String>),
    /// Everything is gone.
    Removed,
}
