//! Fields that an apply writes, and fields that it leaves alone.

use anyhow::Result;
use kyma_object_set::{Identity, OWNER_LABEL, Outcome, drift};
use serde_json::json;

use super::story::{MANAGER, Story, config_map, outcome};

#[tokio::test]
async fn objects_carry_the_owner_and_one_manager() -> Result<()> {
    let mut story = Story::begin("ownership").await?;
    let applied = story.apply(&config_map("a", "1")).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: true, .. }));
    let live = story.config_maps().get("a").await?;
    assert_eq!(live.metadata.labels.unwrap()[OWNER_LABEL], story.ownership.owner);
    let managers: Vec<_> = live
        .metadata
        .managed_fields
        .unwrap()
        .into_iter()
        .map(|f| (f.manager.unwrap(), f.operation.unwrap()))
        .collect();
    assert_eq!(managers, [(MANAGER.to_owned(), "Apply".to_owned())]);
    let entry = story.inventory.get(&story.config_map("a")).unwrap();
    assert_eq!(Some(entry.uid.as_str()), live.metadata.uid.as_deref());
    assert_eq!((entry.hash.len(), entry.fingerprint.len(), entry.created), (16, 16, true));
    Ok(())
}

#[tokio::test]
async fn a_second_apply_of_the_same_set_writes_nothing() -> Result<()> {
    let mut story = Story::begin("noop").await?;
    let text = format!("{}{}", config_map("a", "1"), config_map("b", "1"));
    story.apply(&text).await?;
    let before = story.config_maps().get("a").await?.metadata.resource_version;
    let inventory = story.inventory.clone();
    let applied = story.apply(&text).await?;
    assert_eq!(applied.changed().count(), 0);
    assert_eq!(story.inventory, inventory);
    assert_eq!(story.config_maps().get("a").await?.metadata.resource_version, before);
    Ok(())
}

#[tokio::test]
async fn fields_missing_in_a_new_version_are_removed_except_others() -> Result<()> {
    let mut story = Story::begin("fields").await?;
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    story.apply(&format!("{head}data: {{ours: '1', old: '1'}}\n")).await?;
    story.edit("a", json!({"data": {"theirs": "1"}})).await?;
    story.apply(&format!("{head}data: {{ours: '2'}}\n")).await?;
    let data = story.config_maps().get("a").await?.data.unwrap();
    assert_eq!(data, [("ours".to_owned(), "2".to_owned()), ("theirs".to_owned(), "1".to_owned())].into());
    Ok(())
}

#[tokio::test]
async fn namespaces_are_filled_in_by_scope() -> Result<()> {
    let mut story = Story::begin("scope").await?;
    let role = format!("{}-role", story.namespace);
    let text = format!(
        "{}---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {role}, namespace: superfluous}}\nrules: []\n",
        config_map("a", "1")
    );
    let applied = story.apply(&text).await?;
    let identities = applied.identities();
    assert!(identities.contains(&story.config_map("a")));
    assert!(identities.contains(&Identity::new("rbac.authorization.k8s.io", "ClusterRole", None, &role)));
    assert!(story.uninstall_all().await?.kept.is_empty());
    Ok(())
}

#[tokio::test]
async fn secret_string_data_and_workload_defaults_do_not_drift() -> Result<()> {
    let mut story = Story::begin("defaults").await?;
    let text = r"
apiVersion: v1
kind: Secret
metadata: {name: s, creationTimestamp: null}
stringData: {k: v}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {creationTimestamp: null, labels: {app: d}}
    spec:
      containers:
      - name: c
        image: x
        env: [{name: A, value: '1'}, {name: A, value: '2'}]
        ports: [{containerPort: 53}, {containerPort: 53, protocol: UDP}]
        resources: {limits: {cpu: 1000m, memory: 1Gi}}
status: {}
---
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {selector: {app: d}, ports: [{port: 53, name: a}, {port: 53, protocol: UDP, name: b}]}
";
    let applied = story.apply(text).await?;
    assert_eq!(applied.warnings.len(), 1, "{:?}", applied.warnings);
    let applied = story.apply(text).await?;
    assert_eq!(applied.changed().count(), 0, "{:?}", applied.outcomes);
    let deployment =
        story.live(&Identity::new("apps", "Deployment", Some(&story.namespace), "d")).await?.unwrap();
    let entry =
        story.inventory.get(&Identity::new("apps", "Deployment", Some(&story.namespace), "d")).unwrap();
    assert_eq!(entry.fingerprint, drift::fingerprint(&deployment.metadata, MANAGER));
    assert_eq!(deployment.data["spec"]["template"]["metadata"]["labels"], json!({"app": "d"}));
    Ok(())
}
