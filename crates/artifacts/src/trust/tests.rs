//! Signatures of all kinds, valid ones and forged ones.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kyma_api::Reason;
use rcgen::{KeyPair, SanType};
use serde_json::Value;

use super::flaw::Flaw;
use super::policy::MAX_LOG_ENTRIES;
use super::sample::{self, ISSUER, NOW, SUBJECT, SignatureOptions, Sigstore};
use super::*;
use crate::storage::digest::Digest;

const MANIFEST: &[u8] = b"{\"schemaVersion\": 2}";

fn digest() -> Digest {
    Digest::of(MANIFEST)
}

fn options() -> SignatureOptions {
    SignatureOptions::of(&digest().hex())
}

fn trusting(root: &Value) -> Trust {
    let root = Arc::new(TrustRoot::parse(root.to_string().as_bytes()).unwrap());
    let signer = Signer { issuer: ISSUER.to_owned(), subject: SUBJECT.to_owned() };
    Trust::nobody().and_signers(root, &[signer]).unwrap()
}

fn by_key(key: &KeyPair) -> Trust {
    Trust::nobody().and_keys(key.public_key_pem().as_bytes()).unwrap()
}

fn judged(trust: &Trust, bundle: &Value) -> Result<(), Flaw> {
    trust.accepts_bundle(bundle.to_string().as_bytes(), digest())
}

fn judged_cosign(trust: &Trust, (payload, annotations): &(String, Value)) -> Result<(), Flaw> {
    let layer = serde_json::json!({
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "size": payload.len(),
        "digest": Digest::of(payload.as_bytes()), "annotations": annotations,
    });
    let manifest = serde_json::json!({"schemaVersion": 2, "config": layer, "layers": [layer]});
    let signatures = cosign::signatures("a", manifest.to_string().as_bytes()).unwrap();
    assert_eq!(signatures[0].payload, Digest::of(payload.as_bytes()));
    trust.accepts_cosign(&signatures[0], payload.as_bytes(), digest())
}

#[test]
fn signature_by_key_is_valid_only_for_its_content_and_key() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let elsewhere = Digest::of(b"elsewhere").hex();
    let (good, foreign) = (sample::key_cosign(&key, &digest().hex()), sample::key_cosign(&key, &elsewhere));
    assert_eq!(judged_cosign(&by_key(&key), &good), Ok(()));
    assert_eq!(judged_cosign(&by_key(&other), &good), Err(Flaw::OtherKey));
    assert_eq!(judged_cosign(&by_key(&key), &foreign), Err(Flaw::OtherContent));
    // A payload with the signature of another one.
    let swapped = (good.0.clone(), foreign.1.clone());
    assert_eq!(judged_cosign(&by_key(&key), &swapped), Err(Flaw::OtherKey));

    let bundle = sample::key_bundle(&key, &options());
    assert_eq!(judged(&by_key(&key), &bundle), Ok(()));
    assert_eq!(judged(&by_key(&other), &bundle), Err(Flaw::OtherKey));
    let foreign = sample::key_bundle(&key, &SignatureOptions::of(&elsewhere));
    assert_eq!(judged(&by_key(&key), &foreign), Err(Flaw::OtherContent));
    let attestation =
        SignatureOptions { predicate: "https://slsa.dev/provenance/v1".to_owned(), ..options() };
    assert_eq!(judged(&by_key(&key), &sample::key_bundle(&key, &attestation)), Err(Flaw::OtherStatement));
}

#[test]
fn any_of_several_keys_will_do() {
    let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
    let pem = keys.each_ref().map(KeyPair::public_key_pem).concat();
    let trust = Trust::nobody().and_keys(pem.as_bytes()).unwrap();
    for key in &keys {
        assert_eq!(judged_cosign(&trust, &sample::key_cosign(key, &digest().hex())), Ok(()));
    }
}

#[test]
fn a_signature_by_an_identity_counts_in_each_of_its_forms() {
    let sigstore = Sigstore::new();
    let trust = trusting(&sigstore.trusted_root());
    assert_eq!(judged(&trust, &sigstore.bundle(&options())), Ok(()));
    let recorded = sigstore.bundle(&SignatureOptions { by_hash: true, ..options() });
    assert_eq!(judged(&trust, &recorded), Ok(()), "with an entry that has the hash of what is signed alone");
    assert_eq!(judged_cosign(&trust, &sigstore.cosign(&options())), Ok(()));
    let mail =
        SignatureOptions { subject: SanType::Rfc822Name("a@example.org".try_into().unwrap()), ..options() };
    assert_eq!(judged(&trust, &sigstore.bundle(&mail)), Err(Flaw::OtherIdentity));
    let root = Arc::new(TrustRoot::parse(sigstore.trusted_root().to_string().as_bytes()).unwrap());
    let signer = Signer { issuer: ISSUER.to_owned(), subject: "a@example.org".to_owned() };
    let mailing = Trust::nobody().and_signers(root, &[signer]).unwrap();
    assert_eq!(judged(&mailing, &sigstore.bundle(&mail)), Ok(()));
}

#[test]
fn keys_and_identities_do_not_stand_for_each_other() {
    let (sigstore, key) = (Sigstore::new(), KeyPair::generate().unwrap());
    let trust = trusting(&sigstore.trusted_root());
    assert_eq!(judged(&by_key(&key), &sigstore.bundle(&options())), Err(Flaw::NoIdentities));
    assert_eq!(judged(&trust, &sample::key_bundle(&key, &options())), Err(Flaw::NoKeys));
    let both = trust.and_keys(key.public_key_pem().as_bytes()).unwrap();
    assert_eq!(judged(&both, &sigstore.bundle(&options())), Ok(()));
    assert_eq!(judged(&both, &sample::key_bundle(&key, &options())), Ok(()));
}

#[test]
fn certificate_needs_root_code_signing_log_and_validity_at_use() {
    let sigstore = Sigstore::new();
    let trust = trusting(&sigstore.trusted_root());
    let made = |options: SignatureOptions| judged(&trust, &sigstore.bundle(&options));
    assert_eq!(
        made(SignatureOptions { issuer: "https://other.example.org".to_owned(), ..options() }),
        Err(Flaw::OtherIdentity)
    );
    let longer = SanType::URI(format!("{SUBJECT}1").try_into().unwrap());
    assert_eq!(made(SignatureOptions { subject: longer, ..options() }), Err(Flaw::OtherIdentity));
    assert_eq!(made(SignatureOptions { time: NOW + 600, ..options() }), Err(Flaw::Expired));
    assert_eq!(made(SignatureOptions { time: NOW - 10, ..options() }), Err(Flaw::Expired));
    assert_eq!(made(SignatureOptions { logged: false, ..options() }), Err(Flaw::NoCertificateLog));
    let server = made(SignatureOptions { for_code: false, ..options() });
    assert!(matches!(&server, Err(Flaw::Certificate(_))), "{server:?}");
    // Everything is valid except the signer.
    assert_eq!(judged(&trust, &Sigstore::new().bundle(&options())), Err(Flaw::OtherLog));
}

#[test]
fn authority_of_another_root_is_rejected_even_with_right_log() {
    let (ours, theirs) = (Sigstore::new(), Sigstore::new());
    let mut root = theirs.trusted_root();
    root["certificateAuthorities"] = ours.trusted_root()["certificateAuthorities"].take();
    let found = judged(&trusting(&root), &theirs.bundle(&options()));
    assert!(matches!(&found, Err(Flaw::Certificate(_))), "{found:?}");
    let mut root = theirs.trusted_root();
    root["ctlogs"] = ours.trusted_root()["ctlogs"].take();
    assert_eq!(judged(&trusting(&root), &theirs.bundle(&options())), Err(Flaw::NoCertificateLog));
    root["ctlogs"] = Value::Array(vec![]);
    assert_eq!(
        judged(&trusting(&root), &theirs.bundle(&options())),
        Ok(()),
        "a root without certificate logs"
    );
    let mut root = theirs.trusted_root();
    root["ctlogs"][0]["publicKey"]["rawBytes"] = STANDARD.encode("a key of another kind").into();
    let found = judged(&trusting(&root), &theirs.bundle(&options()));
    assert_eq!(found, Err(Flaw::NoCertificateLog), "logs that cannot be verified are no reason to want none");
    let gone = Flaw::Certificate("none was in use at the time of the log entry".to_owned());
    let logs = [("/tlogs/0/publicKey", Flaw::OtherLog), ("/ctlogs/0/publicKey", Flaw::NoCertificateLog)];
    for (path, flaw) in logs.into_iter().chain([("/certificateAuthorities/0", gone)]) {
        let mut root = theirs.trusted_root();
        root.pointer_mut(path).unwrap()["validFor"]["end"] = "2025-06-14T00:00:00Z".into();
        assert_eq!(judged(&trusting(&root), &theirs.bundle(&options())), Err(flaw), "{path}");
    }
}

#[test]
fn whatever_is_changed_in_a_bundle_it_counts_no_more() {
    let sigstore = Sigstore::new();
    let trust = trusting(&sigstore.trusted_root());
    let (good, another) = (sigstore.bundle(&options()), sigstore.bundle(&options()));
    let entry = "/verificationMaterial/tlogEntries/0";
    let at = |path: &str| format!("{entry}/{path}");
    let cases: Vec<(String, Value, Flaw)> = vec![
        (at("integratedTime"), (NOW + 1).to_string().into(), Flaw::LogSignature),
        (at("logIndex"), "1001".into(), Flaw::LogSignature),
        (at("logId/keyId"), STANDARD.encode([1; 32]).into(), Flaw::OtherLog),
        (at("inclusionPromise/signedEntryTimestamp"), STANDARD.encode("a").into(), Flaw::LogSignature),
        (at("inclusionPromise"), Value::Null, Flaw::NoTime),
        (at("inclusionProof/hashes/0"), STANDARD.encode([1; 32]).into(), Flaw::LogProof),
        (at("inclusionProof/hashes"), Value::Array(vec![]), Flaw::LogProof),
        (at("inclusionProof/logIndex"), "0".into(), Flaw::LogProof),
        (at("inclusionProof/logIndex"), "-1".into(), Flaw::LogProof),
        (at("inclusionProof/treeSize"), "4".into(), Flaw::LogProof),
        (at("inclusionProof/checkpoint"), Value::Null, Flaw::LogProof),
        (at("inclusionProof/checkpoint/envelope"), "a\n3\nb\n".into(), Flaw::LogProof),
        (
            at("canonicalizedBody"),
            another.pointer(&at("canonicalizedBody")).unwrap().clone(),
            Flaw::OtherEntry,
        ),
        (
            at("canonicalizedBody"),
            STANDARD.encode("{}").into(),
            Flaw::Unreadable("the kind of its log entry"),
        ),
        (entry.to_owned(), another.pointer(entry).unwrap().clone(), Flaw::OtherEntry),
        ("/verificationMaterial/tlogEntries".to_owned(), Value::Array(vec![]), Flaw::NoLog),
        (
            "/verificationMaterial/certificate".to_owned(),
            another["verificationMaterial"]["certificate"].clone(),
            Flaw::OtherEntry,
        ),
        ("/verificationMaterial/certificate".to_owned(), Value::Null, Flaw::NoKeys),
        ("/verificationMaterial/certificate/rawBytes".to_owned(), "AAAA".into(), Flaw::OtherEntry),
        (
            "/dsseEnvelope/signatures".to_owned(),
            another["dsseEnvelope"]["signatures"].clone(),
            Flaw::OtherEntry,
        ),
        ("/dsseEnvelope/payloadType".to_owned(), "text/plain".into(), Flaw::OtherStatement),
        ("/dsseEnvelope/payload".to_owned(), STANDARD.encode("{}").into(), Flaw::Unreadable("its statement")),
        ("/dsseEnvelope".to_owned(), Value::Null, Flaw::OtherStatement),
        ("/mediaType".to_owned(), "application/json".into(), Flaw::Unreadable("its bundle")),
    ];
    assert_eq!(judged(&trust, &good), Ok(()));
    for (path, value, flaw) in cases {
        let mut bundle = good.clone();
        *bundle.pointer_mut(&path).unwrap() = value;
        assert_eq!(judged(&trust, &bundle), Err(flaw), "{path}");
    }
}

#[test]
fn a_few_log_entries_are_looked_at() {
    let sigstore = Sigstore::new();
    let trust = trusting(&sigstore.trusted_root());
    let entry = |bundle: &Value| bundle["verificationMaterial"]["tlogEntries"][0].clone();
    let (good, another) = (sigstore.bundle(&options()), entry(&sigstore.bundle(&options())));
    for (others, flaw) in [(MAX_LOG_ENTRIES - 1, Ok(())), (MAX_LOG_ENTRIES, Err(Flaw::OtherEntry))] {
        let mut bundle = good.clone();
        let mut entries = vec![another.clone(); others];
        entries.push(entry(&good));
        bundle["verificationMaterial"]["tlogEntries"] = entries.into();
        assert_eq!(judged(&trust, &bundle), flaw, "{others}");
    }
}

#[test]
fn a_timestamp_stands_for_the_time_that_a_log_does_not_sign() {
    let sigstore = Sigstore::new();
    let trust = trusting(&sigstore.trusted_root());
    let good = sigstore.stamped_bundle(&options());
    assert_eq!(judged(&trust, &good), Ok(()));
    assert_eq!(
        judged(&trust, &sigstore.stamped_bundle(&SignatureOptions { by_hash: true, ..options() })),
        Ok(())
    );

    let another = sigstore.stamped_bundle(&options());
    let stamps = "/verificationMaterial/timestampVerificationData";
    let stamp = format!("{stamps}/rfc3161Timestamps/0/signedTimestamp");
    let entry = "/verificationMaterial/tlogEntries/0";
    let at = |path: &str| format!("{entry}/{path}");
    let foreign = Sigstore::new().stamped_bundle(&options());
    let body = at("canonicalizedBody");
    let cases: Vec<(String, Value, Flaw)> = vec![
        (stamps.to_owned(), Value::Null, Flaw::NoTime),
        (format!("{stamps}/rfc3161Timestamps"), Value::Array(vec![]), Flaw::NoTime),
        (stamp.clone(), another.pointer(&stamp).unwrap().clone(), Flaw::OtherTimestamp),
        (stamp.clone(), STANDARD.encode("a").into(), Flaw::Unreadable("its timestamp")),
        (stamp, "!".into(), Flaw::Unreadable("its bundle")),
        (at("inclusionProof"), Value::Null, Flaw::LogProof),
        (at("inclusionProof/hashes/0"), STANDARD.encode([1; 32]).into(), Flaw::LogProof),
        (at("inclusionProof"), foreign.pointer(&at("inclusionProof")).unwrap().clone(), Flaw::LogProof),
        (body.clone(), another.pointer(&body).unwrap().clone(), Flaw::OtherEntry),
        ("/verificationMaterial/tlogEntries".to_owned(), Value::Array(vec![]), Flaw::NoLog),
    ];
    for (path, value, flaw) in cases {
        let mut bundle = good.clone();
        *bundle.pointer_mut(&path).unwrap() = value;
        assert_eq!(judged(&trust, &bundle), Err(flaw), "{path}");
    }

    let mut root = sigstore.trusted_root();
    root["timestampAuthorities"] = foreign_authorities();
    assert_eq!(judged(&trusting(&root), &good), Err(Flaw::TimestampSignature));
    // In use at all times except that of the timestamp.
    for (path, flaw) in [
        ("/tlogs/0/publicKey", Flaw::LogProof),
        ("/timestampAuthorities/0", Flaw::TimestampSignature),
        (
            "/certificateAuthorities/0",
            Flaw::Certificate("none was in use at the time of the log entry".to_owned()),
        ),
    ] {
        let mut root = sigstore.trusted_root();
        root.pointer_mut(path).unwrap()["validFor"]["end"] = "2025-06-14T00:00:00Z".into();
        assert_eq!(judged(&trusting(&root), &good), Err(flaw), "{path}");
    }
}

fn foreign_authorities() -> Value {
    Sigstore::new().trusted_root()["timestampAuthorities"].take()
}

/// The certificate was valid until five seconds before the ten minutes were over.
#[test]
fn a_certificate_has_to_be_valid_at_the_time_of_the_timestamp() {
    let sigstore = Sigstore::new();
    let trust = trusting(&sigstore.trusted_root());
    let late = sigstore.stamped_bundle_at(&options(), "20250615151640Z");
    assert_eq!(judged(&trust, &late), Err(Flaw::Expired));
    assert_eq!(judged(&trust, &sigstore.stamped_bundle_at(&options(), "20250615151630Z")), Ok(()));
}

/// An entry there has the log's promise, which contains the time, and never a proof, which would need a timestamp.
#[test]
fn timestamp_under_cosign_tag_replaces_no_log_entry_or_its_time() {
    let sigstore = Sigstore::new();
    let trust = trusting(&sigstore.trusted_root());
    let (payload, good) = sigstore.stamped_cosign(&options());
    let late = sigstore.stamped_cosign(&SignatureOptions { time: NOW + 600, ..options() });
    assert_eq!(
        judged_cosign(&trust, &late),
        Err(Flaw::Expired),
        "by the log's time, whatever the timestamp says"
    );

    let (entry, stamp) = ("dev.sigstore.cosign/bundle", "dev.sigstore.cosign/rfc3161timestamp");
    let mut unpromised: Value = serde_json::from_str(good[entry].as_str().unwrap()).unwrap();
    unpromised["SignedEntryTimestamp"] = "".into();
    let cases = [
        (entry, good[entry].clone(), Ok(())),
        (entry, "".into(), Err(Flaw::NoLog)),
        (entry, unpromised.to_string().into(), Err(Flaw::LogSignature)),
        (stamp, "!".into(), Ok(())),
    ];
    for (name, value, found) in cases {
        let mut annotations = good.clone();
        annotations[name] = value.clone();
        assert_eq!(judged_cosign(&trust, &(payload.clone(), annotations)), found, "{name}: {value}");
    }
}

#[test]
fn a_log_entry_alone_does_not_make_somebody_elses_signature() {
    let sigstore = Sigstore::new();
    let trust = trusting(&sigstore.trusted_root());
    // A blob that looks like a manifest may have been signed as a blob.
    assert_eq!(judged(&trust, &sigstore.message_bundle(&options(), MANIFEST)), Err(Flaw::OtherStatement));
    // A thief of the certificate signs with another key, and the log takes any entry.
    let (payload, mut annotations) = sigstore.cosign(&options());
    annotations["dev.cosignproject.cosign/signature"] = STANDARD.encode("forged").into();
    assert_eq!(judged_cosign(&trust, &(payload.clone(), annotations.clone())), Err(Flaw::OtherEntry));
    annotations["dev.sigstore.cosign/bundle"] = "".into();
    assert_eq!(judged_cosign(&trust, &(payload, annotations)), Err(Flaw::NoLog));
    let mut bundle = sigstore.bundle(&options());
    bundle["verificationMaterial"]["tlogEntries"][0]["canonicalizedBody"] = "!".into();
    assert_eq!(judged(&trust, &bundle), Err(Flaw::Unreadable("its log entry")));
}

#[test]
fn trust_is_told_apart_by_all_that_decides() {
    let (sigstore, key) = (Sigstore::new(), KeyPair::generate().unwrap());
    let root = Arc::new(TrustRoot::parse(sigstore.trusted_root().to_string().as_bytes()).unwrap());
    let other_root =
        Arc::new(TrustRoot::parse(Sigstore::new().trusted_root().to_string().as_bytes()).unwrap());
    let signer =
        |issuer: &str, subject: &str| Signer { issuer: issuer.to_owned(), subject: subject.to_owned() };
    let by = |root: &Arc<TrustRoot>, issuer: &str, subject: &str| {
        Trust::nobody().and_signers(Arc::clone(root), &[signer(issuer, subject)]).unwrap()
    };
    let all = [
        Trust::nobody(),
        by_key(&key),
        by_key(&KeyPair::generate().unwrap()),
        by(&root, "a", "b"),
        by(&other_root, "a", "b"),
        by(&root, "a", "c"),
        by(&root, "c", "b"),
        by(&root, "a", "b").and_keys(key.public_key_pem().as_bytes()).unwrap(),
    ];
    let digests: std::collections::BTreeSet<Digest> = all.iter().map(Trust::digest).collect();
    assert_eq!(digests.len(), all.len());
    assert_eq!(by_key(&key).digest(), by_key(&key).digest());
}

#[test]
fn what_cannot_be_trusted_is_told_at_once() {
    let sigstore = Sigstore::new();
    let root = Arc::new(TrustRoot::parse(sigstore.trusted_root().to_string().as_bytes()).unwrap());
    let nameless = Signer { issuer: ISSUER.to_owned(), subject: String::new() };
    for signers in [&[][..], &[nameless]] {
        let error = Trust::nobody().and_signers(Arc::clone(&root), signers).unwrap_err();
        assert_eq!(error.reason(), Reason::VerificationInvalid);
    }
    for (path, value) in [
        ("/mediaType", Value::from("text/plain")),
        ("/tlogs", Value::Array(vec![])),
        ("/certificateAuthorities", Value::Array(vec![])),
        ("/certificateAuthorities/0/certChain/certificates/1/rawBytes", Value::from("AAAA")),
        ("/tlogs/0/publicKey/rawBytes", Value::from("!")),
    ] {
        let mut root = sigstore.trusted_root();
        *root.pointer_mut(path).unwrap() = value;
        let error = TrustRoot::parse(root.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.reason(), Reason::VerificationInvalid, "{path}");
    }
}
