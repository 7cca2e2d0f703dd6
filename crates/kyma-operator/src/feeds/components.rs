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
use kyma_sdk::hub_watch;

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
            Err(error) if is_denied(&error) => announce(&mut first),
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

fn complete(state: &State, kind: &ComponentKind, listed: &BTreeSet<ComponentId>) {
    let changed = state.components_mut().retain(kind.group(), &kind.kind, listed);
    state.wake_all(&changed);
    state.wake_withdrawn();
    state.kinds_mut().set_synced(kind.group(), &kind.kind, true);
    state.wake_waiting_for(&(kind.group().to_owned(), kind.kind.clone()));
}
