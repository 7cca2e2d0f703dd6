//! Texts in server-side applies, compared with those that a real API server stores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use kyma_targets::{AccessPolicy, Limits, Targets, client_from};
use serde_json::{Value, json};
use testbed::SharedTestEnv;

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// Returns texts with every character, short enough for an API server.
fn every_character() -> Vec<String> {
    let all: Vec<char> = (char::MIN..=char::MAX).collect();
    all.chunks(100_000).map(|chunk| chunk.iter().collect()).collect()
}

/// Returns texts in which a YAML parser treats characters differently, depending on those around them.
fn samples() -> Vec<String> {
    let special = [
        "\u{7f}", "\u{80}", "\u{85}", "\u{9f}", "\u{2028}", "\u{2029}", "\u{feff}", "\u{fffe}", "\u{ffff}",
        "\n", "\t", "😀",
    ];
    let around = |text: &&str| {
        vec![format!("x {text} y"), format!("x{text}--- y"), format!("{text}"), format!("{text}{text}")]
    };
    special.iter().flat_map(around).collect()
}

async fn stored_as_sent(client: Client, name: &str) -> Result<()> {
    let texts = Api::<DynamicObject>::all_with(client.clone(), &resource());
    let params = PatchParams::apply("tester").force();
    let pieces = every_character();
    for (number, piece) in pieces.iter().enumerate() {
        let name = format!("{name}-{number}");
        let spec = json!({"text": piece, "samples": samples()});
        let body = json!({"apiVersion": "text.example.org/v1", "kind": "Text", "metadata": {"name": name}, "spec": spec});
        let stored = texts.patch(&name, &params, &Patch::Apply(&body)).await?;
        assert_eq!(stored.data["spec"], spec, "{name}");
    }
    // The same characters in keys, and keys longer than YAML allows without an indicator.
    let mut keys: serde_json::Map<String, Value> =
        samples().into_iter().enumerate().map(|(number, key)| (key, number.into())).collect();
    keys.insert("k".repeat(2_000), json!({"é".repeat(1_500): "\u{2028}"}));
    let body = json!({"apiVersion": "text.example.org/v1", "kind": "Text", "metadata": {"name": name}, "spec": keys});
    let stored = texts.patch(name, &params, &Patch::Apply(&body)).await?;
    assert_eq!(stored.data["spec"], Value::Object(keys));
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": samples().concat()}});
    let stored = maps.patch(name, &params, &Patch::Apply(&map)).await?;
    assert_eq!(stored.data.context("data")?["a"], samples().concat());
    Ok(())
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("text.example.org", "v1", "Text"))
}

#[tokio::test]
async fn every_character_is_stored_as_it_was_applied() -> Result<()> {
    let cluster = TEST_ENV.cluster("texts", |builder| builder).await?;
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any}}}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "texts.text.example.org"},
        "spec": {"group": "text.example.org", "scope": "Cluster", "names": {"kind": "Text", "plural": "texts"}, "versions": [version]},
    });
    let crds = Api::<CustomResourceDefinition>::all(cluster.client()?);
    crds.patch("texts.text.example.org", &PatchParams::apply("tester"), &Patch::Apply(&crd)).await?;
    testbed::crd_is_served(&cluster.client()?, "texts.text.example.org").await?;

    stored_as_sent(client_from(cluster.admin().config()?)?, "hub").await?;
    let policy = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    let targets = Targets::new(policy, Limits::default(), "tester/1.0.0", "replica-0", 8);
    let data = ByteString(cluster.admin().kubeconfig().into_bytes());
    let mut secret = Secret { data: Some([("config".to_owned(), data)].into()), ..Secret::default() };
    (secret.metadata.namespace, secret.metadata.name) = (Some("kcp-system".into()), Some("texts".into()));
    stored_as_sent(targets.from_secret(&secret, "config")?.client(), "target").await?;
    stored_as_sent(targets.local(client_from(cluster.admin().config()?)?).client(), "local").await?;
    Ok(())
}
