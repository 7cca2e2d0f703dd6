//! A hub namespace with a running operator, and targets.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, State, finalizers, labels, names};
use kyma_controller::rbac::Side;
use kyma_controller::{Args, Process, Settings, StartError, serve};
use kyma_operator::{KymaArgs, KymaOperator, rbac_table};
use serde_json::{Value, json};
use testbed::{
    Access, AuditEvent, AuditMark, Cluster, ScriptedServer, SharedTestEnv, crd_is_served, until, until_or_why,
};
use tokio::task::JoinHandle;

use crate::leftovers;

pub(crate) static TEST_ENV: SharedTestEnv = SharedTestEnv::new();
/// Deadline of a wait. A target that was down for two minutes is probed again two minutes later.
pub(crate) const SOON: Duration = Duration::from_secs(150);

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
    #[command(flatten)]
    flags: KymaArgs,
}

/// The part of the hub that one test uses.
pub(crate) struct Landscape {
    pub(crate) hub: Cluster,
    pub(crate) namespace: String,
    user: Access,
    flags: Vec<String>,
    /// Beginning of this test in the hub's audit log.
    began: AuditMark,
    running: Option<(Process, JoinHandle<Result<(), StartError>>)>,
}

impl Landscape {
    pub(crate) async fn start(flags: &[&str]) -> Result<Self> {
        Self::start_on("hub", flags).await
    }

    /// Starts on a hub that no other test shares, for cluster-wide tests.
    pub(crate) async fn start_on(hub: &str, flags: &[&str]) -> Result<Self> {
        Self::on(TEST_ENV.cluster(hub, |cluster| cluster.with_controllers().with_audit()).await?, flags).await
    }

    /// Starts on this hub.
    pub(crate) async fn on(hub: Cluster, flags: &[&str]) -> Result<Self> {
        rustls::crypto::ring::default_provider().install_default().ok();
        install_crds(&hub.client()?, kyma_api::crds::all()).await?;
        let namespace = hub.namespace("hub").await?;
        let user = hub.service_account(&namespace, "kyma-operator").await?;
        let side = if flags.contains(&"--mode=single-cluster") { Side::SingleCluster } else { Side::Hub };
        grant(&hub.client()?, &rbac_table().render(&namespace, side), &namespace).await?;
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let began = hub.audit()?.mark()?;
        let mut landscape = Self { hub, namespace, user, flags, began, running: None };
        landscape.allow("component.kyma-project.io", "helmcomponents").await?;
        landscape.run().await?;
        Ok(landscape)
    }

    /// Starts the operator with its own `ServiceAccount`.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let namespace = format!("--hub-namespace={}", self.namespace);
        let common =
            ["operator", &namespace, "--allow-loopback-targets", "--admin-address=", "--log-format=text"];
        let line = Line::try_parse_from(common.into_iter().chain(self.flags.iter().map(String::as_str)))?;
        let settings = Settings::resolve(line.args)?;
        // Only the first call has an effect: a process has one log.
        kyma_controller::init_telemetry(&settings).ok();
        let process = Process::new()?;
        let (config, started) = (self.user.config()?, process.clone());
        let work = tokio::spawn(serve(KymaOperator, line.flags, settings, config, started));
        let health = process.health.clone();
        until("the operator is ready", SOON, || {
            let missing = health.missing();
            async move { Ok(missing.is_empty().then_some(())) }
        })
        .await
        .with_context(|| health.missing().join(", "))?;
        self.running = Some((process, work));
        Ok(())
    }

    /// Restarts the operator with this proxy to the hub.
    pub(crate) async fn run_behind(&mut self, proxy: &ScriptedServer) -> Result<()> {
        self.stop().await?;
        self.user = proxy.access_of(&self.user);
        self.run().await
    }

    pub(crate) async fn stop(&mut self) -> Result<()> {
        if let Some((process, work)) = self.running.take() {
            process.shutdown.cancel();
            work.await??;
        }
        Ok(())
    }

    /// Returns the operator's metrics.
    pub(crate) fn metrics(&self) -> Result<String> {
        let (process, _) = self.running.as_ref().context("the operator runs")?;
        Ok(process.metrics.render()?)
    }

    /// Returns the operator's requests to the hub so far.
    pub(crate) fn asked(&self) -> Result<Vec<AuditEvent>> {
        let mut events = self.hub.audit()?.since(self.began)?;
        events.retain(|event| event.user == self.user());
        Ok(events)
    }

    /// Returns the operator's user name in audit logs.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:kyma-operator", self.namespace)
    }

    /// Lets the operator write components of a kind, as the role of its reconciler would.
    pub(crate) async fn allow(&self, group: &str, plural: &str) -> Result<()> {
        let (name, verbs) =
            (format!("aggregated-{plural}"), ["get", "list", "watch", "create", "patch", "delete"]);
        let rules = json!([{ "apiGroups": [group], "resources": [plural], "verbs": verbs }]);
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": name, "namespace": self.namespace }, "rules": rules });
        let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": name, "namespace": self.namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": "kyma-operator", "namespace": self.namespace }] });
        for object in [role, binding] {
            let api = dynamic(self.hub.client()?, &object, &self.namespace)?;
            api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await?;
        }
        Ok(())
    }

    /// Starts a target and returns it with a kubeconfig of a user with exactly the target role.
    pub(crate) async fn target(&self, name: &str) -> Result<(Cluster, String)> {
        let (target, user) = self.target_and_user(name).await?;
        Ok((target, user.kubeconfig()))
    }

    /// Starts a target and returns it with the user's access.
    pub(crate) async fn target_and_user(&self, name: &str) -> Result<(Cluster, Access)> {
        let target = TEST_ENV.cluster(name, testbed::ClusterBuilder::with_audit).await?;
        leftovers::clear(&target).await?;
        let user = target_user(&target).await?;
        Ok((target, user))
    }

    pub(crate) async fn secret(&self, kyma: &str, kubeconfig: &str) -> Result<()> {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("{kyma}-access"));
        secret.metadata.labels = Some(BTreeMap::from([(labels::KYMA_NAME.to_owned(), kyma.to_owned())]));
        secret.data =
            Some(BTreeMap::from([("config".to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))]));
        let api: Api<Secret> = Api::namespaced(self.hub.client()?, &self.namespace);
        api.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// Replaces the content of an access Secret.
    pub(crate) async fn rotate(&self, kyma: &str, kubeconfig: &str) -> Result<()> {
        let api: Api<Secret> = Api::namespaced(self.hub.client()?, &self.namespace);
        let content = json!({ "stringData": { "config": kubeconfig } });
        api.patch(&format!("{kyma}-access"), &PatchParams::default(), &Patch::Merge(&content)).await?;
        Ok(())
    }

    /// Applies an object on the hub as a user.
    pub(crate) async fn apply(&self, yaml: &str) -> Result<DynamicObject> {
        let object: Value = serde_saphyr::from_str(yaml)?;
        let api = dynamic(self.hub.client()?, &object, &self.namespace)?;
        let name = object["metadata"]["name"].as_str().context("name")?;
        Ok(api.patch(name, &PatchParams::apply("person").force(), &Patch::Apply(&object)).await?)
    }

    /// Publishes a module with a template for each version, and its channels.
    pub(crate) async fn module(&self, name: &str, channels: &[(&str, &str)]) -> Result<()> {
        let mut list = String::new();
        for (channel, version) in channels {
            list.push_str(&format!("{{channel: {channel}, version: {version}}}, "));
            self.template(name, version).await?;
        }
        self.release(name, &format!("channels: [{list}]")).await
    }

    /// Publishes a mandatory module.
    pub(crate) async fn mandatory_module(&self, name: &str, version: &str) -> Result<()> {
        self.template(name, version).await?;
        self.release(name, &format!("mandatory: {{version: {version}}}")).await
    }

    /// Publishes a version of a module.
    pub(crate) async fn template(&self, name: &str, version: &str) -> Result<()> {
        self.apply(&format!(
            "{{apiVersion: operator.kyma-project.io/v1beta2, kind: ModuleTemplate, metadata: {{name: {name}-{version}}}, \
             spec: {{moduleName: {name}, version: {version}, descriptor: {{}}, \
             data: {{apiVersion: example.com/v1, kind: Sample, metadata: {{name: sample}}}}}}}}"
        ))
        .await?;
        Ok(())
    }

    /// Publishes a release meta with this spec.
    pub(crate) async fn release(&self, name: &str, offer: &str) -> Result<()> {
        self.apply(&format!(
            "{{apiVersion: operator.kyma-project.io/v1beta2, kind: ModuleReleaseMeta, metadata: {{name: {name}}}, \
             spec: {{moduleName: {name}, ocmComponentName: example.com/module/{name}, {offer}}}}}"
        ))
        .await?;
        Ok(())
    }

    pub(crate) async fn kyma(&self, name: &str, modules: &str) -> Result<DynamicObject> {
        self.apply(&format!(
            "{{apiVersion: operator.kyma-project.io/v1beta2, kind: Kyma, metadata: {{name: {name}}}, \
             spec: {{channel: regular, modules: {modules}}}}}"
        ))
        .await
    }

    /// Changes the modules of a Kyma whose target is the hub.
    pub(crate) async fn choose(&self, kyma: &str, modules: Value) -> Result<()> {
        let spec = json!({ "spec": { "modules": modules } });
        self.kymas()?.patch(kyma, &PatchParams::default(), &Patch::Merge(&spec)).await?;
        Ok(())
    }

    pub(crate) fn kymas(&self) -> Result<Api<Kyma>> {
        Ok(Api::namespaced(self.hub.client()?, &self.namespace))
    }

    pub(crate) fn components(&self) -> Result<Api<HelmComponent>> {
        Ok(Api::namespaced(self.hub.client()?, &self.namespace))
    }

    /// Waits until `is` returns true for the hub's Kyma.
    pub(crate) async fn until_kyma(
        &self,
        what: &str,
        name: &str,
        is: impl Fn(&Kyma) -> bool,
    ) -> Result<Kyma> {
        let (api, is) = (self.kymas()?, &is);
        until_or_why(what, SOON, || async {
            let kyma = api.get(name).await?;
            let status = serde_json::to_string_pretty(&kyma.status)?;
            Ok(if is(&kyma) { Ok(kyma) } else { Err(status) })
        })
        .await
    }

    /// Waits until the hub's Kyma is deleted.
    pub(crate) async fn until_kyma_is_gone(&self, name: &str) -> Result<()> {
        let kymas = self.kymas()?;
        testbed::until("the Kyma is gone", SOON, || async {
            Ok(kymas.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Waits until `is` returns true for a module's component.
    pub(crate) async fn until_component(
        &self,
        what: &str,
        module: &str,
        is: impl Fn(&HelmComponent) -> bool,
    ) -> Result<HelmComponent> {
        let (api, is) = (self.components()?, &is);
        let labelled = ListParams::default().labels(&names::label_selector(labels::MODULE_NAME, module));
        until(what, SOON, || async { Ok(api.list(&labelled).await?.items.into_iter().find(|one| is(one))) })
            .await
    }

    /// Reports the requested version as Ready, as a component's reconciler does.
    pub(crate) async fn report_ready(&self, module: &str) -> Result<()> {
        let component = self.until_component("a component to report on", module, |_| true).await?;
        let version = component.spec.module.as_ref().map(|module| module.version.clone());
        let resource = component.spec.resource.as_ref().map(|resource| {
            json!({
                "apiVersion": resource["apiVersion"], "kind": resource["kind"],
                "name": resource["metadata"]["name"], "namespace": resource["metadata"]["namespace"],
            })
        });
        let status = json!({ "status": {
            "state": "Ready", "version": version, "resource": resource, "observedGeneration": component.metadata.generation,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        }});
        let params = PatchParams::default();
        self.components()?.patch_status(&component.name_any(), &params, &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// Removes the finalizer, as a component's reconciler does at the end.
    pub(crate) async fn let_component_go(&self, name: &str) -> Result<()> {
        let kept = json!({ "metadata": { "finalizers": null } });
        self.components()?.patch(name, &PatchParams::default(), &Patch::Merge(&kept)).await?;
        Ok(())
    }
}

/// Returns the API of the target's own Kyma.
pub(crate) fn remote(target: &Cluster) -> Result<Api<Kyma>> {
    Ok(Api::namespaced(target.client()?, "kyma-system"))
}

pub(crate) async fn until_remote(target: &Cluster, what: &str, is: impl Fn(&Kyma) -> bool) -> Result<Kyma> {
    let (api, is) = (remote(target)?, &is);
    until(what, SOON, || async { Ok(api.get_opt("default").await.ok().flatten().filter(|kyma| is(kyma))) })
        .await
}

/// Returns the modules of a Kyma's status as `name state version channel`.
pub(crate) fn modules(kyma: &Kyma) -> Vec<String> {
    let status = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    status
        .map(|module| {
            format!("{} {} {} {}", module.name, module.state, text(&module.version), text(&module.channel))
        })
        .collect()
}

pub(crate) fn is_ready(kyma: &Kyma) -> bool {
    kyma.status.as_ref().and_then(|status| status.state) == Some(State::Ready)
}

/// Reports whether the status shows that the Kyma is skipped.
pub(crate) fn is_left_alone(kyma: &Kyma) -> bool {
    let conditions = kyma.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|held| held.type_ == "Ready" && held.reason == "SkipReconciliation")
}

pub(crate) fn has_finalizer(kyma: &Kyma) -> bool {
    kyma.finalizers().iter().any(|name| name == finalizers::KYMA)
}

/// Returns a user of a target with exactly the target role, with a new token each time.
pub(crate) async fn target_user(target: &Cluster) -> Result<Access> {
    let user = target.service_account("default", "kyma-operator").await?;
    grant(&target.client()?, &rbac_table().render("default", Side::Target), "default").await?;
    bind(&target.client()?, "kyma-operator-target", "default").await?;
    Ok(user)
}

pub(crate) async fn install_crds(client: &Client, crds: Vec<CustomResourceDefinition>) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        let value = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": name }, "spec": crd.spec });
        api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&value)).await?;
        crd_is_served(client, &name).await?;
    }
    Ok(())
}

/// Applies rendered roles; cluster-wide bindings get a name of their own, since several tests share the hub.
async fn grant(client: &Client, yaml: &str, namespace: &str) -> Result<()> {
    for document in yaml.split("---\n").filter(|document| !document.trim().is_empty()) {
        let mut object: Value = serde_saphyr::from_str(document)?;
        if object["kind"] == "ClusterRoleBinding" {
            let name = format!("{}-{namespace}", object["metadata"]["name"].as_str().unwrap_or_default());
            object["metadata"]["name"] = json!(name);
        }
        let api = dynamic(client.clone(), &object, namespace)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await?;
    }
    Ok(())
}

async fn bind(client: &Client, role: &str, namespace: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": role },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": "kyma-operator", "namespace": namespace }],
    });
    let api = dynamic(client.clone(), &binding, namespace)?;
    api.patch(role, &PatchParams::apply("test").force(), &Patch::Apply(&binding)).await?;
    Ok(())
}

pub(crate) fn dynamic(client: Client, object: &Value, namespace: &str) -> Result<Api<DynamicObject>> {
    let (api_version, kind) =
        (object["apiVersion"].as_str().context("apiVersion")?, object["kind"].as_str().context("kind")?);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let cluster_wide = ["Cluster", "CustomResourceDefinition", "ValidatingAdmissionPolicy"];
    let is_cluster_scoped = cluster_wide.iter().any(|begin| kind.starts_with(begin));
    Ok(if is_cluster_scoped {
        Api::all_with(client, &resource)
    } else {
        Api::namespaced_with(client, namespace, &resource)
    })
}
