//! Takes over a release that Helm installed, as Flux does, on real clusters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, path::PathBuf, process::Stdio, time::Duration};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Pod, Secret, Service},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use kyma_api::{HelmComponent, condition};
use serde_json::{Value, json};
use testbed::{Cluster, Program, Registry, SharedTestEnv, until};
use tokio::process::Command;

mod bare;

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

const HUB: &str = "apps";
const CRD: &str = "helmcomponents.component.kyma-project.io";
const RELEASE: &str = "store-shop";
const READY_TIMEOUT: Duration = Duration::from_mins(2);

const CHART: [(&str, &str); 4] = [
    ("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.4.2\n"),
    ("values.yaml", "replicas: 1\ngreeting: hello\ntoken: none\n"),
    (
        "templates/config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata: {greeting: '{{ .Values.greeting }}', \
         token: '{{ .Values.token }}'}\n",
    ),
    (
        "templates/workload.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: '{{ .Release.Name }}'}\nspec: {selector: {app: shop}, ports: \
         [{port: 80}]}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: '{{ .Release.Name }}', labels: \
         {version: '{{ .Chart.Version }}'}}\nspec:\n  replicas: {{ .Values.replicas }}\n  selector: {matchLabels: {app: \
         shop}}\n  template:\n    metadata: {labels: {app: shop}, annotations: {config: '{{ include (print \
         $.Template.BasePath \"/config.yaml\") . | sha256sum }}'}}\n    spec: {containers: [{name: main, image: \
         'example.org/shop:1'}]}\n",
    ),
];

/// Returns a CRD of Flux without a schema.
fn crd(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Returns the resource of a kind once discovery shows it.
async fn discovered(client: &Client, kind: &GroupVersionKind) -> ApiResource {
    testbed::until_discovered(client, kind).await.unwrap().0
}

async fn apply(client: &Client, object: Value) -> DynamicObject {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let resource = discovered(client, &kind).await;
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("test").force();
    api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.unwrap()
}

/// Installs the chart as helm-controller does: with Helm and the merged values.
async fn install(world: &World) {
    let archive = world.registry.push_chart(&world.directory, ("shop", "1.4.2"), &CHART).await.unwrap();
    let set = ["--set", "replicas=2,greeting=servus", "--set-string", "token=hush"];
    let place = ["install", RELEASE, archive.to_str().unwrap(), "--namespace", "store", "--create-namespace"];
    helm(world, &[&place[..], &set[..]].concat()).await;
}

async fn helm(world: &World, arguments: &[&str]) {
    let kubeconfig = world.directory.join("target.kubeconfig");
    std::fs::write(&kubeconfig, world.target.kubeconfig()).unwrap();
    let mut helm = Command::new(Program::Helm.path().unwrap());
    let done = helm.args(arguments).arg("--kubeconfig").arg(&kubeconfig).output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Creates Flux's objects on the hub, and the objects that they name.
async fn release(world: &World) -> Api<DynamicObject> {
    let client = world.hub.client().unwrap();
    for one in [
        crd("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
        crd("source.toolkit.fluxcd.io", "v1", "HelmRepository", "helmrepositories"),
    ] {
        let name = one["metadata"]["name"].as_str().unwrap().to_owned();
        apply(&client, one).await;
        testbed::crd_is_served(&client, &name).await.unwrap();
    }
    let kubeconfig = world.target.kubeconfig();
    let metadata = |name: &str| json!({"name": name, "namespace": HUB});
    for object in [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("blue"), "stringData": {"value": kubeconfig}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("words"), "stringData": {"token": "hush"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("base"),
            "data": {"values.yaml": "{replicas: 9, greeting: servus}"}}),
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository", "metadata": metadata("shelf"),
            "spec": {"type": "oci", "url": format!("oci://{}/charts", world.registry.address())}}),
    ] {
        apply(&client, object).await;
    }
    let made = apply(&client, json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata("shop"),
        "spec": {
            "interval": "5m", "targetNamespace": "store", "storageNamespace": "store", "kubeConfig": {"secretRef": {"name": "blue"}},
            "chart": {"spec": {"chart": "shop", "version": "1.x", "sourceRef": {"kind": "HelmRepository", "name": "shelf"}}},
            "upgrade": {"crds": "CreateReplace"},
            "values": {"replicas": 2},
            "valuesFrom": [
                {"kind": "ConfigMap", "name": "base"},
                {"kind": "Secret", "name": "words", "valuesKey": "token", "targetPath": "token"},
            ],
        },
    })).await;
    let kind = GroupVersionKind::gvk("helm.toolkit.fluxcd.io", "v2", "HelmRelease");
    let resource = discovered(&client, &kind).await;
    let releases: Api<DynamicObject> = Api::namespaced_with(client, HUB, &resource);
    settled(&releases, &made).await;
    releases
}

/// Writes the status that Flux gives to an installed release.
async fn settled(releases: &Api<DynamicObject>, release: &DynamicObject) {
    let ready = json!({"type": "Ready", "status": "True", "reason": "InstallSucceeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {
        "observedGeneration": release.metadata.generation, "conditions": [ready],
        "history": [{"version": 1, "chartVersion": "1.4.2", "name": RELEASE, "namespace": "store"}],
    }});
    let params = PatchParams::default();
    releases.patch_status(&release.name_any(), &params, &Patch::Merge(&status)).await.unwrap();
}

struct World {
    hub: Cluster,
    target: Cluster,
    registry: Registry,
    directory: PathBuf,
}

impl World {
    async fn start() -> Self {
        let test_env = TEST_ENV.test_env().await.unwrap();
        let hub = async { test_env.cluster("flux-hub").await };
        let target = async { test_env.cluster("flux-target").with_workloads().await };
        let (hub, target) = tokio::try_join!(hub, target).unwrap();
        let registry = test_env.registry().await.unwrap();
        let directory = test_env.directory().join("flux");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("hub.kubeconfig"), hub.kubeconfig()).unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HUB}});
        apply(&hub.client().unwrap(), namespace).await;
        Self { hub, target, registry, directory }
    }

    fn kymactl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymactl"));
        command.args(arguments).arg("--kubeconfig").arg(self.directory.join("hub.kubeconfig"));
        command.args(["--hub-namespace", HUB]).env("HELM", Program::Helm.path().unwrap()).kill_on_drop(true);
        command
    }

    fn operators(&self) -> Command {
        let mut command =
            self.kymactl(&["run", "--install-crds", "--allow-loopback-targets", "--admin-address="]);
        command.arg(format!("--oci-insecure-hosts={}", self.registry.address())).stdin(Stdio::null());
        command
    }

    /// Returns the marks of all objects that Helm installed, and of their dependents.
    async fn installed(&self) -> BTreeMap<String, Mark> {
        let client = self.target.client().unwrap();
        let mut all = marks::<ConfigMap>(&client).await;
        all.extend(marks::<Service>(&client).await);
        all.extend(marks::<Deployment>(&client).await);
        all.extend(marks::<ReplicaSet>(&client).await);
        all.extend(marks::<Pod>(&client).await);
        all.extend(marks::<Secret>(&client).await);
        // A controller adds it to the namespace at any time.
        all.remove("ConfigMap kube-root-ca.crt");
        all
    }
}

/// Fields that a take-over must not change: uid, generation, spec and data.
#[derive(Debug, PartialEq)]
struct Mark {
    uid: Option<String>,
    generation: Option<i64>,
    content: [Value; 2],
}

async fn marks<K>(client: &Client) -> BTreeMap<String, Mark>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let listed = Api::<K>::namespaced(client.clone(), "store").list(&ListParams::default()).await.unwrap();
    let mark = |one: &K| {
        let object = serde_json::to_value(one).unwrap();
        let content = ["spec", "data"].map(|field| object[field].clone());
        let mark = Mark { uid: one.uid(), generation: one.meta().generation, content };
        (format!("{} {}", K::kind(&()), one.name_any()), mark)
    };
    listed.items.iter().map(mark).collect()
}

async fn until_ready(world: &World) {
    let components: Api<HelmComponent> = Api::namespaced(world.hub.client().unwrap(), HUB);
    let is_ready = |status: kyma_api::HelmComponentStatus| {
        let conditions = status.conditions.unwrap_or_default();
        condition::get(&conditions, condition::types::READY).is_some_and(|ready| ready.status == "True")
    };
    let waited = until("shop is Ready", READY_TIMEOUT, || async {
        Ok(components.get("shop").await?.status.is_some_and(is_ready).then_some(()))
    });
    let waited = waited.await;
    let seen = components.get("shop").await.unwrap().status;
    assert!(waited.is_ok(), "{seen:#?}");
}

#[tokio::test]
async fn a_release_of_flux_is_adopted_without_an_installation() {
    let world = World::start().await;
    let releases = release(&world).await;
    install(&world).await;
    let workload: Api<Deployment> = Api::namespaced(world.target.client().unwrap(), "store");
    until("the release's Pods are up", READY_TIMEOUT, || async {
        let status = workload.get(RELEASE).await?.status.unwrap_or_default();
        Ok((status.available_replicas == Some(2)).then_some(()))
    })
    .await
    .unwrap();
    let before = world.installed().await;
    assert!(before.len() >= 7, "{:?}", before.keys());

    let mut operators = world.operators().spawn().unwrap();
    let client = world.hub.client().unwrap();
    testbed::crd_is_brought(&mut operators, &client, CRD).await.unwrap();

    let printed = world.kymactl(&["migrate", "flux", "-n", HUB]).output().await.unwrap();
    let told = String::from_utf8(printed.stderr).unwrap();
    assert!(printed.status.success(), "{told}");
    assert!(told.contains("to do: spec.valuesFrom[1]: kubectl label secret words"), "{told}");
    let made: HelmComponent = serde_saphyr::from_str(std::str::from_utf8(&printed.stdout).unwrap()).unwrap();
    assert_eq!(made.spec.source.chart.as_ref().unwrap().version.as_deref(), Some("1.x"));
    assert_eq!(made.spec.target.as_ref().unwrap().kubeconfig_secret_ref.as_ref().unwrap().key, "value");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), HUB);
    let label = json!({"metadata": {"labels": {kyma_api::labels::COPY_TO_TARGETS: "true"}}});
    secrets.patch("words", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();

    for _ in 0..2 {
        let applied =
            world.kymactl(&["migrate", "flux", "shop", "-n", HUB, "--apply"]).output().await.unwrap();
        let told = String::from_utf8_lossy(&applied.stderr).into_owned();
        assert!(applied.status.success(), "{told}");
        let release = releases.get("shop").await.unwrap();
        assert_eq!(release.data["spec"]["suspend"], true);
    }
    until_ready(&world).await;
    assert_eq!(world.installed().await, before);
    let components: Api<HelmComponent> = Api::namespaced(client.clone(), HUB);
    let adopted = components.get("shop").await.unwrap().status.unwrap_or_default().adopted.unwrap();
    assert_eq!((adopted.revision, adopted.differing_count), (Some(1), None), "{adopted:?}");
    let after = workload.get(RELEASE).await.unwrap();
    let manager =
        |one: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| one.manager.clone();
    let managers: Vec<Option<String>> =
        after.metadata.managed_fields.unwrap_or_default().iter().map(manager).collect();
    assert!(managers.contains(&Some("helm-component".to_owned())), "{managers:?}");

    operators.start_kill().unwrap();
    operators.wait().await.unwrap();
}

#[tokio::test]
async fn a_release_that_flux_is_not_done_with_is_left_to_it() {
    let test_env = TEST_ENV.test_env().await.unwrap();
    let hub = test_env.cluster("flux-busy").await.unwrap();
    let client = hub.client().unwrap();
    let directory = test_env.directory().join("flux-busy");
    std::fs::create_dir_all(&directory).unwrap();
    let kubeconfig = directory.join("kubeconfig");
    std::fs::write(&kubeconfig, hub.kubeconfig()).unwrap();
    apply(&client, crd("helm.toolkit.fluxcd.io", "v2beta2", "HelmRelease", "helmreleases")).await;
    testbed::crd_is_served(&client, "helmreleases.helm.toolkit.fluxcd.io").await.unwrap();
    let kind = GroupVersionKind::gvk("helm.toolkit.fluxcd.io", "v2beta2", "HelmRelease");
    let resource = discovered(&client, &kind).await;
    let releases: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
    let chart = json!({"spec": {"chart": "a", "sourceRef": {"kind": "GitRepository", "name": "a"}}});
    let release = DynamicObject::new("a", &resource).data(json!({"spec": {"chart": chart}}));
    releases.create(&PostParams::default(), &release).await.unwrap();
    let run = |more: &'static [&'static str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymactl"));
        command.args(["migrate", "flux", "-A", "--kubeconfig"]).arg(&kubeconfig).args(more);
        async move { command.output().await.unwrap() }
    };
    for more in [&[][..], &["--apply"]] {
        let done = run(more).await;
        let told = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{told}");
        assert!(
            told.contains("refused: spec.chart.spec.sourceRef: a chart of a GitRepository has no address"),
            "{told}"
        );
    }
    assert_eq!(releases.get("a").await.unwrap().data["spec"].get("suspend"), None);
}
