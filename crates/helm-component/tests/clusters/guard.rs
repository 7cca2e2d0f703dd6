//! Content that shrinks: what is left over goes, unless it is suspiciously much.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::chart::push;
use crate::verify::until_told;
use crate::world::{World, condition_of, ready_of, world};

const MAPS: &str = r#"{{- range until (int .Values.objects) }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "map-{{ . }}"}
{{- end }}
"#;

#[tokio::test]
async fn content_that_shrinks_to_less_than_half_removes_nothing_before_somebody_confirms() -> Result<()> {
    let world = world().await?;
    let source = push(world, "thinned", "1.0.0", &[("templates/maps.yaml", MAPS)]).await?;
    let spec = |objects: usize| json!({"source": source, "release": {"namespace": "thinned"}, "values": {"objects": objects}});
    let mark = world.target.audit()?.mark()?;
    world.apply("thinned", spec(12)).await?;
    world.ready("thinned", "True", "Ready").await?;
    let before = maps(world).await?;
    assert_eq!(before.len(), 12);
    let rows = [
        (0, "the new set is empty, 12 objects would go"),
        (2, "the new set has 2 objects, the one before had 12"),
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

/// Name and uid of what is there.
async fn maps(world: &World) -> Result<BTreeMap<String, Option<String>>> {
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "thinned");
    let listed = maps.list(&ListParams::default().labels("component.kyma-project.io/owner")).await?;
    Ok(listed.items.iter().map(|map| (map.name_any(), map.uid())).collect())
}

/// As the runbook says.
pub(crate) async fn confirm(world: &World, name: &str) -> Result<()> {
    let components = world.components()?;
    let generation = components.get(name).await?.metadata.generation.context("a generation")?;
    let patch = json!({"metadata": {"annotations": {"component.kyma-project.io/allow-shrink": generation.to_string()}}});
    components.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
