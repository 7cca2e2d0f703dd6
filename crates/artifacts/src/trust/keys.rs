//! Public keys, which verify signatures.

use rustls::pki_types::{
    SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
    pem::{PemObject as _, SectionKind},
};
use webpki::{Error, RawPublicKeyEntity};

use crate::error::ArtifactError;

/// Maximum number of keys in one Secret.
const MAX_KEYS: usize = 32;

/// Algorithms of cosign: P-256 by default, the others for imported keys.
static ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    webpki::ring::ECDSA_P256_SHA256,
    webpki::ring::ECDSA_P384_SHA256,
    webpki::ring::ECDSA_P384_SHA384,
    webpki::ring::RSA_PKCS1_2048_8192_SHA256,
    webpki::ring::ED25519,
];

/// A public key of a supported algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey(SubjectPublicKeyInfoDer<'static>);

impl PublicKey {
    /// Parses a key from its SubjectPublicKeyInfo; `None` if it is invalid, or of an unsupported algorithm.
    pub(crate) fn from_der(der: &[u8]) -> Option<Self> {
        let key = SubjectPublicKeyInfoDer::from(der.to_vec());
        // For a key of a supported algorithm, only the signature is wrong.
        let supported = RawPublicKeyEntity::try_from(&key).is_ok_and(|entity| {
            ALGORITHMS.iter().any(|algorithm| {
                entity.verify_signature(*algorithm, b"", b"") == Err(Error::InvalidSignatureForPublicKey)
            })
        });
        supported.then_some(Self(key))
    }

    /// Reports whether this key made the signature.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        RawPublicKeyEntity::try_from(&self.0).is_ok_and(|entity| {
            ALGORITHMS.iter().any(|algorithm| entity.verify_signature(*algorithm, message, signature).is_ok())
        })
    }
}

/// Parses the public keys of a PEM text, all of which must be usable.
pub(super) fn parse(pem: &[u8]) -> Result<Vec<PublicKey>, ArtifactError> {
    let unusable = |problem: &str| ArtifactError::verification(format!("the public keys: {problem}"));
    let mut keys = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let (kind, der) = section.map_err(|_| unusable("not PEM"))?;
        if kind != SectionKind::PublicKey {
            return Err(unusable("they contain a PEM block other than PUBLIC KEY"));
        }
        let key = PublicKey::from_der(&der).ok_or_else(|| {
            unusable("one is not ECDSA P-256 or P-384, RSA of 2048 bits or more, or Ed25519")
        })?;
        keys.push(key);
    }
    let begun = pem.windows(BEGIN.len()).filter(|window| *window == BEGIN).count();
    match keys.len() {
        0 => Err(unusable("they contain no PEM block PUBLIC KEY")),
        count if count != begun => Err(unusable("they contain a PEM block other than PUBLIC KEY")),
        count if count > MAX_KEYS => Err(unusable("more than 32")),
        _ => Ok(keys),
    }
}

const BEGIN: &[u8] = b"-----BEGIN ";

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SigningKey as _};

    use super::*;

    /// Made with `openssl genpkey -algorithm RSA` and `openssl dgst -sha256 -sign`, as ring makes no RSA keys.
    const RSA_KEY: &str = include_str!("testdata/rsa.pub");
    const RSA_SIGNATURE: &[u8] = include_bytes!("testdata/rsa.sig");

    #[test]
    fn each_kind_of_key_knows_what_it_signed() {
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let pair = KeyPair::generate_for(algorithm).unwrap();
            let key = &parse(pair.public_key_pem().as_bytes()).unwrap()[0];
            let signature = pair.sign(b"this").unwrap();
            assert!(key.has_signed(b"this", &signature));
            assert!(!key.has_signed(b"that", &signature));
            assert!(!key.has_signed(b"this", b""));
        }
        let rsa = &parse(RSA_KEY.as_bytes()).unwrap()[0];
        assert!(rsa.has_signed(b"this\n", RSA_SIGNATURE) && !rsa.has_signed(b"this", RSA_SIGNATURE));
    }

    #[test]
    fn several_keys_may_stand_in_one_text() {
        let pairs = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
        let text = pairs.each_ref().map(KeyPair::public_key_pem).join("\n# the next one\n");
        let keys = parse(text.as_bytes()).unwrap();
        assert_eq!(keys.len(), 2);
        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn what_is_no_public_key_is_told() {
        let pair = KeyPair::generate().unwrap();
        let both = format!("{}{}", pair.public_key_pem(), pair.serialize_pem());
        let pkcs1 = format!(
            "{}-----BEGIN RSA PUBLIC KEY-----\nMAA=\n-----END RSA PUBLIC KEY-----\n",
            pair.public_key_pem()
        );
        let many = vec![pair.public_key_pem(); MAX_KEYS + 1].concat();
        let cases = [
            ("", "no PEM block"),
            ("ssh-ed25519 AAAA", "no PEM block"),
            ("-----BEGIN PUBLIC KEY-----\n!\n-----END PUBLIC KEY-----\n", "not PEM"),
            ("-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n", "one is not"),
            (&both, "other than PUBLIC KEY"),
            (&pkcs1, "other than PUBLIC KEY"),
            (&many, "more than 32"),
        ];
        for (text, problem) in cases {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.reason(), kyma_api::Reason::VerificationInvalid);
            assert!(error.to_string().contains(problem), "{problem}: {error}");
        }
    }
}
