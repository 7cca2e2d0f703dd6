//! The admission policies in `deploy/policies`, including their effect on objects that existed before.

use std::cell::Cell;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use testbed::{Cluster, until};

use crate::{
    clusters::{self, Reply, TEST_ENV, apply, call, collection},
    inputs,
};

fn template(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn of_version(name: &str) -> Value {
    template(name, &json!({"moduleName": "keda", "version": "1.2.3", "descriptor": {"a": [1, 1.5, null]}}))
}

async fn create(client: &Client, object: &Value) -> Result<Reply> {
    call(client, Method::POST, &collection(object).unwrap_or_default(), Some(object)).await
}

fn release(name: &str, version: &str) -> Value {
    let channels = json!([{"channel": "regular", "version": version}]);
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"moduleName": name, "channels": channels},
    })
}

fn mandatory(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"moduleName": name, "mandatory": {"version": version}},
    })
}

fn watcher() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {"name": "told", "namespace": "default"},
        "spec": {
            "serviceInfo": {"name": "events", "namespace": "default", "port": 8080},
            "resourceToWatch": {"group": "x.io", "version": "v1", "resource": "xs"},
            "field": "spec", "gateway": {"selector": {"matchLabels": {"a": "b"}}},
        },
    })
}

async fn patch(client: &Client, name: &str, change: &Value) -> Result<Reply> {
    let path = collection(&template(name, &Value::Null)).unwrap_or_default();
    call(client, Method::PATCH, &format!("{path}/{name}"), Some(change)).await
}

fn deployed(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

async fn apply_file(client: &Client, file: &Path) -> Result<()> {
    for document in inputs::documents(file)? {
        let object = document.object;
        let collection = match object["kind"].as_str().unwrap_or_default() {
            "ValidatingAdmissionPolicy" => "admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding" => {
                "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
            }
            "ClusterRole" => "rbac.authorization.k8s.io/v1/clusterroles",
            other => anyhow::bail!("{other} is not expected here"),
        };
        let name = object["metadata"]["name"].as_str().context("no name")?;
        let reply = apply(client, &format!("/apis/{collection}/{name}"), &object).await?.ok()?;
        assert_eq!(reply.warnings, Vec::<String>::new(), "{name}");
    }
    Ok(())
}

/// Applies the shipped policies and waits until the apiserver enforces each of them that the tests need: it reads them
/// in turn.
async fn install_policies(client: &Client) -> Result<()> {
    for file in inputs::yaml_files(&deployed("policies"))? {
        apply_file(client, &file).await?;
    }
    create(client, &of_version("probe")).await?.ok()?;
    let is_warned = async |object: Value| -> Result<bool> {
        let path = format!("{}?dryRun=All", collection(&object).unwrap_or_default());
        Ok(!call(client, Method::POST, &path, Some(&object)).await?.warnings.is_empty())
    };
    // Each attempt requests another version, so that it is a change even after an earlier attempt was accepted.
    let tries = Cell::new(0);
    until("the policies are in force", Duration::from_mins(1), || async {
        tries.set(tries.get() + 1);
        let warns_of_name = is_warned(of_version("another-probe")).await?;
        let warns_of_watcher = is_warned(watcher()).await?;
        let warns_of_version = is_warned(mandatory("probe", "1.2.0+build")).await?;
        let version = format!("9.9.{}", tries.get());
        let denied = patch(client, "probe", &json!({"spec": {"version": version}})).await?;
        Ok((warns_of_name && warns_of_watcher && warns_of_version && !denied.is_ok()).then_some(()))
    })
    .await?;
    let path = collection(&of_version("probe")).unwrap_or_default();
    call(client, Method::DELETE, &format!("{path}/probe"), None).await?.ok()?;
    Ok(())
}

/// Returns a hub with KLM's CRDs (or this project's without the inputs), then objects, then this project's CRDs and
/// policies.
#[tokio::test]
async fn a_templates_spec_never_changes_and_its_name_is_said() -> Result<()> {
    let client = TEST_ENV.cluster("policies", |cluster| cluster).await?.client()?;
    clusters::ensure_namespace(&client, "default").await?;
    let before = clusters::klm_crds("templates stored under KLM's CRDs")?.unwrap_or_else(clusters::our_crds);
    clusters::install(&client, before).await?;
    let old_style = template("keda-fast", &json!({"channel": "fast", "descriptor": {}, "mandatory": false}));
    let misnamed = of_version("keda-regular");
    for stored_before in [&old_style, &misnamed] {
        create(&client, stored_before).await?.ok()?;
    }
    clusters::install(&client, clusters::our_crds()).await?;
    install_policies(&client).await?;

    stored_objects_take_metadata_but_no_other_spec(&client).await?;
    new_objects_are_named_or_warned(&client).await?;
    a_watcher_causes_a_warning_about_no_effect(&client).await?;
    mandatory_versions_that_no_template_can_have_are_warned(&client).await?;
    a_large_template_can_still_be_labelled(&client).await
}

async fn stored_objects_take_metadata_but_no_other_spec(client: &Client) -> Result<()> {
    for name in ["keda-fast", "keda-regular"] {
        let metadata = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.org/f"]}});
        let reply = patch(client, name, &metadata).await?.ok()?;
        assert_eq!(reply.warnings, Vec::<String>::new(), "{name}");
        let refused = patch(client, name, &json!({"spec": {"descriptor": {"b": 2}}})).await?;
        assert_eq!(refused.code, 422, "{refused:?}");
        assert!(refused.body["message"].to_string().contains("never changes"), "{refused:?}");
        let added = patch(client, name, &json!({"spec": {"requiresDowntime": true}})).await?;
        assert_eq!(added.code, 422, "{added:?}");

        let path = collection(&of_version(name)).unwrap_or_default();
        call(client, Method::DELETE, &format!("{path}/{name}"), None).await?.ok()?;
        let free = patch(client, name, &json!({"metadata": {"finalizers": null}})).await?;
        assert!(free.is_ok(), "a template being deleted gives up its finalizer: {free:?}");
    }
    Ok(())
}

async fn new_objects_are_named_or_warned(client: &Client) -> Result<()> {
    let right = create(client, &of_version("keda-1.2.3")).await?.ok()?;
    assert_eq!(right.warnings, Vec::<String>::new());
    let wrong = create(client, &of_version("keda-latest")).await?.ok()?;
    assert!(wrong.warnings.iter().any(|text| text.contains("keda-1.2.3")), "{:?}", wrong.warnings);
    let old_style = template("keda-slow", &json!({"channel": "slow", "descriptor": {}}));
    assert_eq!(create(client, &old_style).await?.ok()?.warnings, Vec::<String>::new());
    let path = format!("{}/keda-1.2.3", collection(&old_style).unwrap_or_default());
    let same = apply(client, &path, &of_version("keda-1.2.3")).await?;
    assert!(same.is_ok(), "applying the same again is no change: {same:?}");
    Ok(())
}

/// The API server accepts a Watcher, for Kyma Lifecycle Manager, and warns that no operator reads it.
async fn a_watcher_causes_a_warning_about_no_effect(client: &Client) -> Result<()> {
    let reply = create(client, &watcher()).await?.ok()?;
    assert!(reply.warnings.iter().any(|text| text.contains("has no effect")), "{:?}", reply.warnings);
    Ok(())
}

async fn mandatory_versions_that_no_template_can_have_are_warned(client: &Client) -> Result<()> {
    let rows = [
        ("one", "1.2.0", false),
        ("two", "1.2.0-rc01", false),
        ("three", "1.2.0-rc.1", true),
        ("four", "1.2.0-1", true),
        ("five", "1.2.0+build", true),
        ("six", "1.2.0-long-long-long-long-long-long", true),
    ];
    for (name, version, is_warned) in rows {
        let warnings = create(client, &mandatory(name, version)).await?.ok()?.warnings;
        let names_it = warnings.iter().any(|text| text.contains(version));
        assert_eq!((!warnings.is_empty(), names_it), (is_warned, is_warned), "{version}: {warnings:?}");
    }
    Ok(())
}

/// The rule compares whole specs; its cost must not grow beyond what the apiserver allows.
async fn a_large_template_can_still_be_labelled(client: &Client) -> Result<()> {
    let many: Vec<Value> =
        (0..4000).map(|i| json!({"name": format!("entry-{i}"), "text": "x".repeat(200)})).collect();
    let large = template("large-1.0.0", &json!({"descriptor": {"many": many}}));
    assert!(serde_json::to_vec(&large)?.len() > 900_000);
    create(client, &large).await?.ok()?;
    patch(client, "large-1.0.0", &json!({"metadata": {"labels": {"a": "b"}}})).await?.ok()?;
    let refused = patch(client, "large-1.0.0", &json!({"spec": {"mandatory": true}})).await?;
    assert_eq!(refused.code, 422, "{refused:?}");
    Ok(())
}

/// The objects that docs/operator creates for a team.
async fn grant(client: &Client, team: &str, module: &str) -> Result<()> {
    let subjects = json!([{"kind": "ServiceAccount", "name": team, "namespace": "default"}]);
    let own = json!([{
        "apiGroups": ["operator.kyma-project.io"], "resources": ["modules"], "resourceNames": [module],
        "verbs": ["create", "update", "delete"],
    }]);
    let role =
        |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let binding = |name: &str, role: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": "default"}, "roleRef": role, "subjects": subjects})
    };
    let objects = [
        (
            "roles",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": team, "namespace": "default"}, "rules": own}),
        ),
        ("rolebindings", binding("objects", role("ClusterRole", "module-team"))),
        ("rolebindings", binding("module", role("Role", team))),
    ];
    for (plural, object) in objects {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/default/{plural}");
        call(client, Method::POST, &path, Some(&object)).await?.ok()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_module_team_edits_its_own_modules_and_no_others() -> Result<()> {
    let cluster: Cluster = TEST_ENV.cluster("teams", |cluster| cluster).await?;
    let admin = cluster.client()?;
    clusters::ensure_namespace(&admin, "default").await?;
    clusters::install(&admin, clusters::our_crds()).await?;
    apply_file(&admin, &deployed("module-teams.yaml")).await?;
    for object in [release("nats", "1.0.0"), release("keda", "1.0.0"), of_version("keda-1.2.3")] {
        create(&admin, &object).await?.ok()?;
    }
    let team = cluster.service_account("default", "keda-team").await?.client()?;
    grant(&admin, "keda-team", "keda").await?;
    let releases = collection(&release("", "")).unwrap_or_default();
    let moves = |version: &str| json!({"spec": {"channels": [{"channel": "regular", "version": version}]}});
    let change = |module: &str, version: &str| {
        let (team, path, body) = (team.clone(), format!("{releases}/{module}"), moves(version));
        async move { call(&team, Method::PATCH, &path, Some(&body)).await }
    };
    // Each attempt requests other versions, since the policy ignores an update that changes nothing.
    let tries = Cell::new(0);
    until("the policy and the roles are in force", Duration::from_mins(1), || async {
        tries.set(tries.get() + 1);
        let number = tries.get();
        let is_bound = change("keda", &format!("1.1.{number}")).await?.is_ok();
        let is_limited = is_bound && change("nats", &format!("6.6.{number}")).await?.code == 403;
        // The API server may know the policy before the role that the policy looks for.
        Ok((is_limited && change("keda", &format!("1.2.{number}")).await?.is_ok()).then_some(()))
    })
    .await?;
    let unnamed = template("nats-9.9.9", &json!({"descriptor": {}}));
    let other = template("nats-1.0.1", &json!({"moduleName": "nats", "version": "1.0.1", "descriptor": {}}));
    for refused in [&unnamed, &other, &release("otel", "1.0.0")] {
        let reply = create(&team, refused).await?;
        assert_eq!(reply.code, 403, "{reply:?}");
        assert!(reply.body["message"].to_string().contains("modules.operator.kyma-project.io"), "{reply:?}");
    }
    let label = json!({"metadata": {"labels": {"operator.kyma-project.io/beta": "true"}}});
    let own = template("keda-1.3.0", &json!({"moduleName": "keda", "version": "1.3.0", "descriptor": {}}));
    create(&team, &own).await?.ok()?;
    patch(&team, "keda-1.2.3", &label).await?.ok()?;
    let templates = collection(&own).unwrap_or_default();
    call(&team, Method::DELETE, &format!("{templates}/keda-1.2.3"), None).await?.ok()?;
    let gone = call(&team, Method::DELETE, &format!("{releases}/nats"), None).await?;
    assert_eq!(gone.code, 403, "{gone:?}");
    let finalizer = json!({"metadata": {"finalizers": ["example.org/f"]}});
    call(&team, Method::PATCH, &format!("{releases}/nats"), Some(&finalizer)).await?.ok()?;
    // The garbage collector would delete the release meta.
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent"});
    let with_owner = json!({"metadata": {"ownerReferences": [owner]}});
    let refused = call(&team, Method::PATCH, &format!("{releases}/nats"), Some(&with_owner)).await?;
    assert_eq!(refused.code, 403, "{refused:?}");
    // Neither team takes over another team's template or gives one away, even where specs may change.
    let foreign =
        template("nats-1.0.0", &json!({"moduleName": "nats", "version": "1.0.0", "descriptor": {}}));
    create(&admin, &foreign).await?.ok()?;
    for (name, module) in [("nats-1.0.0", "keda"), ("keda-1.3.0", "nats")] {
        let refused = patch(&team, name, &json!({"spec": {"moduleName": module}})).await?;
        assert_eq!(refused.code, 403, "{refused:?}");
    }
    change("keda", "1.3.0").await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn a_release_cannot_name_another_module() -> Result<()> {
    let cluster: Cluster = TEST_ENV.cluster("release-names", |cluster| cluster).await?;
    let admin = cluster.client()?;
    clusters::ensure_namespace(&admin, "default").await?;
    clusters::install(&admin, clusters::our_crds()).await?;
    let named = |name: &str, module: &str| {
        let mut object = release(name, "1.0.0");
        object["spec"]["moduleName"] = json!(module);
        object
    };
    create(&admin, &named("stored", "nats")).await?.ok()?;
    apply_file(&admin, &deployed("policies/modulereleasemeta-naming.yaml")).await?;
    let number = Cell::new(0);
    until("the policy is in force", Duration::from_mins(1), || async {
        number.set(number.get() + 1);
        let reply = create(&admin, &named(&format!("other-{}", number.get()), "nats")).await?;
        Ok(reply.body["message"].to_string().contains("identifies the module").then_some(()))
    })
    .await?;
    create(&admin, &release("keda", "1.0.0")).await?.ok()?;
    let releases = collection(&release("", "")).unwrap_or_default();
    let change = |name: &'static str, body: Value| {
        let (admin, path) = (admin.clone(), format!("{releases}/{name}"));
        async move { call(&admin, Method::PATCH, &path, Some(&body)).await }
    };
    let moved = change("keda", json!({"spec": {"moduleName": "nats"}})).await?;
    assert_eq!(moved.code, 422, "{moved:?}");
    change("stored", json!({"metadata": {"finalizers": ["example.org/f"]}})).await?.ok()?;
    change("stored", json!({"metadata": {"finalizers": null}})).await?.ok()?;
    change("keda", json!({"spec": {"channels": [{"channel": "regular", "version": "1.1.0"}]}}))
        .await?
        .ok()?;
    Ok(())
}
