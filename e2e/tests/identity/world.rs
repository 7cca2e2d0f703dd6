//! Two Kymas: one directly connected to its target, one through a forwarder that can lead to another cluster.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::catalogue;
use e2e::landscape::{ACCESS_USER, HUB_NAMESPACE, Landscape, Options, asks};
use e2e::net::TcpProxy;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, Reason, labels, names};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testbed::{AuditMark, Cluster, Validity, free_address, until, until_or_why, until_quiet};

/// Deadline of a wait. It is longer than the longest pause between retries, a minute.
const DEADLINE: Duration = Duration::from_mins(2);
/// Duration without requests that counts as idle.
const IDLE_DURATION: Duration = Duration::from_secs(2);
/// The module that every Kyma has.
const MODULE: &str = "anchor";
const VERSIONS: [&str; 5] = ["1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0"];

pub(crate) struct World {
    pub(crate) landscape: Landscape,
    /// The current hub, which tests read and write.
    at: Cluster,
    hub: Client,
    /// Address of the forwarder.
    address: SocketAddr,
    proxy: Mutex<Option<TcpProxy>>,
}

/// Output of `kymactl target`.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

impl World {
    /// Creates Kyma `east` on the first target, through the forwarder, and Kyma `west` on the second; the third
    /// target has none.
    pub(crate) async fn build() -> Result<Self> {
        let landscape =
            Landscape::start(Options { targets: 3, audit: true, snapshots: true, ..Options::default() })
                .await?;
        let hub = landscape.hub().client()?;
        for version in VERSIONS {
            let config = json!({"version": version, "manifest": "manifest.yaml"});
            let content = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": MODULE, "namespace": "kyma-system"}, "data": {"version": version},
            });
            let files = [("manifest.yaml", content.to_string())];
            catalogue::push_files(&landscape, MODULE, &config, &files).await?;
        }
        let at = landscape.hub().clone();
        let world = Self { landscape, at, hub, address: free_address()?, proxy: Mutex::default() };
        world.assign(VERSIONS[0]).await?;
        world.switch_to(1).await?;
        world.create("east", &world.proxied_kubeconfig()?).await?;
        world.create("west", &world.straight().await?).await?;
        for kyma in ["east", "west"] {
            world.has(kyma, VERSIONS[0]).await?;
        }
        world.landscape.until_at_rest().await?;
        Ok(world)
    }

    pub(crate) async fn end(self) -> Result<()> {
        self.landscape.stop().await
    }

    /// Makes this hub the current one.
    pub(crate) fn look_at(&mut self, hub: &Cluster) -> Result<()> {
        self.hub = hub.client()?;
        self.at = hub.clone();
        Ok(())
    }

    /// Returns the cluster with this number; 0 is the hub.
    fn cluster(&self, number: usize) -> &Cluster {
        self.landscape.clusters()[number]
    }

    /// Returns the cluster's identity.
    pub(crate) async fn uid(&self, number: usize) -> Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.cluster(number).client()?);
        namespaces.get("kube-system").await?.uid().context("a stored Namespace has a uid")
    }

    /// Redirects the forwarder to this cluster and closes its connections.
    pub(crate) async fn switch_to(&self, number: usize) -> Result<()> {
        let upstream = self.cluster(number).url().trim_start_matches("https://").to_owned();
        let next = TcpProxy::new(&upstream, self.address);
        if let Some(before) = self.proxy.lock().take() {
            before.close();
        }
        until("the proxy's address is free", DEADLINE, || async { Ok(next.open().await.ok()) }).await?;
        *self.proxy.lock() = Some(next);
        Ok(())
    }

    /// Returns a kubeconfig for the cluster behind the forwarder, with a certificate that all clusters here accept
    /// for the same user.
    pub(crate) fn proxied_kubeconfig(&self) -> Result<String> {
        let way = self.cluster(1).certificate_user(ACCESS_USER, None, Validity::Long)?;
        let ca = way.ca.clone();
        Ok(way.at(format!("https://{}", self.address), ca).kubeconfig())
    }

    /// Returns a kubeconfig for the second target.
    pub(crate) async fn straight(&self) -> Result<String> {
        Ok(self.landscape.access(self.cluster(2)).await?.kubeconfig())
    }

    /// Returns a kubeconfig for the hub with all rights.
    pub(crate) async fn way_to_the_hub(&self) -> Result<String> {
        let way = self.landscape.access(self.cluster(0)).await?;
        let (namespace, name) = way.user.rsplit_once(':').context("a ServiceAccount")?;
        let namespace = namespace.rsplit(':').next().context("its namespace")?;
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "way-back"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }))?;
        Api::all(self.hub.clone()).create(&PostParams::default(), &binding).await?;
        Ok(way.kubeconfig())
    }

    /// Writes this kubeconfig to the Kyma's access Secret.
    pub(crate) async fn grant(&self, kyma: &str, kubeconfig: &str) -> Result<()> {
        let name = format!("kubeconfig-{kyma}");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"config": kubeconfig},
            "metadata": {"name": name, "labels": {labels::KYMA_NAME: kyma}},
        });
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        secrets.patch(&name, &PatchParams::apply("person").force(), &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// Creates a Kyma with the module, and its access Secret.
    pub(crate) async fn create(&self, kyma: &str, kubeconfig: &str) -> Result<()> {
        self.grant(kyma, kubeconfig).await?;
        let object: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": kyma},
            "spec": {"channel": "regular", "modules": [{"name": MODULE}]},
        }))?;
        self.kymas().create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Deletes a Kyma and waits until it is gone.
    pub(crate) async fn delete(&self, kyma: &str) -> Result<()> {
        self.kymas().delete(kyma, &DeleteParams::default()).await?;
        until_or_why(&format!("{kyma} is gone"), DEADLINE, || async {
            let found = self.kymas().get_opt(kyma).await?;
            Ok(found.map_or(Ok(()), |found| Err(format!("{:?}", found.status))))
        })
        .await
    }

    /// Publishes this version of the module for all Kymas.
    pub(crate) async fn assign(&self, version: &str) -> Result<()> {
        catalogue::assign(self.hub.clone(), MODULE, version).await
    }

    /// Waits until the Kyma reports this reason, and so do its component and catalogue if they exist.
    pub(crate) async fn is_refused(&self, kyma: &str, reason: Reason) -> Result<()> {
        until_or_why(&format!("{kyma} says {reason}"), DEADLINE, || async {
            let found = serde_json::to_value(self.kymas().get(kyma).await?)?;
            let component = self.components().get_opt(&names::component_name(kyma, MODULE)).await?;
            let component = serde_json::to_value(component)?;
            let is_reported = |object: &Value, type_: &str| {
                let conditions = object["status"]["conditions"].as_array();
                let mut held = conditions.into_iter().flatten();
                held.any(|held| {
                    held["type"] == type_ && held["status"] == "False" && held["reason"] == reason.as_str()
                })
            };
            let all = is_reported(&found, "TargetReachable")
                && is_reported(&found, "ModuleCatalog")
                && (component.is_null() || is_reported(&component, "Ready"));
            let shown = format!("{}\n{}", found["status"]["conditions"], component["status"]["conditions"]);
            Ok(if all { Ok(()) } else { Err(shown) })
        })
        .await
    }

    /// Waits until the Kyma is Ready with this version, and its target has it.
    pub(crate) async fn has(&self, kyma: &str, version: &str) -> Result<()> {
        until_or_why(&format!("{kyma} has {version}"), DEADLINE, || async {
            let found = serde_json::to_value(self.kymas().get(kyma).await?)?;
            let module = &found["status"]["modules"][0];
            let ready = found["status"]["state"] == "Ready" && module["state"] == "Ready";
            Ok(if ready && module["version"] == version { Ok(()) } else { Err(found["status"].to_string()) })
        })
        .await?;
        self.runs(kyma, version).await
    }

    /// Waits until the Kyma's component has this reason.
    pub(crate) async fn says(&self, kyma: &str, reason: Reason) -> Result<()> {
        until_or_why(&format!("the component of {kyma} says {reason}"), DEADLINE, || async {
            let component = self.components().get(&names::component_name(kyma, MODULE)).await?;
            let shown = serde_json::to_value(component.status)?["conditions"].to_string();
            Ok(if shown.contains(reason.as_str()) { Ok(()) } else { Err(shown) })
        })
        .await
    }

    /// Waits until the operators of both hubs send no more requests.
    pub(crate) async fn rests_with(&self, copy: &Cluster) -> Result<()> {
        let clusters: Vec<&Cluster> = self.landscape.clusters().into_iter().chain([copy]).collect();
        until_quiet(&clusters, IDLE_DURATION, DEADLINE, asks).await
    }

    /// Fails unless the target has the module in this version.
    pub(crate) async fn runs(&self, kyma: &str, version: &str) -> Result<()> {
        let target = if kyma == "west" { 2 } else { self.proxied_cluster()? };
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster(target).client()?, "kyma-system");
        let data = maps.get(MODULE).await?.data.unwrap_or_default();
        ensure!(data.get("version").is_some_and(|held| held == version), "{data:?} on cluster {target}");
        Ok(())
    }

    fn proxied_cluster(&self) -> Result<usize> {
        let proxy = self.proxy.lock();
        let upstream = proxy.as_ref().context("the proxy is open")?.upstream();
        let clusters = self.landscape.clusters();
        clusters
            .iter()
            .position(|cluster| cluster.url().ends_with(upstream))
            .context("no cluster has this address")
    }

    /// Fails if a client with an access Secret wrote to one of these clusters since.
    pub(crate) fn nothing_was_written(&self, clusters: &[usize], marks: &[AuditMark]) -> Result<()> {
        for &number in clusters {
            let events = self.cluster(number).audit()?.since(marks[number])?;
            let writes = events.iter().filter(|event| event.user == ACCESS_USER && event.is_write());
            // `kymactl target` checks its permissions.
            let writes = writes.filter(|event| event.resource != "selfsubjectaccessreviews");
            let writes: Vec<String> =
                writes.map(|event| format!("{} {} {}", event.user_agent, event.verb, event.uri)).collect();
            ensure!(writes.is_empty(), "written to cluster {number}:\n{}", writes.join("\n"));
        }
        Ok(())
    }

    /// Runs `kymactl target`.
    pub(crate) async fn kymactl(&self, words: &[&str]) -> Result<CommandOutput> {
        let mut command = self.landscape.kymactl_at(&self.at);
        command.arg("target").args(words).args([
            "--allow-loopback-targets",
            "--hub-namespace",
            HUB_NAMESPACE,
        ]);
        let output = command.output().await.context("cannot start kymactl")?;
        let text = [output.stdout, output.stderr].concat();
        Ok(CommandOutput { code: output.status.code(), text: String::from_utf8_lossy(&text).into_owned() })
    }

    fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}
