//! The landscape that all rows share, with components that no row may affect.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use e2e::catalogue;
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, names};
use serde_json::{Value, json};
use testbed::{Cluster, PasswordProxy, free_address};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell, RwLock};

use crate::row::{Row, until};
use e2e::net::{FileServer, TcpProxy};

/// One runtime for all tests, since the landscape outlives each test.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static WORLD: OnceCell<World> = OnceCell::const_new();

/// Field manager of the user.
pub(crate) const FIELD_MANAGER: &str = "person";
/// User and password of the registry behind `locked`.
pub(crate) const REGISTRY_LOGIN: (&str, &str) = ("puller", "canary-registry-password");

/// Hub, operators and four targets.
pub(crate) struct World {
    pub(crate) landscape: Landscape,
    pub(crate) hub: Client,
    /// Target of the unaffected Kyma.
    harbour: Cluster,
    /// Target of components that belong to no Kyma.
    pub(crate) quay: Cluster,
    /// A Kyma whose modules one row at a time chooses.
    pub(crate) lake: SharedKyma,
    /// A cluster that one Kyma at a time uses.
    pub(crate) moor: Mutex<Cluster>,
    pub(crate) file_server: FileServer,
    /// Proxy in front of the registry, closed at first.
    pub(crate) proxy: TcpProxy,
    /// Proxy in front of the registry that requires a password.
    pub(crate) locked: TcpProxy,
    /// Rows hold it shared; a row that measures time holds it exclusively.
    pub(crate) quiet: RwLock<()>,
    bystanders: BTreeMap<String, String>,
    _password_proxy: PasswordProxy,
}

/// A Kyma and its cluster, used by one row at a time.
pub(crate) struct SharedKyma {
    pub(crate) kyma: &'static str,
    pub(crate) target: Cluster,
    pub(crate) in_use: Mutex<()>,
}

/// Runs a row, which must not affect other components or show a secret in a log.
pub(crate) fn row(name: &'static str, scenario: impl AsyncFnOnce(&Row) -> Result<()>) -> Result<()> {
    RUNTIME.block_on(async {
        let world = WORLD.get_or_try_init(World::start).await?;
        let _shared = world.quiet.read().await;
        run_row(world, name, scenario).await
    })
}

/// Does the same as [`row`] while no other row runs.
pub(crate) fn row_alone(name: &'static str, scenario: impl AsyncFnOnce(&Row) -> Result<()>) -> Result<()> {
    RUNTIME.block_on(async {
        let world = WORLD.get_or_try_init(World::start).await?;
        let _alone = world.quiet.write().await;
        run_row(world, name, scenario).await
    })
}

async fn run_row(
    world: &'static World,
    name: &str,
    scenario: impl AsyncFnOnce(&Row) -> Result<()>,
) -> Result<()> {
    let row = Row::new(world, name).await?;
    scenario(&row).await.with_context(|| format!("row {name}"))?;
    row.close().await.with_context(|| format!("after row {name}"))
}

impl World {
    async fn start() -> Result<Self> {
        let file_server = FileServer::start().await?;
        let (proxy, locked) = (free_address()?, free_address()?);
        let plain_http = vec![file_server.address(), proxy.to_string(), locked.to_string()];
        let landscape = Landscape::start(Options { plain_http, ..Options::default() }).await?;
        let names = ["harbour", "quay", "lake", "moor"];
        let targets = futures::future::try_join_all(names.map(|name| landscape.bare_target(name))).await?;
        let [harbour, quay, lake, moor] = <[Cluster; 4]>::try_from(targets).ok().context("four targets")?;
        let password_proxy = landscape.registry().behind_password(REGISTRY_LOGIN.0, REGISTRY_LOGIN.1).await?;
        let mut world = Self {
            hub: landscape.hub().client()?,
            harbour,
            quay,
            lake: SharedKyma { kyma: "lake", target: lake, in_use: Mutex::default() },
            moor: Mutex::new(moor),
            file_server,
            proxy: TcpProxy::new(landscape.registry().address(), proxy),
            locked: TcpProxy::new(password_proxy.address(), locked),
            quiet: RwLock::default(),
            bystanders: BTreeMap::new(),
            _password_proxy: password_proxy,
            landscape,
        };
        world.locked.open().await?;
        let system = serde_json::from_value(json!({"metadata": {"name": "kyma-system"}}))?;
        Api::<Namespace>::all(world.quay.client()?).create(&PostParams::default(), &system).await?;
        world.push("anchor", "1.0.0").await?;
        catalogue::assign(world.hub.clone(), "anchor", "1.0.0").await?;
        world.create_kyma("harbour", &world.harbour).await?;
        world.create_kyma("lake", &world.lake.target).await?;
        world.bystanders = world.bystander_versions().await?;
        ensure!(world.bystanders.len() == 4, "bystanders: {:?}", world.bystanders);
        Ok(world)
    }

    /// Creates a Kyma with module `anchor`, and waits until it is Ready.
    async fn create_kyma(&self, name: &str, target: &Cluster) -> Result<()> {
        let secret = self.landscape.access_secret(name, target).await?;
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE).create(&PostParams::default(), &secret).await?;
        self.kymas().create(&PostParams::default(), &kyma(name, &["anchor"])?).await?;
        until(&format!("{name} is Ready"), self.kymas(), name, |kyma| {
            kyma["status"]["state"] == "Ready"
                && kyma["status"]["modules"][0]["state"] == "Ready"
                && condition_is(kyma, "ModuleCatalog", "True")
        })
        .await?;
        Ok(())
    }

    pub(crate) fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    pub(crate) fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    /// Pushes a module of one ConfigMap to the registry and publishes its ModuleTemplate.
    pub(crate) async fn push(&self, module: &str, version: &str) -> Result<()> {
        let manifest = config_map(&format!("{module}-content"), "kyma-system", version).to_string();
        let config = json!({"version": version, "manifest": "manifest.yaml"});
        catalogue::push_files(&self.landscape, module, &config, &[("manifest.yaml", manifest)]).await
    }

    /// Applies a ModuleReleaseMeta whose `spec` has these fields besides the names.
    pub(crate) async fn offer(&self, module: &str, versions: Value) -> Result<()> {
        catalogue::offer(self.hub.clone(), module, &versions).await
    }

    /// Returns the unaffected objects with their resourceVersions: another Kyma, its content, and the modules of both
    /// Kymas.
    pub(crate) async fn bystander_versions(&self) -> Result<BTreeMap<String, String>> {
        let mut seen = BTreeMap::new();
        let harbour = self.kymas().get("harbour").await?;
        seen.insert("Kyma harbour".to_owned(), harbour.resource_version().unwrap_or_default());
        let content: Api<ConfigMap> = Api::namespaced(self.harbour.client()?, "kyma-system");
        let content = content.get("anchor-content").await?;
        seen.insert("content of harbour".to_owned(), content.resource_version().unwrap_or_default());
        for kyma in ["harbour", "lake"] {
            let name = names::component_name(kyma, "anchor");
            let component = self.components().get(&name).await?;
            seen.insert(format!("HelmComponent {name}"), component.resource_version().unwrap_or_default());
        }
        Ok(seen)
    }

    /// Fails if an unaffected object was written.
    pub(crate) async fn bystanders_are_untouched(&self) -> Result<()> {
        let now = self.bystander_versions().await?;
        ensure!(now == self.bystanders, "bystanders were disturbed: {now:?} after {:?}", self.bystanders);
        Ok(())
    }

    /// Fails if a secret is in an operator's log, in an Event or in the status of an object.
    pub(crate) async fn check_secrets_hidden(&self, secrets: &[String]) -> Result<()> {
        for operator in self.landscape.operators() {
            let log = std::fs::read_to_string(operator.log())?;
            for secret in secrets {
                let leak = log.lines().find(|line| line.contains(secret.as_str()));
                ensure!(leak.is_none(), "{} logs a secret: {}", operator.name(), leak.unwrap_or_default());
            }
        }
        let events = self.list("events.k8s.io/v1", "Event").await?;
        let kymas = self.list("operator.kyma-project.io/v1beta2", "Kyma").await?;
        let components = self.list("component.kyma-project.io/v1alpha1", "HelmComponent").await?;
        let shown: Api<Kyma> = Api::all(self.harbour.client()?);
        let shown = shown.list(&ListParams::default()).await?.items.into_iter();
        let shown = shown.map(|kyma| serde_json::to_value(kyma.status)).collect::<Result<Vec<_>, _>>()?;
        let statuses = kymas.into_iter().chain(components).map(|object| object.data["status"].clone());
        let texts = events.into_iter().map(|event| event.data).chain(statuses).chain(shown);
        for text in texts.map(|text| text.to_string()) {
            for secret in secrets {
                ensure!(!text.contains(secret.as_str()), "an object contains a secret: {text}");
            }
        }
        Ok(())
    }

    /// Returns the hub's objects of a kind in the operators' namespace.
    pub(crate) async fn list(&self, api_version: &str, kind: &str) -> Result<Vec<DynamicObject>> {
        let (group, version) = api_version.split_once('/').context("a group")?;
        let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
        let resource = kube::core::ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &resource);
        Ok(api.list(&ListParams::default()).await?.items)
    }
}

/// Reports whether a condition of the object has this status.
pub(crate) fn condition_is(object: &Value, type_: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == type_ && condition["status"] == status)
}

/// Returns a Kyma that follows channel `regular`.
pub(crate) fn kyma(name: &str, modules: &[&str]) -> Result<Kyma> {
    let modules: Vec<Value> = modules.iter().map(|module| json!({"name": module})).collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "Kyma",
        "metadata": {"name": name},
        "spec": {"channel": "regular", "modules": modules},
    }))?)
}

/// Returns a manifest of one ConfigMap with this version as content.
pub(crate) fn config_map(name: &str, namespace: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"version": version},
    })
}
