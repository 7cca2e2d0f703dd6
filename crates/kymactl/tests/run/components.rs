//! `kymactl run` with a module whose component is of its own kind, which the demo operator `greeting-component`
//! reconciles.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    TEST_ENV,
    files::Files,
    remove::{objects, remove, succeeded, until_same_objects},
};

const CRD: &str = "greetings.demo.kyma-project.io";

#[tokio::test]
async fn once_and_remove_run_own_kinds_with_their_program() {
    let cluster = TEST_ENV.test_env().await.unwrap().cluster("greeted").with_workloads().await.unwrap();
    let files = Files::new(&cluster, &["greeting"]).await;
    let client = cluster.client().unwrap();
    let program = program();
    let component = ["--component", program.to_str().unwrap()];
    files.assign("greeting", "1.0.0");
    let before = objects(&client).await.unwrap();
    // The CRD is installed by kymactl, or by kyma-operator if the module brings it.
    for brings_crd in [false, true] {
        write_template(&files, &program, brings_crd).await;
        let table = files.once_with(&component).await;
        let row = table.lines().find(|line| line.split_whitespace().nth(1) == Some("greeting"));
        assert!(row.is_some_and(|row| row.contains("Ready") && row.contains("1.0.0")), "{table}");
        assert_eq!(crd_labels(&client).await.is_empty(), !brings_crd, "only kyma-operator sets labels");

        let refused = remove(&files, &[]).await;
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.contains("--component <PROGRAM> for Greeting"), "{told}");

        succeeded(&remove(&files, &component).await, "everything that run --once created");
        until_same_objects(&client, &before).await;
    }
}

/// Returns the binary of the demo operator, which lies in the directory above that of the tests.
fn program() -> PathBuf {
    let running = std::env::current_exe().unwrap();
    let program = running.ancestors().nth(2).unwrap().join("greeting-component");
    assert!(program.is_file(), "{} is missing: cargo build --package greeting-component", program.display());
    program
}

/// Writes the ModuleTemplate, with the CRD that the program prints if `brings_crd` is set.
async fn write_template(files: &Files, program: &Path, brings_crd: bool) {
    let mut component = json!({
        "apiVersion": "demo.kyma-project.io/v1alpha1", "kind": "Greeting", "spec": {"text": "Good morning"},
    });
    if brings_crd {
        let printed = Command::new(program).arg("crd").output().await.unwrap();
        let crds: Vec<Value> = serde_saphyr::from_slice_multiple(&printed.stdout).unwrap();
        component["crd"] = crds.into_iter().find(Value::is_object).unwrap();
    }
    let template = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": "greeting-1.0.0", "namespace": "kcp-system"},
        "spec": {"moduleName": "greeting", "version": "1.0.0", "descriptor": {}, "component": component},
    });
    fs::write(files.path("catalogue/greeting-1.0.0.yaml"), template.to_string()).unwrap();
}

/// Returns the names of the labels of the installed CRD.
async fn crd_labels(client: &Client) -> Vec<String> {
    let crd = Api::<Crd>::all(client.clone()).get(CRD).await.unwrap();
    crd.metadata.labels.unwrap_or_default().into_keys().collect()
}
