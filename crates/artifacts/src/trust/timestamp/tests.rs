//! Timestamps by openssl and by an authority of the test's own.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};

use super::*;
use crate::trust::sample::{NOW, Sigstore, TimestampAuthority};

/// Certificates of an authority with a P-384 key, and what it answered: made with `openssl ts -query` and `openssl ts
/// -reply`, with SHA-512 and its certificates in it, and with SHA-256 and without.
const CHAIN: &[u8] = include_bytes!("../testdata/timestamps.pem");
const WITH_CERTIFICATES: &[u8] = include_bytes!("../testdata/timestamp-with-certificates.tsr");
const WITHOUT: &[u8] = include_bytes!("../testdata/timestamp.tsr");
const STAMPED: &[u8] = b"the signature\n";
const TIME: i64 = 1_795_578_250;

fn root(chain: &[&[u8]], used: &Value) -> TrustRoot {
    let certificates: Vec<Value> =
        chain.iter().map(|der| json!({"rawBytes": STANDARD.encode(der)})).collect();
    let mut root = Sigstore::new().trusted_root();
    root["timestampAuthorities"] = json!([{"certChain": {"certificates": certificates}, "validFor": used}]);
    TrustRoot::parse(root.to_string().as_bytes()).unwrap()
}

fn openssl(used: &Value) -> TrustRoot {
    let chain: Vec<CertificateDer<'_>> =
        CertificateDer::pem_slice_iter(CHAIN).collect::<Result<_, _>>().unwrap();
    root(&chain.iter().map(|der| &**der).collect::<Vec<_>>(), used)
}

#[test]
fn what_openssl_stamped_has_its_time() {
    let root = openssl(&json!({"start": "2026-01-01T00:00:00Z"}));
    for response in [WITH_CERTIFICATES, WITHOUT] {
        assert_eq!(time(response, STAMPED, &root), Ok(TIME));
        assert_eq!(time(response, b"another signature", &root), Err(Flaw::OtherTimestamp));
    }
    let before = openssl(&json!({"end": "2026-01-01T00:00:00Z"}));
    assert_eq!(time(WITHOUT, STAMPED, &before), Err(Flaw::TimestampSignature), "not in use at that time");
}

#[test]
fn no_byte_of_a_timestamp_can_be_changed_unnoticed() {
    let root = openssl(&json!({}));
    for at in 0..WITHOUT.len() {
        let mut changed = WITHOUT.to_vec();
        changed[at] ^= 1;
        match time(&changed, STAMPED, &root) {
            // The status, and who the signer is said to be, are not signed, and do not decide.
            Ok(found) => assert_eq!(found, TIME, "byte {at}"),
            Err(flaw) => assert!(
                matches!(flaw, Flaw::Unreadable(_) | Flaw::OtherTimestamp | Flaw::TimestampSignature),
                "byte {at}: {flaw}"
            ),
        }
    }
    for length in 0..WITHOUT.len() {
        assert_eq!(time(&WITHOUT[..length], STAMPED, &root), Err(Flaw::Unreadable("its timestamp")));
    }
}

#[test]
fn only_a_certificate_for_timestamps_that_was_valid_then_counts() {
    let authority = TimestampAuthority::new(ExtendedKeyUsagePurpose::TimeStamping);
    let stamp = authority.response(STAMPED, "20250615150640Z");
    assert_eq!(time(&stamp, STAMPED, &root(&authority.chain(), &json!({}))), Ok(NOW));
    let too_early = authority.response(STAMPED, "19700101000000Z");
    let found = time(&too_early, STAMPED, &root(&authority.chain(), &json!({})));
    assert_eq!(found, Err(Flaw::TimestampSignature), "before its certificate was valid");

    let other = TimestampAuthority::new(ExtendedKeyUsagePurpose::TimeStamping);
    let [leaf, _] = authority.chain();
    let [other_leaf, other_root] = other.chain();
    for chain in [[other_leaf, other_root], [leaf, other_root]] {
        assert_eq!(time(&stamp, STAMPED, &root(&chain, &json!({}))), Err(Flaw::TimestampSignature));
    }
    let signer = TimestampAuthority::new(ExtendedKeyUsagePurpose::CodeSigning);
    let stamp = signer.response(STAMPED, "20250615150640Z");
    let found = time(&stamp, STAMPED, &root(&signer.chain(), &json!({})));
    assert_eq!(found, Err(Flaw::TimestampSignature), "a certificate for something else");
}
