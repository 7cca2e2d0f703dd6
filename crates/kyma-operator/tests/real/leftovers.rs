//! Objects that an earlier round of a test left on its target.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kyma_targets::{STAMP_NAME, STAMP_NAMESPACE};
use serde_json::json;
use testbed::{Cluster, until};

use crate::landscape::{SOON, remote};

const KYMAS: &str = "kymas.operator.kyma-project.io";

/// Deletes the stamp and the target's Kyma, so that the next Kyma finds a target without owner.
pub(crate) async fn clear(target: &Cluster) -> Result<()> {
    let stamps: Api<ConfigMap> = Api::namespaced(target.client()?, STAMP_NAMESPACE);
    if stamps.get_opt(STAMP_NAME).await?.is_some() {
        stamps.delete(STAMP_NAME, &DeleteParams::default()).await?;
    }
    let crds: Api<CustomResourceDefinition> = Api::all(target.client()?);
    if crds.get_opt(KYMAS).await?.is_none() {
        return Ok(());
    }
    let released = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    if remote(target)?.get_opt("default").await?.is_some() {
        remote(target)?.patch("default", &PatchParams::default(), &released).await?;
    }
    crds.delete(KYMAS, &DeleteParams::default()).await?;
    until("the CRD of the previous round is gone", SOON, || async {
        Ok(crds.get_opt(KYMAS).await?.is_none().then_some(()))
    })
    .await
}
