//! Health of each kind, with its status as a real API server defaults, validates and keeps it. Nothing acts on the
//! objects, so they are as they were written.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use kyma_object_set::HealthStatus::{self, Current, Failed, InProgress, Terminating};
use kyma_object_set::{Cluster, GroupKind, Health, health};
use serde_json::{Value, json};
use testbed::until;

use super::story::{BED, SOON};

const WHEN: &str = "2026-01-01T00:00:00Z";

/// A cluster without controllers, and a namespace there.
struct Bare {
    cluster: Cluster,
    namespace: String,
}

impl Bare {
    async fn start() -> Result<Self> {
        let bare = BED.cluster("bare", |builder| builder).await?;
        let namespace = bare.namespace("health").await?;
        let this = Self { cluster: Cluster::new(bare.client()?), namespace };
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        this.create(&account).await?;
        Ok(this)
    }

    fn client(&self) -> &Client {
        &self.cluster.client
    }

    async fn api(&self, object: &Value) -> Result<Api<DynamicObject>> {
        let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        let kind = object["kind"].as_str().context("kind")?;
        let kind = GroupKind::new(group.map_or("", |(group, _)| group), kind);
        until(&format!("{kind} is served"), SOON, || async {
            self.cluster.discovery.invalidate().await;
            let kinds = self.cluster.discovery.kinds(self.client()).await?;
            Ok(kinds.preferred(&kind).map(|mapping| mapping.api(self.client(), Some(&self.namespace))))
        })
        .await
    }

    async fn create(&self, object: &Value) -> Result<DynamicObject> {
        let wished: DynamicObject = serde_json::from_value(object.clone())?;
        let created = self.api(object).await?.create(&PostParams::default(), &wished).await;
        created.with_context(|| object.to_string())
    }

    /// Writes a status as the kind's controller would, and reads what became of the object.
    async fn with_status(&self, object: &Value, status: &Value) -> Result<Value> {
        let created = self.create(object).await?;
        let api = self.api(object).await?;
        let name = created.name_any();
        if !status.is_null() {
            let patch = Patch::Merge(json!({"status": status}));
            let patched = api.patch_status(&name, &PatchParams::default(), &patch).await;
            patched.with_context(|| format!("{object}: {status}"))?;
        }
        Ok(serde_json::to_value(api.get(&name).await?)?)
    }

    async fn check(&self, row: Row) -> Result<()> {
        let Row { what, object, status, expected } = row;
        let found = assess(&self.with_status(&object, &status).await?);
        ensure!(found.status == expected, "{what}: {found:?}");
        Ok(())
    }
}

struct Row {
    what: &'static str,
    object: Value,
    status: Value,
    expected: HealthStatus,
}

fn row(what: &'static str, object: &Value, status: Value, expected: HealthStatus) -> Row {
    Row { what, object: object.clone(), status, expected }
}

fn assess(object: &Value) -> Health {
    health::assess(object, Timestamp::now())
}

fn conditions(all: &[(&str, &str, &str)]) -> Value {
    let condition = |(kind, status, reason): &(&str, &str, &str)| json!({"type": kind, "status": status, "reason": reason, "message": "prose", "lastTransitionTime": WHEN});
    all.iter().map(condition).collect()
}

fn workload(kind: &str, spec: &Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "x"}]}});
    let mut whole = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
    json_patch::merge(&mut whole, spec);
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"generateName": "row-"}, "spec": whole})
}

fn deployments() -> Vec<Row> {
    let of = |spec: Value| workload("Deployment", &spec);
    let all = |replicas: i64, more: Value| {
        let mut status = json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
            "conditions": conditions(&[("Available", "True", "MinimumReplicasAvailable"), ("Progressing", "True", "NewReplicaSetAvailable")])});
        json_patch::merge(&mut status, &more);
        status
    };
    let progress = |reason: &str| json!({"conditions": conditions(&[("Available", "True", ""), ("Progressing", "False", reason)])});
    vec![
        row("a new Deployment", &of(json!({})), json!(null), InProgress),
        row("replicas are defaulted to 1", &of(json!({})), all(1, json!({})), Current),
        row("of an older generation", &of(json!({})), all(1, json!({"observedGeneration": 7})), InProgress),
        row("0 are wished", &of(json!({"replicas": 0})), json!({"observedGeneration": 1}), Current),
        row("too few", &of(json!({"replicas": 2})), all(1, json!({})), InProgress),
        row("not updated", &of(json!({"replicas": 2})), all(2, json!({"updatedReplicas": 1})), InProgress),
        row("old ones remain", &of(json!({"replicas": 1})), all(2, json!({})), InProgress),
        row(
            "not available",
            &of(json!({"replicas": 2})),
            all(2, json!({"availableReplicas": 1})),
            InProgress,
        ),
        row("the deadline is defaulted", &of(json!({})), all(1, progress("ReplicaSetUpdated")), InProgress),
        row("past the deadline", &of(json!({})), all(1, progress("ProgressDeadlineExceeded")), Failed),
        row("paused", &of(json!({"paused": true})), json!({"observedGeneration": 1}), Current),
        row(
            "unavailable",
            &of(json!({})),
            all(
                1,
                json!({"conditions": conditions(&[("Available", "False", "MinimumReplicasUnavailable")])}),
            ),
            InProgress,
        ),
    ]
}

fn sets() -> Vec<Row> {
    let stateful = |spec: Value| workload("StatefulSet", &spec);
    let daemon = |spec: Value| workload("DaemonSet", &spec);
    let replica = workload("ReplicaSet", &json!({"replicas": 1}));
    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    let partition = json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}});
    let revisions = |update: &str, updated: i64| {
        json!({"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "currentReplicas": 2 - updated, "updatedReplicas": updated,
            "currentRevision": "a", "updateRevision": update})
    };
    let settled = json!({"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
        "currentRevision": "a", "updateRevision": "a"});
    let nodes = |updated: i64, available: i64| {
        json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0,
            "updatedNumberScheduled": updated, "numberAvailable": available, "numberReady": available})
    };
    vec![
        row("a new StatefulSet", &stateful(json!({"replicas": 2})), json!(null), InProgress),
        row("settled, partition defaulted", &stateful(json!({"replicas": 2})), settled, Current),
        row(
            "in an update, partition defaulted",
            &stateful(json!({"replicas": 2})),
            revisions("b", 1),
            InProgress,
        ),
        row("as far as its partition", &stateful(partition.clone()), revisions("b", 1), Current),
        row("not as far as its partition", &stateful(partition), revisions("b", 0), InProgress),
        row("OnDelete", &stateful(on_delete.clone()), json!({"replicas": 1}), Current),
        row("a new DaemonSet", &daemon(json!({})), json!(null), InProgress),
        row("on all nodes", &daemon(json!({})), nodes(2, 2), Current),
        row("in an update", &daemon(json!({})), nodes(1, 2), InProgress),
        row("OnDelete, not updated", &daemon(on_delete.clone()), nodes(1, 2), Current),
        row("OnDelete, not available", &daemon(on_delete), nodes(1, 1), InProgress),
        row("a new ReplicaSet", &replica, json!(null), InProgress),
        row(
            "up",
            &replica,
            json!({"replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "observedGeneration": 1}),
            Current,
        ),
        row(
            "cannot make Pods",
            &replica,
            json!({"replicas": 0, "observedGeneration": 1, "conditions": conditions(&[("ReplicaFailure", "True", "FailedCreate")])}),
            InProgress,
        ),
    ]
}

fn pods_and_jobs() -> Vec<Row> {
    let containers = json!([{"name": "main", "image": "x"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "row-"}, "spec": {"containers": containers}});
    let job = |more: Value| {
        let mut spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
        json_patch::merge(&mut spec, &more);
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "row-"}, "spec": spec})
    };
    let running =
        |ready: &str| json!({"phase": "Running", "conditions": conditions(&[("Ready", ready, "")])});
    let crashing = json!({"phase": "Running", "containerStatuses": [{"name": "main", "image": "x", "imageID": "x", "ready": false,
        "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    let ended = |kinds: [&str; 2], done: Value| {
        let mut status = json!({"startTime": WHEN, "conditions": conditions(&[(kinds[0], "True", "x"), (kinds[1], "True", "x")])});
        json_patch::merge(&mut status, &done);
        status
    };
    let done = json!({"completionTime": WHEN, "succeeded": 1});
    vec![
        row("phase is defaulted to Pending", &pod, json!(null), InProgress),
        row("not ready", &pod, running("False"), InProgress),
        row("ready", &pod, running("True"), Current),
        row("crashing", &pod, crashing, Failed),
        row("succeeded", &pod, json!({"phase": "Succeeded"}), Current),
        row("failed", &pod, json!({"phase": "Failed"}), Failed),
        row("a new Job", &job(json!({})), json!(null), InProgress),
        row("at work", &job(json!({})), json!({"startTime": WHEN, "active": 1}), InProgress),
        row("complete", &job(json!({})), ended(["SuccessCriteriaMet", "Complete"], done), Current),
        row("gone wrong", &job(json!({})), ended(["FailureTarget", "Failed"], json!({"failed": 1})), Failed),
        row("suspended", &job(json!({"suspend": true})), json!(null), Current),
    ]
}

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

#[tokio::test]
async fn workloads_are_as_their_status_says() -> Result<()> {
    let bare = Bare::start().await?;
    for row in [deployments(), sets(), pods_and_jobs(), storage_and_services()].into_iter().flatten() {
        bare.check(row).await?;
    }
    for (api_version, kind) in [("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "ServiceAccount")] {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"generateName": "row-"}});
        bare.check(row(kind, &object, json!(null), Current)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_pod_that_no_node_takes_fails_after_a_while() -> Result<()> {
    let bare = Bare::start().await?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "row-"}, "spec": {"containers": [{"name": "main", "image": "x"}]}});
    let status = json!({"conditions": conditions(&[("PodScheduled", "False", "Unschedulable")])});
    let pod = bare.with_status(&pod, &status).await?;
    let created: Timestamp = pod["metadata"]["creationTimestamp"].as_str().context("created")?.parse()?;
    let early = health::assess(&pod, created);
    assert_eq!(early.status, InProgress);
    let from = early.failed_from.context("a moment")?;
    assert_eq!(Duration::try_from(from.duration_since(created))?, Duration::from_secs(15));
    assert_eq!(health::assess(&pod, from).status, Failed);
    Ok(())
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

#[tokio::test]
async fn a_job_that_goes_by_itself_is_told_apart() -> Result<()> {
    let bare = Bare::start().await?;
    for (ttl, finished) in [(json!(5), true), (json!(null), false)] {
        let spec = json!({"ttlSecondsAfterFinished": ttl,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "row-"}, "spec": spec});
        assert!(!health::is_finished(&bare.with_status(&job, &json!(null)).await?));
        let status = json!({"startTime": WHEN, "completionTime": WHEN, "succeeded": 1,
            "conditions": conditions(&[("SuccessCriteriaMet", "True", "x"), ("Complete", "True", "x")])});
        assert_eq!(health::is_finished(&bare.with_status(&job, &status).await?), finished);
    }
    Ok(())
}

#[tokio::test]
async fn what_the_api_is_made_of_says_when_it_serves() -> Result<()> {
    let bare = Bare::start().await?;
    let services: Api<DynamicObject> =
        bare.api(&json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"})).await?;
    assert_eq!(assess(&serde_json::to_value(services.get("v1.apps").await?)?).status, Current);
    let group = format!("{}.example.org", bare.namespace);
    let absent = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"name": "none", "namespace": bare.namespace, "port": 443}}});
    bare.create(&absent).await?;
    let found = until("its availability is told", SOON, || async {
        let found = assess(&serde_json::to_value(services.get(&format!("v1.{group}")).await?)?);
        Ok((found.message != "it does not say yet that it is available").then_some(found))
    });
    let found = found.await?;
    assert_eq!((found.status, found.message.as_str()), (InProgress, "Available is False: ServiceNotFound"));
    services.delete(&format!("v1.{group}"), &DeleteParams::default()).await?;

    let annotation = json!({"cert-manager.io/inject-ca-from": "here/certificate"});
    let mut hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"generateName": "row-", "annotations": annotation},
        "webhooks": [{"name": "a.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [],
            "clientConfig": {"service": {"name": "none", "namespace": "none"}}}]});
    bare.check(row("a CA is to come", &hook, json!(null), InProgress)).await?;
    hook["metadata"]["annotations"] = json!({});
    bare.check(row("none is meant", &hook, json!(null), Current)).await?;
    Ok(())
}

#[tokio::test]
async fn custom_resources_are_as_their_conditions_say() -> Result<()> {
    let bare = Bare::start().await?;
    let word = bare.namespace.replace('-', "");
    crd(&bare, "gateway.networking.k8s.io", "Gateway", "gateways").await?;
    crd(&bare, "gateway.networking.k8s.io", "HTTPRoute", "httproutes").await?;
    crd(&bare, &format!("{word}.example.org"), "Thing", "things").await?;
    let of = |group: &str, kind: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"generateName": "row-"}});
    let gateway = of("gateway.networking.k8s.io", "Gateway");
    let mut route = of("gateway.networking.k8s.io", "HTTPRoute");
    route["spec"] = json!({"parentRefs": [{"name": "g"}]});
    let thing = of(&format!("{word}.example.org"), "Thing");
    let said = |all: &[(&str, &str, &str)]| json!({"observedGeneration": 1, "conditions": conditions(all)});
    let parents = |accepted: &str| json!({"parents": [{"conditions": conditions(&[("Accepted", accepted, "NoMatchingParent")])}]});
    for row in [
        row("a new Gateway", &gateway, json!(null), InProgress),
        row(
            "not programmed",
            &gateway,
            said(&[("Accepted", "True", ""), ("Programmed", "False", "Pending")]),
            InProgress,
        ),
        row("programmed", &gateway, said(&[("Accepted", "True", ""), ("Programmed", "True", "")]), Current),
        row("a new route", &route, json!(null), InProgress),
        row("accepted", &route, parents("True"), Current),
        row("not accepted", &route, parents("False"), InProgress),
        row("nothing said", &thing, json!(null), Current),
        row("ready", &thing, said(&[("Ready", "True", "")]), Current),
        row("not ready", &thing, said(&[("Ready", "False", "Asked")]), InProgress),
        row("reconciling", &thing, said(&[("Reconciling", "True", ""), ("Ready", "True", "")]), InProgress),
        row("stalled", &thing, said(&[("Stalled", "True", ""), ("Ready", "False", "")]), Failed),
        row("behind", &thing, json!({"observedGeneration": 7}), InProgress),
    ] {
        bare.check(row).await?;
    }
    Ok(())
}

/// Makes a kind that takes anything, and waits until its CRD says that it is established.
async fn crd(bare: &Bare, group: &str, kind: &str, plural: &str) -> Result<()> {
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    bare.create(&crd).await?;
    let crds = bare.api(&crd).await?;
    until(&format!("{plural}.{group} is established"), SOON, || async {
        let live = serde_json::to_value(crds.get(&format!("{plural}.{group}")).await?)?;
        Ok(assess(&live).is_current().then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_namespace_on_its_way_out_says_what_is_left_in_it() -> Result<()> {
    let bare = Bare::start().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "row-"}});
    let name = bare.create(&namespace).await?.name_any();
    let namespaces = bare.api(&namespace).await?;
    let live = |object: DynamicObject| serde_json::to_value(object).map(|object| assess(&object));
    assert_eq!(live(namespaces.get(&name).await?)?.status, Current);
    namespaces.delete(&name, &DeleteParams::default()).await?;
    let status = json!({"status": {"conditions": conditions(&[("NamespaceContentRemaining", "True", "SomeResourcesRemain")])}});
    namespaces.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    let going = live(namespaces.get(&name).await?)?;
    assert_eq!(going.status, Terminating);
    assert_eq!(going.message, "it is being deleted; NamespaceContentRemaining is True: SomeResourcesRemain");
    Ok(())
}
