//! Classifies refusals and failures of API servers, for all operators. Pure.
//!
//! The result contains only names, field paths and known words of the answer: the server may be hostile, and its
//! messages quote values.

use std::fmt;
use std::time::Duration;

use kube::core::Status;
use kube::core::response::reason;

use crate::status::reason::Reason;

mod invalid;

use invalid::{Problems, is_path, problems, unknown_fields};

/// The classification of a `Status` of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401.
    Unauthorized,
    /// 403 by RBAC.
    Forbidden,
    /// 403 by a resource quota; its name if the answer has it.
    QuotaExceeded(String),
    /// 403 because the namespace is being deleted.
    NamespaceTerminating,
    /// A webhook, admission policy or admission plugin denied the request; its name if the answer has it.
    Denied(String),
    /// A webhook failed; its name if the answer has it.
    WebhookFailed(String),
    /// The conversion webhook of the object's CRD failed; `group/version, Kind=…` if the answer has it.
    ConversionFailed(String),
    /// A webhook has side effects, so dry runs are refused; its name if the answer has it.
    NoDryRun(String),
    /// 404: the object, its namespace or its kind does not exist.
    NotFound,
    /// 409: changed or created meanwhile, or a precondition does not hold.
    Conflict,
    /// 410 or an expired list token.
    Expired,
    /// 500 because `managedFields` names an API version that the kind no longer serves; that `group/version`.
    VersionGone(String),
    /// 422 because immutable fields would change; their paths.
    Immutable(Vec<String>),
    /// 400, 422 and the like: paths with the API server's reason.
    Invalid(Vec<String>),
    /// Another status from 400 to 499.
    Other(u16),
    /// The object is too large for the API server or etcd.
    TooLarge,
    /// 429, with the value of `Retry-After`.
    Throttled(Option<Duration>),
    /// 429 while the API server initialises its watch cache of one kind. The call rate is not the cause.
    Initializing,
    /// Another status, 5xx in most cases.
    Server(u16),
}

/// Start of the message of a 429 while the API server initialises its watch cache of one kind (k8s.io/apiserver,
/// storage/cacher). Only this text distinguishes it from a 429 of an overloaded server.
const WATCH_CACHE_INITIALIZING: &str = "storage is (re)initializing";

/// Messages of API servers if a quota is exceeded, has no computed usage yet, or requires a value.
const QUOTA_MESSAGES: [&str; 4] =
    ["exceeded quota", "insufficient quota", "status unknown for quota", "failed quota"];

/// Messages of admission plugins, which deny with the status of a missing right, and the names of the plugins. Source:
/// `plugin/pkg/admission` of Kubernetes.
const ADMISSION_PLUGIN_MESSAGES: [(&str, &str); 6] = [
    (" per Container is ", "LimitRange"),
    (" per Pod is ", "LimitRange"),
    (" per PersistentVolumeClaim is ", "LimitRange"),
    ("only dynamically provisioned pvc can be resized", "PersistentVolumeClaimResize"),
    ("is already marked as default. Only one default can exist", "Priority"),
    ("Use of external IPs is denied by admission control", "DenyServiceExternalIPs"),
];

/// Placeholder for the name of a webhook, policy or quota that the answer lacks.
const UNKNOWN_NAME: &str = "of an unknown name";

impl Refusal {
    /// Classifies a status.
    pub fn of(status: &Status) -> Self {
        let text = status.message.as_str();
        Self::by_words(status, text).unwrap_or_else(|| Self::by_code(status, text))
    }

    /// Classifies messages that API servers use with several codes.
    fn by_words(status: &Status, text: &str) -> Option<Self> {
        let has = |part: &str| text.contains(part);
        if has("failed calling webhook") {
            return Some(Self::WebhookFailed(quoted_after(text, "failed calling webhook")));
        }
        if let Some(kind) = conversion(text) {
            return Some(Self::ConversionFailed(kind));
        }
        if has("admission webhook") && has("denied the request") {
            return Some(Self::Denied(quoted_after(text, "admission webhook")));
        }
        if has("does not support dry run") {
            return Some(Self::NoDryRun(quoted_after(text, "admission webhook")));
        }
        for policy in ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"] {
            if has(&format!("{policy} '")) {
                return Some(Self::Denied(quoted_after(text, policy)));
            }
        }
        if has("violates PodSecurity") {
            return Some(Self::Denied("PodSecurity".to_owned()));
        }
        if is_too_large(status) {
            return Some(Self::TooLarge);
        }
        let gone = text.split_once("request to convert CR to an invalid group/version: ");
        if let Some((_, version)) = gone.filter(|(_, version)| is_path(version)) {
            return Some(Self::VersionGone(version.to_owned()));
        }
        // API servers answer 500 to an apply that does not match the schema.
        let is_mistyped = has("failed to create typed patch object") || has("failed to convert new object");
        is_mistyped.then(|| Self::Invalid(unknown_fields(text)))
    }

    fn by_code(status: &Status, text: &str) -> Self {
        let has = |part: &str| text.contains(part);
        match status.code {
            400 => Self::Invalid(unknown_fields(text)),
            401 => Self::Unauthorized,
            403 if has("because it is being terminated") || has_cause(status, "NamespaceTerminating") => {
                Self::NamespaceTerminating
            }
            403 => match QUOTA_MESSAGES.iter().find(|words| has(words)) {
                Some(words) => Self::QuotaExceeded(quota_after(text, words)),
                None => match ADMISSION_PLUGIN_MESSAGES.iter().find(|(words, _)| has(words)) {
                    Some((_, plugin)) => Self::Denied((*plugin).to_owned()),
                    None => Self::Forbidden,
                },
            },
            404 => Self::NotFound,
            409 => Self::Conflict,
            410 => Self::Expired,
            422 => match problems(status) {
                Problems::Immutable(paths) => Self::Immutable(paths),
                Problems::Invalid(paths) => Self::Invalid(paths),
            },
            429 if text.starts_with(WATCH_CACHE_INITIALIZING) => Self::Initializing,
            429 => Self::Throttled(retry_after(status)),
            code @ 402..=499 => Self::Other(code),
            code => Self::Server(code),
        }
    }

    /// Returns the stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unauthorized => Reason::TargetUnauthorized,
            Self::Forbidden => Reason::TargetForbidden,
            Self::QuotaExceeded(_) => Reason::QuotaExceeded,
            Self::NamespaceTerminating => Reason::NamespaceTerminating,
            Self::Denied(_) => Reason::WebhookDenied,
            Self::WebhookFailed(_) | Self::ConversionFailed(_) | Self::NoDryRun(_) => Reason::WebhookFailed,
            Self::NotFound => Reason::DependencyMissing,
            Self::Conflict | Self::Expired | Self::VersionGone(_) => Reason::ApplyConflict,
            Self::Immutable(_) => Reason::ImmutableField,
            Self::Invalid(_) | Self::Other(_) => Reason::ApplyRefused,
            Self::TooLarge => Reason::ObjectTooLarge,
            Self::Throttled(_) => Reason::TargetThrottled,
            Self::Initializing => Reason::Progressing,
            Self::Server(_) => Reason::TargetServerError,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthorized => f.write_str("the credentials are refused"),
            Self::Forbidden => f.write_str("the roles do not allow it"),
            Self::QuotaExceeded(name) => write!(f, "quota {name} is exceeded"),
            Self::NamespaceTerminating => f.write_str("the namespace is being deleted"),
            Self::Denied(by) => write!(f, "denied by {by}"),
            Self::WebhookFailed(name) => write!(f, "webhook {name} did not answer"),
            Self::ConversionFailed(kind) => write!(f, "the conversion webhook for {kind} did not answer"),
            Self::NoDryRun(name) => write!(f, "webhook {name} does not support dry runs"),
            Self::NotFound => f.write_str("not found"),
            Self::Conflict => f.write_str("changed by another writer in the meantime"),
            Self::Expired => f.write_str("the list expired"),
            Self::VersionGone(version) => {
                write!(f, "its managedFields have version {version}, which is no longer served")
            }
            Self::Immutable(paths) => write!(f, "cannot be changed: {}", paths.join(", ")),
            Self::Invalid(paths) if paths.is_empty() => f.write_str("refused as invalid"),
            Self::Invalid(paths) => write!(f, "refused as invalid: {}", paths.join(", ")),
            Self::Other(code) => write!(f, "refused with status {code}"),
            Self::TooLarge => f.write_str("too large"),
            Self::Throttled(_) => f.write_str("the API server asks to slow down"),
            Self::Initializing => f.write_str("the API server is still loading the objects of this kind"),
            Self::Server(code) => write!(f, "the API server answers with status {code}"),
        }
    }
}

/// Reports whether a status proves that an object does not exist: an API server names the API group, the resource and
/// the object in the details. `group` is empty for the core group; `plural` is the resource, as in URLs.
///
/// Any other 404 proves nothing. A proxy answers 404 for a cluster that it does not find, also with a status that
/// names the cluster as an object of its own API group, and an API server for a path that it does not serve. Source:
/// `NewNotFound` in `staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go` of Kubernetes.
///
/// ```
/// use kube::core::Status;
/// use kyma_api::refusal::proves_absence;
///
/// let of_proxy = Status::failure("404 page not found", "NotFound").with_code(404);
/// assert!(!proves_absence(&of_proxy, "", "configmaps", "a"));
/// ```
pub fn proves_absence(status: &Status, group: &str, plural: &str, name: &str) -> bool {
    let is_named = status
        .details
        .as_ref()
        .is_some_and(|details| details.group == group && details.kind == plural && details.name == name);
    // A webhook may deny with 404 and any details; only its message identifies it.
    let is_plain = Refusal::of(status) == Refusal::NotFound;
    is_named && is_plain && !name.is_empty() && status.reason == reason::NOT_FOUND
}

/// Returns whether the API server, its gRPC client or etcd refuses an object as too large, or validation refuses more
/// than 1 MiB of data.
fn is_too_large(status: &Status) -> bool {
    let text = status.message.as_str();
    let has_too_much_data = || {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let mut causes = causes.filter(|cause| cause.reason == "FieldValueTooLong");
        causes.any(|cause| !is_path(&cause.field) || ["[]", "data"].contains(&cause.field.as_str()))
    };
    status.code == 413
        || text.contains("request is too large")
        || text.contains("trying to send message larger than max")
        || status.code == 422 && has_too_much_data()
}

fn has_cause(status: &Status, reason: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// Returns the kind whose conversion webhook failed, reduced to characters of names. Source:
/// `staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go` of Kubernetes.
fn conversion(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("conversion webhook for ")?;
    let (of, _) = rest.split_once(" failed")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "./-, =".contains(c);
    Some(if of.len() < 400 && of.chars().all(is_name) { of.to_owned() } else { "its kind".to_owned() })
}

/// Returns the quoted name after a phrase; a placeholder if no valid name follows.
fn quoted_after(text: &str, phrase: &str) -> String {
    let after = text.split_once(phrase).map_or("", |(_, after)| after);
    let name = after.split(['"', '\'']).nth(1).unwrap_or_default();
    if is_path(name) { name.to_owned() } else { UNKNOWN_NAME.to_owned() }
}

/// Returns the name of the quota after a phrase and a colon. No name follows `insufficient quota`.
fn quota_after(text: &str, phrase: &str) -> String {
    let after = text.split_once(phrase).and_then(|(_, after)| after.strip_prefix(": ")).unwrap_or_default();
    let name = after.split([',', ':', ' ']).next().unwrap_or_default();
    if is_path(name) { name.to_owned() } else { UNKNOWN_NAME.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(code: u16, message: &str) -> Refusal {
        Refusal::of(&Status::failure(message, "").with_code(code))
    }

    #[test]
    fn admission_plugins_and_quotas_are_named() {
        let quota = |name: &str| Refusal::QuotaExceeded(name.to_owned());
        let denied = |name: &str| Refusal::Denied(name.to_owned());
        let rows = [
            (
                r#"pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"#,
                quota("few"),
            ),
            (r#"pods "x" is forbidden: failed quota: few: must specify limits.cpu for: c"#, quota("few")),
            (r#"pods "x" is forbidden: status unknown for quota: few, resources: pods"#, quota("few")),
            (r#"pods "x" is forbidden: exceeded quota: <b>, requested"#, quota(UNKNOWN_NAME)),
            (r#"pods "x" is forbidden: insufficient quota to consume: pods"#, quota(UNKNOWN_NAME)),
            (
                r#"pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2"#,
                denied("LimitRange"),
            ),
            (
                r#"persistentvolumeclaims "x" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"#,
                denied("PersistentVolumeClaimResize"),
            ),
            (
                r#"priorityclasses.scheduling.k8s.io "x" is forbidden: PriorityClass y is already marked as default. Only one default can exist"#,
                denied("Priority"),
            ),
            (r"x is forbidden: MutatingAdmissionPolicy 'p' with binding 'b' denied request: no", denied("p")),
            (
                r#"pods is forbidden: User "u" cannot create resource "pods" in API group """#,
                Refusal::Forbidden,
            ),
        ];
        for (message, expected) in rows {
            assert_eq!(of(403, message), expected, "{message}");
        }
    }

    /// Returns the answer of an API server for an absent ConfigMap `a`, with these fields instead.
    fn not_found(changes: &Value) -> Status {
        let mut status = json!({
            "code": 404, "reason": "NotFound", "message": "configmaps \"a\" not found",
            "details": {"name": "a", "kind": "configmaps"},
        });
        for (field, value) in changes.as_object().unwrap() {
            status[field] = value.clone();
        }
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn only_a_404_that_names_the_object_proves_its_absence() {
        let is_proof = |changes: Value| proves_absence(&not_found(&changes), "", "configmaps", "a");
        assert!(is_proof(json!({})));
        for changes in [
            json!({"details": null}),
            json!({"details": {}}),
            json!({"details": {"kind": "configmaps"}}),
            json!({"details": {"name": "b", "kind": "configmaps"}}),
            json!({"details": {"name": "a", "kind": "namespaces"}}),
            json!({"details": {"name": "a", "group": "x.io", "kind": "configmaps"}}),
            json!({"reason": "Failed to parse error data"}),
            json!({"reason": ""}),
            json!({"code": 503}),
            json!({"message": "admission webhook \"w\" denied the request: no"}),
        ] {
            assert!(!is_proof(changes.clone()), "{changes}");
        }
        let unnamed = not_found(&json!({"details": {"kind": "configmaps"}}));
        assert!(!proves_absence(&unnamed, "", "configmaps", ""));
    }

    #[test]
    fn a_404_proves_absence_only_in_its_own_api_group() {
        let of_cluster = |group: &str| {
            not_found(&json!({
                "message": format!("clusters.{group} \"a\" not found"),
                "details": {"name": "a", "group": group, "kind": "clusters"},
            }))
        };
        assert!(proves_absence(&of_cluster("x.io"), "x.io", "clusters", "a"));
        for group in ["", "gateway.io", "X.io", "x.io.gateway.io"] {
            assert!(!proves_absence(&of_cluster(group), "x.io", "clusters", "a"), "{group}");
        }
        let without_group = not_found(&json!({"details": {"name": "a", "kind": "clusters"}}));
        assert!(!proves_absence(&without_group, "x.io", "clusters", "a"));
    }

    #[test]
    fn every_status_has_a_reason_with_its_class() {
        let rows = [
            (400, Reason::ApplyRefused),
            (401, Reason::TargetUnauthorized),
            (402, Reason::ApplyRefused),
            (403, Reason::TargetForbidden),
            (404, Reason::DependencyMissing),
            (405, Reason::ApplyRefused),
            (406, Reason::ApplyRefused),
            (409, Reason::ApplyConflict),
            (410, Reason::ApplyConflict),
            (413, Reason::ObjectTooLarge),
            (415, Reason::ApplyRefused),
            (422, Reason::ApplyRefused),
            (429, Reason::TargetThrottled),
            (499, Reason::ApplyRefused),
            (500, Reason::TargetServerError),
            (504, Reason::TargetServerError),
        ];
        for (code, reason) in rows {
            assert_eq!(of(code, "text of the target").reason(), reason, "{code}");
        }
        assert_eq!(of(429, "storage is (re)initializing").reason(), Reason::Progressing);
        assert_eq!(of(429, "storage is (re)initializing"), Refusal::Initializing);
    }
}
