//! A hub that refuses the component of a release.

use std::path::PathBuf;

use kube::{
    Api, Client, CustomResourceExt as _, ResourceExt,
    api::{DynamicObject, ListParams},
    core::GroupVersionKind,
};
use kyma_api::HelmComponent;
use serde_json::{Value, json};
use testbed::Cluster;
use tokio::process::Command;

use super::{CRD, TEST_ENV, apply, crd, discovered, settled};

/// A hub with Flux's kinds, and none of this project.
struct FluxHub {
    /// Keeps the hub running.
    _hub: Cluster,
    client: Client,
    kubeconfig: PathBuf,
    releases: Api<DynamicObject>,
}

impl FluxHub {
    async fn start() -> Self {
        let test_env = TEST_ENV.test_env().await.unwrap();
        let hub = test_env.cluster("flux-bare").await.unwrap();
        let client = hub.client().unwrap();
        let directory = test_env.directory().join("flux-bare");
        std::fs::create_dir_all(&directory).unwrap();
        let kubeconfig = directory.join("kubeconfig");
        std::fs::write(&kubeconfig, hub.kubeconfig()).unwrap();
        for (group, version, kind, plural) in [
            ("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
            ("source.toolkit.fluxcd.io", "v1", "HelmRepository", "helmrepositories"),
        ] {
            apply(&client, crd(group, version, kind, plural)).await;
            testbed::crd_is_served(&client, &format!("{plural}.{group}")).await.unwrap();
        }
        let repository = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
            "metadata": {"name": "shelf", "namespace": "default"},
            "spec": {"type": "oci", "url": "oci://registry.example.org"}});
        apply(&client, repository).await;
        let kind = GroupVersionKind::gvk("helm.toolkit.fluxcd.io", "v2", "HelmRelease");
        let resource = discovered(&client, &kind).await;
        let releases = Api::namespaced_with(client.clone(), "default", &resource);
        Self { _hub: hub, client, kubeconfig, releases }
    }

    /// Creates a release that Flux has installed, with `more` in its spec.
    async fn release(&self, name: &str, more: Value) {
        let repository = json!({"kind": "HelmRepository", "name": "shelf"});
        let chart = json!({"chart": "a", "version": "1.0.0", "sourceRef": repository});
        let mut spec = json!({"interval": "5m", "chart": {"spec": chart}});
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        let release = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec});
        settled(&self.releases, &apply(&self.client, release).await).await;
    }

    /// Takes all releases over, and returns the exit code and standard error.
    async fn take_over(&self) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymactl"));
        command.args(["migrate", "flux", "-n", "default", "--apply", "--kubeconfig"]).arg(&self.kubeconfig);
        let done = command.output().await.unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    }

    async fn suspended(&self) -> Vec<String> {
        let all = self.releases.list(&ListParams::default()).await.unwrap().items;
        let suspended = all.iter().filter(|release| release.data["spec"]["suspend"] == true);
        suspended.map(ResourceExt::name_any).collect()
    }
}

/// The hub's acceptance of the component is checked before Flux is stopped.
#[tokio::test]
async fn a_release_stays_with_flux_if_the_hub_refuses_its_component() {
    let bare = FluxHub::start().await;
    // One more than a component accepts.
    let many: Vec<Value> =
        (0..17).map(|number| json!({"kind": "ConfigMap", "name": format!("c{number}")})).collect();
    bare.release("after", json!({"dependsOn": [{"name": "base"}]})).await;
    bare.release("base", json!({})).await;
    bare.release("many", json!({"valuesFrom": many})).await;
    bare.release("waits", json!({"dependsOn": [{"name": "many"}]})).await;

    let (code, told) = bare.take_over().await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("default/base, default/after, default/many, default/waits"), "{told}");
    assert_eq!(bare.suspended().await, [""; 0], "there is no such kind");

    apply(&bare.client, serde_json::to_value(HelmComponent::crd()).unwrap()).await;
    testbed::crd_is_served(&bare.client, CRD).await.unwrap();
    let (code, told) = bare.take_over().await;
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(bare.suspended().await, [""; 0], "there is no such namespace");

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kcp-system"}});
    apply(&bare.client, namespace).await;
    let (code, told) = bare.take_over().await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("see their reasons above: default/many, default/waits"), "{told}");
    assert_eq!(bare.suspended().await, ["after", "base"]);
    let components: Api<HelmComponent> = Api::namespaced(bare.client.clone(), "kcp-system");
    let made = components.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<String> = made.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["default-after", "default-base"]);
    let depends = made[0].spec.depends_on.as_ref().unwrap()[0].component.as_ref().unwrap();
    assert_eq!(depends.name, "default-base");
}
