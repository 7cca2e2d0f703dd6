//! `kymactl run` on real clusters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::Path, process::Stdio, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use kyma_api::{HelmComponent, Kyma};
use serde_json::json;
use testbed::{Cluster, SharedTestEnv};
use tokio::process::{Child, Command};

mod components;
mod files;
mod modules;
mod remove;

use files::Files;

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

const MANAGER: &str = "lantern-operator";
const RUN_TIMEOUT: Duration = Duration::from_mins(6);

#[tokio::test]
async fn once_installs_and_upgrades_modules_and_leaves_no_operator() {
    let cluster = TEST_ENV.test_env().await.unwrap().cluster("bare").with_workloads().await.unwrap();
    let files = Files::new(&cluster, &["lantern"]).await;
    let client = cluster.client().unwrap();
    files.lantern("1.0.0").await;
    assert!(files.once().await.contains("1.0.0"));
    assert_eq!(available(&client).await, Some(1));
    files.lantern("1.1.0").await;
    assert!(files.once().await.contains("1.1.0"));
    assert_nothing_of_ours(&client).await;
    let before = revisions(&client).await;
    assert!(files.once().await.contains("Ready"));
    assert_eq!(revisions(&client).await, before);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kyma-system");
    deployments.delete(MANAGER, &DeleteParams::default()).await.unwrap();
    assert!(files.once().await.contains("Ready"), "the status of the last run does not count");
    assert_eq!(available(&client).await, Some(1));
    leaves_a_fleet_alone(&files, &client).await;
}

/// Checks that a run on the hub of a fleet is refused, and with the flag writes nothing to other Kymas.
async fn leaves_a_fleet_alone(files: &Files, client: &Client) {
    let kymas: Api<Kyma> = Api::namespaced(client.clone(), "kcp-system");
    let components: Api<HelmComponent> = Api::namespaced(client.clone(), "kcp-system");
    let kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "fleet"},
        "spec": {"channel": "regular", "modules": []},
    });
    kymas.create(&PostParams::default(), &serde_json::from_value(kyma).unwrap()).await.unwrap();
    let record = json!({"status": {"target": {"clusterUid": "another-cluster", "epoch": 1}}});
    kymas.patch_status("fleet", &PatchParams::default(), &Patch::Merge(&record)).await.unwrap();
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {"name": "fleet-lantern", "labels": {"operator.kyma-project.io/kyma-name": "fleet"}},
        "spec": {
            "target": {"kubeconfigSecretRef": {"name": "fleet", "key": "config"}},
            "source": {"manifests": {"url": "https://example.org/lantern.yaml"}},
        },
    });
    let component = serde_json::from_value(component).unwrap();
    components.create(&PostParams::default(), &component).await.unwrap();
    let seen = async || {
        let kyma = kymas.get("fleet").await.unwrap();
        (kyma.resource_version(), components.get("fleet-lantern").await.unwrap().resource_version())
    };
    let before = seen().await;
    let refused = files.run("--once", "5m", &[]).await;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && told.contains("--allow-other-kymas"), "{told}");
    let allowed = files.run("--once", "5m", &["--allow-other-kymas"]).await;
    assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
    assert_eq!(seen().await, before, "the Kyma of the fleet and its component are untouched");
}

#[tokio::test]
async fn once_gives_up_at_the_timeout_and_says_what_is_missing() {
    let cluster = TEST_ENV.test_env().await.unwrap().cluster("lonely").await.unwrap();
    let files = Files::new(&cluster, &["lantern"]).await;
    // The catalogue promises a version that has no ModuleTemplate.
    files.assign("lantern", "9.9.9");
    let output = files.run("--once", "10s", &[]).await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("one lantern"), "{told}");
}

#[tokio::test]
async fn run_is_all_reconcilers_in_one_process() {
    let test_env = TEST_ENV.test_env().await.unwrap();
    let hub = test_env.cluster("hub").await.unwrap();
    let target = test_env.cluster("target").with_workloads().await.unwrap();
    let files = Files::new(&hub, &["lantern"]).await;
    files.lantern("1.0.0").await;
    let admin = testbed::free_address().unwrap().to_string();
    let mut operators =
        files.kymactl(&["run", "--install-crds", "--allow-loopback-targets", "--admin-address", &admin]);
    let mut operators = operators.stdin(Stdio::null()).spawn().unwrap();
    let client = hub.client().unwrap();
    access_secret(&client, &target).await;
    for file in ["catalogue/lantern-1.0.0.yaml", "catalogue/lantern.yaml", "kyma.yaml"] {
        apply(&client, &mut operators, &files.path(file)).await;
    }
    let waited = files.kymactl(&["status", "--wait", "--timeout", "5m"]).output().await.unwrap();
    assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
    assert_eq!(available(&target.client().unwrap()).await, Some(1));
    // `status` does not wait for release-meta-syncer, which may see the Kyma later.
    testbed::until_or_why("every operator knows the Kyma", RUN_TIMEOUT, || async {
        let why =
            files.kymactl(&["why", "one", "--operator", &format!("http://{admin}")]).output().await.unwrap();
        assert!(why.status.success(), "{}", String::from_utf8_lossy(&why.stderr));
        let told = String::from_utf8_lossy(&why.stdout);
        let mut lines = [
            "Kyma one: Ready since ",
            "HelmComponent one-lantern-",
            "  kyma-operator: ",
            "  release-meta-syncer: ",
            "  helm-component: ",
            "    cluster of Secret access last answered ",
        ]
        .into_iter();
        Ok(lines.find(|line| !told.contains(line)).map_or(Ok(()), |line| Err(format!("{line}: {told}"))))
    })
    .await
    .unwrap();
    stop(operators).await;
    let nobody =
        files.kymactl(&["why", "one", "--operator", &format!("http://{admin}")]).output().await.unwrap();
    assert_eq!(nobody.status.code(), Some(2), "{}", String::from_utf8_lossy(&nobody.stderr));
}

/// Returns the resourceVersions that a run without changes must not change.
async fn revisions(client: &Client) -> Vec<String> {
    let kymas: Api<Kyma> = Api::namespaced(client.clone(), "kcp-system");
    let components: Api<HelmComponent> = Api::namespaced(client.clone(), "kcp-system");
    let settings: Api<ConfigMap> = Api::namespaced(client.clone(), "kyma-system");
    let mut revisions = vec![
        kymas.get("one").await.unwrap().resource_version(),
        settings.get("lantern-settings").await.unwrap().resource_version(),
    ];
    revisions.extend(
        components
            .list(&ListParams::default())
            .await
            .unwrap()
            .iter()
            .map(kube::ResourceExt::resource_version),
    );
    revisions.into_iter().map(Option::unwrap).collect()
}

async fn available(client: &Client) -> Option<i32> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kyma-system");
    deployments.get(MANAGER).await.unwrap().status.unwrap().available_replicas
}

/// Checks that no operator is installed on the cluster, and that no account or binding for one exists.
async fn assert_nothing_of_ours(client: &Client) {
    let all = ListParams::default();
    let ours =
        |name: &str| ["kyma-operator", "helm-component", "release-meta-syncer", "kymactl"].contains(&name);
    let accounts = Api::<ServiceAccount>::all(client.clone()).list(&all).await.unwrap();
    assert!(!accounts.iter().any(|account| ours(&account.name_any())));
    let in_hub_namespace = accounts.iter().filter(|one| one.namespace().as_deref() == Some("kcp-system"));
    assert!(in_hub_namespace.into_iter().all(|account| account.name_any() == "default"));
    let deployments = Api::<Deployment>::all(client.clone()).list(&all).await.unwrap();
    let names: Vec<String> = deployments.iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(names, [MANAGER]);
    let bindings = Api::<ClusterRoleBinding>::all(client.clone()).list(&all).await.unwrap();
    assert!(!bindings.iter().any(|binding| ours(&binding.name_any())));
}

/// Creates the access Secret with the target's kubeconfig.
async fn access_secret(hub: &Client, target: &Cluster) {
    let namespace = Namespace { metadata: named("kcp-system"), ..Namespace::default() };
    Api::all(hub.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "access", "labels": {"operator.kyma-project.io/kyma-name": "one"}},
        "stringData": {"config": target.kubeconfig()},
    }))
    .unwrap();
    Api::namespaced(hub.clone(), "kcp-system").create(&PostParams::default(), &secret).await.unwrap();
}

fn named(name: &str) -> kube::api::ObjectMeta {
    kube::api::ObjectMeta { name: Some(name.to_owned()), ..kube::api::ObjectMeta::default() }
}

/// Creates the object in this file once its CRD, which the operators install, is served.
async fn apply(client: &Client, operators: &mut Child, file: &Path) {
    let object: kube::api::DynamicObject = serde_saphyr::from_slice(&fs::read(file).unwrap()).unwrap();
    let kind = object.types.clone().unwrap();
    let resource = kube::api::ApiResource::from_gvk(&(&kind).try_into().unwrap());
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(client.clone(), "kcp-system", &resource);
    testbed::until(&format!("{} is served", kind.kind), RUN_TIMEOUT, || {
        let ended = operators.try_wait().unwrap();
        let (api, object) = (&api, &object);
        async move {
            assert!(ended.is_none(), "kymactl run ended: {ended:?}");
            match api.create(&PostParams::default(), object).await {
                Ok(_) => Ok(Some(())),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                Err(error) => Err(error.into()),
            }
        }
    })
    .await
    .unwrap();
}

/// Sends SIGTERM, and checks that the process exits with code 0.
async fn stop(mut operators: Child) {
    let id = operators.id().unwrap().to_string();
    assert!(Command::new("kill").arg(id).status().await.unwrap().success());
    let ended = tokio::time::timeout(RUN_TIMEOUT, operators.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}
