//! Watches KLM's Manifests on the hub if components are mirrored.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use kube_runtime::reflector::Store;
use kube_runtime::watcher::{self, Event};
use kyma_api::{Kyma, klm};
use kyma_controller::{KymaKey, hub_watch};

use super::components::is_denied;
use crate::hub::mirror::ObservedManifest;
use crate::state::State;

/// Keeps the Manifests in the index and requeues the Kyma whose Manifest another writer changed. Retries if the hub
/// lacks the kind or the role does not cover it.
pub(super) async fn follow(state: Arc<State>, kymas: Store<Kyma>) {
    let namespace = &state.runtime.settings.hub_namespace;
    let api: Api<DynamicObject> =
        Api::namespaced_with(state.runtime.hub.clone(), namespace, &klm::manifest_resource());
    // No label selector: a Manifest without its label must still be found.
    let mut events = pin!(hub_watch(api, watcher::Config::default()));
    let mut listed = HashMap::new();
    let mut is_told = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.extend(ObservedManifest::of(&object)),
            Ok(Event::InitDone) => {
                let known = state.manifests().listed(std::mem::take(&mut listed));
                state.requeue_all(
                    &known.unwrap_or_else(|| kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect()),
                );
            }
            Ok(Event::Apply(object)) => {
                let observed = ObservedManifest::of(&object);
                let changed = observed.and_then(|(name, observed)| state.manifests().apply(name, observed));
                state.requeue_all(&changed);
            }
            Ok(Event::Delete(object)) => {
                let name = object.metadata.name.unwrap_or_default();
                let changed = state.manifests().delete(&name);
                state.requeue_all(&changed);
            }
            Err(error) if is_denied(&error) => {
                state.manifests().mark_unlisted();
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(
                        "--manifest-mirror waits: the hub has no kind {}, or the role does not cover it; apply KLM's CRD",
                        klm::MANIFEST
                    );
                }
            }
            Err(_) => {}
        }
    }
}
