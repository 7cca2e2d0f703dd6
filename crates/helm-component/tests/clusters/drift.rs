//! Corrects changes of others, and leaves unchanged objects alone.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kyma_api::labels;
use serde_json::json;
use testbed::{rounds, until};

use crate::chart::push;
use crate::failures::told_once;
use crate::fields::{at_rest, writes};
use crate::module::manifest;
use crate::world::{DEADLINE, condition_of, world};

/// Deadline for the deletion of a Namespace with Pods. Its controller begins after 5 s, and reads again 16 s later
/// whether the Pods are gone, possibly twice.
const NAMESPACE_DELETION: Duration = Duration::from_mins(3);

/// Deadline for ten corrections of each of two writers, one after another.
const FIGHT_DEADLINE: Duration = Duration::from_mins(3);

/// Two ConfigMaps with the same level.
const PAIR: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: edited}
data: {level: "{{ .Values.level }}"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: deleted}
data: {level: "{{ .Values.level }}"}
"#;

#[tokio::test]
async fn edits_and_deletions_on_the_target_are_put_right() -> Result<()> {
    let world = world().await?;
    let source = world.push("vase", "1.0.0", &manifest("vase", "low")).await?;
    world.apply("vase", json!({"source": source, "release": {"namespace": "vase-system"}})).await?;
    world.ready("vase", "True", "Ready").await?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "vase-system");
    let level = async || -> Result<Option<String>> {
        let config = configs.get_opt("vase").await?;
        Ok(config.and_then(|config| config.data).and_then(|data| data.get("level").cloned()))
    };
    let edit = json!({"data": {"level": "edited", "theirs": "stays"}});
    configs.patch("vase", &PatchParams::default(), &Patch::Merge(edit)).await?;
    until("the edit is put right", DEADLINE, || async {
        Ok((level().await?.as_deref() == Some("low")).then_some(()))
    })
    .await?;
    let theirs = configs.get("vase").await?.data.and_then(|data| data.get("theirs").cloned());
    assert_eq!(theirs.as_deref(), Some("stays"), "fields of others are theirs");
    configs.delete("vase", &DeleteParams::default()).await?;
    until("it is made again", DEADLINE, || async {
        Ok((level().await?.as_deref() == Some("low")).then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn e17_skipped_component_is_unchanged_until_label_is_removed() -> Result<()> {
    rounds(left_alone_until_the_label_goes).await
}

async fn left_alone_until_the_label_goes() -> Result<()> {
    let world = world().await?;
    for name in ["stone", "brook"] {
        let source = world.push(name, "1.0.0", &manifest(name, "low")).await?;
        world.apply(name, json!({"source": source, "release": {"namespace": name}})).await?;
        world.ready(name, "True", "Ready").await?;
    }
    let components = world.components()?;
    let label = async |value: Option<&str>| {
        let label = json!({"metadata": {"labels": {labels::SKIP_RECONCILIATION: value}}});
        components.patch("stone", &PatchParams::default(), &Patch::Merge(label)).await.map(drop)
    };
    label(Some("true")).await?;
    world.ready("stone", "Unknown", "SkipReconciliation").await?;
    let deployment = async |name: &str| world.on_target("apps/v1", "Deployment", name, name).await;
    let brook = deployment("brook").await?.and_then(|found| found.metadata.uid);
    for name in ["stone", "brook"] {
        let deployments: Api<Deployment> = Api::namespaced(world.target.client()?, name);
        deployments.delete(name, &DeleteParams::default()).await?;
    }
    until("the other one is made again", DEADLINE, || async {
        let uid = deployment("brook").await?.and_then(|found| found.metadata.uid);
        Ok((uid.is_some() && uid != brook).then_some(()))
    })
    .await?;
    assert!(deployment("stone").await?.is_none(), "nobody makes this one again");
    label(None).await?;
    until("now somebody does", DEADLINE, || async { Ok(deployment("stone").await?.map(drop)) }).await?;
    world.ready("stone", "True", "Ready").await?;
    for name in ["stone", "brook"] {
        world.delete(name, "Delete").await?;
        world.gone(name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn drift_is_only_reported_where_the_spec_says_so() -> Result<()> {
    let world = world().await?;
    let source = world.push("bowl", "1.0.0", &manifest("bowl", "low")).await?;
    let spec = json!({"source": source, "release": {"namespace": "bowl-system"}, "drift": {"mode": "Warn"}});
    world.apply("bowl", spec).await?;
    world.ready("bowl", "True", "Ready").await?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "bowl-system");
    let edit = json!({"data": {"level": "edited"}});
    configs.patch("bowl", &PatchParams::default(), &Patch::Merge(edit)).await?;
    let components = world.components()?;
    until("the drift is reported", DEADLINE, || async {
        let component = components.get("bowl").await?;
        let applied = condition_of(&component, "Applied");
        Ok(applied.filter(|(_, _, message)| message.contains("ConfigMap bowl-system/bowl")))
    })
    .await?;
    let config = configs.get("bowl").await?;
    assert_eq!(config.data.and_then(|data| data.get("level").cloned()).as_deref(), Some("edited"));
    Ok(())
}

#[tokio::test]
async fn drift_mode_off_neither_corrects_nor_reports_drift() -> Result<()> {
    let world = world().await?;
    let source = push(world, "saucer", "1.0.0", &[("templates/pair.yaml", PAIR)]).await?;
    let spec = |level: &str| {
        json!({"source": source, "release": {"namespace": "saucer"}, "values": {"level": level},
            "drift": {"mode": "Off"}})
    };
    world.apply("saucer", spec("low")).await?;
    world.ready("saucer", "True", "Ready").await?;
    let mark = at_rest(world, "saucer").await?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "saucer");
    let edit = json!({"data": {"level": "by hand"}});
    configs.patch("edited", &PatchParams::default(), &Patch::Merge(edit)).await?;
    configs.delete("deleted", &DeleteParams::default()).await?;
    at_rest(world, "saucer").await?;
    assert_eq!(writes(world, "saucer", mark)?, Vec::<String>::new());
    let component = world.ready("saucer", "True", "Ready").await?;
    let (status, _, message) = condition_of(&component, "Applied").expect("Applied");
    assert_eq!((&*status, &*message), ("True", ""));

    world.apply("saucer", spec("high")).await?;
    until("both have the new value", DEADLINE, || async {
        let mut levels = vec![];
        for name in ["edited", "deleted"] {
            let config = configs.get_opt(name).await?;
            levels.push(config.and_then(|config| config.data?.get("level").cloned()));
        }
        Ok(levels.iter().all(|level| level.as_deref() == Some("high")).then_some(()))
    })
    .await?;
    world.ready("saucer", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn deleted_namespace_of_component_is_restored_with_its_objects() -> Result<()> {
    let world = world().await?;
    let source = world.push("tent", "1.0.0", &manifest("tent", "low")).await?;
    world.apply("tent", json!({"source": source, "release": {"namespace": "tent-system"}})).await?;
    world.ready("tent", "True", "Ready").await?;
    let namespaces: Api<Namespace> = Api::all(world.target.client()?);
    let before = namespaces.get("tent-system").await?.metadata.uid;
    namespaces.delete("tent-system", &DeleteParams::default()).await?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "tent-system");
    until("the namespace is another one, and full", NAMESPACE_DELETION, || async {
        let namespace = namespaces.get_opt("tent-system").await?.and_then(|found| found.metadata.uid);
        let full = configs.get_opt("tent").await?.is_some();
        Ok((namespace.is_some() && namespace != before && full).then_some(()))
    })
    .await?;
    world.ready("tent", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn competing_writer_is_reported_and_drift_correction_pauses() -> Result<()> {
    let world = world().await?;
    let source = world.push("rope", "1.0.0", &manifest("rope", "low")).await?;
    world.apply("rope", json!({"source": source, "release": {"namespace": "rope-system"}})).await?;
    world.ready("rope", "True", "Ready").await?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "rope-system");
    let components = world.components()?;
    let edits = std::sync::atomic::AtomicU32::new(0);
    let component = until("the fight is reported", FIGHT_DEADLINE, || async {
        let config = configs.get("rope").await?;
        if config.data.and_then(|data| data.get("level").cloned()).as_deref() == Some("low") {
            let edit = json!({"data": {"level": "theirs"}});
            configs.patch("rope", &PatchParams::default(), &Patch::Merge(edit)).await?;
            edits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let component = components.get("rope").await?;
        let ready = crate::world::ready_of(&component);
        Ok(ready.is_some_and(|(_, reason, _)| reason == "DriftFlapping").then_some(component))
    })
    .await?;
    assert_eq!(edits.into_inner(), 11, "ten are put right");
    let (_, reason, message) = condition_of(&component, "Applied").expect("Applied");
    assert_eq!(reason, "DriftFlapping");
    assert!(message.ends_with("ConfigMap rope-system/rope"), "{message}");
    let left = configs.get("rope").await?.data.and_then(|data| data.get("level").cloned());
    assert_eq!(left.as_deref(), Some("theirs"));
    let source = world.push("rope", "1.0.1", &manifest("rope", "high")).await?;
    world.apply("rope", json!({"source": source, "release": {"namespace": "rope-system"}})).await?;
    world.ready("rope", "True", "Ready").await?;
    told_once(world, "rope", "DriftFlapping").await
}

#[tokio::test]
async fn two_components_with_adopt_always_stop_fighting_over_object() -> Result<()> {
    let world = world().await?;
    let names = ["knot", "loop"];
    for name in names {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "bone", "namespace": "default"}, "data": {"of": name},
        });
        let source = world.push(name, "1.0.0", &map.to_string()).await?;
        world.apply(name, json!({"source": source, "adopt": "Always"})).await?;
    }
    let components = world.components()?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "default");
    testbed::until_or_why("one gives in, and the other has it", FIGHT_DEADLINE, || async {
        let mut reasons = vec![];
        for name in names {
            let ready = crate::world::ready_of(&components.get(name).await?);
            reasons.push(ready.map(|(_, reason, _)| reason).unwrap_or_default());
        }
        let holder = configs.get_opt("bone").await?.and_then(|map| map.data?.get("of").cloned());
        let settled = (0..2).any(|one| {
            reasons[one] == "DriftFlapping"
                && reasons[1 - one] == "Ready"
                && holder.as_deref() == Some(names[1 - one])
        });
        Ok(if settled { Ok(()) } else { Err(format!("{reasons:?} {holder:?}")) })
    })
    .await?;
    Ok(())
}
