//! Properties of the CRDs.

use std::time::Duration;

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use testbed::until;

use crate::clusters::{self, TEST_ENV, call, our_crds};

/// Returns every schema in a CRD with its path, from the root down.
fn schemas(crd: &Value) -> Vec<(String, &Value)> {
    fn walk<'a>(path: String, schema: &'a Value, found: &mut Vec<(String, &'a Value)>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(format!("{path}.{name}"), property, found);
        }
        if let Some(items) = schema.get("items") {
            walk(format!("{path}[]"), items, found);
        }
        if let Some(values) = schema.get("additionalProperties") {
            walk(format!("{path}{{}}"), values, found);
        }
        found.push((path, schema));
    }
    let mut found = vec![];
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
        walk(kind.to_owned(), &version["schema"]["openAPIV3Schema"], &mut found);
    }
    found
}

#[test]
fn kubectl_explain_has_words_for_every_field() {
    for crd in our_crds() {
        for (path, schema) in schemas(&crd) {
            // Items of a list of strings are described by the list.
            if path.ends_with("[]") || path.ends_with("{}") {
                continue;
            }
            let words = schema["description"].as_str().unwrap_or_default();
            assert!(words.len() > 3 && !words.contains("Auto-generated"), "{path}: {words:?}");
            assert!(!words.contains("[`"), "{path} links to Rust: {words}");
        }
    }
}

#[test]
fn schemas_keep_to_what_every_supported_kubernetes_knows() {
    for crd in our_crds() {
        for (path, schema) in schemas(&crd) {
            assert!(schema.get("nullable").is_none(), "{path} stores null");
            for word in ["oneOf", "allOf", "not", "title"] {
                assert!(schema.get(word).is_none(), "{path} has {word}");
            }
            // A structural schema may have alternatives for formats, but not for pruning or defaults.
            for choice in schema["anyOf"].as_array().into_iter().flatten() {
                let words: Vec<&String> =
                    choice.as_object().into_iter().flatten().map(|(word, _)| word).collect();
                assert_eq!(words, ["format"], "{path} has anyOf");
            }
            let format = schema["format"].as_str().unwrap_or("int64");
            assert!(["int32", "int64", "date-time", "uri"].contains(&format), "{path} has format {format}");
            if schema.get("x-kubernetes-preserve-unknown-fields").is_some()
                && !path.chars().all(char::is_alphabetic)
            {
                assert_eq!(schema["x-kubernetes-map-type"], "atomic", "{path}");
            }
        }
    }
}

#[test]
fn condition_lists_with_several_writers_are_maps_by_type() {
    for crd in our_crds() {
        for (path, schema) in schemas(&crd).into_iter().filter(|(path, _)| path.ends_with(".conditions")) {
            let of_one = path == "HelmComponent.status.conditions";
            assert_eq!(schema["x-kubernetes-list-type"], if of_one { "atomic" } else { "map" }, "{path}");
            let keys = if of_one { json!(null) } else { json!(["type"]) };
            assert_eq!(schema["x-kubernetes-list-map-keys"], keys, "{path}");
        }
    }
}

#[test]
fn the_inventory_is_one_field_to_managed_fields() {
    let crd = our_crds().into_iter().find(|crd| crd["spec"]["names"]["kind"] == "HelmComponent").unwrap();
    let schemas = schemas(&crd);
    for field in ["inventory", "objects"] {
        let path = format!("HelmComponent.status.{field}");
        let (_, inventory) = schemas.iter().find(|(found, _)| *found == path).unwrap();
        assert_eq!(inventory["x-kubernetes-list-type"], "atomic");
    }
}

#[tokio::test]
async fn the_api_server_accepts_all_crds_without_warning_or_change() -> Result<()> {
    let client = clusters::ours().await?;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let generations = async || -> Result<Vec<Value>> {
        let list = call(&client, Method::GET, path, None).await?.ok()?.body;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        Ok(items.iter().map(|crd| crd["metadata"]["generation"].clone()).collect())
    };
    let before = generations().await?;
    assert_eq!(before.len(), our_crds().len());
    clusters::install(&client, our_crds()).await?;
    assert_eq!(generations().await?, before);
    Ok(())
}

#[tokio::test]
async fn hub_with_former_klm_version_accepts_crds_and_keeps_objects() -> Result<()> {
    let what = "our CRDs over KLM's former version";
    let Some(klm) = clusters::klm_crds(what)? else {
        return Ok(());
    };
    let client = TEST_ENV.cluster("former", |cluster| cluster).await?.client()?;
    let mut former = klm.clone();
    former.retain(|crd| crd["spec"]["names"]["kind"] == "Kyma");
    for version in former[0]["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let is_former = version["name"] == "v1beta1";
        version["served"] = json!(true);
        version["storage"] = json!(is_former);
    }
    clusters::install(&client, former).await?;
    let kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta1", "kind": "Kyma",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": {"channel": "regular", "modules": [{"name": "keda"}]},
    });
    let old = clusters::collection(&kyma).unwrap_or_default();
    clusters::ensure_namespace(&client, "default").await?;
    call(&client, Method::POST, &old, Some(&kyma)).await?.ok()?;

    clusters::install(&client, klm).await?;
    clusters::install(&client, our_crds()).await?;

    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kymas.operator.kyma-project.io";
    let crd = call(&client, Method::GET, path, None).await?.ok()?.body;
    assert_eq!(crd["status"]["storedVersions"], json!(["v1beta1", "v1beta2"]));
    // An API server serves a changed CRD some time after it stores the change.
    until("the former version is served no more", Duration::from_mins(1), || async {
        let code = call(&client, Method::GET, &format!("{old}/old"), None).await?.code;
        Ok((code == 404).then_some(()))
    })
    .await?;
    let new = format!("{}/old", old.replace("v1beta1", "v1beta2"));
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let kept = call(&client, Method::PATCH, &new, Some(&labels)).await?.ok()?.body;
    assert_eq!(kept["spec"]["modules"][0]["name"], "keda");
    Ok(())
}

#[tokio::test]
async fn template_applied_under_klm_crds_applies_under_own_crds_too() -> Result<()> {
    let Some(klm) = clusters::klm_crds("templates applied under KLM's CRDs")? else {
        return Ok(());
    };
    let client = TEST_ENV.cluster("replaced", |cluster| cluster).await?.client()?;
    clusters::ensure_namespace(&client, "default").await?;
    clusters::install(&client, klm).await?;
    let template = |field: &str| {
        let data = json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "default"}, field: 1});
        json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": {"name": "keda-1.2.3", "namespace": "default"},
            "spec": {"moduleName": "keda", "version": "1.2.3", "data": data, "descriptor": {"a": {"b": 1}}},
        })
    };
    let path = format!("{}/keda-1.2.3", clusters::collection(&template("first")).unwrap_or_default());
    clusters::apply(&client, &path, &template("first")).await?.ok()?;

    clusters::install(&client, our_crds()).await?;

    let are_atomic = |stored: &Value| {
        let fields = &stored["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
        fields["f:data"] == json!({}) && fields["f:descriptor"] == json!({})
    };
    // An API server serves a changed CRD some time after it stores the change.
    until("the fields are atomic", Duration::from_mins(1), || async {
        let applied = clusters::dry_run_apply(&client, &path, &template("second")).await?.ok()?;
        Ok(are_atomic(&applied.body).then_some(()))
    })
    .await?;
    // The fields were tracked one by one and are atomic now: no part of the former object may remain.
    let stored = clusters::apply(&client, &path, &template("second")).await?.ok()?.body;
    assert_eq!(stored["spec"], template("second")["spec"]);
    assert!(are_atomic(&stored), "{stored}");
    Ok(())
}
