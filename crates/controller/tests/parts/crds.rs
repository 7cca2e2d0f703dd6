//! Waiting for the hub's CRDs.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use kyma_controller::{CrdError, await_crds};
use serde_json::{Value, json};
use testbed::Cluster;

use crate::{SOON, cluster};

fn crd(plural: &str, fields: &Value) -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.start.example.com")},
        "spec": {
            "group": "start.example.com", "scope": "Namespaced",
            "names": {"kind": plural.to_uppercase(), "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}}],
        },
    }))
    .unwrap()
}

async fn apply(cluster: &Cluster, crd: &CustomResourceDefinition) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client()?);
    crds.patch(&crd.name_any(), &PatchParams::apply("test").force(), &Patch::Apply(crd)).await?;
    Ok(())
}

#[tokio::test]
async fn a_crd_that_is_not_there_yet_is_waited_for() -> Result<()> {
    let cluster = cluster().await?;
    let needed = [crd("laters", &json!({"a": {"type": "string"}}))];
    let hub = cluster.client()?;
    let waiting = tokio::spawn(async move { await_crds(&hub, &needed).await });
    apply(&cluster, &crd("laters", &json!({"a": {"type": "string"}, "b": {"type": "string"}}))).await?;
    tokio::time::timeout(SOON, waiting).await???;
    Ok(())
}

#[tokio::test]
async fn an_older_crd_is_refused_by_the_path_that_it_lacks() -> Result<()> {
    let cluster = cluster().await?;
    apply(&cluster, &crd("olders", &json!({"a": {"type": "string"}}))).await?;
    let needed = [crd("olders", &json!({"a": {"type": "string"}, "b": {"type": "string"}}))];
    let refused = tokio::time::timeout(SOON, await_crds(&cluster.client()?, &needed)).await?;
    assert!(
        matches!(&refused, Err(CrdError::Older { missing, .. }) if missing == &["spec.b"]),
        "{refused:?}"
    );
    Ok(())
}
