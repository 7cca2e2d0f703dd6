//! One chart on one target: installed, compared, removed.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::helm::Helm;
use e2e::inputs::charts::Chart;
use e2e::landscape::{HUB_NAMESPACE, Landscape};
use e2e::remains::{clear, is_in_every_namespace, until_as_before};
use e2e::snapshot::{self, Difference, Snapshot};
use e2e::wait;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::conditions::is_deleted;
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, State, names};
use serde_json::{Value, json};
use testbed::{Cluster, until_or_why};

use crate::compare::{self, Findings};
use crate::oracle::{self, Capabilities, Printed};

/// Time that a chart gets to be installed, or removed.
const DEADLINE: Duration = Duration::from_mins(3);
/// Who applies in these tests.
const WRITER: &str = "tests";

pub(crate) struct Story {
    chart: Chart,
    /// Name of the component.
    word: String,
    /// Name of the release.
    release: String,
    /// Namespace of the release.
    namespace: String,
    hub: Client,
    target: Client,
    helm: Helm,
    /// Helm's output, and for which target it is.
    printed: tokio::sync::Mutex<Option<(Capabilities, Vec<Printed>)>>,
    before: Snapshot,
    source: (String, String, String),
    access: String,
}

/// How a chart got on.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    findings: Findings,
    /// Workloads that do not become ready, as the component says.
    unhealthy: Option<String>,
    /// What stays after the removal.
    kept: Vec<String>,
    /// Why neither helm nor we can render it.
    refused: Option<String>,
}

impl Outcome {
    pub(crate) fn keeping(self, kept: Vec<String>) -> Self {
        Self { kept, ..self }
    }

    /// Of a chart that is not installed.
    pub(crate) fn refused(reason: String) -> Self {
        Self { refused: Some(reason), ..Self::default() }
    }

    /// How many objects are equal.
    pub(crate) fn equal(&self) -> String {
        self.findings.equal.to_string()
    }

    /// What else people should know.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let Findings { varying, missing, refused, absent, .. } = &self.findings;
        let mut remarks: Vec<String> =
            self.refused.iter().map(|reason| format!("helm and we cannot render it: {reason}")).collect();
        if *varying > 0 {
            remarks.push(format!("{varying} paths vary between runs of helm"));
        }
        remarks.extend(
            missing.iter().map(|kind| format!("not installed: {kind}, which the target does not serve")),
        );
        remarks.extend(
            refused.iter().map(|(object, reason)| format!("cannot be installed: {object}: {reason}")),
        );
        if !absent.is_empty() {
            remarks.push(format!("{} objects wait for that", absent.len()));
        }
        remarks.extend(self.unhealthy.iter().map(|unhealthy| format!("never ready here: {unhealthy}")));
        if !self.kept.is_empty() {
            remarks.push(format!("stays after removal: {}", self.kept.join(", ")));
        }
        remarks
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} objects equal helm's", self.equal())?;
        self.remarks().iter().try_for_each(|remark| write!(formatter, "; {remark}"))
    }
}

impl Story {
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
        secrets.patch(&secret, &PatchParams::apply(WRITER).force(), &Patch::Apply(&typed(&access)?)).await?;
        let target = target.client()?;
        let before = snapshot::take(&target).await?;
        let source = (repository, name, version);
        let printed = tokio::sync::Mutex::default();
        Ok(Self {
            chart: chart.clone(),
            word,
            release,
            namespace,
            hub,
            target,
            helm,
            printed,
            before,
            source,
            access: secret,
        })
    }

    /// Installs the chart and waits until everything that can be there is, as helm would have it.
    pub(crate) async fn install(&self) -> Result<Outcome> {
        let component = self.component()?;
        self.components().create(&PostParams::default(), &component).await?;
        self.settled().await
    }

    /// Changes the values and waits for the same.
    pub(crate) async fn change(&mut self, values: &Value) -> Result<Outcome> {
        self.chart.values = values.clone();
        *self.printed.get_mut() = None;
        let component = self.component()?;
        // As a whole: what the new values do not name is no more.
        let mut held = self.components().get(&self.word).await?;
        held.spec = component.spec;
        self.components().replace(&self.word, &PostParams::default(), &held).await?;
        self.settled().await
    }

    /// Whether the chart cannot be rendered with these values, which the component says as helm does.
    pub(crate) async fn refused(&self) -> Result<Option<String>> {
        let capabilities = Capabilities::of(&self.target).await?;
        let Err(reason) = self.printed(capabilities).await else { return Ok(None) };
        self.components().create(&PostParams::default(), &self.component()?).await?;
        let not_rendered = |component: Option<&HelmComponent>| {
            let rendered = component.and_then(|component| condition(component, "Rendered"));
            rendered.is_some_and(|rendered| rendered.status == "False")
        };
        wait::until("the chart is not rendered", self.components(), &self.word, not_rendered).await?;
        Box::pin(self.remove()).await?;
        Ok(Some(oracle::reason(&reason)))
    }

    /// Whether helm can render the chart with other values.
    pub(crate) async fn renders(&self, values: &Value) -> Result<bool> {
        let Capabilities { kube_version, api_versions } = Capabilities::of(&self.target).await?;
        let chart = Chart { values: values.clone(), ..self.chart.clone() };
        let printed =
            self.helm.template(&chart, &self.release, &self.namespace, &kube_version, &api_versions).await;
        Ok(printed.is_ok())
    }

    async fn settled(&self) -> Result<Outcome> {
        let what = format!("{} is as helm would have it", self.chart.name);
        until_or_why(&what, DEADLINE, || async {
            self.judge(&self.components().get(&self.word).await?).await
        })
        .await
    }

    /// Whether the component is where it can get, or what is still to come.
    async fn judge(&self, component: &HelmComponent) -> Result<Result<Outcome, String>> {
        let status = component.status.clone().unwrap_or_default();
        let ready = condition(component, "Ready");
        let said = ready.map_or_else(String::new, |ready| format!("{}: {}", ready.reason, ready.message));
        if status.observed_generation != component.metadata.generation {
            return Ok(Err(said));
        }
        let Some(state) = status.state.filter(|state| *state != State::Deleting) else {
            return Ok(Err(said));
        };
        let is = |aspect: &str, wanted: &str| {
            condition(component, aspect).is_some_and(|condition| condition.status == wanted)
        };
        let waits_for_health = is("Applied", "True") && is("Healthy", "False");
        if state == State::Processing && !waits_for_health {
            return Ok(Err(said));
        }
        // Before the comparison, which costs a dry run for each object.
        let unhealthy = condition(component, "Healthy").filter(|healthy| healthy.status == "False");
        if let Some(unhealthy) = unhealthy
            && let Some(fine) = self.fine(&unhealthy.message).await?
        {
            return Ok(Err(format!("Healthy is False for {fine}, which is ready or gets ready")));
        }
        let capabilities = Capabilities::of(&self.target).await?;
        let printed = self.printed(capabilities).await?;
        let owner = names::owner_hash(HUB_NAMESPACE, &self.word);
        let findings = compare::release(&self.target, &printed, &self.namespace, &owner).await?;
        // Later stages wait for what the target refuses.
        let excused = if findings.refused.is_empty() { &[][..] } else { &findings.absent[..] };
        let wrong: Vec<&String> = findings.wrong.iter().chain(&findings.absent[excused.len()..]).collect();
        if !wrong.is_empty() {
            let wrong: Vec<&str> = wrong.into_iter().map(String::as_str).collect();
            return Ok(Err(format!("{said}\n    {}", wrong.join("\n    "))));
        }
        Ok(explained(component, findings, &said))
    }

    /// Helm's output for a target of this kind, from the last look where that was the same.
    async fn printed(&self, capabilities: Capabilities) -> Result<Vec<Printed>> {
        let mut known = self.printed.lock().await;
        if let Some((_, printed)) = known.as_ref().filter(|(of, _)| *of == capabilities) {
            return Ok(printed.clone());
        }
        let printed =
            oracle::objects(&self.helm, &self.chart, &self.release, &self.namespace, &capabilities).await?;
        *known = Some((capabilities, printed.clone()));
        Ok(printed)
    }

    /// One of the named objects that has what it needs after all, or cannot be told.
    async fn fine(&self, named: &str) -> Result<Option<String>> {
        for name in named.split(", ") {
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

    /// Removes the component. Returns what stays, once the target is otherwise as before, and cleans that up.
    pub(crate) async fn remove(&self) -> Result<Vec<String>> {
        let found = self.components().get(&self.word).await?;
        self.components().delete(&self.word, &DeleteParams::default()).await?;
        let uid = found.uid().context("a stored component has a uid")?;
        wait::until("the component is gone", self.components(), &self.word, is_deleted(&uid)).await?;
        let kept = until_as_before(&self.target, &self.before).await?;
        // Namespaces, and claims of StatefulSets with their volumes: only an administrator removes them.
        clear(&self.target, &self.before).await?;
        let own = |difference: &&Difference| match difference {
            Difference::Added(key) => !is_in_every_namespace(key),
            Difference::Removed(_) | Difference::Changed(..) => true,
        };
        Ok(kept.iter().filter(own).map(ToString::to_string).collect())
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

/// What is not Ready is so for a reason that holds on the target, and the component names it.
fn explained(component: &HelmComponent, findings: Findings, said: &str) -> Result<Outcome, String> {
    let message = |aspect: &str| {
        let found = condition(component, aspect).filter(|condition| condition.status == "False");
        found.map(|condition| condition.message.clone())
    };
    let dependencies = message("DependenciesReady").unwrap_or_default();
    if let Some(kind) = findings.missing.iter().find(|kind| !dependencies.contains(kind.as_str())) {
        return Err(format!("DependenciesReady does not name {kind}: {dependencies}"));
    }
    if findings.missing.is_empty() && !dependencies.is_empty() {
        return Err(format!("everything is served, but DependenciesReady says: {dependencies}"));
    }
    let applied = message("Applied").unwrap_or_default();
    if let Some(object) = findings.refused.keys().find(|object| !applied.contains(object.as_str())) {
        return Err(format!("Applied does not name {object}: {applied}"));
    }
    let state = component.status.as_ref().and_then(|status| status.state);
    let unhealthy = message("Healthy");
    let complete = findings.missing.is_empty() && findings.refused.is_empty() && unhealthy.is_none();
    if complete != (state == Some(State::Ready)) {
        return Err(format!("{state:?}: {said}"));
    }
    Ok(Outcome { findings, unhealthy, ..Outcome::default() })
}

fn condition<'a>(component: &'a HelmComponent, aspect: &str) -> Option<&'a Condition> {
    let mut conditions = component.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == aspect)
}

fn typed(secret: &Secret) -> Result<Value> {
    let mut value = serde_json::to_value(secret)?;
    value["apiVersion"] = "v1".into();
    value["kind"] = "Secret".into();
    Ok(value)
}

/// A chart's directory as a name in the cluster.
pub(crate) fn word(directory: &str) -> String {
    let stem = directory.rsplit_once('-').map_or(directory, |(stem, _)| stem);
    stem.to_lowercase()
}
