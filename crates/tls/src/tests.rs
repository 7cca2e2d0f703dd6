use std::time::Duration;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

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

#[test]
fn a_certificate_of_another_authority_that_is_trusted_is_accepted() {
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
fn a_certificate_that_nobody_trusts_is_refused() {
    let (trusted, other) = (self_signed(&params(AUTHORITY)), self_signed(&params(AUTHORITY)));
    let error = verify(&trusted, &other, NAME).unwrap_err();
    assert!(is_authority(&error), "{error:?}");
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
    assert_eq!(server_verifier(&[], RootCertStore::empty()).unwrap_err(), AuthorityError::None);
    // A clock that cannot be told from the epoch verifies nothing that is valid now.
    let certificate = self_signed(&params(IsCa::NoCa));
    let verifier = server_verifier(&[certificate.der().clone()], RootCertStore::empty()).unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    let past = UnixTime::since_unix_epoch(Duration::ZERO);
    assert!(verifier.verify_server_cert(certificate.der(), &[], &name, &[], past).is_err());
}
