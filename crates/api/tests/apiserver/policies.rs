//! The admission policies in `deploy/policies`, also on objects that were stored before they came.

use std::cell::Cell;
use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use testbed::until;

use crate::{
    clusters::{self, BED, Reply, apply, call, collection},
    inputs,
};

fn template(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn of_version(name: &str) -> Value {
    template(name, &json!({"moduleName": "keda", "version": "1.2.3", "descriptor": {"a": [1, 1.5, null]}}))
}

async fn create(client: &Client, object: &Value) -> Result<Reply> {
    call(client, Method::POST, &collection(object).unwrap_or_default(), Some(object)).await
}

async fn patch(client: &Client, name: &str, change: &Value) -> Result<Reply> {
    let path = collection(&template(name, &Value::Null)).unwrap_or_default();
    call(client, Method::PATCH, &format!("{path}/{name}"), Some(change)).await
}

/// Applies the shipped policies and waits until the apiserver acts on them.
async fn install_policies(client: &Client) -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/policies");
    for file in inputs::yaml_files(&directory)? {
        for document in inputs::documents(&file)? {
            let object = document.object;
            let plural = match object["kind"].as_str().unwrap_or_default() {
                "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
                "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
                other => anyhow::bail!("{other} is no policy"),
            };
            let name = object["metadata"]["name"].as_str().context("no name")?;
            let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
            let reply = apply(client, &path, &object).await?.ok()?;
            assert_eq!(reply.warnings, Vec::<String>::new(), "{name}");
        }
    }
    create(client, &of_version("probe")).await?.ok()?;
    // Each try asks for another version, so that one that got through does not make the next a change of nothing.
    let tries = Cell::new(0);
    until("the policies are in force", Duration::from_mins(1), || async {
        tries.set(tries.get() + 1);
        let warned = !create(client, &of_version("probe")).await?.warnings.is_empty();
        let version = format!("9.9.{}", tries.get());
        let denied = patch(client, "probe", &json!({"spec": {"version": version}})).await?;
        Ok((warned && !denied.is_ok()).then_some(()))
    })
    .await?;
    let path = collection(&of_version("probe")).unwrap_or_default();
    call(client, Method::DELETE, &format!("{path}/probe"), None).await?.ok()?;
    Ok(())
}

/// A hub with KLM's CRDs (or ours where those are missing), then objects, then our CRDs and the policies.
#[tokio::test]
async fn a_templates_spec_never_changes_and_its_name_is_said() -> Result<()> {
    let client = BED.cluster("policies", |cluster| cluster).await?.client()?;
    clusters::ensure_namespace(&client, "default").await?;
    let before = clusters::klm_crds("templates stored under KLM's CRDs")?.unwrap_or_else(clusters::our_crds);
    clusters::install(&client, before).await?;
    let old_style = template("keda-fast", &json!({"channel": "fast", "descriptor": {}, "mandatory": false}));
    let misnamed = of_version("keda-regular");
    for stored_before in [&old_style, &misnamed] {
        create(&client, stored_before).await?.ok()?;
    }
    clusters::install(&client, clusters::our_crds()).await?;
    install_policies(&client).await?;

    stored_objects_take_metadata_but_no_other_spec(&client).await?;
    new_objects_are_named_or_warned(&client).await?;
    a_large_template_can_still_be_labelled(&client).await
}

async fn stored_objects_take_metadata_but_no_other_spec(client: &Client) -> Result<()> {
    for name in ["keda-fast", "keda-regular"] {
        let metadata = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.org/f"]}});
        let reply = patch(client, name, &metadata).await?.ok()?;
        assert_eq!(reply.warnings, Vec::<String>::new(), "{name}");
        let refused = patch(client, name, &json!({"spec": {"descriptor": {"b": 2}}})).await?;
        assert_eq!(refused.code, 422, "{refused:?}");
        assert!(refused.body["message"].to_string().contains("never changes"), "{refused:?}");
        let added = patch(client, name, &json!({"spec": {"requiresDowntime": true}})).await?;
        assert_eq!(added.code, 422, "{added:?}");

        let path = collection(&of_version(name)).unwrap_or_default();
        call(client, Method::DELETE, &format!("{path}/{name}"), None).await?.ok()?;
        let free = patch(client, name, &json!({"metadata": {"finalizers": null}})).await?;
        assert!(free.is_ok(), "a template being deleted gives up its finalizer: {free:?}");
    }
    Ok(())
}

async fn new_objects_are_named_or_warned(client: &Client) -> Result<()> {
    let right = create(client, &of_version("keda-1.2.3")).await?.ok()?;
    assert_eq!(right.warnings, Vec::<String>::new());
    let wrong = create(client, &of_version("keda-latest")).await?.ok()?;
    assert!(wrong.warnings.iter().any(|text| text.contains("keda-1.2.3")), "{:?}", wrong.warnings);
    let old_style = template("keda-slow", &json!({"channel": "slow", "descriptor": {}}));
    assert_eq!(create(client, &old_style).await?.ok()?.warnings, Vec::<String>::new());
    let path = format!("{}/keda-1.2.3", collection(&old_style).unwrap_or_default());
    let same = apply(client, &path, &of_version("keda-1.2.3")).await?;
    assert!(same.is_ok(), "applying the same again is no change: {same:?}");
    Ok(())
}

/// The rule compares whole specs; its cost must not grow beyond what the apiserver allows.
async fn a_large_template_can_still_be_labelled(client: &Client) -> Result<()> {
    let many: Vec<Value> =
        (0..4000).map(|i| json!({"name": format!("entry-{i}"), "text": "x".repeat(200)})).collect();
    let large = template("large-1.0.0", &json!({"descriptor": {"many": many}}));
    assert!(serde_json::to_vec(&large)?.len() > 900_000);
    create(client, &large).await?.ok()?;
    patch(client, "large-1.0.0", &json!({"metadata": {"labels": {"a": "b"}}})).await?.ok()?;
    let refused = patch(client, "large-1.0.0", &json!({"spec": {"mandatory": true}})).await?;
    assert_eq!(refused.code, 422, "{refused:?}");
    Ok(())
}
