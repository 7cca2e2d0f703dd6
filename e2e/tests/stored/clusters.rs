//! A hub, a target, and helm-component as a process with its generated roles.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::landscape::{apply_all, bin};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, condition};
use serde_json::{Value, json};
use testbed::{
    AuditEvent, AuditMark, Cluster, EtcdDump, Process, Program, TestEnv, crd_is_served, free_address, until,
    until_or_why, until_quiet,
};
use tokio::process::Command;

use crate::charts;
use crate::clock::Clock;
use crate::recording::Recording;

/// Namespace of the components and their operator.
pub(crate) const HUB_NAMESPACE: &str = "kcp-system";
/// Name of the Secret with access to the target.
pub(crate) const ACCESS: &str = "access";
/// User of the operator on the hub.
const HUB_USER: &str = "system:serviceaccount:kcp-system:helm-component";
/// User of the operator on the target.
pub(crate) const TARGET_USER: &str = "system:serviceaccount:kube-system:modules";
/// Field manager of the platform team.
const PLATFORM: &str = "platform-team";
/// Field manager of the user.
const USER: &str = "user";
/// Deadline of a wait on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);
/// Time without writes after which the operator is at rest; longer than its first pass over a target may take.
const REST: Duration = Duration::from_secs(12);
/// Flag with which API servers store objects as text.
const STORES_TEXT: &str = "--storage-media-type=application/json";

/// Hub and target, and the operator if it runs.
pub(crate) struct Clusters {
    pub(crate) operator: Option<Process>,
    pub(crate) target: Cluster,
    pub(crate) hub: Cluster,
    clock: Clock,
    pub(crate) test_env: TestEnv,
}

impl Clusters {
    /// Starts hub and target, empty or with recorded objects, without the operator.
    pub(crate) async fn start(recording: Option<&Recording>) -> Result<Self> {
        let test_env = TestEnv::start().await?;
        let builder = |name: &str, dump: Option<EtcdDump>| {
            let builder = test_env.cluster(name).with_audit().with_own_etcd().with_flag(STORES_TEXT);
            match dump {
                Some(dump) => builder.with_etcd_dump(dump),
                None => builder,
            }
        };
        let hub = builder("hub", recording.map(|recording| recording.hub.clone()));
        let target = builder("target", recording.map(|recording| recording.target.clone()));
        let (hub, target) = tokio::try_join!(async { hub.await }, async { target.with_workloads().await })?;
        let clock = Clock::in_directory(test_env.directory())?;
        Ok(Self { operator: None, target, hub, clock, test_env })
    }

    /// Applies the CRDs and roles of the current version, and the Secret with access to the target.
    pub(crate) async fn install(&self) -> Result<()> {
        let hub = self.hub.client()?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HUB_NAMESPACE}});
        apply_all(&hub, PLATFORM, &namespace.to_string()).await?;
        apply_all(&hub, PLATFORM, &printed(&["crd"]).await?).await?;
        crd_is_served(&hub, "helmcomponents.component.kyma-project.io").await?;
        apply_all(&hub, PLATFORM, &printed(&["rbac", "--namespace", HUB_NAMESPACE]).await?).await?;

        let target = self.target.client()?;
        apply_all(&target, PLATFORM, &printed(&["rbac", "--for", "target"]).await?).await?;
        let kubeconfig = self.target.kubeconfig_for_service_account("kube-system", "modules").await?;
        let role = "helm-component-target";
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "modules"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "modules", "namespace": "kube-system"}],
        });
        apply_all(&target, PLATFORM, &binding.to_string()).await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": ACCESS, "namespace": HUB_NAMESPACE,
                "labels": {kyma_api::labels::KYMA_NAME: "test"},
            },
            "stringData": {"config": kubeconfig},
        });
        apply_all(&hub, PLATFORM, &secret.to_string()).await
    }

    /// Starts the operator. If a time is given, its clock continues from there, so that no recorded deadline and no
    /// pause before a retry has passed.
    pub(crate) async fn start_operator(&mut self, time: Option<Timestamp>) -> Result<()> {
        let shift = time.map_or(0, |time| time.as_second() - Timestamp::now().as_second());
        self.clock.set(shift)?;
        let directory = self.test_env.directory();
        let kubeconfig = directory.join("helm-component.kubeconfig");
        let access = self.hub.kubeconfig_for_service_account(HUB_NAMESPACE, "helm-component").await?;
        std::fs::write(&kubeconfig, access)?;
        let arguments = [
            "run".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--admin-address={}", free_address()?),
            "--log-format=text".to_owned(),
            "--allow-loopback-targets".to_owned(),
            format!("--oci-insecure-hosts={}", charts::HOST),
            format!("--artifact-cache-dir={}", directory.join("artifacts").display()),
            format!("--helm={}", Program::Helm.path()?.display()),
        ];
        let mut environment = self.clock.environment();
        environment.push(("UNHEALTHY_AFTER_SECONDS".to_owned(), "2".to_owned()));
        let log = self.test_env.logs().join("helm-component.log");
        let process = Process::start("helm-component", bin("helm-component"), arguments, environment, log)?;
        self.operator = Some(process);
        Ok(())
    }

    /// Stops the operator as a rollout does, and waits until it has ended.
    pub(crate) async fn stop_operator(&mut self) -> Result<()> {
        let operator = self.operator.take().context("the operator does not run")?;
        operator.terminate()?;
        until("helm-component ends after SIGTERM", DEADLINE, || async { Ok(operator.exited()) }).await?;
        Ok(())
    }

    /// Returns the end of the operator's log.
    fn log_end(&self) -> String {
        self.operator.as_ref().map(|operator| operator.log_end(30)).unwrap_or_default()
    }

    /// Waits until the operator has sent no write to hub and target for a while.
    pub(crate) async fn until_at_rest(&self) -> Result<()> {
        let writes = |event: &AuditEvent| {
            let is_of_operator = event.user == HUB_USER || event.user == TARGET_USER;
            is_of_operator && event.is_write() && !event.is_lease_renewal()
        };
        let waited = until_quiet(&[&self.hub, &self.target], REST, DEADLINE, writes).await;
        waited.with_context(|| self.log_end())
    }

    pub(crate) fn components(&self) -> Result<Api<HelmComponent>> {
        Ok(Api::namespaced(self.hub.client()?, HUB_NAMESPACE))
    }

    /// Applies a component as its user.
    pub(crate) async fn apply(&self, name: &str, spec: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {"name": name, "namespace": HUB_NAMESPACE},
            "spec": spec,
        });
        let params = PatchParams::apply(USER).force();
        self.components()?.patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    /// Sets an annotation of a component.
    pub(crate) async fn annotate(&self, name: &str, key: &str, value: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        self.components()?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Waits until this holds for a component, and returns it.
    pub(crate) async fn until_component(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&HelmComponent) -> bool,
    ) -> Result<HelmComponent> {
        let components = self.components()?;
        let waited = until(&format!("{name}: {what}"), DEADLINE, || async {
            Ok(Some(components.get(name).await?).filter(&holds))
        })
        .await;
        match waited {
            Ok(component) => Ok(component),
            Err(error) => {
                let status = components.get_opt(name).await?.and_then(|found| found.status);
                Err(error.context(format!("status: {status:#?}\n{}", self.log_end())))
            }
        }
    }

    /// Waits until the condition Ready of the current generation has this status and reason.
    pub(crate) async fn ready(&self, name: &str, status: &str, reason: &str) -> Result<HelmComponent> {
        let what = format!("Ready={status} {reason}");
        self.until_component(name, &what, |component| {
            let conditions = component.status.as_ref().and_then(|status| status.conditions.as_deref());
            let ready = condition::get(conditions.unwrap_or_default(), condition::types::READY);
            ready.is_some_and(|ready| {
                let is_current = ready.observed_generation == component.metadata.generation;
                is_current && ready.status == status && ready.reason == reason
            })
        })
        .await
    }

    /// Returns `level` in a ConfigMap of a component, if it exists.
    pub(crate) async fn level(&self, component: &str, name: &str) -> Result<Option<String>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.target.client()?, component);
        let found = maps.get_opt(name).await?;
        Ok(found.and_then(|found| found.data?.get("level").cloned()))
    }

    /// Waits until the ConfigMap `main` of a component has this `level`.
    pub(crate) async fn until_level(&self, component: &str, level: &str) -> Result<()> {
        until_or_why(&format!("{component} has level {level}"), DEADLINE, || async {
            let found = self.level(component, "main").await?;
            let is_there = found.as_deref() == Some(level);
            Ok(if is_there { Ok(()) } else { Err(format!("{found:?}")) })
        })
        .await
    }

    /// Returns the uids of all Jobs on the target by namespace and name.
    pub(crate) async fn jobs(&self) -> Result<BTreeMap<String, String>> {
        let jobs: Api<Job> = Api::all(self.target.client()?);
        let listed = jobs.list(&ListParams::default()).await?;
        let entry = |job: Job| {
            let name = format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any());
            (name, job.uid().unwrap_or_default())
        };
        Ok(listed.items.into_iter().map(entry).collect())
    }

    /// Waits until the Pod of a Job runs, and returns its name.
    pub(crate) async fn running_pod(&self, namespace: &str, job: &str) -> Result<String> {
        let pods: Api<Pod> = Api::namespaced(self.target.client()?, namespace);
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        until(&format!("the Pod of Job {namespace}/{job} runs"), DEADLINE, || async {
            let mut found = pods.list(&of_job).await?.items.into_iter();
            let is_running =
                |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            Ok(found.find(is_running).map(|pod| pod.name_any()))
        })
        .await
        .with_context(|| self.log_end())
    }

    /// Lets the running Pod of a Job succeed, as the kubelet does at its end.
    pub(crate) async fn succeed(&self, namespace: &str, job: &str) -> Result<()> {
        let pod = self.running_pod(namespace, job).await?;
        let pods: Api<Pod> = Api::namespaced(self.target.client()?, namespace);
        let done = json!({"status": {"phase": "Succeeded"}});
        pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(done)).await?;
        Ok(())
    }

    /// Returns the operator's writes on the target since the mark, without dry runs and access reviews.
    pub(crate) fn writes(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        let mut events = self.target.audit()?.since(mark)?;
        events.retain(|event| {
            let is_question = event.group == "authorization.k8s.io" || event.uri.contains("dryRun=");
            event.user == TARGET_USER && event.is_write() && !is_question
        });
        Ok(events)
    }

    /// Returns the names of Jobs in a namespace that the operator created since the mark, one for each creation.
    pub(crate) fn created_jobs(&self, mark: AuditMark, namespace: &str) -> Result<Vec<String>> {
        let mut events = self.writes(mark)?;
        events.retain(|event| event.resource == "jobs" && event.namespace == namespace && event.code == 201);
        Ok(events.into_iter().map(|event| event.name).collect())
    }
}

/// Returns the output of helm-component with these arguments.
async fn printed(arguments: &[&str]) -> Result<String> {
    let output = Command::new(bin("helm-component")).args(arguments).output().await;
    let output = output.context("cannot start helm-component; is it built?")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
