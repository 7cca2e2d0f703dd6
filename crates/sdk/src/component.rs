//! What a team writes to bring its own component: two steps and two tables. Everything else is the driver's.

use std::{future::Future, time::Duration};

use kube::CustomResourceExt;
use kyma_api::{FreeForm, GroupKind, Reason, State, condition::Status};
use kyma_targets::ServiceAccount;
use serde::Serialize;

use crate::{Context, Failure, HubResource, Rule};

/// A kind that can be a component: namespaced, with the fields of [`crate::ComponentSpec`] in its spec and those
/// of [`crate::ComponentStatus`] in its status. Implemented for every custom resource; the fields are checked when
/// the program starts ([`kyma_api::component::check`]).
pub trait ComponentResource: HubResource + CustomResourceExt + Serialize {}

impl<T: HubResource + CustomResourceExt + Serialize> ComponentResource for T {}

/// A reconciler for one kind of component.
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

    /// What both steps do on targets. Kinds that they read or write through [`Context`] need `get`, `list` and
    /// `watch` besides; kinds that [`blocking`](Self::blocking) names need `list` and `watch`.
    const TARGET_RULES: &'static [Rule];

    /// What both steps do on the hub, in the hub namespace, beyond what the driver itself needs. Default: nothing.
    const HUB_RULES: &'static [Rule] = &[];

    /// Reasons of its own, made with [`Reason::own`]; `reasons` prints them beside the common ones. Default: none.
    const REASONS: &'static [Reason] = &[];

    /// Brings the target to what the resource wishes. Called again until nothing is left to do, and then must
    /// write nothing.
    fn install(
        &self,
        context: &Context<Self::Resource>,
    ) -> impl Future<Output = Result<Progress, Failure>> + Send;

    /// Takes away what install created; called only when that was ordered and nothing of [`blocking`](Self::blocking)
    /// is left. Must tolerate that install never ran.
    fn remove(
        &self,
        context: &Context<Self::Resource>,
    ) -> impl Future<Output = Result<Removal, Failure>> + Send;

    /// Kinds whose objects on the target belong to users and hold up the removal while any exists. Default: none.
    fn blocking(&self, _resource: &Self::Resource) -> Blocking {
        Blocking::default()
    }

    /// The ServiceAccount on the target in whose name both steps act; [`Context::target`] has no other client. The role
    /// on targets needs `impersonate` on `serviceaccounts` for it. Default: the kubeconfig's user.
    ///
    /// # Errors
    /// There is none, and there has to be one: nothing is sent.
    fn account(&self, _resource: &Self::Resource) -> Result<Option<ServiceAccount>, Failure> {
        Ok(None)
    }

    /// The resource is gone from the hub, or was released: forget what is remembered for it. Default: nothing.
    fn forget(&self, _namespace: &str, _name: &str) {}
}

/// Which objects hold up a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocking {
    /// The kinds; without version, every served one is looked at.
    pub kinds: Vec<GroupKind>,
    /// uids of objects that do not count: the component's own inventory and the default CR.
    pub own: Vec<String>,
}

/// How far [`Component::install`] got. Start with [`Progress::ready`], [`Progress::working`] or
/// [`Progress::stopped`].
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// State of the module.
    pub state: State,
    /// `status.version`: the version whose objects are on the target; `None` keeps what is reported.
    pub version: Option<String>,
    /// Reason of the condition Ready.
    pub reason: Reason,
    /// Message of the condition Ready. Must be the same as long as nothing changes.
    pub message: String,
    /// Conditions beyond Ready and `TargetReachable`, which are the driver's. One that is not given stays.
    pub conditions: Vec<Step>,
    /// Further fields of the status, by top-level name; `null` removes one. What is not named stays.
    pub status: FreeForm,
    /// When to come back without an event.
    pub wait: Wait,
    /// What kept it from going on; its class decides when the driver comes back.
    pub failure: Option<Failure>,
}

/// One condition as a component reports it; the driver adds generation and transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// One of [`kyma_api::condition::types`], or a type of the component's own.
    pub type_: &'static str,
    /// Its value.
    pub status: Status,
    /// The cause.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

/// When to come back without an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Not before the resync: everything that matters is watched.
    #[default]
    Event,
    /// After this time: something is due at a known moment.
    Timer(Duration),
    /// For a first answer, this long at most. Nothing was tried yet: failures in a row are counted on.
    Answer(Duration),
}

impl Wait {
    /// The same, but after this time at the latest.
    pub(crate) fn at_most(self, delay: Duration) -> Self {
        match self {
            Self::Event => Self::Timer(delay),
            Self::Timer(earlier) => Self::Timer(earlier.min(delay)),
            Self::Answer(earlier) => Self::Answer(earlier.min(delay)),
        }
    }
}

impl Progress {
    /// Everything is as wished and `version` runs.
    pub fn ready(version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..Self::new(State::Ready, Reason::Ready, "") }
    }

    /// Not yet; `message` says what is awaited.
    pub fn working(message: impl Into<String>) -> Self {
        Self::new(State::Processing, Reason::Progressing, message)
    }

    /// Works, but a person should look.
    pub fn warning(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(State::Warning, reason, message)
    }

    /// Something keeps it from going on. The same as returning the failure as an error, but with room for
    /// conditions and status.
    pub fn stopped(failure: Failure) -> Self {
        let state = failure_state(&failure);
        Self { failure: Some(failure.clone()), ..Self::new(state, failure.reason, failure.message) }
    }

    /// Adds a condition.
    pub fn step(
        mut self,
        type_: &'static str,
        status: Status,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        self.conditions.push(Step { type_, status, reason, message: message.into() });
        self
    }

    /// Comes back after this time at the latest.
    pub fn again_after(mut self, delay: Duration) -> Self {
        self.wait = Wait::Timer(delay);
        self
    }

    /// Comes back after this time at the latest, or earlier where that was said already.
    pub fn again_within(mut self, delay: Duration) -> Self {
        self.wait = self.wait.at_most(delay);
        self
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

/// The state that a failure puts a component into.
pub fn failure_state(failure: &Failure) -> State {
    use kyma_api::ErrorClass as Class;
    match (failure.class, failure.reason) {
        // Tried again, since a source's answer may change, and an error until then.
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

/// How far [`Component::remove`] got.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one is made for each pass, and consumed at once")]
pub enum Removal {
    /// Nothing of ours is left on the target; the finalizer goes.
    Done,
    /// Something is still there.
    Waiting(Progress),
}

impl Removal {
    /// Something is still there; `message` names it.
    pub fn waiting(message: impl Into<String>) -> Self {
        Self::Waiting(Progress::new(State::Deleting, Reason::Deleting, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_access_is_never_an_error_and_the_wrong_cluster_always_is() {
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
