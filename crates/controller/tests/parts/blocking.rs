//! Objects that block a removal.

use anyhow::Result;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, ObjectMeta, PostParams},
    core::{DynamicObject, GroupVersionKind},
    discovery,
};
use kyma_api::{GroupKind, Reason};
use kyma_controller::{Blocking, find_blockers};
use serde_json::json;
use testbed::{Answer, Cluster, RequestMatcher, ScriptedServer, until};

use crate::{SOON, cluster, serve, target};

const GROUP: &str = "blocking.example.com";

async fn install_samples(cluster: &Cluster) -> Result<()> {
    let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("samples.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"kind": "Sample", "plural": "samples"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": open},
                {"name": "v1beta1", "served": true, "storage": false, "schema": open},
            ],
        },
    });
    let client = cluster.client()?;
    serve(&client, &serde_json::from_value(crd)?).await?;
    // API servers serve a kind before discovery shows it.
    until("both versions are discovered", SOON, || async {
        let Ok(group) = discovery::group(&client, GROUP).await else { return Ok(None) };
        let has_kind = |version: &str| {
            group.versioned_resources(version).iter().any(|(resource, _)| resource.kind == "Sample")
        };
        Ok((has_kind("v1") && has_kind("v1beta1")).then_some(()))
    })
    .await
}

async fn create(cluster: &Cluster, namespace: &str, name: &str) -> Result<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Sample"));
    let samples: Api<DynamicObject> = Api::namespaced_with(cluster.client()?, namespace, &resource);
    Ok(samples.create(&PostParams::default(), &DynamicObject::new(name, &resource)).await?)
}

fn blocking(kind: &str, own: &[String]) -> Blocking {
    let kind = GroupKind { group: GROUP.into(), version: None, kind: kind.into() };
    Blocking { kinds: vec![kind], own: own.to_vec() }
}

#[tokio::test]
async fn user_objects_in_all_namespaces_block_and_own_ones_do_not() -> Result<()> {
    let cluster = cluster().await?;
    install_samples(&cluster).await?;
    let (one, two) = (cluster.namespace("one").await?, cluster.namespace("two").await?);
    let own = create(&cluster, &one, "default").await?;
    create(&cluster, &one, "mine").await?;
    create(&cluster, &two, "mine").await?;
    let client = target("blocking", cluster.admin())?.client();
    let found = find_blockers(&client, &blocking("Sample", &[own.uid().unwrap()])).await.unwrap();
    let places: Vec<String> = found.first.iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
    assert_eq!((found.count, places), (2, vec![format!("{one}/mine"), format!("{two}/mine")]));
    assert_eq!(found.resources.len(), 2, "each served version is looked at: {:?}", found.resources);
    let unserved = find_blockers(&client, &blocking("Nothing", &[])).await.unwrap();
    assert_eq!((unserved.count, unserved.resources.len()), (0, 0));
    Ok(())
}

#[tokio::test]
async fn core_kinds_are_found_too() -> Result<()> {
    let cluster = cluster().await?;
    // No other test on this cluster has objects of this kind.
    let namespace = cluster.namespace("core").await?;
    let metadata = ObjectMeta { name: Some("mine".to_owned()), ..ObjectMeta::default() };
    let quota = ResourceQuota { metadata, ..ResourceQuota::default() };
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client()?, &namespace);
    quotas.create(&PostParams::default(), &quota).await?;
    let client = target("core", cluster.admin())?.client();
    let kind = GroupKind { group: String::new(), version: None, kind: "ResourceQuota".into() };
    let found = find_blockers(&client, &Blocking { kinds: vec![kind], own: vec![] }).await.unwrap();
    let places: Vec<String> = found.first.iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
    assert_eq!((found.count, places), (1, vec![format!("{namespace}/mine")]));
    Ok(())
}

#[tokio::test]
async fn no_answer_is_not_an_answer() -> Result<()> {
    let cluster = cluster().await?;
    install_samples(&cluster).await?;
    let nobody = cluster.service_account("default", "nobody").await?;
    let client = target("nobody", &nobody)?.client();
    let forbidden = find_blockers(&client, &blocking("Sample", &[])).await.unwrap_err();
    assert_eq!(forbidden.reason, Reason::TargetForbidden);
    let server = ScriptedServer::in_front_of(&cluster).await?;
    let lists = ["v1", "v1beta1"].map(|version| format!("/apis/{GROUP}/{version}/samples"));
    let refusals =
        [Answer::failure(503, "ServiceUnavailable", "not now"), Answer::html(404, "page of a proxy")];
    for paths in [vec!["/apis".to_owned()], vec![format!("/apis/{GROUP}/v1beta1")], lists.to_vec()] {
        for refusal in &refusals {
            server.clear();
            for path in &paths {
                server.always(RequestMatcher::path(path), refusal.clone());
            }
            let client = target(&paths[0], server.access())?.client();
            let failed = find_blockers(&client, &blocking("Sample", &[])).await;
            assert!(failed.is_err(), "{paths:?}, {refusal:?}: {failed:?}");
        }
    }
    Ok(())
}
