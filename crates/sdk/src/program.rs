//! What every operator's binary does: `run`, `crd`, `rbac`, `reasons`, `metrics`, `version`. `main` is one call.

mod line;
mod serve;

use std::{future::Future, process::ExitCode};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::Reason;

use crate::{Metrics, MetricsError, Operator, Runtime, rbac};

pub use serve::{StartError, serve};

/// What may end an operator: any error, told to the person who started it.
pub type RunError = Box<dyn std::error::Error + Send + Sync>;

/// An operator's program. For a component use [`crate::run_component`], which implements it.
pub trait Program: Send + Sized + 'static {
    /// Flags of its own, beyond [`crate::Args`]. [`NoFlags`] for none.
    type Flags: clap::Args + Send + 'static;

    /// Its name and version.
    const OPERATOR: Operator;

    /// One line for `--help`.
    const ABOUT: &'static str;

    /// Whether it works on components of any kind, so that it needs what their roles aggregate. Default: no.
    const COLLECTS_COMPONENTS: bool = false;

    /// The CRDs that it owns, printed by `crd`.
    fn crds() -> Vec<CustomResourceDefinition>;

    /// The CRDs that must be on the hub, at least as new as these, before it starts, besides that of Pauses, which
    /// every operator obeys. Default: its own.
    fn needs() -> Vec<CustomResourceDefinition> {
        Self::crds()
    }

    /// Everything that it may do, printed by `rbac` as roles.
    fn rbac() -> rbac::Table;

    /// The reasons that it gives, printed by `reasons`. Default: all.
    fn reasons() -> Vec<Reason> {
        Reason::all().to_vec()
    }

    /// Registers what it counts beside what every operator does, as `run` does; for `metrics`. Default: nothing.
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

/// The whole of `main`: reads the command line and does what it says. Exit code 0: done, or stopped by SIGTERM or
/// Ctrl-C; 1: could not start or broke off; 2: wrong flags.
pub fn run_program<P: Program>(program: P) -> ExitCode {
    line::dispatch(program)
}
