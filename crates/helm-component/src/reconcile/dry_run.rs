//! A pass that changes nothing: the same state machine decides, and its steps are dry runs or only noted.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kyma_api::{CreatedResource, FreeForm, HookPhase, Hooks, Reason, ReleaseRecord};
use kyma_helm::hooks::{self, Event};
use kyma_object_set::{DryRun, Identity, remove};
use kyma_sdk::Failure;
use tokio::time::Instant;

use super::prune::unconfirmed;
use super::{MAX_STEPS, Pass, default_resource, failure};
use crate::dry_run_result::{DryRunResult, EventHooks};
use crate::observe;
use crate::plan::{self, Observed, Step, StopReason};

/// Timeout for the watches to list the target's objects.
const MAX_WATCH_WAIT: Duration = Duration::from_secs(30);

impl Pass<'_> {
    /// Determines the changes that a pass would make.
    ///
    /// # Errors
    /// If the state of the target cannot be read.
    pub(crate) async fn dry_run(mut self) -> Result<DryRunResult, Failure> {
        let dry_run = Arc::new(DryRun::default());
        self.cluster.dry_run = Some(Arc::clone(&dry_run));
        let mut result = DryRunResult::default();
        let until = Instant::now() + MAX_WATCH_WAIT;
        let mut steps = 0..MAX_STEPS;
        while steps.next().is_some() {
            let seen = observe::observe(&self);
            match plan::next(&seen) {
                Step::Load => self.load().await?,
                Step::Watch => self.watch()?,
                Step::Rediscover => self.rediscover().await?,
                Step::ReadExistingInstallation => self.read_existing_installation().await?,
                Step::FindHelmRelease => self.find_helm_release().await?,
                Step::Record(_) => self.count_as_recorded(),
                Step::Namespace => result.namespace = self.missing_namespace(&dry_run).await?,
                // CRDs are applied with everything else.
                Step::ApplyCrds => self.done.crds_applied = true,
                Step::Hooks(event) => result.hooks.extend(self.hooks_passed(event)),
                Step::Apply => self.apply(&seen).await?,
                Step::Prune(surplus) => self.dry_run_prune(surplus, &seen, &mut result).await,
                Step::DefaultResource => {
                    if let Err(failure) = self.dry_run_default_resource(&mut result).await {
                        let stop_reason = StopReason::Failed(failure);
                        return Ok(self.dry_run_result(result, &dry_run, &seen, stop_reason));
                    }
                }
                Step::Stop(StopReason::WaitingForSync) => {
                    self.wait_for_watches(until).await?;
                    steps = 0..MAX_STEPS;
                }
                Step::Stop(stop_reason) => {
                    return Ok(self.dry_run_result(result, &dry_run, &seen, stop_reason));
                }
                Step::Judge => self.judge_health(&seen).await?,
                // Its result is only used after the apply.
                Step::ReadCauses => self.done.causes_read = true,
                Step::ConfirmDefaultResource => self.done.default_confirmed = true,
                Step::StoreRollbackTarget => self.done.rollback_target = Some(Ok(())),
                Step::Test => self.done.tests = Some(Ok(None)),
                Step::Retry => self.retry().await?,
                Step::RollBack(failure) => {
                    return Ok(self.dry_run_result(result, &dry_run, &seen, StopReason::Failed(failure)));
                }
                Step::Sweep => self.sweep().await?,
                // A dry run of an installation removes nothing.
                Step::Remove => break,
            }
        }
        Err(Failure::new(Reason::Internal, "the dry run did not end"))
    }

    /// Waits until the watches deliver something.
    async fn wait_for_watches(&self, until: Instant) -> Result<(), Failure> {
        let silent =
            |_| Failure::new(Reason::TargetTimeout, "the target's watches do not show what is there");
        tokio::time::timeout_at(until, self.context.woken()).await.map_err(silent)
    }

    /// Returns the release's namespace, if it would be created.
    async fn missing_namespace(&mut self, dry_run: &DryRun) -> Result<Option<String>, Failure> {
        self.state.namespace_ready = true;
        let release = self.inputs.as_ref().map_err(Clone::clone)?.release.clone();
        if !release.create_namespace {
            return Ok(None);
        }
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        let found = namespaces.get_metadata_opt(&release.namespace).await;
        let found = found
            .map_err(|error| Failure::target(&format!("read Namespace {}", release.namespace), &error))?;
        dry_run.add_namespace(&release.namespace);
        Ok(found.is_none().then_some(release.namespace))
    }

    /// Counts Helm's record of the release as written, since it is no object of the chart.
    fn count_as_recorded(&mut self) {
        self.done.history_tried = true;
        let digest = self.state.loaded.as_ref().map(|loaded| loaded.release.clone()).unwrap_or_default();
        self.state.recorded.release_record = Some(ReleaseRecord { digest, ..ReleaseRecord::default() });
    }

    /// Returns the hooks of an event, which count as passed from now on.
    fn hooks_passed(&mut self, event: Event) -> Option<EventHooks> {
        let loaded = self.state.loaded.as_ref()?;
        let own = hooks::of_event(&loaded.prepared.hooks, event);
        let names = own.iter().map(|hook| hook.name()).collect();
        let now = jiff::Timestamp::now();
        let run = hooks::begin(self.state.recorded.hooks.as_ref(), event, &loaded.release, now);
        self.state.recorded.hooks = Some(Hooks { phase: HookPhase::Succeeded, ..run });
        Some(EventHooks { event: event.as_str().to_owned(), hooks: names })
    }

    async fn dry_run_prune(&mut self, surplus: Vec<Identity>, seen: &Observed, result: &mut DryRunResult) {
        self.adopt_strays(&surplus);
        if let Err(failure) = self.claim_left(seen).await {
            self.done.pruned = Some(Err(failure));
            return;
        }
        let inventory = self.state.recorded.inventory.clone();
        let plan = match self.prune_plan(&inventory, &self.new_owners(), seen) {
            Ok(plan) => plan,
            Err(blocked) => {
                self.done.pruned = Some(Err(unconfirmed(&blocked)));
                return;
            }
        };
        let pruned =
            remove::prune(&self.cluster, &plan, &inventory, &self.ownership, &self.shared.protection)
                .boxed()
                .await;
        self.done.pruned = Some(match pruned {
            Ok(removal) => {
                self.state.recorded.inventory = removal.remaining(&inventory);
                let failed = removal.failed.first().map(failure);
                result.deleted = removal.waiting;
                self.done.kept.extend(removal.kept.keys().chain(&result.deleted).cloned());
                result.given_up = removal.kept.into_iter().collect();
                failed.map_or(Ok(()), Err)
            }
            Err(error) => Err(failure(&error)),
        });
    }

    async fn dry_run_default_resource(&mut self, result: &mut DryRunResult) -> Result<(), Failure> {
        let (made, object) = self.default_resource_due().await?;
        self.state.recorded.resource = Some(made);
        result.default_resource = object;
        Ok(())
    }

    /// Returns the default custom resource and the object to create; no object if it exists already.
    async fn default_resource_due(&self) -> Result<(CreatedResource, Option<(Identity, FreeForm)>), Failure> {
        let (mapping, identity, body) = self.default_object()?;
        let is_there = self.was_created_before() || self.live(&mapping, &identity).await?.is_some();
        let made = default_resource::created(&mapping, identity.clone(), None);
        Ok((made, (!is_there).then_some((identity, body))))
    }

    fn dry_run_result(
        self,
        mut result: DryRunResult,
        dry_run: &DryRun,
        seen: &Observed,
        stop_reason: StopReason,
    ) -> DryRunResult {
        result.objects = dry_run.diffs();
        let waiting = self.done.waiting.iter();
        result.waits = waiting.map(|(identity, what)| format!("{identity}: {what}")).collect();
        result.failures = self.done.faults.values().cloned().collect();
        let (waits, stops) = (
            matches!(stop_reason, StopReason::MissingKinds(_) | StopReason::DriftFlapping(_)),
            stops(&stop_reason),
        );
        let told = self.end(stop_reason, seen).progress().failure;
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
