//! Hub, targets, registry and operators on this machine, set up as by a platform team: each operator is a separate
//! process with a ServiceAccount token and exactly the generated role.

mod again;
mod install;
mod operator;
mod proxies;
mod sample;
mod state;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::{try_join, try_join_all};
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use testbed::{
    Access, AuditEvent, AuditMark, Cluster, PasswordProxy, Process, Registry, TestEnv, kind_is_explained,
    until, until_quiet,
};

pub use install::apply_all;
pub use operator::bin;
pub use proxies::{Interceptors, ProxiedConnection};
pub use state::env_file;

/// Namespace of everything on the hub.
pub const HUB_NAMESPACE: &str = "kcp-system";
/// Namespace of the user's Kyma and of the modules on a target.
pub const TARGET_NAMESPACE: &str = "kyma-system";
/// Namespace of the ServiceAccount with which the hub accesses a target.
const ACCESS_NAMESPACE: &str = "hub-access";
/// Name of that ServiceAccount.
const ACCESS_ACCOUNT: &str = "hub";

/// User name of the operators on targets.
pub const ACCESS_USER: &str = "system:serviceaccount:hub-access:hub";

/// Grace period for an operator to stop, which is the default one of a Pod. Running reconciles and the last events use
/// up to seven seconds of it.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Duration without requests that counts as idle.
const IDLE_DURATION: Duration = Duration::from_secs(2);

/// Deadline for operators to become idle.
const IDLE_DEADLINE: Duration = Duration::from_secs(90);

/// Options of a landscape.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of targets.
    pub targets: usize,
    /// Whether hub and targets stay empty and no operator runs; the registry then has a chart.
    pub empty: bool,
    /// Directory of state and logs; a temporary one if absent.
    pub directory: Option<PathBuf>,
    /// Whether every apiserver writes an audit log.
    pub audit: bool,
    /// Whether every cluster has its own etcd, so that it can be restored to an earlier state ([`Cluster::save`]).
    pub snapshots: bool,
    /// User and password that the registry requires from the operators; [`Landscape::registry`] requires none.
    pub registry_login: Option<(&'static str, &'static str)>,
    /// Additional hosts (`HOST:PORT`) from which module content may be pulled without TLS.
    pub plain_http: Vec<String>,
    /// Additional flags of every operator.
    pub flags: Vec<String>,
    /// Additional environment variables of every operator.
    pub environment: Vec<(String, String)>,
}

/// Reports whether an operator of the landscape sent the request.
pub fn is_of_an_operator(event: &AuditEvent) -> bool {
    let hub_account = format!("system:serviceaccount:{HUB_NAMESPACE}:");
    event.user.starts_with(&hub_account) || event.user == ACCESS_USER
}

/// Reports whether an operator of the landscape sent a request that is not routine.
pub fn asks(event: &AuditEvent) -> bool {
    is_of_an_operator(event) && !event.is_routine()
}

/// A copy of the hub with its own operators, in addition to the landscape's; it ends when this is dropped.
pub struct HubCopy {
    hub: Cluster,
    operators: Vec<operator::RunningOperator>,
}

impl HubCopy {
    /// Returns the copied hub.
    pub fn hub(&self) -> &Cluster {
        &self.hub
    }

    /// Fails, with the end of its log, if an operator has ended by itself.
    ///
    /// # Errors
    /// An operator has ended.
    pub fn check(&self) -> Result<()> {
        self.operators.iter().try_for_each(|operator| operator.process.check())
    }
}

/// A running landscape; it ends when this is dropped.
pub struct Landscape {
    operators: Vec<operator::RunningOperator>,
    registry: Registry,
    /// Address of the registry that requires a password from the operators.
    password_proxy: Option<PasswordProxy>,
    targets: Vec<Cluster>,
    hub: Cluster,
    test_env: TestEnv,
    operator_options: operator::OperatorOptions,
}

impl Landscape {
    /// Starts everything and waits until all operators are ready.
    ///
    /// # Errors
    /// A program is missing or does not start; the message names it, with the end of its log.
    pub async fn start(options: Options) -> Result<Self> {
        Self::start_behind(options, &|_| None).await
    }

    /// Does the same as [`Self::start`] with proxies of the caller between the operators and the clusters;
    /// [`Self::access`] leads to a target through them.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_behind(options: Options, interceptors: Interceptors<'_>) -> Result<Self> {
        let test_env = match &options.directory {
            Some(directory) => TestEnv::start_in(directory).await?,
            None => TestEnv::start().await?,
        };
        let audited = |builder: testbed::ClusterBuilder| {
            let builder = if options.audit { builder.with_audit() } else { builder };
            if options.snapshots { builder.with_own_etcd() } else { builder }
        };
        let hub = async { audited(test_env.cluster("hub").with_controllers()).await };
        let targets = (1..=options.targets).map(|number| {
            let builder = audited(test_env.cluster(&format!("target-{number}")).with_workloads());
            async { builder.await }
        });
        let (hub, targets) = try_join(hub, try_join_all(targets)).await?;
        let registry = test_env.registry().await?;
        if options.empty {
            sample::push(&registry, test_env.directory()).await?;
        } else {
            install::hub(&hub).await?;
            try_join_all(targets.iter().map(install::target)).await?;
        }
        let proxies =
            proxies::Proxies::start(interceptors, operator::OPERATORS.map(|one| one.name), &hub, &targets)
                .await?;
        let Options { registry_login, plain_http, flags, environment, empty, .. } = options;
        let password_proxy = match registry_login {
            Some((user, password)) => Some(registry.behind_password(user, password).await?),
            None => None,
        };
        let address =
            password_proxy.as_ref().map_or_else(|| registry.address(), PasswordProxy::address).to_owned();
        let operator_options = operator::OperatorOptions {
            registry: address,
            plain_http,
            flags,
            environment,
            label: "",
            proxies,
        };
        let operators =
            if empty { vec![] } else { operator::start_all(&test_env, &hub, &operator_options).await? };
        if !empty {
            kind_is_explained(&hub.client()?, "component.kyma-project.io/v1alpha1", "helmcomponents").await?;
        }
        let landscape =
            Self { operators, registry, password_proxy, targets, hub, test_env, operator_options };
        let more = if empty { sample::variables(&landscape)? } else { vec![] };
        state::write(&landscape, &more)?;
        Ok(landscape)
    }

    /// Fails, with the end of its log, if a process has ended by itself.
    ///
    /// # Errors
    /// A process has ended.
    pub fn check(&self) -> Result<()> {
        self.test_env.check()?;
        std::iter::once(&self.hub).chain(&self.targets).try_for_each(Cluster::check)?;
        self.registry.process().check()?;
        self.operators().try_for_each(Process::check)
    }

    /// Starts a copy of the hub as it was saved under this name ([`Cluster::save`]), with its own operators for the
    /// same targets.
    ///
    /// # Errors
    /// The state was not saved, or a process does not start.
    pub async fn copy_of_hub(&self, saved: &str) -> Result<HubCopy> {
        let hub = self.test_env.cluster("hub-copy").with_controllers().with_audit().with_own_etcd().await?;
        hub.become_copy_of(&self.hub, saved).await?;
        state::private(&self.kubeconfig(&hub), &hub.kubeconfig())?;
        let operator_options = operator::OperatorOptions {
            registry: self.operator_options.registry.clone(),
            plain_http: self.operator_options.plain_http.clone(),
            flags: self.operator_options.flags.clone(),
            environment: self.operator_options.environment.clone(),
            label: "-of-copy",
            proxies: proxies::Proxies::default(),
        };
        let operators = operator::start_all(&self.test_env, &hub, &operator_options).await?;
        Ok(HubCopy { hub, operators })
    }

    /// Returns the cluster of the operators and custom resources.
    pub fn hub(&self) -> &Cluster {
        &self.hub
    }

    /// Returns the clusters that get modules: `target-1`, `target-2`, ….
    pub fn targets(&self) -> &[Cluster] {
        &self.targets
    }

    /// Starts another cluster that can get modules and has none yet.
    ///
    /// # Errors
    /// The cluster does not start.
    pub async fn fresh_target(&self, name: &str) -> Result<Cluster> {
        let target = self.test_env.cluster(name).with_workloads().await?;
        install::target(&target).await?;
        Ok(target)
    }

    /// Does the same as [`Self::fresh_target`], with this many nodes.
    ///
    /// # Errors
    /// The cluster does not start.
    pub async fn wide_target(&self, name: &str, nodes: u16) -> Result<Cluster> {
        let target = self.test_env.cluster(name).with_nodes(nodes).await?;
        install::target(&target).await?;
        Ok(target)
    }

    /// Starts another cluster that can get modules without workloads: Pods are neither scheduled nor run there.
    ///
    /// # Errors
    /// The cluster does not start.
    pub async fn bare_target(&self, name: &str) -> Result<Cluster> {
        let target = self.test_env.cluster(name).await?;
        install::target(&target).await?;
        Ok(target)
    }

    /// Returns hub and targets.
    pub fn clusters(&self) -> Vec<&Cluster> {
        std::iter::once(&self.hub).chain(&self.targets).collect()
    }

    /// Returns the ends of the audit logs of [`Self::clusters`].
    ///
    /// # Errors
    /// A log cannot be read, or there is none.
    pub fn marks(&self) -> Result<Vec<AuditMark>> {
        self.clusters().into_iter().map(|cluster| cluster.audit()?.mark()).collect()
    }

    /// Waits until the operators send no more requests; needs audit logs.
    ///
    /// # Errors
    /// The operators do not come to rest.
    pub async fn until_at_rest(&self) -> Result<()> {
        until_quiet(&self.clusters(), IDLE_DURATION, IDLE_DEADLINE, asks).await
    }

    /// Returns the address of the registry that requires a password from the operators
    /// ([`Options::registry_login`]).
    pub fn locked_registry(&self) -> Option<&str> {
        self.password_proxy.as_ref().map(PasswordProxy::address)
    }

    /// Returns the registry of module content.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the operators' processes, to freeze or kill them.
    pub fn operators(&self) -> impl Iterator<Item = &Process> {
        self.operators.iter().map(|operator| &operator.process)
    }

    /// Returns an operator's `/metrics`.
    ///
    /// # Errors
    /// There is no operator of that name, or it does not respond.
    pub async fn metrics(&self, name: &str) -> Result<String> {
        let operator = self.operators.iter().find(|operator| operator.process.name() == name);
        operator.with_context(|| format!("no operator {name}"))?.answer("/metrics").await
    }

    /// Returns an operator's process.
    ///
    /// # Errors
    /// There is no operator of that name.
    pub fn operator(&self, name: &str) -> Result<&Process> {
        let mut all = self.operators();
        all.find(|operator| operator.name() == name).with_context(|| format!("no operator {name}"))
    }

    /// Installs again on the hub what a platform team applies, after its namespace was deleted, and restarts all
    /// operators with tokens of the new ServiceAccounts.
    ///
    /// # Errors
    /// The hub refuses an object, or an operator does not start.
    pub async fn install_again(&mut self) -> Result<()> {
        self.operators().for_each(Process::kill);
        install::hub(&self.hub).await?;
        self.operators = operator::start_all(&self.test_env, &self.hub, &self.operator_options).await?;
        Ok(())
    }

    /// Returns the path of a binary of the workspace.
    pub fn bin(&self, name: &str) -> PathBuf {
        operator::bin(name)
    }

    /// Returns a command of `kymactl` as administrator of the landscape's hub.
    pub fn kymactl(&self) -> tokio::process::Command {
        self.kymactl_at(&self.hub)
    }

    /// Returns a command of `kymactl` as administrator of this hub.
    pub fn kymactl_at(&self, hub: &Cluster) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(self.bin("kymactl"));
        command.env("KUBECONFIG", self.kubeconfig(hub));
        command
    }

    fn kubeconfig(&self, cluster: &Cluster) -> PathBuf {
        self.test_env.directory().join(format!("{}.kubeconfig", cluster.name()))
    }

    /// Returns the access Secret of a Kyma: the kubeconfig of a ServiceAccount with the union of all operators'
    /// target roles.
    ///
    /// # Errors
    /// The target does not answer.
    pub async fn access_secret(&self, kyma: &str, target: &Cluster) -> Result<Secret> {
        secret_with(kyma, &self.access(target).await?)
    }

    /// Returns access to a target for a ServiceAccount with the union of all operators' target roles.
    ///
    /// # Errors
    /// The target does not answer.
    pub async fn access(&self, target: &Cluster) -> Result<Access> {
        let access = target.service_account(ACCESS_NAMESPACE, ACCESS_ACCOUNT).await?;
        Ok(self.operator_options.proxies.to_target(target, access))
    }

    /// Returns commands with which a user can look around.
    pub fn how_to_go_on(&self) -> String {
        let directory = self.test_env.directory().display();
        let mut lines = vec!["What to type next:".to_owned()];
        lines.push(format!("  kubectl --kubeconfig {directory}/hub.kubeconfig get kymas,helmcomponents -A"));
        lines.push(format!("  kubectl --kubeconfig {directory}/target-1.kubeconfig get all -n kyma-system"));
        lines.push(format!("  ls {directory}/logs"));
        lines.push("Ctrl-C ends it all.".to_owned());
        lines.join("\n")
    }

    /// Returns the directory of state, kubeconfigs and logs.
    pub fn directory(&self) -> &Path {
        self.test_env.directory()
    }

    /// Stops everything, operators first.
    ///
    /// # Errors
    /// A process cannot be signalled, or does not end in time.
    pub async fn stop(self) -> Result<()> {
        for operator in self.operators().filter(|operator| operator.exited().is_none()) {
            operator.terminate()?;
        }
        for operator in self.operators() {
            let what = format!("{} ends after SIGTERM", operator.name());
            until(&what, STOP_GRACE_PERIOD, || async { Ok(operator.exited()) }).await?;
        }
        tokio::task::spawn_blocking(move || drop(self)).await.context("stopping broke off")
    }
}

/// Returns the access Secret of a Kyma with this access.
///
/// # Errors
/// Never: the object is a valid Secret.
pub fn secret_with(kyma: &str, access: &Access) -> Result<Secret> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": format!("kubeconfig-{kyma}"),
            "namespace": HUB_NAMESPACE,
            "labels": {kyma_api::labels::KYMA_NAME: kyma},
        },
        "stringData": {"config": access.kubeconfig()},
    });
    serde_json::from_value(secret).context("the Secret is well-formed")
}
