//! Upgrades that a Pause stops.

use kyma_api::Reason;

use super::{Inputs, Install, Installed, ModuleProblem};

/// Why another version is not installed over what there is, where a Pause says so.
pub(super) fn halted(inputs: &Inputs<'_>, installed: &Installed, install: &Install) -> Option<ModuleProblem> {
    let why = inputs.upgrades_halted.filter(|_| installed.wanted() != Some(install.version.as_str()))?;
    Some(ModuleProblem::warning(Reason::Paused, why))
}
