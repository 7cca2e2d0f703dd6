//! Commands that only read or write the hub, with a real one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{path::PathBuf, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use kyma_api::{Kyma, crds};
use serde_json::{Value, json};
use testbed::{Cluster, SharedTestEnv};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

mod components;

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// A hub with the Kyma CRD and a namespace of its own.
struct Hub {
    namespace: String,
    kymas: Api<Kyma>,
    kubeconfig: PathBuf,
    _directory: tempfile::TempDir,
    cluster: Cluster,
}

impl Hub {
    async fn new() -> Self {
        let cluster = TEST_ENV.cluster("hub", |cluster| cluster).await.unwrap();
        let client = cluster.client().unwrap();
        install_crd(&client, &crds::kyma()).await;
        let namespace = cluster.namespace("status").await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
        let kymas = Api::namespaced(client, &namespace);
        Self { namespace, kymas, kubeconfig, _directory: directory, cluster }
    }

    async fn kyma(&self, name: &str, modules: &[&str]) {
        let modules: Vec<Value> = modules.iter().map(|module| json!({"name": module})).collect();
        let kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": name},
            "spec": {"channel": "regular", "modules": modules},
        });
        self.kymas.create(&PostParams::default(), &serde_json::from_value(kyma).unwrap()).await.unwrap();
    }

    async fn report(&self, name: &str, state: &str, modules: &[(&str, &str)]) {
        let modules: Vec<Value> = modules
            .iter()
            .map(|(module, state)| json!({"name": module, "state": state, "version": "1.0.0", "channel": "regular"}))
            .collect();
        let status = json!({"status": {"state": state, "modules": modules}});
        self.kymas.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    fn status(&self, flags: &[&str]) -> Command {
        self.command(&[&["status"], flags].concat())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymactl"));
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig).kill_on_drop(true);
        command.args(["--hub-namespace", &self.namespace]);
        command
    }
}

async fn install_crd(client: &Client, crd: &CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let apply = PatchParams::apply("test").force();
    api.patch(&crd.name_any(), &apply, &Patch::Apply(crd)).await.unwrap();
    testbed::crd_is_served(client, &crd.name_any()).await.unwrap();
}

#[tokio::test]
async fn the_fleet_is_a_table_of_cluster_module_version_and_state() {
    let hub = Hub::new().await;
    hub.kyma("one", &["keda", "serverless"]).await;
    hub.kyma("two", &[]).await;
    hub.report("one", "Processing", &[("keda", "Ready")]).await;
    hub.report("two", "Ready", &[]).await;
    let output = hub.status(&[]).output().await.unwrap();
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["one", "keda", "1.0.0", "regular", "Ready"]);
    assert_eq!(lines[2], ["one", "serverless", "-", "-", "Unknown"]);
    assert_eq!(lines[3], ["two", "-", "-", "-", "Ready"]);
    let output = hub.status(&["two", "--output", "json"]).output().await.unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["cluster"], &rows[0]["state"]), (&json!("two"), &json!("Ready")));
}

#[tokio::test]
async fn waiting_ends_with_the_event_that_makes_all_ready() {
    let hub = Hub::new().await;
    hub.kyma("one", &["keda"]).await;
    hub.report("one", "Processing", &[("keda", "Processing")]).await;
    let mut waiting =
        hub.status(&["--wait", "--timeout", "60s"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut remarks = BufReader::new(waiting.stderr.take().unwrap()).lines();
    // Its watch has begun once it prints a change after the initial state.
    hub.report("one", "Warning", &[("keda", "Warning")]).await;
    let until_warning = async {
        while remarks.next_line().await.unwrap().expect("it goes on") != "one keda 1.0.0: Warning" {}
    };
    tokio::time::timeout(Duration::from_secs(30), until_warning).await.unwrap();
    assert!(waiting.try_wait().unwrap().is_none());
    hub.report("one", "Ready", &[("keda", "Ready")]).await;
    let ended = tokio::time::timeout(Duration::from_secs(30), waiting.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn a_timeout_names_what_is_not_ready_and_exits_3() {
    let hub = Hub::new().await;
    hub.kyma("one", &["keda"]).await;
    let output = hub.status(&["--wait", "--timeout", "1s"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("one keda: Unknown"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("keda"));
}

#[tokio::test]
async fn a_hub_that_cannot_be_reached_is_an_error_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("none");
    let output = Command::new(env!("CARGO_BIN_EXE_kymactl"))
        .args(["status", "--wait", "--kubeconfig"])
        .arg(missing)
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
