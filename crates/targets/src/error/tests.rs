use kube::core::response::StatusDetails;
use serde_json::json;

use super::*;

const PLANTED: &str = "planted <b>text</b>";

fn api(code: u16, reason: &str) -> kube::Error {
    kube::Error::Api(Box::new(Status::failure(PLANTED, reason).with_code(code)))
}

fn service(error: impl StdError + Send + Sync + 'static) -> kube::Error {
    kube::Error::Service(Box::new(error))
}

fn io(kind: std::io::ErrorKind) -> std::io::Error {
    std::io::Error::new(kind, PLANTED)
}

fn details(fields: &serde_json::Value) -> StatusDetails {
    serde_json::from_value(fields.clone()).unwrap()
}

#[test]
fn every_kind_of_failure_has_its_reason() {
    use rustls::CertificateError as Certificate;
    let tls = |fault: Certificate| service(std::io::Error::other(rustls::Error::InvalidCertificate(fault)));
    let json = serde_json::from_str::<u8>("\"planted <b>text</b>\"").unwrap_err();
    let rows = [
        (api(401, "Unauthorized"), Reason::TargetUnauthorized),
        (api(403, "Forbidden"), Reason::TargetForbidden),
        (api(409, "Conflict"), Reason::ApplyConflict),
        (api(422, "Invalid"), Reason::ApplyRefused),
        (api(429, "TooManyRequests"), Reason::TargetThrottled),
        (api(500, "InternalError"), Reason::TargetServerError),
        (api(503, PLANTED), Reason::TargetServerError),
        (service(io(std::io::ErrorKind::ConnectionRefused)), Reason::TargetUnreachable),
        (service(io(std::io::ErrorKind::ConnectionReset)), Reason::TargetUnreachable),
        (tls(Certificate::UnknownIssuer), Reason::TargetUntrusted),
        (tls(Certificate::Expired), Reason::TargetUntrusted),
        (kube::Error::SerdeError(json), Reason::TargetAnswerInvalid),
        (service(TargetError::Deadline(Duration::from_secs(15))), Reason::TargetTimeout),
        (service(TargetError::AddressRefused(AddressRefusal::Metadata)), Reason::AccessRefused),
        (service(TargetError::AddressRefused(AddressRefusal::Hub)), Reason::TargetIsHub),
        (service(TargetError::Redirected(302)), Reason::TargetAnswerInvalid),
    ];
    for (error, reason) in rows {
        let known = classify(&error);
        assert_eq!(known.reason(), reason, "{known:?}");
        assert!(!format!("{known} {known:?}").contains("planted"), "{known:?} quotes the target");
    }
}

#[test]
fn tls_failures_say_what_is_wrong_with_the_certificate() {
    use rustls::CertificateError as Certificate;
    let rows = [
        (Certificate::UnknownIssuer, TlsFault::UnknownAuthority),
        (Certificate::BadSignature, TlsFault::UnknownAuthority),
        (Certificate::Expired, TlsFault::Expired),
        (Certificate::NotValidYet, TlsFault::NotYetValid),
        (Certificate::NotValidForName, TlsFault::OtherName),
        (Certificate::BadEncoding, TlsFault::Handshake),
    ];
    for (fault, expected) in rows {
        let nested = std::io::Error::other(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            rustls::Error::InvalidCertificate(fault),
        ));
        assert_eq!(from_chain(&nested), TargetError::Tls(expected));
    }
}

#[test]
fn a_status_is_reduced_to_reason_and_field() {
    let cause = |reason: &str, field: &str| json!({"reason": reason, "message": PLANTED, "field": field});
    let details = details(&json!({"name": PLANTED, "causes": [
        cause("FieldValueInvalid", "spec.template.spec.containers[0].image"),
        cause(PLANTED, "spec.x"),
        cause("FieldValueRequired", PLANTED),
    ]}));
    let status = Status::failure(PLANTED, "Invalid").with_code(422).with_details(details);
    let error = classify(&kube::Error::Api(Box::new(status)));
    let expected = "the target refused the request (422): Invalid, FieldValueInvalid at \
                    spec.template.spec.containers[0].image, FieldValueRequired";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn of_many_causes_the_same_ones_are_shown_in_whichever_order_they_come() {
    let cause = |field: &str| json!({"reason": "FieldValueInvalid", "message": PLANTED, "field": field});
    let shown = |fields: [&str; 4]| {
        let details = details(&json!({"causes": fields.map(cause)}));
        let status = Status::failure(PLANTED, "Invalid").with_code(422).with_details(details);
        classify(&kube::Error::Api(Box::new(status))).to_string()
    };
    let expected = "the target refused the request (422): Invalid, FieldValueInvalid at a, FieldValueInvalid at b, \
                    FieldValueInvalid at c";
    assert_eq!(shown(["a", "b", "c", "d"]), expected);
    assert_eq!(shown(["d", "b", "a", "c"]), expected);
}

#[test]
fn a_foreign_reason_is_not_passed_on() {
    let error = classify(&api(500, PLANTED));
    assert_eq!(error.to_string(), "the target failed (500): no known reason");
}

#[test]
fn a_pause_asked_for_is_at_least_a_second_and_at_most_a_minute() {
    for (asked, expected) in [(0, 1), (7, 7), (100_000, 60)] {
        let details = details(&json!({"retryAfterSeconds": asked}));
        let status = Status::failure("", "TooManyRequests").with_code(429).with_details(details);
        let error = classify(&kube::Error::Api(Box::new(status)));
        assert_eq!(error, TargetError::Throttled(Duration::from_secs(expected)));
    }
}

#[test]
fn a_cause_is_found_inside_of_a_broken_watch() {
    let inside = kube::Error::Service(Box::new(TargetError::TooLarge(7)));
    let broken = kube::Error::ReadEvents(std::io::Error::other(inside));
    assert_eq!(classify(&broken), TargetError::TooLarge(7));
}
