//! Classifies a target's answer to a call, with a stable reason.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kyma_api::refusal::proves_absence;
use kyma_api::{ErrorClass, Reason, Refusal};
use thiserror::Error;

use crate::cluster::discovery::kinds::Mapping;
use crate::object::Identity;

/// Maximum number of fields of one refusal that are compared: a target may name any number.
const MAX_REFUSED_FIELDS: usize = 1_000;

/// The attempted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Discover the served kinds.
    Discover,
    /// Read one object.
    Get,
    /// List objects of a kind.
    List,
    /// Server-side apply.
    Apply,
    /// Create without replacing.
    Create,
    /// Change bookkeeping in `metadata`.
    Patch,
    /// Delete.
    Delete,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discover => "discovering the API",
            Self::Get => "reading",
            Self::List => "listing",
            Self::Apply => "applying",
            Self::Create => "creating",
            Self::Patch => "taking over",
            Self::Delete => "deleting",
        })
    }
}

/// A call that failed. Its text holds paths and reasons of the answer, never values.
#[derive(Clone, Error)]
pub struct CallError {
    /// The attempted call.
    pub action: Action,
    /// The object or, with an empty name, the kind.
    pub object: Option<Identity>,
    /// Kind of failure.
    pub failure: Failure,
    cause: Arc<kube::Error>,
}

impl CallError {
    /// Classifies the error of a call.
    pub fn new(action: Action, object: Option<&Identity>, error: kube::Error) -> Self {
        let failure = match missing_namespace(&error, object) {
            Some(namespace) => Failure::NamespaceMissing(namespace),
            None => Failure::of(&error),
        };
        Self { action, object: object.cloned(), failure, cause: Arc::new(error) }
    }

    /// An object that cannot be reached, since the API group of its kind does not answer.
    pub fn group_unknown(object: &Identity) -> Self {
        let cause = kube::error::DiscoveryError::MissingApiGroup(object.group.clone());
        Self {
            action: Action::Get,
            object: Some(object.clone()),
            failure: Failure::GroupUnknown(object.group.clone()),
            cause: Arc::new(kube::Error::Discovery(cause)),
        }
    }

    /// A list of a kind that is longer than any that an API server sends.
    pub(crate) fn endless_list(kind: &Identity) -> Self {
        let cause = kube::error::DiscoveryError::MissingResource(kind.kind.clone());
        Self::new(Action::List, Some(kind), kube::Error::Discovery(cause))
    }

    /// A deletion that the operator does not allow now: a Pause, the brake, or a rule that protects the object.
    pub fn halted(object: &Identity, reason: Reason, message: &str) -> Self {
        Self {
            action: Action::Delete,
            object: Some(object.clone()),
            failure: Failure::Halted { reason, message: message.to_owned() },
            // No call was made, so there is no answer to keep.
            cause: Arc::new(kube::Error::Service("the delete gate refused".into())),
        }
    }

    /// Returns the namespace that has to exist before the call can succeed.
    pub fn missing_namespace(&self) -> Option<&str> {
        match &self.failure {
            Failure::NamespaceMissing(namespace) => Some(namespace),
            _ => None,
        }
    }

    /// Returns the original error if it concerns the target as a whole and not the object. The owner of the client
    /// can classify it better than [`CallError::reason`]. It may contain text of the target, so it must not be
    /// printed.
    pub fn of_target(&self) -> Option<&kube::Error> {
        self.failure.is_of_target().then_some(&*self.cause)
    }

    pub(crate) fn cause(&self) -> &kube::Error {
        &self.cause
    }

    /// Returns the fields that a refusal names. They are the target's text: compare them, do not print them.
    pub(crate) fn refused_fields(&self) -> Vec<String> {
        let kube::Error::Api(status) = self.cause() else { return Vec::new() };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let fields = causes.map(|cause| cause.field.clone()).filter(|field| !field.is_empty());
        fields.take(MAX_REFUSED_FIELDS).collect()
    }

    /// Returns a description of the attempted call and its object.
    pub fn attempt(&self) -> String {
        match &self.object {
            Some(object) => format!("{} {object}", self.action),
            None => self.action.to_string(),
        }
    }

    /// Reports whether only the aggregated API of the object's group may be unreachable, so that the cached discovery
    /// is outdated.
    pub(crate) fn may_be_of_group(&self) -> bool {
        self.failure == Failure::Server(503)
            && self.object.as_ref().is_some_and(|object| object.group.contains('.'))
    }

    /// Reports whether the API server refused an object since another object holds a value that it allocates once,
    /// such as a node port or a cluster address.
    /// Source: `pkg/registry/core/service` (`portallocator.ErrAllocated`, `ipallocator.ErrAllocated`) of Kubernetes.
    pub fn is_already_allocated(&self) -> bool {
        matches!(self.cause(), kube::Error::Api(status) if status.code == 422 && status.message.contains("already allocated"))
    }

    /// Reports whether an apply failed since the target does not serve the kind (and not since its Namespace is
    /// absent).
    pub(crate) fn is_missing_kind(&self) -> bool {
        self.action == Action::Apply && self.is_about_no_object()
    }

    /// Reports whether the kind was not found. The answer for an absent object contains its name.
    pub(crate) fn is_about_no_object(&self) -> bool {
        let names_an_object = match self.cause() {
            kube::Error::Api(status) => {
                status.details.as_ref().is_some_and(|details| !details.name.is_empty())
            }
            _ => true,
        };
        self.failure == Failure::NotFound && !names_an_object
    }

    /// Reports whether the answer proves that the object does not exist ([`proves_absence`]).
    pub(crate) fn is_absence(&self, mapping: &Mapping) -> bool {
        let name = self.object.as_ref().map_or("", |object| object.name.as_str());
        let resource = &mapping.resource;
        matches!(
            self.cause(),
            kube::Error::Api(status) if proves_absence(status, &resource.group, &resource.plural, name)
        )
    }

    /// Marks a 404 that does not prove the absence of the object. Other failures stay as they are.
    pub(crate) fn without_proof_of_absence(mut self) -> Self {
        if self.failure == Failure::NotFound {
            self.failure = Failure::AbsenceUnproven;
        }
        self
    }

    /// Returns the error class.
    pub fn class(&self) -> ErrorClass {
        self.reason().class().unwrap_or(ErrorClass::Transient)
    }

    /// Returns the stable reason.
    pub fn reason(&self) -> Reason {
        self.failure.reason()
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallError({self})")
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.attempt(), self.failure)
    }
}

/// Kinds of failures that need different reactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer: connection, TLS, deadline or breaker; [`CallError::of_target`] has the cause.
    NoAnswer,
    /// The response is not one of an API server.
    Unreadable,
    /// 401.
    Unauthorized,
    /// 403 by RBAC.
    Forbidden,
    /// 403 by a resource quota; its name if the answer has it.
    QuotaExceeded(String),
    /// 403 because the namespace is being deleted.
    NamespaceTerminating,
    /// A webhook or admission policy denied the request; its name if the answer has it.
    Denied(String),
    /// A webhook failed; its name if the answer has it.
    WebhookFailed(String),
    /// The conversion webhook of the object's CRD failed; `group/version, Kind=…` if the answer has it.
    ConversionFailed(String),
    /// A webhook has side effects, so dry runs are refused; its name if the answer has it.
    NoDryRun(String),
    /// 404: the object or its kind does not exist.
    NotFound,
    /// 404 that does not name the object, although the target serves its kind: a proxy may have answered.
    AbsenceUnproven,
    /// 404 because the object's namespace does not exist; its name.
    NamespaceMissing(String),
    /// The API group of the object's kind does not answer, so that the object's state is unknown; the group's name.
    GroupUnknown(String),
    /// 404 for a kind of a CRD that was established a moment ago: the API server is about to serve it.
    NotServedYet,
    /// 409: changed or created meanwhile, or a precondition does not hold.
    Conflict,
    /// 410 or an expired list token.
    Expired,
    /// 500 since fields of an object were written in an API version that its kind no longer has; that
    /// `group/version`.
    VersionGone(String),
    /// 422 since immutable fields would change; their paths.
    Immutable(Vec<String>),
    /// 400 or 422: paths with the API server's reason.
    Refused(Vec<String>),
    /// The object is too large for the API server or etcd.
    TooLarge,
    /// Another status from 400 to 499.
    RefusedWith(u16),
    /// 429, with the value of `Retry-After`.
    Throttled(Option<Duration>),
    /// 429 while the API server fills its cache of the kind.
    Initializing,
    /// Another status, 5xx in most cases.
    Server(u16),
    /// No call was made: the delete gate refused.
    Halted {
        /// Stable reason.
        reason: Reason,
        /// Message for users.
        message: String,
    },
}

impl Failure {
    /// Classifies an error of the client.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Refusal::of(status).into(),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) | kube::Error::Discovery(_) => {
                Self::Unreadable
            }
            _ => Self::NoAnswer,
        }
    }

    /// Returns the stable reason, which is less precise if [`Failure::is_of_target`].
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoAnswer => Reason::TargetUnreachable,
            Self::Unreadable | Self::AbsenceUnproven => Reason::TargetAnswerInvalid,
            Self::Unauthorized => Reason::TargetUnauthorized,
            Self::Forbidden => Reason::TargetForbidden,
            Self::QuotaExceeded(_) => Reason::QuotaExceeded,
            Self::NamespaceTerminating => Reason::NamespaceTerminating,
            Self::Denied(_) => Reason::WebhookDenied,
            Self::WebhookFailed(_) | Self::ConversionFailed(_) | Self::NoDryRun(_) => Reason::WebhookFailed,
            Self::NotFound | Self::NamespaceMissing(_) => Reason::DependencyMissing,
            Self::GroupUnknown(_) => Reason::DiscoveryFailed,
            Self::NotServedYet | Self::Initializing => Reason::Progressing,
            Self::Conflict | Self::Expired | Self::VersionGone(_) => Reason::ApplyConflict,
            Self::Immutable(_) => Reason::ImmutableField,
            Self::Refused(_) | Self::RefusedWith(_) => Reason::ApplyRefused,
            Self::TooLarge => Reason::ObjectTooLarge,
            Self::Throttled(_) => Reason::TargetThrottled,
            Self::Server(_) => Reason::TargetServerError,
            Self::Halted { reason, .. } => *reason,
        }
    }

    /// Reports whether the target as a whole has a problem, so that further calls would fail too.
    pub fn is_of_target(&self) -> bool {
        matches!(
            self,
            Self::NoAnswer | Self::Unreadable | Self::Unauthorized | Self::Throttled(_) | Self::Server(_)
        )
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unauthorized => Self::Unauthorized,
            Refusal::Forbidden => Self::Forbidden,
            Refusal::QuotaExceeded(name) => Self::QuotaExceeded(name),
            Refusal::NamespaceTerminating => Self::NamespaceTerminating,
            Refusal::Denied(by) => Self::Denied(by),
            Refusal::WebhookFailed(name) => Self::WebhookFailed(name),
            Refusal::ConversionFailed(kind) => Self::ConversionFailed(kind),
            Refusal::NoDryRun(name) => Self::NoDryRun(name),
            Refusal::NotFound => Self::NotFound,
            Refusal::Conflict => Self::Conflict,
            Refusal::Expired => Self::Expired,
            Refusal::VersionGone(version) => Self::VersionGone(version),
            Refusal::Immutable(paths) => Self::Immutable(paths),
            Refusal::Invalid(paths) => Self::Refused(paths),
            Refusal::Other(code) => Self::RefusedWith(code),
            Refusal::TooLarge => Self::TooLarge,
            Refusal::Throttled(after) => Self::Throttled(after),
            Refusal::Initializing => Self::Initializing,
            Refusal::Server(code) => Self::Server(code),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => f.write_str("no answer"),
            Self::Unreadable => f.write_str("the answer is not one of an API server"),
            Self::Unauthorized => f.write_str("the credentials are refused"),
            Self::Forbidden => f.write_str("the roles do not allow it"),
            Self::QuotaExceeded(name) => write!(f, "quota {name} is exceeded"),
            Self::NamespaceTerminating => f.write_str("the namespace is being deleted"),
            Self::Denied(by) => write!(f, "denied by {by}"),
            Self::WebhookFailed(name) => write!(f, "webhook {name} did not answer"),
            Self::ConversionFailed(of) => write!(f, "the conversion webhook for {of} did not answer"),
            Self::NoDryRun(name) => write!(f, "webhook {name} does not support dry runs"),
            Self::NotFound => f.write_str("not found"),
            Self::AbsenceUnproven => f.write_str(
                "the answer is 404 and does not name the object, so that a proxy may have sent it; check what answers \
                 in place of the API server",
            ),
            Self::NamespaceMissing(name) => write!(f, "namespace {name} does not exist"),
            Self::GroupUnknown(group) => write!(f, "the API group {group} does not answer"),
            Self::NotServedYet => f.write_str("its kind is not served yet"),
            Self::Conflict => f.write_str("changed by another writer in the meantime"),
            Self::Expired => f.write_str("the list expired"),
            Self::VersionGone(version) => {
                write!(f, "its managedFields have version {version}, which is no longer served")
            }
            Self::Immutable(paths) => write!(f, "cannot be changed: {}", paths.join(", ")),
            Self::Refused(paths) if paths.is_empty() => f.write_str("refused as invalid"),
            Self::Refused(paths) => write!(f, "refused as invalid: {}", paths.join(", ")),
            Self::TooLarge => f.write_str("too large"),
            Self::RefusedWith(code) => write!(f, "refused with status {code}"),
            Self::Throttled(_) => f.write_str("the API server asks to slow down"),
            Self::Initializing => f.write_str("the API server is still loading the objects of this kind"),
            Self::Server(code) => write!(f, "the API server answers with status {code}"),
            Self::Halted { message, .. } => f.write_str(message),
        }
    }
}

/// Returns the namespace of an object, if the answer says that the namespace was not found.
fn missing_namespace(error: &kube::Error, object: Option<&Identity>) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    let details = status.details.as_ref().filter(|details| details.kind == "namespaces")?;
    let namespace = object?.namespace.as_ref()?;
    (status.code == 404 && details.name == *namespace).then(|| namespace.clone())
}

#[cfg(test)]
mod tests;
