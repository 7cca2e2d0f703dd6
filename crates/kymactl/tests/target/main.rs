//! `kymactl target` with a real hub and real clusters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{process::Output, time::Duration};

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kyma_api::{HelmComponent, Kyma, annotations, crds, labels, names};
use serde_json::{Value, json};
use testbed::{Cluster, SharedTestEnv};
use tokio::process::Command;

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

const RBAC_TIMEOUT: Duration = Duration::from_mins(1);

/// A hub, one target, and a Kyma whose access Secret leads there.
struct Stage {
    hub: Cluster,
    target: Cluster,
    namespace: String,
    directory: tempfile::TempDir,
}

impl Stage {
    async fn new(name: &str) -> Self {
        let hub = TEST_ENV.cluster("hub", |cluster| cluster).await.unwrap();
        let target = TEST_ENV.cluster(name, testbed::ClusterBuilder::with_audit).await.unwrap();
        let client = hub.client().unwrap();
        install(&client, crds::all()).await;
        let namespace = hub.namespace("target").await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kubeconfig"), hub.kubeconfig()).unwrap();
        let stage = Self { hub, target, namespace, directory };
        let kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "sample"},
            "spec": {"channel": "regular"},
        });
        let kyma = serde_json::from_value(kyma).unwrap();
        stage.kymas().create(&PostParams::default(), &kyma).await.unwrap();
        stage
    }

    fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.hub.client().unwrap(), &self.namespace)
    }

    fn client(&self) -> Client {
        self.target.client().unwrap()
    }

    async fn access(&self, kubeconfig: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"config": kubeconfig},
            "metadata": {"name": "access", "labels": {labels::KYMA_NAME: "sample"}},
        });
        let secrets: Api<Secret> = Api::namespaced(self.hub.client().unwrap(), &self.namespace);
        let apply = PatchParams::apply("test").force();
        secrets.patch("access", &apply, &Patch::Apply(&secret)).await.unwrap();
    }

    /// Creates a user of the target with these rights and the right to read the target's identity.
    async fn user(&self, rules: Value) -> String {
        let access = self.target.service_account("default", "hub").await.unwrap();
        let [group, resource, verb] =
            ["apiGroups", "resources", "verbs"].map(|part| rules[0][part][0].clone());
        let attributes = json!({"group": group, "resource": resource, "verb": verb});
        let role = json!({"metadata": {"name": "hub"}, "rules": rules});
        let binding = json!({
            "metadata": {"name": "hub"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "hub"},
            "subjects": [{"kind": "ServiceAccount", "name": "hub", "namespace": "default"}],
        });
        let create = PostParams::default();
        let cluster_roles: Api<ClusterRole> = Api::all(self.client());
        cluster_roles.delete("hub", &DeleteParams::default()).await.ok();
        cluster_roles.create(&create, &serde_json::from_value(role).unwrap()).await.unwrap();
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client());
        bindings.create(&create, &serde_json::from_value(binding).unwrap()).await.ok();
        // The API server notices the new role by a watch.
        let review = json!({"spec": {"resourceAttributes": attributes}});
        let review: SelfSubjectAccessReview = serde_json::from_value(review).unwrap();
        let reviews: Api<SelfSubjectAccessReview> = Api::all(access.client().unwrap());
        testbed::until("the rights are in force", RBAC_TIMEOUT, || async {
            let reviewed = reviews.create(&create, &review).await?;
            Ok(reviewed.status.is_some_and(|status| status.allowed).then_some(()))
        })
        .await
        .unwrap();
        access.kubeconfig()
    }

    async fn target(&self, words: &[&str]) -> Output {
        self.run("target", words).await
    }

    async fn run(&self, command: &str, words: &[&str]) -> Output {
        let what = command;
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymactl"));
        command.arg(what).args(words);
        if what != "explain" {
            command.arg("--allow-loopback-targets");
        }
        command.arg("--kubeconfig").arg(self.directory.path().join("kubeconfig"));
        command.args(["--hub-namespace", &self.namespace]).kill_on_drop(true).output().await.unwrap()
    }

    /// Writes the hub's record of the target.
    async fn record(&self, cluster_uid: &str, epoch: i64) {
        let status = json!({"status": {"target": {"clusterUid": cluster_uid, "epoch": epoch}}});
        let params = PatchParams::default();
        self.kymas().patch_status("sample", &params, &Patch::Merge(&status)).await.unwrap();
    }

    /// Creates a stamp on the target.
    async fn stamp(&self, data: Value) -> Api<ConfigMap> {
        let create = PostParams::default();
        let namespace = json!({"metadata": {"name": "kyma-system"}});
        let namespaces: Api<Namespace> = Api::all(self.client());
        namespaces.create(&create, &serde_json::from_value(namespace).unwrap()).await.unwrap();
        let stamp = json!({"metadata": {"name": "kyma-target-stamp"}, "data": data});
        let stamps: Api<ConfigMap> = Api::namespaced(self.client(), "kyma-system");
        stamps.create(&create, &serde_json::from_value(stamp).unwrap()).await.unwrap();
        stamps
    }

    async fn uid(&self) -> String {
        cluster_uid(self.client()).await
    }

    async fn hub_uid(&self) -> String {
        cluster_uid(self.hub.client().unwrap()).await
    }
}

async fn install(client: &Client, crds: Vec<CustomResourceDefinition>) {
    for crd in crds {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let apply = PatchParams::apply("test").force();
        api.patch(&crd.name_any(), &apply, &Patch::Apply(&crd)).await.unwrap();
        testbed::crd_is_served(client, &crd.name_any()).await.unwrap();
    }
}

async fn cluster_uid(client: Client) -> String {
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.get("kube-system").await.unwrap().uid().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn everything() -> Value {
    json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ])
}

#[tokio::test]
async fn each_step_of_the_way_is_checked_and_nothing_is_written() {
    let stage = Stage::new("checked").await;
    let output = stage.target(&["test", "nobody"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let output = stage.target(&["test", "sample"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("AwaitingAccess"), "{}", text(&output));

    stage.access("no kubeconfig").await;
    let output = stage.target(&["test", "sample"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("kubeconfig     FAILED"), "{}", text(&output));
    stage.access(&stage.target.kubeconfig().replace("https://127.0.0.1", "https://127.0.0.2")).await;
    let output = stage.target(&["test", "sample"]).await;
    assert!(text(&output).contains("connection     FAILED"), "{}", text(&output));
    stage.access(&stage.hub.kubeconfig()).await;
    let output = stage.target(&["test", "sample"]).await;
    assert!(text(&output).contains("TargetIsHub"), "{}", text(&output));

    let read = json!([{"apiGroups": [""], "resources": ["namespaces", "configmaps"], "verbs": ["get"]}]);
    stage.access(&stage.user(read).await).await;
    let output = stage.target(&["test", "sample"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("identity       ok      not adopted yet"), "{said}");
    assert!(said.contains("missing: patch *.*"), "{said}");
    assert!(said.contains("TargetForbidden"), "{said}");

    let mark = stage.target.audit().unwrap().mark().unwrap();
    stage.access(&stage.user(everything()).await).await;
    let output = stage.target(&["test", "sample"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("rights         ok"), "{}", text(&output));
    let events = stage.target.audit().unwrap().since(mark).unwrap();
    let writes: Vec<_> = events
        .iter()
        .filter(|event| event.user.ends_with(":default:hub") && event.is_write())
        .filter(|event| event.resource != "selfsubjectaccessreviews")
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test]
async fn another_cluster_is_taken_over_only_by_its_uid() {
    let stage = Stage::new("adopted").await;
    stage.access(&stage.user(everything()).await).await;
    let output = stage.target(&["adopt", "sample"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("nothing to adopt"), "{}", text(&output));

    stage.record("00000000-0000-0000-0000-000000000000", 3).await;
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {
            "name": "sample-keda", "labels": {labels::KYMA_NAME: "sample"},
            "annotations": {annotations::TARGET_UID: "00000000-0000-0000-0000-000000000000"},
        },
        "spec": {"source": {"manifests": {"url": "https://example.com/keda.yaml"}}},
    });
    let components: Api<HelmComponent> = Api::namespaced(stage.hub.client().unwrap(), &stage.namespace);
    let component = serde_json::from_value(component).unwrap();
    components.create(&PostParams::default(), &component).await.unwrap();
    let output = stage.target(&["test", "sample"]).await;
    assert!(text(&output).contains("TargetChanged"), "{}", text(&output));

    let uid = stage.uid().await;
    let stamps: Api<ConfigMap> = Api::namespaced(stage.client(), "kyma-system");
    let output = stage.target(&["adopt", "sample"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains(&format!("--cluster-uid={uid}")), "{}", text(&output));
    let output = stage.target(&["adopt", "sample", "--cluster-uid=another"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(stamps.get_opt("kyma-target-stamp").await.unwrap().is_none(), "nothing is written yet");

    let output = stage.target(&["adopt", "sample", &format!("--cluster-uid={uid}")]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let stamp = stamps.get("kyma-target-stamp").await.unwrap().data.unwrap();
    assert_eq!(stamp["epoch"], "4");
    let kyma = stage.kymas().get("sample").await.unwrap();
    assert_eq!(kyma.annotations()[annotations::TARGET_ADOPTED], format!("{uid}/4"));
    let target = kyma.status.unwrap().target.unwrap();
    assert_eq!((target.cluster_uid, target.epoch), (uid.clone(), Some(4)));
    let component = components.get("sample-keda").await.unwrap();
    assert_eq!(component.annotations()[annotations::TARGET_UID], uid);
    let output = stage.target(&["test", "sample"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[tokio::test]
async fn the_hub_and_a_neighbours_cluster_are_not_taken_over() {
    let stage = Stage::new("neighbours").await;
    stage.access(&stage.hub.kubeconfig()).await;
    let output = stage.target(&["adopt", "sample", "--cluster-uid=any"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("TargetIsHub"), "{}", text(&output));

    stage.access(&stage.user(everything()).await).await;
    let hub_uid = stage.hub_uid().await;
    let stamp = json!({
        "hubUid": hub_uid, "kymaNamespace": stage.namespace, "kymaName": "other", "kymaUid": "u", "epoch": "1",
    });
    let stamps = stage.stamp(stamp).await;
    let uid = stage.uid().await;
    let output = stage.target(&["adopt", "sample", &format!("--cluster-uid={uid}")]).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("TargetInUse"), "{}", text(&output));
    let kept = stamps.get("kyma-target-stamp").await.unwrap().data.unwrap();
    assert_eq!(kept["kymaName"], "other");
}

#[tokio::test]
async fn restored_hub_adopts_all_clusters_of_later_state_at_once() {
    let stage = Stage::new("restored").await;
    stage.access(&stage.user(everything()).await).await;
    let (uid, kyma) = (stage.uid().await, stage.kymas().get("sample").await.unwrap());
    // The deprecated field of the fencing generation must not stay after the adoption.
    let record = json!({"clusterUid": uid, "epoch": 1, "fencingGeneration": "3-a", "turn": "2-a"});
    let record = json!({"status": {"target": record}});
    let params = PatchParams::default();
    stage.kymas().patch_status("sample", &params, &Patch::Merge(&record)).await.unwrap();
    let stamp = json!({
        "hubUid": stage.hub_uid().await, "kymaNamespace": stage.namespace, "kymaName": "sample",
        "kymaUid": kyma.uid(), "epoch": "1", "turn": "5-b",
    });
    let stamps = stage.stamp(stamp).await;
    let stranger = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "stranger"},
        "spec": {"channel": "regular"},
    });
    stage.kymas().create(&PostParams::default(), &serde_json::from_value(stranger).unwrap()).await.unwrap();

    let output = stage.target(&["adopt", "--all"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("sample: managed by a later state of this hub"), "{}", text(&output));
    assert_eq!(stamps.get("kyma-target-stamp").await.unwrap().data.unwrap()["turn"], "5-b");

    let output = stage.target(&["adopt", "--all", "--yes"]).await;
    assert_eq!(output.status.code(), Some(1), "one has no access Secret: {}", text(&output));
    for line in ["sample: adopted", "stranger: not adopted: AwaitingAccess", "1 adopted, 1 not adopted"] {
        assert!(text(&output).contains(line), "{line}: {}", text(&output));
    }
    let stamp = stamps.get("kyma-target-stamp").await.unwrap().data.unwrap();
    assert_eq!((stamp["epoch"].as_str(), stamp.get("turn")), ("2", None));
    let target = stage.kymas().get("sample").await.unwrap().status.unwrap().target.unwrap();
    assert_eq!((target.epoch, target.fencing_generation), (Some(2), None));

    // The command was interrupted before it requeued the operators, and is run again.
    let forgotten = json!({"metadata": {"annotations": {annotations::TARGET_ADOPTED: null}}});
    stage.kymas().patch_metadata("sample", &params, &Patch::Merge(&forgotten)).await.unwrap();
    stage.target(&["adopt", "--all", "--yes"]).await;
    let told = stage.kymas().get("sample").await.unwrap();
    assert_eq!(told.annotations()[annotations::TARGET_ADOPTED], format!("{uid}/2"));
    let output = stage.target(&["test", "sample"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[tokio::test]
async fn reset_restores_the_initial_modules_only_if_confirmed() {
    let stage = Stage::new("reset").await;
    stage.access(&stage.user(everything()).await).await;
    let spec = json!({"spec": {"modules": [{"name": "keda"}, {"name": "nats", "channel": "fast"}]}});
    let params = PatchParams::default();
    stage.kymas().patch("sample", &params, &Patch::Merge(&spec)).await.unwrap();
    let output = stage.run("reset", &["sample"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("no operator has connected to its cluster yet"), "{}", text(&output));

    stage.record(&stage.uid().await, 1).await;
    let kyma = stage.kymas().get("sample").await.unwrap();
    let stamp = json!({
        "hubUid": stage.hub_uid().await, "kymaNamespace": stage.namespace, "kymaName": "sample",
        "kymaUid": kyma.uid(), "epoch": "1",
    });
    stage.stamp(stamp).await;
    install(&stage.client(), vec![crds::kyma()]).await;
    let live = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "default"},
        "spec": {"channel": "regular", "modules": [{"name": "nats"}, {"name": "mine"}]},
    });
    let remote: Api<Kyma> = Api::namespaced(stage.client(), "kyma-system");
    remote.create(&PostParams::default(), &serde_json::from_value(live).unwrap()).await.unwrap();

    let output = stage.run("reset", &["sample"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    for line in ["keda: is added", "nats: the entry is restored", "mine: is removed", "--yes"] {
        assert!(text(&output).contains(line), "{line}: {}", text(&output));
    }
    let names =
        |kyma: Kyma| kyma.spec.modules.unwrap().into_iter().map(|module| module.name).collect::<Vec<_>>();
    assert_eq!(names(remote.get("default").await.unwrap()), ["nats", "mine"], "nothing is written yet");
    let output = stage.run("reset", &["sample", "--yes"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(names(remote.get("default").await.unwrap()), ["keda", "nats"]);
    let output = stage.run("reset", &["sample", "--yes"]).await;
    assert!(text(&output).contains("nothing to reset"), "{}", text(&output));

    let earlier = json!({"status": {"target": {"clusterUid": stage.uid().await, "epoch": 0}}});
    stage.kymas().patch_status("sample", &params, &Patch::Merge(&earlier)).await.unwrap();
    let output = stage.run("reset", &["sample", "--yes"]).await;
    assert_eq!(output.status.code(), Some(1), "another hub's cluster is left alone: {}", text(&output));
}

#[tokio::test]
async fn a_decision_is_explained_from_the_hub_alone() {
    let stage = Stage::new("explained").await;
    let hub = stage.hub.client().unwrap();
    let create = PostParams::default();
    let release = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta", "metadata": {"name": "keda"},
        "spec": {"moduleName": "keda", "channels": [{"channel": "regular", "version": "1.0.0"}]},
    });
    let releases: Api<kyma_api::ModuleReleaseMeta> = Api::namespaced(hub.clone(), &stage.namespace);
    releases.create(&create, &serde_json::from_value(release).unwrap()).await.unwrap();
    let name = names::component_name("sample", "keda");
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {"name": name, "labels": {labels::KYMA_NAME: "sample"}},
        "spec": {
            "module": {"name": "keda", "version": "1.1.0"},
            "source": {"manifests": {"url": "https://example.com/keda.yaml"}},
        },
    });
    let components: Api<HelmComponent> = Api::namespaced(hub, &stage.namespace);
    components.create(&create, &serde_json::from_value(component).unwrap()).await.unwrap();
    let status = json!({"status": {
        "selection": {"channel": "regular", "modules": [{"name": "keda"}]},
        "modules": [{"name": "keda", "state": "Warning", "reason": "DowngradeRefused", "version": "1.1.0"}],
    }});
    stage.kymas().patch_status("sample", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();

    let output = stage.run("explain", &["sample"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    for line in [
        "keda 1.1.0 Warning",
        "DowngradeRefused: ",
        "the Kyma's channel regular, says the cluster's Kyma",
        "channel regular has version 1.0.0",
        "does not exist for version 1.0.0",
        "HelmComponent sample-keda-",
        ": 1.1.0 ordered",
    ] {
        assert!(text(&output).contains(line), "{line}: {}", text(&output));
    }
    let output = stage.run("explain", &["sample", "nats"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let output = stage.run("explain", &["sample", "keda", "--output", "json"]).await;
    let parsed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(parsed[0]["reason"], "DowngradeRefused");
}
