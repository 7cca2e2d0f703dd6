//! Carries out the steps of [`super::next_step`].

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, CustomResourceExt, ResourceExt};
use kube_runtime::reflector::Store;
use kyma_api::Kyma;
use kyma_api::{ModuleReleaseMeta, Reason, finalizers};
use kyma_controller::{
    DeletionRequest, Failure, KymaKey, Reconciler, Wait, add_finalizer, patch_finalizers, remove_finalizer,
};

use super::{Deletion, ReleaseMetaState, ReleaseMetaStep, next_step};
use crate::hub::scope;
use crate::state::State;

/// Message for a release that asks for a staged rollout.
const ROLLOUT_MESSAGE: &str = "spec.rollout requests a staged rollout, which is not supported yet: installed modules keep their \
    version; remove spec.rollout to upgrade all clusters at once";

/// Follows all release metas until the process shuts down. Requires complete indexes.
pub(crate) async fn follow(state: Arc<State>, releases: Reconciler<ModuleReleaseMeta>, kymas: Store<Kyma>) {
    // The Kymas record modules: without them the finalizer would be removed too early. An error means shutdown.
    if kymas.wait_until_ready().await.is_err() {
        return;
    }
    releases
        .run(move |release, context| {
            let (state, kymas) = (Arc::clone(&state), kymas.clone());
            async move {
                if context.paused_operations().writes().is_some() {
                    return Ok(Wait::Event);
                }
                reconcile(&state, &kymas, &release).await
            }
        })
        .await;
}

async fn reconcile(state: &State, kymas: &Store<Kyma>, release: &ModuleReleaseMeta) -> Result<Wait, Failure> {
    let (name, namespace) = (release.name_any(), release.namespace().unwrap_or_default());
    let observed = observe_release_meta(state, kymas, release, &name, &namespace).await?;
    if release.spec.rollout.is_some() && observed.deletion == Deletion::Absent {
        state.runtime.events.warning(release, Reason::NotYetSupported, "Reconcile", ROLLOUT_MESSAGE);
    }
    let api: Api<ModuleReleaseMeta> = Api::namespaced(state.runtime.hub.clone(), &namespace);
    let patch = match next_step(observed) {
        ReleaseMetaStep::Idle => None,
        ReleaseMetaStep::AddFinalizer => add_finalizer(&release.metadata, finalizers::MANDATORY_MODULE),
        ReleaseMetaStep::RemoveFinalizer => remove_finalizer(&release.metadata, finalizers::MANDATORY_MODULE),
        ReleaseMetaStep::Withdraw => {
            let affected = state.catalogue_mut().withdraw(&name, &release.uid().unwrap_or_default());
            state.requeue_affected(affected, || kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect());
            None
        }
    };
    if let Some(patch) = patch {
        patch_finalizers(&api, &name, patch).await?;
    }
    // Deleted components and changed records of Kymas requeue the release meta.
    let DeletionRequest::Unconfirmed { until } = DeletionRequest::of(&release.metadata, Timestamp::now())
    else {
        return Ok(Wait::Event);
    };
    if observed.deletion != Deletion::Unconfirmed || !observed.has_finalizer {
        return Ok(Wait::Event);
    }
    let why = DeletionRequest::message(until);
    state.runtime.events.warning(release, Reason::DeletionUnconfirmed, "Withdraw", &why);
    let left = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
    Ok(Wait::Timer(left + Duration::from_millis(100)))
}

/// Reads the state of a release meta. Makes live reads only for a release meta with a deletionTimestamp.
async fn observe_release_meta(
    state: &State,
    kymas: &Store<Kyma>,
    release: &ModuleReleaseMeta,
    name: &str,
    namespace: &str,
) -> Result<ReleaseMetaState, Failure> {
    let has_finalizer =
        release.finalizers().iter().any(|finalizer| finalizer == finalizers::MANDATORY_MODULE);
    let deletion = if release.metadata.deletion_timestamp.is_none() {
        Deletion::Absent
    } else if has_finalizer && scope::is_terminating(state, namespace, ModuleReleaseMeta::crd_name()).await? {
        Deletion::NotRequested
    } else {
        match DeletionRequest::of(&release.metadata, Timestamp::now()) {
            DeletionRequest::Confirmed => Deletion::Requested,
            DeletionRequest::Unconfirmed { .. } => Deletion::Unconfirmed,
            DeletionRequest::Orphan => Deletion::NotRequested,
        }
    };
    Ok(ReleaseMetaState {
        is_mandatory: release.spec.mandatory.is_some(),
        has_finalizer,
        deletion,
        remaining: state.components().mandatory(name)
            + kymas.state().iter().filter(|kyma| has(kyma, name)).count(),
    })
}

/// Reports whether a Kyma records the module without a requested removal. Its component may be missing.
fn has(kyma: &Kyma, module: &str) -> bool {
    let known = kyma.status.iter().flat_map(|status| status.mandatory_modules.iter().flatten());
    known.filter(|known| !known.deleting).any(|known| known.name == module)
}
