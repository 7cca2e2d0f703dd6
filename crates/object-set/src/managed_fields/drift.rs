//! Detects changes of applied objects by other managers, from `metadata` alone.
//!
//! The API server records, per field manager, the fields that the manager applied. A write of another manager to one
//! of these fields removes it from the operator's entry; writes to status or other fields leave the entry unchanged.
//! So a hash of the entry, recorded after each apply, reveals drift in a metadata-only watch.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use super::entries::applied_entry;
use super::field_set;
use crate::inventory::Entry;
use crate::object::hash_value;
use crate::ownership::SHARED;

/// State of a live object from a watch or a GET, reduced to the fields that decisions need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedObject {
    /// `metadata.uid`.
    pub uid: String,
    /// Hash of the operator's managedFields entry, 16 hex digits; empty if it has none.
    pub fingerprint: String,
    /// The same hash as if the object had not been scaled; `None` if it was not, or if scaling took no applied field.
    pub unscaled: Option<String>,
    /// Whether a deletion is under way.
    pub deleting: bool,
    /// Value of the owner label (`component.kyma-project.io/owner`).
    pub owner: Option<String>,
    /// Whether the operator's field manager applied that label.
    pub marked: bool,
}

impl ObservedObject {
    /// Reduces metadata to the fields that decisions need.
    pub fn from_metadata(metadata: &ObjectMeta, manager: &str, owner_label: &str) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            fingerprint: fingerprint(metadata, manager),
            unscaled: unscaled(metadata, manager),
            deleting: metadata.deletion_timestamp.is_some(),
            owner: metadata.labels.as_ref().and_then(|labels| labels.get(owner_label)).cloned(),
            marked: applied_entry(metadata, manager).is_some_and(|entry| marks(entry, owner_label)),
        }
    }

    /// Reports whether another owner of this operator took it. Other writes to the label count as ordinary changes.
    fn is_taken_from(&self, us: &str) -> bool {
        self.marked && self.owner.as_deref().is_some_and(|owner| owner != us && owner != SHARED)
    }
}

/// Returns the hash of the fields that a manager applied and of those that others took from it by scaling.
fn unscaled(metadata: &ObjectMeta, manager: &str) -> Option<String> {
    let taken = field_set::scaled(metadata, manager)?;
    let ours = &applied_entry(metadata, manager)?.fields_v1.as_ref()?.0;
    let mut whole = ours.clone();
    field_set::union(&mut whole, &taken);
    (whole != *ours).then(|| hash_value(&whole))
}

fn marks(entry: &ManagedFieldsEntry, label: &str) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    let labels = fields.and_then(|fields| fields.get("f:metadata")?.get("f:labels"));
    labels.is_some_and(|labels| labels.get(format!("f:{label}")).is_some())
}

/// Returns the hash of the fields that a manager applied: 16 hex digits, empty if it applied none. Depends only on
/// the fields, not on times or the API version in which they were written.
pub fn fingerprint(metadata: &ObjectMeta, manager: &str) -> String {
    applied_entry(metadata, manager)
        .and_then(|entry| entry.fields_v1.as_ref())
        .map_or_else(String::new, |fields| hash_value(&fields.0))
}

/// Returns the value of an annotation if a field manager applied it and no other manager changed it since.
pub fn applied_annotation<'a>(metadata: &'a ObjectMeta, manager: &str, name: &str) -> Option<&'a str> {
    let fields = &applied_entry(metadata, manager)?.fields_v1.as_ref()?.0;
    fields.get("f:metadata")?.get("f:annotations")?.get(format!("f:{name}"))?;
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Difference between an applied object and its live state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// The operator still owns all fields that it applied.
    Unchanged,
    /// Another manager changed or took an applied field.
    Changed,
    /// The object does not exist.
    Gone,
    /// An object of that name exists, but it is another one (its uid differs).
    Recreated,
    /// The object is being deleted; it can be applied again once it is gone.
    Deleting,
    /// Another owner of this operator took it.
    Taken,
}

/// Compares an inventory entry with the live object (`None`: absent); `us` is the owner of the entry.
pub fn compare(recorded: &Entry, observed: Option<&ObservedObject>, us: &str) -> Drift {
    match observed {
        None if recorded.finished => Drift::Unchanged,
        None => Drift::Gone,
        Some(observed) if observed.uid != recorded.uid => Drift::Recreated,
        Some(observed) if observed.deleting => Drift::Deleting,
        // Drift of it is ignored: another owner has it, or it is created once and never updated.
        Some(_) if recorded.fingerprint.is_empty() => Drift::Unchanged,
        Some(observed) if observed.is_taken_from(us) => Drift::Taken,
        Some(observed) if observed.fingerprint == recorded.fingerprint => Drift::Unchanged,
        // An autoscaler or `kubectl scale` owns the replicas of an object that it scales.
        Some(observed) if observed.unscaled.as_ref() == Some(&recorded.fingerprint) => Drift::Unchanged,
        Some(_) => Drift::Changed,
    }
}

/// Counts corrections of drift of one object, to detect two managers that overwrite each other endlessly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flaps {
    /// Unix seconds of the last corrections, oldest first, never more than the limit.
    corrections: Vec<i64>,
}

/// Limit of corrections, beyond which two managers count as conflicting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlapLimit {
    /// Maximum number of corrections in the period.
    pub corrections: usize,
    /// Period in which they are counted, in seconds.
    pub seconds: i64,
}

impl Default for FlapLimit {
    /// 10 corrections within 10 minutes.
    fn default() -> Self {
        Self { corrections: 10, seconds: 600 }
    }
}

impl Flaps {
    /// Records a correction at `now` (Unix seconds).
    pub fn corrected(&mut self, now: i64, limit: FlapLimit) {
        self.corrections.push(now);
        let surplus = self.corrections.len().saturating_sub(limit.corrections.max(1));
        self.corrections.drain(..surplus);
    }

    /// Reports whether corrections have to stop: the limit was reached within its period.
    pub fn fighting(&self, now: i64, limit: FlapLimit) -> bool {
        self.corrections.len() >= limit.corrections.max(1)
            && self.corrections.first().is_some_and(|oldest| now - oldest < limit.seconds)
    }

    /// Returns the time (Unix seconds) from which corrections are allowed again; `None` if they are allowed now.
    pub fn allowed_again(&self, now: i64, limit: FlapLimit) -> Option<i64> {
        self.fighting(now, limit)
            .then(|| self.corrections.first().map_or(now, |oldest| oldest + limit.seconds))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
    use serde_json::json;

    use super::*;

    fn entry(
        manager: &str,
        operation: &str,
        subresource: Option<&str>,
        fields: serde_json::Value,
    ) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.into()),
            operation: Some(operation.into()),
            subresource: subresource.map(Into::into),
            fields_v1: Some(FieldsV1(fields)),
            ..Default::default()
        }
    }

    fn metadata(entries: Vec<ManagedFieldsEntry>) -> ObjectMeta {
        ObjectMeta { uid: Some("u".into()), managed_fields: Some(entries), ..Default::default() }
    }

    #[test]
    fn only_our_own_applies_count() {
        let ours = json!({"f:spec": {"f:a": {}}});
        let alone = fingerprint(&metadata(vec![entry("us", "Apply", None, ours.clone())]), "us");
        let among_others = metadata(vec![
            entry("us", "Update", None, json!({"f:x": {}})),
            entry("us", "Apply", Some("status"), json!({"f:status": {}})),
            entry("them", "Apply", None, json!({"f:y": {}})),
            entry("us", "Apply", None, ours),
        ]);
        assert_eq!(fingerprint(&among_others, "us"), alone);
        assert_eq!(alone.len(), 16);
        assert_eq!(fingerprint(&metadata(vec![]), "us"), "");
    }

    #[test]
    fn an_annotation_counts_while_it_is_the_managers() {
        let with = |manager: &str| {
            let fields = json!({"f:metadata": {"f:annotations": {"f:v": {}}}});
            let annotations = [("v".to_owned(), "1".to_owned())].into();
            ObjectMeta {
                annotations: Some(annotations),
                ..metadata(vec![entry(manager, "Apply", None, fields)])
            }
        };
        assert_eq!(applied_annotation(&with("us"), "us", "v"), Some("1"));
        assert_eq!(applied_annotation(&with("them"), "us", "v"), None);
        assert_eq!(applied_annotation(&with("us"), "us", "w"), None);
    }

    #[test]
    fn compare_distinguishes_all_kinds_of_drift() {
        let recorded = Entry { uid: "u".into(), fingerprint: "f".into(), ..Default::default() };
        let finished = Entry { finished: true, ..recorded.clone() };
        assert_eq!(compare(&finished, None, "us"), Drift::Unchanged, "it went by itself");
        let observed = |uid: &str, fingerprint: &str, deleting| ObservedObject {
            uid: uid.into(),
            fingerprint: fingerprint.into(),
            deleting,
            ..ObservedObject::default()
        };
        let compare = |observed: Option<&ObservedObject>| compare(&recorded, observed, "us");
        assert_eq!(compare(None), Drift::Gone);
        assert_eq!(compare(Some(&observed("v", "f", false))), Drift::Recreated);
        assert_eq!(compare(Some(&observed("u", "f", true))), Drift::Deleting);
        assert_eq!(compare(Some(&observed("u", "f", false))), Drift::Unchanged);
        assert_eq!(compare(Some(&observed("u", "", false))), Drift::Changed);
    }

    #[test]
    fn scaling_is_no_drift_but_other_changes_are() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let (whole, rest) =
            (json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}), json!({"f:spec": {"f:paused": {}}}));
        let observed = |ours: &serde_json::Value, subresource: Option<&str>| {
            let them = entry("them", "Update", subresource, replicas.clone());
            ObservedObject::from_metadata(
                &metadata(vec![entry("us", "Apply", None, ours.clone()), them]),
                "us",
                "l",
            )
        };
        let applied = fingerprint(&metadata(vec![entry("us", "Apply", None, whole)]), "us");
        let recorded = Entry { uid: "u".into(), fingerprint: applied, ..Entry::default() };
        let drift = |observed: &ObservedObject| compare(&recorded, Some(observed), "us");
        assert_eq!(drift(&observed(&rest, Some("scale"))), Drift::Unchanged);
        assert_eq!(drift(&observed(&rest, None)), Drift::Changed, "an edit of the object itself");
        assert_eq!(drift(&observed(&json!({"f:spec": {}}), Some("scale"))), Drift::Changed, "more was taken");
        let without = Entry { fingerprint: observed(&rest, None).fingerprint, ..recorded.clone() };
        assert_eq!(compare(&without, Some(&observed(&rest, Some("scale"))), "us"), Drift::Unchanged);
    }

    #[test]
    fn object_marked_by_own_manager_for_another_owner_is_taken() {
        let labelled = |owner: &str, manager: &str| {
            let fields = json!({"f:metadata": {"f:labels": {"f:l": {}}}});
            let mut found = metadata(vec![entry(manager, "Apply", None, fields)]);
            found.labels = Some([("l".to_owned(), owner.to_owned())].into());
            ObservedObject::from_metadata(&found, "m", "l")
        };
        let recorded =
            Entry { uid: "u".into(), fingerprint: labelled("us", "m").fingerprint, ..Entry::default() };
        assert_eq!(compare(&recorded, Some(&labelled("us", "m")), "us"), Drift::Unchanged);
        assert_eq!(compare(&recorded, Some(&labelled("them", "m")), "us"), Drift::Taken);
        assert_eq!(compare(&recorded, Some(&labelled("them", "kubectl")), "us"), Drift::Changed);
        assert_eq!(compare(&recorded, Some(&labelled(SHARED, "m")), "us"), Drift::Unchanged);
        let inherited = Entry { fingerprint: String::new(), ..recorded };
        assert_eq!(compare(&inherited, Some(&labelled("them", "m")), "us"), Drift::Unchanged);
    }

    #[test]
    fn a_fight_stops_after_the_limit_and_may_resume_later() {
        let limit = FlapLimit { corrections: 3, seconds: 60 };
        let mut flaps = Flaps::default();
        for now in [0, 10, 20] {
            assert!(!flaps.fighting(now, limit));
            flaps.corrected(now, limit);
        }
        assert!(flaps.fighting(21, limit));
        assert_eq!(flaps.allowed_again(21, limit), Some(60));
        assert!(!flaps.fighting(60, limit));
        flaps.corrected(60, limit);
        assert!(flaps.fighting(61, limit), "10, 20 and 60 lie within a minute");
    }
}
