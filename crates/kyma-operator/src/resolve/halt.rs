//! Upgrades that a Pause stops.

use kyma_api::Reason;

use super::{Inputs, Install, InstalledModule, ModuleProblem};

/// Returns the problem if a Pause stops the upgrade to this version.
pub(super) fn halted(
    inputs: &Inputs<'_>,
    installed: &InstalledModule,
    install: &Install,
) -> Option<ModuleProblem> {
    let why = inputs.upgrades_halted.filter(|_| installed.wanted() != Some(install.version.as_str()))?;
    Some(ModuleProblem::warning(Reason::Paused, why))
}
