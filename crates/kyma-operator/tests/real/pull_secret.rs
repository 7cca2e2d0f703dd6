//! The image-pull Secret of the hub on a target.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kyma_api::condition::{self, types};
use kyma_api::{Kyma, State, labels};
use serde_json::{Value, json};
use testbed::{Cluster, until};

use crate::landscape::{Landscape, SOON, is_ready, until_remote};

const NAME: &str = "skr-image-pull-secret";

fn docker_config(password: &str) -> String {
    json!({"auths": {"registry.example": {"username": "u", "password": password}}}).to_string()
}

/// Returns status and reason of the condition.
fn told(kyma: &Kyma) -> Option<(String, String)> {
    let conditions = kyma.status.as_ref()?.conditions.as_deref()?;
    let told = condition::get(conditions, types::SKR_IMAGE_PULL_SECRET_SYNC)?;
    Some((told.status.clone(), told.reason.clone()))
}

fn says(kyma: &Kyma, status: &str, reason: &str) -> bool {
    told(kyma) == Some((status.to_owned(), reason.to_owned()))
}

fn copies(target: &Cluster) -> Result<Api<Secret>> {
    Ok(Api::namespaced(target.client()?, "kyma-system"))
}

/// Waits until the target has this content.
async fn until_copied(target: &Cluster, what: &str, content: &str) -> Result<Secret> {
    let api = copies(target)?;
    let holds = |secret: &Secret| {
        let data = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
        data.is_some_and(|data| data.0 == content.as_bytes())
    };
    until(what, SOON, || async { Ok(api.get_opt(NAME).await?.filter(holds)) }).await
}

async fn change(api: &Api<Secret>, change: &Value) -> Result<()> {
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pull_secret_is_copied_where_it_may_be_and_kept_in_step() -> Result<()> {
    let landscape = Landscape::start(&["--skr-image-pull-secret=skr-image-pull-secret"]).await?;
    let (target, kubeconfig) = landscape.target("pull-secret").await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[]").await?;
    let missing = landscape
        .until_kyma("it is missing", "sample", |kyma| says(kyma, "False", "CopiedSecretMissing"))
        .await?;
    assert_eq!(missing.status.as_ref().and_then(|status| status.state), Some(State::Warning));

    let hub: Api<Secret> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    let secret = json!({
        "metadata": {"name": NAME}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": docker_config("hush-first")},
    });
    hub.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    landscape.until_kyma("nobody allowed it", "sample", |kyma| says(kyma, "False", "CopyNotAllowed")).await?;
    assert!(copies(&target)?.get_opt(NAME).await?.is_none(), "nothing is copied that nobody allowed");

    change(&hub, &json!({"metadata": {"labels": {labels::COPY_TO_TARGETS: "true"}}})).await?;
    let copy = until_copied(&target, "it is copied", &docker_config("hush-first")).await?;
    assert_eq!(copy.type_.as_deref(), Some("kubernetes.io/dockerconfigjson"));
    assert!(!copy.labels().contains_key(labels::COPY_TO_TARGETS), "it is a target's now");
    landscape
        .until_kyma("the hub says so", "sample", |kyma| says(kyma, "True", "Ready") && is_ready(kyma))
        .await?;
    until_remote(&target, "its user sees it", |kyma| says(kyma, "True", "Ready")).await?;

    change(&hub, &json!({"stringData": {".dockerconfigjson": docker_config("hush-second")}})).await?;
    until_copied(&target, "a change of the hub's Secret arrives", &docker_config("hush-second")).await?;
    let edit = json!({"stringData": {".dockerconfigjson": docker_config("edited")}});
    change(&copies(&target)?, &edit).await?;
    until_copied(&target, "an edit is put right", &docker_config("hush-second")).await?;
    let edited = copies(&target)?.get(NAME).await?.uid();
    copies(&target)?.delete(NAME, &DeleteParams::default()).await?;
    let again = until_copied(&target, "it is made anew", &docker_config("hush-second")).await?;
    assert_ne!(again.uid(), edited);

    hub.delete(NAME, &DeleteParams::default()).await?;
    landscape
        .until_kyma("it is missing again", "sample", |kyma| says(kyma, "False", "CopiedSecretMissing"))
        .await?;
    let kept = copies(&target)?.get_opt(NAME).await?.context("what the target has stays")?;
    assert_eq!(kept.uid(), again.uid());
    is_told_nowhere(&landscape, "hush").await
}

/// The content is neither in Kymas nor in events.
async fn is_told_nowhere(landscape: &Landscape, secret: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    // Events are queued, and published after the status was written.
    let events = until("an event reports what prevents the copy", SOON, || async {
        let listed = serde_json::to_string(&events.list(&ListParams::default()).await?.items)?;
        Ok(Some(listed).filter(|listed| listed.contains("CopyNotAllowed")))
    })
    .await?;
    let kymas = serde_json::to_string(&landscape.kymas()?.list(&ListParams::default()).await?.items)?;
    assert!(!events.contains(secret) && !kymas.contains(secret), "{kymas} {events}");
    Ok(())
}
