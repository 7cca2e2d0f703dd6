//! Computes the copy of the hub's image-pull Secret for targets. Pure.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kyma_api::{Reason, annotations, labels, names};
use kyma_controller::{CopyError, Failure, KymaKey, may_be_copied};

/// Types of image-pull Secrets and their keys.
const SECRET_TYPES: [(&str, &str); 2] =
    [("kubernetes.io/dockerconfigjson", ".dockerconfigjson"), ("kubernetes.io/dockercfg", ".dockercfg")];

/// Reason why the hub's image-pull Secret is not copied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PullSecretError {
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(
        "Secret {secret} on the hub is not an image-pull Secret; its type must be {} or {}",
        SECRET_TYPES[0].0,
        SECRET_TYPES[1].0
    )]
    Type { secret: String },
}

impl From<PullSecretError> for Failure {
    fn from(error: PullSecretError) -> Self {
        match error {
            PullSecretError::Copy(error) => error.into(),
            PullSecretError::Type { .. } => Self::new(Reason::CopyRefused, error.to_string()),
        }
    }
}

/// Returns the copy for a Kyma's target: name, content and type of the hub's Secret, with the operator's labels.
pub(super) fn copy_of(
    name: &str,
    found: Option<&Secret>,
    kyma: &KymaKey,
    namespace: &str,
) -> Result<Secret, PullSecretError> {
    let found = may_be_copied(name, found)?;
    let known = SECRET_TYPES.iter().find(|(type_, _)| found.type_.as_deref() == Some(type_));
    let content = known.and_then(|(_, key)| Some((*key, found.data.as_ref()?.get(*key)?)));
    let (key, content) = content.ok_or_else(|| PullSecretError::Type { secret: name.to_owned() })?;
    let mut copy = Secret { type_: found.type_.clone(), ..Secret::default() };
    copy.metadata.name = Some(name.to_owned());
    copy.metadata.namespace = Some(namespace.to_owned());
    copy.metadata.labels = Some(BTreeMap::from([
        (labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_KYMA.to_owned()),
        (labels::OWNER.to_owned(), names::owner_hash(&kyma.namespace, &kyma.name)),
    ]));
    let owned_by = (annotations::OWNED_BY.to_owned(), kyma.to_string());
    copy.metadata.annotations = Some(BTreeMap::from([owned_by]));
    copy.data = Some(BTreeMap::from([(key.to_owned(), ByteString(content.0.clone()))]));
    Ok(copy)
}

/// Reports whether the live Secret has type, content, labels and annotations of the copy.
pub(super) fn is_there(live: &Secret, copy: &Secret) -> bool {
    let has = |actual: &BTreeMap<String, String>, desired: &BTreeMap<String, String>| {
        desired.iter().all(|(name, value)| actual.get(name) == Some(value))
    };
    let mut data = copy.data.iter().flatten();
    live.type_ == copy.type_
        && data.all(|(key, content)| live.data.as_ref().and_then(|actual| actual.get(key)) == Some(content))
        && has(live.labels(), copy.labels())
        && has(live.annotations(), copy.annotations())
}

/// Reports whether the Secret of this name on the target has the owner label of another Kyma.
pub(super) fn is_foreign(live: &Secret, copy: &Secret) -> bool {
    live.labels().get(labels::OWNER).is_some_and(|owner| copy.labels().get(labels::OWNER) != Some(owner))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONFIG: &str = "eyJhdXRocyI6e319";

    fn hub_secret(type_: &str, key: &str) -> Secret {
        serde_json::from_value(json!({
            "metadata": {"name": "pull", "labels": {labels::COPY_TO_TARGETS: "true", "other": "label"}},
            "type": type_, "data": {key: CONFIG, "more": CONFIG},
        }))
        .unwrap()
    }

    fn copied(found: Option<&Secret>) -> Result<Secret, PullSecretError> {
        copy_of("pull", found, &KymaKey::new("kcp-system", "a"), "kyma-system")
    }

    #[test]
    fn pull_secret_copy_has_only_the_content_that_pulls_images() {
        for (type_, key) in SECRET_TYPES {
            let copy = copied(Some(&hub_secret(type_, key))).unwrap();
            assert_eq!(copy.type_.as_deref(), Some(type_));
            assert_eq!(
                (copy.name_any(), copy.namespace().as_deref()),
                ("pull".to_owned(), Some("kyma-system"))
            );
            assert_eq!(copy.data.iter().flatten().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), [key]);
            assert_eq!(copy.labels().get("other"), None);
            assert_eq!(
                copy.annotations().get(annotations::OWNED_BY).map(String::as_str),
                Some("kcp-system/a")
            );
        }
    }

    #[test]
    fn other_types_are_refused_and_so_is_what_nobody_allowed() {
        let reason = |found: Option<&Secret>| Failure::from(copied(found).unwrap_err()).reason;
        assert_eq!(reason(None), Reason::CopiedSecretMissing);
        assert_eq!(reason(Some(&hub_secret("Opaque", ".dockerconfigjson"))), Reason::CopyRefused);
        let without_key = hub_secret("kubernetes.io/dockercfg", ".dockerconfigjson");
        assert_eq!(reason(Some(&without_key)), Reason::CopyRefused);
        let mut unlabelled = hub_secret(SECRET_TYPES[0].0, SECRET_TYPES[0].1);
        unlabelled.metadata.labels = None;
        assert_eq!(reason(Some(&unlabelled)), Reason::CopyNotAllowed);
    }

    #[test]
    fn a_copy_is_there_while_content_and_marks_are() {
        let copy = copied(Some(&hub_secret(SECRET_TYPES[0].0, SECRET_TYPES[0].1))).unwrap();
        let mut live = copy.clone();
        live.metadata.labels.as_mut().unwrap().insert("users".to_owned(), "own".to_owned());
        assert!(is_there(&live, &copy) && !is_foreign(&live, &copy));
        let mut edited = live.clone();
        edited.data.as_mut().unwrap().insert(SECRET_TYPES[0].1.to_owned(), ByteString(b"{}".to_vec()));
        assert!(!is_there(&edited, &copy));
        live.metadata.labels.as_mut().unwrap().insert(labels::OWNER.to_owned(), "another".to_owned());
        assert!(!is_there(&live, &copy) && is_foreign(&live, &copy));
    }
}
