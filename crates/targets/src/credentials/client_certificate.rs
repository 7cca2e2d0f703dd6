//! Client certificates in kubeconfigs.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys, RootCertStore};

use crate::credentials::kubeconfig::{ClientIdentity, KubeconfigError};

/// Loads a client certificate and its key. Certificates of X.509 version 1 are accepted, as in client-go:
/// `openssl x509 -req` issues them, and rustls refuses them.
///
/// # Errors
/// The certificate or the key cannot be read or used, or they do not belong together.
pub(crate) fn load(
    identity: &ClientIdentity,
    provider: &CryptoProvider,
) -> Result<Arc<SingleCertAndKey>, KubeconfigError> {
    let bad_certificate =
        |why| KubeconfigError::Malformed { field: "users[].user.client-certificate-data", why };
    let bad_key = |why| KubeconfigError::Malformed { field: "users[].user.client-key-data", why };
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&identity.certificate).collect();
    let chain = chain.unwrap_or_default();
    let first = chain.first().ok_or_else(|| bad_certificate("PEM certificates are expected"))?;
    if RootCertStore::empty().add(first.clone()).is_err() {
        return Err(bad_certificate("it is not an X.509 certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(&identity.key);
    let key = key.map_err(|_| bad_key(describe_missing_key(&identity.key)))?;
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|_| bad_key("an RSA, ECDSA P-256, ECDSA P-384 or Ed25519 key is expected"))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(bad_key("it is not the key of the client certificate"))
        }
        // Other errors mean that the keys cannot be compared.
        _ => Ok(Arc::new(SingleCertAndKey::from(certified))),
    }
}

/// Returns why a text has no readable key.
fn describe_missing_key(pem: &[u8]) -> &'static str {
    const ENCRYPTED: &[u8] = b"ENCRYPTED";
    if pem.windows(ENCRYPTED.len()).any(|found| found == ENCRYPTED) {
        "it is encrypted; a key without a passphrase is expected"
    } else {
        "the PEM key of the client certificate is expected"
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate of X.509 version 1, which rcgen does not create.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBTjCB9QIUZj2gO9/zQKf6Q7hcbbglGY3tHqowCgYIKoZIzj0EAwIwKTEXMBUG
A1UECgwOc3lzdGVtOm1hc3RlcnMxDjAMBgNVBAMMBWFkbWluMCAXDTI2MTEyNzIz
MzIwNVoYDzIxMjYxMTAzMjMzMjA1WjApMRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVy
czEOMAwGA1UEAwwFYWRtaW4wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQN77jm
upBHer+ZQ36fnje6Dp1QVQyra73Leo9Q5IaK6VvnDDQoQ5SbQ7dbc3a5EO1H5iXu
Y9I0dlC0J14+HTA/MAoGCCqGSM49BAMCA0gAMEUCIFBArNYyDTWF/gzLRzb/Qfbg
S6W0rTB6anjhj3tHFPSiAiEAqvqSWnCQCPjSITl7fina0+F2qlfKgu342ZcMMnSF
Hgo=
-----END CERTIFICATE-----
";

    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["admin".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn problem(certificate: &str, key: &str) -> Option<String> {
        let identity = ClientIdentity { certificate: certificate.into(), key: key.into() };
        load(&identity, &rustls::crypto::ring::default_provider()).err().map(|error| error.to_string())
    }

    #[test]
    fn certificates_of_version_1_and_3_are_accepted() {
        let (certificate, key) = pair();
        assert_eq!(problem(&certificate, &key), None);
        assert_eq!(problem(&format!("{certificate}{certificate}"), &key), None);
        assert_eq!(problem(VERSION_1, &key), None);
    }

    #[test]
    fn a_fault_is_named_by_its_field() {
        let (certificate, key) = pair();
        let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        let unknown = "-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n";
        let junk = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        let (certificate, key, other) = (certificate.as_str(), key.as_str(), pair().1);
        for (certificate, key, says) in [
            ("", key, "client-certificate-data is not valid: PEM certificates are expected"),
            (junk, key, "client-certificate-data is not valid: it is not an X.509 certificate"),
            (certificate, "", "client-key-data is not valid: the PEM key of the client certificate"),
            (certificate, encrypted.as_str(), "client-key-data is not valid: it is encrypted"),
            (certificate, unknown, "client-key-data is not valid: an RSA, ECDSA P-256"),
            (certificate, other.as_str(), "client-key-data is not valid: it is not the key of the client"),
        ] {
            let found = problem(certificate, key).unwrap();
            assert!(found.contains(says), "{found}");
        }
    }
}
