//! Content that shrinks: objects that left it are pruned, unless there are suspiciously many.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::until;

use crate::chart::push;
use crate::verify::until_told;
use crate::world::{DEADLINE, World, condition_of, ready_of, world};

const MAPS: &str = r#"{{- range until (int .Values.objects) }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "map-{{ . }}"}
{{- end }}
"#;

#[tokio::test]
async fn content_below_half_prunes_nothing_before_confirmation() -> Result<()> {
    let world = world().await?;
    let source = push(world, "thinned", "1.0.0", &[("templates/maps.yaml", MAPS)]).await?;
    let spec = |objects: usize| json!({"source": source, "release": {"namespace": "thinned"}, "values": {"objects": objects}});
    let mark = world.target.audit()?.mark()?;
    world.apply("thinned", spec(12)).await?;
    world.ready("thinned", "True", "Ready").await?;
    let before = maps(world).await?;
    assert_eq!(before.len(), 12);
    let rows = [
        (0, "the new set is empty; 12 objects would be deleted"),
        (2, "the new set has 2 objects, the previous one had 12"),
    ];
    for (objects, words) in rows {
        world.apply("thinned", spec(objects)).await?;
        until_told(world, "thinned", "PruneGuard", words).await?;
        let component = world.ready("thinned", "False", "PruneGuard").await?;
        let (_, _, message) = ready_of(&component).context("Ready")?;
        assert!(
            message.contains("component.kyma-project.io/allow-shrink=<metadata.generation>"),
            "{message}"
        );
        let (status, reason, _) = condition_of(&component, "Applied").context("Applied")?;
        assert_eq!((&*status, &*reason), ("False", "PruneGuard"));
        assert_eq!(maps(world).await?, before, "{objects}");
    }
    let is_delete =
        |event: &testbed::AuditEvent| event.verb.starts_with("delete") && event.namespace == "thinned";
    let deleted: Vec<_> = world.target.audit()?.since(mark)?.into_iter().filter(is_delete).collect();
    assert!(deleted.is_empty(), "{deleted:?}");

    confirm(world, "thinned").await?;
    world.ready("thinned", "True", "Ready").await?;
    let left: BTreeMap<_, _> =
        before.into_iter().filter(|(name, _)| matches!(&**name, "map-0" | "map-1")).collect();
    assert_eq!(maps(world).await?, left);

    for objects in [12, 11] {
        world.apply("thinned", spec(objects)).await?;
        world.ready("thinned", "True", "Ready").await?;
        assert_eq!(maps(world).await?.len(), objects, "one object fewer needs no word");
    }
    Ok(())
}

/// Without objects there is nothing to watch or to wait for.
#[tokio::test]
async fn content_without_objects_is_ready() -> Result<()> {
    let world = world().await?;
    let source = push(world, "bare", "1.0.0", &[("templates/maps.yaml", MAPS)]).await?;
    let spec = |objects: usize| json!({"source": source, "release": {"namespace": "bare"}, "values": {"objects": objects}});
    world.apply("bare", spec(0)).await?;
    world.ready("bare", "True", "Ready").await?;
    world.apply("bare", spec(3)).await?;
    world.ready("bare", "True", "Ready").await?;
    world.apply("bare", spec(0)).await?;
    world.ready("bare", "False", "PruneGuard").await?;
    confirm(world, "bare").await?;
    world.ready("bare", "True", "Ready").await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "bare");
    let ours = ListParams::default().labels("component.kyma-project.io/owner");
    assert_eq!(maps.list(&ours).await?.items.len(), 0);
    world.apply("bare", spec(3)).await?;
    world.ready("bare", "True", "Ready").await?;
    assert_eq!(maps.list(&ours).await?.items.len(), 3, "what was there before is not what is installed");
    world.delete("bare", "Delete").await?;
    world.gone("bare").await
}

/// A Service with a finalizer, which is deleted before ConfigMaps are.
const HELD: &str = r"apiVersion: v1
kind: ConfigMap
metadata: {name: one}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two}
{{- if .Values.all }}
---
apiVersion: v1
kind: Service
metadata: {name: held, finalizers: [test.example.org/held]}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: later}
{{- end }}
";

#[tokio::test]
async fn prune_waits_for_terminating_object_also_in_drift_mode_warn() -> Result<()> {
    let world = world().await?;
    let source = push(world, "lingering", "1.0.0", &[("templates/all.yaml", HELD)]).await?;
    let spec = |all: bool| {
        json!({"source": source, "release": {"namespace": "lingering"}, "values": {"all": all},
            "drift": {"mode": "Warn"}})
    };
    world.apply("lingering", spec(true)).await?;
    world.ready("lingering", "True", "Ready").await?;
    world.apply("lingering", spec(false)).await?;
    world.ready("lingering", "True", "Ready").await?;
    let client = world.target.client()?;
    let services: Api<Service> = Api::namespaced(client.clone(), "lingering");
    let maps: Api<ConfigMap> = Api::namespaced(client, "lingering");
    assert!(services.get("held").await?.metadata.deletion_timestamp.is_some());
    assert!(maps.get_opt("later").await?.is_some(), "its turn has not come");

    let free = json!({"metadata": {"finalizers": null}});
    services.patch("held", &PatchParams::default(), &Patch::Merge(free)).await?;
    until("the rest is gone too", DEADLINE, || async {
        Ok(maps.get_opt("later").await?.is_none().then_some(()))
    })
    .await?;
    until("nothing of it is on record", DEADLINE, || async {
        let status = world.components()?.get("lingering").await?.status.unwrap_or_default();
        Ok((status.entries()?.len() == 2).then_some(()))
    })
    .await
}

/// Returns names and uids of the component's ConfigMaps.
async fn maps(world: &World) -> Result<BTreeMap<String, Option<String>>> {
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "thinned");
    let listed = maps.list(&ListParams::default().labels("component.kyma-project.io/owner")).await?;
    Ok(listed.items.iter().map(|map| (map.name_any(), map.uid())).collect())
}

/// Confirms the prune with the annotation from the runbook.
pub(crate) async fn confirm(world: &World, name: &str) -> Result<()> {
    let components = world.components()?;
    let generation = components.get(name).await?.metadata.generation.context("a generation")?;
    let patch = json!({"metadata": {"annotations": {"component.kyma-project.io/allow-shrink": generation.to_string()}}});
    components.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
