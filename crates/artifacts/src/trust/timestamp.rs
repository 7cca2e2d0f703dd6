//! Times that timestamp authorities signed (RFC 3161): proof that a signature existed then.

use std::time::Duration;

use cms::{content_info::ContentInfo, signed_data::SignedData};
use der::{
    Decode as _, Encode as _, Reader as _, Tag, Tagged as _,
    asn1::{AnyRef, GeneralizedTime, Int, ObjectIdentifier, OctetString},
};
use rustls::pki_types::UnixTime;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_tsp::{MessageImprint, TimeStampResp, TspVersion};

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

/// Maximum size of a response, in bytes. With three certificates of RSA 4096 it has about seven thousand. Its sets
/// are sorted one by one, so the work grows with the square of the size.
const MAX_RESPONSE_BYTES: usize = 8 << 10;
/// Maximum number of digits after the second: nanoseconds.
const MAX_FRACTION_DIGITS: usize = 9;

/// Content of a timestamp, with its signature.
struct Token {
    info: Info,
    /// The signed attributes, unchanged.
    attributes: Vec<u8>,
    signature: Vec<u8>,
}

/// The required part of a TSTInfo.
struct Info {
    imprint: MessageImprint,
    /// Time since 1970, in whole seconds.
    since: Duration,
}

/// Returns the time in a response of a timestamp authority, in Unix seconds, if the trust root has that authority for
/// that time, and if the response is for this signature.
pub(super) fn time(response: &[u8], signature: &[u8], root: &TrustRoot) -> Result<i64, Flaw> {
    let unreadable = || Flaw::Unreadable("its timestamp");
    let Token { info, attributes, signature: made } = read(response).ok_or_else(unreadable)?;
    let Info { imprint, since } = info;
    let digest = hash(imprint.hash_algorithm.oid, signature).ok_or_else(unreadable)?;
    if digest != imprint.hashed_message.as_bytes() {
        return Err(Flaw::OtherTimestamp);
    }
    let time = i64::try_from(since.as_secs()).map_err(|_| unreadable())?;
    let by = |authority: &Authority| is_by(authority, since, &attributes, &made);
    if root.timestamp_authorities(time).any(by) { Ok(time) } else { Err(Flaw::TimestampSignature) }
}

/// Returns the content of a response, if its single signer signed all of it.
fn read(response: &[u8]) -> Option<Token> {
    if response.len() > MAX_RESPONSE_BYTES {
        return None;
    }
    // A response without a token reports a refusal.
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
        info: Info::read(info.as_bytes())?,
        attributes: attributes.to_der().ok()?,
        signature: by.signature.as_bytes().to_vec(),
    })
}

impl Info {
    fn read(der: &[u8]) -> Option<Self> {
        let body = AnyRef::from_der(der).ok()?;
        let parts = body.sequence(|reader| {
            let _version: TspVersion = reader.decode()?;
            let _policy: ObjectIdentifier = reader.decode()?;
            let imprint: MessageImprint = reader.decode()?;
            let _serial: Int = reader.decode()?;
            let time: AnyRef<'_> = reader.decode()?;
            // Accuracy and request data are not needed.
            while !reader.is_finished() {
                let _more: AnyRef<'_> = reader.decode()?;
            }
            Ok((imprint, time))
        });
        let (imprint, time) = parts.ok()?;
        (time.tag() == Tag::GeneralizedTime).then_some(())?;
        Some(Self { imprint, since: seconds(time.value())? })
    }
}

/// Returns the time since 1970. Certificates are valid by the second, so fractions are dropped.
fn seconds(text: &[u8]) -> Option<Duration> {
    let (whole, rest) = text.split_at_checked(14)?;
    let is_utc = match rest {
        [b'Z'] => true,
        [b'.', part @ .., b'Z'] => {
            (1..=MAX_FRACTION_DIGITS).contains(&part.len()) && part.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    is_utc.then_some(())?;
    // The library accepts only times of certificates, which have no fractions of seconds.
    let der = [&[0x18, 15][..], whole, b"Z"].concat();
    GeneralizedTime::from_der(&der).ok().map(|time| time.to_unix_duration())
}

/// Reports whether the first certificate of this authority, which must be for timestamps, made the signature then.
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
