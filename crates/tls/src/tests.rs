use std::time::Duration;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;

use super::*;

const NAME: &str = "api.example.org";

fn params(is_ca: IsCa) -> CertificateParams {
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    params.is_ca = is_ca;
    params
}

fn self_signed(params: &CertificateParams) -> Certificate {
    params.self_signed(&KeyPair::generate().unwrap()).unwrap()
}

fn verify(trusted: &Certificate, server: &Certificate, name: &str) -> Result<(), Error> {
    let verifier = server_verifier(&[trusted.der().clone()], RootCertStore::empty()).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(server.der(), &[], &name, &[], UnixTime::now()).map(drop)
}

const AUTHORITY: IsCa = IsCa::Ca(BasicConstraints::Unconstrained);

#[test]
fn a_self_signed_certificate_that_is_trusted_is_accepted() {
    for is_ca in [AUTHORITY, IsCa::NoCa, IsCa::ExplicitNoCa] {
        let certificate = self_signed(&params(is_ca));
        assert_eq!(verify(&certificate, &certificate, NAME), Ok(()), "{is_ca:?}");
    }
}

/// A self-signed certificate with a SHA-1 signature, which rcgen does not create.
const SIGNED_WITH_SHA_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIDMDCCAhigAwIBAgIUGs8Txo+U8COJuACbt7xdp7RQZUYwDQYJKoZIhvcNAQEF
BQAwGjEYMBYGA1UEAwwPYXBpLmV4YW1wbGUub3JnMCAXDTI2MTEyNzIzNDM1MVoY
DzIxMjYxMTAzMjM0MzUxWjAaMRgwFgYDVQQDDA9hcGkuZXhhbXBsZS5vcmcwggEi
MA0GCSqGSIb3DQEBAQUAA4IBDwAwggEKAoIBAQClcmm5FUC1DjlLv2APRZuLiL32
4eRnzRP/nIT+qrck0fQc3Ry7nmQolz2/zvJ5eOghxy0sLTu8D6joKJypQgnemjz+
tsi8h1WyODjcgEa02zO4Tf0sEfLXbfpYjjkoCkFGQQIo0Qq3CW6YeI29ShIUi2U5
h1r1LFvfRB6ZX/UyPIRF6RWayFHDwkqf+lcdZDUrSAIAh80Gp7QvDDhXeWsMgOP0
sicNypEMyOU5heH8ACpTef3yVHJ0LSwxvLIbnAnR35j8eKjQYmmwhZ765YDQ813+
48dhQKEimgXVZhL3F4RaavwTeCjR+4sXOTN9ma1IavF4BHz1wSkDcA/n1vGzAgMB
AAGjbDBqMB0GA1UdDgQWBBQwPVvjp8AJyHXQ0p8inqMihza7+TAfBgNVHSMEGDAW
gBQwPVvjp8AJyHXQ0p8inqMihza7+TAMBgNVHRMBAf8EAjAAMBoGA1UdEQQTMBGC
D2FwaS5leGFtcGxlLm9yZzANBgkqhkiG9w0BAQUFAAOCAQEAS/LYQr8UXYRK8PAL
u2Acl0uVpFrXUbpJLvRFT5MJ55rxeih1X8BpNj8GgrI7DHbqrslZrY+jngmy6nAG
RN95Y0S66FcikYGGh5Rs2lE2rQdwdzn4CVCqMUzwkfhZiNxVO7BFmwinAWiNpUO4
SBd2u5YcsDy2aSgFlCAMGXFQZembxbQClTYiJAXbjflLetWXBC/wjmQYBLUuzt1U
qDA6ghF9ZKGANn76bvuZ2SPRtHQDJIECc6r05u0w+7fRygCHRLv2YzF1XRIEnuFS
qdQL12Lchm97z79HXMjwro30TR+H1yccciCeGNw9hpy3wCMCmy5JSH5pyFcPer+s
jbzchg==
-----END CERTIFICATE-----
";

#[test]
fn the_signature_of_a_trusted_certificate_does_not_count() {
    let certificate = CertificateDer::from_pem_slice(SIGNED_WITH_SHA_1.as_bytes()).unwrap();
    let verifier = server_verifier(std::slice::from_ref(&certificate), RootCertStore::empty()).unwrap();
    let verify = |name: &'static str, years: u64| {
        let time = UnixTime::since_unix_epoch(Duration::from_hours(years * 365 * 24));
        verifier.verify_server_cert(&certificate, &[], &ServerName::try_from(name).unwrap(), &[], time)
    };
    assert!(verify(NAME, 70).is_ok());
    assert!(verify("other.example.org", 70).is_err());
    assert!(verify(NAME, 50).is_err() && verify(NAME, 200).is_err());
}

#[test]
fn certificate_trusted_itself_or_by_its_authority_is_accepted() {
    let key = KeyPair::generate().unwrap();
    let authority = params(AUTHORITY);
    let issuer = Issuer::from_params(&authority, &key);
    let leaf = params(IsCa::NoCa).signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    let authority = authority.self_signed(&key).unwrap();
    assert_eq!(verify(&leaf, &leaf, NAME), Ok(()));
    assert_eq!(verify(&authority, &leaf, NAME), Ok(()));
}

#[test]
fn a_trusted_certificate_is_refused_for_another_name_or_time() {
    for is_ca in [AUTHORITY, IsCa::NoCa] {
        let certificate = self_signed(&params(is_ca));
        assert!(verify(&certificate, &certificate, "other.example.org").is_err(), "{is_ca:?}");
        let mut expired = params(is_ca);
        (expired.not_before, expired.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        let expired = self_signed(&expired);
        assert!(verify(&expired, &expired, NAME).is_err(), "{is_ca:?}");
        let mut future = params(is_ca);
        (future.not_before, future.not_after) = (date_time_ymd(2500, 1, 1), date_time_ymd(2501, 1, 1));
        let future = self_signed(&future);
        assert!(verify(&future, &future, NAME).is_err(), "{is_ca:?}");
    }
}

#[test]
fn an_untrusted_certificate_is_refused() {
    let (trusted, other) = (self_signed(&params(AUTHORITY)), self_signed(&params(AUTHORITY)));
    let error = verify(&trusted, &other, NAME).unwrap_err();
    assert!(is_authority_refused(&error), "{error:?}");
    let leaf = self_signed(&params(IsCa::NoCa));
    assert!(verify(&trusted, &leaf, NAME).is_err());
}

#[test]
fn a_certificate_that_cannot_be_read_leaves_the_others_in_use() {
    let junk = CertificateDer::from(vec![1, 2, 3]);
    let server = self_signed(&params(AUTHORITY));
    let bundle = [junk, server.der().clone()];
    let verifier = server_verifier(&bundle, RootCertStore::empty()).unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    assert!(verifier.verify_server_cert(server.der(), &[], &name, &[], UnixTime::now()).is_ok());
}

#[test]
fn a_certificate_that_cannot_be_read_is_no_authority() {
    let junk = CertificateDer::from(vec![1, 2, 3]);
    let error = server_verifier(&[junk], RootCertStore::empty()).unwrap_err();
    assert_eq!(error, AuthorityError::Unreadable);
    assert_eq!(server_verifier(&[], RootCertStore::empty()).unwrap_err(), AuthorityError::Missing);
    // A clock that cannot be told from the epoch verifies nothing that is valid now.
    let certificate = self_signed(&params(IsCa::NoCa));
    let verifier = server_verifier(&[certificate.der().clone()], RootCertStore::empty()).unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    let past = UnixTime::since_unix_epoch(Duration::ZERO);
    assert!(verifier.verify_server_cert(certificate.der(), &[], &name, &[], past).is_err());
}
