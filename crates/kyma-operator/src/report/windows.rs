//! The condition about maintenance windows.

use kyma_api::Reason;
use kyma_api::condition::{Condition, Status, types};

use crate::decision::maintenance::SkipSource;
use crate::decision::resolve::{Decision, ResolvedModule, UpgradeWait};

/// Reports whether the decision depends on the maintenance policy.
pub(crate) fn is_awaited(resolved: &ResolvedModule) -> bool {
    waits(resolved).is_some()
}

/// Returns the condition about upgrades that wait for a window, or about windows that are skipped; `None` if neither
/// applies.
pub(crate) fn condition(decided: &[ResolvedModule], skips: Option<SkipSource>) -> Option<Condition> {
    let waiting: Vec<(Reason, String)> = decided.iter().filter_map(waits).collect();
    let worst =
        waiting.iter().map(|(reason, _)| *reason).find(|reason| *reason != Reason::AwaitingMaintenanceWindow);
    if let Some((reason, _)) = waiting.first() {
        let message = waiting.iter().map(|(_, message)| message.as_str()).collect::<Vec<_>>().join("; ");
        let reason = worst.unwrap_or(*reason);
        return Some(Condition::new(types::MAINTENANCE_WINDOW, Status::False, reason).with_message(message));
    }
    let whose = match skips? {
        SkipSource::OnHub => "on the hub",
        SkipSource::OnTarget => "by the cluster's user",
    };
    let message = format!("no upgrade waits: skipMaintenanceWindows is set {whose}");
    let skipped = Condition::new(types::MAINTENANCE_WINDOW, Status::True, Reason::MaintenanceWindowSkipped);
    Some(skipped.with_message(message))
}

fn waits(resolved: &ResolvedModule) -> Option<(Reason, String)> {
    match &resolved.decision {
        Decision::Await(_, wait @ UpgradeWait::Window { .. }) => {
            Some((Reason::AwaitingMaintenanceWindow, format!("{}: {wait}", resolved.module)))
        }
        Decision::Keep(problem) | Decision::KeepVersion(_, problem)
            if problem.reason == Reason::MaintenanceWindowUnknown =>
        {
            Some((problem.reason, problem.message.clone()))
        }
        _ => None,
    }
}
