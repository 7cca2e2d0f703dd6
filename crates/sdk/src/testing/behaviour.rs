//! Checks of a running component.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{DynamicObject, PartialObjectMeta},
    discovery::{Discovery, verbs},
    runtime::wait::{Condition, await_condition},
};
use kyma_api::{State, condition, finalizers, labels, names};
use kyma_controller::{NoFlags, Process, RunError, serve};
use serde_json::{Value, json};

use super::test_operator::settings;
use crate::component::Component;
use crate::contract::Contract;
use crate::driver::ComponentProgram;

/// Clusters and flags for the checks of a component.
#[derive(Clone)]
pub struct ConformanceSetup {
    /// The component's own user on the hub.
    pub hub: Config,
    /// An administrator of the hub, which acts as kyma-operator and as users.
    pub hub_admin: Client,
    /// Flags of the command `run`, such as `--hub-namespace=test`. The hub namespace exists and is otherwise empty.
    pub flags: Vec<String>,
    /// Kubeconfig for the access Secret: the component's user on the target.
    pub kubeconfig: String,
    /// An administrator of the target, which reads its objects.
    pub target_admin: Client,
    /// Maximum time for each step.
    pub step_timeout: Duration,
}

/// Name of the access Secret and prefix of the components.
const NAME: &str = "conformance";

/// Runs `component` with `sample` as spec (without the fields of the contract) and returns the violations of these
/// rules:
/// - It becomes Ready, and reports `observedGeneration` and its condition for the observed generation.
/// - A reconcile without a change writes nothing.
/// - A deletion with Orphan leaves all objects, one with Delete leaves none.
/// - A component that never installed anything can be deleted.
///
/// The CRD is installed and the roles of the table are granted by the caller.
///
/// ```
/// use std::error::Error;
///
/// use kyma_sdk::Component;
/// use kyma_sdk::testing::{ConformanceSetup, check_behaviour};
/// use serde_json::json;
///
/// async fn check<C: Component>(component: C, setup: &ConformanceSetup) -> Result<(), Box<dyn Error + Send + Sync>> {
///     let violations = check_behaviour(component, json!({"text": "Hello"}), setup).await?;
///     assert_eq!(violations, [""; 0]);
///     Ok(())
/// }
/// ```
///
/// # Errors
/// A flag cannot be used, or a call of an administrator fails.
pub async fn check_behaviour<C: Component>(
    component: C,
    sample: Value,
    setup: &ConformanceSetup,
) -> Result<Vec<String>, RunError> {
    let settings = settings(&setup.flags)?;
    let hub_namespace = settings.hub_namespace.clone();
    let process = Process::new()?;
    let program = ComponentProgram(component);
    let served = serve(program, NoFlags {}, settings, setup.hub.clone(), process.clone());
    let components = Api::namespaced(setup.hub_admin.clone(), &hub_namespace);
    let trial = Trial::<C> { setup, hub_namespace, sample, components };
    let checked = async {
        let found = trial.run().await;
        process.shutdown.cancel();
        found
    };
    let (served, found) = tokio::join!(served, checked);
    served?;
    found
}

struct Trial<'a, C: Component> {
    setup: &'a ConformanceSetup,
    hub_namespace: String,
    sample: Value,
    components: Api<C::Resource>,
}

/// Objects on the target by kind, namespace and name, with their versions.
type Objects = BTreeMap<String, String>;

impl<C: Component> Trial<'_, C> {
    async fn run(&self) -> Result<Vec<String>, RunError> {
        let mut found = vec![];
        self.grant_access().await?;
        let orphan = format!("{NAME}-orphan");
        self.create(&orphan, json!({})).await?;
        let Some(ready) = self.until_ready(&orphan).await? else {
            return Ok(vec![format!("never Ready: {}", self.ready_text(&orphan).await?)]);
        };
        found.extend(report_violations(&Contract::of(&ready)?, ready.meta().generation));
        let Some(installed) = self.until_settled(&orphan).await? else {
            return Ok(vec!["it never stops writing: each of its writes causes another".to_owned()]);
        };
        found.extend(self.idempotence(&orphan, &installed).await?);
        self.end(&orphan).await?;
        match self.until_gone(&orphan).await? {
            false => found.push("Orphan: the finalizer stays".to_owned()),
            true if self.owned(&orphan).await?.len() < installed.len() => {
                found.push("Orphan: an object was removed from the target".to_owned());
            }
            true => {}
        }
        found.extend(self.removal(&format!("{NAME}-deleted"), false).await?);
        found.extend(self.removal(&format!("{NAME}-never-installed"), true).await?);
        Ok(found)
    }

    async fn idempotence(&self, name: &str, installed: &Objects) -> Result<Vec<String>, RunError> {
        let before = Contract::of(&self.components.get(name).await?)?.whole_status;
        let look = json!({"metadata": {"annotations": {"conformance": "look again"}}});
        self.components.patch(name, &PatchParams::default(), &Patch::Merge(&look)).await?;
        let again = self.until_settled(name).await?.unwrap_or_default();
        let mut found: Vec<String> = vec![];
        for (object, version) in installed {
            if again.get(object) != Some(version) {
                found.push(format!("reconciled again without a change, it changed {object}"));
            }
        }
        if Contract::of(&self.components.get(name).await?)?.whole_status != before {
            found.push("reconciled again without a change, it wrote its status".to_owned());
        }
        Ok(found)
    }

    async fn removal(&self, name: &str, suspended: bool) -> Result<Vec<String>, RunError> {
        self.create(name, json!({"deletionPolicy": "Delete", "suspend": suspended})).await?;
        if !suspended && self.until_ready(name).await?.is_none() {
            return Ok(vec![format!("{name}: never Ready: {}", self.ready_text(name).await?)]);
        }
        self.end(name).await?;
        if !self.until_gone(name).await? {
            return Ok(vec![format!("{name}: the finalizer stays: {}", self.ready_text(name).await?)]);
        }
        let left = self.owned(name).await?;
        Ok(left.keys().map(|object| format!("{name}: left behind: {object}")).collect())
    }

    async fn grant_access(&self) -> Result<(), RunError> {
        let secrets: Api<Secret> = Api::namespaced(self.setup.hub_admin.clone(), &self.hub_namespace);
        let mut secret = Secret::default();
        secret.metadata.name = Some(NAME.to_owned());
        let kubeconfig = ByteString(self.setup.kubeconfig.clone().into_bytes());
        secret.data = Some([("config".to_owned(), kubeconfig)].into());
        secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    async fn create(&self, name: &str, contract: Value) -> Result<(), RunError> {
        let mut spec = self.sample.clone();
        merge(&mut spec, contract);
        merge(
            &mut spec,
            json!({
                "target": {"kubeconfigSecretRef": {"name": NAME, "key": "config"}},
                "module": {"name": NAME, "version": "1.0.0"},
            }),
        );
        let resource = ApiResource::erase::<C::Resource>(&());
        let object: C::Resource = serde_json::from_value(json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "finalizers": [finalizers::COMPONENT]},
            "spec": spec,
        }))?;
        self.components.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn end(&self, name: &str) -> Result<(), RunError> {
        self.components.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn until_ready(&self, name: &str) -> Result<Option<C::Resource>, RunError> {
        self.until(name, |held: Option<&C::Resource>| {
            let status =
                held.and_then(|held| Contract::of(held).ok().map(|contract| (contract.status, held)));
            status.is_some_and(|(status, held)| {
                status.state == Some(State::Ready) && status.observed_generation == held.meta().generation
            })
        })
        .await
        .map(Option::flatten)
    }

    async fn until_gone(&self, name: &str) -> Result<bool, RunError> {
        Ok(self.until(name, |held: Option<&C::Resource>| held.is_none()).await?.is_some())
    }

    /// Returns the component once a watch shows that it meets the condition; `None` after the timeout.
    async fn until(
        &self,
        name: &str,
        wanted: impl Condition<C::Resource>,
    ) -> Result<Option<Option<C::Resource>>, RunError> {
        let seen = await_condition(self.components.clone(), name, wanted);
        Ok(tokio::time::timeout(self.setup.step_timeout, seen).await.ok().transpose()?)
    }

    /// Returns the component's objects on the target once they stay the same for a second.
    async fn until_settled(&self, name: &str) -> Result<Option<Objects>, RunError> {
        let mut last = self.owned(name).await?;
        let start = Instant::now();
        let mut since = start;
        while since.elapsed() < Duration::from_secs(1) {
            if start.elapsed() > self.setup.step_timeout {
                return Ok(None);
            }
            // No event marks the end of changes, so one second without a change counts as settled.
            tokio::time::sleep(PAUSE).await;
            let now = self.owned(name).await?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(Some(last))
    }

    async fn ready_text(&self, name: &str) -> Result<String, RunError> {
        let Some(held) = self.components.get_opt(name).await? else { return Ok("it was deleted".to_owned()) };
        let conditions = Contract::of(&held)?.status.conditions;
        let ready = condition::get(&conditions, condition::types::READY);
        Ok(ready
            .map_or_else(|| "no condition Ready".to_owned(), |it| format!("{}: {}", it.reason, it.message)))
    }

    /// Returns all objects on the target with the component's owner label, of any kind.
    async fn owned(&self, name: &str) -> Result<Objects, RunError> {
        let owner = names::owner_hash(&self.hub_namespace, name);
        let params = ListParams::default().labels(&names::label_selector(labels::OWNER, &owner));
        let discovery = Discovery::new(self.setup.target_admin.clone()).run_aggregated().await?;
        let mut objects = Objects::new();
        for (resource, capabilities) in
            discovery.groups().flat_map(kube::discovery::ApiGroup::resources_by_stability)
        {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(self.setup.target_admin.clone(), &resource);
            for object in listed(&api, &params).await? {
                let namespace = object.namespace().unwrap_or_default();
                let key = format!("{} {namespace}/{}", resource.kind, object.name_any());
                objects.insert(key, object.resource_version().unwrap_or_default());
            }
        }
        Ok(objects)
    }
}

/// Lists objects of a kind that may come or go meanwhile.
async fn listed(
    api: &Api<DynamicObject>,
    params: &ListParams,
) -> kube::Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let end = Instant::now() + STORAGE_DEADLINE;
    loop {
        match api.list_metadata(params).await {
            Ok(listed) => return Ok(listed.items),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            // The storage of a CRD that was just created is not ready yet.
            Err(kube::Error::Api(status)) if status.code == 429 && Instant::now() < end => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Deadline for the storage of a new CRD.
const STORAGE_DEADLINE: Duration = Duration::from_secs(30);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(50);

fn report_violations(contract: &Contract, generation: Option<i64>) -> Vec<String> {
    let mut found = vec![];
    let conditions = &contract.status.conditions;
    match condition::get(conditions, condition::types::READY) {
        None => found.push("no condition Ready".to_owned()),
        Some(ready) if ready.observed_generation != generation => {
            found.push("condition Ready is not about the generation that was reported".to_owned());
        }
        Some(_) => {}
    }
    if contract.status.version.is_none() {
        found.push("Ready without status.version".to_owned());
    }
    found
}

/// Adds the fields of `more` to the object `into`.
fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}
