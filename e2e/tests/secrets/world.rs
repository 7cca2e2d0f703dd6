//! Hub, operators and two targets, on which each cause gets a component.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::catalogue;
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options};
use e2e::net::{FileServer, TcpProxy};
use e2e::wait::has_condition;
use k8s_openapi::api::core::v1::{Event, Secret, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kyma_api::{HelmComponent, Reason};
use serde_json::{Value, json};
use testbed::{Access, Cluster, Credentials, PasswordProxy, until_or_why};

use crate::planted::{HARMLESS_WORD, secret};

const DEADLINE: Duration = Duration::from_mins(2);
/// Field manager of the user on the hub.
pub(crate) const FIELD_MANAGER: &str = "person";
/// User of the registry behind `locked`.
pub(crate) const REGISTRY_USER: &str = "puller";

pub(crate) struct World {
    pub(crate) landscape: Landscape,
    pub(crate) hub: Client,
    /// Target of the components with causes.
    pub(crate) quay: Cluster,
    /// Target of the Kyma.
    pub(crate) lake: Cluster,
    /// Working access to `quay`.
    pub(crate) access: Access,
    /// Access to a cluster with another certificate authority.
    pub(crate) foreign: Access,
    pub(crate) file_server: FileServer,
    /// Proxy in front of the registry that requires a password.
    pub(crate) locked: TcpProxy,
    _password_proxy: PasswordProxy,
    /// Real tokens, which must appear in no output either.
    pub(crate) tokens: Vec<String>,
}

/// One cause: a component, its fault, and the expected reason.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Kubeconfig of the component; the working one if absent.
    pub(crate) access: Option<String>,
    /// Specs that are applied in turn; each but the last becomes Ready.
    pub(crate) specs: Vec<Value>,
    pub(crate) reason: Reason,
}

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let file_server = FileServer::start().await?;
        let locked = testbed::free_address()?;
        let plain_http = vec![file_server.address(), locked.to_string()];
        let flags = vec!["--log-level=trace".to_owned()];
        let landscape = Landscape::start(Options { plain_http, flags, ..Options::default() }).await?;
        let quay = landscape.bare_target("quay").await?;
        let lake = landscape.bare_target("lake").await?;
        let password_proxy = landscape.registry().behind_password(REGISTRY_USER, &secret("registry")).await?;
        let locked = TcpProxy::new(password_proxy.address(), locked);
        locked.open().await?;
        let access = landscape.access(&quay).await?;
        let Credentials::Token(token) = access.credentials.clone() else {
            anyhow::bail!("a ServiceAccount has a token")
        };
        let hub = landscape.hub().client()?;
        let tokens = vec![token];
        let foreign = testbed::ScriptedServer::start().await?.access().clone();
        let world = Self {
            landscape,
            hub,
            quay,
            lake,
            access,
            foreign,
            file_server,
            locked,
            _password_proxy: password_proxy,
            tokens,
        };
        for target in [&world.quay, &world.lake] {
            world.remark(target).await?;
        }
        Ok(world)
    }

    /// Writes the harmless word to an Event and to a status on a target, where operators write neither.
    async fn remark(&self, target: &Cluster) -> Result<()> {
        let event = json!({
            "metadata": {"name": HARMLESS_WORD, "namespace": "default"},
            "involvedObject": {"kind": "Namespace", "name": "default", "namespace": "default"},
            "reason": "Remark", "message": HARMLESS_WORD, "type": "Normal",
        });
        let events: Api<Event> = Api::namespaced(target.client()?, "default");
        events.create(&PostParams::default(), &serde_json::from_value(event)?).await?;
        let service = json!({
            "metadata": {"name": HARMLESS_WORD, "labels": {format!("example.com/{HARMLESS_WORD}"): ""}},
            "spec": {"ports": [{"port": 80}]},
        });
        let services: Api<Service> = Api::namespaced(target.client()?, "default");
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        let condition = json!({
            "type": "Remark", "status": "True", "reason": "Remark", "message": HARMLESS_WORD,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        services.patch_status(HARMLESS_WORD, &PatchParams::default(), &status).await?;
        Ok(())
    }

    /// Applies the specs of a row, and waits until the component is Ready with each but the last, and not Ready for
    /// the row's reason with the last.
    pub(crate) async fn run_row(&self, row: Row) -> Result<()> {
        let name = format!("{HARMLESS_WORD}-{}", row.name);
        let kubeconfig = row.access.unwrap_or_else(|| self.access.kubeconfig());
        self.secret(&format!("kubeconfig-{name}"), json!({"config": kubeconfig})).await?;
        let last = row.specs.len();
        for (number, spec) in row.specs.iter().enumerate() {
            self.apply_component(&name, spec).await.with_context(|| format!("cause {}", row.name))?;
            let (status, reason) =
                if number + 1 == last { ("False", row.reason) } else { ("True", Reason::Ready) };
            self.says(&name, status, reason).await.with_context(|| format!("cause {}", row.name))?;
        }
        Ok(())
    }

    async fn apply_component(&self, name: &str, spec: &Value) -> Result<()> {
        let mut component = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1",
            "kind": "HelmComponent",
            "metadata": {"name": name, "annotations": {format!("example.com/{HARMLESS_WORD}"): ""}},
            "spec": {
                "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{name}"), "key": "config"}},
                "release": {"name": "row", "namespace": name},
            },
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            component["spec"][field] = value.clone();
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        self.components().patch(name, &params, &Patch::Apply(&component)).await?;
        Ok(())
    }

    async fn says(&self, name: &str, status: &str, reason: Reason) -> Result<()> {
        until_or_why(&format!("{name} has Ready={status} for {reason}"), DEADLINE, || async {
            let found = serde_json::to_value(self.components().get(name).await?)?;
            let is_seen = found["status"]["observedGeneration"] == found["metadata"]["generation"];
            let as_wanted = is_seen && has_condition(&found, "Ready", status, reason);
            Ok(if as_wanted { Ok(()) } else { Err(found["status"]["conditions"].to_string()) })
        })
        .await
    }

    /// Creates or changes a Secret in the hub's namespace.
    pub(crate) async fn secret(&self, name: &str, data: Value) -> Result<()> {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        self.apply_secret(name, &secret).await
    }

    pub(crate) async fn apply_secret(&self, name: &str, secret: &Value) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        secrets.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(secret)).await?;
        Ok(())
    }

    /// Pushes a module of these files beside its configuration, and publishes its template.
    pub(crate) async fn push(&self, name: &str, config: Value, files: &[(&str, String)]) -> Result<()> {
        catalogue::push_files(&self.landscape, name, &config, files).await
    }

    pub(crate) fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}
