//! Decides which operators act on a Kyma: these, or Kyma Lifecycle Manager (KLM), which may run on the same hub.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use crate::{klm, metadata::labels};

/// The operators that act on a Kyma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The operators of this project.
    Operators,
    /// KLM wrote its status, and it was not handed over: these operators write neither to it nor to its target.
    Klm,
    /// A hand-over in either direction is in progress: no operator acts.
    HandOver,
    /// The label `skip-reconciliation` stops all operators.
    None,
}

impl Actor {
    /// Reports whether these operators ignore the Kyma, including its deletion.
    pub const fn excludes_operators(self) -> bool {
        matches!(self, Self::Klm | Self::HandOver)
    }
}

/// Returns the operators that act on the Kyma with this metadata.
///
/// KLM honours `skip-reconciliation` and does not know the hand-over label. A Kyma that was handed over has both, and
/// the first one then applies to KLM only. Without a hand-over, fields of the status that KLM owns identify a Kyma of
/// KLM.
pub fn actor(kyma: &ObjectMeta) -> Actor {
    let label = |name: &str| kyma.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    match label(labels::HAND_OVER) {
        Some(labels::HAND_OVER_DONE) => Actor::Operators,
        // An unknown value permits nothing.
        Some(_) => Actor::HandOver,
        None if klm_entry(kyma).is_some() => Actor::Klm,
        None if label(labels::SKIP_RECONCILIATION) == Some("true") => Actor::None,
        None => Actor::Operators,
    }
}

/// Returns KLM's `managedFields` entry of a Kyma's status.
pub fn klm_entry(kyma: &ObjectMeta) -> Option<&ManagedFieldsEntry> {
    kyma.managed_fields.iter().flatten().find(|entry| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        entry.subresource.as_deref() == Some("status") && klm::STATUS_MANAGERS.contains(&manager)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Labels, whether KLM wrote the status, and the expected actor.
    type Case<'a> = (&'a [(&'a str, &'a str)], bool, Actor);

    #[test]
    fn only_one_of_both_acts_on_a_kyma() {
        let (skip, done, pending) = (
            (labels::SKIP_RECONCILIATION, "true"),
            (labels::HAND_OVER, labels::HAND_OVER_DONE),
            (labels::HAND_OVER, labels::HAND_OVER_PENDING),
        );
        let cases: [Case<'_>; 11] = [
            (&[], false, Actor::Operators),
            (&[skip], false, Actor::None),
            (&[(labels::SKIP_RECONCILIATION, "false")], false, Actor::Operators),
            (&[], true, Actor::Klm),
            (&[skip], true, Actor::Klm),
            (&[skip, pending], true, Actor::HandOver),
            (&[pending], false, Actor::HandOver),
            (&[skip, done], true, Actor::Operators),
            (&[skip, done], false, Actor::Operators),
            (&[done], true, Actor::Operators),
            (&[(labels::HAND_OVER, "perhaps")], false, Actor::HandOver),
        ];
        for (labels, is_klms, expected) in cases {
            let labels: serde_json::Map<_, _> =
                labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            let entry = |manager: &str, subresource: &str| json!({"manager": manager, "operation": "Apply", "subresource": subresource});
            let mut entries = vec![entry("lifecycle-manager", ""), entry("kyma-operator", "status")];
            if is_klms {
                entries.push(entry("lifecycle-manager", "status"));
            }
            let meta = json!({"labels": labels, "managedFields": entries});
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            assert_eq!(actor(&meta), expected, "{labels:?}, written by KLM: {is_klms}");
        }
    }

    #[test]
    fn a_skipped_kyma_of_ours_is_deleted_and_one_of_klm_is_not() {
        assert!(!Actor::Operators.excludes_operators() && !Actor::None.excludes_operators());
        assert!(Actor::Klm.excludes_operators() && Actor::HandOver.excludes_operators());
    }
}
