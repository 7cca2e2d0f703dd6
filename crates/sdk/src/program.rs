//! Commands of every operator's binary: `run`, `crd`, `rbac`, `reasons`, `metrics`, `version`. `main` is one call.

mod line;
mod serve;

use std::{future::Future, process::ExitCode};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::Reason;

use crate::{Metrics, MetricsError, Operator, Runtime, rbac};

pub use serve::{StartError, serve};

/// Any error that ends an operator; shown to the user who started it.
pub type RunError = Box<dyn std::error::Error + Send + Sync>;

/// An operator's program. For a component use [`crate::run_component`], which implements it.
pub trait Program: Send + Sized + 'static {
    /// Flags of its own, beyond [`crate::Args`]. [`NoFlags`] for none.
    type Flags: clap::Args + Send + 'static;

    /// Its name and version.
    const OPERATOR: Operator;

    /// One line for `--help`.
    const ABOUT: &'static str;

    /// Whether it works on components of any kind and so needs the rules that their roles aggregate. Default: no.
    const COLLECTS_COMPONENTS: bool = false;

    /// The CRDs that it owns, printed by `crd`.
    fn crds() -> Vec<CustomResourceDefinition>;

    /// The CRDs that must be on the hub, at least as new as these, before it starts, besides that of Pauses, which
    /// every operator obeys. Default: its own.
    fn needs() -> Vec<CustomResourceDefinition> {
        Self::crds()
    }

    /// Returns its RBAC table, printed by `rbac` as roles.
    fn rbac() -> rbac::Table;

    /// The reasons that it gives, printed by `reasons`. Default: all.
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

/// Runs the whole `main`: parses the command line and executes the command. Exit code 0: done, or stopped by SIGTERM
/// or Ctrl-C; 1: could not start or broke off; 2: wrong flags.
pub fn run_program<P: Program>(program: P) -> ExitCode {
    line::dispatch(program)
}
