//! Converts signature checks of Flux.

use std::collections::BTreeMap;

use kyma_api::{SecretKeyRef, SignerIdentity, Verify};
use serde_json::Value;

use super::facts::{Facts, Kind, ReducedObject, Ref, list, text};
use super::finding::{Finding, Severity};
use super::patches;

/// Special characters of Flux's patterns except the dot, which is taken literally.
const PATTERN_CHARS: &[char] = &['*', '+', '?', '(', ')', '[', ']', '{', '}', '|', '^', '$', '\\'];

/// Suffix of keys in a Secret that Flux uses for verification.
const PUBLIC_KEY_SUFFIX: &str = ".pub";

/// The `verify` field of a Flux object.
pub(super) struct VerifyField<'a> {
    /// The field with its object.
    pub(super) place: String,
    /// Namespace of the object.
    pub(super) namespace: &'a str,
    pub(super) verify: &'a Value,
}

impl VerifyField<'_> {
    /// Returns the Secret with the keys.
    pub(super) fn secret(&self) -> Option<Ref> {
        Some(Ref::new(Kind::Secret, self.namespace, text(self.verify, "/secretRef/name")?))
    }

    /// Returns the check for a component in namespace `hub`. A check that cannot be converted becomes a finding, and
    /// the component is created suspended: no check is dropped silently.
    pub(super) fn verify(&self, facts: &Facts, hub: &str, findings: &mut Vec<Finding>) -> Option<Verify> {
        let known = ["provider", "secretRef", "matchOIDCIdentity"];
        patches::unknown(self.verify, &known, &self.place, findings);
        let mut lost = |field: &str, says: &str| {
            findings.push(Finding::new(format!("{}{field}", self.place), Severity::Suspended, says));
            None
        };
        match text(self.verify, "/provider") {
            Some("cosign") | None => {}
            _ => return lost(".provider", "only signatures of cosign are supported"),
        }
        if let Some(secret) = self.secret() {
            return Some(self.keys(secret, facts, hub, findings));
        }
        let identities: Option<Vec<SignerIdentity>> = list(self.verify, "/matchOIDCIdentity")
            .map(|one| {
                let exact = |field: &str| exact(text(one, field)?);
                Some(SignerIdentity { issuer: exact("/issuer")?, subject: exact("/subject")? })
            })
            .collect();
        match identities {
            None => lost(
                ".matchOIDCIdentity",
                "patterns have no equivalent: name each issuer and subject exactly in `source.verify.identities`",
            ),
            Some(identities) if identities.is_empty() => {
                lost("", "any signer is accepted: name the signers in `source.verify.identities`")
            }
            Some(identities) => {
                let says = "give the operator the file with the roots of trust, `--sigstore-trusted-root`";
                findings.push(Finding::new(
                    format!("{}.matchOIDCIdentity", self.place),
                    Severity::ActionRequired,
                    says,
                ));
                Some(Verify { identities: Some(identities), ..Verify::default() })
            }
        }
    }

    fn keys(&self, secret: Ref, facts: &Facts, hub: &str, findings: &mut Vec<Finding>) -> Verify {
        let place = format!("{}.secretRef", self.place);
        findings.extend(Finding::copy(&place, &secret, hub));
        let contents = match facts.get(&secret) {
            Some(Some(ReducedObject::Data { contents, .. })) => Some(contents),
            _ => None,
        };
        let keys = contents.into_iter().flat_map(BTreeMap::keys);
        let mut public = keys.filter(|key| key.ends_with(PUBLIC_KEY_SUFFIX));
        let key = if let (Some(one), None) = (public.next(), public.next()) {
            one.clone()
        } else {
            let says = "write the public keys one after the other into the key `keys.pub` of the Secret";
            findings.push(Finding::new(place, Severity::ActionRequired, says));
            "keys.pub".to_owned()
        };
        Verify { keys_secret_ref: Some(SecretKeyRef { name: secret.name, key }), ..Verify::default() }
    }
}

/// Returns the only text that a pattern matches: `^…$` around literal characters. A bare dot is read as a literal
/// dot, which is stricter.
fn exact(pattern: &str) -> Option<String> {
    let text = pattern.strip_prefix('^')?.strip_suffix('$')?.replace("\\.", ".").replace("\\/", "/");
    (!text.is_empty() && !text.contains(PATTERN_CHARS)).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn converted(verify: &Value, facts: &Facts) -> (Option<Verify>, Vec<(String, Severity)>) {
        let mut findings = vec![];
        let asked = VerifyField { place: "spec.verify".to_owned(), namespace: "apps", verify };
        let verify = asked.verify(facts, "apps", &mut findings);
        (verify, findings.into_iter().map(|one| (one.path, one.severity)).collect())
    }

    #[test]
    fn keys_of_a_secret_are_carried_over() {
        let verify = json!({"provider": "cosign", "secretRef": {"name": "keys"}});
        let secret = |data: Value| {
            let object = json!({"kind": "Secret", "data": data});
            Facts::from([(
                Ref::new(Kind::Secret, "apps", "keys"),
                Some(ReducedObject::of(Kind::Secret, object)),
            )])
        };
        let one = converted(&verify, &secret(json!({"cosign.pub": "", "other": ""})));
        let key = |key: &str| {
            let reference = SecretKeyRef { name: "keys".to_owned(), key: key.to_owned() };
            Some(Verify { keys_secret_ref: Some(reference), ..Verify::default() })
        };
        assert_eq!(one, (key("cosign.pub"), vec![]));
        let told = vec![("spec.verify.secretRef".to_owned(), Severity::ActionRequired)];
        assert_eq!(
            converted(&verify, &secret(json!({"a.pub": "", "b.pub": ""}))),
            (key("keys.pub"), told.clone())
        );
        assert_eq!(converted(&verify, &Facts::new()), (key("keys.pub"), told));
    }

    #[test]
    fn identity_patterns_are_converted_if_they_mean_one_text() {
        let identity = |issuer: &str, subject: &str| json!({"provider": "cosign", "matchOIDCIdentity": [{"issuer": issuer, "subject": subject}]});
        let (found, told) =
            converted(&identity("^https://a\\.example\\.org$", "^b@example.org$"), &Facts::new());
        let expected =
            SignerIdentity { issuer: "https://a.example.org".into(), subject: "b@example.org".into() };
        assert_eq!(found.unwrap().identities, Some(vec![expected]));
        assert_eq!(told, [("spec.verify.matchOIDCIdentity".to_owned(), Severity::ActionRequired)]);
        for (issuer, subject) in
            [("^a$", "^https://github.com/o/.*$"), ("^a$", "b"), ("^a|b$", "^c$"), ("^a$", "^$")]
        {
            let (found, told) = converted(&identity(issuer, subject), &Facts::new());
            assert_eq!((found, told.len(), told[0].1), (None, 1, Severity::Suspended), "{issuer} {subject}");
        }
    }

    #[test]
    fn a_check_that_is_not_known_here_suspends() {
        let verify =
            json!({"provider": "cosign", "secretRef": {"name": "a"}, "trustedRootSecretRef": {"name": "b"}});
        let (found, told) = converted(&verify, &Facts::new());
        assert!(found.is_some());
        assert_eq!(told[0], ("spec.verify.trustedRootSecretRef".to_owned(), Severity::Suspended));
    }

    #[test]
    fn a_verification_without_equivalent_suspends() {
        for verify in
            [json!({"provider": "notation", "secretRef": {"name": "a"}}), json!({"provider": "cosign"})]
        {
            let (found, told) = converted(&verify, &Facts::new());
            assert_eq!((found, told[0].1), (None, Severity::Suspended), "{verify}");
        }
    }
}
