//! Certificates of signers (Fulcio): issuer, validity and identity.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    prelude::{FromDer as _, X509Extension},
};

use super::{
    flaw::Flaw,
    keys::PublicKey,
    root::{Authority, TrustRoot},
    sct,
};

/// Extended key usage for signing code, 1.3.6.1.5.5.7.3.3.
const CODE_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];
/// Extension with the issuer of the identity.
const ISSUER: &str = "1.3.6.1.4.1.57264.1.8";
/// The same as plain bytes, in Fulcio's first format.
const OLD_ISSUER: &str = "1.3.6.1.4.1.57264.1.1";
/// Tag of a UTF8String.
const UTF8_STRING: u8 = 0x0c;

/// Key and identity in a certificate.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) key: PublicKey,
    /// Issuer of the identity.
    pub(super) issuer: String,
    /// The identity: e-mail addresses and URIs.
    pub(super) subjects: Vec<String>,
}

/// Returns the identity in the certificate, if an authority of the trust root issued it for signing code, it was
/// valid at `time` (Unix seconds), and a certificate log vouches for it.
pub(super) fn check(certificate: &[u8], root: &TrustRoot, time: i64) -> Result<Signer, Flaw> {
    let unreadable = || Flaw::Unreadable("its certificate");
    let (rest, parsed) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
    if !rest.is_empty() {
        return Err(unreadable());
    }
    let signer = signer(&parsed).ok_or_else(unreadable)?;
    // For authorities, webpki requires the usage only if they have one.
    if !parsed.extended_key_usage().is_ok_and(|usage| usage.is_some_and(|usage| usage.value.code_signing)) {
        return Err(Flaw::Certificate("it is not for signing code".to_owned()));
    }
    let authority = issued_by(certificate, root, time)?;
    if root.has_certificate_logs() && !sct::is_logged(&parsed, authority, root) {
        return Err(Flaw::NoCertificateLog);
    }
    Ok(signer)
}

fn issued_by<'a>(certificate: &[u8], root: &'a TrustRoot, time: i64) -> Result<&'a Authority, Flaw> {
    let certificate = CertificateDer::from(certificate);
    let leaf = EndEntityCert::try_from(&certificate).map_err(|_| Flaw::Unreadable("its certificate"))?;
    let seconds = u64::try_from(time).map_err(|_| Flaw::Expired)?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let mut flaw = Flaw::Certificate("none was in use at the time of the log entry".to_owned());
    for authority in root.authorities(time) {
        let verified = leaf.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            std::slice::from_ref(&authority.anchor),
            &authority.intermediates,
            at,
            KeyUsage::required_if_present(CODE_SIGNING),
            None,
            None,
        );
        match verified {
            Ok(_) => return Ok(authority),
            Err(Error::CertExpired { .. } | Error::CertNotValidYet { .. }) => flaw = Flaw::Expired,
            // After the name of the rule, the text may have content of the certificate.
            Err(error) => {
                let error = error.to_string();
                flaw = Flaw::Certificate(error.split(['(', '{', ' ']).next().unwrap_or_default().to_owned());
            }
        }
    }
    Err(flaw)
}

fn signer(certificate: &X509Certificate<'_>) -> Option<Signer> {
    let names = certificate.subject_alternative_name().ok()??;
    let subjects = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::RFC822Name(text) | GeneralName::URI(text) => Some((*text).to_owned()),
        _ => None,
    });
    Some(Signer {
        key: PublicKey::from_der(certificate.public_key().raw)?,
        issuer: issuer(certificate.extensions())?,
        subjects: subjects.collect(),
    })
}

fn issuer(extensions: &[X509Extension<'_>]) -> Option<String> {
    let value = |oid: &str| {
        extensions
            .iter()
            .find(|extension| extension.oid.to_id_string() == oid)
            .map(|extension| extension.value)
    };
    let text = match value(ISSUER) {
        Some(der) => {
            sct::element(der).filter(|element| element.tag == UTF8_STRING && element.rest.is_empty())?.content
        }
        None => value(OLD_ISSUER)?,
    };
    String::from_utf8(text.to_vec()).ok()
}
