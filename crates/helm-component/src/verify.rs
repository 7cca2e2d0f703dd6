//! Signers that a component's content requires.

use std::collections::BTreeMap;
use std::sync::Arc;

use kyma_api::{HelmComponentSpec, Reason, SecretKeyRef, Verify};
use kyma_artifacts::{Signer, Trust, TrustRoot};
use kyma_controller::Failure;

use crate::reader::Reader;
use crate::source;

/// Data of the Secrets that were read, by name; `None` for one that does not exist.
pub(crate) type Secrets = BTreeMap<String, Option<BTreeMap<String, Vec<u8>>>>;

/// Returns the names of the Secrets with required signers.
pub(crate) fn secrets(spec: &HelmComponentSpec) -> impl Iterator<Item = &str> {
    let verify = spec.source.verify.iter();
    let references = verify.flat_map(|verify| [&verify.keys_secret_ref, &verify.keyring_secret_ref]);
    references.flatten().map(|reference| &*reference.name)
}

/// Returns the required signers; `None` if the spec requires none.
///
/// # Errors
/// If a key is missing or invalid, or the operator has no trust root.
pub(crate) fn trust(
    spec: &HelmComponentSpec,
    secrets: &Secrets,
    root: Option<&Arc<TrustRoot>>,
    reader: &Reader,
) -> Result<Option<Arc<Trust>>, Failure> {
    let Some(Verify { keys_secret_ref, identities, keyring_secret_ref }) = &spec.source.verify else {
        return Ok(None);
    };
    let mut trust = Trust::nobody();
    if let Some(reference) = keys_secret_ref {
        let pem = value("keysSecretRef", reference, secrets, reader)?;
        trust = trust.and_keys(pem).map_err(|error| source::failure(&error))?;
    }
    if let Some(identities) = identities {
        let root = root.ok_or_else(|| {
            invalid(
                "identities",
                "the operator has no trust root: name its file with --sigstore-trusted-root",
            )
        })?;
        let signers: Vec<Signer> = identities
            .iter()
            .map(|one| Signer { issuer: one.issuer.clone(), subject: one.subject.clone() })
            .collect();
        trust = trust.and_signers(Arc::clone(root), &signers).map_err(|error| source::failure(&error))?;
    }
    if let Some(reference) = keyring_secret_ref {
        let keyring = value("keyringSecretRef", reference, secrets, reader)?;
        trust = trust.and_keyring(keyring).map_err(|error| source::failure(&error))?;
    }
    Ok(Some(Arc::new(trust)))
}

fn value<'a>(
    field: &str,
    reference: &SecretKeyRef,
    secrets: &'a Secrets,
    reader: &Reader,
) -> Result<&'a [u8], Failure> {
    let SecretKeyRef { name, key } = reference;
    let secret = secrets.get(name).and_then(Option::as_ref);
    let absent = || match reader {
        Reader::Standalone => format!("Secret {name} does not exist"),
        Reader::Module(_) => {
            format!("there is no Secret {name}{}", reader.how_to_allow())
        }
    };
    let secret = secret.ok_or_else(|| invalid(field, &absent()))?;
    let value = secret.get(key).ok_or_else(|| invalid(field, &format!("Secret {name} has no key {key}")))?;
    Ok(value)
}

fn invalid(field: &str, problem: &str) -> Failure {
    Failure::new(Reason::VerificationInvalid, format!("spec.source.verify.{field}: {problem}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(verify: &Value) -> HelmComponentSpec {
        serde_json::from_value(json!({"source": {"verify": verify}})).unwrap()
    }

    fn told(verify: &Value, secrets: &Secrets) -> String {
        let failure = trust(&spec(verify), secrets, None, &Reader::Standalone).unwrap_err();
        assert_eq!(failure.reason, Reason::VerificationInvalid);
        failure.message
    }

    #[test]
    fn no_key_is_read_without_verification() {
        let spec: HelmComponentSpec = serde_json::from_value(json!({"source": {}})).unwrap();
        assert!(trust(&spec, &Secrets::new(), None, &Reader::Standalone).unwrap().is_none());
        assert_eq!(secrets(&spec).count(), 0);
    }

    #[test]
    fn missing_keys_are_named_and_refused() {
        let keys = json!({"keysSecretRef": {"name": "keys", "key": "cosign.pub"}});
        assert_eq!(secrets(&super::tests::spec(&keys)).collect::<Vec<_>>(), ["keys"]);
        let field = "spec.source.verify.keysSecretRef: Secret keys";
        let secret = |key: &str, pem: &str| {
            let data = BTreeMap::from([(key.to_owned(), pem.as_bytes().to_vec())]);
            Secrets::from([("keys".to_owned(), Some(data))])
        };
        assert_eq!(told(&keys, &Secrets::new()), format!("{field} does not exist"));
        assert_eq!(
            told(&keys, &Secrets::from([("keys".to_owned(), None)])),
            format!("{field} does not exist")
        );
        assert_eq!(told(&keys, &secret("other", "")), format!("{field} has no key cosign.pub"));
        let said = told(&keys, &secret("cosign.pub", "secret text"));
        assert!(said.contains("no PEM block PUBLIC KEY") && !said.contains("secret text"), "{said}");
        let keyring = json!({"keyringSecretRef": {"name": "keys", "key": "ring"}});
        assert_eq!(secrets(&super::tests::spec(&keyring)).collect::<Vec<_>>(), ["keys"]);
        let missing = "spec.source.verify.keyringSecretRef: Secret keys does not exist";
        assert_eq!(told(&keyring, &Secrets::new()), missing);
        assert!(told(&keyring, &secret("ring", "none")).contains("not OpenPGP public keys"));
        let identities = json!({"identities": [{"issuer": "a", "subject": "b"}]});
        assert!(told(&identities, &Secrets::new()).contains("--sigstore-trusted-root"));
    }

    #[test]
    fn a_field_that_asks_for_nobody_lets_nothing_pass() {
        let trust = trust(&spec(&json!({})), &Secrets::new(), None, &Reader::Standalone).unwrap();
        assert!(trust.is_some(), "the artifacts refuse whatever nobody is trusted for");
    }
}
