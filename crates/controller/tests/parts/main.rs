//! Parts of the runtime on real control planes, and with faults that those do not produce.

// Clippy allows this only in test functions, not in their helpers.
#![allow(clippy::unwrap_used)]

mod absence;
mod apply_status;
mod blocking;
mod crds;
mod create_new;
mod delete_gate;
mod hub_watch;
mod ready;
mod reconciler;
mod watches;

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString, api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use kyma_controller::{AccessArgs, Args, LogFormat, Mode, Operator, Process, Runtime, Settings};
use kyma_targets::{AccessPolicy, Limits, Target, Targets};
use testbed::{Access, Cluster, SharedTestEnv};

pub(crate) const SOON: Duration = Duration::from_secs(30);

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// Returns the cluster that is hub and target of most tests here.
pub(crate) async fn cluster() -> Result<Cluster> {
    TEST_ENV.cluster("cluster", testbed::ClusterBuilder::with_audit).await
}

/// Returns a target for this user, from an access Secret with this name.
pub(crate) fn target(name: &str, user: &Access) -> Result<Target> {
    let policy = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    let targets = Targets::new(policy, Limits::default(), "test/0.1.0", "test", 10);
    let mut secret = Secret::default();
    secret.metadata.namespace = Some("kcp-system".into());
    secret.metadata.name = Some(name.into());
    secret.data = Some([("config".to_owned(), ByteString(user.kubeconfig().into_bytes()))].into());
    targets.from_secret(&secret, "config").context("the access Secret")
}

/// Installs a CRD, and waits until its kind is served.
pub(crate) async fn serve(client: &Client, crd: &CustomResourceDefinition) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.patch(&crd.name_any(), &PatchParams::apply("test").force(), &Patch::Apply(crd)).await?;
    testbed::crd_is_served(client, &crd.name_any()).await
}

/// Connects an operator as administrator on this hub and namespace.
pub(crate) async fn runtime(hub: &Cluster, namespace: &str) -> Result<Runtime> {
    connect(hub.admin(), namespace, Mode::Fleet).await
}

/// Returns the settings of an operator in this hub namespace.
pub(crate) fn settings(namespace: &str, mode: Mode) -> Result<Settings> {
    Ok(Settings::resolve(Args {
        hub_namespace: namespace.to_owned(),
        target_namespace: "kyma-system".to_owned(),
        selector: String::new(),
        kubeconfig: None,
        concurrency: 2,
        resync: "24h".to_owned(),
        reconcile_deadline: "2m".to_owned(),
        log_format: LogFormat::Text,
        log_level: "info".to_owned(),
        admin_address: String::new(),
        mode,
        local_kyma: None,
        brake_targets: 10,
        brake_percent: 1,
        access: AccessArgs { allow_loopback_targets: true, ..AccessArgs::default() },
    })?)
}

/// Connects an operator as this user of the hub.
pub(crate) async fn connect(user: &Access, namespace: &str, mode: Mode) -> Result<Runtime> {
    let settings = settings(namespace, mode)?;
    serve(&user.client()?, &kyma_api::crds::pause()).await?;
    let operator = Operator { name: "test-operator", version: "0.1.0" };
    Ok(Runtime::connect(operator, settings, user.config()?, Process::new()?).await?)
}
