//! The traits that a team implements for its own component: two steps and two RBAC tables. The driver does everything
//! else.

use std::{future::Future, time::Duration};

use kyma_api::{FreeForm, Reason, State, condition::Condition};
use kyma_controller::{Blocking, Failure, Rule, Wait};
use kyma_targets::ServiceAccount;

use crate::context::Context;
use crate::contract::ComponentResource;

/// A reconciler for one kind of component. [The crate](crate) has an example.
///
/// The driver calls [`install`](Self::install) whenever something that matters has changed, with a client for the
/// right target; it resolves access, proves the target's identity, obeys suspension and deletion rules, writes
/// status, and decides when to come back. Both steps must be idempotent and return instead of waiting: a reconcile
/// has a deadline, and what they read or wrote through [`Context`] is watched, so a change brings them back.
pub trait Component: Send + Sync + 'static {
    /// The kind.
    type Resource: ComponentResource;

    /// Name of the operator: field manager, User-Agent, name of its roles. A DNS label.
    const NAME: &'static str;

    /// Its version, semver: `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str;

    /// RBAC rules for both steps on targets. Kinds that they read or write through [`Context`] need `get`, `list` and
    /// `watch` besides; kinds that [`blocking`](Self::blocking) names need `list` and `watch`. The kind of the default CR needs
    /// `get`, `list`, `watch`, `create`, `patch` and `delete`, the kind of `spec.manager` needs `list` and `watch`.
    const TARGET_RULES: &'static [Rule];

    /// RBAC rules for both steps on the hub, in the hub namespace, besides the rules of the driver. Default: none.
    const HUB_RULES: &'static [Rule] = &[];

    /// Reasons of its own, made with [`Reason::own`]; `reasons` prints them beside the common ones. Default: none.
    const REASONS: &'static [Reason] = &[];

    /// Whether both steps create and delete the module's default CR (`spec.resource`) and report it in
    /// `status.resource`. Default: false, the driver does.
    const HANDLES_DEFAULT_RESOURCE: bool = false;

    /// Whether [`install`](Self::install) judges the health of `spec.manager` itself. Default: false, the driver does.
    const JUDGES_MANAGER: bool = false;

    /// Brings the target to the state that the resource requests. Called again until nothing is left to do; must then
    /// write nothing.
    fn install(
        &self,
        context: &Context<Self::Resource>,
    ) -> impl Future<Output = Result<Progress, Failure>> + Send;

    /// Removes the objects that install created. Called only if the deletion was requested and no object of
    /// [`blocking`](Self::blocking) is left. Must tolerate that install never ran.
    fn remove(
        &self,
        context: &Context<Self::Resource>,
    ) -> impl Future<Output = Result<Removal, Failure>> + Send;

    /// Returns the kinds whose objects belong to users and block the removal while any exists. Default: none.
    fn blocking(&self, _resource: &Self::Resource) -> Blocking {
        Blocking::default()
    }

    /// Returns the `ServiceAccount` on the target that both steps impersonate; [`Context::target`] has no other
    /// client. The role on targets needs `impersonate` on `serviceaccounts` for it. Default: the kubeconfig's user.
    ///
    /// # Errors
    /// A policy requires a `ServiceAccount` and the resource names none. Then no call is sent.
    fn account(&self, _resource: &Self::Resource) -> Result<Option<ServiceAccount>, Failure> {
        Ok(None)
    }

    /// Drops cached state of a resource that is gone from the hub or was released. Default: does nothing.
    fn forget(&self, _namespace: &str, _name: &str) {}
}

/// Result of [`Component::install`]. Start with [`Progress::ready`], [`Progress::working`] or [`Progress::stopped`].
///
/// ```
/// use kyma_sdk::Progress;
/// use kyma_sdk::api::State;
///
/// assert_eq!(Progress::ready("1.2.0").state, State::Ready);
/// assert_eq!(Progress::working("waiting for Deployment kyma-system/server").state, State::Processing);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// State of the module.
    pub state: State,
    /// `status.version`: the version whose objects are on the target; `None` keeps the reported one.
    pub version: Option<String>,
    /// Reason of the condition Ready.
    pub reason: Reason,
    /// Message of the condition Ready. Must be the same as long as nothing changes.
    pub message: String,
    /// Conditions beyond Ready and `TargetReachable`, which the driver sets. Conditions that are not listed stay.
    pub conditions: Vec<Condition>,
    /// Further fields of the status, by top-level name; `null` removes a field. Fields that are not named stay.
    pub status: FreeForm,
    /// When to reconcile again without an event.
    pub wait: Wait,
    /// The failure that stopped the step; its class decides when the driver reconciles again.
    pub failure: Option<Failure>,
}

impl Progress {
    /// Reports that the target matches the resource and `version` runs.
    pub fn ready(version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..Self::new(State::Ready, Reason::Ready, "") }
    }

    /// Reports that work is in progress; `message` names the awaited event.
    pub fn working(message: impl Into<String>) -> Self {
        Self::new(State::Processing, Reason::Progressing, message)
    }

    /// Reports that the module works but needs attention of a user.
    pub fn warning(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(State::Warning, reason, message)
    }

    /// Reports that a failure stopped the step. Unlike returning the failure as an error, this allows for conditions
    /// and status.
    pub fn stopped(failure: Failure) -> Self {
        let state = failure_state(&failure);
        Self { failure: Some(failure.clone()), ..Self::new(state, failure.reason, failure.message) }
    }

    /// Adds a condition.
    ///
    /// ```
    /// use kyma_sdk::api::Reason;
    /// use kyma_sdk::api::condition::Status;
    /// use kyma_sdk::{Condition, Progress};
    ///
    /// let backup = Condition::new("BackupReady", Status::False, Reason::Progressing).with_message("no backup yet");
    /// let progress = Progress::ready("1.2.0").with_condition(backup);
    /// assert_eq!(progress.conditions[0].type_, "BackupReady");
    /// ```
    pub fn with_condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Requests a reconcile after this time at the latest.
    pub fn again_after(mut self, delay: Duration) -> Self {
        self.wait = Wait::Timer(delay);
        self
    }

    /// Requests a reconcile after this time at the latest, or earlier if that was requested before.
    pub fn again_within(mut self, delay: Duration) -> Self {
        self.wait = self.wait.at_most(delay);
        self.failure = self.failure.map(|failure| failure.no_later_than(delay));
        self
    }

    /// Adds an event that the component waits for. The message of a step that is not Ready stays in front of it.
    pub(crate) fn awaiting(self, event: &str) -> Self {
        let own = Some(self.message.as_str()).filter(|own| self.state != State::Ready && !own.is_empty());
        let message = own.into_iter().chain([event]).collect::<Vec<_>>().join("; ");
        Self { state: State::Processing, reason: Reason::Progressing, message, ..self }
    }

    /// Replaces the result by a failure. Version, conditions and status stay, and so does the time of the next
    /// reconcile.
    pub(crate) fn stopped_by(self, failure: Failure) -> Self {
        let Self { version, conditions, status, wait, .. } = self;
        let failure = match wait {
            Wait::Event => failure,
            Wait::Timer(left) | Wait::Answer(left) => failure.no_later_than(left),
        };
        Self { version, conditions, status, ..Self::stopped(failure) }
    }

    fn new(state: State, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            state,
            version: None,
            reason,
            message: message.into(),
            conditions: vec![],
            status: FreeForm::new(),
            wait: Wait::Event,
            failure: None,
        }
    }
}

/// Returns the state of a component with this failure.
pub(crate) fn failure_state(failure: &Failure) -> State {
    use kyma_api::ErrorClass as Class;
    match (failure.class, failure.reason) {
        // Retried, since a source's answer may change; state Error until then.
        (
            _,
            Reason::SourceInvalid
            | Reason::SourceTooLarge
            | Reason::SourceHostRefused
            | Reason::ManifestInvalid,
        ) => State::Error,
        (_, Reason::AwaitingAccess) | (Class::Transient, _) => State::Processing,
        (Class::Invalid | Class::Unreachable, _)
        | (
            _,
            Reason::TargetChanged
            | Reason::TargetInUse
            | Reason::TargetIsHub
            | Reason::StampMismatch
            | Reason::ApplyRefused
            | Reason::ImmutableField
            | Reason::ObjectTooLarge,
        ) => State::Error,
        (Class::Blocked, _) => State::Warning,
    }
}

/// Result of [`Component::remove`].
///
/// ```
/// use kyma_sdk::Removal;
///
/// fn removal(left: &[&str]) -> Removal {
///     if left.is_empty() { Removal::Done } else { Removal::waiting(format!("waiting for the deletion of {}", left.join(", "))) }
/// }
///
/// assert_eq!(removal(&[]), Removal::Done);
/// assert_ne!(removal(&["ConfigMap kyma-system/a"]), Removal::Done);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one is made for each pass, and consumed at once")]
pub enum Removal {
    /// No object of the component is left on the target; the driver removes the finalizer.
    Done,
    /// Objects are still there.
    Waiting(Progress),
}

impl Removal {
    /// Reports that objects are still there; `message` names them.
    pub fn waiting(message: impl Into<String>) -> Self {
        Self::Waiting(Progress::new(State::Deleting, Reason::Deleting, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaiting_access_is_never_an_error_and_wrong_cluster_always() {
        let state = |reason| failure_state(&Failure::new(reason, ""));
        assert_eq!(state(Reason::AwaitingAccess), State::Processing);
        assert_eq!(state(Reason::HubUnavailable), State::Processing);
        assert_eq!(state(Reason::DeletionBlocked), State::Warning);
        for reason in [
            Reason::TargetChanged,
            Reason::TargetInUse,
            Reason::ValuesInvalid,
            Reason::TargetTimeout,
            Reason::SourceInvalid,
            Reason::SourceHostRefused,
        ] {
            assert_eq!(state(reason), State::Error, "{reason}");
        }
    }

    #[test]
    fn the_earlier_of_two_moments_counts() {
        let (soon, late) = (Duration::from_secs(1), Duration::from_secs(9));
        assert_eq!(Progress::ready("").again_within(late).wait, Wait::Timer(late));
        assert_eq!(Progress::ready("").again_after(soon).again_within(late).wait, Wait::Timer(soon));
        assert_eq!(Progress::ready("").again_after(late).again_within(soon).wait, Wait::Timer(soon));
    }

    #[test]
    fn a_failure_brings_its_reason_and_message_to_the_condition() {
        let stopped = Progress::stopped(Failure::new(Reason::ApplyRefused, "spec.replicas"));
        assert_eq!((stopped.reason, stopped.message.as_str()), (Reason::ApplyRefused, "spec.replicas"));
        assert!(stopped.failure.is_some() && stopped.version.is_none());
    }
}
