//! The request to remove a module. A deletionTimestamp alone is not a request.

use std::{collections::BTreeMap, fmt};

use crate::metadata::annotations;

/// Reason of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeletionReason {
    /// The user removed the module from the Kyma.
    Disabled,
    /// The Kyma itself is being deleted.
    KymaDeleted,
    /// The catalogue withdrew the module by an explicit field.
    Withdrawn,
}

impl DeletionReason {
    const ALL: [Self; 3] = [Self::Disabled, Self::KymaDeleted, Self::Withdrawn];

    /// Returns the annotation's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::KymaDeleted => "KymaDeleted",
            Self::Withdrawn => "Withdrawn",
        }
    }
}

impl fmt::Display for DeletionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A deletion request: its author and reason. kyma-operator writes it in the same apply that sets `deletionPolicy:
/// Delete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionOrder {
    /// The reason.
    pub reason: DeletionReason,
    /// Uid of the Kyma.
    pub kyma_uid: String,
    /// Generation of that Kyma at the time of the request.
    pub kyma_generation: i64,
}

impl DeletionOrder {
    /// Returns the annotations of the request.
    pub fn to_annotations(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (annotations::DELETION_REASON.to_owned(), self.reason.as_str().to_owned()),
            (annotations::DELETION_KYMA_UID.to_owned(), self.kyma_uid.clone()),
            (annotations::DELETION_KYMA_GENERATION.to_owned(), self.kyma_generation.to_string()),
        ])
    }

    /// Reads a deletion request. Returns `None` if it is incomplete or invalid.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let word = annotations.get(annotations::DELETION_REASON)?;
        Some(Self {
            reason: DeletionReason::ALL.into_iter().find(|reason| reason.as_str() == word)?,
            kyma_uid: annotations.get(annotations::DELETION_KYMA_UID).filter(|uid| !uid.is_empty())?.clone(),
            kyma_generation: annotations.get(annotations::DELETION_KYMA_GENERATION)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletion_request_is_read_only_from_all_its_annotations() {
        let order =
            DeletionOrder { reason: DeletionReason::Disabled, kyma_uid: "u".into(), kyma_generation: 7 };
        let annotations = order.to_annotations();
        assert_eq!(DeletionOrder::from_annotations(&annotations), Some(order));
        for key in annotations.keys() {
            let mut partial = annotations.clone();
            partial.remove(key);
            assert_eq!(DeletionOrder::from_annotations(&partial), None, "without {key}");
            partial.insert(key.clone(), String::new());
            assert_eq!(DeletionOrder::from_annotations(&partial), None, "with empty {key}");
        }
    }
}
