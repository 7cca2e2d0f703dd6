//! Times that timestamp authorities signed (RFC 3161): that a signature was there then.

use std::time::Duration;

use cms::{content_info::ContentInfo, signed_data::SignedData};
use der::{
    Decode as _, Encode as _,
    asn1::{ObjectIdentifier, OctetString},
};
use rustls::pki_types::UnixTime;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_tsp::{TimeStampResp, TstInfo};

use super::{
    flaw::Flaw,
    keys::PublicKey,
    root::{Authority, TrustRoot},
};

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const TIMESTAMP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.1.4");
const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2");
const SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");
/// Extended key usage of timestamp authorities, 1.3.6.1.5.5.7.3.8.
const TIME_STAMPING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 8];

/// What a timestamp says, and by whose signature.
struct Token {
    info: TstInfo,
    /// The attributes that are signed, as they are.
    attributes: Vec<u8>,
    signature: Vec<u8>,
}

/// The time in a response of a timestamp authority, in Unix seconds, if that authority is in the trust root and was in
/// use then, and if it is for this signature.
pub(super) fn time(response: &[u8], signature: &[u8], root: &TrustRoot) -> Result<i64, Flaw> {
    let unreadable = || Flaw::Unreadable("its timestamp");
    let Token { info, attributes, signature: made } = read(response).ok_or_else(unreadable)?;
    let imprint = &info.message_imprint;
    let digest = hash(imprint.hash_algorithm.oid, signature).ok_or_else(unreadable)?;
    if digest != imprint.hashed_message.as_bytes() {
        return Err(Flaw::OtherTimestamp);
    }
    let since = info.gen_time.to_unix_duration();
    let time = i64::try_from(since.as_secs()).map_err(|_| unreadable())?;
    let by = |authority: &Authority| is_by(authority, since, &attributes, &made);
    if root.timestamp_authorities(time).any(by) { Ok(time) } else { Err(Flaw::TimestampSignature) }
}

/// What is in a response, if all of it is what its one signer signed.
fn read(response: &[u8]) -> Option<Token> {
    // A response without a token is a refusal.
    let ContentInfo { content_type, content } = TimeStampResp::from_der(response).ok()?.time_stamp_token?;
    let signed: SignedData = content.decode_as().ok().filter(|_| content_type == SIGNED_DATA)?;
    let content = signed.encap_content_info;
    let info = content.econtent.filter(|_| content.econtent_type == TIMESTAMP)?;
    let info: OctetString = info.decode_as().ok()?;
    let [by] = signed.signer_infos.0.as_slice() else { return None };
    let attributes = by.signed_attrs.as_ref()?;
    let one = |oid| {
        let attribute = attributes.iter().find(|attribute| attribute.oid == oid)?;
        let [value] = attribute.values.as_slice() else { return None };
        Some(value.clone())
    };
    let kind: ObjectIdentifier = one(CONTENT_TYPE)?.decode_as().ok()?;
    let digest: OctetString = one(MESSAGE_DIGEST)?.decode_as().ok()?;
    let is_whole = hash(by.digest_alg.oid, info.as_bytes())? == digest.as_bytes();
    (kind == TIMESTAMP && is_whole).then_some(())?;
    Some(Token {
        info: TstInfo::from_der(info.as_bytes()).ok()?,
        attributes: attributes.to_der().ok()?,
        signature: by.signature.as_bytes().to_vec(),
    })
}

/// Whether the first certificate of this authority, being one for timestamps, signed that then.
fn is_by(authority: &Authority, since: Duration, attributes: &[u8], signature: &[u8]) -> bool {
    let Some(der) = authority.certificates.first() else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    let key = PublicKey::from_der(certificate.public_key().raw);
    let leads = EndEntityCert::try_from(der).is_ok_and(|leaf| {
        leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            std::slice::from_ref(&authority.anchor),
            &authority.intermediates,
            UnixTime::since_unix_epoch(since),
            KeyUsage::required(TIME_STAMPING),
            None,
            None,
        )
        .is_ok()
    });
    leads && key.is_some_and(|key| key.has_signed(attributes, signature))
}

fn hash(algorithm: ObjectIdentifier, content: &[u8]) -> Option<Vec<u8>> {
    match algorithm {
        SHA256 => Some(Sha256::digest(content).to_vec()),
        SHA384 => Some(Sha384::digest(content).to_vec()),
        SHA512 => Some(Sha512::digest(content).to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
