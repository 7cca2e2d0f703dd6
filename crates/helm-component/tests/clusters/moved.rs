//! Objects that move from one component to another, and components that move from one namespace to another.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplate};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::names;
use kyma_object_set::OWNER_LABEL;
use serde_json::{Value, json};
use testbed::until;

use crate::chart::push;
use crate::world::{DEADLINE, HUB_NAMESPACE, ready_of, world};

const MAPS: &str = r#"{{- range .Values.maps }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ . }}"}
{{- end }}
"#;

#[tokio::test]
async fn object_moved_to_other_component_is_transferred_not_deleted() -> Result<()> {
    let world = world().await?;
    let source = push(world, "attic", "1.0.0", &[("templates/maps.yaml", MAPS)]).await?;
    let spec =
        |maps: Value| json!({"source": source, "release": {"namespace": "attic"}, "values": {"maps": maps}});
    world.apply("attic", spec(json!(["x", "y", "z"]))).await?;
    world.ready("attic", "True", "Ready").await?;
    world.apply("cellar", spec(json!(["w"]))).await?;
    world.ready("cellar", "True", "Ready").await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "attic");
    let before = maps.get("x").await?.uid().context("a uid")?;
    let owner = |name: &str| names::owner_hash(HUB_NAMESPACE, name);

    world.apply("cellar", spec(json!(["w", "x"]))).await?;
    let waiting = world.ready("cellar", "False", "OwnedByOther").await?;
    let (_, _, message) = ready_of(&waiting).context("Ready")?;
    assert!(
        message.contains(&format!("attic/x belongs to HelmComponent {HUB_NAMESPACE}/attic")),
        "{message}"
    );
    let mark = world.target.audit()?.mark()?;
    world.apply("attic", spec(json!(["y", "z"]))).await?;
    world.ready("attic", "True", "Ready").await?;
    world.ready("cellar", "True", "Ready").await?;

    let moved = maps.get("x").await?;
    assert_eq!(moved.uid().as_ref(), Some(&before), "it is the same object");
    assert_eq!(moved.labels().get(OWNER_LABEL), Some(&owner("cellar")));
    let is_delete =
        |event: &testbed::AuditEvent| event.verb.starts_with("delete") && event.namespace == "attic";
    let deleted: Vec<_> = world.target.audit()?.since(mark)?.into_iter().filter(is_delete).collect();
    assert!(deleted.is_empty(), "{deleted:?}");

    world.apply("cellar", spec(json!(["w"]))).await?;
    world.ready("cellar", "True", "Ready").await?;
    assert!(maps.get_opt("x").await?.is_none(), "what nobody wants goes");
    Ok(())
}

/// Uses PodTemplates, which no other test has, so that no shared stream shows objects that are not looked for.
const TEMPLATES: &str = r#"{{- range .Values.accounts }}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: "{{ . }}"}
{{- end }}
{{- range .Values.templates }}
---
apiVersion: v1
kind: PodTemplate
metadata: {name: "{{ . }}"}
template: {spec: {containers: [{name: c, image: example.org/c:1}]}}
{{- end }}
"#;

#[tokio::test]
async fn transferred_object_is_pruned_if_new_owner_drops_it() -> Result<()> {
    let world = world().await?;
    let source = push(world, "heirless", "1.0.0", &[("templates/all.yaml", TEMPLATES)]).await?;
    let spec = |accounts: Value, templates: Value| {
        let values = json!({"accounts": accounts, "templates": templates});
        json!({"source": source, "release": {"namespace": "heirless"}, "values": values})
    };
    let (three, none) = (json!(["a", "b", "c"]), json!([]));
    let (old, new) = (json!(["o", "p", "q"]), json!(["n"]));
    world.apply("heirless-old", spec(old.clone(), three.clone())).await?;
    world.ready("heirless-old", "True", "Ready").await?;
    world.apply("heirless-new", spec(new.clone(), three.clone())).await?;
    world.ready("heirless-new", "False", "OwnedByOther").await?;
    let mut standing = spec(new.clone(), three);
    standing["suspend"] = json!(true);
    world.apply("heirless-new", standing).await?;
    world.ready("heirless-new", "Unknown", "Suspended").await?;
    let templates: Api<PodTemplate> = Api::namespaced(world.target.client()?, "heirless");
    let before = templates.get("a").await?.uid().context("a uid")?;
    let finalizers = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let by_hand = PatchParams::default();
    templates.patch("b", &by_hand, &finalizers(json!(["example.org/held"]))).await?;

    world.apply("heirless-old", spec(old, none.clone())).await?;
    world.ready("heirless-old", "True", "Ready").await?;
    let handed = templates.get("a").await?;
    assert_eq!(handed.uid(), Some(before), "it waits for whom it was left to");
    let heir = names::owner_hash(HUB_NAMESPACE, "heirless-new");
    assert_eq!(handed.labels().get(OWNER_LABEL), Some(&heir));

    world.apply("heirless-new", spec(new, none)).await?;
    world.ready("heirless-new", "True", "Ready").await?;
    let left = templates.list(&ListParams::default()).await?;
    let left: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["b"], "nobody wants the others");
    assert!(templates.get("b").await?.metadata.deletion_timestamp.is_some());

    templates.patch("b", &by_hand, &finalizers(json!(null))).await?;
    let components = world.components()?;
    until("what went late is off the record", DEADLINE, || async {
        let status = components.get("heirless-new").await?.status.context("a status")?;
        let names: Vec<String> = status.entries()?.into_iter().map(|entry| entry.name).collect();
        Ok((names == ["n"]).then_some(()))
    })
    .await
}

#[tokio::test]
async fn namespace_change_creates_all_objects_before_any_deletion() -> Result<()> {
    let world = world().await?;
    let source = push(world, "lodger", "1.0.0", &[("templates/maps.yaml", MAPS)]).await?;
    let names = ["a", "b", "c"];
    let spec = |namespace: &str| json!({"source": source, "release": {"namespace": namespace}, "values": {"maps": names}});
    world.apply("lodger", spec("lodger-old")).await?;
    world.ready("lodger", "True", "Ready").await?;
    let mark = world.target.audit()?.mark()?;
    world.apply("lodger", spec("lodger-new")).await?;
    world.ready("lodger", "True", "Ready").await?;

    let asked = world.target.audit()?.since(mark)?.into_iter();
    let asked: Vec<_> = asked
        .filter(|event| {
            event.is_write() && event.user.ends_with(":modules") && event.resource == "configmaps"
        })
        .filter(|event| matches!(&*event.namespace, "lodger-old" | "lodger-new"))
        .map(|event| (event.verb, event.namespace, event.name))
        .collect();
    let each = |verb: &str, namespace: &str| {
        BTreeSet::from(names.map(|name| (verb.to_owned(), namespace.to_owned(), name.to_owned())))
    };
    let first = asked.iter().position(|(verb, ..)| verb == "delete").context("a deletion")?;
    let (before, after) = asked.split_at(first);
    let all = |of: &[(String, String, String)]| of.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(all(before), each("patch", "lodger-new"), "{asked:?}");
    assert_eq!(all(after), each("delete", "lodger-old"), "{asked:?}");
    Ok(())
}
