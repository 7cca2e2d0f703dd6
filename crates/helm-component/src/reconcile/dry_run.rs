//! Dry run of a pass: the same loop follows the same plan, and changes are sent as dry runs or only noted.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kyma_api::{CreatedResource, FreeForm, Reason};
use kyma_controller::Failure;
use kyma_helm::hooks::Event;
use kyma_object_set::{DryRun, Identity, remove};
use tokio::time::Instant;

use super::calls::failure;
use super::default_resource;
use super::prune::unconfirmed;
use crate::actions::hooks;
use crate::actions::outcome::StepOutcome;
use crate::dry_run_result::DryRunResult;
use crate::pass::Pass;
use crate::plan::{Observed, StopReason};

/// Timeout for the watches to list the target's objects.
const MAX_WATCH_WAIT: Duration = Duration::from_secs(30);

/// State of a dry run.
pub(super) struct DryRunState {
    /// Objects that were sent as dry runs.
    sent: Arc<DryRun>,
    /// All other changes.
    result: DryRunResult,
    /// Time until which the watches must list the target's objects.
    sync_deadline: Instant,
}

/// Returns the default custom resource and the object to create; no object if it exists already.
async fn default_resource_due(
    pass: &Pass<'_>,
) -> Result<(CreatedResource, Option<(Identity, FreeForm)>), Failure> {
    let (mapping, identity, body) = pass.default_object()?;
    let is_there = pass.was_created_before() || pass.live(&mapping, &identity).await?.is_some();
    let made = default_resource::created(&mapping, identity.clone(), None);
    Ok((made, (!is_there).then_some((identity, body))))
}

impl DryRunState {
    /// Sends the changes of a pass as dry runs from now on.
    pub(super) fn begin(pass: &mut Pass<'_>) -> Self {
        let sent = Arc::<DryRun>::default();
        pass.cluster.dry_run = Some(Arc::clone(&sent));
        let sync_deadline = Instant::now() + MAX_WATCH_WAIT;
        Self { sent, result: DryRunResult::default(), sync_deadline }
    }

    /// Waits until the watches deliver something.
    pub(super) async fn wait_for_watches(&self, pass: &Pass<'_>) -> Result<(), Failure> {
        let silent =
            |_| Failure::new(Reason::TargetTimeout, "the watches on the target did not deliver its objects");
        tokio::time::timeout_at(self.sync_deadline, pass.context.woken()).await.map_err(silent)
    }

    /// Notes the release's namespace, if it would be created.
    pub(super) async fn namespace(&mut self, pass: &mut Pass<'_>) -> Result<(), Failure> {
        pass.state.namespace_ready = true;
        let release = pass.inputs.as_ref().map_err(Clone::clone)?.release.clone();
        if !release.create_namespace {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(pass.cluster.client.clone());
        let found = namespaces.get_metadata_opt(&release.namespace).await;
        let found = found
            .map_err(|error| Failure::target(&format!("read Namespace {}", release.namespace), &error))?;
        self.sent.add_namespace(&release.namespace);
        self.result.namespace = found.is_none().then_some(release.namespace);
        Ok(())
    }

    /// Notes the hooks of an event, which count as passed from now on.
    pub(super) fn count_hooks_as_passed(&mut self, pass: &mut Pass<'_>, event: Event) {
        self.result.hooks.extend(hooks::count_as_passed(pass, event));
    }

    /// Notes the objects that would be deleted, which count as deleted from now on.
    pub(super) async fn prune(&mut self, pass: &mut Pass<'_>, surplus: &[Identity], seen: &Observed) {
        pass.add_unrecorded_objects(surplus);
        pass.done.pruned = Some(self.try_prune(pass, seen).await);
    }

    async fn try_prune(&mut self, pass: &mut Pass<'_>, seen: &Observed) -> Result<(), Failure> {
        pass.label_surplus_release_objects(seen).await?;
        let inventory = pass.state.recorded.inventory.clone();
        let plan = pass.prune_plan(&inventory, &pass.new_owners(), seen);
        let plan = plan.map_err(|blocked| unconfirmed(&blocked))?;
        let pruned =
            remove::prune(&pass.cluster, &plan, &inventory, &pass.ownership, &pass.shared.protection)
                .boxed()
                .await;
        let removal = pruned.map_err(|error| failure(&error))?;
        pass.state.recorded.inventory = removal.remaining(&inventory);
        let failed = removal.failed.first().map(failure);
        self.result.deleted = removal.waiting;
        pass.done.kept.extend(removal.kept.keys().chain(&self.result.deleted).cloned());
        self.result.given_up = removal.kept.into_iter().collect();
        failed.map_or(Ok(()), Err)
    }

    /// Notes the default custom resource. If that fails, the changes before it are shown all the same.
    pub(super) async fn default_resource(&mut self, pass: &mut Pass<'_>) -> StepOutcome {
        match default_resource_due(pass).await {
            Ok((made, object)) => {
                pass.state.recorded.resource = Some(made);
                self.result.default_resource = object;
                StepOutcome::Continue
            }
            Err(failure) => StepOutcome::Stop(StopReason::Failed(failure)),
        }
    }

    /// Returns the changes of a pass that ended with this result.
    pub(super) fn end(self, pass: Pass<'_>, seen: &Observed, stop_reason: StopReason) -> DryRunResult {
        let Self { sent, mut result, .. } = self;
        result.objects = sent.diffs();
        let waiting = pass.done.waiting.iter();
        result.waits = waiting.map(|(identity, what)| format!("{identity}: {what}")).collect();
        result.failures = pass.done.faults.values().cloned().collect();
        let (waits, stops) = (
            matches!(stop_reason, StopReason::MissingKinds(_) | StopReason::DriftFlapping(_)),
            stops(&stop_reason),
        );
        let told = pass.end(stop_reason, seen).progress().failure;
        if waits {
            result.waits.extend(told.map(|failure| failure.message));
        } else if stops && result.failures.is_empty() {
            result.failures.extend(told);
        }
        result
    }
}

/// Reports whether a pass that ends with this result leaves steps undone.
fn stops(stop_reason: &StopReason) -> bool {
    match stop_reason {
        StopReason::Failed(_)
        | StopReason::NewerVersion(_)
        | StopReason::NewerInstallation(_)
        | StopReason::UnknownInstallation(_)
        | StopReason::SyncFailed(_)
        | StopReason::StrayManager(_)
        | StopReason::RolledBack => true,
        StopReason::Ready
        | StopReason::WaitingForSync
        | StopReason::Hook(_)
        | StopReason::Progressing(_)
        | StopReason::Unhealthy(_)
        | StopReason::HealthTimeout(_)
        | StopReason::DriftFlapping(_)
        | StopReason::MissingKinds(_)
        | StopReason::Removing(_)
        | StopReason::Removed => false,
    }
}
