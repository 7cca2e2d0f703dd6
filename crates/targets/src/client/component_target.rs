//! Identity of calls to a target: a `ServiceAccount` for the work of one component, the kubeconfig's user for streams
//! that many components share.

use std::fmt;

use crate::client::account::ServiceAccount;
use crate::client::caller::AllowedCalls;
use crate::client::target::Target;
use crate::connection::contact::Contact;
use crate::credentials::secret_key::SecretKey;

/// A target for one component. Its client names the component in the User-Agent and impersonates the component's
/// `ServiceAccount`, if it has one. It gives no access to a client of the kubeconfig's user that could write. Cheap
/// to clone; shares connections, breaker and budgets with the [`Target`].
#[derive(Clone)]
pub struct ComponentTarget {
    target: Target,
    account: Option<ServiceAccount>,
    client: kube::Client,
}

impl Target {
    /// Returns the target for one component: its client impersonates `account`, if there is one, and has
    /// `component_uid` in the User-Agent, so that the target's audit log shows which component caused a call.
    pub fn acting_for(&self, component_uid: &str, account: Option<ServiceAccount>) -> ComponentTarget {
        let client = self.component_client(component_uid, account.as_ref(), AllowedCalls::All);
        ComponentTarget { target: self.clone(), account, client }
    }

    /// Returns the same as [`Target::acting_for`], with a client that changes nothing: writes are sent as dry runs.
    /// Deletions are not sent, since their dry run is requested in the body; they fail with
    /// [`TargetError::Request`](crate::TargetError::Request).
    pub fn dry_run_for(&self, component_uid: &str, account: Option<ServiceAccount>) -> ComponentTarget {
        let client = self.component_client(component_uid, account.as_ref(), AllowedCalls::DryRuns);
        ComponentTarget { target: self.clone(), account, client }
    }
}

impl ComponentTarget {
    /// Returns the client for the component's calls, bounded and fenced like [`Target::client`].
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the impersonated account; `None`: the kubeconfig's user.
    pub fn account(&self) -> Option<&ServiceAccount> {
        self.account.as_ref()
    }

    /// The Secret that leads here; none for the hub itself.
    pub fn key(&self) -> Option<&SecretKey> {
        self.target.key()
    }

    /// Returns the same as [`Target::contact`].
    pub fn contact(&self) -> Contact {
        self.target.contact()
    }

    /// Returns the same as [`Target::is_withdrawn`].
    pub fn is_withdrawn(&self) -> bool {
        self.target.is_withdrawn()
    }
}

impl fmt::Debug for ComponentTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComponentTarget")
            .field("key", &self.key())
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

/// Access for the streams that all components on a target share. Always as the kubeconfig's user, since one stream
/// serves components with different accounts. Allows only reads.
#[derive(Clone, Debug)]
pub struct Streams(Target);

impl Streams {
    /// Returns the client for lists and watches. A write fails with
    /// [`TargetError::Request`](crate::TargetError::Request).
    pub fn client(&self) -> kube::Client {
        self.0.reader()
    }

    /// The Secret that leads here; none for the hub itself.
    pub fn key(&self) -> Option<&SecretKey> {
        self.0.key()
    }

    /// Returns the same as [`Target::is_withdrawn`].
    pub fn is_withdrawn(&self) -> bool {
        self.0.is_withdrawn()
    }

    /// Returns the same as [`Target::calls_pass`].
    pub fn calls_pass(&self) -> bool {
        self.0.calls_pass()
    }

    /// Waits like [`Target::healthy_again`].
    pub async fn healthy_again(&self) {
        self.0.healthy_again().await;
    }
}

impl From<&Target> for Streams {
    fn from(target: &Target) -> Self {
        Self(target.clone())
    }
}

impl From<&ComponentTarget> for Streams {
    fn from(target: &ComponentTarget) -> Self {
        Self(target.target.clone())
    }
}
