//! Controllers, scheduler and simulated nodes of one cluster.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;

use crate::builder::ClusterBuilder;
use crate::server::apiserver::ApiServer;
use crate::server::process::{Process, ProgramStart};
use crate::tools::binaries::Program;
use crate::wait::until;

/// Controllers that a module's workloads need, without those for clouds, disks and certificates.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,deployment-controller,\
replicaset-controller,replicationcontroller-controller,statefulset-controller,daemonset-controller,job-controller,\
cronjob-controller,serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller,\
endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller,node-lifecycle-controller,\
persistentvolume-protection-controller,persistentvolumeclaim-protection-controller,pod-garbage-collector-controller,\
clusterrole-aggregation-controller,resourcequota-controller,disruption-controller,ttl-after-finished-controller,\
validatingadmissionpolicy-status-controller";

const STAGES: &str = include_str!("stages.yaml");

const READY_DEADLINE: Duration = Duration::from_mins(2);

/// The processes beside an apiserver; the one that was started last is dropped first.
#[derive(Default)]
pub(crate) struct Workloads {
    processes: Mutex<Vec<(ProgramStart, Process)>>,
}

impl Workloads {
    /// Fails if one of the processes has ended.
    pub(crate) fn check(&self) -> Result<()> {
        self.processes.lock().iter().try_for_each(|(_, process)| process.check())
    }

    /// Restarts all processes, which is needed after a restore of etcd: their caches contain later states.
    pub(crate) fn start_again(&self) -> Result<()> {
        let mut processes = self.processes.lock();
        for (start, process) in processes.iter_mut() {
            process.kill();
            *process = Process::spawn(start)?;
        }
        Ok(())
    }

    pub(crate) async fn start(builder: &ClusterBuilder, apiserver: &ApiServer) -> Result<Self> {
        let workloads = Self::default();
        if !builder.controllers {
            return Ok(workloads);
        }
        let files = &apiserver.files;
        let kubeconfig = files.path("admin.kubeconfig");
        fs::write(&kubeconfig, apiserver.admin.kubeconfig())?;
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let client = apiserver.admin.client()?;
        let file = |flag: &str, name: &str| format!("--{flag}={}", files.path(name).display());
        let flags = [
            kubeconfig.clone(),
            format!("--controllers={CONTROLLERS}"),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
            // A machine under load must not lose its simulated nodes.
            "--node-monitor-grace-period=10m".to_owned(),
            file("service-account-private-key-file", "tokens.key"),
            file("root-ca-file", "ca.crt"),
        ];
        workloads.spawn(builder, apiserver, Program::ControllerManager, &flags)?;
        if builder.nodes > 0 {
            let flags = [kubeconfig.clone(), "--leader-elect=false".to_owned(), "--secure-port=0".to_owned()];
            workloads.spawn(builder, apiserver, Program::Scheduler, &flags)?;
            fs::write(files.path("stages.yaml"), STAGES)?;
            let flags = [
                kubeconfig,
                file("config", "stages.yaml"),
                "--manage-all-nodes=true".to_owned(),
                "--cidr=10.1.0.0/16".to_owned(),
                "--node-ip=10.2.0.1".to_owned(),
                "--node-lease-duration-seconds=200".to_owned(),
            ];
            workloads.spawn(builder, apiserver, Program::Kwok, &flags)?;
            make_nodes(&client, builder.nodes).await?;
        }
        workloads.ready(&client, usize::from(builder.nodes)).await?;
        Ok(workloads)
    }

    fn spawn(
        &self,
        builder: &ClusterBuilder,
        apiserver: &ApiServer,
        program: Program,
        flags: &[String],
    ) -> Result<()> {
        let name = format!("{}-{}", builder.name, program.file_name());
        let log = apiserver.files.logs.join(format!("{name}.log"));
        let arguments = flags.iter().map(OsString::from).collect();
        let start = ProgramStart { name, program: program.path()?, arguments, environment: Vec::new(), log };
        let process = Process::spawn(&start)?;
        self.processes.lock().push((start, process));
        Ok(())
    }

    /// Waits until the controllers run and every node accepts Pods.
    async fn ready(&self, client: &Client, nodes: usize) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let node: Api<Node> = Api::all(client.clone());
        until("controllers and nodes are ready", READY_DEADLINE, || async {
            self.check()?;
            if accounts.get_opt("default").await?.is_none() {
                return Ok(None);
            }
            let ready = node
                .list(&kube::api::ListParams::default())
                .await?
                .iter()
                .filter(|node| takes_pods(node))
                .count();
            Ok((ready >= nodes).then_some(()))
        })
        .await
    }
}

impl Drop for Workloads {
    fn drop(&mut self) {
        while self.processes.lock().pop().is_some() {}
    }
}

fn takes_pods(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let tainted =
        node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).is_some_and(|taints| !taints.is_empty());
    ready && !tainted
}

async fn make_nodes(client: &Client, nodes: u16) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for number in 0..nodes {
        let name = format!("node-{number}");
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
            }},
        });
        api.patch(&name, &PatchParams::apply("testbed").force(), &Patch::Apply(&node)).await?;
    }
    Ok(())
}
