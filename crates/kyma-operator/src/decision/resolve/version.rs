//! Upgrade check by semantic versioning, against the running version.

use std::cmp::Ordering;

use kyma_api::Reason;
use semver::Version;

use super::{Install, InstalledModule, ModuleProblem};

/// Compares two versions by precedence, without build metadata. Returns `None` if one is not a version.
pub(crate) fn compare(a: &str, b: &str) -> Option<Ordering> {
    let (a, b) = (Version::parse(a).ok()?, Version::parse(b).ok()?);
    Some(a.cmp_precedence(&b))
}

/// Returns the problem if the version must not replace the installed one: it is lower, or cannot be compared.
pub(super) fn check_upgrade(installed: &InstalledModule, install: &Install) -> Option<ModuleProblem> {
    let Some(running) = installed.version() else {
        let message = format!(
            "the running version of module {} is unknown: nothing is changed until its component reports one",
            install.release.module
        );
        return Some(ModuleProblem::warning(Reason::VersionUnknown, message));
    };
    if running == install.version {
        return None;
    }
    match compare(&install.version, running) {
        None => {
            let message = format!("versions {running} and {} cannot be compared", install.version);
            Some(ModuleProblem::warning(Reason::VersionUnknown, message))
        }
        Some(Ordering::Less) => Some(refused(installed, install, running)),
        Some(_) => None,
    }
}

/// Returns the problem about a downgrade, in KLM's words, which its users search for.
fn refused(installed: &InstalledModule, install: &Install, running: &str) -> ModuleProblem {
    let message = match (&installed.channel, &install.channel) {
        (Some(from), Some(to)) if from != to => format!(
            "module template update not allowed: ignore channel skew (from {from} to {to}), as a higher version \
             ({running}) of the module was previously installed"
        ),
        _ => format!(
            "module template update not allowed: version {} is lower than the installed version {running}",
            install.version
        ),
    };
    ModuleProblem::warning(Reason::DowngradeRefused, message)
}
