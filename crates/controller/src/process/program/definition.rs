//! The description of an operator that its commands use.

use std::future::Future;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::Reason;

use crate::process::metrics::{Metrics, MetricsError};
use crate::process::runtime::{Operator, Runtime};
use crate::rbac;

/// Any error that ends an operator; shown to the user who started it.
pub type RunError = Box<dyn std::error::Error + Send + Sync>;

/// An operator's program. For a component `run_component` of the crate `kyma-sdk` implements it.
pub trait Program: Send + Sized + 'static {
    /// Flags of its own, beyond [`crate::Args`]. [`NoFlags`] for none.
    type Flags: clap::Args + Send + 'static;

    /// Its name and version.
    const OPERATOR: Operator;

    /// Description for `--help`, one line.
    const ABOUT: &'static str;

    /// Whether the operator accesses components of all kinds, and so needs their aggregated rules. Default: no.
    const COLLECTS_COMPONENTS: bool = false;

    /// Returns the CRDs that the operator owns, printed by `crd`.
    fn crds() -> Vec<CustomResourceDefinition>;

    /// Returns the CRDs that must be on the hub, in these versions or newer, before the operator starts, in addition to
    /// the CRD of Pauses. Default: its own.
    fn needs() -> Vec<CustomResourceDefinition> {
        Self::crds()
    }

    /// Returns its RBAC table, printed by `rbac` as roles.
    fn rbac() -> rbac::Table;

    /// Returns the reasons that the operator reports, printed by `reasons`. Default: all.
    fn reasons() -> Vec<Reason> {
        Reason::all().to_vec()
    }

    /// Registers metrics of its own, which `metrics` lists. Default: none.
    ///
    /// # Errors
    /// A metric of the same name is registered.
    fn metrics(_metrics: &Metrics) -> Result<(), MetricsError> {
        Ok(())
    }

    /// Reconciles until the process shuts down. The process is not ready before a [`crate::Reconciler`] runs.
    fn run(self, flags: Self::Flags, runtime: Runtime) -> impl Future<Output = Result<(), RunError>> + Send;
}

/// For programs without flags of their own.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct NoFlags {}
