//! Parts of the driver on real control planes, and with faults that those do not produce.

// Clippy allows this only in test functions, not in their helpers.
#![allow(clippy::unwrap_used)]

mod ended;
mod vanished;

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use kyma_controller::{Mode, Operator, Process, Runtime, Settings};
use kyma_targets::AccessPolicy;
use testbed::{Access, Cluster, SharedTestEnv};

pub(crate) const SOON: Duration = Duration::from_secs(30);

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// Returns the cluster that is hub and target of the tests.
pub(crate) async fn cluster() -> Result<Cluster> {
    TEST_ENV.cluster("cluster", testbed::ClusterBuilder::with_audit).await
}

/// Installs a CRD, and waits until its kind is served.
pub(crate) async fn serve(client: &Client, crd: &CustomResourceDefinition) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.patch(&crd.name_any(), &PatchParams::apply("test").force(), &Patch::Apply(crd)).await?;
    testbed::crd_is_served(client, &crd.name_any()).await
}

/// Connects an operator as this user of the hub.
pub(crate) async fn connect(user: &Access, namespace: &str, mode: Mode) -> Result<Runtime> {
    let access = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    let settings =
        Settings { concurrency: 2, mode, access, ..Settings::for_command(namespace, "kyma-system") };
    serve(&user.client()?, &kyma_api::crds::pause()).await?;
    let operator = Operator { name: "test-operator", version: "0.1.0" };
    Ok(Runtime::connect(operator, settings, user.config()?, Process::new()?).await?)
}
