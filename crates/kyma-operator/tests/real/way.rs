//! A target of one Kyma, and the connection from the hub to it.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use http::Response;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, Selection, State, annotations, labels};
use kyma_targets::{STAMP_NAME, STAMP_NAMESPACE};
use serde_json::{Value, json};
use testbed::{AuditMark, Body, Cluster, InterceptedRequest, ScriptedServer, expire_watch, until};
use tokio::sync::watch;

use crate::landscape::{Landscape, SOON, TEST_ENV, modules, remote, target_user};
use crate::stories::model::pair::Access;

/// Name of a saved state of a cluster.
pub(crate) const SAVED: &str = "saved";
const NEW: &str = "new";

/// A target and the connection to it.
pub(crate) struct TargetConnection {
    pub(crate) target: Cluster,
    /// Proxy on the connection.
    _proxy: ScriptedServer,
    /// Whether the connection works.
    open: watch::Sender<bool>,
    kubeconfigs: [String; 2],
    wrong: String,
}

impl TargetConnection {
    /// Starts a target of this name, which can be restored.
    pub(crate) async fn to(name: String) -> Result<Self> {
        let target = TEST_ENV.cluster(&name, |cluster| cluster.with_audit().with_own_etcd()).await?;
        let open = watch::Sender::new(true);
        let is_open = open.subscribe();
        let between = move |passing: InterceptedRequest| pass(is_open.clone(), passing).boxed();
        let proxy = ScriptedServer::with(Arc::new(between), &target).await?;
        let first = proxy.access_of(&target_user(&target).await?).kubeconfig();
        let second = proxy.access_of(&target_user(&target).await?).kubeconfig();
        let token = first.lines().find(|line| line.trim_start().starts_with("token: ")).context("a token")?;
        let wrong = first.replace(token.trim_start(), "token: unknown");
        target.save(NEW)?;
        Ok(Self { target, _proxy: proxy, open, kubeconfigs: [first, second], wrong })
    }

    /// Connects or disconnects the network; open watches break too.
    pub(crate) fn connect(&self, is: bool) {
        self.open.send_replace(is);
    }

    /// Returns the kubeconfig for this kind of access Secret.
    fn kubeconfig(&self, access: Access) -> Option<&str> {
        let [first, second] = &self.kubeconfigs;
        match access {
            Access::First => Some(first),
            Access::Second => Some(second),
            Access::Wrong => Some(&self.wrong),
            Access::Missing => None,
        }
    }

    /// Replaces the access Secret of a Kyma.
    pub(crate) async fn give_access(&self, landscape: &Landscape, kyma: &str, access: Access) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
        let name = format!("{kyma}-access");
        let Some(kubeconfig) = self.kubeconfig(access) else {
            let deleted = secrets.delete(&name, &DeleteParams::default()).await;
            return none_is_fine(deleted.map(drop));
        };
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "stringData": { "config": kubeconfig },
            "metadata": { "name": name, "labels": { labels::KYMA_NAME: kyma } } });
        secrets.patch(&name, &PatchParams::apply("person").force(), &Patch::Apply(&secret)).await?;
        Ok(())
    }

    pub(crate) fn save(&self) -> Result<()> {
        self.target.save(SAVED)
    }

    pub(crate) async fn restore(&self) -> Result<()> {
        self.target.restore(SAVED).await?;
        let kymas = remote(&self.target)?;
        until("the target serves Kymas again", SOON, || async { Ok(kymas.get_opt("default").await.ok()) })
            .await?;
        Ok(())
    }

    /// Restores the target to its state before all Kymas.
    pub(crate) async fn start_over(&self) -> Result<()> {
        self.connect(true);
        self.target.restore(NEW).await
    }

    fn stamps(&self) -> Result<Api<ConfigMap>> {
        Ok(Api::namespaced(self.target.client()?, STAMP_NAMESPACE))
    }

    /// Adopts the target, as `kymactl target adopt` does.
    pub(crate) async fn adopt(&self, landscape: &Landscape, kyma: &str) -> Result<()> {
        let data = self.stamps()?.get(STAMP_NAME).await?.data.unwrap_or_default();
        let on_hub = landscape.kymas()?.get(kyma).await?;
        let known = on_hub.status.and_then(|status| status.target).context("a target on record")?;
        let stamped: i64 = data.get("epoch").context("an epoch")?.parse()?;
        let epoch = known.epoch.unwrap_or(0).max(stamped) + 1;
        let params = PatchParams::default();
        let stamp = json!({ "data": { "epoch": epoch.to_string(), "turn": null } });
        self.stamps()?.patch(STAMP_NAME, &params, &Patch::Merge(&stamp)).await?;
        let record = json!({ "status": { "target": { "epoch": epoch, "fencingGeneration": null } } });
        landscape.kymas()?.patch_status(kyma, &params, &Patch::Merge(&record)).await?;
        let told = format!("{}/{epoch}", known.cluster_uid);
        let note = json!({ "metadata": { "annotations": { annotations::TARGET_ADOPTED: told } } });
        landscape.kymas()?.patch(kyma, &params, &Patch::Merge(&note)).await?;
        Ok(())
    }

    /// Edits the target's Kyma.
    pub(crate) async fn edit(&self, change: &Value) -> Result<()> {
        let (kymas, params) = (remote(&self.target)?, PatchParams::default());
        none_is_fine(kymas.patch("default", &params, &Patch::Merge(change)).await.map(drop))
    }

    /// Removes the operator's labels and annotations from the target's Kyma.
    pub(crate) async fn unmark(&self) -> Result<()> {
        let labels = json!({ labels::WATCHED_BY: null, labels::MANAGED_BY: "somebody" });
        self.edit(
            &json!({ "metadata": { "labels": labels, "annotations": { annotations::OWNED_BY: null } } }),
        )
        .await
    }

    /// Writes a wrong status to the target's Kyma.
    pub(crate) async fn tell_lies(&self) -> Result<()> {
        let lie = json!({ "status": { "state": "Error", "modules": [{ "name": "lie", "state": "Ready" }] } });
        let (kymas, params) = (remote(&self.target)?, PatchParams::default());
        none_is_fine(kymas.patch_status("default", &params, &Patch::Merge(&lie)).await.map(drop))
    }

    /// Deletes the target's Kyma.
    pub(crate) async fn forget(&self) -> Result<()> {
        none_is_fine(remote(&self.target)?.delete("default", &DeleteParams::default()).await.map(drop))
    }

    /// Reports whether the target's Kyma matches the hub's and has this choice.
    pub(crate) async fn shows(&self, hub: &Kyma, choice: &Selection) -> Result<Result<(), String>> {
        let Some(kyma) = remote(&self.target)?.get_opt("default").await? else {
            return Ok(Err("the target has no Kyma".to_owned()));
        };
        let owner = format!("{}/{}", hub.namespace().unwrap_or_default(), hub.name_any());
        let is_marked = kyma.labels().get(labels::WATCHED_BY).is_some_and(|by| by == labels::WATCHED_BY_KYMA)
            && kyma.labels().get(labels::MANAGED_BY).is_some_and(|by| by == labels::MANAGED_BY_KYMA)
            && kyma.annotations().get(annotations::OWNED_BY) == Some(&owner);
        let chosen: Selection = serde_json::from_value(json!(kyma.spec))?;
        let is_told =
            state(hub) == state(&kyma) && modules(hub) == modules(&kyma) && details(hub) == details(&kyma);
        Ok(if is_marked && is_told && chosen == *choice {
            Ok(())
        } else {
            Err(format!("the target's Kyma is {}", json!(kyma)))
        })
    }

    /// Fails if objects of the operators are left on the target.
    pub(crate) async fn is_clean(&self) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.target.client()?);
        ensure!(self.stamps()?.get_opt(STAMP_NAME).await?.is_none(), "the stamp is left");
        until("the operator's CRD is gone", SOON, || async {
            Ok(crds.get_opt("kymas.operator.kyma-project.io").await?.is_none().then_some(()))
        })
        .await
    }

    /// Returns the operator's writes on the target since the mark.
    pub(crate) fn writes(&self, since: AuditMark) -> Result<Vec<String>> {
        let events = self.target.audit()?.since(since)?.into_iter();
        let writes = events.filter(|event| event.is_write() && event.user.ends_with(":kyma-operator"));
        Ok(writes.map(|event| format!("{} {}", event.verb, event.uri)).collect())
    }
}

fn none_is_fine(result: kube::Result<()>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other?),
    }
}

fn state(kyma: &Kyma) -> Option<State> {
    kyma.status.as_ref().and_then(|status| status.state)
}

/// Returns the conditions and the modules' messages. If only they differ, a write to the target is still to come.
fn details(kyma: &Kyma) -> Value {
    let status = kyma.status.clone().unwrap_or_default();
    let messages: Vec<Option<String>> =
        status.modules.into_iter().flatten().map(|module| module.message).collect();
    let mut conditions = status.conditions.unwrap_or_default();
    conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
    json!([conditions, messages])
}

async fn pass(mut is_open: watch::Receiver<bool>, passing: InterceptedRequest) -> io::Result<Response<Body>> {
    if !*is_open.borrow() {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    let is_watch = passing.received().query.contains("watch=true");
    let answer = passing.onward().await?;
    if !is_watch {
        return Ok(answer);
    }
    Ok(expire_watch(answer, async move {
        is_open.wait_for(|is_open| !is_open).await.ok();
    }))
}
