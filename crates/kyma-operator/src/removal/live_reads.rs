//! Finds, by live reads, the components of a Kyma that no watch reports, because the list of their kind is not complete
//! yet, the CRD of their kind is terminating, or an earlier list from the hub was incomplete.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{CustomResourceExt, ResourceExt};
use kyma_api::{Kyma, KymaStatus, labels, names};
use kyma_controller::{KymaKey, find_metadata, live_metadata};

use crate::decision::missing_components::MissingComponent;
use crate::error::Error;
use crate::hub::component::{ComponentKind, ComponentView};
use crate::hub::kinds::{KindStatus, Kinds};
use crate::state::State;

/// A component that the status of a Kyma records.
struct RecordedComponent {
    module: String,
    kind: ComponentKind,
    name: String,
}

/// Returns the modules whose component is recorded in the status and exists on the hub, but is missing from the index.
/// An incomplete list removes components from the index; only a read by name proves that a component does not exist.
/// Components of kinds without a watch are found by [`has_unwatched_components`]. Missing components are skipped,
/// because kyma-operator creates them again, which fails if they exist.
pub(super) async fn find_unindexed(
    state: &State,
    kyma: &Kyma,
    components: &[ComponentView],
    missing_components: &[MissingComponent],
) -> Result<BTreeSet<String>, Error> {
    let key = KymaKey::of(kyma);
    let mut found = BTreeSet::new();
    for RecordedComponent { module, kind, name } in recorded(&key, kyma.status.as_ref()) {
        let is_indexed = components.iter().any(|view| view.module == module);
        if is_indexed || missing_components.iter().any(|missing| missing.module == module) {
            continue;
        }
        let status = state.kinds().status(&kind);
        let KindStatus::Ready { plural } = status else { continue };
        let api = api(state, &key, &kind, &plural);
        let exists = exists(&api, &name).await;
        let failed = |source| Error::ReadComponent { component: format!("{kind} {name}"), source };
        if exists.map_err(failed)? {
            tracing::warn!(component = name, kind = %kind, module, kyma = %key, "a list of the hub lacks a component that exists");
            found.insert(module);
        }
    }
    Ok(found)
}

fn recorded(kyma: &KymaKey, status: Option<&KymaStatus>) -> Vec<RecordedComponent> {
    let named = |module: &str| names::component_name(&kyma.name, module);
    let lines = status.iter().flat_map(|status| status.modules.iter().flatten()).filter_map(|line| {
        let kind = ComponentKind::of_line(line)?;
        let component = line.manifest.as_ref().and_then(|component| component.metadata.as_ref());
        let name = component.and_then(|metadata| metadata.name.clone());
        let name = name.unwrap_or_else(|| named(&line.name));
        Some(RecordedComponent { module: line.name.clone(), kind, name })
    });
    let mandatory = status.iter().flat_map(|status| status.mandatory_modules.iter().flatten());
    let mandatory = mandatory.map(|known| RecordedComponent {
        module: known.name.clone(),
        kind: ComponentKind::of_mandatory(known),
        name: named(&known.name),
    });
    lines.chain(mandatory).collect()
}

async fn exists(api: &Api<DynamicObject>, name: &str) -> kube::Result<bool> {
    let found = match find_metadata(api, name).await {
        // The roles that older reconcilers install for their kind lack the verb `get`.
        Err(kube::Error::Api(status)) if status.code == 403 => live_metadata(api, name).await,
        found => found,
    };
    Ok(found?.is_some())
}

fn api(state: &State, kyma: &KymaKey, kind: &ComponentKind, plural: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    Api::namespaced_with(state.runtime.hub.clone(), &kyma.namespace, &resource)
}

/// Reports whether the hub has components of the Kyma whose kind has no watch, by live reads. Returns true also if the
/// list of CRDs is incomplete. The Kyma is requeued once such a kind is served or removed.
pub(super) async fn has_unwatched_components(state: &State, kyma: &Kyma) -> Result<bool, Error> {
    let key = KymaKey::of(kyma);
    let kinds = unwatched(&state.kinds(), kyma.status.as_ref());
    if kinds.is_empty() {
        return Ok(false);
    }
    state.set_awaited_kinds(
        &key,
        kinds.iter().map(|kind| (kind.group().to_owned(), kind.kind.clone())).collect(),
    );
    let crds: Api<CustomResourceDefinition> = Api::all(state.runtime.hub.clone());
    let failed = |source| Error::ListUnwatched { kyma: key.clone(), source };
    let crds = crds.list(&ListParams::default()).await.map_err(failed)?;
    if !is_complete(&crds.items) {
        return Ok(true);
    }
    let of_kyma = names::label_selector(labels::KYMA_NAME, &key.name);
    for kind in kinds {
        let is_crd_of_kind = |crd: &&CustomResourceDefinition| {
            crd.spec.group == kind.group() && crd.spec.names.kind == kind.kind
        };
        // Without a CRD no components exist.
        let Some(crd) = crds.iter().find(is_crd_of_kind) else { continue };
        let api = api(state, &key, &kind, &crd.spec.names.plural);
        let one = ListParams::default().labels(&of_kyma).limit(1);
        if !api.list_metadata(&one).await.map_err(failed)?.items.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reports whether a list of the hub's CRDs contains the CRD of Kymas. That CRD always exists, so a list without it is
/// incomplete and does not prove that any CRD is absent.
fn is_complete(crds: &[CustomResourceDefinition]) -> bool {
    crds.iter().any(|crd| crd.name_any() == Kyma::crd_name())
}

/// Returns the component kinds that the status names and that have no watch.
pub(super) fn unwatched(kinds: &Kinds, status: Option<&KymaStatus>) -> BTreeSet<ComponentKind> {
    let lines = status.iter().flat_map(|status| status.modules.iter().flatten());
    let mandatory = status.iter().flat_map(|status| status.mandatory_modules.iter().flatten());
    let named = lines.filter_map(ComponentKind::of_line).chain(mandatory.map(ComponentKind::of_mandatory));
    let is_watched = |kind: &ComponentKind| matches!(kinds.status(kind), KindStatus::Ready { .. });
    named.filter(|kind| !is_watched(kind)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;
    use crate::state::tests::unconnected;

    const COMPONENTS: &str = "/apis/component.kyma-project.io/v1alpha1/namespaces/kcp-system/helmcomponents";

    /// Returns a state that is connected to the hub and watches HelmComponents.
    fn connected(hub: &ScriptedServer) -> State {
        let (mut state, _trigger) = unconnected();
        state.runtime.hub = hub.access().client().unwrap();
        state.kinds_mut().apply(kyma_api::crds::helm_component());
        state.kinds_mut().set_synced("component.kyma-project.io", "HelmComponent", true);
        state
    }

    /// Returns a Kyma that records a component of each module, `warden` as mandatory.
    fn kyma() -> Kyma {
        let kind = |name: Option<&str>| {
            json!({"apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": {"name": name}})
        };
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "blue", "namespace": "kcp-system"}, "spec": {"channel": "regular"},
            "status": {
                "modules": [
                    {"name": "lantern", "state": "Deleting", "manifest": kind(Some("by-name"))},
                    {"name": "beacon", "state": "Deleting", "manifest": kind(None)},
                    {"name": "missing", "state": "Ready", "version": "1.0.0", "manifest": kind(None)},
                    {"name": "refused", "state": "Warning"},
                ],
                "mandatoryModules": [{"name": "warden", "version": "1.0.0", "deleting": true,
                    "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent"}],
            },
        }))
        .unwrap()
    }

    fn missing_components() -> [MissingComponent; 1] {
        [MissingComponent {
            module: "missing".to_owned(),
            version: "1.0.0".to_owned(),
            channel: None,
            kind: ComponentKind::helm(),
            mandatory: false,
        }]
    }

    fn path(name: &str) -> RequestMatcher {
        RequestMatcher::path(&format!("{COMPONENTS}/{name}")).method("GET")
    }

    fn metadata(name: &str) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": name, "namespace": "kcp-system", "uid": "u"}})
    }

    fn absent(name: &str) -> Answer {
        Answer::not_found("component.kyma-project.io", "helmcomponents", name)
    }

    #[tokio::test]
    async fn recorded_component_is_deleted_only_if_a_read_by_name_says_so() {
        let hub = ScriptedServer::start().await.unwrap();
        let state = connected(&hub);
        let [beacon, warden] = ["beacon", "warden"].map(|module| names::component_name("blue", module));
        hub.always(path("by-name"), Answer::json(&metadata("by-name")));
        hub.always(path(&beacon), absent(&beacon));
        hub.always(path(&warden), Answer::json(&metadata(&warden)));
        let found = find_unindexed(&state, &kyma(), &[], &missing_components()).await.unwrap();
        assert_eq!(found, BTreeSet::from(["lantern".to_owned(), "warden".to_owned()]));
        assert_eq!(hub.requests().len(), 3, "{:?}", hub.requests());

        hub.clear();
        hub.always(path("by-name"), Answer::text(404, "404 page not found\n"));
        assert!(
            find_unindexed(&state, &kyma(), &[], &missing_components()).await.is_err(),
            "a 404 of a proxy does not prove the deletion"
        );
    }

    #[tokio::test]
    async fn component_is_listed_by_name_where_the_role_lacks_get() {
        let hub = ScriptedServer::start().await.unwrap();
        let state = connected(&hub);
        let list = |items: &[Value]| {
            Answer::json(&json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {}, "items": items}))
        };
        hub.always(RequestMatcher::path(COMPONENTS).query("by-name"), list(&[metadata("by-name")]));
        hub.always(RequestMatcher::path(COMPONENTS).query("fieldSelector"), list(&[]));
        hub.always(RequestMatcher::path(COMPONENTS), Answer::failure(403, "Forbidden", "no get"));
        let found = find_unindexed(&state, &kyma(), &[], &missing_components()).await.unwrap();
        assert_eq!(found, BTreeSet::from(["lantern".to_owned()]));
    }

    #[test]
    fn crd_list_without_the_crd_of_kymas_is_incomplete() {
        let components = kyma_api::crds::helm_component();
        assert!(is_complete(&[components.clone(), kyma_api::crds::kyma()]));
        assert!(!is_complete(&[components]) && !is_complete(&[]));
    }
}
