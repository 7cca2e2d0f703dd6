use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails};

use super::*;

fn status(code: u16, message: &str, causes: &[(&str, &str, &str)]) -> Status {
    let causes = causes
        .iter()
        .map(|(reason, field, message)| StatusCause {
            reason: (*reason).into(),
            field: (*field).into(),
            message: (*message).into(),
        })
        .collect();
    let details = StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes,
        retry_after_seconds: 0,
    };
    Status { code, details: Some(details), ..Status::failure(message, "") }
}

fn of(code: u16, message: &str, causes: &[(&str, &str, &str)]) -> Failure {
    Failure::of(&kube::Error::Api(status(code, message, causes).boxed()))
}

#[test]
fn answers_of_real_api_servers_are_distinguished() {
    let cases: &[(Failure, Failure)] = &[
        (of(401, "Unauthorized", &[]), Failure::Unauthorized),
        (
            of(
                403,
                r#"roles.rbac.authorization.k8s.io "x" is forbidden: User "u" cannot patch resource "roles""#,
                &[],
            ),
            Failure::Forbidden,
        ),
        (
            of(
                403,
                r#"pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"#,
                &[],
            ),
            Failure::QuotaExceeded("q".to_owned()),
        ),
        (
            of(403, r#"pods "x" is forbidden: status unknown for quota: q, resources: pods"#, &[]),
            Failure::QuotaExceeded("q".to_owned()),
        ),
        (
            of(
                403,
                r#"configmaps "x" is forbidden: unable to create new content in namespace n because it is being terminated"#,
                &[],
            ),
            Failure::NamespaceTerminating,
        ),
        (of(404, "the server could not find the requested resource", &[]), Failure::NotFound),
        (of(409, "Operation cannot be fulfilled: object has been modified", &[]), Failure::Conflict),
        (of(500, "etcdserver: request is too large", &[]), Failure::TooLarge),
        (of(413, "Request entity too large", &[]), Failure::TooLarge),
        (
            of(500, "request to convert CR to an invalid group/version: example.io/v1beta1", &[]),
            Failure::VersionGone("example.io/v1beta1".to_owned()),
        ),
        (of(503, "apiserver is shutting down", &[]), Failure::Server(503)),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn answers_of_admission_are_distinguished() {
    let cases: &[(Failure, Failure)] = &[
        (
            of(400, r#"admission webhook "v.example.io" does not support dry run"#, &[]),
            Failure::NoDryRun("v.example.io".to_owned()),
        ),
        (
            of(
                500,
                r#"Internal error occurred: failed calling webhook "v.example.io": failed to call webhook: Post "https://s.n.svc:443/x": no endpoints"#,
                &[],
            ),
            Failure::WebhookFailed("v.example.io".into()),
        ),
        (
            of(403, r#"admission webhook "v.example.io" denied the request: password hunter2 is weak"#, &[]),
            Failure::Denied("v.example.io".into()),
        ),
        (
            of(
                422,
                r"x is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                &[],
            ),
            Failure::Denied("p".into()),
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn only_wholly_immutable_refusals_are_immutable() {
    let selector = ("FieldValueInvalid", "spec.selector", r#"Invalid value: {"a":"b"}: field is immutable"#);
    let other =
        ("FieldValueInvalid", "spec.replicas", "Invalid value: -1: must be greater than or equal to 0");
    let set = (
        "FieldValueForbidden",
        "spec",
        "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
    );
    assert_eq!(of(422, "invalid", &[selector]), Failure::Immutable(vec!["spec.selector".into()]));
    assert_eq!(of(422, "invalid", &[set]), Failure::Immutable(vec!["spec".into()]));
    let mixed = of(422, "invalid", &[selector, other]);
    assert_eq!(
        mixed,
        Failure::Refused(vec![
            "spec.replicas (FieldValueInvalid)".into(),
            "spec.selector (FieldValueInvalid)".into()
        ])
    );
    assert_eq!(mixed.reason(), Reason::ApplyRefused);
}

#[test]
fn refusal_reads_the_same_for_any_order_of_its_paths() {
    let fields = [
        "spec.e", "spec.a", "spec.d", "spec.b", "spec.c", "spec.j", "spec.i", "spec.h", "spec.g", "spec.f",
        "spec.k",
    ];
    let causes = fields.map(|field| ("FieldValueInvalid", field, "Invalid value"));
    let mut turned = causes;
    turned.reverse();
    let refused = of(422, "", &causes);
    assert_eq!(of(422, "", &turned), refused, "of too many the same ones are named");
    assert!(
        refused.to_string().starts_with("refused as invalid: spec.a (FieldValueInvalid), spec.b "),
        "{refused}"
    );
}

#[test]
fn words_of_a_quoted_value_make_nothing_immutable() {
    let told = |message: &str| of(422, message, &[("FieldValueInvalid", "spec.mode", message)]);
    for refused in [
        r#"Unsupported value: "immutable": supported values: "mutable""#,
        r#"Unsupported value: "a": supported values: "immutable""#,
        r#"Invalid value: "immutable!": a valid label must be an empty string or consist of alphanumeric characters"#,
        r#"Invalid value: "a\": field is immutable": must not hold a quotation mark"#,
        r#"Invalid value: "field is immutable""#,
        r#"Invalid value: {"mode":"field is immutable"}"#,
        r#"Invalid value: {"mode":"immutable"}: must have one entry"#,
        r#"Duplicate value: "field is immutable""#,
        r#"Not found: "immutable""#,
        "immutable",
    ] {
        assert!(matches!(told(refused), Failure::Refused(_)), "{refused}");
    }
    for immutable in [
        r#"Invalid value: "two": field is immutable"#,
        r#"Invalid value: "a\"b\\": field is immutable"#,
        r#"Invalid value: "object": immutable: make a new one"#,
        r#"Invalid value: ["10.0.0.1"]: may not change once set"#,
        r#"Invalid value: {"kind":"Role","name":"a"}: cannot change roleRef"#,
        "Invalid value: 5: field is immutable",
        "Invalid value: field is immutable",
        "Forbidden: field is immutable when `immutable` is set",
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`: {\"a\": 1}",
    ] {
        assert_eq!(told(immutable), Failure::Immutable(vec!["spec.mode".into()]), "{immutable}");
    }
    let without_causes = r#"Thing.x.io "t" is invalid: spec.mode: Unsupported value: "immutable""#;
    assert_eq!(of(422, without_causes, &[]), Failure::Refused(vec![]));
}

#[test]
fn messages_hold_paths_and_never_values() {
    let refused = of(
        422,
        "Secret x invalid: hunter2",
        &[("FieldValueInvalid", "data[key]", "Invalid value: \"hunter2\"")],
    );
    let strict =
        of(400, r#"strict decoding error: unknown field "spec.replicsa", unknown field "spec.foo""#, &[]);
    let typed = of(
        500,
        "failed to create typed patch object (n/x; apps/v1, Kind=Deployment): .spec.template.spec.x: field not declared in schema",
        &[],
    );
    let unfit = of(
        500,
        "failed to convert new object (n/x; /v1, Kind=Secret) to proper version: unable to convert unstructured object to /v1, Kind=Secret: error decoding from json: illegal base64 data at input byte 7",
        &[],
    );
    let hostile = of(422, "", &[("FieldValueInvalid", "<script>\n\u{7}", "x")]);
    assert_eq!(refused.to_string(), "refused as invalid: data[key] (FieldValueInvalid)");
    assert_eq!(
        strict.to_string(),
        "refused as invalid: spec.replicsa (unknown field), spec.foo (unknown field)"
    );
    assert_eq!(typed.to_string(), "refused as invalid: spec.template.spec.x");
    assert_eq!((unfit.to_string().as_str(), unfit.reason()), ("refused as invalid", Reason::ApplyRefused));
    assert_eq!(hostile.to_string(), "refused as invalid");
}

#[test]
fn retry_after_is_kept() {
    let mut throttled = status(429, "too many", &[]);
    if let Some(details) = throttled.details.as_mut() {
        details.retry_after_seconds = 7;
    }
    let failure = Failure::of(&kube::Error::Api(throttled.boxed()));
    assert_eq!(failure, Failure::Throttled(Some(Duration::from_secs(7))));
    assert!(failure.is_of_target());
}

#[test]
fn a_missing_namespace_differs_from_a_missing_object() {
    let answer = |kind: &str, name: &str| {
        let mut status = status(404, r#"namespaces "there" not found"#, &[]);
        if let Some(details) = status.details.as_mut() {
            (details.kind, details.name) = (kind.into(), name.into());
        }
        kube::Error::Api(status.boxed())
    };
    let role = Identity::new("rbac.authorization.k8s.io", "Role", Some("there"), "r");
    let namespace = Identity::new("", "Namespace", None, "there");
    let error = CallError::new(Action::Apply, Some(&role), answer("namespaces", "there"));
    assert_eq!(error.missing_namespace(), Some("there"));
    assert!(
        error.to_string().ends_with("Role.rbac.authorization.k8s.io there/r: namespace there does not exist")
    );
    assert_eq!(error.reason(), Reason::DependencyMissing);
    let gone = CallError::new(Action::Get, Some(&namespace), answer("namespaces", "there"));
    assert_eq!(gone.failure, Failure::NotFound, "the namespace itself is what was asked for");
    let gone = CallError::new(Action::Get, Some(&role), answer("roles", "r"));
    assert_eq!(gone.failure, Failure::NotFound);
    assert!(!gone.is_about_no_object());
    let page = Status { code: 404, ..Status::failure("404 page not found", "") };
    let unserved = CallError::new(Action::Get, Some(&role), kube::Error::Api(page.boxed()));
    assert!(unserved.is_about_no_object() && !unserved.is_missing_kind());
}

#[test]
fn refusals_of_bodies_that_do_not_decode_name_the_field() {
    let refused = |text: &str| match of(400, text, &[]) {
        Failure::Refused(paths) => paths.join(" "),
        other => panic!("{other:?}"),
    };
    let typed = "failed to create typed patch object (n/a; apps/v1, Kind=Deployment): ";
    for (text, path) in [
        (".spec.replicas: expected numeric (int or float), got string", "spec.replicas"),
        (
            ".spec.containers[name=\"a\"].env: duplicate entries for key [name=\"FOO\"]",
            "spec.containers[name=a].env (duplicate entries for key [name=FOO])",
        ),
        (
            ".spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]",
            "spec.ports (duplicate entries for key [port=80,protocol=TCP])",
        ),
    ] {
        assert_eq!(refused(&format!("{typed}{text}")), path);
    }
    let decoded =
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string";
    assert_eq!(refused(decoded), "metadata.labels");
    let secret = of(
        422,
        "x",
        &[(
            "FieldValueInvalid",
            "spec.ports[0].nodePort",
            "Invalid value: 30080: provided port is already allocated",
        )],
    );
    assert_eq!(secret, Failure::Refused(vec!["spec.ports[0].nodePort (already allocated)".to_owned()]));
}

#[test]
fn too_large_objects_differ_from_too_large_fields() {
    let cases: &[(Failure, Failure)] = &[
        (
            of(
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)",
                &[],
            ),
            Failure::TooLarge,
        ),
        (
            of(
                422,
                "ConfigMap is invalid",
                &[("FieldValueTooLong", "[]", "Too long: may not be more than 1048576 bytes")],
            ),
            Failure::TooLarge,
        ),
        (
            of(
                422,
                "Secret is invalid",
                &[("FieldValueTooLong", "data", "Too long: may not be more than 1048576 bytes")],
            ),
            Failure::TooLarge,
        ),
        (
            of(
                422,
                "x",
                &[(
                    "FieldValueTooLong",
                    "metadata.annotations",
                    "Too long: may not be more than 262144 bytes",
                )],
            ),
            Failure::Refused(vec!["metadata.annotations (FieldValueTooLong)".to_owned()]),
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn compared_fields_of_a_refusal_are_limited() {
    let compared = |count: usize| {
        let refusal = status(422, "", &vec![("FieldValueInvalid", "spec.a", ""); count]);
        CallError::new(Action::Apply, None, kube::Error::Api(refusal.boxed())).refused_fields().len()
    };
    assert_eq!((compared(2), compared(MAX_REFUSED_FIELDS + 1)), (2, MAX_REFUSED_FIELDS));
}

#[test]
fn a_failure_reads_as_the_refusal_that_it_is_made_of() {
    let (name, paths) = (|| "w".to_owned(), || vec!["spec.a".to_owned()]);
    let refusals = [
        Refusal::Unauthorized,
        Refusal::Forbidden,
        Refusal::QuotaExceeded(name()),
        Refusal::NamespaceTerminating,
        Refusal::Denied(name()),
        Refusal::WebhookFailed(name()),
        Refusal::ConversionFailed(name()),
        Refusal::NoDryRun(name()),
        Refusal::NotFound,
        Refusal::Conflict,
        Refusal::Expired,
        Refusal::VersionGone(name()),
        Refusal::Immutable(paths()),
        Refusal::Invalid(paths()),
        Refusal::Invalid(vec![]),
        Refusal::Other(418),
        Refusal::TooLarge,
        Refusal::Throttled(None),
        Refusal::Initializing,
        Refusal::Server(500),
    ];
    for refusal in refusals {
        let failure = Failure::from(refusal.clone());
        assert_eq!((failure.to_string(), failure.reason()), (refusal.to_string(), refusal.reason()));
    }
}
