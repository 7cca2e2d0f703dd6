//! release-meta-syncer as a program: name, flags and requirements.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::{Reason, crds};
use kyma_controller::{Operator, Program, RunError, Runtime, rbac::Table};

use crate::args::Flags;
use crate::names::FIELD_MANAGER;
use crate::{controller, rbac};

/// The release-meta-syncer program.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReleaseMetaSyncer;

impl Program for ReleaseMetaSyncer {
    type Flags = Flags;

    const OPERATOR: Operator = Operator { name: FIELD_MANAGER, version: env!("CARGO_PKG_VERSION") };

    const ABOUT: &'static str = "Copies the module catalogue to the clusters whose users choose from it";

    fn crds() -> Vec<CustomResourceDefinition> {
        vec![]
    }

    fn needs() -> Vec<CustomResourceDefinition> {
        vec![crds::kyma(), crds::module_template(), crds::module_release_meta()]
    }

    fn rbac() -> Table {
        rbac::table()
    }

    fn reasons() -> Vec<Reason> {
        Reason::all().to_vec()
    }

    async fn run(self, flags: Flags, runtime: Runtime) -> Result<(), RunError> {
        Box::pin(controller::run(&flags, runtime)).await;
        Ok(())
    }
}
