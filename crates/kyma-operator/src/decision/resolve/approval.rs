//! Manual upgrades, which wait for an approval until their deadline.

use jiff::{SignedDuration, Timestamp};
use kyma_api::UpgradeMode;

use super::{Decision, Inputs, Install, InstalledModule, ModuleEntry, UpgradeWait, kept};

/// Returns the decision if the version needs approval. A pinned version is approved by its entry.
pub(super) fn decide(
    inputs: &Inputs<'_>,
    entry: &ModuleEntry,
    installed: &InstalledModule,
    install: &Install,
) -> Option<Decision> {
    let version = &install.version;
    let is_approved = entry.version.is_some() || entry.upgrade.approved.as_ref() == Some(version);
    let is_manual = entry.upgrade.mode == UpgradeMode::Manual;
    if !is_manual || is_approved || installed.requested_version() == Some(version) {
        return None;
    }
    // The deadline counts from the first version that waited: newer ones do not postpone it.
    let since = inputs.offered.get(&entry.name).copied().unwrap_or(inputs.now);
    let deadline = entry.upgrade.deadline_days.and_then(|days| after(since, days));
    if deadline.is_some_and(|deadline| deadline <= inputs.now) {
        return None;
    }
    let wait = UpgradeWait::Approval { version: version.clone(), since, deadline };
    Some(Decision::Await(kept(inputs, installed, install), wait))
}

fn after(since: Timestamp, days: i32) -> Option<Timestamp> {
    since.checked_add(SignedDuration::from_hours(24 * i64::from(days))).ok()
}
