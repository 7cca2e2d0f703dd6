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
        (api(404, "NotFound"), Reason::ApplyRefused),
        (api(405, "MethodNotAllowed"), Reason::ApplyRefused),
        (api(410, "Expired"), Reason::ApplyConflict),
        (api(413, "RequestEntityTooLarge"), Reason::ObjectTooLarge),
        (api(415, "UnsupportedMediaType"), Reason::ApplyRefused),
        (api(500, "InternalError"), Reason::TargetServerError),
        (service(TargetError::NotApiServer(404)), Reason::TargetUnreachable),
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
fn a_refused_address_names_the_flag_that_allows_it() {
    let text = |refusal| TargetError::AddressRefused(refusal).to_string();
    let prefix = "connecting to the target is refused: its address is";
    assert_eq!(
        text(AddressRefusal::Loopback),
        format!("{prefix} a loopback address; --allow-loopback-targets allows it")
    );
    assert_eq!(
        text(AddressRefusal::LinkLocal),
        format!("{prefix} a link-local address; --allow-link-local-targets allows it")
    );
    assert_eq!(text(AddressRefusal::Hub), format!("{prefix} the hub itself"));
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
        (Certificate::BadEncoding, TlsFault::Certificate),
        (Certificate::InvalidPurpose, TlsFault::Purpose),
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
fn a_refusal_names_the_policy_or_quota_and_nothing_else() {
    let told = |code: u16, message: &str| {
        let message = format!("{message} {PLANTED}");
        let status = Status::failure(&message, "Forbidden").with_code(code);
        let error = classify(&kube::Error::Api(Box::new(status)));
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?} quotes the target");
        (error.reason(), error.to_string())
    };
    let policy = "x is forbidden: ValidatingAdmissionPolicy 'labels' with binding 'b' denied request:";
    let quota = "x is forbidden: exceeded quota: few, requested:";
    let ending = "x is forbidden: unable to create new content in namespace n because it is being terminated";
    let prefix = |code: u16| format!("the target refused the request ({code}): ");
    let rows = [
        (422, policy, Reason::WebhookDenied, "denied by labels"),
        (403, policy, Reason::WebhookDenied, "denied by labels"),
        (403, quota, Reason::QuotaExceeded, "quota few is exceeded"),
        (403, ending, Reason::NamespaceTerminating, "the namespace is being deleted"),
        (
            500,
            "conversion webhook for x.io/v1, Kind=X failed: Post",
            Reason::WebhookFailed,
            "the conversion webhook for x.io/v1, Kind=X did not answer",
        ),
        (400, "unknown field \"spec.a\"", Reason::ApplyRefused, "refused as invalid: spec.a (unknown field)"),
    ];
    for (code, message, reason, expected) in rows {
        assert_eq!(told(code, message), (reason, prefix(code) + expected), "{message}");
    }
}

#[test]
fn same_causes_are_shown_whatever_their_order() {
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
