//! The condition `ModuleCatalog`. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as metav1, Time};
use kyma_api::condition::{self, Condition, Status, types};
use kyma_api::{Kyma, Reason};
use kyma_controller::Failure;

use crate::copy::{Key, Kind};

/// Maximum number of names in a message.
const MAX_LISTED_COPIES: usize = 5;

/// Result of a reconcile.
#[derive(Debug)]
pub(crate) enum Outcome<'a> {
    /// The target is synchronized.
    Synced {
        /// Number of desired copies.
        desired: usize,
        /// Desired copies whose names other owners' objects have.
        taken: &'a [Key],
        /// Copies that stay because too much of the catalogue is missing.
        frozen: usize,
    },
    /// The copies are being removed.
    Removing(&'a str),
    /// The Kyma is being deleted, and live reads show no access Secret.
    AccessMissing(&'a Failure),
    /// The reconcile failed.
    Failed(&'a Failure),
}

/// Returns since when the access to the target of a deleted Kyma is missing. Only this case has the status Unknown,
/// so the condition's transition time is the beginning, also after a restart.
pub(crate) fn access_missing_since(condition: Option<&metav1::Condition>) -> Option<Timestamp> {
    let missing = condition.filter(|condition| condition.status == "Unknown")?;
    Some(missing.last_transition_time.0)
}

/// Returns the operator's condition on a Kyma.
pub(crate) fn own(kyma: &Kyma) -> Option<&metav1::Condition> {
    let conditions = kyma.status.as_ref()?.conditions.as_ref()?;
    condition::get(conditions, types::MODULE_CATALOG)
}

/// Returns the next condition, or `None` if it is unchanged.
pub(crate) fn next(
    before: Option<metav1::Condition>,
    outcome: &Outcome<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<metav1::Condition> {
    let mut conditions: Vec<metav1::Condition> = before.into_iter().collect();
    // API objects store whole seconds.
    let now = now.round(jiff::Unit::Second).unwrap_or(now);
    let changed = condition::set(&mut conditions, &module_catalog(outcome), generation, &Time(now));
    conditions.pop().filter(|_| changed)
}

/// Returns the condition for the outcome.
fn module_catalog(outcome: &Outcome<'_>) -> Condition {
    let (status, reason, message) = match outcome {
        Outcome::Synced { frozen, .. } if *frozen > 0 => (
            Status::False,
            Reason::PruneGuard,
            format!(
                "so much of the hub's catalogue is missing that {frozen} copies on the target are not changed: publish \
                 it again; to remove copies, delete their objects on the hub while release-meta-syncer runs"
            ),
        ),
        // Without a number, which would change the message on every Kyma for each published module.
        Outcome::Synced { taken: [], .. } => {
            (Status::True, Reason::CatalogSynced, "the catalogue is up to date".to_owned())
        }
        Outcome::Synced { desired, taken, .. } => {
            let message = format!(
                "{} of {desired} objects are up to date; not changed, because others created them: {}",
                desired - taken.len(),
                list(taken)
            );
            (Status::True, Reason::CatalogSynced, message)
        }
        Outcome::Removing(message) => (Status::False, Reason::Deleting, (*message).to_owned()),
        Outcome::AccessMissing(failure) => (Status::Unknown, failure.reason, failure.message.clone()),
        Outcome::Failed(failure) => (Status::False, failure.reason, failure.message.clone()),
    };
    Condition::new(types::MODULE_CATALOG, status, reason).with_message(message)
}

fn list(keys: &[Key]) -> String {
    let named: Vec<String> = keys.iter().take(MAX_LISTED_COPIES).map(ToString::to_string).collect();
    let more = keys.len().saturating_sub(MAX_LISTED_COPIES);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &rest
}

/// Returns the message about copies that are still being deleted.
pub(crate) fn removal_message(remaining: &[Key]) -> String {
    format!("waiting until {} are deleted from the target", list(remaining))
}

/// Returns the message about a CRD that stays because users have objects of its kind.
pub(crate) fn crd_kept_message(kind: Kind) -> String {
    format!("the target keeps the CRD of {}, because users have objects of that kind", kind.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn synced(taken: &[Key]) -> Outcome<'_> {
        Outcome::Synced { desired: 7, taken, frozen: 0 }
    }

    #[test]
    fn the_same_outcome_again_is_not_written_again() {
        let first = next(None, &synced(&[]), Some(1), at(1)).unwrap();
        assert_eq!((first.status.as_str(), first.reason.as_str()), ("True", "CatalogSynced"));
        assert_eq!(next(Some(first), &synced(&[]), Some(1), at(2)), None);
    }

    #[test]
    fn the_wait_for_a_cluster_that_is_gone_survives_a_restart() {
        let awaiting = Failure::new(Reason::AwaitingAccess, "no access Secret");
        let before = next(None, &Outcome::Failed(&awaiting), None, at(1));
        assert_eq!(access_missing_since(before.as_ref()), None, "before the deletion");
        let first = next(before, &Outcome::AccessMissing(&awaiting), None, at(100));
        assert_eq!(access_missing_since(first.as_ref()), Some(at(100)));
        assert_eq!(next(first.clone(), &Outcome::AccessMissing(&awaiting), None, at(200)), None);
        let back = next(first, &Outcome::Removing("going"), None, at(300));
        assert_eq!(access_missing_since(back.as_ref()), None);
    }

    #[test]
    fn what_was_left_alone_is_named_up_to_a_bound() {
        let taken: Vec<Key> = (0..7).map(|n| Key { kind: Kind::Release, name: format!("m{n}") }).collect();
        let message = next(None, &synced(&taken), None, at(1)).unwrap().message;
        assert!(message.starts_with("0 of 7 objects"), "{message}");
        assert!(message.ends_with("ModuleReleaseMeta m4 and 2 more"), "{message}");
    }

    #[test]
    fn empty_hub_is_reported_as_guard_and_failure_by_its_message() {
        let frozen = Outcome::Synced { desired: 0, taken: &[], frozen: 3 };
        assert_eq!(next(None, &frozen, None, at(1)).unwrap().reason, "PruneGuard");
        let failure = Failure::new(Reason::TargetTimeout, "silent");
        let failed = next(None, &Outcome::Failed(&failure), None, at(1)).unwrap();
        assert_eq!((failed.reason.as_str(), failed.message.as_str()), ("TargetTimeout", "silent"));
    }
}
