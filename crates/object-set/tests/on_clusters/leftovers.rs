//! Fields of earlier applies and defaults of the API server that a server-side apply cannot remove.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_object_set::{Identity, NoObservations, Outcome, Refusal};
use serde_json::{Value, json};
use testbed::until;

use super::story::{EVENT_TIMEOUT, Story, outcome};

/// The schema of a CRD of these tests that accepts any fields.
const ANY_OBJECT_SCHEMA: &str = "{type: object, x-kubernetes-preserve-unknown-fields: true}";

async fn live(story: &Story, group: &str, kind: &str) -> Result<Value> {
    let id = Identity::new(group, kind, Some(&story.namespace), "o");
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let api = kinds
        .preferred(&id.group_kind())
        .context("the kind")?
        .api(&story.cluster.client, Some(&story.namespace));
    Ok(serde_json::to_value(api.get("o").await?)?)
}

fn workload(kind: &str, spec: &str, container: &str, volumes: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: o}}\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  {spec}\n  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: x, {container}}}], volumes: {volumes}}}}}\n"
    )
}

#[tokio::test]
async fn defaults_of_another_choice_do_not_block_an_upgrade() -> Result<()> {
    let mounted = "volumeMounts: [{name: v, mountPath: /v}]";
    let probe = |handler: &str| format!("{mounted}, livenessProbe: {{{handler}}}");
    let volume = |source: &str| format!("[{{name: w, emptyDir: {{}}}}, {{name: v, {source}}}]");
    let cases = [
        ("Deployment", ["", "strategy: {type: Recreate}"], ["", ""], ["[]", "[]"]),
        (
            "Deployment",
            ["strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}", "strategy: {type: Recreate}"],
            ["", ""],
            ["[]", "[]"],
        ),
        (
            "StatefulSet",
            ["serviceName: s", "serviceName: s\n  updateStrategy: {type: OnDelete}"],
            ["", ""],
            ["[]", "[]"],
        ),
        ("DaemonSet", ["", "updateStrategy: {type: OnDelete}"], ["", ""], ["[]", "[]"]),
        ("Deployment", ["", ""], ["httpGet: {port: 80}", "tcpSocket: {port: 80}"], ["[]", "[]"]),
        ("Deployment", ["", ""], ["", ""], ["emptyDir: ", "configMap: {name: a}"]),
        ("Deployment", ["", ""], ["", ""], ["secret: {secretName: a}", "configMap: {name: a}"]),
        ("Deployment", ["", ""], ["", ""], ["hostPath: {path: /a}", "projected: {sources: []}"]),
    ];
    let mut story = Story::begin("choices").await?;
    for (kind, specs, probes, volumes) in cases {
        let text = |version: usize| {
            let volumes = if volumes[version] == "[]" {
                "[{name: v, emptyDir: {}}]".to_owned()
            } else {
                volume(volumes[version])
            };
            let container =
                if probes[version].is_empty() { mounted.to_owned() } else { probe(probes[version]) };
            workload(kind, specs[version], &container, &volumes)
        };
        story.apply(&text(0)).await.with_context(|| text(0))?;
        let before = live(&story, "apps", kind).await?;
        story.apply(&text(1)).await.with_context(|| text(1))?;
        let after = live(&story, "apps", kind).await?;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "{}", text(1));
        assert_eq!(story.apply(&text(1)).await?.changed().count(), 0, "{}", text(1));
        let fields = after["metadata"]["managedFields"].to_string();
        assert!(!fields.contains("f:rollingUpdate") || text(1).contains("rollingUpdate"), "{fields}");
        // Applies the first form again.
        story.apply(&text(0)).await.with_context(|| text(0))?;
        story.uninstall_all().await?;
        story.inventory = kyma_object_set::Inventory::new();
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_names_its_cause_and_not_the_defaults_beside_it() -> Result<()> {
    let mut story = Story::begin("cause").await?;
    let text = |strategy: &str, policy: &str| {
        workload("Deployment", strategy, &format!("imagePullPolicy: {policy}"), "[]")
    };
    story.apply(&text("", "Always")).await?;
    let applied = story.try_apply(&text("strategy: {type: Recreate}", "Odd"), &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "o") else { panic!("{applied:?}") };
    let message = error.to_string();
    assert!(message.contains("imagePullPolicy") && !message.contains("rollingUpdate"), "{message}");
    assert!(message.starts_with("applying Deployment"), "{message}");
    story.apply(&text("strategy: {type: Recreate}", "Always")).await?;
    Ok(())
}

#[tokio::test]
async fn maps_and_lists_of_custom_resources_become_empty_and_not_null() -> Result<()> {
    let mut story = Story::begin("empty").await?;
    let group = format!("{}.io", story.namespace);
    let spec = "{type: object, properties: {auto: {type: object, properties: {heal: {type: boolean}}}, \
                free: {type: object, nullable: true, x-kubernetes-preserve-unknown-fields: true}, \
                list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: \
                {type: object, required: [name], properties: {name: {type: string}, opts: {type: object, additionalProperties: {type: string}}}}}}}";
    let crd = super::crds::crd(&group, &["v1"])
        .replace(ANY_OBJECT_SCHEMA, &format!("{{type: object, properties: {{spec: {spec}}}}}"));
    let set = |spec: &str| {
        format!("{crd}---\napiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: o}}\nspec: {spec}\n")
    };
    story.apply(&set("{auto: {heal: true}, free: {a: 1}, list: [{name: a, opts: {k: v}}]}")).await?;
    story.apply(&set("{auto: {}, free: {}, list: [{name: a, opts: {}}]}")).await?;
    let spec = live(&story, &group, "Thing").await?["spec"].clone();
    assert_eq!(spec, json!({"auto": {}, "free": {}, "list": [{"name": "a", "opts": {}}]}));
    story.apply(&set("{auto: {heal: false}, list: []}")).await?;
    let spec = live(&story, &group, "Thing").await?["spec"].clone();
    assert_eq!(spec, json!({"auto": {"heal": false}, "list": []}));
    // Null for a field that cannot be null means that the field is absent, as in a merge patch of Helm.
    story.apply(&set("{auto: null}")).await?;
    assert_eq!(live(&story, &group, "Thing").await?["spec"].get("auto"), None);
    Ok(())
}

#[tokio::test]
async fn a_map_becomes_empty_although_its_object_changed_meanwhile() -> Result<()> {
    let mut story = Story::begin("empty-race").await?;
    let group = format!("{}.io", story.namespace);
    let auto = "{type: object, properties: {heal: {type: boolean}}}";
    let spec = format!("{{type: object, properties: {{auto: {auto}}}}}");
    let crd = super::crds::crd(&group, &["v1"])
        .replace(ANY_OBJECT_SCHEMA, &format!("{{type: object, properties: {{spec: {spec}}}}}"));
    let set = |spec: &str| {
        format!("{crd}---\napiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: o}}\nspec: {spec}\n")
    };
    story.apply(&set("{auto: {heal: true}}")).await?;
    let thing = Identity::new(&group, "Thing", Some(&story.namespace), "o");
    let (_proxy, left) = story.annotate_meanwhile(&thing, 1).await?;
    let applied = story.try_apply(&set("{auto: {}}"), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "o"), Outcome::Applied { created: false, .. }), "{applied:?}");
    assert_eq!(left.load(Ordering::Relaxed), 0);
    assert_eq!(live(&story, &group, "Thing").await?["spec"], json!({"auto": {}}));
    Ok(())
}

#[tokio::test]
async fn services_change_their_type_and_back() -> Result<()> {
    let mut story = Story::begin("types").await?;
    let cases = [
        ["type: LoadBalancer, externalTrafficPolicy: Local", "type: ClusterIP"],
        ["type: NodePort", "type: ClusterIP"],
        ["type: ClusterIP, sessionAffinity: ClientIP", "type: ClusterIP"],
        ["type: ClusterIP", "type: ExternalName, externalName: example.org"],
        ["clusterIP: None", "clusterIP: None, publishNotReadyAddresses: true"],
    ];
    for [first, second] in cases {
        let text = |more: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: o}}\nspec: {{selector: {{a: b}}, ports: [{{port: 80}}], {more}}}\n"
            )
        };
        story.apply(&text(first)).await.with_context(|| first.to_owned())?;
        let uid = live(&story, "", "Service").await?["metadata"]["uid"].clone();
        for more in [second, first] {
            story.apply(&text(more)).await.with_context(|| format!("{first} / {more}"))?;
            assert_eq!(live(&story, "", "Service").await?["metadata"]["uid"], uid, "{more}");
            assert_eq!(story.apply(&text(more)).await?.changed().count(), 0, "{more}");
        }
        story.uninstall_all().await?;
        story.inventory = kyma_object_set::Inventory::new();
    }
    Ok(())
}

#[tokio::test]
async fn egress_rules_of_network_policy_count_from_the_next_version() -> Result<()> {
    let mut story = Story::begin("egress").await?;
    let policy = |rules: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: o}}\nspec: {{podSelector: {{}}, {rules}}}\n"
        )
    };
    for (rules, types) in [
        ("ingress: [{}]", json!(["Ingress"])),
        ("ingress: [{}], egress: [{}]", json!(["Ingress", "Egress"])),
        ("egress: [], ingress: [{}]", json!(["Ingress"])),
    ] {
        story.apply(&policy(rules)).await?;
        let live = live(&story, "networking.k8s.io", "NetworkPolicy").await?;
        assert_eq!(live["spec"]["policyTypes"], types, "{rules}");
    }
    Ok(())
}

#[tokio::test]
async fn a_claim_that_a_user_enlarged_keeps_its_size() -> Result<()> {
    let mut story = Story::begin("larger").await?;
    let class = story.namespace.clone();
    let text = |size: &str, label: &str| {
        format!(
            "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {class}}}\nprovisioner: none.example.org\nallowVolumeExpansion: true\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: o, labels: {{l: {label}}}}}\nspec: {{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}\n"
        )
    };
    story.apply(&text("1Gi", "a")).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
    let params = PatchParams::default();
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    claims.patch_status("o", &params, &Patch::Merge(bound)).await?;
    let larger = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    // Admission refuses this until the API server has noticed the new class.
    until("the claim is enlarged", EVENT_TIMEOUT, || async {
        match claims.patch("o", &params, &larger).await {
            Ok(_) => Ok(Some(())),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    for (size, label, expected) in [("1Gi", "a", "2Gi"), ("1Gi", "b", "2Gi"), ("3Gi", "b", "3Gi")] {
        story.apply(&text(size, label)).await.with_context(|| format!("{size} {label}"))?;
        let live = live(&story, "", "PersistentVolumeClaim").await?;
        assert_eq!(live["spec"]["resources"]["requests"]["storage"], expected);
        assert_eq!(live["metadata"]["labels"]["l"], label);
        assert_eq!(story.apply(&text(size, label)).await?.changed().count(), 0, "{size} {label}");
    }
    Ok(())
}
