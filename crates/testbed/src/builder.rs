//! Options for the start of a cluster.

use crate::server::etcd::EtcdDump;
use crate::test_env::TestEnv;

/// The options of a cluster; `.await` starts it. Without options it is a bare apiserver: RBAC is on, and no
/// controller runs (a deleted Namespace stays Terminating, dependents are not collected, Deployments get no Pods).
#[must_use = "a cluster starts when it is awaited"]
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub struct ClusterBuilder {
    pub(crate) test_env: TestEnv,
    pub(crate) name: String,
    pub(crate) controllers: bool,
    pub(crate) nodes: u16,
    pub(crate) audit: bool,
    pub(crate) own_authority: bool,
    pub(crate) own_etcd: bool,
    pub(crate) etcd_dump: Option<EtcdDump>,
    pub(crate) flags: Vec<String>,
}

impl ClusterBuilder {
    pub(crate) fn new(test_env: TestEnv, name: &str) -> Self {
        let name = name.to_owned();
        Self {
            test_env,
            name,
            controllers: false,
            nodes: 0,
            audit: false,
            own_authority: false,
            own_etcd: false,
            etcd_dump: None,
            flags: Vec::new(),
        }
    }

    /// Adds kube-controller-manager: namespaces are finalized, dependents collected, aggregated `ClusterRoles`
    /// filled, default `ServiceAccounts` created.
    pub fn with_controllers(mut self) -> Self {
        self.controllers = true;
        self
    }

    /// Adds controllers, kube-scheduler and one simulated node on which every Pod becomes Ready and every Job
    /// completes; `PersistentVolumeClaims` get bound and Services of type `LoadBalancer` get an address.
    ///
    /// A Pod with the label `testbed/outcome: unready` runs but never becomes Ready.
    pub fn with_workloads(self) -> Self {
        self.with_nodes(1)
    }

    /// Like [`Self::with_workloads`], with this number of nodes.
    pub fn with_nodes(mut self, nodes: u16) -> Self {
        self.controllers |= nodes > 0;
        self.nodes = nodes;
        self
    }

    /// Records each request, for [`Cluster::audit`](crate::Cluster::audit).
    pub fn with_audit(mut self) -> Self {
        self.audit = true;
        self
    }

    /// Gives the cluster a certificate authority of its own, for tests of TLS identity.
    pub fn with_own_authority(mut self) -> Self {
        self.own_authority = true;
        self
    }

    /// Gives the cluster an etcd of its own, so that it can be restored to an earlier state; see
    /// [`Cluster::save`](crate::Cluster::save).
    pub fn with_own_etcd(mut self) -> Self {
        self.own_etcd = true;
        self
    }

    /// Gives the cluster an etcd of its own that contains these keys before the apiserver starts.
    pub fn with_etcd_dump(mut self, dump: EtcdDump) -> Self {
        self.own_etcd = true;
        self.etcd_dump = Some(dump);
        self
    }

    /// Adds a flag to the command line of kube-apiserver, such as `--runtime-config=api/beta=true`.
    pub fn with_flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }
}

impl TestEnv {
    /// Returns the builder of a cluster named `name`, which no other cluster of this test environment may have.
    /// `.await` starts it, after options of [`ClusterBuilder`] as needed.
    pub fn cluster(&self, name: &str) -> ClusterBuilder {
        ClusterBuilder::new(self.clone(), name)
    }
}
