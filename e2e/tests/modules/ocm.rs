//! Installs, upgrades and removes component versions through a HelmComponent of their own.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE};
use e2e::remains::until_as_before;
use e2e::snapshot;
use e2e::wait;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, State};
use serde_json::json;

use crate::layout::{self, ComponentVersion};

/// Kyma name of the access Secret; there is no such Kyma.
const ACCESS: &str = "standalone";

/// Installs every module in each of its versions, the oldest first, and removes it. Returns the differences that
/// stay on the target.
pub(crate) async fn install_all(
    landscape: &Landscape,
    published: &BTreeMap<String, Vec<ComponentVersion>>,
) -> Result<Vec<String>> {
    let hub = landscape.hub().client()?;
    let secret = landscape.access_secret(ACCESS, &landscape.targets()[0]).await?;
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    secrets.create(&PostParams::default(), &secret).await?;
    let base = format!("{}/modulectl", landscape.registry().address());
    let target = landscape.targets()[0].client()?;
    let components: Api<HelmComponent> = Api::namespaced(hub, HUB_NAMESPACE);
    let mut kept = Vec::new();
    for (module, versions) in published {
        let before = snapshot::take(&target).await?;
        for version in versions {
            layout::push(version, module, &base).await?;
            apply(&components, version, module, &base).await?;
            let installed = Box::pin(ready(&components, module, version.version())).await?;
            let inventory = installed.status.map(|status| status.entries()).transpose()?.unwrap_or_default();
            ensure!(!inventory.is_empty(), "{module} has no objects");
        }
        let found = components.get(module).await?;
        components.delete(module, &DeleteParams::default()).await?;
        let uid = found.uid().context("a stored component has a uid")?;
        wait::until("the component is gone", components.clone(), module, is_deleted(&uid)).await?;
        let left = until_as_before(&target, &before).await?;
        kept.extend(left.iter().map(|difference| format!("{module}: {difference}")));
    }
    Ok(kept)
}

async fn apply(
    components: &Api<HelmComponent>,
    published: &ComponentVersion,
    module: &str,
    base: &str,
) -> Result<()> {
    let template = &published.template.spec;
    let mut resource = template.data.clone().context("the module has a default CR")?;
    let metadata = resource.entry("metadata").or_insert_with(|| json!({}));
    if metadata["namespace"].is_null() {
        metadata["namespace"] = TARGET_NAMESPACE.into();
    }
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1",
        "kind": "HelmComponent",
        "metadata": {"name": module},
        "spec": {
            "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{ACCESS}"), "key": "config"}},
            "module": {"name": module, "version": published.version()},
            "source": {"ocm": {
                "component": layout::component(module), "version": published.version(), "repository": base,
            }},
            "resource": resource,
            "manager": template.manager,
            "deletionPolicy": "Delete",
        },
    });
    components.patch(module, &PatchParams::apply("tests").force(), &Patch::Apply(&component)).await?;
    Ok(())
}

async fn ready(components: &Api<HelmComponent>, module: &str, version: &str) -> Result<HelmComponent> {
    let what = format!("{module} {version} is Ready");
    let reached = wait::until(&what, components.clone(), module, |found: Option<&HelmComponent>| {
        found.is_some_and(|found| {
            let status = found.status.as_ref();
            status.is_some_and(|status| {
                status.state == Some(State::Ready)
                    && status.observed_generation == found.metadata.generation
                    && status.version.as_deref() == Some(version)
            })
        })
    });
    reached.await?.context("a component that is Ready exists")
}
