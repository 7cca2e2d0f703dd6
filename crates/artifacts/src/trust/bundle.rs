//! Sigstore bundles: a signature with all data to verify it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use super::claimed_signature::ClaimedSignature;
use super::flaw::Flaw;
use super::log::Entry;
use super::material::{Certificate, Chain};
use super::statement;
use crate::storage::digest::Digest;

/// Common prefix of the media types of all versions.
pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle";
/// Media type that cosign writes now.
pub(super) const MEDIA_TYPE_NOW: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    verification_material: Material,
    dsse_envelope: Option<Envelope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    certificate: Option<Certificate>,
    /// Up to version 0.2. Only the first certificate counts: the others are in the trust root.
    x509_certificate_chain: Option<Chain>,
    #[serde(default)]
    tlog_entries: Vec<Entry>,
    #[serde(default)]
    timestamp_verification_data: Option<Timestamps>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timestamps {
    #[serde(default)]
    rfc3161_timestamps: Vec<SignedTimestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignedTimestamp {
    signed_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

/// Returns the signature in a bundle, if it is a statement that the manifest with this digest is signed. A signature
/// of the content itself does not count: the signer may have signed any data that it was given.
pub(super) fn read(json: &[u8], digest: Digest) -> Result<ClaimedSignature, Flaw> {
    let unreadable = || Flaw::Unreadable("its bundle");
    let bundle: Bundle = serde_json::from_slice(json).map_err(|_| unreadable())?;
    if !bundle.media_type.starts_with(MEDIA_TYPE) {
        return Err(unreadable());
    }
    let Envelope { payload, payload_type, signatures } = bundle.dsse_envelope.ok_or(Flaw::OtherStatement)?;
    let decode = |text: &str| STANDARD.decode(text).map_err(|_| unreadable());
    let payload = decode(&payload)?;
    statement::in_toto(&payload_type, &payload, digest)?;
    let [signature] = &signatures[..] else { return Err(unreadable()) };
    let Material { certificate, x509_certificate_chain: chain, tlog_entries, timestamp_verification_data } =
        bundle.verification_material;
    let timestamps = timestamp_verification_data.map(|data| data.rfc3161_timestamps).unwrap_or_default();
    let timestamps = timestamps.iter().map(|one| decode(&one.signed_timestamp)).collect::<Result<_, _>>()?;
    let first = || chain.and_then(|chain| chain.certificates.into_iter().next());
    let der = |certificate: Certificate| certificate.der().ok_or_else(unreadable);
    let certificate = certificate.or_else(first).map(der).transpose()?;
    Ok(ClaimedSignature {
        message: statement::encoded(&payload_type, &payload),
        payload: Digest::of(&payload),
        signature: decode(&signature.sig)?,
        certificate,
        entries: tlog_entries,
        timestamps,
    })
}
