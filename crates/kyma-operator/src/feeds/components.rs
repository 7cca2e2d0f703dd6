//! Watch of one component kind.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube_runtime::watcher;
use kyma_api::labels;
use kyma_sdk::{hub_watch, is_crd_absent};

use super::{Announce, announce};
use crate::component::{ComponentId, ComponentKind, ComponentView};
use crate::state::State;

/// Keeps the components of one kind that belong to Kymas in the index. Requeues the Kyma at once when a status
/// changes.
pub(super) async fn feed(state: Arc<State>, kind: ComponentKind, plural: String, mut first: Announce) {
    let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
    let api: Api<DynamicObject> =
        Api::namespaced_with(state.runtime.hub.clone(), &state.runtime.settings.hub_namespace, &resource);
    let config = watcher::Config::default().labels(labels::KYMA_NAME);
    let mut events = pin!(hub_watch(api, config));
    let mut listed: BTreeSet<ComponentId> = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                state.components_mut().begin_list(kind.group(), &kind.kind);
            }
            Ok(watcher::Event::InitApply(object)) => {
                let view = ComponentView::of(&kind, &object);
                listed.extend(view.as_ref().map(ComponentView::id));
                let changed = view.and_then(|view| state.components_mut().listed(view));
                state.wake_all(&changed);
            }
            Ok(watcher::Event::Apply(object)) => seen(&state, ComponentView::of(&kind, &object)),
            Ok(watcher::Event::Delete(object)) => gone(&state, ComponentView::of(&kind, &object)),
            Ok(watcher::Event::InitDone) => {
                complete(&state, &kind, &listed);
                announce(&mut first);
            }
            // A kind that the role does not cover must not block others.
            Err(error) if is_denied(&error) => {
                // An API server that ends a watch with its CRD may not have sent the last DELETE events.
                if is_crd_absent(&state.runtime.hub, &resource).await.unwrap_or(false) {
                    gone_with_crd(&state, &kind);
                }
                announce(&mut first);
            }
            Err(_) => {}
        }
    }
}

pub(super) fn is_denied(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => matches!(status.code, 403 | 404),
        _ => false,
    }
}

fn seen(state: &State, view: Option<ComponentView>) {
    let Some(view) = view else { return };
    // A mirror reads more fields of a component than its view has.
    let mirrored = state.args.manifest_mirror.then(|| view.kyma.clone());
    let changed = state.components_mut().apply(view);
    state.wake_all(changed.iter().chain(&mirrored));
}

fn gone(state: &State, view: Option<ComponentView>) {
    let changed = view.and_then(|view| state.components_mut().delete(&view));
    state.wake_all(&changed);
    state.wake_withdrawn();
}

fn gone_with_crd(state: &State, kind: &ComponentKind) {
    let changed = state.components_mut().retain(kind.group(), &kind.kind, &BTreeSet::new());
    state.wake_all(&changed);
    state.wake_withdrawn();
}

fn complete(state: &State, kind: &ComponentKind, listed: &BTreeSet<ComponentId>) {
    let changed = state.components_mut().retain(kind.group(), &kind.kind, listed);
    state.wake_all(&changed);
    state.wake_withdrawn();
    state.kinds_mut().set_synced(kind.group(), &kind.kind, true);
    state.wake_waiting_for(&(kind.group().to_owned(), kind.kind.clone()));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use testbed::{Answer, Matching, Scripted, until};

    use super::*;
    use crate::state::tests::unconnected;

    const COMPONENTS: &str = "/apis/component.kyma-project.io/v1alpha1/namespaces/kcp-system/helmcomponents";
    const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    fn component() -> ComponentView {
        let object = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {
                "name": "c", "namespace": "kcp-system", "uid": "u", "resourceVersion": "1",
                "ownerReferences": [{
                    "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "k", "uid": "k",
                }],
            },
            "spec": {"module": {"name": "m", "version": "1.0.0"}},
        });
        ComponentView::of(&ComponentKind::helm(), &serde_json::from_value(object).unwrap()).unwrap()
    }

    /// Runs the feed on a hub that answers lists of components with 404 and lists of CRDs with `crds`, until it read
    /// the CRDs twice. Returns whether the index still has the component.
    async fn keeps_component(crds: Answer) -> bool {
        let hub = Scripted::start().await.unwrap();
        let read = Matching::path(CRDS);
        hub.always(Matching::path(COMPONENTS), Answer::text(404, "404 page not found\n"));
        hub.always(read.clone(), crds);
        let (mut state, _trigger) = unconnected();
        state.runtime.hub = hub.access().client().unwrap();
        state.components_mut().apply(component());
        let state = Arc::new(state);
        let feed = feed(Arc::clone(&state), ComponentKind::helm(), "helmcomponents".to_owned(), None);
        let twice = until("the CRDs are read twice", Duration::from_secs(30), || async {
            Ok((hub.count(&read) >= 2).then_some(()))
        });
        tokio::select! {
            () = feed => unreachable!("the feed ends only with the process"),
            read = twice => read.unwrap(),
        }
        !state.components().of(&component().kyma).is_empty()
    }

    #[tokio::test]
    async fn components_are_gone_with_their_crd_only_if_its_absence_is_proven() {
        let crds = |items: serde_json::Value| {
            Answer::json(&json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items,
            }))
        };
        let crd = json!([{
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "helmcomponents.component.kyma-project.io"},
        }]);
        assert!(!keeps_component(crds(json!([]))).await, "no CRD");
        assert!(keeps_component(crds(crd)).await, "the CRD exists");
        assert!(keeps_component(Answer::html(404, "no such cluster")).await, "a proxy answers");
    }
}
