//! Storage, Services, and kinds that work as soon as they exist.

use anyhow::{Context as _, Result};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kyma_health::HealthStatus::{Current, Failed, InProgress};
use serde_json::{Value, json};

use super::{Bare, Row, assess, row};

fn storage_and_services() -> Vec<Row> {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"generateName": "row-"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "row-"}, "spec": spec});
    let balancer = |more: Value| {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        json_patch::merge(&mut spec, &more);
        service(spec)
    };
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"generateName": "row-"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    let healthy = |generation: i64| json!({"observedGeneration": generation, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1, "expectedPods": 1});
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"generateName": "row-"},
        "spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}});
    vec![
        row("phase is defaulted to Pending", &claim, json!(null), InProgress),
        row("bound", &claim, json!({"phase": "Bound"}), Current),
        row("lost", &claim, json!({"phase": "Lost"}), Failed),
        row("a Service", &service(json!({"ports": [{"port": 80}]})), json!(null), Current),
        row(
            "another name",
            &service(json!({"type": "ExternalName", "externalName": "example.org"})),
            json!(null),
            Current,
        ),
        row("a LoadBalancer with a cluster IP alone", &balancer(json!({})), json!(null), InProgress),
        row("with external IPs", &balancer(json!({"externalIPs": ["198.51.100.1"]})), json!(null), Current),
        row(
            "with an address",
            &balancer(json!({})),
            json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.2"}]}}),
            Current,
        ),
        row("a new budget", &budget, json!(null), InProgress),
        row("a budget", &budget, healthy(1), Current),
        row("a budget of an older generation", &budget, healthy(7), InProgress),
        row("an Ingress", &ingress, json!(null), Current),
    ]
}

/// Returns rows of kinds without status.
fn mere_data() -> Vec<Row> {
    let of = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"generateName": "row-"}});
    let rbac = |kind: &str| of("rbac.authorization.k8s.io/v1", kind);
    let binding = |kind: &str, role: &str| {
        let mut binding = rbac(kind);
        binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "none"});
        binding
    };
    vec![
        row("data", &of("v1", "ConfigMap"), json!(null), Current),
        row("data", &of("v1", "Secret"), json!(null), Current),
        row("an account", &of("v1", "ServiceAccount"), json!(null), Current),
        row("a role", &rbac("Role"), json!(null), Current),
        row("a role", &rbac("ClusterRole"), json!(null), Current),
        row("a role is given", &binding("RoleBinding", "Role"), json!(null), Current),
        row("a role is given", &binding("ClusterRoleBinding", "ClusterRole"), json!(null), Current),
    ]
}

#[tokio::test]
async fn storage_and_services_are_as_their_status_says() -> Result<()> {
    Bare::start().await?.check_all(storage_and_services()).await
}

#[tokio::test]
async fn an_object_without_status_is_healthy_once_it_exists() -> Result<()> {
    Bare::start().await?.check_all(mere_data()).await
}

#[tokio::test]
async fn a_claim_of_a_class_that_waits_names_it() -> Result<()> {
    let bare = Bare::start().await?;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"generateName": "late-"},
        "provisioner": "example.org/none", "volumeBindingMode": "WaitForFirstConsumer"});
    let class = bare.create(&class).await?.name_any();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"generateName": "row-"},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let live = bare.with_status(&claim, &json!(null)).await?;
    let waiting = assess(&live);
    assert_eq!((waiting.status, waiting.storage_class.as_deref()), (InProgress, Some(class.as_str())));
    let claims = bare.api(&claim).await?;
    let name = live["metadata"]["name"].as_str().context("name")?;
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}});
    let live = claims.patch(name, &PatchParams::default(), &Patch::Merge(selected)).await?;
    assert_eq!(assess(&serde_json::to_value(live)?).storage_class, None);
    Ok(())
}
