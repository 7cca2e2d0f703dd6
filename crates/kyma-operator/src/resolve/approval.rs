//! A manual upgrade waits for a person, at most until its deadline.

use jiff::{SignedDuration, Timestamp};
use kyma_api::UpgradeMode;

use super::{Awaited, Decision, Inputs, Install, Installed, Wish, kept};

/// The decision where the chosen version is still to be approved. A pinned version was chosen by a person.
pub(super) fn decide(
    inputs: &Inputs<'_>,
    wish: &Wish,
    installed: &Installed,
    install: &Install,
) -> Option<Decision> {
    let version = &install.version;
    let is_approved = wish.version.is_some() || wish.upgrade.approved.as_ref() == Some(version);
    let is_manual = wish.upgrade.mode == UpgradeMode::Manual;
    if !is_manual || is_approved || installed.wanted() == Some(version) {
        return None;
    }
    // From the first version that had to wait on: newer ones do not put the end off.
    let since = inputs.offered.get(&wish.name).copied().unwrap_or(inputs.now);
    let deadline = wish.upgrade.deadline_days.and_then(|days| after(since, days));
    if deadline.is_some_and(|deadline| deadline <= inputs.now) {
        return None;
    }
    let awaited = Awaited::Approval { version: version.clone(), since, deadline };
    Some(Decision::Await(kept(inputs, installed, install), awaited))
}

fn after(since: Timestamp, days: i32) -> Option<Timestamp> {
    since.checked_add(SignedDuration::from_hours(24 * i64::from(days))).ok()
}
