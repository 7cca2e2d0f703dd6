//! A `ServiceAccount` on a target that calls impersonate.

use std::fmt;

use http::HeaderValue;

/// A `ServiceAccount` on a target that calls impersonate. The API server adds its groups.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServiceAccount {
    user: HeaderValue,
    text: String,
}

impl ServiceAccount {
    /// Returns the account of this name; `None` if Kubernetes allows no such name or namespace.
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

/// Reports whether Kubernetes allows the name. A colon would name another user.
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed)
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
