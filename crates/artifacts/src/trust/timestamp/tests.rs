//! Timestamps by openssl and by an authority for tests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};

use super::*;
use crate::trust::sample::{NOW, Sigstore, TimestampAuthority};

/// Certificates of an authority with a P-384 key, and its responses by `openssl ts -query` and `openssl ts -reply`:
/// with SHA-512 and its certificates, and with SHA-256 and without certificates.
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
            // The status and the name of the signer are not signed, and have no effect.
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
    for part in ["20250615150640.1Z", "20250615150640.123Z", "20250615150640.999999999Z"] {
        let found = time(&authority.response(STAMPED, part), STAMPED, &root(&authority.chain(), &json!({})));
        assert_eq!(found, Ok(NOW), "{part}");
    }
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

#[test]
fn a_time_is_in_utc_to_the_second_or_a_part_of_one() {
    let of = |text: &str| seconds(text.as_bytes()).map(|since| since.as_secs());
    assert_eq!(of("19700101000000Z"), Some(0));
    assert_eq!(of("19700101000059.999999999Z"), Some(59));
    assert_eq!(of("99991231235959.9Z"), Some(253_402_300_799));
    let others = [
        "",
        "Z",
        "20250615150640",
        "20250615150640.Z",
        "20250615150640.5",
        "20250615150640,5Z",
        "20250615150640.0000000000Z",
        "20250615150640.1.2Z",
        "20250615150640.-1Z",
        "20250615150640.5+0000",
        "202506151506Z",
        "202506151506.5Z",
        "20250615150640ZZ",
        "20250615150660.5Z",
        "20250230150640.5Z",
        "19691231235959.5Z",
        "2025061515064\u{661}.5Z",
    ];
    for text in others {
        assert_eq!(of(text), None, "{text}");
    }
}

#[test]
fn a_response_has_a_bound() {
    let authority = TimestampAuthority::new(ExtendedKeyUsagePurpose::TimeStamping);
    let stamp = authority.response(STAMPED, "20250615150640Z");
    let longer = [&*stamp, &[0; MAX_RESPONSE_BYTES]].concat();
    let found = time(&longer, STAMPED, &root(&authority.chain(), &json!({})));
    assert_eq!(found, Err(Flaw::Unreadable("its timestamp")));
}
