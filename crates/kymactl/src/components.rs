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
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn named(kyma: &Kyma) -> impl Iterator<Item = GroupVersionKind> {
    kyma.status.iter().flat_map(|status| status.modules.iter().flatten()).filter_map(|module| {
        let component = module.manifest.as_ref()?;
        let (group, version) = component.api_version.as_deref()?.split_once('/')?;
        Some(GroupVersionKind::gvk(group, version, component.kind.as_deref()?))
    })
}
