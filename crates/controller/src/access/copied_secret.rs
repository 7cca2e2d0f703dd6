//! Decides which Secrets of the hub may be copied to targets. Pure.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kyma_api::{Reason, labels};
use kyma_targets::Kubeconfig;

use crate::failure::Failure;

/// Error of a Secret of the hub that must not be copied to a target. Names the Secret and its keys, never content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The hub does not have it.
    #[error("the hub has no Secret {secret}; create it in the hub's namespace")]
    Missing {
        /// Name of the Secret.
        secret: String,
    },
    /// The label that allows the copy is missing.
    #[error(
        "Secret {secret} on the hub may not be copied to targets; allow it with the label {}=true",
        labels::COPY_TO_TARGETS
    )]
    NotAllowed {
        /// Name of the Secret.
        secret: String,
    },
    /// The Secret is an access Secret, by its label.
    #[error(
        "Secret {secret} on the hub is never copied: its label {} makes it the access Secret of a target",
        labels::KYMA_NAME
    )]
    Access {
        /// Name of the Secret.
        secret: String,
    },
    /// The Secret holds a kubeconfig.
    #[error("Secret {secret} on the hub is never copied: its key {key} contains a kubeconfig")]
    Kubeconfig {
        /// Name of the Secret.
        secret: String,
        /// The key.
        key: String,
    },
}

impl CopyError {
    /// Returns the stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Missing { .. } => Reason::CopiedSecretMissing,
            Self::NotAllowed { .. } => Reason::CopyNotAllowed,
            Self::Access { .. } | Self::Kubeconfig { .. } => Reason::CopyRefused,
        }
    }
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

/// Returns the Secret `name` if its content may be copied to targets: it has the label [`labels::COPY_TO_TARGETS`],
/// and holds no access to a target.
///
/// # Errors
/// The reason why it must not be copied.
pub fn may_be_copied<'a>(name: &str, found: Option<&'a Secret>) -> Result<&'a Secret, CopyError> {
    let secret = || name.to_owned();
    let found = found.ok_or_else(|| CopyError::Missing { secret: secret() })?;
    if found.labels().get(labels::COPY_TO_TARGETS).is_none_or(|value| value != "true") {
        return Err(CopyError::NotAllowed { secret: secret() });
    }
    check_no_access(name, found).map(|()| found)
}

/// Checks that a Secret of the hub holds no access to a target.
///
/// # Errors
/// If the Secret belongs to a Kyma or holds a kubeconfig.
pub fn check_no_access(name: &str, found: &Secret) -> Result<(), CopyError> {
    let secret = || name.to_owned();
    if found.labels().contains_key(labels::KYMA_NAME) {
        return Err(CopyError::Access { secret: secret() });
    }
    let mut data = found.data.iter().flatten();
    match data.find(|(_, content)| Kubeconfig::is_likely(&content.0)) {
        Some((key, _)) => Err(CopyError::Kubeconfig { secret: secret(), key: key.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn secret(labels: &Value, data: &[(&str, &str)]) -> Secret {
        let mut secret: Secret = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        let bytes = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
        secret.data = Some(data.iter().map(|(key, text)| ((*key).to_owned(), bytes(text))).collect());
        secret
    }

    #[test]
    fn only_allowed_secrets_are_copied_and_never_a_kubeconfig() {
        let allowed = json!({labels::COPY_TO_TARGETS: "true"});
        let docker = (".dockerconfigjson", r#"{"auths":{"r.example":{"auth":"eDp5"}}}"#);
        let kubeconfig = "apiVersion: v1\nkind: Config\nclusters: []\n";
        let executable = r#"{"users": [{"user": {"exec": {}}}], "clusters": [{"name": "c"}]}"#;
        let rows = [
            (allowed.clone(), vec![docker], None),
            (json!({}), vec![docker], Some(Reason::CopyNotAllowed)),
            (json!({labels::COPY_TO_TARGETS: "yes"}), vec![docker], Some(Reason::CopyNotAllowed)),
            (
                json!({labels::COPY_TO_TARGETS: "true", labels::KYMA_NAME: "a"}),
                vec![docker],
                Some(Reason::CopyRefused),
            ),
            (allowed.clone(), vec![docker, ("config", kubeconfig)], Some(Reason::CopyRefused)),
            (allowed, vec![("anything", executable)], Some(Reason::CopyRefused)),
        ];
        for (labels, data, reason) in rows {
            let secret = secret(&labels, &data);
            let found = may_be_copied("s", Some(&secret)).map(|_| ()).err();
            assert_eq!(found.as_ref().map(CopyError::reason), reason, "{labels} {data:?}");
            let told = found.map(|error| error.to_string()).unwrap_or_default();
            assert!(!told.contains("auth") && !told.contains("exec"), "{told}");
        }
        assert_eq!(may_be_copied("s", None).unwrap_err().reason(), Reason::CopiedSecretMissing);
    }
}
