//! Signatures of artifacts: bundles, cosign's tags, and provenance of charts. None is by a trusted signer, so all
//! are refused, with a short reason without content.
//!
//! The first byte selects the kind. For cosign, the manifest ends with the first line, and the payload follows.
#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use kyma_artifacts::fuzzing::{judge_bundle, judge_cosign, judge_provenance};
use kyma_artifacts::{Signer, Trust, TrustRoot};
use libfuzzer_sys::fuzz_target;

const MANIFEST: &[u8] = b"{\"schemaVersion\": 2}";
/// Marker in the seeds.
const PLANTED: &str = "Hush4Hush";

/// The log is that of the seeds; authority, key and keyring are others.
static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    let root = TrustRoot::parse(include_bytes!("signature/trusted_root.json")).expect("a constant");
    let signer = Signer {
        issuer: "https://accounts.example.org".to_owned(),
        subject: "https://example.org/builds/release.yaml@refs/tags/v1".to_owned(),
    };
    let trust = Trust::nobody().and_keys(include_bytes!("signature/key.pub")).expect("a constant");
    let trust = trust.and_signers(Arc::new(root), &[signer]).expect("a constant");
    trust.and_keyring(include_bytes!("signature/keyring.asc")).expect("a constant")
});

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let manifest = Bytes::from_static(MANIFEST);
    let judged = match kind {
        b'b' => judge_bundle(&TRUST, rest, &manifest),
        b'c' => {
            let mut parts = rest.splitn(2, |byte| *byte == b'\n');
            let (signatures, payload) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            judge_cosign(&TRUST, signatures, payload, &manifest)
        }
        _ => judge_provenance(&TRUST, rest, &manifest),
    };
    let flaw = judged.expect_err("a signature by nobody who is trusted");
    assert!(!flaw.contains(char::is_control) && flaw.chars().count() <= 400, "{flaw:?}");
    assert!(!flaw.contains(PLANTED), "{flaw}");
});
