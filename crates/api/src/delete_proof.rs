//! Proofs that operators need to delete objects which contain other objects or data. Pure.

/// The reason that allows a DELETE of a Namespace, CustomResourceDefinition, PersistentVolume or PersistentVolumeClaim.
///
/// Every other kind needs no proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeleteProof {
    /// No proof: enough for kinds that hold neither data nor other objects.
    #[default]
    None,
    /// The requester created the object, and a full list found no foreign object in it while the object had this
    /// resourceVersion.
    CreatedAndEmpty {
        /// The resourceVersion that the DELETE requires.
        resource_version: String,
    },
    /// The requester created the volume or claim, and removes everything that it installed.
    Created,
    /// The same run of a chart's hooks created the volume or claim.
    SameRun,
}

impl DeleteProof {
    /// Returns why an object of a kind may not be deleted with this proof; `None` if it may.
    pub fn refusal(&self, group: &str, kind: &str) -> Option<&'static str> {
        match (group, kind) {
            ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition") => match self {
                Self::CreatedAndEmpty { resource_version } if !resource_version.is_empty() => None,
                _ => Some("other objects would be deleted with it, and nothing proves that it is empty"),
            },
            ("", "PersistentVolume" | "PersistentVolumeClaim") => match self {
                Self::Created | Self::SameRun => None,
                _ => Some("it holds data, and nothing proves that its owner created it"),
            },
            _ => None,
        }
    }

    /// Returns the resourceVersion that the object must still have, if the proof depends on it.
    pub fn resource_version(&self) -> Option<&str> {
        match self {
            Self::CreatedAndEmpty { resource_version } => Some(resource_version),
            _ => None,
        }
    }
}

/// Returns whether objects of a kind contain data or other objects, so that a DELETE requires a [`DeleteProof`].
pub fn needs_delete_proof(group: &str, kind: &str) -> bool {
    DeleteProof::None.refusal(group, kind).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_hold_data_or_objects_need_the_right_proof() {
        let empty = DeleteProof::CreatedAndEmpty { resource_version: "7".to_owned() };
        let unread = DeleteProof::CreatedAndEmpty { resource_version: String::new() };
        let crd = ("apiextensions.k8s.io", "CustomResourceDefinition");
        let rows = [
            (("", "Namespace"), vec![&empty]),
            (crd, vec![&empty]),
            (("", "PersistentVolumeClaim"), vec![&DeleteProof::Created, &DeleteProof::SameRun]),
            (("", "PersistentVolume"), vec![&DeleteProof::Created, &DeleteProof::SameRun]),
        ];
        let all = [&DeleteProof::None, &empty, &unread, &DeleteProof::Created, &DeleteProof::SameRun];
        for ((group, kind), allowed) in rows {
            assert!(needs_delete_proof(group, kind), "{kind}");
            for proof in all {
                assert_eq!(
                    proof.refusal(group, kind).is_none(),
                    allowed.contains(&proof),
                    "{kind} {proof:?}"
                );
            }
        }
        for (group, kind) in [("", "ConfigMap"), ("x.io", "Namespace"), ("batch", "Job")] {
            assert!(!needs_delete_proof(group, kind), "{kind}");
        }
    }
}
