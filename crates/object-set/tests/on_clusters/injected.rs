//! What admission, controllers and injectors add to what was applied, or make of it.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kyma_object_set::drift::Drift;
use serde_json::{Value, json};
use testbed::until;

use super::drift::drift_of;
use super::story::{SOON, Story, config_map};

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

fn of_admission(story: &Story, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(story.cluster.client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Makes every ConfigMap of the namespace that has a `v` say `mutated` there, and have one more value.
async fn begin_mutations(story: &Story) -> Result<()> {
    let name = story.namespace.as_str();
    let policy = json!({
        "apiVersion": ADMISSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
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
        "apiVersion": ADMISSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
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
    until("the policy is in force", SOON, || async {
        let params = PatchParams::apply("probe").dry_run();
        match story.config_maps().patch("probe", &params, &Patch::Apply(&probe)).await {
            Ok(made) => Ok(made.data.is_some_and(|data| data.contains_key("added")).then_some(())),
            // Not all of it is known to the API server yet.
            Err(kube::Error::Api(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

#[tokio::test]
async fn what_admission_makes_of_an_apply_is_no_drift() -> Result<()> {
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
