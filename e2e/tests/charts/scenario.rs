//! Installs one chart on one target, compares it, and removes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::helm::Helm;
use e2e::inputs::charts::Chart;
use e2e::landscape::{HUB_NAMESPACE, Landscape};
use e2e::remains::{clear, until_as_before, until_as_before_but_for_hooks};
use e2e::snapshot::{self, Snapshot};
use e2e::wait;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::conditions::is_deleted;
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, State, names};
use serde_json::{Value, json};
use testbed::{Cluster, until_or_why};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::compare;
use crate::conditions::{self, condition};
use crate::oracle::{self, Capabilities, RenderedObject};
use crate::outcome::{Outcome, UNSCHEDULABLE, fixed};
use crate::remains;

/// Deadline for an installation or a removal of a chart.
const DEADLINE: Duration = Duration::from_mins(3);
/// Time after which an unchanged failure that a retry rarely resolves, or an unschedulable Pod, counts as final.
const FINAL_AFTER: Duration = Duration::from_mins(1);
/// Field manager of these tests.
const FIELD_MANAGER: &str = "tests";

pub(crate) struct Scenario {
    chart: Chart,
    /// Name of the component.
    word: String,
    /// Name of the release.
    release: String,
    /// Revision of the release: changed values make the second one.
    revision: u32,
    /// Namespace of the release.
    namespace: String,
    hub: Client,
    target: Client,
    helm: Helm,
    /// Helm's output with the target's capabilities.
    printed: Mutex<Option<(Capabilities, Vec<RenderedObject>)>>,
    before: Snapshot,
    /// Reduction of objects that had to be confirmed.
    confirmed: Mutex<Option<String>>,
    /// Workloads with unschedulable Pods, and since when.
    nodeless: Mutex<Option<(String, Instant)>>,
    /// Whether hooks were skipped, since one cannot end here.
    skips: AtomicBool,
    source: (String, String, String),
    access: String,
}

impl Scenario {
    pub(crate) async fn new(landscape: &Landscape, target: &Cluster, chart: &Chart) -> Result<Self> {
        let word = word(&chart.name);
        let namespace = chart.namespace.unwrap_or(&word).to_owned();
        let release = chart.release.unwrap_or(&word).to_owned();
        let hub = landscape.hub().client()?;
        let helm = Helm::new(target, &landscape.directory().join("helm").join(&word))?;
        let repository = helm.push(chart, landscape.registry().address()).await?;
        let (name, version) = chart.identity()?;
        let access = landscape.access_secret(target.name(), target).await?;
        let secrets: Api<Secret> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
        let secret = access.name_any();
        secrets
            .patch(&secret, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&typed(&access)?))
            .await?;
        let target = target.client()?;
        let before = snapshot::take(&target).await?;
        let source = (repository, name, version);
        let printed = Mutex::default();
        Ok(Self {
            chart: chart.clone(),
            word,
            release,
            revision: 1,
            namespace,
            hub,
            target,
            helm,
            printed,
            before,
            confirmed: Mutex::default(),
            nodeless: Mutex::default(),
            skips: AtomicBool::default(),
            source,
            access: secret,
        })
    }

    /// Installs the chart and waits until everything that can exist does, as helm prints it.
    pub(crate) async fn install(&self) -> Result<Outcome> {
        let component = self.component()?;
        self.components().create(&PostParams::default(), &component).await?;
        self.settled().await
    }

    /// Changes the values, and waits until everything that can exist does, as helm prints it.
    pub(crate) async fn change(&mut self, values: &Value) -> Result<Outcome> {
        self.chart.values = values.clone();
        self.revision = 2;
        *self.printed.get_mut() = None;
        let component = self.component()?;
        // Replaces the whole spec: old values are removed.
        let replaced = json!([{"op": "replace", "path": "/spec", "value": component.spec}]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(replaced)?);
        self.components().patch(&self.word, &PatchParams::default(), &patch).await?;
        self.settled().await
    }

    /// Returns helm's reason if it cannot render the chart with these values, once the component reports that it
    /// cannot either.
    pub(crate) async fn refused(&self) -> Result<Option<String>> {
        let Err(reason) = self.rendered(&self.chart.values, 1).await? else { return Ok(None) };
        self.components().create(&PostParams::default(), &self.component()?).await?;
        let not_rendered =
            |component: Option<&HelmComponent>| component.is_some_and(conditions::is_not_printed);
        let waiting = wait::until("the chart is not rendered", self.components(), &self.word, not_rendered);
        waiting.await.with_context(|| format!("helm says: {reason:#}"))?;
        Ok(Some(oracle::reason(&reason)))
    }

    /// Reports whether helm can render an upgrade to other values.
    pub(crate) async fn can_change(&self, values: &Value) -> Result<bool> {
        Ok(self.rendered(values, 2).await?.is_ok())
    }

    /// Returns helm's output, or the error if it cannot render the chart.
    async fn rendered(&self, values: &Value, revision: u32) -> Result<Result<String>> {
        let Capabilities { kube_version, api_versions } = Capabilities::of(&self.target).await?;
        let chart = self.with(values);
        let release = (self.release.as_str(), revision);
        Ok(self.helm.template(&chart, release, &self.namespace, &kube_version, &api_versions).await)
    }

    fn with(&self, values: &Value) -> Chart {
        Chart { values: values.clone(), ..self.chart.clone() }
    }

    /// Checks that helm fails for the same reason on this clean target for everything that the component did not
    /// install or make ready.
    pub(crate) async fn beside_helm(&self, outcome: &Outcome, values: &Value) -> Result<()> {
        if !outcome.needs_proof() {
            return Ok(());
        }
        let refusal = self.helm.refusal(&self.with(values), &self.release, &self.namespace).await;
        clear(&self.target, &self.before).await?;
        let helm_error =
            refusal?.with_context(|| format!("helm installs it, but the component: {outcome}"))?;
        outcome.is_explained_by(&helm_error).map_err(anyhow::Error::msg)
    }

    async fn settled(&self) -> Result<Outcome> {
        let what = format!("{} is as helm would have it", self.chart.name);
        let standing: Mutex<Option<(String, Instant)>> = Mutex::default();
        let hook: Mutex<Option<(String, Instant)>> = Mutex::default();
        *self.nodeless.lock().await = None;
        until_or_why(&what, DEADLINE, || async {
            let component = self.components().get(&self.word).await?;
            let judged = self.judge(&component).await?;
            if let Err(why) = &judged {
                let mut since = standing.lock().await;
                let stays = stands(conditions::lasting_failure(&component), &mut since);
                ensure!(!stays, "{what}: does not change any more: {why}");
                let waits = self.waits_for_hook().await?.then(|| "hook".to_owned());
                if stands(waits, &mut *hook.lock().await) {
                    self.skip_hooks().await?;
                }
            }
            Ok(judged)
        })
        .await
    }

    /// Confirms the reduction of objects about which the message asks.
    async fn confirm(&self, component: &HelmComponent, message: &str) -> Result<()> {
        let generation = component.metadata.generation.unwrap_or_default().to_string();
        let annotations = json!({"component.kyma-project.io/allow-shrink": generation});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.components().patch(&self.word, &PatchParams::default(), &patch).await?;
        let less = message.split("; confirm with").next().unwrap_or(message);
        *self.confirmed.lock().await = Some(less.to_owned());
        Ok(())
    }

    /// Returns the result if the component can make no more progress, or else what is pending.
    async fn judge(&self, component: &HelmComponent) -> Result<Result<Outcome, String>> {
        let status = component.status.clone().unwrap_or_default();
        let ready = condition(component, "Ready");
        let ready_message =
            ready.map_or_else(String::new, |ready| format!("{}: {}", ready.reason, ready.message));
        if status.observed_generation != component.metadata.generation {
            return Ok(Err(ready_message));
        }
        if let Some(message) = ready_message.strip_prefix("PruneGuard: ") {
            self.confirm(component, message).await?;
            return Ok(Err(ready_message));
        }
        let hook = conditions::failed_hook(&ready_message);
        match hook {
            Some(hook) if !conditions::is_invalid(hook) => return Ok(Err(ready_message)),
            Some(hook) if conditions::comes_first(hook) => {
                return Ok(Ok(Outcome { hook: Some(hook.to_owned()), ..Outcome::default() }));
            }
            _ => {}
        }
        let Some(state) = status.state.filter(|state| *state != State::Deleting) else {
            return Ok(Err(ready_message));
        };
        let is = |aspect: &str, wanted: &str| {
            condition(component, aspect).is_some_and(|condition| condition.status == wanted)
        };
        let waits_for_health = is("Applied", "True") && is("Healthy", "False");
        if state == State::Processing && !waits_for_health {
            return Ok(Err(ready_message));
        }
        // Checked before the comparison, which costs a dry run for each object.
        let unhealthy = condition(component, "Healthy").filter(|healthy| healthy.status == "False");
        if let Some(unhealthy) = unhealthy
            && let Some(fine) = self.fine(&unhealthy.message).await?
        {
            return Ok(Err(format!("Healthy is False for {fine}, which is ready or gets ready")));
        }
        let nodeless = unhealthy.filter(|healthy| healthy.message.contains(UNSCHEDULABLE));
        let lasts = stands(nodeless.map(|healthy| fixed(&healthy.message)), &mut *self.nodeless.lock().await);
        if nodeless.is_some() && !lasts {
            return Ok(Err(format!("a node may still take the Pods: {ready_message}")));
        }
        let capabilities = Capabilities::of(&self.target).await?;
        let printed = self.printed(capabilities).await?;
        let owner = names::owner_hash(HUB_NAMESPACE, &self.word);
        let findings = compare::release(&self.target, &printed, &self.namespace, &owner).await?;
        // Objects that are not printed any more are removed only after all printed ones are applied.
        let stays = !findings.refused.is_empty() || !findings.missing.is_empty();
        let absent = findings.lost();
        let surplus = if stays { &[][..] } else { &findings.surplus[..] };
        let wrong: Vec<&str> =
            findings.wrong.iter().chain(absent).chain(surplus).map(String::as_str).collect();
        if !wrong.is_empty() {
            return Ok(Err(format!("{ready_message}\n    {}", wrong.join("\n    "))));
        }
        let confirmed = self.confirmed.lock().await.clone();
        let explained = conditions::explain(component, findings, hook, &ready_message);
        let skips = self.skips.load(Ordering::Relaxed);
        Ok(explained.map(|outcome| Outcome { confirmed, skips, ..outcome }))
    }

    /// Returns helm's output for a target with these capabilities, cached while they do not change.
    async fn printed(&self, capabilities: Capabilities) -> Result<Vec<RenderedObject>> {
        let mut known = self.printed.lock().await;
        if let Some((_, printed)) = known.as_ref().filter(|(of, _)| *of == capabilities) {
            return Ok(printed.clone());
        }
        let release = (self.release.as_str(), self.revision);
        let printed =
            oracle::objects(&self.helm, &self.chart, release, &self.namespace, &capabilities).await?;
        *known = Some((capabilities, printed.clone()));
        Ok(printed)
    }

    /// Returns a named object that is in fact healthy or cannot be checked.
    async fn fine(&self, named: &str) -> Result<Option<String>> {
        for name in named.split(", ") {
            // `beside_helm` compares this with helm, which must fail for it too.
            if name.ends_with(UNSCHEDULABLE) {
                continue;
            }
            let Some((kind, path)) = name.split_once(' ') else { return Ok(Some(name.to_owned())) };
            if kind != "APIService.apiregistration.k8s.io" {
                return Ok(Some(name.to_owned()));
            }
            let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
            let resource = kube::api::ApiResource::from_gvk(&kind);
            let found = Api::<DynamicObject>::all_with(self.target.clone(), &resource).get(path).await?;
            let conditions = found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|one| one["type"] == "Available" && one["status"] == "True") {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    /// Removes the component. Waits until the target is as before, except for what stays, deletes that, and returns
    /// it. After a failure too, nothing is left for the next run.
    pub(crate) async fn remove(&self) -> Result<Vec<String>> {
        let removed = Box::pin(self.removed()).await;
        if removed.is_err() {
            Box::pin(self.forget()).await?;
        }
        // Only an administrator removes namespaces, and claims of StatefulSets with their volumes.
        let cleared = clear(&self.target, &self.before).await;
        let kept = removed?;
        cleared?;
        Ok(kept)
    }

    async fn removed(&self) -> Result<Vec<String>> {
        let Some(found) = self.components().get_opt(&self.word).await? else { return Ok(Vec::new()) };
        self.components().delete(&self.word, &DeleteParams::default()).await?;
        let uid = found.uid().context("a stored component has a uid")?;
        let gone =
            wait::until("the component is gone", self.components(), &self.word, is_deleted(&uid)).await;
        if gone.is_err() && self.waits_for_hook().await? {
            self.skip_hooks().await?;
            let what = "the component is gone without hooks";
            wait::until(what, self.components(), &self.word, is_deleted(&uid)).await?;
        } else {
            gone?;
        }
        if self.skips.load(Ordering::Relaxed) {
            let kept = until_as_before_but_for_hooks(&self.target, &self.before).await?;
            let mut lines = remains::listed(&kept);
            lines.push("what a hook left that does not end here (removed with hooks: Skip)".to_owned());
            return Ok(lines);
        }
        let kept = until_as_before(&self.target, &self.before).await?;
        Ok(remains::listed(&kept))
    }

    /// Continues without hooks, where Helm would fail and offers --no-hooks.
    async fn skip_hooks(&self) -> Result<()> {
        self.skips.store(true, Ordering::Relaxed);
        let patch = Patch::Merge(json!({"spec": {"hooks": "Skip"}}));
        self.components().patch(&self.word, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Reports whether there are Pods of a Job that no node takes.
    async fn waits_for_hook(&self) -> Result<bool> {
        let pods: Api<Pod> = Api::namespaced(self.target.clone(), &self.namespace);
        let pods = pods.list(&ListParams::default().labels("batch.kubernetes.io/job-name")).await?;
        Ok(pods.iter().any(|pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut reasons = conditions.filter_map(|condition| condition.reason.as_deref());
            reasons.any(|reason| reason == "Unschedulable")
        }))
    }

    /// Deletes the component from the hub, with its finalizers.
    async fn forget(&self) -> Result<()> {
        let Some(found) = self.components().get_opt(&self.word).await? else { return Ok(()) };
        let uid = found.uid().context("a stored component has a uid")?;
        self.components().delete(&self.word, &DeleteParams::default()).await?;
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match self.components().patch(&self.word, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
        wait::until("the component is forgotten", self.components(), &self.word, is_deleted(&uid)).await?;
        Ok(())
    }

    fn component(&self) -> Result<HelmComponent> {
        let (repository, name, version) = &self.source;
        Ok(serde_json::from_value(json!({
            "apiVersion": "component.kyma-project.io/v1alpha1",
            "kind": "HelmComponent",
            "metadata": {"name": self.word, "namespace": HUB_NAMESPACE},
            "spec": {
                "target": {"kubeconfigSecretRef": {"name": self.access, "key": "config"}},
                "source": {"chart": {"url": format!("{repository}/{name}"), "version": version}},
                "release": {"name": self.release, "namespace": self.namespace, "createNamespace": true},
                "values": self.chart.values,
                "deletionPolicy": "Delete",
            },
        }))?)
    }

    fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}

/// Reports whether the same fault has lasted longer than `FINAL_AFTER`.
fn stands(fault: Option<String>, since: &mut Option<(String, Instant)>) -> bool {
    let known = since.take().filter(|(known, _)| fault.as_ref() == Some(known));
    *since = fault.map(|fault| known.unwrap_or_else(|| (fault, Instant::now())));
    since.as_ref().is_some_and(|(_, begun)| begun.elapsed() > FINAL_AFTER)
}

fn typed(secret: &Secret) -> Result<Value> {
    let mut value = serde_json::to_value(secret)?;
    value["apiVersion"] = "v1".into();
    value["kind"] = "Secret".into();
    Ok(value)
}

/// Returns a name in the cluster for a chart's directory.
pub(crate) fn word(directory: &str) -> String {
    let stem = directory.rsplit_once('-').map_or(directory, |(stem, _)| stem);
    stem.to_lowercase()
}
