//! Takes over objects of Helm, Flux, Argo CD, kubectl and others.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kyma_object_set::{
    Entry, ForeignObjectPolicy, Identity, KeepReason, NoObservations, OWNER_LABEL, Outcome, System, claim,
    helm_release,
};
use serde_json::{Value, json};

use super::story::{Story, config_map, outcome};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const TRACKING_ID_ANNOTATION: &str = "argocd.argoproj.io/tracking-id";
/// Label by which Argo CD finds its objects if it does not use the annotation.
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
const RELEASE_NAME_ANNOTATION: &str = "meta.helm.sh/release-name";

/// How a system applies objects, and its entries in `metadata`.
struct Former {
    system: System,
    manager: &'static str,
    on_server: bool,
    metadata: Value,
}

fn former(system: System, manager: &'static str, on_server: bool, metadata: Value) -> Former {
    Former { system, manager, on_server, metadata }
}

fn formers() -> Vec<Former> {
    let helm = json!({
        "annotations": {RELEASE_NAME_ANNOTATION: "shop", "meta.helm.sh/release-namespace": "store"},
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
    });
    let mut flux = helm.clone();
    flux["labels"]["helm.toolkit.fluxcd.io/name"] = "shop".into();
    let argo = json!({"annotations": {TRACKING_ID_ANNOTATION: "shop:/ConfigMap:store/a"}});
    let argo_by_label = json!({"labels": {INSTANCE_LABEL: "shop"}});
    let client_side = json!({"annotations": {LAST_APPLIED: "{}"}});
    let argo_client_side =
        json!({"annotations": {TRACKING_ID_ANNOTATION: "shop:/ConfigMap:store/a", LAST_APPLIED: "{}"}});
    vec![
        former(System::Helm, "helm", false, helm.clone()),
        former(System::Helm, "helm", true, helm.clone()),
        former(System::Helm, "terraform-provider-helm_v3", false, helm),
        former(System::Flux, "helm-controller", false, flux.clone()),
        former(System::Flux, "helm-controller", true, flux),
        former(
            System::Flux,
            "kustomize-controller",
            true,
            json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "a"}}),
        ),
        former(System::ArgoCd, "argocd-controller", false, argo_client_side),
        former(System::ArgoCd, "argocd-controller", true, argo),
        former(System::ArgoCd, "argocd-controller", false, argo_by_label.clone()),
        former(System::ArgoCd, "argocd-controller", true, argo_by_label),
        former(System::Kubectl, "kubectl-client-side-apply", false, client_side),
        former(System::Kubectl, "kubectl", true, json!({})),
        former(System::Other, "declarative.kyma-project.io/applier", true, json!({})),
    ]
}

/// Creates an object as a system installs it, edited by a user.
async fn installed(story: &Story, former: &Former, name: &str) -> Result<ConfigMap> {
    let mut metadata = former.metadata.clone();
    metadata["name"] = name.into();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": "1", "dropped": "1"},
    });
    if former.on_server {
        let params = PatchParams::apply(former.manager);
        story.config_maps().patch(name, &params, &Patch::Apply(object)).await?;
    } else {
        let params = PostParams { field_manager: Some(former.manager.into()), ..PostParams::default() };
        story.config_maps().create(&params, &serde_json::from_value(object)?).await?;
    }
    story.edit(name, json!({"data": {"by-hand": "1"}})).await
}

#[tokio::test]
async fn adoption_from_every_system_applies_and_keeps_additions() -> Result<()> {
    let mut story = Story::begin("formers").await?;
    story.take_over = vec!["declarative.kyma-project.io/applier"];
    for (number, former) in formers().iter().enumerate() {
        let name = format!("m{number}");
        let case = format!("{} ({}, {})", former.system, former.manager, former.on_server);
        let found = installed(&story, former, &name).await?;
        let wished = config_map(&name, "2");

        story.foreign = ForeignObjectPolicy::Report;
        let told = story.try_apply(&wished, &NoObservations).await?;
        assert!(
            matches!(outcome(&told, &name), Outcome::Foreign(system) if *system == former.system),
            "{case}: {told:?}"
        );
        let left = story.config_maps().get(&name).await?;
        assert_eq!(left.resource_version(), found.resource_version(), "{case}: nothing is written yet");
        assert!(!story.inventory.contains(&story.config_map(&name)));

        story.foreign = ForeignObjectPolicy::Apply;
        story.apply(&wished).await?;
        let live = story.config_maps().get(&name).await?;
        assert_eq!(live.uid(), found.uid(), "{case}");
        let data: Vec<(String, String)> = live.data.clone().unwrap_or_default().into_iter().collect();
        assert_eq!(data, [("by-hand".into(), "1".into()), ("v".into(), "2".into())], "{case}");
        let keys: Vec<&String> = live.annotations().keys().chain(live.labels().keys()).collect();
        let is_mark = |key: &str| key.contains("argoproj") || key.contains("fluxcd");
        let marks =
            keys.iter().filter(|key| is_mark(key) || [LAST_APPLIED, INSTANCE_LABEL].contains(&key.as_str()));
        assert_eq!(marks.count(), 0, "{case}: {keys:?}");
        assert_eq!(
            live.annotations().contains_key(RELEASE_NAME_ANNOTATION),
            former.metadata["annotations"][RELEASE_NAME_ANNOTATION].is_string(),
            "{case}"
        );
        let mut managers =
            live.metadata.managed_fields.iter().flatten().filter_map(|one| one.manager.as_deref());
        assert!(!managers.any(|manager| manager == former.manager), "{case}");
        assert_eq!(story.apply(&wished).await?.changed().count(), 0, "{case}");
    }
    Ok(())
}

#[tokio::test]
async fn an_object_with_a_busy_writer_is_adopted_in_one_run() -> Result<()> {
    let mut story = Story::begin("busy").await?;
    installed(&story, &formers()[0], "a").await?;
    let written = Identity::new("", "ConfigMap", Some(&story.namespace), "a");
    let (_proxy, left) = story.annotate_meanwhile(&written, 3).await?;
    let applied = story.try_apply(&config_map("a", "2"), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: false, .. }), "{applied:?}");
    assert_eq!(left.load(Ordering::Relaxed), 0);
    let live = story.config_maps().get("a").await?;
    assert_eq!(json!(live.data), json!({"by-hand": "1", "v": "2"}));
    assert_eq!(live.annotations()["left"], "1", "what was written meanwhile stays");
    assert_eq!(story.apply(&config_map("a", "2")).await?.changed().count(), 0);
    Ok(())
}

/// Returns a workload with every type of list: with one key, with two, a set, and one without keys.
fn workload(image: &str, annotation: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "annotations": {"note": annotation}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {
                    "containers": [{
                        "name": "main", "image": image, "args": ["--one", "--two"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
                        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                        "securityContext": {},
                    }],
                    "volumes": [{"name": "scratch", "emptyDir": {}}],
                },
            },
        },
    })
}

/// Returns the fields that a take-over must not change.
fn content(object: &DynamicObject) -> (Option<String>, Option<i64>, Value) {
    (object.uid(), object.metadata.generation, object.data["spec"].clone())
}

async fn install_workload(story: &Story, manager: &str, object: &Value) -> Result<(Identity, DynamicObject)> {
    let id = Identity::new("apps", "Deployment", Some(&story.namespace), "d");
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let mapping = kinds.preferred(&id.group_kind()).context("Deployments")?;
    let mut object = object.clone();
    object["metadata"]["annotations"][RELEASE_NAME_ANNOTATION] = "shop".into();
    let params = PostParams { field_manager: Some(manager.into()), ..PostParams::default() };
    let api = mapping.api(&story.cluster.client, Some(&story.namespace));
    let made = api.create(&params, &serde_json::from_value(object)?).await?;
    Ok((id, made))
}

/// Waits until the controllers have observed the Deployment and created its ReplicaSet, so that they write no more:
/// a write between a read and a patch is a conflict, which callers retry.
async fn settled(story: &Story, id: &Identity) -> Result<DynamicObject> {
    testbed::until("the Deployment is observed", super::story::EVENT_TIMEOUT, || async {
        let live = story.live(id).await?.context("the Deployment")?;
        let status = &live.data["status"];
        let observed = status["observedGeneration"].as_i64() == live.metadata.generation;
        let made = status["replicas"].as_i64() == live.data["spec"]["replicas"].as_i64();
        Ok((observed && made && status["conditions"].is_array()).then_some(live))
    })
    .await
}

#[tokio::test]
async fn an_object_equal_to_the_set_is_adopted_without_a_change() -> Result<()> {
    let mut story = Story::begin("equal").await?;
    let object = workload("example.org/a:1", "x");
    let (id, _) = install_workload(&story, "helm", &object).await?;
    let before = settled(&story, &id).await?;
    story.foreign = ForeignObjectPolicy::KeepContent;
    let applied = story.apply(&object.to_string()).await?;
    assert!(matches!(outcome(&applied, "d"), Outcome::Applied { created: false, .. }), "{applied:?}");
    let after = story.live(&id).await?.context("the Deployment")?;
    assert_eq!(content(&after), content(&before));
    assert_eq!(after.labels()[OWNER_LABEL], story.ownership.owner);
    assert_eq!(story.inventory.left_as_is().count(), 0);
    assert!(matches!(outcome(&story.apply(&object.to_string()).await?, "d"), Outcome::Unchanged));
    Ok(())
}

#[tokio::test]
async fn different_content_stays_until_the_set_changes() -> Result<()> {
    let mut story = Story::begin("differs").await?;
    let mut theirs = workload("example.org/a:1", "x");
    theirs["spec"]["minReadySeconds"] = 7.into();
    let (id, _) = install_workload(&story, "helm", &theirs).await?;
    let before = settled(&story, &id).await?;

    story.foreign = ForeignObjectPolicy::KeepContent;
    let wished = workload("example.org/a:2", "x");
    for _ in 0..2 {
        let applied = story.apply(&wished.to_string()).await?;
        assert!(matches!(outcome(&applied, "d"), Outcome::AsIs { .. }), "{applied:?}");
        let after = story.live(&id).await?.context("the Deployment")?;
        assert_eq!(content(&after), content(&before));
        assert_eq!(after.labels()[OWNER_LABEL], story.ownership.owner);
    }
    assert_eq!(story.inventory.left_as_is().collect::<Vec<_>>(), [&id]);

    story.foreign = ForeignObjectPolicy::Apply;
    story.apply(&wished.to_string()).await?;
    let after = story.live(&id).await?.context("the Deployment")?;
    let image = &after.data["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!((image, &after.data["spec"]["minReadySeconds"]), (&json!("example.org/a:2"), &Value::Null));
    assert_eq!(story.inventory.left_as_is().count(), 0);
    Ok(())
}

#[tokio::test]
async fn leftovers_are_pruned_only_if_they_belong_to_the_release() -> Result<()> {
    let mut story = Story::begin("left").await?;
    let helms = &formers()[0];
    for name in ["left", "other"] {
        let made = installed(&story, helms, name).await?;
        let uid = if name == "left" { made.uid().context("a uid")? } else { "another".to_owned() };
        let entry = Entry { version: "v1".into(), uid, ..Entry::default() };
        story.inventory.insert(story.config_map(name), entry);
    }
    let applied = story.apply(&config_map("a", "1")).await?;
    let is_shops = |metadata: &_| helm_release(metadata) == Some(("shop", "store"));
    let left = story.config_map("left");
    let unclaimed = story.inventory.clone();
    assert!(
        claim(&story.cluster, &left, unclaimed.get(&left).context("left")?, &story.ownership, &|_| false)
            .await?
            .is_none()
    );
    for name in ["left", "other"] {
        let id = story.config_map(name);
        let entry = unclaimed.get(&id).context("an entry")?;
        let claimed = claim(&story.cluster, &id, entry, &story.ownership, &is_shops).await?;
        assert_eq!(claimed.is_some(), name == "left");
        if let Some(entry) = claimed {
            story.inventory.insert(id, entry);
        }
    }
    story.previous = 2;
    let removal = story.prune(&applied).await??;
    assert_eq!(removal.gone, [left]);
    assert_eq!(removal.kept, [(story.config_map("other"), KeepReason::NotTheSame)].into());
    assert!(story.config_maps().get_opt("left").await?.is_none());
    assert!(story.config_maps().get_opt("other").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn argo_cd_tracking_label_is_removed_while_all_else_stays() -> Result<()> {
    let mut story = Story::begin("by-label").await?;
    story.foreign = ForeignObjectPolicy::KeepContent;
    let wished = |name: &str, instance: Option<&str>| {
        let labels = instance.map_or_else(|| json!({}), |instance| json!({INSTANCE_LABEL: instance}));
        let metadata = json!({"name": name, "labels": labels});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": "2"}})
    };
    let tracked = json!({"labels": {INSTANCE_LABEL: "theirs"}});
    let rows = [
        ("argocd-controller", None, None),
        ("argocd-controller", Some("ours"), Some("ours")),
        ("argocd-controller", Some("theirs"), Some("theirs")),
        ("kubectl", None, Some("theirs")),
        ("kubectl", Some("ours"), Some("theirs")),
    ];
    for on_server in [false, true] {
        for (number, (manager, wanted, expected)) in rows.into_iter().enumerate() {
            let name = format!("m{number}-{on_server}");
            let case = format!("{manager}, {wanted:?}, {on_server}");
            installed(&story, &former(System::Other, manager, on_server, tracked.clone()), &name).await?;
            let applied = story.apply(&wished(&name, wanted).to_string()).await?;
            assert!(matches!(outcome(&applied, &name), Outcome::AsIs { .. }), "{case}: {applied:?}");
            let live = story.config_maps().get(&name).await?;
            assert_eq!(live.labels().get(INSTANCE_LABEL).map(String::as_str), expected, "{case}");
            let data = live.data.clone().unwrap_or_default();
            assert_eq!((data.len(), data["v"].as_str()), (3, "1"), "{case}: {data:?}");
        }
    }
    Ok(())
}
