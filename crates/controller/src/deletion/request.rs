//! Decides whether the deletion of an object removes what it manages. The garbage collector deletes an object whose
//! owners are gone, for example after a restore of the hub gave every owner a new uid.

use jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use kyma_api::annotations::DELETION_CONFIRMED;

/// Time that an unconfirmed deletion waits before it counts as [`DeletionRequest::Orphan`].
pub const DELETION_CONFIRMATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// The effect that the deletion of an object has on its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionRequest {
    /// The deletion was requested: the managed objects are removed.
    Confirmed,
    /// The garbage collector may have deleted the object, or the annotation has another value than `true` and
    /// `false`: nothing is removed until the user confirms.
    Unconfirmed {
        /// Time from which the deletion counts as [`Self::Orphan`].
        until: Timestamp,
    },
    /// All objects stay on the target.
    Orphan,
}

impl DeletionRequest {
    /// Returns the effect of a deletion, by ownerReferences and the annotation at the time `now`.
    ///
    /// ```
    /// use kyma_controller::DeletionRequest;
    /// use kube::api::ObjectMeta;
    ///
    /// let without_owner = ObjectMeta::default();
    /// assert_eq!(DeletionRequest::of(&without_owner, jiff::Timestamp::UNIX_EPOCH), DeletionRequest::Confirmed);
    /// ```
    pub fn of(meta: &ObjectMeta, now: Timestamp) -> Self {
        let answer = meta.annotations.as_ref().and_then(|set| set.get(DELETION_CONFIRMED));
        match answer.map(String::as_str) {
            Some("true") => return Self::Confirmed,
            Some("false") => return Self::Orphan,
            None if !may_be_garbage(meta) => return Self::Confirmed,
            _ => {}
        }
        let since = meta.deletion_timestamp.as_ref().map_or(now, |time| time.0);
        match since.checked_add(DELETION_CONFIRMATION_TIMEOUT) {
            Ok(until) if now < until => Self::Unconfirmed { until },
            _ => Self::Orphan,
        }
    }

    /// Returns the message for a deletion that waits for a confirmation.
    pub fn message(until: Timestamp) -> String {
        format!(
            "nothing is removed from the target, because the garbage collector may have deleted the object (it has \
             ownerReferences) or its annotation {DELETION_CONFIRMED} is neither \"true\" nor \"false\": set it to \"true\" \
             to remove everything, or to \"false\" to leave everything there, which happens automatically at {}",
            until.strftime("%FT%TZ")
        )
    }
}

/// Reports whether the garbage collector may delete the object: it has ownerReferences, and no annotation confirms
/// the deletion.
pub fn may_be_garbage(meta: &ObjectMeta) -> bool {
    let confirmed = meta.annotations.as_ref().and_then(|set| set.get(DELETION_CONFIRMED));
    meta.owner_references.as_ref().is_some_and(|owners| !owners.is_empty())
        && confirmed.is_none_or(|value| value != "true")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(is_owned: bool, answer: Option<&str>, minutes: i64) -> DeletionRequest {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "app", "uid": "u"});
        let meta = serde_json::from_value(json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": is_owned.then(|| vec![owner]),
            "annotations": answer.map(|answer| json!({DELETION_CONFIRMED: answer})),
        }));
        let now = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes);
        DeletionRequest::of(&meta.unwrap(), now)
    }

    #[test]
    fn deletion_of_an_owned_object_needs_a_confirmation() {
        let until = "2026-01-01T00:10:00Z".parse().unwrap();
        let rows = [
            (false, None, 0, DeletionRequest::Confirmed),
            (false, Some("false"), 0, DeletionRequest::Orphan),
            (false, Some("False"), 9, DeletionRequest::Unconfirmed { until }),
            (false, Some("False"), 10, DeletionRequest::Orphan),
            (true, None, 0, DeletionRequest::Unconfirmed { until }),
            (true, Some("yes"), 9, DeletionRequest::Unconfirmed { until }),
            (true, None, 10, DeletionRequest::Orphan),
            (true, Some("true"), 11, DeletionRequest::Confirmed),
            (true, Some("false"), 1, DeletionRequest::Orphan),
        ];
        for (owned, answer, minutes, expected) in rows {
            assert_eq!(request(owned, answer, minutes), expected, "{owned} {answer:?} {minutes}");
        }
    }
}
