//! Hub, target and the running operator, and the objects that are published on the hub.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use kyma_api::{Kyma, ModuleReleaseMeta, ModuleTemplate, condition, crds, labels};
use kyma_controller::rbac::Side;
use kyma_controller::{Args, Process, Program, Settings, serve};
use parking_lot::Mutex;
use release_meta_syncer::{Flags, ReleaseMetaSyncer};
use serde_json::{Value, json};
use testbed::{Access, AuditMark, Cluster, ScriptedServer, TestEnv, crd_is_served, until};
use tokio::task::JoinHandle;

pub(crate) const HUB: &str = "kcp-system";
pub(crate) const TARGET: &str = "kyma-system";
/// Deadline of a wait. It is long, since all tests of this binary and another one share two cores.
pub(crate) const SOON: Duration = Duration::from_mins(2);
pub(crate) const OPERATOR: &str = "system:serviceaccount:kcp-system:release-meta-syncer";
pub(crate) const ON_TARGET: &str = "system:serviceaccount:default:access";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
    #[command(flatten)]
    flags: Flags,
}

/// Hub, target and the running operator.
pub(crate) struct Stage {
    pub(crate) test_env: TestEnv,
    pub(crate) hub: Cluster,
    pub(crate) target: Cluster,
    pub(crate) access: Access,
    pub(crate) process: Process,
    pub(crate) running: JoinHandle<Result<()>>,
}

impl Stage {
    pub(crate) async fn start() -> Result<Self> {
        let test_env = TestEnv::start().await?;
        let (hub, target) =
            tokio::try_join!(test_env.cluster("hub").with_audit(), test_env.cluster("target").with_audit())?;
        let client = hub.client()?;
        create(&client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HUB}})).await?;
        let needed = [crds::kyma(), crds::module_template(), crds::module_release_meta(), crds::pause()];
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        for crd in &needed {
            definitions.create(&PostParams::default(), crd).await?;
        }
        for crd in &needed {
            crd_is_served(&client, &crd.name_any()).await?;
        }
        roles(&client, Side::Hub).await?;
        let operator = hub.service_account(HUB, "release-meta-syncer").await?;
        let target_client = target.client()?;
        roles(&target_client, Side::Target).await?;
        let access = target.service_account("default", "access").await?;
        create(&target_client, &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "access"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "release-meta-syncer-target"},
            "subjects": [{"kind": "ServiceAccount", "name": "access", "namespace": "default"}],
        }))
        .await?;
        let process = Process::new()?;
        let running = run(&operator, &process, &[])?;
        Ok(Self { test_env, hub, target, access, process, running })
    }

    /// Stops the operator, and starts it again as a new process would.
    pub(crate) async fn restart(&mut self, flags: &[&str]) -> Result<()> {
        let operator = self.hub.service_account(HUB, "release-meta-syncer").await?;
        self.restart_as(&operator, flags).await
    }

    /// Restarts the operator, which then connects to the hub through this server.
    pub(crate) async fn restart_behind(&mut self, hub: &ScriptedServer) -> Result<()> {
        let operator = self.hub.service_account(HUB, "release-meta-syncer").await?;
        self.restart_as(&hub.access_of(&operator), &[]).await
    }

    async fn restart_as(&mut self, operator: &Access, flags: &[&str]) -> Result<()> {
        self.process.shutdown.cancel();
        (&mut self.running).await??;
        self.process = Process::new()?;
        self.running = run(operator, &self.process, flags)?;
        Ok(())
    }

    pub(crate) fn on_hub<K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>>(
        &self,
    ) -> Result<Api<K>> {
        Ok(Api::namespaced(self.hub.client()?, HUB))
    }

    pub(crate) fn on_target<
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    >(
        &self,
    ) -> Result<Api<K>> {
        Ok(Api::namespaced(self.target.client()?, TARGET))
    }

    pub(crate) async fn give_access(&self, kyma: &str) -> Result<()> {
        self.give(kyma, &self.access.kubeconfig()).await
    }

    pub(crate) async fn give(&self, kyma: &str, kubeconfig: &str) -> Result<()> {
        create(&self.hub.client()?, &json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("{kyma}-access"), "namespace": HUB, "labels": {labels::KYMA_NAME: kyma}},
            "stringData": {"config": kubeconfig},
        }))
        .await
    }

    pub(crate) async fn condition(&self, kyma: &str, reason: &str) -> Result<String> {
        let kymas = self.on_hub::<Kyma>()?;
        until(&format!("condition ModuleCatalog with reason {reason}"), SOON, || async {
            let kyma = kymas.get(kyma).await?;
            let conditions = kyma.status.and_then(|status| status.conditions).unwrap_or_default();
            let held = condition::get(&conditions, condition::types::MODULE_CATALOG);
            Ok(held.filter(|held| held.reason == reason).map(|held| held.message.clone()))
        })
        .await
    }

    /// Waits until the target has exactly these objects of both catalogue kinds, copies or not.
    pub(crate) async fn target_has(&self, names: &[&str]) -> Result<()> {
        let (templates, releases) =
            (self.on_target::<ModuleTemplate>()?, self.on_target::<ModuleReleaseMeta>()?);
        let seen = Mutex::new(vec![]);
        let what = format!("exactly {names:?} on the target");
        let wait = until(&what, SOON, || async {
            let mut held: Vec<String> = vec![];
            // Before the CRDs exist there is nothing to list.
            held.extend(
                templates.list(&ListParams::default()).await.iter().flatten().map(ResourceExt::name_any),
            );
            held.extend(
                releases.list(&ListParams::default()).await.iter().flatten().map(ResourceExt::name_any),
            );
            held.sort_unstable();
            let done = held == names;
            *seen.lock() = held;
            Ok(done.then_some(()))
        });
        let outcome = wait.await;
        outcome.with_context(|| format!("last seen: {:?}", seen.lock()))
    }

    /// Waits until this process has finished at least this many reconciles.
    pub(crate) async fn reconciled(&self, least: f64) -> Result<()> {
        until(&format!("{least} reconciles"), SOON, || async {
            let text = self.process.metrics.render()?;
            let lines = text.lines().filter(|line| line.contains("reconcile") && line.contains("_count"));
            let count: f64 = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
            Ok((count >= least).then_some(()))
        })
        .await
    }

    /// Returns the operator's writes on both clusters since these marks.
    pub(crate) fn writes(&self, marks: (AuditMark, AuditMark)) -> Result<Vec<String>> {
        let mut writes = vec![];
        for (cluster, mark, user) in [(&self.hub, marks.0, OPERATOR), (&self.target, marks.1, ON_TARGET)] {
            let events = cluster.audit()?.since(mark)?.into_iter();
            writes.extend(
                events
                    .filter(|event| event.user == user && event.is_write())
                    .map(|event| format!("{event:?}")),
            );
        }
        Ok(writes)
    }

    pub(crate) fn marks(&self) -> Result<(AuditMark, AuditMark)> {
        Ok((self.hub.audit()?.mark()?, self.target.audit()?.mark()?))
    }
}

pub(crate) fn run(operator: &Access, process: &Process, flags: &[&str]) -> Result<JoinHandle<Result<()>>> {
    let line = Line::try_parse_from(["syncer", "--allow-loopback-targets"].iter().chain(flags))?;
    let settings = Settings::resolve(line.args)?;
    let mut config = operator.config()?;
    config.default_retry = false;
    let process = process.clone();
    Ok(tokio::spawn(async move {
        let served = serve(ReleaseMetaSyncer, line.flags, settings, config, process);
        Box::pin(served).await.context("the operator")
    }))
}

pub(crate) async fn roles(client: &Client, side: Side) -> Result<()> {
    let yaml = ReleaseMetaSyncer::rbac().render(HUB, side);
    for document in yaml.split("---\n").filter(|text| !text.trim().is_empty()) {
        create(client, &testbed_yaml(document)?).await?;
    }
    Ok(())
}

pub(crate) fn testbed_yaml(text: &str) -> Result<Value> {
    serde_saphyr::from_str(text).context("a document of the rendered roles")
}

pub(crate) async fn create(client: &Client, object: &Value) -> Result<()> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (group, version) = match text("/apiVersion").split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), text("/apiVersion")),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, &version, &text("/kind")));
    let namespace = text("/metadata/namespace");
    let api: Api<DynamicObject> = if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &namespace, &resource)
    };
    let params = PatchParams::apply("test").force();
    api.patch(&text("/metadata/name"), &params, &Patch::Apply(object))
        .await
        .map(drop)
        .with_context(|| object.to_string())
}

pub(crate) fn template(module: &str, version: &str) -> Result<ModuleTemplate> {
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": format!("{module}-{version}"), "labels": {labels::MODULE_NAME: module}},
        "spec": {
            "moduleName": module, "version": version, "descriptor": {},
            "component": {"apiVersion": "x.example.org/v1", "kind": "X"},
            "info": {"repository": "https://example.org/r", "documentation": "https://example.org/d"},
        },
    }))
    .context("a ModuleTemplate")
}

pub(crate) fn release(module: &str, channels: &[(&str, &str)]) -> Result<ModuleReleaseMeta> {
    let channels = channels.iter().map(|(channel, version)| json!({"channel": channel, "version": version}));
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": module},
        "spec": {"moduleName": module, "channels": channels.collect::<Vec<_>>()},
    }))
    .context("a ModuleReleaseMeta")
}

pub(crate) fn kyma(name: &str) -> Result<Kyma> {
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": name}, "spec": {"channel": "regular"},
    }))
    .context("a Kyma")
}

pub(crate) async fn publish(stage: &Stage) -> Result<()> {
    let (templates, releases) = (stage.on_hub::<ModuleTemplate>()?, stage.on_hub::<ModuleReleaseMeta>()?);
    for (module, version) in [("keda", "1.0.0"), ("keda", "1.1.0"), ("btp", "2.0.0")] {
        templates.create(&PostParams::default(), &template(module, version)?).await?;
    }
    releases
        .create(&PostParams::default(), &release("keda", &[("regular", "1.0.0"), ("fast", "1.1.0")])?)
        .await?;
    releases.create(&PostParams::default(), &release("btp", &[("regular", "2.0.0")])?).await?;
    Ok(())
}
