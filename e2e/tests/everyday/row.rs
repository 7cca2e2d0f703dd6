//! A row: a component on the shared target, a failure, and the reported reason.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::landscape::HUB_NAMESPACE;
use e2e::wait::has_condition;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Resource, ResourceExt};
use kyma_api::Reason;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::Access;

use crate::world::{FIELD_MANAGER, REGISTRY_LOGIN, World, config_map};

/// Deadline of every wait, including backoff.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);
/// Maximum number of rounds in which work may start late.
const MAX_ROUNDS: usize = 5;

/// A component without a Kyma.
pub(crate) struct Row {
    pub(crate) world: &'static World,
    pub(crate) name: String,
    /// Working access to the target.
    pub(crate) access: Access,
}

impl Row {
    pub(crate) async fn new(world: &'static World, name: &str) -> Result<Self> {
        let access = world.landscape.access(&world.quay).await?;
        Ok(Self { world, name: name.to_owned(), access })
    }

    /// Returns a word in the user's values that must not appear in any output.
    pub(crate) fn canary(&self) -> String {
        format!("canary-value-{}", self.name)
    }

    /// Creates or changes the access Secret.
    pub(crate) async fn grant(&self, kubeconfig: &str) -> Result<()> {
        self.secret(&format!("kubeconfig-{}", self.name), json!({"config": kubeconfig})).await
    }

    /// Deletes the access Secret.
    pub(crate) async fn withdraw(&self) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.world.hub.clone(), HUB_NAMESPACE);
        secrets.delete(&format!("kubeconfig-{}", self.name), &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn secret(&self, name: &str, data: Value) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data,
        });
        let secrets: Api<Secret> = Api::namespaced(self.world.hub.clone(), HUB_NAMESPACE);
        secrets.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// Creates the component with this source; the canary is among the user's values.
    pub(crate) async fn apply_source(&self, source: Value) -> Result<()> {
        self.apply_with_values(source, json!({"token": self.canary()})).await
    }

    pub(crate) async fn apply_with_values(&self, source: Value, values: Value) -> Result<()> {
        let component = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1",
            "kind": "HelmComponent",
            "metadata": {"name": self.name},
            "spec": {
                "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{}", self.name), "key": "config"}},
                "source": source,
                "release": {"name": "row", "namespace": self.name},
                "userValues": values,
            },
        });
        let patch = PatchParams::apply(FIELD_MANAGER).force();
        self.world.components().patch(&self.name, &patch, &Patch::Apply(&component)).await?;
        Ok(())
    }

    /// Returns a source of one ConfigMap `content` with this version.
    pub(crate) fn content(&self, version: &str) -> Value {
        let manifest = config_map("content", &self.name, version).to_string();
        json!({"manifests": {"url": self.world.file_server.put(&format!("{}-{version}.yaml", self.name), manifest)}})
    }

    /// Installs a working component before the failure.
    pub(crate) async fn install(&self) -> Result<()> {
        self.grant(&self.access.kubeconfig()).await?;
        self.apply_source(self.content("1")).await?;
        self.is_ready().await?;
        self.holds("1").await
    }

    /// Waits until this condition and `Ready` are False for this reason in the current generation, with a message that
    /// contains `words`.
    pub(crate) async fn is_stuck(&self, type_: &str, reason: Reason, words: &str) -> Result<()> {
        let what = format!("{} has {type_}=False for {reason}", self.name);
        let api = self.world.components();
        until(&what, api, &self.name, |component| {
            has_condition(component, type_, "False", reason)
                && has_condition(component, "Ready", "False", reason)
                && says(component, type_, words)
                && component["status"]["observedGeneration"] == component["metadata"]["generation"]
        })
        .await?;
        Ok(())
    }

    /// Waits until the component is Ready in its current generation.
    pub(crate) async fn is_ready(&self) -> Result<()> {
        let what = format!("{} is Ready", self.name);
        until(&what, self.world.components(), &self.name, |component| {
            has_condition(component, "Ready", "True", Reason::Ready)
                && component["status"]["state"] == "Ready"
                && component["status"]["observedGeneration"] == component["metadata"]["generation"]
        })
        .await?;
        Ok(())
    }

    /// Checks that the failure was reported by one event. Waits for the event of the recovery first: events arrive
    /// in order, so no event of the failure is missing then.
    pub(crate) async fn was_reported_once(&self, reason: Reason) -> Result<()> {
        let what = format!("another event reports that {} is Ready", self.name);
        testbed::until(&what, DEADLINE, || async {
            Ok((self.event_count(Reason::Ready).await? > 1).then_some(()))
        })
        .await?;
        let count = self.event_count(reason).await?;
        ensure!(count == 1, "{}: {count} events with reason {reason}", self.name);
        Ok(())
    }

    /// Returns the number of events with this reason.
    async fn event_count(&self, reason: Reason) -> Result<u64> {
        let events = self.world.list("events.k8s.io/v1", "Event").await?;
        let events = events.iter().map(|event| &event.data);
        let of_it = events
            .filter(|event| event["regarding"]["name"] == self.name && event["reason"] == reason.as_str());
        Ok(of_it.map(|event| event["series"]["count"].as_u64().unwrap_or(1)).sum())
    }

    /// Returns the API for the row's ConfigMaps on the target.
    pub(crate) fn objects(&self) -> Result<Api<ConfigMap>> {
        Ok(Api::namespaced(self.world.quay.client()?, &self.name))
    }

    /// Waits until the target has the content in this version.
    pub(crate) async fn holds(&self, version: &str) -> Result<()> {
        let what = format!("the target holds content {version} of {}", self.name);
        until(&what, self.objects()?, "content", |found| found["data"]["version"] == version).await?;
        Ok(())
    }

    /// Returns name, uid and resourceVersion of the row's ConfigMaps on the target.
    pub(crate) async fn traces(&self) -> Result<Vec<(String, String, String)>> {
        let found = self.objects()?.list(&kube::api::ListParams::default()).await?;
        let trace = |object: &ConfigMap| {
            let version = object.resource_version().unwrap_or_default();
            (object.name_any(), object.uid().unwrap_or_default(), version)
        };
        Ok(found.iter().map(trace).collect())
    }

    /// Checks that other components are unchanged and no secret was shown.
    pub(crate) async fn close(&self) -> Result<()> {
        self.world.bystanders_are_untouched().await?;
        let kubeconfig: Value = serde_saphyr::from_str(&self.access.kubeconfig())?;
        let token = kubeconfig["users"][0]["user"]["token"].as_str().context("the access has a token")?;
        let secrets = [self.canary(), token.to_owned(), REGISTRY_LOGIN.1.to_owned(), "CANARY".to_owned()];
        self.world.check_secrets_hidden(&secrets).await
    }
}

/// Reports whether the condition's message contains these words.
pub(crate) fn says(object: &Value, type_: &str, words: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut messages = conditions.into_iter().flatten().filter(|condition| condition["type"] == type_);
    messages.any(|condition| condition["message"].as_str().is_some_and(|message| message.contains(words)))
}

/// Waits until the object is as wanted and returns it; otherwise the error shows its status.
pub(crate) async fn until<K>(
    what: &str,
    api: Api<K>,
    name: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value>
where
    K: Clone + Debug + Send + Serialize + DeserializeOwned + Resource + 'static,
{
    let reached = await_condition(api.clone(), name, |object: Option<&K>| {
        object.and_then(|object| serde_json::to_value(object).ok()).is_some_and(|object| wanted(&object))
    });
    let Ok(found) = tokio::time::timeout(DEADLINE, reached).await else {
        let found = api.get_opt(name).await?.map(serde_json::to_value).transpose()?;
        bail!("{what}: not within {DEADLINE:?}; it has {}", found.unwrap_or_default()["status"])
    };
    serde_json::to_value(found?.context("it exists")?).context("objects are JSON")
}

/// Measures the time until work starts, each time for another object, until it is below a second: if the machine was
/// busy in one round, the next one passes.
pub(crate) async fn until_within_a_second(
    row: &Row,
    measure: impl AsyncFn(&Row) -> Result<Duration>,
) -> Result<()> {
    let mut late = Vec::new();
    for round in 0..MAX_ROUNDS {
        let row = Row::new(row.world, &format!("{}-{round}", row.name)).await?;
        let took = measure(&row).await?;
        if took < Duration::from_secs(1) {
            return Ok(());
        }
        late.push(took);
    }
    bail!("the first write came after {late:?}")
}
