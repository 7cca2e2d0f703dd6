//! Copies the hub's image-pull Secret to every target, as KLM's `skr-image-pull-secret`.
//!
//! The copy is written if it differs, after the hub's Secret or the copy changes. It is never removed: Pods of
//! modules that outlive their Kyma may need it.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_controller::{Failure, KymaKey, ResourceVersion, Revision, find_object};

use crate::FIELD_MANAGER;
use crate::error::Error;
use crate::observe::Observation;
use crate::prepare::RemoteSide;
use crate::state::State;

mod copy;
pub(crate) mod target_copy;
pub(crate) mod watch;

/// Name that the role on targets permits: the right to read all Secrets there would be too wide.
pub(crate) const DEFAULT_SECRET_NAME: &str = "skr-image-pull-secret";

/// Copies the Secret to a Kyma's target. Returns `None` if no Secret is configured, or if the target is the hub
/// itself.
pub(crate) async fn sync(state: &State, observed: &Observation) -> Option<Result<(), Failure>> {
    let name = state.args.pull_secret()?;
    let remote = observed.remote.as_ref()?;
    Some(copy_to_target(state, &observed.key, remote, name).await)
}

async fn copy_to_target(
    state: &State,
    kyma: &KymaKey,
    remote: &RemoteSide,
    name: &str,
) -> Result<(), Failure> {
    let seen = state.runtime.access.revision(name);
    if seen.is_some_and(|seen| is_copied(state, kyma, &seen)) {
        return Ok(());
    }
    let found = find_on_hub(state, name).await?;
    let namespace = &state.runtime.settings.target_namespace;
    let mut copy = copy::copy_of(name, found.as_ref(), kyma, namespace)?;
    let api: Api<Secret> = Api::namespaced(remote.session.target.client(), namespace);
    let live = api.get_opt(name).await.map_err(|source| Error::ReadPullSecret { source })?;
    let there = match live {
        Some(live) if copy::is_there(&live, &copy) => live,
        Some(live) if copy::is_foreign(&live, &copy) => return Err(Error::ClaimPullSecret.into()),
        live => {
            copy.metadata.uid = live.and_then(|live| live.metadata.uid);
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let applied = api.patch(name, &params, &Patch::Apply(&copy)).await;
            applied.map_err(|source| Error::CopyPullSecret { source })?
        }
    };
    let from = found.map(|found| Revision::of(&found.metadata)).unwrap_or_default();
    let version = ResourceVersion::of(&there.metadata).unwrap_or_default();
    state.kymas().get_or_add(kyma).target.pull_secret.record_copy(from, version);
    Ok(())
}

/// Reports whether the target has this revision of the hub's Secret.
fn is_copied(state: &State, kyma: &KymaKey, revision: &Revision) -> bool {
    state.kymas().get(kyma).is_some_and(|state| state.target.pull_secret.has(revision))
}

async fn find_on_hub(state: &State, name: &str) -> Result<Option<Secret>, Error> {
    let namespace = &state.runtime.settings.hub_namespace;
    let api: Api<Secret> = Api::namespaced(state.runtime.hub.clone(), namespace);
    let found = find_object(&api, name).await;
    found.map_err(|source| Error::ReadHubPullSecret { secret: name.to_owned(), source })
}
