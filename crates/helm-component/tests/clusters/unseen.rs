//! Kinds of a target that the operator is not allowed to watch any more.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::until_or_why;

use crate::world::{World, apply_yaml, ready_of};

/// Deadline: streams are opened again after a minute at most, and the failure is reported after three tries in half
/// a minute.
const NOTICED: Duration = Duration::from_mins(4);

const CONTENT: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: plain}
data: {level: low}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {level: low}
";

fn spec(source: &Value, name: &str) -> Value {
    json!({"source": source, "release": {"namespace": name}})
}

/// Grants the operator its rights on the target, optionally without the right to watch Secrets.
async fn grant(world: &World, watches_secrets: bool) -> Result<()> {
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    let mut secrets = all.to_vec();
    secrets.retain(|verb| watches_secrets || *verb != "watch");
    let others = ["configmaps", "namespaces", "services"];
    let groups = ["apps", "apiextensions.k8s.io", "apiregistration.k8s.io"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "helm-component-target"},
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": secrets},
            {"apiGroups": [""], "resources": others, "verbs": all},
            {"apiGroups": groups, "resources": ["*"], "verbs": all},
        ],
    });
    apply_yaml(&world.target.client()?, &role.to_string()).await
}

async fn until_told(world: &World, name: &str, what: &str, told: &[&str]) -> Result<()> {
    let components = world.components()?;
    until_or_why(what, NOTICED, || async {
        let (status, reason, message) = ready_of(&components.get(name).await?).unwrap_or_default();
        let said = format!("{status} {reason}: {message}");
        Ok(if told.iter().all(|words| said.contains(words)) { Ok(()) } else { Err(said) })
    })
    .await
}

#[tokio::test]
async fn lost_watch_permission_ends_readiness_until_it_is_restored() -> Result<()> {
    let world = World::start().await?;
    grant(&world, true).await?;
    let source = world.push("unseen", "1.0.0", CONTENT).await?;
    world.apply("unseen", spec(&source, "unseen")).await?;
    world.ready("unseen", "True", "Ready").await?;

    grant(&world, false).await?;
    // An open watch stays open after its user has lost the right.
    world.target.stop();
    world.target.start_again().await?;
    let refused = ["False TargetForbidden", "Secret (watch Secret: ", "403"];
    until_told(&world, "unseen", "who was Ready is so no more", &refused).await?;
    world.apply("unseen-new", spec(&source, "unseen-new")).await?;
    until_told(&world, "unseen-new", "a first installation says why it waits", &refused).await?;

    grant(&world, true).await?;
    for name in ["unseen", "unseen-new"] {
        until_told(&world, name, "it is Ready again by itself", &["True Ready"]).await?;
    }
    let secrets: Api<Secret> = Api::namespaced(world.target.client()?, "unseen");
    let edit = json!({"stringData": {"level": "edited"}});
    secrets.patch("hidden", &PatchParams::default(), &Patch::Merge(edit)).await?;
    until_or_why("an edit is seen and put right", NOTICED, || async {
        let level = secrets.get("hidden").await?.data.unwrap_or_default().remove("level");
        let level = level.map(|level| String::from_utf8_lossy(&level.0).into_owned());
        Ok(if level.as_deref() == Some("low") { Ok(()) } else { Err(format!("{level:?}")) })
    })
    .await
}
