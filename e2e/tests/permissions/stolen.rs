//! Checks what a thief can do on the hub with an operator's token.
//!
//! For each right to write there must be a proof: requests that the admission policy or the role refuses with 403,
//! or a sentence of SECURITY.md that says what the right allows. A right without a proof is a finding.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::landscape::{HUB_NAMESPACE, Landscape};
use e2e::permissions::Right;
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use kyma_api::{labels, release_store};
use serde_json::{Value, json};
use testbed::until;

use super::{OPERATORS, hub_rights};

mod attempts;

use attempts::{
    apply_path, changed_crds, changed_secrets, created_crds, manifests, metadata, never, pauses, secrets,
};

const SECURITY: &str = include_str!("../../../SECURITY.md");
const CORE: &str = "/api/v1/namespaces/kcp-system";
const OPERATOR: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system";
const COMPONENT: &str = "/apis/component.kyma-project.io/v1alpha1/namespaces/kcp-system";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEADLINE: Duration = Duration::from_mins(1);
const NAME: &str = "stolen";

/// A request that must be refused.
struct Attempt {
    what: &'static str,
    method: Method,
    path: String,
    body: Value,
}

enum Proof {
    Refused(Vec<Attempt>),
    /// The sentence of SECURITY.md that says what the right allows.
    Documented(&'static str),
}

/// Makes all attempts with the token of each operator. Returns a line for each one that was not refused, and for
/// each right without a proof.
pub(crate) async fn tokens_reach_nothing_more(landscape: &Landscape) -> Result<Vec<String>> {
    let admin = landscape.hub().client()?;
    victims(&admin).await?;
    let mut found = Vec::new();
    for operator in OPERATORS {
        let thief = landscape.hub().service_account(HUB_NAMESPACE, operator).await?.client()?;
        for right in hub_rights(landscape, operator).await? {
            if matches!(right.verb.as_str(), "get" | "list" | "watch") {
                continue;
            }
            match proof(operator, &right) {
                None => found.push(format!("{operator}: no proof what a stolen token does with it: {right}")),
                Some(Proof::Documented(sentence)) if !SECURITY.contains(sentence) => {
                    found.push(format!("{operator}: SECURITY.md does not say {sentence:?} for {right}"));
                }
                Some(Proof::Documented(_)) => {}
                Some(Proof::Refused(attempts)) => {
                    found.extend(refused(&thief, operator, attempts).await?);
                }
            }
        }
        found.extend(refused(&thief, operator, never(operator)).await?);
        found.extend(impersonation(&thief, operator).await?);
    }
    Ok(found)
}

async fn refused(thief: &Client, operator: &str, attempts: Vec<Attempt>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for attempt in attempts {
        let (code, message) = send(thief, &attempt).await?;
        if code != 403 {
            found.push(format!("{operator} with a stolen token: {}: {code} {message}", attempt.what));
        }
    }
    Ok(found)
}

async fn impersonation(thief: &Client, operator: &str) -> Result<Option<String>> {
    let request = Request::get(format!("{CORE}/secrets"))
        .header("impersonate-user", "system:admin")
        .header("impersonate-group", "system:masters");
    let code = thief.send(request.body(Body::from(Vec::new()))?).await?.status().as_u16();
    Ok((code != 403).then(|| format!("{operator} with a stolen token: as an administrator: {code}")))
}

async fn send(client: &Client, attempt: &Attempt) -> Result<(u16, String)> {
    let content_type = match attempt.method {
        Method::PATCH if attempt.path.contains("fieldManager") => "application/apply-patch+yaml",
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(attempt.method.clone())
        .uri(&attempt.path)
        .header("content-type", content_type)
        .body(Body::from(serde_json::to_vec(&attempt.body)?))?;
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await?;
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok((code, body["message"].as_str().unwrap_or_default().to_owned()))
}

/// Creates objects that the thief tries to change. Operators leave them alone: they are suspended, skipped, or
/// belong to no Kyma.
async fn victims(admin: &Client) -> Result<()> {
    let release = format!("{}{NAME}", release_store::RELEASE_PREFIX);
    let skip = json!({labels::SKIP_RECONCILIATION: "true"});
    let objects = [
        (
            format!("{CORE}/secrets"),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "labels": {"kept": "so"}},
                "stringData": {"config": "x"}}),
        ),
        (
            format!("{CORE}/secrets"),
            json!({"apiVersion": "v1", "kind": "Secret", "type": release_store::RELEASE_TYPE,
                "metadata": {"name": release}}),
        ),
        (
            format!("{CORE}/configmaps"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}}),
        ),
        (
            format!("{OPERATOR}/kymas"),
            json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": {"name": NAME, "labels": skip}, "spec": {"channel": "regular"}}),
        ),
        (
            format!("{OPERATOR}/modulereleasemetas"),
            json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
                "metadata": {"name": NAME},
                "spec": {"moduleName": NAME, "channels": [{"channel": "regular", "version": "1.0.0"}]}}),
        ),
        (
            format!("{COMPONENT}/helmcomponents"),
            json!({"apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": {"name": NAME}, "spec": {"suspend": true, "source": {"manifests": {"url": "https://x.example/a.yaml"}},
                "target": {"kubeconfigSecretRef": {"name": NAME}}}}),
        ),
        (
            "/apis/demo.kyma-project.io/v1alpha1/namespaces/kcp-system/greetings".to_owned(),
            json!({"apiVersion": "demo.kyma-project.io/v1alpha1", "kind": "Greeting", "metadata": {"name": NAME},
                "spec": {"suspend": true, "target": {"kubeconfigSecretRef": {"name": NAME}}}}),
        ),
    ];
    for (path, body) in objects {
        let attempt = Attempt { what: "", method: Method::POST, path: path.clone(), body };
        until(&format!("{path} takes an object"), DEADLINE, || async {
            let (code, message) = send(admin, &attempt).await?;
            anyhow::ensure!(code != 422 && code != 400, "{path}: {message}");
            Ok((code == 201 || code == 409).then_some(()))
        })
        .await
        .context("an object for a thief")?;
    }
    Ok(())
}

fn proof(operator: &str, right: &Right) -> Option<Proof> {
    let one = |what, method, path: String, body| Attempt { what, method, path, body };
    Some(match (right.resource.as_str(), right.verb.as_str()) {
        ("events", _) => Proof::Documented("may write events"),
        (
            "kymas/status"
            | "helmcomponents/status"
            | "greetings/status"
            | "moduleconfigs/status"
            | "pauses/status"
            | "manifests/status",
            _,
        ) => Proof::Documented("writes the status of the kinds that it reports on"),
        ("helmcomponents" | "greetings", "create" | "patch" | "delete") if operator == "kyma-operator" => {
            Proof::Documented("kyma-operator creates, changes and deletes components")
        }
        ("helmcomponents", "patch") => {
            Proof::Refused(metadata(&format!("{COMPONENT}/helmcomponents/{NAME}"), true))
        }
        ("greetings", "patch") => Proof::Refused(metadata(
            &format!("/apis/demo.kyma-project.io/v1alpha1/namespaces/kcp-system/greetings/{NAME}"),
            true,
        )),
        ("kymas", "patch") => {
            Proof::Refused(metadata(&format!("{OPERATOR}/kymas/{NAME}"), operator != "kyma-operator"))
        }
        ("modulereleasemetas", "patch") => {
            Proof::Refused(metadata(&format!("{OPERATOR}/modulereleasemetas/{NAME}"), false))
        }
        ("secrets", "create") => Proof::Refused(secrets()),
        ("secrets", "patch") => Proof::Refused(changed_secrets()),
        ("configmaps", "create") => Proof::Refused(vec![one(
            "a ConfigMap for a module",
            Method::POST,
            format!("{CORE}/configmaps"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "another"}}),
        )]),
        ("configmaps", "patch") => Proof::Refused(vec![
            one(
                "another ConfigMap",
                Method::PATCH,
                format!("{CORE}/configmaps/{NAME}"),
                json!({"data": {"a": "b"}}),
            ),
            one(
                "a record of the brake with a label",
                Method::PATCH,
                apply_path(&format!("{CORE}/configmaps/brake-{operator}")),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("brake-{operator}"), "labels": {"a": "b"}}}),
            ),
        ]),
        ("pauses", "create") => Proof::Refused(pauses(operator)),
        ("manifests", "create" | "patch") => Proof::Refused(manifests()),
        ("customresourcedefinitions", "create") => Proof::Refused(created_crds()),
        ("customresourcedefinitions", "patch") => Proof::Refused(changed_crds()),
        _ => return None,
    })
}
