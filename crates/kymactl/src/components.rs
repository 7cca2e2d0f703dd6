//! The components of a Kyma on the hub.

use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, TypeMeta},
    core::GroupVersionKind,
    discovery,
    error::DiscoveryError,
};
use kyma_api::{HelmComponent, Kyma, labels, names};

use crate::error::Error;

/// Returns all components of a Kyma with their kinds.
pub(crate) async fn of(hub: &Client, namespace: &str, kyma: &Kyma) -> Result<Vec<DynamicObject>, Error> {
    let mut found = Vec::new();
    for resource in kinds(hub, kyma).await? {
        let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), namespace, &resource);
        // Items of a list do not repeat their kind.
        let types = TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
        let listed = api.list(&labelled(kyma)).await?.items;
        found.extend(listed.into_iter().map(|item| DynamicObject { types: Some(types.clone()), ..item }));
    }
    Ok(found)
}

/// Returns the list parameters that select the Kyma's components among all of their kind.
pub(crate) fn labelled(kyma: &Kyma) -> ListParams {
    ListParams::default().labels(&names::label_selector(labels::KYMA_NAME, &kyma.name_any()))
}

/// Returns the kinds of the Kyma's components: the base kind, and those in its status that the hub serves.
pub(crate) async fn kinds(hub: &Client, kyma: &Kyma) -> Result<Vec<ApiResource>, Error> {
    let mut found = vec![ApiResource::erase::<HelmComponent>(&())];
    for kind in named(kyma) {
        if found.iter().any(|known| known.group == kind.group && known.kind == kind.kind) {
            continue;
        }
        match discovery::pinned_kind(hub, &kind).await {
            Ok((resource, _)) => found.push(resource),
            Err(kube::Error::Discovery(DiscoveryError::MissingKind(_))) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {
                if is_listed(hub, &kind).await? {
                    return Err(kube::Error::Api(status).into());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Returns whether the API server lists the version among those that it serves. A Kyma's status does not have the
/// plural of a kind, so the CRD cannot be read by name.
async fn is_listed(hub: &Client, kind: &GroupVersionKind) -> kube::Result<bool> {
    let groups = hub.list_api_groups().await?.groups;
    let group = groups.into_iter().find(|group| group.name == kind.group);
    Ok(group.is_some_and(|group| group.versions.iter().any(|version| version.version == kind.version)))
}

fn named(kyma: &Kyma) -> impl Iterator<Item = GroupVersionKind> {
    kyma.status.iter().flat_map(|status| status.modules.iter().flatten()).filter_map(|module| {
        let component = module.manifest.as_ref()?;
        let (group, version) = component.api_version.as_deref()?.split_once('/')?;
        Some(GroupVersionKind::gvk(group, version, component.kind.as_deref()?))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    const VERSION: &str = "/apis/lamps.example.com/v1";

    fn kyma() -> Kyma {
        let manifest = json!({
            "apiVersion": "lamps.example.com/v1", "kind": "Lantern",
            "metadata": {"name": "one-lantern", "namespace": "kcp-system"},
        });
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "one", "namespace": "kcp-system"}, "spec": {"channel": "regular"},
            "status": {"modules": [{"name": "lantern", "state": "Ready", "manifest": manifest}]},
        }))
        .unwrap()
    }

    /// Returns the number of found kinds on a hub that answers 404 for the version of a module's own kind, and
    /// `apis` for the list of groups.
    async fn found(apis: Answer) -> Result<usize, Error> {
        let hub = ScriptedServer::start().await.unwrap();
        hub.always(RequestMatcher::path(VERSION), Answer::html(404, "page not found"));
        hub.always(RequestMatcher::path("/apis"), apis);
        kinds(&hub.access().client().unwrap(), &kyma()).await.map(|kinds| kinds.len())
    }

    fn groups(groups: &Value) -> Answer {
        Answer::json(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
    }

    #[tokio::test]
    async fn a_kind_is_left_out_only_if_the_hub_lists_no_such_version() {
        let group = |version: &str| {
            let version = json!({"groupVersion": format!("lamps.example.com/{version}"), "version": version});
            json!([{"name": "lamps.example.com", "versions": [version], "preferredVersion": version}])
        };
        assert_eq!(found(groups(&json!([]))).await.unwrap(), 1);
        assert_eq!(found(groups(&group("v2"))).await.unwrap(), 1);
        for (name, apis) in [
            ("the version is served", groups(&group("v1"))),
            ("a proxy answers", Answer::html(404, "page not found")),
        ] {
            let failed = found(apis).await;
            assert!(matches!(failed, Err(Error::Cluster(_))), "{name}: {failed:?}");
        }
    }
}
