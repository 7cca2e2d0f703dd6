//! Upgrades that a Pause stops.

use kyma_api::Reason;

use super::{Inputs, Install, InstalledModule, ModuleProblem};

/// Returns the problem if a Pause stops the upgrade to this version.
pub(super) fn check_upgrade(
    inputs: &Inputs<'_>,
    installed: &InstalledModule,
    install: &Install,
) -> Option<ModuleProblem> {
    let why =
        inputs.upgrades_paused.filter(|_| installed.requested_version() != Some(install.version.as_str()))?;
    Some(ModuleProblem::warning(Reason::Paused, why))
}
