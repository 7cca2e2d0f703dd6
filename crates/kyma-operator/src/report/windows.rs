//! What maintenance windows have to do with a Kyma, in one condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::Reason;
use kyma_api::condition::{self, Status, Wanted, types};

use super::{Facts, time};
use crate::maintenance::Skips;
use crate::resolve::{Decision, Resolved};

/// The condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) status: Status,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Told {
    /// Puts it among the conditions.
    pub(super) fn put(&self, conditions: &mut Vec<Condition>, facts: &Facts<'_>) {
        let wanted = Wanted {
            type_: types::MAINTENANCE_WINDOW,
            status: self.status,
            reason: self.reason,
            message: &self.message,
            observed_generation: facts.generation,
        };
        condition::set(conditions, &wanted, &time(facts.now));
    }
}

/// Whether the decision rests on what the maintenance policy says.
pub(crate) fn is_awaited(resolved: &Resolved) -> bool {
    waits(resolved).is_some()
}

/// What waits for a window, or who said that nothing does; none where neither is so.
pub(crate) fn told(decided: &[Resolved], skips: Option<Skips>) -> Option<Told> {
    let waiting: Vec<(Reason, String)> = decided.iter().filter_map(waits).collect();
    let worst =
        waiting.iter().map(|(reason, _)| *reason).find(|reason| *reason != Reason::AwaitingMaintenanceWindow);
    if let Some((reason, _)) = waiting.first() {
        let message = waiting.iter().map(|(_, message)| message.as_str()).collect::<Vec<_>>().join("; ");
        return Some(Told { status: Status::False, reason: worst.unwrap_or(*reason), message });
    }
    let whose = match skips? {
        Skips::OnHub => "on the hub",
        Skips::OnTarget => "by the cluster's user",
    };
    let message = format!("no upgrade waits: skipMaintenanceWindows is set {whose}");
    Some(Told { status: Status::True, reason: Reason::MaintenanceWindowSkipped, message })
}

fn waits(resolved: &Resolved) -> Option<(Reason, String)> {
    match &resolved.decision {
        Decision::Await(_, awaited) => {
            Some((Reason::AwaitingMaintenanceWindow, format!("{}: {awaited}", resolved.module)))
        }
        Decision::Keep(because) | Decision::KeepVersion(_, because)
            if because.reason == Reason::MaintenanceWindowUnknown =>
        {
            Some((because.reason, because.message.clone()))
        }
        _ => None,
    }
}
