//! A hub with three Kymas, three modules each, on three real targets.

use std::future::{Ready, ready};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::fleet::Fleet;
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options, TARGET_NAMESPACE, is_of_an_operator};
use e2e::snapshot::{self, Snapshot};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, NamespaceResourceScope};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, ModuleConfig, Pause, PauseSpec, labels, names};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use testbed::{AuditEvent, AuditMark, Cluster, until_or_why};

pub(crate) const KYMAS: [&str; 3] = ["east", "north", "west"];
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

pub(crate) struct World {
    pub(crate) landscape: Landscape,
    pub(crate) hub: Client,
    /// Snapshots of the targets before their Kymas.
    before: Vec<Snapshot>,
    /// Kymas and components as a backup tool stores them.
    backup: Mutex<Vec<DynamicObject>>,
}

/// The module that the ModuleConfig configures.
const MODULE: &str = "harbour";

/// Name of a Pause that is in force for an operator that does not exist.
const PAUSE: &str = "freeze";

fn forced() -> Value {
    json!({"replicas": 2})
}

/// Does nothing: the object comes back by itself.
pub(crate) fn nothing(_: &World) -> Ready<Result<()>> {
    ready(Ok(()))
}

impl World {
    /// Starts a landscape and waits until all Kymas are Ready; with `snapshots` every cluster can be restored to an
    /// earlier state.
    pub(crate) async fn build(snapshots: bool) -> Result<Self> {
        let options = Options { targets: KYMAS.len(), audit: true, snapshots, ..Options::default() };
        Self::on(Landscape::start(options).await?).await
    }

    /// Builds the world on a landscape that has audit logs and a target for each Kyma.
    pub(crate) async fn on(landscape: Landscape) -> Result<Self> {
        let mut before = Vec::new();
        for target in landscape.targets() {
            before.push(snapshot::take(&target.client()?).await?);
        }
        let world = Self { hub: landscape.hub().client()?, landscape, before, backup: Mutex::default() };
        world.fleet()?.publish().await?;
        world.configure().await?;
        for name in KYMAS {
            world.fleet()?.join(name, world.cluster(name)?).await?;
        }
        world.is_ready().await?;
        world.landscape.until_at_rest().await?;
        Ok(world)
    }

    /// Creates a ModuleConfig with a value that overrides the users' and a policy for each target.
    pub(crate) async fn configure(&self) -> Result<()> {
        let config: ModuleConfig = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig",
            "metadata": {"name": "fleet"},
            "spec": {"module": MODULE, "values": forced(), "resourceRules": [{
                "group": "demo.example.com", "resource": "lanterns", "expression": "true", "message": "never",
            }]},
        }))?;
        let configs: Api<ModuleConfig> = self.api();
        configs.create(&PostParams::default(), &config).await?;
        Ok(())
    }

    /// Checks that components have the forced values, and that targets have the policy.
    pub(crate) async fn is_configured(&self) -> Result<()> {
        let of_module = ListParams::default().labels(&names::label_selector(labels::MODULE_NAME, MODULE));
        let components = match self.components().list(&of_module).await {
            // Their CRD is missing.
            Err(kube::Error::Api(status)) if status.code == 404 => vec![],
            listed => listed?.items,
        };
        for component in components {
            let overrides = &component.data["spec"]["overrides"];
            ensure!(*overrides == forced(), "{} has {overrides}", component.name_any());
        }
        for kyma in KYMAS {
            let policies: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.target(kyma)?);
            let of_configs = ListParams::default().labels(labels::MODULE_CONFIG);
            ensure!(policies.list(&of_configs).await?.items.len() == 1, "{kyma} has no policy");
        }
        Ok(())
    }

    /// Creates the Pause, and waits until every operator obeys it.
    pub(crate) async fn pause(&self) -> Result<()> {
        let spec = PauseSpec { operators: vec!["another-operator".to_owned()], ..PauseSpec::default() };
        let pauses: Api<Pause> = self.api();
        pauses.create(&PostParams::default(), &Pause::new(PAUSE, spec)).await?;
        until_or_why("every operator records the Pause", DEADLINE, || async {
            Ok(self.is_paused().await.map_err(|error| format!("{error:#}")))
        })
        .await
    }

    /// Checks that every operator has the Pause on record, as it does while the Pause is in force.
    pub(crate) async fn is_paused(&self) -> Result<()> {
        let records: Api<ConfigMap> = self.api();
        for operator in self.landscape.operators() {
            let record = records.get(&format!("pauses-{}", operator.name())).await?;
            let pauses = record.data.unwrap_or_default().remove("pauses").unwrap_or_default();
            ensure!(pauses.contains(PAUSE), "{} has these Pauses in force: {pauses}", operator.name());
        }
        Ok(())
    }

    pub(crate) fn fleet(&self) -> Result<Fleet<'_>> {
        Fleet::new(&self.landscape)
    }

    pub(crate) fn backup(&self) -> MutexGuard<'_, Vec<DynamicObject>> {
        self.backup.lock()
    }

    fn position(kyma: &str) -> Result<usize> {
        KYMAS.iter().position(|name| *name == kyma).with_context(|| format!("no Kyma {kyma}"))
    }

    pub(crate) fn cluster(&self, kyma: &str) -> Result<&Cluster> {
        Ok(&self.landscape.targets()[Self::position(kyma)?])
    }

    /// Returns a client for the target of a Kyma.
    pub(crate) fn target(&self, kyma: &str) -> Result<Client> {
        self.cluster(kyma)?.client()
    }

    /// Returns the snapshot of a Kyma's target before the Kyma.
    pub(crate) fn before(&self, kyma: &str) -> Result<&Snapshot> {
        Ok(&self.before[Self::position(kyma)?])
    }

    /// Runs a row: applies the cause, and removes it again with `mend`. Checks that no operator deletes anything on
    /// a target or lifts the Pause, and that all Kymas are Ready afterwards.
    pub(crate) async fn loses(
        &self,
        what: &str,
        cause: impl AsyncFn(&Self) -> Result<()>,
        mend: impl AsyncFn(&Self) -> Result<()>,
    ) -> Result<()> {
        let marks = self.landscape.marks()?;
        cause(self).await.with_context(|| format!("without {what}"))?;
        self.landscape.until_at_rest().await.with_context(|| format!("without {what}"))?;
        self.nothing_was_deleted(&marks).with_context(|| format!("without {what}"))?;
        self.is_configured().await.with_context(|| format!("without {what}"))?;
        self.is_paused().await.with_context(|| format!("without {what}"))?;
        mend(self).await.with_context(|| format!("{what} again"))?;
        self.is_ready().await.with_context(|| format!("{what} again"))?;
        self.landscape.until_at_rest().await.with_context(|| format!("{what} again"))?;
        self.is_configured().await.with_context(|| format!("{what} again"))?;
        self.is_paused().await.with_context(|| format!("{what} again"))?;
        self.nothing_was_deleted(&marks).with_context(|| format!("{what} again"))
    }

    pub(crate) fn nothing_was_deleted(&self, marks: &[AuditMark]) -> Result<()> {
        // Copies of the catalogue are deleted if the served catalogue lacks the original; no running module depends
        // on them.
        let is_copy = |resource: &str| matches!(resource, "moduletemplates" | "modulereleasemetas");
        self.no_operator_did(marks, |event| event.verb.starts_with("delete") && !is_copy(&event.resource))
    }

    pub(crate) fn nothing_was_written(&self, marks: &[AuditMark]) -> Result<()> {
        self.no_operator_did(marks, AuditEvent::is_write)
    }

    fn no_operator_did(&self, marks: &[AuditMark], it: impl Fn(&AuditEvent) -> bool) -> Result<()> {
        let logs = self.landscape.clusters().into_iter().zip(marks);
        // Skips the hub, which comes first: operators may delete objects of their own there.
        for (target, mark) in logs.skip(1) {
            let events = target.audit()?.since(*mark)?;
            let done = events.iter().filter(|event| is_of_an_operator(event) && it(event));
            let lines: Vec<String> =
                done.map(|event| format!("{} {} {}", event.user_agent, event.verb, event.uri)).collect();
            ensure!(lines.is_empty(), "on {}:\n{}", target.name(), lines.join("\n"));
        }
        Ok(())
    }

    pub(crate) async fn is_ready(&self) -> Result<()> {
        for name in KYMAS {
            self.fleet()?.until_installed(name).await?;
        }
        Ok(())
    }

    /// Waits until every Kyma reports this reason by condition and by event.
    pub(crate) async fn all_say(&self, reason: &str) -> Result<()> {
        for name in KYMAS {
            self.says(name, reason).await?;
        }
        Ok(())
    }

    /// Waits until the Kyma reports this reason by condition and by event.
    pub(crate) async fn says(&self, kyma: &str, reason: &str) -> Result<()> {
        self.fleet()?.until_reason(kyma, reason).await?;
        let events: Api<Event> = self.api();
        until_or_why(&format!("an event of {kyma} says {reason}"), DEADLINE, || async {
            let listed = events.list(&ListParams::default()).await?.items;
            let of_kyma = listed.iter().filter(|event| {
                event.regarding.as_ref().is_some_and(|object| {
                    object.kind.as_deref() == Some("Kyma") && object.name.as_deref() == Some(kyma)
                })
            });
            let reasons: Vec<&str> = of_kyma.filter_map(|event| event.reason.as_deref()).collect();
            Ok(if reasons.contains(&reason) { Ok(()) } else { Err(format!("{reasons:?}")) })
        })
        .await
    }

    /// Enables exactly these modules in the target's Kyma, with the entries that the hub's Kyma has.
    pub(crate) async fn choose(&self, kyma: &str, modules: &[&str]) -> Result<()> {
        let kymas: Api<Kyma> = Api::namespaced(self.target(kyma)?, TARGET_NAMESPACE);
        let hubs = self.kymas().get(kyma).await?.spec.modules.unwrap_or_default();
        let chosen: Vec<Value> = hubs
            .iter()
            .filter(|module| modules.contains(&module.name.as_str()))
            .map(|module| json!(module))
            .collect();
        let chosen = Patch::Merge(json!({"spec": {"modules": chosen}}));
        kymas.patch("default", &PatchParams::default(), &chosen).await?;
        Ok(())
    }

    pub(crate) async fn delete_kyma(&self, name: &str) -> Result<()> {
        self.kymas().delete(name, &DeleteParams::default()).await?;
        self.kyma_is_gone(name).await
    }

    pub(crate) async fn kyma_is_gone(&self, name: &str) -> Result<()> {
        until_or_why(&format!("{name} is gone"), DEADLINE, || async {
            let Some(kyma) = self.kymas().get_opt(name).await? else { return Ok(Ok(())) };
            let mut left = Vec::new();
            for api in [self.components(), self.greetings()] {
                let ending = api.list(&ListParams::default()).await?.items.into_iter();
                let ending = ending.filter(|component| component.metadata.deletion_timestamp.is_some());
                left.extend(ending.map(|component| format!("{}: {}", component.name_any(), component.data)));
            }
            Ok(Err(format!("{:?} {:?}\n{}", kyma.metadata.finalizers, kyma.status, left.join("\n"))))
        })
        .await
    }

    pub(crate) async fn delete_secret(&self, kyma: &str) -> Result<()> {
        let secrets: Api<Secret> = self.api();
        secrets.delete(&format!("kubeconfig-{kyma}"), &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn grant(&self, kyma: &str) -> Result<()> {
        let secrets: Api<Secret> = self.api();
        let secret = self.landscape.access_secret(kyma, self.cluster(kyma)?).await?;
        secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    pub(crate) fn kymas(&self) -> Api<Kyma> {
        self.api()
    }

    pub(crate) fn components(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<HelmComponent>(&());
        Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource)
    }

    pub(crate) fn greetings(&self) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("demo.kyma-project.io", "v1alpha1", "Greeting"));
        Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource)
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.landscape.stop().await
    }
}
