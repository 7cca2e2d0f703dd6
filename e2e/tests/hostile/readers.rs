//! A module that names Secrets and ConfigMaps of another module.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::landscape::HUB_NAMESPACE;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use kyma_api::{HelmComponent, labels, names};
use serde_json::{Value, json};
use testbed::until_or_why;

use crate::catalogue::{HELM, choose, shop, template};
use crate::world::World;

const DEADLINE: Duration = Duration::from_mins(2);
const DOCKER: &str = r#"{"auths":{"r.example":{"auth":"eDp5"}}}"#;

/// Checks that the module reads none of them, and that its errors do not reveal which ones exist.
pub(crate) async fn objects_of_others(world: &World) -> Result<()> {
    objects(world).await?;
    let values = |kind: &str, name: &str, key: &str| {
        json!({"source": {"manifests": {"url": "http://127.0.0.1:1/none.yaml"}},
            "valuesFrom": [{"kind": kind, "name": name, "key": key}]})
    };
    let source = |field: &str, value: Value| {
        let mut source = json!({"manifests": {"url": "oci://127.0.0.1:1/none", "version": "1.0.0"}});
        source[field] = value;
        json!({ "source": source })
    };
    let keys = |name: &str, key: &str| source("verify", json!({"keysSecretRef": {"name": name, "key": key}}));
    let pull = |name: &str| source("pullSecretRef", json!({"name": name}));
    let rows = [
        ("ValuesMissing", values("Secret", "keepers", "word"), values("Secret", "absent", "word")),
        ("ValuesMissing", values("Secret", "keepers", "none"), values("Secret", "absent", "none")),
        ("ValuesMissing", values("ConfigMap", "keepers", "word"), values("ConfigMap", "absent", "word")),
        (
            "ValuesMissing",
            values("ConfigMap", "kube-root-ca.crt", "ca.crt"),
            values("ConfigMap", "absent", "ca.crt"),
        ),
        ("VerificationInvalid", keys("keepers", "word"), keys("absent", "word")),
        ("SourceUnauthorized", pull("keepers-pull"), pull("absent")),
    ];
    for (number, (reason, there, absent)) in rows.iter().enumerate() {
        let numeral = ["one", "two", "three", "four", "five", "six"][number];
        let mut messages = Vec::new();
        for (which, spec) in [("there", there), ("absent", absent)] {
            let module = format!("thief-{numeral}-{which}");
            let (found, message) = refusal(world, &module, spec).await?;
            ensure!(found == *reason, "{module} is refused for {found}: {message}");
            ensure!(!message.contains("hush"), "{message}");
            messages.push(normalised(&message, &module));
        }
        ensure!(messages[0] == messages[1], "the message reveals whether the object exists: {messages:?}");
    }
    let (reason, message) = refusal(world, "keeper", &values("Secret", "keepers", "word")).await?;
    ensure!(reason != "ValuesMissing", "the module that the label names reads it: {message}");
    Ok(())
}

/// Creates objects whose labels name the module `keeper`.
async fn objects(world: &World) -> Result<()> {
    let owned = json!({labels::readable_by("keeper"): "true"});
    let secrets: Api<Secret> = Api::namespaced(world.hub.clone(), HUB_NAMESPACE);
    for secret in [
        json!({"metadata": {"name": "keepers", "labels": owned}, "stringData": {"word": "a: hush"}}),
        json!({"metadata": {"name": "keepers-pull", "labels": {labels::PULL_SECRET: "keeper"}},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": DOCKER}}),
    ] {
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    }
    let map = json!({"metadata": {"name": "keepers", "labels": owned}, "data": {"word": "a: hush"}});
    let maps: Api<ConfigMap> = Api::namespaced(world.hub.clone(), HUB_NAMESPACE);
    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    Ok(())
}

/// Publishes and enables a module. Returns reason and message of its component's condition Rendered, once that is
/// False.
async fn refusal(world: &World, module: &str, spec: &Value) -> Result<(String, String)> {
    let component = json!({"apiVersion": HELM.0, "kind": HELM.1, "spec": spec});
    template(world, module, "1.0.0", &component).await?;
    choose(world, &json!({ "name": module })).await?;
    let components: Api<HelmComponent> = Api::namespaced(world.hub.clone(), HUB_NAMESPACE);
    let name = names::component_name(&shop(), module);
    until_or_why(&format!("{module} is refused"), DEADLINE, || async {
        let found = components.get_opt(&name).await?;
        let status = serde_json::to_value(found.and_then(|found| found.status))?;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let rendered = conditions
            .iter()
            .find(|condition| condition["type"] == "Rendered" && condition["status"] == "False");
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        Ok(rendered
            .map(|condition| (text(condition, "reason"), text(condition, "message")))
            .ok_or_else(|| status.to_string()))
    })
    .await
    .context("a component that names what is another module's")
}

/// Returns the message without the names that the author chose.
fn normalised(message: &str, module: &str) -> String {
    let names = ["keepers-pull", "keepers", "kube-root-ca.crt", "absent"];
    names.iter().fold(message.replace(module, "MODULE"), |text, name| text.replace(name, "NAME"))
}
