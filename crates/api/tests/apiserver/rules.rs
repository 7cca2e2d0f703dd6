//! Inputs that the schemas accept and refuse. Numbers are those of KLM's integration tests.

use anyhow::{Result, ensure};
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use crate::clusters::{self, call, collection};

pub(crate) fn kyma(spec: &Value) -> Value {
    object("operator.kyma-project.io/v1beta2", "Kyma", spec)
}

pub(crate) fn template(fields: &Value) -> Value {
    let mut spec = json!({"descriptor": {}});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    object("operator.kyma-project.io/v1beta2", "ModuleTemplate", &spec)
}

pub(crate) fn release_meta(fields: &Value) -> Value {
    let mut spec = json!({"moduleName": "keda"});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    object("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta", &spec)
}

pub(crate) fn object(api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "probe", "namespace": "default"}, "spec": spec,
    })
}

/// Returns whether the apiserver would store the object; a status other than 2xx and 422 is an error.
pub(crate) async fn accepts(client: &Client, object: &Value) -> Result<bool> {
    let path = format!("{}?dryRun=All", collection(object).unwrap_or_default());
    let reply = call(client, Method::POST, &path, Some(object)).await?;
    ensure!(reply.is_ok() || reply.code == 422, "{reply:?}");
    Ok(reply.is_ok())
}

/// Checks a table on the CRDs of this project, and on KLM's if the inputs exist.
async fn check_like_klm(what: &str, table: Vec<(Value, bool)>) -> Result<()> {
    let klm = clusters::klm(what).await?;
    let ours = clusters::ours().await?;
    for client in klm.iter().chain([&ours]) {
        clusters::ensure_namespace(client, "default").await?;
    }
    for (object, accepted) in table {
        if let Some(klm) = &klm {
            assert_eq!(accepts(klm, &object).await?, accepted, "KLM: {object}");
        }
        assert_eq!(accepts(&ours, &object).await?, accepted, "{object}");
    }
    Ok(())
}

#[tokio::test]
async fn i47_to_i55_channels() -> Result<()> {
    let mut table = vec![];
    for (channel, accepted) in [
        ("fast", true),
        ("abc", true),
        ("rapid-fire", false),
        ("Fast", false),
        ("fast1", false),
        ("ab", false),
        ("", false),
        (&"a".repeat(32), true),
        (&"a".repeat(33), false),
    ] {
        table.push((kyma(&json!({"channel": channel})), accepted));
        let module = json!({"name": "keda", "channel": channel});
        table.push((kyma(&json!({"channel": "regular", "modules": [module]})), accepted));
        let assigned = json!({"channel": channel, "version": "1.2.3"});
        table.push((release_meta(&json!({"channels": [assigned]})), accepted));
    }
    table.push((kyma(&json!({})), false));
    check_like_klm("KLM's answers to channels", table).await
}

#[tokio::test]
async fn i129_to_i134_ocm_component_names() -> Result<()> {
    let names = [
        ("kyma-project.io/module/keda", true),
        ("example.org/a_b.c/d", true),
        ("kyma-project.io", false),
        ("kyma-project/module", false),
        ("kyma-project.io/Module", false),
        ("kyma-project.io/mod!ule", false),
        ("", false),
    ];
    let channels = json!([{"channel": "regular", "version": "1.2.3"}]);
    let mut table = vec![(release_meta(&json!({"channels": channels})), true)];
    for (name, accepted) in names {
        table.push((release_meta(&json!({"channels": channels, "ocmComponentName": name})), accepted));
    }
    check_like_klm("KLM's answers to OCM component names", table).await
}

#[tokio::test]
async fn i135_to_i138_channels_and_mandatory_exclude_each_other() -> Result<()> {
    let channels = json!([{"channel": "regular", "version": "1.2.3"}]);
    let mandatory = json!({"version": "1.2.3"});
    let table = vec![
        (release_meta(&json!({"mandatory": mandatory})), true),
        (release_meta(&json!({"channels": channels})), true),
        (release_meta(&json!({"channels": []})), true),
        (release_meta(&json!({"channels": channels, "mandatory": mandatory})), false),
        (release_meta(&json!({})), false),
    ];
    check_like_klm("KLM's answers to channels beside mandatory", table).await
}

#[tokio::test]
async fn i139_to_i153_mandatory_versions() -> Result<()> {
    let versions = [
        ("1.2.3", true),
        ("1.2.3-rc.1", true),
        ("1.2.3+build.5", true),
        ("1.2.3-rc.1+build.5", true),
        ("1.2.3-alpha-a.b-c.0.x", true),
        ("", false),
        ("1", false),
        ("1.2", false),
        ("01.2.3", false),
        ("1.02.3", false),
        ("1.2.03", false),
        ("1.2.3-r_c", false),
        ("v1.2.3", false),
        ("1.2.3.", false),
        ("1..2.3", false),
    ];
    let table = versions
        .map(|(version, accepted)| (release_meta(&json!({"mandatory": {"version": version}})), accepted))
        .to_vec();
    check_like_klm("KLM's answers to mandatory versions", table).await
}

#[tokio::test]
async fn i154_to_i167_template_versions() -> Result<()> {
    let versions = [
        ("", true),
        ("1", false),
        ("1.2", false),
        ("1.2.3", true),
        ("experimental", false),
        ("experimental-1.2.3", false),
        ("1.2.3-rc", true),
        ("1.2.3-rc-two", true),
        ("1.2.3-rc-two-three", true),
        ("1.2.3---a-b--", true),
        ("01.2.3", false),
        ("1.02.3", false),
        ("1.2.03", false),
        ("1.2.3rc", false),
        ("1.2.3-rc.1", false),
        ("1.2.3+build", false),
    ];
    let mut table = vec![];
    for (version, accepted) in versions {
        table.push((template(&json!({"version": version})), accepted));
        let assigned = json!({"channel": "regular", "version": version});
        table.push((release_meta(&json!({"channels": [assigned]})), accepted));
    }
    check_like_klm("KLM's answers to template versions", table).await
}

#[tokio::test]
async fn names_lists_and_enums_are_bound_as_in_klm() -> Result<()> {
    let module = |fields: Value| kyma(&json!({"channel": "regular", "modules": [fields]}));
    let manager = json!({"group": "apps", "version": "v1", "kind": "Deployment", "name": "m"});
    let table = vec![
        (module(json!({"name": "keda", "customResourcePolicy": "Ignore", "managed": false})), true),
        (module(json!({"name": "keda", "customResourcePolicy": "Keep"})), false),
        (module(json!({"customResourcePolicy": "Ignore"})), false),
        (kyma(&json!({"channel": "regular", "modules": [{"name": "keda"}, {"name": "keda"}]})), false),
        (template(&json!({"moduleName": "serverless2"})), false),
        (template(&json!({"moduleName": "api-gateway"})), true),
        (template(&json!({"moduleName": "a-gateway"})), false),
        (template(&json!({"moduleName": ""})), true),
        (template(&json!({"channel": ""})), true),
        (template(&json!({"channel": "ab"})), false),
        (template(&json!({"descriptor": null})), false),
        (template(&json!({"data": {"spec": {}}})), false),
        (
            template(&json!({"data": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "x": 1}})),
            true,
        ),
        (template(&json!({"manager": manager})), true),
        (template(&json!({"manager": {"kind": "Deployment", "name": "m"}})), false),
        (
            template(&json!({"resources": [{"name": "rawManifest", "link": "https://example.org/a.yaml"}]})),
            true,
        ),
        (template(&json!({"resources": [{"name": "rawManifest", "link": "not a link"}]})), false),
        (template(&json!({"info": {"repository": "r"}})), false),
        (template(&json!({"associatedResources": [{"group": "g", "kind": "K"}]})), false),
    ];
    check_like_klm("KLM's answers to names, lists and enums", table).await
}
