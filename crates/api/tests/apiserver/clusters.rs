//! The clusters of these tests, and calls that return warnings, which kube's typed calls hide.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::{Method, Request};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use testbed::{SharedTestEnv, until};
use tokio::sync::OnceCell;

use crate::inputs;

pub(crate) static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// Returns a cluster with the CRDs of this project.
pub(crate) async fn ours() -> Result<Client> {
    static READY: OnceCell<()> = OnceCell::const_new();
    let client = TEST_ENV.cluster("ours", |cluster| cluster).await?.client()?;
    READY.get_or_try_init(|| install(&client, our_crds())).await?;
    Ok(client)
}

/// Returns a cluster with KLM's CRDs; `None` without the inputs, if they may be missing.
pub(crate) async fn klm(what: &str) -> Result<Option<Client>> {
    static READY: OnceCell<()> = OnceCell::const_new();
    let Some(crds) = klm_crds(what)? else {
        return Ok(None);
    };
    let client = TEST_ENV.cluster("klm", |cluster| cluster).await?.client()?;
    READY.get_or_try_init(|| install(&client, crds)).await?;
    Ok(Some(client))
}

pub(crate) fn our_crds() -> Vec<Value> {
    kyma_api::crds::all().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect()
}

pub(crate) fn klm_crds(what: &str) -> Result<Option<Vec<Value>>> {
    let Some(directory) = testbed::inputs(what)? else {
        return Ok(None);
    };
    let mut crds = vec![];
    for file in inputs::yaml_files(&directory.join("klm-crds"))? {
        crds.extend(inputs::documents(&file)?.into_iter().map(|document| document.object));
    }
    ensure!(crds.len() == 5, "KLM has five CRDs");
    Ok(Some(crds))
}

/// Applies CRDs and waits until each is served. Any warning fails.
pub(crate) async fn install(client: &Client, crds: Vec<Value>) -> Result<()> {
    for crd in crds {
        let name = crd["metadata"]["name"].as_str().context("a CRD has a name")?.to_owned();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let reply = apply(client, &path, &crd).await?.ok()?;
        ensure!(reply.warnings.is_empty(), "{name}: {:?}", reply.warnings);
        until(&format!("{name} is established"), Duration::from_secs(30), || async {
            let crd = call(client, Method::GET, &path, None).await?.ok()?.body;
            let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is =
                |type_: &str| conditions.iter().any(|one| one["type"] == type_ && one["status"] == "True");
            if is("NonStructuralSchema") {
                bail!("{name} is not structural: {conditions:?}");
            }
            Ok((is("Established") && is("NamesAccepted")).then_some(()))
        })
        .await?;
        testbed::crd_is_served(client, &name).await?;
    }
    Ok(())
}

/// A response of the apiserver.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

impl Reply {
    /// Returns the response, or an error if its status is not 2xx.
    pub(crate) fn ok(self) -> Result<Self> {
        ensure!(self.is_ok(), "{}: {}", self.code, self.body["message"]);
        Ok(self)
    }

    pub(crate) fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

pub(crate) async fn call(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<Reply> {
    let content_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    send(client, method, path, content_type, body).await
}

/// Applies an object; unknown fields give warnings.
pub(crate) async fn apply(client: &Client, path: &str, body: &Value) -> Result<Reply> {
    let path = format!("{path}?fieldManager=test&force=true&fieldValidation=Warn");
    send(client, Method::PATCH, &path, "application/apply-patch+yaml", Some(body)).await
}

/// Does the same as [`apply`] as a dry run.
pub(crate) async fn dry_run_apply(client: &Client, path: &str, body: &Value) -> Result<Reply> {
    let path = format!("{path}?fieldManager=test&force=true&fieldValidation=Warn&dryRun=All");
    send(client, Method::PATCH, &path, "application/apply-patch+yaml", Some(body)).await
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: Option<&Value>,
) -> Result<Reply> {
    let bytes = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Body::from(bytes))?;
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().map(str::to_owned)).collect::<Result<_, _>>()?;
    let bytes = response.into_body().collect_bytes().await?;
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Ok(Reply { code, warnings, body })
}

/// Returns the path of an object of a kind of this project; `None` for other kinds.
pub(crate) fn collection(object: &Value) -> Option<String> {
    let plural = match object["kind"].as_str()? {
        "Kyma" => "kymas",
        "ModuleTemplate" => "moduletemplates",
        "ModuleReleaseMeta" => "modulereleasemetas",
        "Watcher" => "watchers",
        "ModuleConfig" => "moduleconfigs",
        "Pause" => "pauses",
        "HelmComponent" => "helmcomponents",
        _ => return None,
    };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    Some(format!("/apis/{}/namespaces/{namespace}/{plural}", object["apiVersion"].as_str()?))
}

pub(crate) async fn ensure_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let reply = call(client, Method::POST, "/api/v1/namespaces", Some(&namespace)).await?;
    ensure!(reply.is_ok() || reply.code == 409, "{reply:?}");
    Ok(())
}
