//! The time at which a process reports that it is ready.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::crds;
use kyma_controller::{
    Mode, NoFlags, Operator, Process, Program, Reconciler, RunError, Runtime, Wait, rbac, serve,
};
use testbed::until;
use tokio::sync::Notify;

use crate::{SOON, cluster, settings};

/// Reconciles ConfigMaps once it is notified.
struct Late(Arc<Notify>);

impl Program for Late {
    type Flags = NoFlags;

    const OPERATOR: Operator = Operator { name: "late", version: "0.1.0" };
    const ABOUT: &'static str = "For tests";

    fn crds() -> Vec<CustomResourceDefinition> {
        vec![]
    }

    fn rbac() -> rbac::Table {
        rbac::Table::default()
    }

    async fn run(self, _flags: NoFlags, runtime: Runtime) -> Result<(), RunError> {
        let reconciler = Reconciler::<ConfigMap>::new(&runtime);
        self.0.notified().await;
        reconciler.run(async |_, _| Ok(Wait::Event)).await;
        Ok(())
    }
}

#[tokio::test]
async fn a_process_is_not_ready_before_its_operator_reconciles() -> Result<()> {
    let cluster = cluster().await?;
    crate::serve(&cluster.client()?, &crds::pause()).await?;
    let settings = settings(&cluster.namespace("ready").await?, Mode::Fleet)?;
    let (process, go) = (Process::new()?, Arc::new(Notify::new()));
    let (health, late) = (process.health.clone(), Late(Arc::clone(&go)));
    let served = serve(late, NoFlags {}, settings, cluster.admin().config()?, process.clone());
    assert_eq!(health.missing(), ["late"]);
    let served = tokio::spawn(served);
    until("all but its reconciler is up", SOON, || async {
        Ok((health.missing() == ["ConfigMap", "late"]).then_some(()))
    })
    .await?;
    go.notify_one();
    until("it is ready", SOON, || async { Ok(health.missing().is_empty().then_some(())) }).await?;
    process.shutdown.cancel();
    Ok(served.await??)
}
