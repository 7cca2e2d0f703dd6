//! What the end of a version's support changes: what runs stays, and nobody gets it anew.

use jiff::Timestamp;
use kyma_api::Reason;

use super::{Decision, Inputs, Install, Installed, ModuleProblem, keep_version};

/// The decision where a module is installed and the chosen version is deprecated by now.
pub(super) fn decide(inputs: &Inputs<'_>, installed: &Installed, install: &Install) -> Option<Decision> {
    let problem = ModuleProblem::warning(Reason::VersionDeprecated, deprecated(inputs, install)?);
    Some(if installed.wanted() == Some(&*install.version) {
        Decision::KeepVersion(install.clone(), problem)
    } else {
        keep_version(inputs, installed, install, problem)
    })
}

/// Since when the chosen version is deprecated, and what to do instead.
pub(super) fn deprecated(inputs: &Inputs<'_>, install: &Install) -> Option<String> {
    let listed = install.release.find(&install.version)?;
    let date = listed.deprecation_date.filter(|date| *date <= inputs.now)?;
    let advice = listed.deprecation_message.as_deref().unwrap_or("choose another version");
    let (version, module) = (&install.version, &install.release.module);
    Some(format!("version {version} of module {module} is deprecated since {date}: {advice}"))
}

/// When the chosen version will be deprecated.
pub(super) fn due(inputs: &Inputs<'_>, install: &Install) -> Option<Timestamp> {
    install.release.find(&install.version)?.deprecation_date.filter(|date| *date > inputs.now)
}
