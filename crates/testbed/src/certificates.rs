//! The certificate authority of a test environment, and the certificates that it signs.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// A certificate with its private key, both PEM. The key is never printed.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate, PEM.
    pub certificate: String,
    /// The private key, PKCS#8 PEM.
    pub key: String,
}

/// Validity of a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// From 1975 to 4096.
    Long,
    /// It expired in the year 2000.
    Expired,
    /// From now on, for this long.
    For(Duration),
}

/// A certificate authority: one for all clusters of a test environment unless a cluster asks for its own.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name.push(DnType::CommonName, name);
        Ok(Self { issuer: CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)? })
    }

    /// Returns the authority's certificate as PEM.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns a certificate for a server on loopback.
    pub(crate) fn server(&self) -> Result<Certificate> {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let mut parameters = CertificateParams::new(names)?;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.distinguished_name.push(DnType::CommonName, "testbed");
        self.sign(&parameters)
    }

    /// Returns a certificate for a user. The apiserver uses the common name as user name, and the organisation as
    /// group.
    pub(crate) fn user(&self, name: &str, group: Option<&str>, validity: Validity) -> Result<Certificate> {
        let mut parameters = CertificateParams::default();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.distinguished_name.push(DnType::CommonName, name);
        match validity {
            Validity::Long => {}
            Validity::Expired => {
                parameters.not_before = date_time_ymd(1999, 1, 1);
                parameters.not_after = date_time_ymd(2000, 1, 1);
            }
            Validity::For(time) => parameters.not_after = (SystemTime::now() + time).into(),
        }
        if let Some(group) = group {
            parameters.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.sign(&parameters)
    }

    fn sign(&self, parameters: &CertificateParams) -> Result<Certificate> {
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Certificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
