//! Statements that signatures cover.

use serde::Deserialize;

use super::flaw::Flaw;
use crate::storage::digest::Digest;

/// `critical.type` of cosign's simple signing payload.
const SIMPLE: &str = "cosign container image signature";
/// Type of the payload of a DSSE envelope that holds a statement.
const IN_TOTO: &str = "application/vnd.in-toto+json";
/// Supported versions of the statement, which are equal in the fields in use.
const STATEMENTS: [&str; 2] = ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];
/// Predicate type of cosign's signatures. Any other statement, such as a bill of materials, is a fact about the
/// content that a signer may state without vouching for it.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Deserialize)]
struct Simple {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Checks that cosign's simple signing payload is for the manifest with this digest.
pub(super) fn simple(payload: &[u8], digest: Digest) -> Result<(), Flaw> {
    let Simple { critical } =
        serde_json::from_slice(payload).map_err(|_| Flaw::Unreadable("its signed payload"))?;
    if critical.kind != SIMPLE {
        return Err(Flaw::OtherStatement);
    }
    is_of(digest, &critical.image.digest)
}

#[derive(Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate: String,
}

#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: Option<String>,
}

/// Checks that the payload of an envelope states that the manifest with this digest is signed.
pub(super) fn in_toto(payload_type: &str, payload: &[u8], digest: Digest) -> Result<(), Flaw> {
    if payload_type != IN_TOTO {
        return Err(Flaw::OtherStatement);
    }
    let Statement { kind, subject, predicate } =
        serde_json::from_slice(payload).map_err(|_| Flaw::Unreadable("its statement"))?;
    if !STATEMENTS.contains(&&*kind) || predicate != SIGNED {
        return Err(Flaw::OtherStatement);
    }
    let named = subject.iter().filter_map(|subject| subject.digest.sha256.as_deref());
    if named.into_iter().any(|hex| hex == digest.hex()) { Ok(()) } else { Err(Flaw::OtherContent) }
}

/// Returns the message that an envelope's signature covers (DSSE's pre-authentication encoding).
pub(super) fn encoded(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut encoded = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    encoded.extend_from_slice(payload);
    encoded
}

fn is_of(digest: Digest, text: &str) -> Result<(), Flaw> {
    match text.parse::<Digest>() {
        Ok(named) if named == digest => Ok(()),
        _ => Err(Flaw::OtherContent),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn simple_of(value: &Value) -> Result<(), Flaw> {
        simple(value.to_string().as_bytes(), Digest::of(b"manifest"))
    }

    #[test]
    fn a_simple_payload_has_to_name_the_very_manifest() {
        let payload = |digest: Digest, kind: &str| {
            json!({"critical": {
                "identity": {"docker-reference": "example.org/a"},
                "image": {"docker-manifest-digest": digest}, "type": kind,
            }, "optional": null})
        };
        let digest = Digest::of(b"manifest");
        assert_eq!(simple_of(&payload(digest, SIMPLE)), Ok(()));
        assert_eq!(simple_of(&payload(Digest::of(b"other"), SIMPLE)), Err(Flaw::OtherContent));
        assert_eq!(simple_of(&payload(digest, "atomic container signature")), Err(Flaw::OtherStatement));
        let unreadable = Err(Flaw::Unreadable("its signed payload"));
        assert_eq!(simple_of(&json!({"critical": {"type": SIMPLE}})), unreadable);
        assert_eq!(simple_of(&json!("x")), unreadable);
    }

    #[test]
    fn a_statement_has_to_say_signed_of_the_very_manifest() {
        let digest = Digest::of(b"manifest");
        let says = |subject: Value, predicate: &str| {
            let statement = json!({"_type": STATEMENTS[0], "subject": subject, "predicateType": predicate, "predicate": {}});
            in_toto(IN_TOTO, statement.to_string().as_bytes(), digest)
        };
        let subject = |hex: String| json!([{"name": "", "digest": {"sha256": hex}}]);
        assert_eq!(says(subject(digest.hex()), SIGNED), Ok(()));
        assert_eq!(says(subject(digest.hex()), "https://slsa.dev/provenance/v1"), Err(Flaw::OtherStatement));
        assert_eq!(says(subject(Digest::of(b"other").hex()), SIGNED), Err(Flaw::OtherContent));
        assert_eq!(says(json!([{"digest": {"sha512": digest.hex()}}]), SIGNED), Err(Flaw::OtherContent));
        assert_eq!(says(json!([]), SIGNED), Err(Flaw::OtherContent));
        assert_eq!(in_toto("text/plain", b"{}", digest), Err(Flaw::OtherStatement));
        assert_eq!(in_toto(IN_TOTO, b"{}", digest), Err(Flaw::Unreadable("its statement")));
    }

    /// Example of DSSE's specification.
    #[test]
    fn an_envelope_is_signed_with_the_type_of_its_payload() {
        let encoded = encoded("http://example.com/HelloWorld", b"hello world");
        assert_eq!(encoded, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }
}
