//! State of one reconcile of a component, and state that all reconciles share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kyma_api::HelmComponent;
use kyma_controller::Failure;
use kyma_object_set::drift::FlapLimit;
use kyma_object_set::{Cluster, Entry, Identity, Kinds, Ownership, Protection};
use kyma_sdk::Context;

use crate::actions::history::progress::HistoryProgress;
use crate::actions::history::shared_lists::ReleaseRecords;
use crate::actions::hooks::state::{CompletedHooks, Outcome};
use crate::actions::hooks::watches::HookWatches;
use crate::actions::rollback::progress::RollbackProgress;
use crate::component_key::ComponentKey;
use crate::content::{Inputs, Sources};
use crate::expressions::Rules;
use crate::hub_config_maps::HubConfigMaps;
use crate::hub_secrets::HubSecrets;
use crate::memory::{ComponentState, Memory};
use crate::namespaces::Namespaces;
use crate::owner_waits::OwnerWaits;
use crate::ownership_requests::OwnershipRequests;
use crate::ownership_transfers::OwnershipTransfers;
use crate::plan::{ExistingInstallation, Operation};
use crate::release::{self, Release};
use crate::release_names::AlteredNames;
use crate::release_store::ReleaseStore;
use crate::searches::Searches;
use crate::target_cache::TargetCache;

/// State that all reconciles share.
pub(crate) struct Shared {
    /// Sources of content and the renderer.
    pub sources: Sources,
    /// Objects on targets as watches show them.
    pub target_cache: TargetCache,
    /// Namespaces of targets whose end components wait for.
    pub namespaces: Namespaces,
    /// Default release names that components may share.
    pub altered_names: AlteredNames,
    /// Helm's records of releases in namespaces of targets.
    pub release_records: Arc<ReleaseRecords>,
    /// Results of hooks on targets.
    pub hook_watches: HookWatches,
    /// Secrets of the hub that components use.
    pub hub_secrets: Arc<HubSecrets>,
    /// Revisions of the hub's ConfigMaps, for components that take values from them.
    pub hub_config_maps: Arc<HubConfigMaps>,
    /// Requests for objects that other components own.
    pub ownership_requests: OwnershipRequests,
    /// Searches for objects of components, shared by concurrent reconciles.
    pub searches: Searches,
    /// Components that wait until others release an object.
    pub owner_waits: OwnerWaits,
    /// Objects that components received from others and have not settled.
    pub ownership_transfers: OwnershipTransfers,
    /// State that is kept between reconciles.
    pub memory: Memory,
    /// Objects that no module may touch.
    pub protection: Protection,
    /// Limit of drift corrections, beyond which another writer wins.
    pub flap_limit: FlapLimit,
    /// Time for which an object must be failed before its component is unhealthy.
    pub unhealthy_after: Duration,
}

/// One reconcile of a component.
pub(crate) struct Pass<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) context: &'a Context<HelmComponent>,
    pub(crate) key: ComponentKey,
    pub(crate) cluster: Cluster,
    pub(crate) ownership: Ownership,
    /// Kinds that the target serves.
    pub(crate) kinds: Arc<Kinds>,
    /// The same, with the kinds of the content's own CRDs, which the target serves shortly after their apply.
    pub(crate) served: Arc<Kinds>,
    pub(crate) inputs: Result<Inputs, Failure>,
    /// The component's own rules of health.
    pub(crate) rules: Result<Arc<Rules>, Failure>,
    pub(crate) operation: Operation,
    pub(crate) state: ComponentState,
    /// Objects that other components transferred to this one and that it has not processed.
    pub(crate) received: BTreeMap<Identity, Entry>,
    pub(crate) done: CompletedSteps,
    /// Time of its beginning.
    pub(crate) begun: Instant,
    pub(crate) rollback: RollbackProgress,
}

impl Pass<'_> {
    /// Returns the name and namespace of the release, which do not depend on values.
    pub(crate) fn release(&self) -> Release {
        release::of(
            &self.key.name,
            &self.context.resource.spec,
            self.context.resource.status.as_ref(),
            &self.context.settings.target_namespace,
        )
    }

    /// Returns the component's revisions on the hub.
    pub(crate) fn release_store(&self) -> ReleaseStore {
        ReleaseStore::of(self.context, &self.key.owner)
    }

    /// Reports whether a Secret of an earlier version may exist. This version creates none, so the watch is not behind;
    /// a dry run has no watch.
    pub(crate) fn may_have_former(&self, name: &str) -> bool {
        self.context.is_dry_run() || self.shared.hub_secrets.revision(name).is_some()
    }

    /// Returns the release name for the status, if it was shortened with a hash or keeps its dots.
    pub(crate) fn recorded_release_name(&self) -> Option<String> {
        let release = self.release();
        let name = release.name_to_record(&self.key.name, &self.context.resource.spec)?;
        let is_earlier_name = self.context.resource.status.as_ref().is_some_and(|status| {
            release::of(&self.key.name, &self.context.resource.spec, None, "").name != name
                && status.release_name.is_none()
        });
        (!is_earlier_name).then(|| name.to_owned())
    }
}

/// Steps that this reconcile completed, with their results. The plan decides on failures among these; for example, a
/// rollback or a repair follows. Any other failure ends the pass.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Default)]
pub(crate) struct CompletedSteps {
    pub(crate) watching: bool,
    pub(crate) applied: bool,
    /// Results of hooks.
    pub(crate) hooks: CompletedHooks,
    /// Previous installation of the module, once observed.
    pub(crate) existing_installation: Option<ExistingInstallation>,
    pub(crate) history: HistoryProgress,
    /// Whether Helm's record of a release was searched.
    pub(crate) helm_release_read: bool,
    pub(crate) faults: BTreeMap<Identity, Failure>,
    pub(crate) waiting: BTreeMap<Identity, String>,
    pub(crate) kept: BTreeSet<Identity>,
    pub(crate) pruned: Option<Result<(), Failure>>,
    /// Whether objects are still being deleted, or wait for such a deletion.
    pub(crate) pruning: bool,
    /// Whether the record of the default custom resource was compared with the target.
    pub(crate) default_confirmed: bool,
    pub(crate) removal: Option<Result<Vec<String>, Failure>>,
    /// The webhook that did not answer a request of the removal.
    pub(crate) dead_webhook: Option<String>,
    /// Whether objects were read whose health was determined by other rules.
    pub(crate) judged: bool,
    /// Whether the causes that hold up objects were read.
    pub(crate) causes_read: bool,
    /// Namespaces that this pass has read, to see whether they are being deleted.
    pub(crate) read_namespaces: BTreeSet<String>,
    /// Wait or failure of the chart's tests, once they were handled.
    pub(crate) tests: Option<Result<Outcome, Failure>>,
}
