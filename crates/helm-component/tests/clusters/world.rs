//! A hub, a target, a registry, and a helm-component that uses them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, condition};
use kyma_artifacts::{Artifacts, ComponentVersion, Config, Credentials, Image};
use serde_json::{Value, json};
use testbed::{
    Cluster, PasswordProxy, Process, Program, Registry, TestEnv, crd_is_served, free_address, until,
    until_discovered,
};
use tokio::sync::OnceCell;

use crate::file_server::FileServer;

pub(crate) const HUB_NAMESPACE: &str = "kcp-system";
/// Deadline of a wait on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
const BINARY: &str = env!("CARGO_BIN_EXE_helm-component");
pub(crate) const ACCESS: &str = "access";
/// Name of the image-pull Secret of targets in the operator's flags.
pub(crate) const PULL_SECRET: &str = "pull";
/// User and password of the registry behind a password.
pub(crate) const LOGIN: (&str, &str) = ("robot", "hunter2");
/// Path of component versions in the registry, as in the operator's flags.
pub(crate) const MODULES: &str = "modules";

static WORLD: OnceCell<World> = OnceCell::const_new();

/// Everything that the tests of this binary share, until the process ends.
pub(crate) struct World {
    pub(crate) hub: Cluster,
    pub(crate) target: Cluster,
    pub(crate) registry: Registry,
    /// Proxy of the registry that requires [`LOGIN`]; it ends with the test that started the world.
    pub(crate) password_proxy: PasswordProxy,
    pub(crate) file_server: FileServer,
    pub(crate) operator: Process,
    test_env: TestEnv,
    flags: &'static [&'static str],
}

/// Returns the shared world, which the first test starts.
pub(crate) async fn world() -> Result<&'static World> {
    WORLD.get_or_try_init(World::start).await
}

impl World {
    /// Starts a world that no other test uses.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a world with additional flags for the operator.
    pub(crate) async fn start_with(flags: &'static [&'static str]) -> Result<Self> {
        let test_env = TestEnv::start().await?;
        let (hub, target) = tokio::try_join!(async { test_env.cluster("hub").with_audit().await }, async {
            test_env.cluster("target").with_workloads().with_audit().await
        },)?;
        let registry = test_env.registry().await?;
        let password_proxy = registry.behind_password(LOGIN.0, LOGIN.1).await?;
        prepare_hub(&hub).await?;
        prepare_target(&hub, &target).await?;
        let file_server = FileServer::start()?;
        let hosts = [registry.address(), password_proxy.address(), file_server.address()].join(",");
        let operator = start_operator(&test_env, &hub, &registry, &hosts, flags).await?;
        Ok(Self { hub, target, registry, password_proxy, file_server, operator, test_env, flags })
    }

    /// Kills the operator and starts it again.
    pub(crate) async fn restart_operator(&mut self) -> Result<()> {
        self.operator.kill();
        let hosts =
            [self.registry.address(), self.password_proxy.address(), self.file_server.address()].join(",");
        self.operator = start_operator(&self.test_env, &self.hub, &self.registry, &hosts, self.flags).await?;
        Ok(())
    }

    /// Applies a HelmComponent with this name and spec, for the target.
    pub(crate) async fn apply(&self, name: &str, spec: Value) -> Result<()> {
        self.apply_for(ACCESS, name, spec).await
    }

    /// Applies a HelmComponent with this name and spec, for the target of an access Secret.
    pub(crate) async fn apply_for(&self, secret: &str, name: &str, spec: Value) -> Result<()> {
        let mut spec = spec;
        spec["target"] = json!({"kubeconfigSecretRef": {"name": secret, "key": "config"}});
        let object = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1",
            "kind": "HelmComponent",
            "metadata": {"name": name, "namespace": HUB_NAMESPACE},
            "spec": spec,
        });
        let params = PatchParams::apply("test").force();
        self.components()?.patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    pub(crate) fn components(&self) -> Result<Api<HelmComponent>> {
        Ok(Api::namespaced(self.hub.client()?, HUB_NAMESPACE))
    }

    /// Waits until the condition Ready of the current generation has this status and reason, and returns the
    /// component.
    pub(crate) async fn ready(&self, name: &str, status: &str, reason: &str) -> Result<HelmComponent> {
        self.ready_within(DEADLINE, name, status, reason).await
    }

    /// Does the same as [`World::ready`] with another deadline.
    pub(crate) async fn ready_within(
        &self,
        deadline: Duration,
        name: &str,
        status: &str,
        reason: &str,
    ) -> Result<HelmComponent> {
        let components = self.components()?;
        let waited = until(&format!("{name} is Ready={status} {reason}"), deadline, || async {
            let component = components.get(name).await?;
            let ready = ready_of(&component);
            Ok(ready.is_some_and(|(is, why, _)| is == status && why == reason).then_some(component))
        })
        .await;
        match waited {
            Ok(component) => Ok(component),
            Err(error) => {
                let seen = components.get(name).await?;
                Err(error.context(format!(
                    "conditions: {:#?}\n{}",
                    seen.status.and_then(|status| status.conditions),
                    self.operator.log_end(30)
                )))
            }
        }
    }

    /// Sets the deletion policy and deletes the component.
    pub(crate) async fn delete(&self, name: &str, policy: &str) -> Result<()> {
        let components = self.components()?;
        let patch = json!({"spec": {"deletionPolicy": policy}});
        components.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        components.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the component is gone from the hub.
    pub(crate) async fn gone(&self, name: &str) -> Result<()> {
        let components = self.components()?;
        let waited = until(&format!("{name} is gone"), DEADLINE, || async {
            Ok(components.get_opt(name).await?.is_none().then_some(()))
        })
        .await;
        waited.with_context(|| self.operator.log_end(30))
    }

    /// Pushes manifests as an OCM component version to the registry, and returns its source.
    pub(crate) async fn push(&self, component: &str, version: &str, manifest: &str) -> Result<Value> {
        self.push_with_images(MODULES, component, version, manifest, &[]).await
    }

    /// Pushes manifests as an OCM component version below a path of the registry, with images that the component
    /// names.
    pub(crate) async fn push_with_images(
        &self,
        path: &str,
        component: &str,
        version: &str,
        manifest: &str,
        images: &[&str],
    ) -> Result<Value> {
        let component = format!("example.org/module/{component}");
        let image = |(number, reference): (usize, &&str)| Image {
            name: format!("image-{number}"),
            version: version.to_owned(),
            reference: (*reference).to_owned(),
        };
        let content = ComponentVersion {
            name: component.clone(),
            version: version.to_owned(),
            manifest: manifest.to_owned().into(),
            images: images.iter().enumerate().map(image).collect(),
            ..ComponentVersion::default()
        };
        let base = format!("{}/{path}", self.registry.address()).parse()?;
        self.artifacts()?.push_component(&base, &content, &Credentials::anonymous(), &()).await?;
        Ok(json!({"ocm": {"component": component, "version": version}}))
    }

    /// Returns an artifact client that uses plain HTTP for the registry; its cache is deleted with the test
    /// environment.
    pub(crate) fn artifacts(&self) -> Result<Artifacts> {
        let mut config = Config::new(tempfile::tempdir_in(self.test_env.directory())?.keep());
        config.insecure_hosts = vec![self.registry.address().to_owned()];
        Ok(Artifacts::open(&config)?)
    }

    /// Returns a path for a file of a test.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.test_env.directory().join(name)
    }

    /// Waits until a Pod of the target runs, and sets its final phase. Before, the simulated kubelet could overwrite
    /// that phase: it sets a Pod that it read as pending to Running without a precondition.
    pub(crate) async fn end_pod(&self, namespace: &str, name: &str, phase: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.target.client()?, namespace);
        until(&format!("Pod {namespace}/{name} runs"), DEADLINE, || async {
            let status = pods.get(name).await?.status.unwrap_or_default();
            Ok((status.phase.as_deref() == Some("Running")).then_some(()))
        })
        .await?;
        let ended = json!({"status": {"phase": phase}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(ended)).await?;
        Ok(())
    }

    /// Returns an object of the target, if it exists.
    pub(crate) async fn on_target(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>> {
        let (api, _) = api(&self.target.client()?, api_version, kind, Some(namespace)).await?;
        Ok(api.get_opt(name).await?)
    }

    /// Reports whether discovery of the target shows a kind now. A target that cannot tell may show it.
    pub(crate) async fn is_discovered(&self, api_version: &str, kind: &str) -> Result<bool> {
        match pinned_kind(&self.target.client()?, &gvk(api_version, kind)).await {
            Err(kube::Error::Discovery(_)) => Ok(false),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(kube::Error::Api(status)) if status.code == 503 => Ok(true),
            found => Ok(found.map(|_| true)?),
        }
    }
}

/// Returns status, reason and message of the condition Ready, if it is of the current generation.
pub(crate) fn ready_of(component: &HelmComponent) -> Option<(String, String, String)> {
    condition_of(component, condition::types::READY)
}

pub(crate) fn condition_of(component: &HelmComponent, type_: &str) -> Option<(String, String, String)> {
    let status = component.status.as_ref()?;
    let found = condition::get(status.conditions.as_deref()?, type_)?;
    let current = found.observed_generation == component.metadata.generation;
    current.then(|| (found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// Returns the API and scope of a kind once discovery shows it, which may be some time after the kind is served.
pub(crate) async fn api(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Result<(Api<DynamicObject>, Scope)> {
    let (resource, capabilities) = until_discovered(client, &gvk(api_version, kind)).await?;
    let api = match (&capabilities.scope, namespace) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    Ok((api, capabilities.scope))
}

fn gvk(api_version: &str, kind: &str) -> GroupVersionKind {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    GroupVersionKind::gvk(group, version, kind)
}

/// Returns a CRD of this group, for objects of kind Note.
pub(crate) fn notes(group: &str) -> String {
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
    });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("notes.{group}")},
        "spec": {
            "group": group, "names": {"kind": "Note", "plural": "notes"},
            "scope": "Namespaced", "versions": [version],
        },
    });
    crd.to_string()
}

/// Applies every document, as an administrator.
pub(crate) async fn apply_yaml(client: &Client, yaml: &str) -> Result<()> {
    let documents: Vec<DynamicObject> = serde_saphyr::from_multiple(yaml)?;
    for object in documents {
        let types = object.types.clone().context("a kind")?;
        let (api, _) = api(client, &types.api_version, &types.kind, object.namespace().as_deref()).await?;
        let params = PatchParams::apply("test").force();
        api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await?;
    }
    Ok(())
}

async fn prepare_hub(hub: &Cluster) -> Result<()> {
    let client = hub.client()?;
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {HUB_NAMESPACE}}}\n");
    apply_yaml(&client, &namespace).await?;
    apply_yaml(&client, &printed(&["crd"]).await?).await?;
    crd_is_served(&client, "helmcomponents.component.kyma-project.io").await?;
    apply_yaml(&client, &printed(&["rbac", "--namespace", HUB_NAMESPACE]).await?).await
}

/// Creates the target's role and binding for one account, and the Secret with its kubeconfig on the hub.
async fn prepare_target(hub: &Cluster, target: &Cluster) -> Result<()> {
    let client = target.client()?;
    apply_yaml(&client, &printed(&["rbac", "--for", "target"]).await?).await?;
    let kubeconfig = target.kubeconfig_for_service_account("kube-system", "modules").await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "modules"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "helm-component-target"},
        "subjects": [{"kind": "ServiceAccount", "name": "modules", "namespace": "kube-system"}],
    });
    apply_yaml(&client, &binding.to_string()).await?;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": ACCESS, "labels": {"operator.kyma-project.io/kyma-name": "test"}},
        "stringData": {"config": kubeconfig},
    }))?;
    Api::namespaced(hub.client()?, HUB_NAMESPACE).create(&PostParams::default(), &secret).await?;
    Ok(())
}

async fn start_operator(
    test_env: &TestEnv,
    hub: &Cluster,
    registry: &Registry,
    insecure_hosts: &str,
    flags: &[&str],
) -> Result<Process> {
    let kubeconfig = test_env.directory().join("helm-component.kubeconfig");
    std::fs::write(&kubeconfig, hub.kubeconfig_for_service_account(HUB_NAMESPACE, "helm-component").await?)?;
    let admin = free_address()?;
    let arguments = [
        "run".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--admin-address={admin}"),
        "--log-format=text".to_owned(),
        "--allow-loopback-targets".to_owned(),
        format!("--oci-registry={}/{MODULES}", registry.address()),
        format!("--oci-insecure-hosts={insecure_hosts}"),
        format!("--artifact-cache-dir={}", test_env.directory().join("artifacts").display()),
        "--restricted-default-modules=deployer,guarded".to_owned(),
        format!("--skr-image-pull-secret={PULL_SECRET}"),
        format!("--helm={}", Program::Helm.path()?.display()),
    ];
    // A flag of a test takes precedence.
    let environment = [("UNHEALTHY_AFTER_SECONDS".to_owned(), "2".to_owned())];
    let log = test_env.logs().join("helm-component.log");
    let arguments = arguments.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
    Process::start("helm-component", BINARY, arguments, environment, log)
}

async fn printed(arguments: &[&str]) -> Result<String> {
    let output = tokio::process::Command::new(BINARY).args(arguments).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
