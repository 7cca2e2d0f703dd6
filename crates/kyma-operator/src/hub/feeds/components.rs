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
use kyma_controller::{hub_watch, is_crd_absent};

use super::{FirstListSender, signal_first_list};
use crate::hub::component::{ComponentId, ComponentKind, ComponentView};
use crate::state::State;

/// Keeps in the index the components of one kind that belong to Kymas. Requeues the Kyma of a component whose status
/// changes.
pub(super) async fn feed(state: Arc<State>, kind: ComponentKind, plural: String, mut first: FirstListSender) {
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
                state.requeue_all(&changed);
            }
            Ok(watcher::Event::Apply(object)) => apply_component(&state, ComponentView::of(&kind, &object)),
            Ok(watcher::Event::Delete(object)) => delete_component(&state, ComponentView::of(&kind, &object)),
            Ok(watcher::Event::InitDone) => {
                complete_list(&state, &kind, &listed);
                signal_first_list(&mut first);
            }
            Err(error) if is_denied(&error) => {
                let is_absent = is_crd_absent(&state.runtime.hub, &resource).await.unwrap_or(false);
                if is_absent {
                    // An API server that ends a watch with its CRD may not have sent the last DELETE events.
                    delete_components_of_kind(&state, &kind);
                }
                // A kind that the role does not cover must not block others. A proxy may have sent a 404, so only the
                // absence of the CRD ends the wait for the list.
                if is_absent || list_failure_code(&error) == Some(403) {
                    signal_first_list(&mut first);
                }
            }
            Err(_) => {}
        }
    }
}

/// Reports whether a list failed because the role does not cover the kind (403) or the kind was not found (404).
pub(super) fn is_denied(error: &watcher::Error) -> bool {
    matches!(list_failure_code(error), Some(403 | 404))
}

/// Returns the HTTP status of a failed list.
fn list_failure_code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

fn apply_component(state: &State, view: Option<ComponentView>) {
    let Some(view) = view else { return };
    // A mirror reads more fields of a component than its view has.
    let mirrored = state.args.manifest_mirror.then(|| view.kyma.clone());
    let changed = state.components_mut().apply(view);
    state.requeue_all(changed.iter().chain(&mirrored));
}

fn delete_component(state: &State, view: Option<ComponentView>) {
    let changed = view.and_then(|view| state.components_mut().delete(&view));
    state.requeue_all(&changed);
    state.requeue_withdrawn();
}

fn delete_components_of_kind(state: &State, kind: &ComponentKind) {
    let changed = state.components_mut().retain(kind.group(), &kind.kind, &BTreeSet::new());
    state.requeue_all(&changed);
    state.requeue_withdrawn();
}

fn complete_list(state: &State, kind: &ComponentKind, listed: &BTreeSet<ComponentId>) {
    let changed = state.components_mut().retain(kind.group(), &kind.kind, listed);
    state.requeue_all(&changed);
    state.requeue_withdrawn();
    state.kinds_mut().set_synced(kind.group(), &kind.kind, true);
    state.requeue_waiting_for(&(kind.group().to_owned(), kind.kind.clone()));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use testbed::{Answer, RequestMatcher, ScriptedServer, until};
    use tokio::sync::oneshot;

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

    /// Result of a feed whose list the hub refuses.
    #[derive(Debug, PartialEq)]
    struct Outcome {
        keeps_component: bool,
        is_announced: bool,
    }

    /// Runs the feed on a hub with these answers to lists of components and of CRDs, until it read the CRDs twice.
    async fn run(components: Answer, crds: Answer) -> Outcome {
        let hub = ScriptedServer::start().await.unwrap();
        let read = RequestMatcher::path(CRDS);
        hub.always(RequestMatcher::path(COMPONENTS), components);
        hub.always(read.clone(), crds);
        let (mut state, _trigger) = unconnected();
        state.runtime.hub = hub.access().client().unwrap();
        state.components_mut().apply(component());
        let state = Arc::new(state);
        let (first, mut announced) = oneshot::channel();
        let feed = feed(Arc::clone(&state), ComponentKind::helm(), "helmcomponents".to_owned(), Some(first));
        let twice = until("the CRDs are read twice", Duration::from_secs(30), || async {
            Ok((hub.count(&read) >= 2).then_some(()))
        });
        tokio::select! {
            () = feed => unreachable!("the feed ends only with the process"),
            read = twice => read.unwrap(),
        }
        let keeps_component = !state.components().of(&component().kyma).is_empty();
        Outcome { keeps_component, is_announced: announced.try_recv().is_ok() }
    }

    fn not_found() -> Answer {
        Answer::text(404, "404 page not found\n")
    }

    fn crds(items: &Value) -> Answer {
        Answer::json(&json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items,
        }))
    }

    /// Returns the answer to a list of CRDs that contains the components' one.
    fn served() -> Answer {
        crds(&json!([{
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "helmcomponents.component.kyma-project.io"},
        }]))
    }

    #[tokio::test]
    async fn components_are_gone_with_crd_only_if_its_absence_is_proven() {
        let gone = Outcome { keeps_component: false, is_announced: true };
        assert_eq!(run(not_found(), crds(&json!([]))).await, gone, "no CRD");
        let unknown = || Outcome { keeps_component: true, is_announced: false };
        assert_eq!(run(not_found(), served()).await, unknown(), "the CRD exists");
        assert_eq!(
            run(not_found(), Answer::html(404, "no such cluster")).await,
            unknown(),
            "a proxy answers"
        );
    }

    #[tokio::test]
    async fn forbidden_kind_does_not_delay_the_start() {
        let forbidden = Answer::failure(403, "Forbidden", "no");
        let expected = Outcome { keeps_component: true, is_announced: true };
        assert_eq!(run(forbidden, served()).await, expected);
    }
}
