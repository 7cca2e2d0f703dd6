//! Input of a run for one Kyma.

use std::time::Duration;

use kube::Config;
use kyma_controller::{Process, Settings};

use super::component::{ComponentProgram, ProgramKubeconfig};
use super::input::RunInput;
use super::operators::Flags;

/// A run for one Kyma.
pub(super) struct KymaRun {
    pub(super) input: RunInput,
    /// Operators of component kinds that kymactl does not reconcile itself.
    pub(super) programs: Vec<ComponentProgram>,
    pub(super) program_kubeconfig: ProgramKubeconfig,
    /// Longest time until the modules are Ready, or removed.
    pub(super) timeout: Duration,
    /// Whether other Kymas may exist in the namespace.
    pub(super) allow_other_kymas: bool,
    pub(super) flags: Flags,
    pub(super) settings: Settings,
    pub(super) config: Config,
    pub(super) process: Process,
}
