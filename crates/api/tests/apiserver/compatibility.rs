//! The same objects on KLM's CRDs and on those of this project are stored alike.

use anyhow::{Context, Result, ensure};
use http::Method;
use kube::Client;
use serde_json::{Map, Value, json};

use crate::{
    clusters::{self, Reply, apply, call, collection},
    inputs::{self, Document},
    typed,
};

#[tokio::test]
async fn users_files_mean_the_same_as_on_klms_crds() -> Result<()> {
    let what = "users' files on our CRDs and on KLM's";
    let (Some(inputs), Some(klm)) = (testbed::inputs(what)?, clusters::klm(what).await?) else {
        return Ok(());
    };
    let ours = clusters::ours().await?;
    let (compared, refused) = compare(&klm, &ours, "users", inputs::klm_yaml(&inputs)?).await?;
    ensure!(compared > 30, "only {compared} objects");
    // Its default CR is an empty object, without apiVersion and kind.
    assert_eq!(refused, ["inputs/mt-docs-example-module.yaml[0]"]);
    Ok(())
}

#[tokio::test]
async fn recorded_objects_mean_the_same_as_on_klms_crds() -> Result<()> {
    let what = "recorded objects on our CRDs and on KLM's";
    let (Some(inputs), Some(klm)) = (testbed::inputs(what)?, clusters::klm(what).await?) else {
        return Ok(());
    };
    let ours = clusters::ours().await?;
    let (compared, refused) = compare(&klm, &ours, "recorded", inputs::recorded(&inputs)?).await?;
    ensure!(compared > 60, "only {compared} objects");
    assert_eq!(refused, Vec::<String>::new());
    Ok(())
}

/// Compares all documents of the project's kinds; returns their number, and those that both clusters refused.
async fn compare(
    klm: &Client,
    ours: &Client,
    namespace: &str,
    documents: Vec<Document>,
) -> Result<(usize, Vec<String>)> {
    for client in [klm, ours] {
        clusters::ensure_namespace(client, namespace).await?;
    }
    let (mut compared, mut refused) = (0, vec![]);
    for Document { origin, mut object } in documents {
        // Both tests run concurrently on the same clusters, and many objects share a name.
        object["metadata"]["namespace"] = json!(namespace);
        let Some(path) = collection(&object) else { continue };
        let there = stored(klm, &path, &object).await.with_context(|| origin.clone())?;
        let here = stored(ours, &path, &object).await.with_context(|| origin.clone())?;
        assert_eq!(outline(&here), outline(&there), "{origin}");
        if !here[0].is_ok() {
            refused.push(origin.clone());
        }
        compared += 1;
        for reply in here.iter().filter(|reply| reply.is_ok()) {
            assert_eq!(typed::round_trip(&reply.body)?, reply.body, "{origin}");
        }
    }
    Ok((compared, refused))
}

/// Returns the responses to creation, status update and apply of the object, and deletes it.
async fn stored(client: &Client, collection: &str, object: &Value) -> Result<Vec<Reply>> {
    let mut wish = object.clone();
    let status = wish.as_object_mut().and_then(|object| object.remove("status"));
    let metadata = wish["metadata"].as_object_mut().context("no metadata")?;
    volatile(metadata);
    let path = format!("{collection}/{}", metadata["name"].as_str().context("no name")?);
    let create = format!("{collection}?fieldValidation=Warn");
    let mut replies = vec![call(client, Method::POST, &create, Some(&wish)).await?];
    if let Some(status) = status.filter(|_| replies[0].is_ok()) {
        replies.push(
            call(client, Method::PATCH, &format!("{path}/status"), Some(&json!({"status": status}))).await?,
        );
        replies.push(call(client, Method::GET, &path, None).await?.ok()?);
    }
    if replies[0].is_ok() {
        replies.push(apply(client, &path, &wish).await?);
    }
    if replies[0].is_ok() {
        let free = json!({"metadata": {"finalizers": null}});
        call(client, Method::PATCH, &path, Some(&free)).await?.ok()?;
        call(client, Method::DELETE, &path, None).await?.ok()?;
    }
    Ok(replies)
}

/// Removes fields that differ between clusters or cannot be written.
fn volatile(metadata: &mut Map<String, Value>) {
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"] {
        metadata.remove(field);
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(field);
    }
}

/// Returns whether the object was accepted, the warnings, and the stored object.
fn outline(replies: &[Reply]) -> Vec<(u16, Vec<String>, Value)> {
    let outline = |reply: &Reply| {
        let mut body = if reply.is_ok() { reply.body.clone() } else { Value::Null };
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            volatile(metadata);
        }
        (reply.code, reply.warnings.clone(), body)
    };
    replies.iter().map(outline).collect()
}
