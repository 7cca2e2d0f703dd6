//! A timestamp authority for tests, which encodes its tokens by hand.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SigningKey as _,
};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const SIGNED_DATA: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
const TIMESTAMP: &[u8] = &[0x06, 11, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 16, 1, 4];
const CONTENT_TYPE: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3];
const MESSAGE_DIGEST: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4];
const SHA256: &[u8] = &[0x30, 11, 0x06, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
const ECDSA: &[u8] = &[0x30, 10, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const POLICY: &[u8] = &[0x06, 3, 0x2a, 3, 4];

pub(crate) struct TimestampAuthority {
    root: CertifiedIssuer<'static, KeyPair>,
    key: KeyPair,
    certificate: Vec<u8>,
}

impl TimestampAuthority {
    /// Returns an authority whose certificate has this usage.
    pub(crate) fn new(usage: ExtendedKeyUsagePurpose) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        parameters.distinguished_name.push(DnType::CommonName, "timestamps");
        let root = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let mut parameters = CertificateParams::default();
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &root).unwrap().der().to_vec();
        Self { root, key, certificate }
    }

    /// Returns its certificates, each issued by the next one.
    pub(crate) fn chain(&self) -> [&[u8]; 2] {
        [&self.certificate, self.root.der()]
    }

    /// Returns the response to a request for a timestamp at a time, such as `20250615144640Z`.
    pub(crate) fn response(&self, stamped: &[u8], time: &str) -> Vec<u8> {
        let imprint = der(0x30, &[SHA256, &der(0x04, &[&Sha256::digest(stamped)])]);
        let info = der(0x30, &[&[2, 1, 1], POLICY, &imprint, &[2, 1, 7], &der(0x18, &[time.as_bytes()])]);
        let attribute = |oid: &[u8], value: &[u8]| der(0x30, &[oid, &der(0x31, &[value])]);
        let attributes = [
            attribute(CONTENT_TYPE, TIMESTAMP),
            attribute(MESSAGE_DIGEST, &der(0x04, &[&Sha256::digest(&info)])),
        ]
        .concat();
        let signature = self.key.sign(&der(0x31, &[&attributes])).unwrap();
        let certificate = X509Certificate::from_der(&self.certificate).unwrap().1;
        let serial = der(0x02, &[certificate.raw_serial()]);
        let signer = der(
            0x30,
            &[
                &[2, 1, 1],
                &der(0x30, &[certificate.issuer().as_raw(), &serial]),
                SHA256,
                &der(0xa0, &[&attributes]),
                ECDSA,
                &der(0x04, &[&signature]),
            ],
        );
        let content = der(0x30, &[TIMESTAMP, &der(0xa0, &[&der(0x04, &[&info])])]);
        let data = der(0x30, &[&[2, 1, 3], &der(0x31, &[SHA256]), &content, &der(0x31, &[&signer])]);
        let token = der(0x30, &[SIGNED_DATA, &der(0xa0, &[&data])]);
        der(0x30, &[&der(0x30, &[&[2, 1, 0]]), &token])
    }
}

/// Encodes an element in DER.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).unwrap();
    let head = match length {
        0..128 => vec![tag, u8::try_from(length).unwrap()],
        _ => [&[tag, 0x82][..], &length.to_be_bytes()].concat(),
    };
    // DER requires the shorter form of lengths below 256.
    let head = if (128..256).contains(&length) { vec![tag, 0x81, head[3]] } else { head };
    [head, content].concat()
}
