//! kyma-operator as a program, for its binary and `kymactl run`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::crds;
use kyma_controller::rbac::Table;
use kyma_controller::{Metrics, MetricsError, Operator, Program, RunError, Runtime};

use crate::process::args::KymaArgs;
use crate::process::metrics::KymaMetrics;
use crate::{controller, process::rbac};

/// The kyma-operator program.
#[derive(Debug, Clone, Copy, Default)]
pub struct KymaOperator;

impl Program for KymaOperator {
    type Flags = KymaArgs;

    const OPERATOR: Operator = Operator { name: crate::FIELD_MANAGER, version: env!("CARGO_PKG_VERSION") };
    const COLLECTS_COMPONENTS: bool = true;
    const ABOUT: &'static str = "Turns Kymas on the hub into components, and their state back into status";

    fn crds() -> Vec<CustomResourceDefinition> {
        vec![
            crds::kyma(),
            crds::module_template(),
            crds::module_release_meta(),
            crds::module_config(),
            crds::pause(),
        ]
    }

    fn needs() -> Vec<CustomResourceDefinition> {
        vec![crds::kyma(), crds::module_template(), crds::module_release_meta(), crds::module_config()]
    }

    fn rbac() -> Table {
        rbac::table()
    }

    fn metrics(metrics: &Metrics) -> Result<(), MetricsError> {
        KymaMetrics::new(metrics, true).map(drop)
    }

    async fn run(self, flags: KymaArgs, runtime: Runtime) -> Result<(), RunError> {
        Ok(Box::pin(controller::run(flags, runtime)).await?)
    }
}
