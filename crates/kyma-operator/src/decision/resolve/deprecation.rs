//! Deprecated versions: installed ones stay, new installations are refused.

use jiff::Timestamp;
use kyma_api::Reason;

use super::{Decision, Inputs, Install, InstalledModule, ModuleProblem, keep_version};

/// Returns the decision if the module is installed and the selected version is deprecated.
pub(super) fn decide(
    inputs: &Inputs<'_>,
    installed: &InstalledModule,
    install: &Install,
) -> Option<Decision> {
    let problem = ModuleProblem::warning(Reason::VersionDeprecated, deprecated(inputs, install)?);
    Some(if installed.requested_version() == Some(&*install.version) {
        Decision::KeepVersion(install.clone(), problem)
    } else {
        keep_version(inputs, installed, install, problem)
    })
}

/// Returns the message about a deprecated version: its date and the suggested alternative.
pub(super) fn deprecated(inputs: &Inputs<'_>, install: &Install) -> Option<String> {
    let listed = install.release.find(&install.version)?;
    let date = listed.deprecation_date.filter(|date| *date <= inputs.now)?;
    let advice = listed.deprecation_message.as_deref().unwrap_or("choose another version");
    let (version, module) = (&install.version, &install.release.module);
    Some(format!("version {version} of module {module} is deprecated since {date}: {advice}"))
}

/// Returns when the selected version becomes deprecated.
pub(super) fn due(inputs: &Inputs<'_>, install: &Install) -> Option<Timestamp> {
    install.release.find(&install.version)?.deprecation_date.filter(|date| *date > inputs.now)
}
