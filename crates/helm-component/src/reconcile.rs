//! Reconciles one component: asks [`plan::next`] for a step, executes it, and repeats that until nothing is left to
//! do.

mod adoption;
mod allocations;
mod applied;
mod apply;
pub(crate) mod calls;
pub(crate) mod component_list;
mod default_resource;
mod dry_run;
mod executor;
mod existing_installation;
mod health;
mod load;
mod prune;
mod removal;
mod resolve;
mod terminating_namespaces;
mod values;

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::PartialObjectMeta;
use kyma_api::{HelmComponent, Reason, names};
use kyma_controller::Failure;
use kyma_object_set::{Identity, Ownership, Protection};
use kyma_sdk::Context;
use kyma_targets::Contact;

use crate::actions::outcome::StepOutcome;
use crate::actions::rollback::progress::RollbackProgress;
use crate::actions::{hooks, rollback, test};
use crate::component_key::ComponentKey;
use crate::deleter::GatedDeleter;
use crate::dry_run_result::DryRunResult;
use crate::effects;
use crate::expressions::Rules;
use crate::memory::ComponentState;
use crate::observe::{self, MissingKinds};
use crate::ownership_requests::TargetScope;
use crate::pass::{CompletedSteps, Pass, Shared};
use crate::plan::{self, Content, DefaultResource, Operation, Step, StopReason};
use crate::release_names;
use crate::report::{ReconcileResult, StatusSummary};
use crate::watch_wait::{WATCH_SYNC_TIMEOUT, WatchWait};

use calls::failure;
use dry_run::DryRunState;
use executor::Executor;

/// Maximum number of steps of one pass. Each step occurs once or twice for both installation and rollback, so more
/// are a bug.
const MAX_STEPS: usize = 48;

impl<'a> Pass<'a> {
    /// Prepares a pass. Discovery of the target comes from the cache in most cases.
    pub(crate) async fn begin(
        shared: &'a Shared,
        context: &'a Context<HelmComponent>,
        operation: Operation,
    ) -> Result<Self, Failure> {
        let begun = Instant::now();
        let component = &*context.resource;
        let component_key = component_key(context);
        let mut state = shared.memory.recall(&component_key, component);
        let cluster = shared.target_cache.cluster(&context.target, &component_key);
        let cluster = cluster.deleting_by(Arc::new(GatedDeleter(context.delete_gate())));
        let asks = state.recorded.digests.api_versions.is_some()
            && shared.target_cache.has_recent_kind_changes(&context.target);
        if asks || state.kinds_awaited || context.is_requested() {
            cluster.discovery.invalidate().await;
        }
        let kinds = cluster.discovery.kinds(&cluster.client).await.map_err(|error| failure(&error))?;
        let additions = shared.hub_secrets.additions(component);
        let from = values::read(shared, context, &component_key, &additions, &mut state).await?;
        let resolved = resolve::read(shared, context, operation, &mut state).await;
        let named = release_names::check(&shared.altered_names, context, &component_key, operation).await;
        let inputs = named.and(from).and_then(|from| {
            let (resolved, kubernetes) = (resolved?, kinds.kube_version());
            observe::inputs(context, &component_key.owner, kubernetes, resolved.as_ref(), &from, additions)
        });
        let rules = rules(component, &mut state);
        let owner = component_key.owner.to_string();
        let ownership = Ownership { manager: context.manager().to_owned(), owner, version: String::new() };
        let done = CompletedSteps::default();
        let served = Arc::clone(&kinds);
        let received =
            shared.ownership_transfers.received_by(&TargetScope::of(&context.target), &component_key);
        let mut pass = Self {
            shared,
            context,
            key: component_key,
            cluster,
            ownership,
            kinds,
            served,
            inputs,
            rules,
            operation,
            state,
            received,
            done,
            begun,
            rollback: RollbackProgress::default(),
        };
        rollback::drop_obsolete_failure(&mut pass);
        pass.set_module_version();
        pass.note_overridden();
        pass.rescope();
        pass.forget_deleted_namespaces();
        Ok(pass)
    }

    /// Sets the module version that applied objects carry.
    pub(crate) fn set_module_version(&mut self) {
        self.ownership.version = rollback::module_version(self).unwrap_or_default();
    }

    /// Notes the key paths at which overrides replace the user's values.
    fn note_overridden(&mut self) {
        let Ok(inputs) = &self.inputs else { return };
        let is_chart = effects::is_chart(&self.context.resource.spec);
        self.state.recorded.overridden = if is_chart { inputs.overridden().to_vec() } else { Vec::new() };
    }

    /// Adapts loaded content to the kinds that are served now.
    pub(crate) fn rescope(&mut self) {
        self.served = Arc::clone(&self.kinds);
        let (Some(loaded), Ok(inputs)) = (&mut self.state.loaded, &self.inputs) else { return };
        let objects = &loaded.prepared.objects;
        self.served = self.kinds.with_crds(objects.iter().filter(|object| object.identity().is_crd()));
        loaded.rescope(&self.served, &inputs.release.namespace);
    }

    /// Runs the pass to its end and stores the state.
    pub(crate) async fn run(mut self) -> Result<ReconcileResult, Failure> {
        self.note_finished();
        let (stop_reason, seen) = Box::pin(self.steps(&mut Executor::Real)).await?;
        self.pack_record().await;
        Ok(self.end(stop_reason, &seen))
    }

    /// Determines the changes that a pass would make.
    ///
    /// # Errors
    /// If the state of the target cannot be read.
    pub(crate) async fn dry_run(mut self) -> Result<DryRunResult, Failure> {
        let mut state = DryRunState::begin(&mut self);
        let (stop_reason, seen) = Box::pin(self.steps(&mut Executor::DryRun(&mut state))).await?;
        Ok(state.end(self, &seen, stop_reason))
    }

    /// Executes steps until nothing more is to do in this pass.
    async fn steps(&mut self, executor: &mut Executor<'_>) -> Result<(StopReason, plan::Observed), Failure> {
        let mut steps = 0..MAX_STEPS;
        while steps.next().is_some() {
            let seen = observe::observe(self);
            let step = plan::next(&seen);
            let loads_desired = step == Step::Load && seen.content == Content::Stale;
            match Box::pin(self.execute(step, &seen, executor)).await {
                Ok(StepOutcome::Continue) => {}
                Ok(StepOutcome::ContinueAfterEvent) => steps = 0..MAX_STEPS,
                Ok(StepOutcome::Stop(stop_reason)) => return Ok((stop_reason, seen)),
                Err(failure) if executor.is_dry_run() => return Err(failure),
                Err(failure) if loads_desired && rollback::end_failed_retry(self, &failure) => {}
                Err(failure) => {
                    let seen = observe::observe(self);
                    return Ok((self.stop_after(failure), seen));
                }
            }
        }
        Err(Failure::new(Reason::Internal, executor.unfinished()))
    }

    /// Returns the reason to stop after the failure of a step. The cause that blocks a removal takes precedence in the
    /// status.
    fn stop_after(&self, failure: Failure) -> StopReason {
        let Some(Err(blocked)) = self.done.removal.clone() else { return StopReason::Failed(failure) };
        tracing::warn!(component = %self.key.name, %failure, "drift is not corrected");
        StopReason::Failed(blocked)
    }

    /// Checks that the target answers, since streams that cannot connect report nothing.
    async fn check_target(&self) -> Result<(), Failure> {
        // A recent answer to another request suffices: after a restart, all components would send requests at once.
        let Contact { answered, held_for, .. } = self.context.target.contact();
        if held_for.is_none() && answered.is_some_and(|ago| ago < WATCH_SYNC_TIMEOUT) {
            return Ok(());
        }
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(self.context.target.client());
        let asked = namespaces.get("kube-system").await;
        let may_not = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
        if self.context.target.account().is_some() && asked.as_ref().is_err_and(may_not) {
            // A refusal is an answer too; it only shows that the ServiceAccount lacks this permission.
            return Ok(());
        }
        asked.map(drop).map_err(|error| kyma_targets::classify(&error).into())
    }

    /// Stores the state, since an interrupted pass does not reach its end.
    pub(crate) fn remember(&self) {
        self.shared.memory.keep(self.key.clone(), &self.context.resource, self.state.clone());
    }

    fn end(mut self, stop_reason: StopReason, seen: &plan::Observed) -> ReconcileResult {
        let waits =
            self.operation == Operation::Install && (!seen.unready().is_empty() || seen.awaits_news());
        let since = self.state.unready_since;
        self.state.unready_since = waits.then(|| since.unwrap_or_else(|| jiff::Timestamp::now().as_second()));
        if !waits {
            self.state.delay_causes.clear();
            self.state.cause_read = None;
        }
        if seen.watched {
            self.state.unhealthy = self.operation == Operation::Install && !seen.failing().is_empty();
        }
        let is_syncing = matches!(stop_reason, StopReason::WaitingForSync | StopReason::SyncFailed(_));
        let watch_wait = self.state.watch_wait.filter(|_| is_syncing);
        self.state.watch_wait = watch_wait.or_else(|| is_syncing.then(|| WatchWait::begin(Instant::now())));
        self.watch_terminating_namespaces();
        hooks::unsubscribe_ended(&self);
        self.clear_prune_baseline(seen);
        self.retain_ownership_requests(seen);
        self.settle_sent(seen);
        self.state.recorded.rollback.note_end(&stop_reason);
        let missing = MissingKinds::of(&self, seen);
        self.note_awaited_kinds(seen, &missing);
        if seen.default_seen {
            // From now on its watch reports the deletion.
            self.state.default_confirmed = false;
        }
        if let Ok(inputs) = &self.inputs {
            self.state.recorded.note_values(&inputs.digest, &inputs.values_from);
        }
        let inventory = self.state.recorded.report(self.context.resource.status.as_ref());
        let summary = StatusSummary::of(&self, seen, &stop_reason, &missing, inventory);
        let is_over = matches!(stop_reason, StopReason::Ready | StopReason::RolledBack);
        let tests = test::is_requested(&self);
        if is_over && !self.state.kinds_awaited && !tests && !self.done.pruning {
            // The caches of artifacts and renders still have the content if drift must be corrected.
            self.state.loaded = None;
        }
        let Self { shared, context, key, state, .. } = self;
        shared.memory.keep(key, &context.resource, state);
        ReconcileResult { stop_reason, summary }
    }

    /// Notes whether some content waits for a kind, and whether each pass repeats discovery until then.
    fn note_awaited_kinds(&mut self, seen: &plan::Observed, missing: &MissingKinds) {
        let is_pending = !missing.is_empty() || !self.done.waiting.is_empty();
        self.state.recorded.pending = is_pending;
        self.state.kinds_awaited = is_pending
            || self.state.render_awaits_kinds
            || seen.default_resource == DefaultResource::Unserved
            || observe::kinds_lag(self)
            || observe::awaits_groups(self);
    }
}

/// Returns the component's compiled health expressions; compiles them again if the spec changed.
fn rules(component: &HelmComponent, state: &mut ComponentState) -> Result<Arc<Rules>, Failure> {
    if !state.rules.are_of(&component.spec) {
        state.rules = Arc::new(Rules::of(&component.spec)?);
    }
    Ok(Arc::clone(&state.rules))
}

/// Returns the key of the component of a reconcile.
pub(crate) fn component_key(context: &Context<HelmComponent>) -> ComponentKey {
    let metadata = &context.resource.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    ComponentKey::of(namespace, metadata.name.as_deref().unwrap_or_default())
}

/// Returns the objects that no module may touch (design rule 9): Kubernetes' own, the operators' CRDs and stamp, the
/// user's Kyma in the target namespace. Takes milliseconds, since the name of a CRD requires its whole schema.
pub(crate) fn protection(target_namespace: &str) -> Protection {
    let crds = kyma_api::crds::all().into_iter().filter_map(|crd| crd.metadata.name);
    let crds =
        crds.map(|name| Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, &name));
    let kyma = Identity::new("operator.kyma-project.io", "Kyma", Some(target_namespace), names::TARGET_KYMA);
    let stamp = Identity::new("", "ConfigMap", Some(kyma_targets::STAMP_NAMESPACE), kyma_targets::STAMP_NAME);
    let namespace = Identity::new("", "Namespace", None, kyma_targets::STAMP_NAMESPACE);
    crds.chain([kyma, stamp, namespace]).fold(Protection::of_kubernetes(), Protection::with)
}

#[cfg(test)]
mod tests {
    use kyma_object_set::Guard;

    use super::*;

    #[test]
    fn chart_may_not_replace_namespaces_of_cluster_or_operators() {
        let protection = protection("kyma-system");
        let namespace = |name: &str| Identity::new("", "Namespace", None, name);
        for name in ["kyma-system", "kube-system", "kube-public", "kube-node-lease", "default"] {
            assert_eq!(protection.guard(&namespace(name)), Some(Guard::Always), "{name}");
        }
        for name in ["kyma-system-2", "my-kyma-system", "keda"] {
            assert_eq!(protection.guard(&namespace(name)), None, "{name}");
        }
        // Charts install their objects there.
        let inside = Identity::new("", "ConfigMap", Some("kyma-system"), "keda");
        assert_eq!(protection.guard(&inside), None);
        // Only the core group has the Namespace.
        let other_group = Identity::new("example.org", "Namespace", None, "kyma-system");
        assert_eq!(protection.guard(&other_group), None);
    }

    #[test]
    fn chart_may_not_change_user_kyma_in_any_target_namespace() {
        let kyma = |namespace: &str, name: &str| {
            Identity::new("operator.kyma-project.io", "Kyma", Some(namespace), name)
        };
        for namespace in ["kyma-system", "modules"] {
            let protection = protection(namespace);
            assert_eq!(protection.guard(&kyma(namespace, "default")), Some(Guard::Always), "{namespace}");
            assert_eq!(protection.guard(&kyma(namespace, "other")), None, "{namespace}");
        }
    }
}
