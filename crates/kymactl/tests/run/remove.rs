//! `kymactl run --remove` after `run --once`.

use std::{collections::BTreeSet, fs, process::Output};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    discovery::{ApiGroup, Discovery, verbs},
};
use kyma_api::{Kyma, crds};
use serde_json::{Value, json};

use crate::{RUN_TIMEOUT, TEST_ENV, files::Files, named};

/// Kinds whose objects are created and deleted by Kubernetes itself.
const VOLATILE_KINDS: [&str; 4] = ["Event", "Lease", "ComponentStatus", "EndpointSlice"];

#[tokio::test]
async fn remove_leaves_the_same_objects_as_before_once() {
    let cluster = TEST_ENV.test_env().await.unwrap().cluster("removed").with_workloads().await.unwrap();
    let files = Files::new(&cluster, &["lantern"]).await;
    let client = cluster.client().unwrap();
    files.lantern("1.0.0").await;
    let config = json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig",
        "metadata": {"name": "lantern"}, "spec": {"module": "lantern"},
    });
    fs::write(files.path("catalogue/config.yaml"), config.to_string()).unwrap();
    let before = objects(&client).await.unwrap();
    files.once().await;
    let listing = &client;
    // The storage of a CRD that was just created refuses lists at first.
    let installed = testbed::until_or_why("every kind is listed", RUN_TIMEOUT, || async move {
        Ok(objects(listing).await.map_err(|error| error.to_string()))
    })
    .await
    .unwrap();
    for part in ["Namespace /kcp-system", "Kyma kcp-system/one", "ModuleConfig kcp-system/lantern"] {
        assert!(installed.iter().any(|object| object.starts_with(part)), "{part}: {installed:#?}");
    }
    // A second run changes nothing and must keep the mark of the first one.
    files.once().await;
    succeeded(&remove(&files, &[]).await, "everything that run --once created");
    until_same_objects(&client, &before).await;
    // Nothing is left to remove, which is not a failure.
    succeeded(&remove(&files, &[]).await, "everything that run --once created");
}

#[tokio::test]
async fn remove_keeps_what_was_there_before_and_what_users_created() {
    let cluster = TEST_ENV.test_env().await.unwrap().cluster("kept").await.unwrap();
    let files = Files::new(&cluster, &[]).await;
    let client = cluster.client().unwrap();
    let namespace = Namespace { metadata: named("kcp-system"), ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let definitions: Api<Crd> = Api::all(client.clone());
    // The run creates the remaining CRD.
    let pauses = crds::pause().name_any();
    for crd in crds::all().iter().filter(|crd| crd.name_any() != pauses) {
        definitions.create(&PostParams::default(), crd).await.unwrap();
        testbed::crd_is_served(&client, &crd.name_any()).await.unwrap();
    }
    files.assign("lantern", "1.0.0");
    let catalogue: Value =
        serde_json::from_slice(&fs::read(files.path("catalogue/lantern.yaml")).unwrap()).unwrap();
    let release: DynamicObject = serde_json::from_value(catalogue).unwrap();
    let kind = kube::api::ApiResource::erase::<kyma_api::ModuleReleaseMeta>(&());
    let releases: Api<DynamicObject> = Api::namespaced_with(client.clone(), "kcp-system", &kind);
    releases.create(&PostParams::default(), &release).await.unwrap();
    files.once().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kyma-system");
    let map = ConfigMap { metadata: named("mine"), ..ConfigMap::default() };
    maps.create(&PostParams::default(), &map).await.unwrap();

    let removed = remove(&files, &[]).await;
    let told = String::from_utf8_lossy(&removed.stderr).into_owned();
    assert!(removed.status.success(), "{told}");
    assert!(told.contains("Namespace kyma-system stays: it contains ConfigMap mine"), "{told}");
    assert!(maps.get_opt("mine").await.unwrap().is_some());
    assert!(releases.get_opt("lantern").await.unwrap().is_some(), "it was there before the run");
    for crd in crds::all() {
        let name = crd.name_any();
        let is_there = definitions.get_opt(&name).await.unwrap().is_some();
        assert_eq!(is_there, name != pauses, "{name}: {told}");
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert!(namespaces.get_opt("kcp-system").await.unwrap().is_some());
    let kymas: Api<Kyma> = Api::namespaced(client.clone(), "kcp-system");
    assert!(kymas.get_opt("one").await.unwrap().is_none());
    refuses_a_kyma_that_no_run_created(&files, &kymas).await;
}

async fn refuses_a_kyma_that_no_run_created(files: &Files, kymas: &Api<Kyma>) {
    let kyma: Value = serde_json::from_slice(&fs::read(files.path("kyma.yaml")).unwrap()).unwrap();
    let kyma: Kyma = serde_json::from_value(kyma).unwrap();
    kymas.patch("one", &PatchParams::apply("user"), &Patch::Apply(&kyma)).await.unwrap();
    let refused = remove(files, &[]).await;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("run --once did not create it"), "{told}");
    assert_eq!(kymas.get("one").await.unwrap().metadata.deletion_timestamp, None);
}

/// Runs `kymactl run --remove` with these additional flags.
pub(crate) async fn remove(files: &Files, flags: &[&str]) -> Output {
    files.run("--remove", "5m", flags).await
}

/// Waits until the cluster has exactly the `expected` objects.
pub(crate) async fn until_same_objects(client: &Client, expected: &BTreeSet<String>) {
    testbed::until_or_why("the cluster has the same objects as before", RUN_TIMEOUT, || async move {
        // The garbage collector and the removal of the apiserver's own APIServices take a moment.
        Ok(match objects(client).await {
            Ok(after) if after == *expected => Ok(()),
            Ok(after) => Err(format!("{:#?}", after.symmetric_difference(expected).collect::<Vec<_>>())),
            Err(error) => Err(error.to_string()),
        })
    })
    .await
    .unwrap();
}

pub(crate) fn succeeded(output: &Output, said: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let result = String::from_utf8_lossy(&output.stdout);
    assert!(result.contains(said), "{result}{told}");
}

/// Returns every object of the cluster as `Kind namespace/name group uid`, except the control plane's own.
pub(crate) async fn objects(client: &Client) -> kube::Result<BTreeSet<String>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut found = BTreeSet::new();
    for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::resources_by_stability) {
        let is_volatile = VOLATILE_KINDS.contains(&resource.kind.as_str());
        if is_volatile || !capabilities.supports_operation(verbs::LIST) {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let listed = match api.list_metadata(&ListParams::default()).await {
            Ok(listed) => listed.items,
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error),
        };
        for item in listed {
            let meta = item.metadata;
            let namespace = meta.namespace.unwrap_or_default();
            if namespace == "default" || namespace.starts_with("kube-") {
                continue;
            }
            let (name, uid) = (meta.name.unwrap_or_default(), meta.uid.unwrap_or_default());
            found.insert(format!("{} {namespace}/{name} {} {uid}", resource.kind, resource.group));
        }
    }
    Ok(found)
}
