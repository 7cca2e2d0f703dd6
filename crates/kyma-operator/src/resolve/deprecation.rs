//! What the end of a version's support changes: what runs stays, and nobody gets it anew.

use jiff::Timestamp;
use kyma_api::Reason;

use super::{Because, Decision, Inputs, Install, Installed, keep_version};

/// The decision where the chosen version is deprecated by now.
pub(super) fn decide(
    inputs: &Inputs<'_>,
    installed: Option<&Installed>,
    install: &Install,
) -> Option<Decision> {
    let date = date_of(install).filter(|date| *date <= inputs.now)?;
    let listed = install.release.find(&install.version);
    let advice = listed.and_then(|listed| listed.deprecation_message.as_deref());
    let message = format!(
        "version {} of module {} is deprecated since {date}: {}",
        install.version,
        install.release.module,
        advice.unwrap_or("choose another version")
    );
    let Some(installed) = installed else {
        return Some(Decision::Refuse(Because::error(Reason::VersionDeprecated, message)));
    };
    let because = Because::warning(Reason::VersionDeprecated, message);
    let is_ordered = installed.ordered.as_deref().or(installed.version()) == Some(&*install.version);
    Some(if is_ordered {
        Decision::KeepVersion(install.clone(), because)
    } else {
        keep_version(inputs, installed, install, because)
    })
}

/// When the chosen version will be deprecated.
pub(super) fn due(inputs: &Inputs<'_>, install: &Install) -> Option<Timestamp> {
    date_of(install).filter(|date| *date > inputs.now)
}

fn date_of(install: &Install) -> Option<Timestamp> {
    install.release.find(&install.version)?.deprecation_date
}
