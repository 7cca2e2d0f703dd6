//! In whose name calls go to a target: that of one ServiceAccount for what is done for a component, that of the
//! kubeconfig's user for the streams that many components share.

use std::fmt;

use http::HeaderValue;

use crate::cache::SecretKey;
use crate::target::Target;

/// A ServiceAccount on a target in whose name calls are made. The apiserver fills its groups in.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServiceAccount {
    user: HeaderValue,
    text: String,
}

impl ServiceAccount {
    /// The account of this name; `None` where a ServiceAccount can't have such a name or namespace.
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        let text = format!("system:serviceaccount:{namespace}:{name}");
        let user = HeaderValue::from_str(&text).ok()?;
        (is_name(namespace) && is_name(name)).then_some(Self { user, text })
    }

    pub(crate) fn user(&self) -> &HeaderValue {
        &self.user
    }
}

/// Its user name, `system:serviceaccount:<namespace>:<name>`.
impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceAccount({self})")
    }
}

/// A colon would make another user of it.
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed)
}

/// A target for one component: its client says who it is for, and acts as its ServiceAccount if it has one. No way
/// leads from here to a client of the kubeconfig's user that could write. Cheap to clone; shares connections, breaker
/// and budgets with the [`Target`].
#[derive(Clone)]
pub struct Acting {
    target: Target,
    account: Option<ServiceAccount>,
    client: kube::Client,
}

impl Acting {
    pub(crate) fn new(target: Target, account: Option<ServiceAccount>, client: kube::Client) -> Self {
        Self { target, account, client }
    }

    /// Client for calls in the component's name; bounded and fenced as [`Target::client`] is.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Who it acts as; `None`: the kubeconfig's user.
    pub fn account(&self) -> Option<&ServiceAccount> {
        self.account.as_ref()
    }

    /// The Secret that leads here; none for the hub itself.
    pub fn key(&self) -> Option<&SecretKey> {
        self.target.key()
    }
}

impl fmt::Debug for Acting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acting")
            .field("place", &self.key())
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

/// What streams are opened with that all components on a target share: always as the kubeconfig's user, since one
/// stream serves components of several accounts. Reads pass, nothing else.
#[derive(Clone, Debug)]
pub struct Streams(Target);

impl Streams {
    /// Client for lists and watches. What would change something ends with
    /// [`TargetError::Request`](crate::TargetError::Request).
    pub fn client(&self) -> kube::Client {
        self.0.reader()
    }

    /// The Secret that leads here; none for the hub itself.
    pub fn key(&self) -> Option<&SecretKey> {
        self.0.key()
    }

    /// As [`Target::calls_pass`].
    pub fn calls_pass(&self) -> bool {
        self.0.calls_pass()
    }

    /// As [`Target::healthy_again`].
    pub async fn healthy_again(&self) {
        self.0.healthy_again().await;
    }
}

impl From<&Target> for Streams {
    fn from(target: &Target) -> Self {
        Self(target.clone())
    }
}

impl From<&Acting> for Streams {
    fn from(acting: &Acting) -> Self {
        Self(acting.target.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_one_user_and_no_other() {
        let text = |namespace, name| ServiceAccount::new(namespace, name).map(|account| account.to_string());
        assert_eq!(text("n", "a.b-1").as_deref(), Some("system:serviceaccount:n:a.b-1"));
        for name in ["", "a:b", "a/b", "A", "a b", "a\nImpersonate-Group: system:masters", &"x".repeat(254)] {
            assert_eq!((text("n", name), text(name, "a")), (None, None), "{name:?}");
        }
    }
}
