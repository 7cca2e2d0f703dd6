//! Releases with a staged rollout, which this version does not implement: the installed version stays.

use kyma_api::Reason;

use super::{Install, InstalledModule, ModuleEntry, ModuleProblem};

/// Returns the problem if a staged rollout stops the upgrade to this version. A version that the user pinned is
/// installed.
pub(super) fn check_upgrade(
    entry: &ModuleEntry,
    installed: &InstalledModule,
    install: &Install,
) -> Option<ModuleProblem> {
    let is_other = installed.requested_version() != Some(install.version.as_str());
    (install.release.rollout && is_other && entry.version.is_none()).then(|| not_supported(install))
}

/// Returns the problem about a version of a staged rollout.
pub(super) fn not_supported(install: &Install) -> ModuleProblem {
    let (module, version) = (&install.release.module, &install.version);
    let message = format!(
        "version {version} of module {module} is not installed: spec.rollout of its ModuleReleaseMeta \
         requests a staged rollout, which is not supported yet; remove spec.rollout to upgrade all clusters at once"
    );
    ModuleProblem::warning(Reason::NotYetSupported, message)
}
