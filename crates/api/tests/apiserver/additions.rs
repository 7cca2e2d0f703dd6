//! Inputs that the schemas accept and refuse beyond KLM's.

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};

use crate::{
    clusters::{self, call, collection},
    rules::{accepts, kyma, object, release_meta, template},
};

fn component(spec: &Value) -> Value {
    object("component.kyma-project.io/v1alpha1", "HelmComponent", spec)
}

async fn check(table: Vec<(Value, bool)>) -> Result<()> {
    let ours = clusters::ours().await?;
    clusters::ensure_namespace(&ours, "default").await?;
    for (object, accepted) in table {
        assert_eq!(accepts(&ours, &object).await?, accepted, "{object}");
    }
    Ok(())
}

#[tokio::test]
async fn versions_may_join_or_replace_channels_but_not_mandatory() -> Result<()> {
    let channels = json!([{"channel": "regular", "version": "1.2.3"}]);
    let deprecated =
        |date: &str| release_meta(&json!({"versions": [{"version": "1.2.3", "deprecationDate": date}]}));
    let pause = |until: &str| object("operator.kyma-project.io/v1alpha1", "Pause", &json!({"until": until}));
    let versions =
        json!([{"version": "1.2.3"}, {"version": "1.2.4", "deprecationDate": "2026-01-01T00:00:00Z"}]);
    check(vec![
        (release_meta(&json!({"versions": versions})), true),
        (release_meta(&json!({"versions": versions, "channels": channels})), true),
        (release_meta(&json!({"versions": versions, "mandatory": {"version": "1.2.3"}})), false),
        (deprecated("2024-09-09"), true),
        (deprecated("2024-09-09T12:00:00+02:00"), true),
        (deprecated("2024-13-09"), false),
        (deprecated("soon"), false),
        (pause("2024-09-09"), true),
        (pause("2024-09-09T00:00:00Z"), true),
        (pause("soon"), false),
        (release_meta(&json!({"versions": [{"version": ""}]})), false),
        (release_meta(&json!({"versions": [{"version": "1.2.3"}, {"version": "1.2.3"}]})), false),
    ])
    .await
}

#[tokio::test]
async fn pins_are_versions_that_a_template_can_have() -> Result<()> {
    let pinned = |version: &str| {
        kyma(&json!({"channel": "regular", "modules": [{"name": "keda", "version": version}]}))
    };
    check(vec![
        (pinned("1.2.3"), true),
        (pinned("1.2.3-rc-1"), true),
        (pinned(""), false),
        (pinned("1.2"), false),
        (pinned("1.2.3+a"), false),
    ])
    .await
}

#[tokio::test]
async fn a_component_has_exactly_one_source() -> Result<()> {
    let ocm = json!({"component": "example.org/module/keda", "version": "1.2.3"});
    let oci = json!({"url": "oci://example.org/charts/keda", "version": "1.2.3"});
    let manifests = json!({"url": "https://example.org/a.yaml"});
    let source = |source: Value| component(&json!({"source": source}));
    check(vec![
        (source(json!({"ocm": ocm})), true),
        (source(json!({"chart": oci})), true),
        (source(json!({"manifests": manifests})), true),
        (source(json!({})), false),
        (source(json!({"ocm": ocm, "chart": oci})), false),
        (source(json!({"ocm": ocm, "chart": oci, "manifests": manifests})), false),
        (component(&json!({})), false),
    ])
    .await
}

#[tokio::test]
async fn addresses_of_charts_and_manifests_are_complete() -> Result<()> {
    let digest = format!("sha256:{}", "a".repeat(64));
    let chart = |chart: Value| component(&json!({"source": {"chart": chart}}));
    let manifests = |manifests: Value| component(&json!({"source": {"manifests": manifests}}));
    check(vec![
        (chart(json!({"url": "https://example.org/charts", "name": "keda", "version": "1.2.3"})), true),
        (chart(json!({"url": "https://example.org/charts", "version": "1.2.3"})), false),
        (chart(json!({"url": "oci://example.org/keda", "name": "keda", "version": "1.2.3"})), false),
        (chart(json!({"url": "oci://example.org/keda"})), false),
        (chart(json!({"url": "oci://example.org/keda", "digest": digest})), true),
        (chart(json!({"url": "oci://example.org/keda", "digest": "sha256:abc"})), false),
        (chart(json!({"url": "file:///etc/passwd", "name": "a", "version": "1"})), false),
        (manifests(json!({"url": "oci://example.org/a"})), false),
        (manifests(json!({"url": "oci://example.org/a", "digest": digest})), true),
        (manifests(json!({"url": "example.org/a.yaml"})), false),
    ])
    .await
}

#[tokio::test]
async fn a_dependency_is_a_kind_a_module_or_a_component() -> Result<()> {
    let depends = |one: Value| template(&json!({"dependsOn": [one]}));
    check(vec![
        (depends(json!({"api": {"group": "networking.istio.io", "kind": "VirtualService"}})), true),
        (depends(json!({"module": "istio"})), true),
        (depends(json!({"component": {"name": "db"}, "ready": "status.version == '1'"})), true),
        (depends(json!({"module": "istio", "api": {"kind": "Secret"}})), false),
        (depends(json!({"module": "istio", "component": {"name": "db"}})), false),
        (depends(json!({"api": {"kind": "Secret"}, "ready": "true"})), false),
        (depends(json!({})), false),
    ])
    .await
}

#[tokio::test]
async fn absent_fields_get_safe_defaults() -> Result<()> {
    let client = clusters::ours().await?;
    clusters::ensure_namespace(&client, "default").await?;
    let secret = json!({"kubeconfigSecretRef": {"name": "access"}});
    let source = json!({"manifests": {"url": "https://example.org/a.yaml"}});
    let wish = component(&json!({"target": secret, "source": source}));
    let path = format!("{}?dryRun=All", collection(&wish).unwrap_or_default());
    let stored = call(&client, Method::POST, &path, Some(&wish)).await?.ok()?.body;
    let spec = &stored["spec"];
    assert_eq!(spec["deletionPolicy"], "Orphan");
    assert_eq!(spec["resourcePolicy"], "CreateAndDelete");
    assert_eq!(spec["adopt"], "Unowned");
    assert_eq!(spec["crds"], "CreateReplace");
    assert_eq!(spec["target"]["kubeconfigSecretRef"]["key"], "config");
    assert_eq!(crate::typed::round_trip(&stored)?, stored);
    Ok(())
}

#[tokio::test]
async fn central_configuration_and_pauses_are_stored_as_written() -> Result<()> {
    let client = clusters::ours().await?;
    clusters::ensure_namespace(&client, "default").await?;
    let config = object(
        "operator.kyma-project.io/v1alpha1",
        "ModuleConfig",
        &json!({
            "module": "keda", "selector": {"matchLabels": {"kyma-project.io/region": "eu"}},
            "values": {"replicas": 2, "deep": {"list": [1, {"a": null}]}},
            "rules": [{"expression": "self.managed", "message": "stays managed"}],
            "resourceRules": [{"group": "keda.sh", "resource": "scaledobjects", "expression": "true", "message": "no"}],
            "overrides": {"module": {"channel": "fast"}, "component": {"adopt": "Never"}},
        }),
    );
    let pause = object(
        "operator.kyma-project.io/v1alpha1",
        "Pause",
        &json!({"scope": "Deletes", "reason": "incident", "until": "2026-01-01T00:00:00Z"}),
    );
    for wish in [config, pause] {
        let path = format!("{}?dryRun=All", collection(&wish).unwrap_or_default());
        let stored = call(&client, Method::POST, &path, Some(&wish)).await?.ok()?.body;
        assert_eq!(stored["spec"], wish["spec"]);
        assert_eq!(crate::typed::round_trip(&stored)?, stored);
    }
    Ok(())
}

#[tokio::test]
async fn rules_on_objects_are_about_a_modules_own_kinds() -> Result<()> {
    let client = clusters::ours().await?;
    clusters::ensure_namespace(&client, "default").await?;
    let rows = [
        ("keda.sh", "scaledobjects", true),
        ("operator.kyma-project.io", "serverlesses", true),
        ("operator.kyma-project.io", "kymas", false),
        ("rbac.authorization.k8s.io", "clusterroles", false),
        ("apps", "deployments", false),
        ("", "pods", false),
        ("keda.sh", "scaledobjects/status", false),
        ("keda.sh", "*", false),
    ];
    for (group, resource, accepted) in rows {
        let rule = json!({"group": group, "resource": resource, "expression": "true", "message": "no"});
        let spec = json!({"module": "keda", "resourceRules": [rule]});
        let config = object("operator.kyma-project.io/v1alpha1", "ModuleConfig", &spec);
        assert_eq!(accepts(&client, &config).await?, accepted, "{group} {resource}");
    }
    Ok(())
}
