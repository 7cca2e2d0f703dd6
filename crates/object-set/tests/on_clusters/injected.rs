//! Fields that admission, controllers and injectors add to applied objects or change in them.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kyma_object_set::drift::Drift;
use kyma_object_set::{Cluster, Identity};
use serde_json::{Value, json};
use testbed::until;

use super::drift::drift_of;
use super::story::{EVENT_TIMEOUT, Story, TEST_ENV, config_map};

const ADMISSION_API_VERSION: &str = "admissionregistration.k8s.io/v1";

fn of_admission(story: &Story, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(story.cluster.client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Creates a policy that sets `v` to `mutated` in every ConfigMap of the namespace that has it, and adds another
/// value.
async fn begin_mutations(story: &Story) -> Result<()> {
    let name = story.namespace.as_str();
    let policy = json!({
        "apiVersion": ADMISSION_API_VERSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                    "operations": ["CREATE", "UPDATE"],
                }],
            },
            "matchConditions": [{"name": "has-v", "expression": "has(object.data) && 'v' in object.data"}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                "[JSONPatch{op: 'add', path: '/data/v', value: 'mutated'}, JSONPatch{op: 'add', path: '/data/added', value: '1'}]"
            }}],
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        },
    });
    let binding = json!({
        "apiVersion": ADMISSION_API_VERSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name},
    });
    for (object, plural) in
        [(policy, "mutatingadmissionpolicies"), (binding, "mutatingadmissionpolicybindings")]
    {
        let kind = object["kind"].as_str().context("kind")?;
        let api = of_admission(story, kind, plural);
        api.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await?;
    }
    let probe = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}, "data": {"v": "1"},
    });
    until("the policy is in force", EVENT_TIMEOUT, || async {
        let params = PatchParams::apply("probe").dry_run();
        match story.config_maps().patch("probe", &params, &Patch::Apply(&probe)).await {
            Ok(made) => Ok(made.data.is_some_and(|data| data.contains_key("added")).then_some(())),
            // The API server does not use the whole policy yet.
            Err(kube::Error::Api(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

#[tokio::test]
async fn changes_by_admission_during_an_apply_are_no_drift() -> Result<()> {
    let mut story = Story::begin("mutated").await?;
    begin_mutations(&story).await?;
    let id = story.config_map("a");
    let data = async |story: &Story| -> Result<Value> { Ok(json!(story.config_maps().get("a").await?.data)) };
    let mut expected = json!({"v": "mutated", "added": "1"});
    for value in ["1", "2"] {
        story.apply(&config_map("a", value)).await?;
        assert_eq!(data(&story).await?, expected);
        assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged);
        assert_eq!(story.apply(&config_map("a", value)).await?.changed().count(), 0);

        story.edit("a", json!({"data": {"theirs": value}})).await?;
        expected["theirs"] = value.into();
        assert_eq!(data(&story).await?, expected);
        assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged, "admission wrote to it again");
        assert_eq!(story.apply(&config_map("a", value)).await?.changed().count(), 0);
    }
    let kinds = ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"];
    for (kind, plural) in
        kinds.into_iter().zip(["mutatingadmissionpolicybindings", "mutatingadmissionpolicies"])
    {
        of_admission(&story, kind, plural).delete(&story.namespace, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// An object as it is applied, a later edit by another client (a JSON Patch), and the path of the added field.
struct Row {
    object: Value,
    edit: Value,
    added: &'static str,
}

fn row(object: Value, edit: Value, added: &'static str) -> Row {
    Row { object, edit, added }
}

/// Returns cluster-scoped objects that call a service, into which its CA certificate is injected.
fn callers(name: &str, authority: &str) -> Vec<Row> {
    let service = json!({"service": {"name": "none", "namespace": name}});
    let bundle = |path: &str| json!([{"op": "add", "path": path, "value": authority}]);
    let webhooks = |kind: &str| {
        let webhook = json!({
            "name": "hook.example.org", "clientConfig": service, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "rules": [{
                "apiGroups": ["none.example.org"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["nothings"],
            }],
        });
        json!({"apiVersion": ADMISSION_API_VERSION, "kind": kind, "metadata": {"name": name}, "webhooks": [webhook]})
    };
    let group = format!("{name}.example.org");
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": service, "conversionReviewVersions": ["v1"]},
            },
        },
    });
    let in_webhook = "/webhooks/0/clientConfig/caBundle";
    let in_crd = "/spec/conversion/webhook/clientConfig/caBundle";
    vec![
        row(webhooks("ValidatingWebhookConfiguration"), bundle(in_webhook), in_webhook),
        row(webhooks("MutatingWebhookConfiguration"), bundle(in_webhook), in_webhook),
        row(crd, bundle(in_crd), in_crd),
        api_service(name, &bundle("/spec/caBundle")),
    ]
}

fn api_service(name: &str, edit: &Value) -> Row {
    let group = format!("{name}.aggregated.example.org");
    let object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1.{group}")},
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"name": "none", "namespace": name},
        },
    });
    row(object, edit.clone(), "/spec/caBundle")
}

/// Returns objects to which API servers and controllers add allocated or generated fields.
fn allocated() -> Vec<Row> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    let empty_account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "b"},
        "imagePullSecrets": [], "secrets": [],
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"type": "NodePort", "selector": {"a": "b"}, "ports": [{"port": 80}]},
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
        "spec": {
            "storageClassName": "none", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        },
    });
    let metric = |resource: &str| {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        json!({"type": "Resource", "resource": {"name": resource, "target": target}})
    };
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
            "minReplicas": 1, "maxReplicas": 2, "metrics": [metric("memory"), metric("cpu")],
        },
    });
    let label = json!([{"op": "add", "path": "/metadata/labels/theirs", "value": "1"}]);
    let secrets = json!([{"op": "add", "path": "/secrets", "value": [{"name": "token"}]}]);
    let pull_secrets = json!([{"op": "add", "path": "/imagePullSecrets", "value": [{"name": "pull"}]}]);
    let volume = json!([{"op": "add", "path": "/spec/volumeName", "value": "none"}]);
    vec![
        row(account, secrets, "/secrets"),
        row(empty_account, pull_secrets, "/imagePullSecrets"),
        row(service, label.clone(), "/spec/ports/0/nodePort"),
        row(claim, volume, "/spec/volumeName"),
        row(autoscaler, label, "/spec/metrics"),
    ]
}

async fn access(story: &Story, id: &Identity) -> Result<Api<DynamicObject>> {
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let mapping = kinds.preferred(&id.group_kind()).context("kind")?;
    Ok(mapping.api(&story.cluster.client, id.namespace.as_deref()))
}

/// Checks that a field that is added to an applied object is no drift, and stays when the set changes another
/// field.
async fn stays(story: &mut Story, row: &Row) -> Result<()> {
    let set = row.object.to_string();
    let id = story.apply(&set).await?.outcomes.remove(0).0;
    let edit: json_patch::Patch = serde_json::from_value(row.edit.clone())?;
    let api = access(story, &id).await?;
    api.patch(&id.name, &PatchParams::default(), &Patch::<Value>::Json(edit)).await?;
    let added = api.get(&id.name).await?.data.pointer(row.added).cloned();
    ensure!(added.is_some(), "{id}: nothing at {}", row.added);
    ensure!(drift_of(story, &id).await? == Drift::Unchanged, "{id}: drift");
    ensure!(story.apply(&set).await?.changed().count() == 0, "{id}: sent again");

    let mut object = row.object.clone();
    object["metadata"]["labels"] = json!({"changed": "1"});
    let set = object.to_string();
    ensure!(story.apply(&set).await?.changed().count() == 1, "{id}: not sent");
    let live = api.get(&id.name).await?;
    ensure!(live.data.pointer(row.added) == added.as_ref(), "{id}: {:?} instead", live.data);
    ensure!(drift_of(story, &id).await? == Drift::Unchanged, "{id}: drift after a change");
    ensure!(story.apply(&set).await?.changed().count() == 0, "{id}: changed for ever");
    Ok(())
}

#[tokio::test]
async fn additions_of_controllers_and_injectors_stay_and_are_no_drift() -> Result<()> {
    let mut story = Story::begin("injected").await?;
    for row in allocated() {
        stays(&mut story, &row).await?;
        story.uninstall_all().await?;
    }

    // While an API group has no server, no Namespace of its cluster is deleted. No test deletes one on this cluster.
    let bare = TEST_ENV.cluster("bare", |cluster| cluster).await?;
    let namespace = bare.namespace("injected").await?;
    let mut story = Story::on(Cluster::new(bare.client()?), &namespace);
    let authority = base64::engine::general_purpose::STANDARD.encode(bare.ca());
    for row in callers(&namespace, &authority) {
        let stayed = stays(&mut story, &row).await;
        story.uninstall_all().await?;
        stayed?;
    }
    Ok(())
}
