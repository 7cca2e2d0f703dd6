//! Upgrades with downtime, which wait for a maintenance window. First installations never wait (KLM 2.5).

use jiff::SignedDuration;
use kyma_api::{Reason, labels};

use super::{Decision, Inputs, Install, InstalledModule, ModuleProblem, UpgradeWait, keep_version, kept};
use crate::decision::maintenance::{Runtime, Window};

/// Returns the decision if the selected version may not be installed now.
pub(super) fn decide(
    inputs: &Inputs<'_>,
    installed: &InstalledModule,
    install: &Install,
) -> Option<Decision> {
    let needs_window = install.template.spec.requires_downtime == Some(true);
    if !needs_window || inputs.skips_windows || installed.requested_version() == Some(&*install.version) {
        return None;
    }
    let window = match window(inputs) {
        Ok(window) if window.is_open(inputs.now) => return None,
        Ok(window) => window,
        Err(why) => {
            let message = format!(
                "version {} of module {} needs a maintenance window, and none is known: {why}",
                install.version, install.release.module
            );
            let problem = ModuleProblem::error(Reason::MaintenanceWindowUnknown, message);
            return Some(keep_version(inputs, installed, install, problem));
        }
    };
    let wait = UpgradeWait::Window { version: install.version.clone(), window };
    Some(Decision::Await(kept(inputs, installed, install), wait))
}

fn window(inputs: &Inputs<'_>) -> Result<Window, String> {
    let label = |name: &str| inputs.labels.get(name).map(String::as_str).unwrap_or_default();
    let runtime = Runtime {
        global_account: label(labels::GLOBAL_ACCOUNT_ID),
        plan: label(labels::BROKER_PLAN_NAME),
        region: label(labels::REGION),
        platform_region: label(labels::PLATFORM_REGION),
    };
    let least = inputs.maintenance.least;
    let policy = inputs.maintenance.policy.as_ref().map_err(String::clone)?;
    policy.window(runtime, inputs.now, least).ok_or_else(|| none_left(least))
}

fn none_left(least: SignedDuration) -> String {
    format!("the maintenance policy has no window of more than {least:#} left for this Kyma")
}
