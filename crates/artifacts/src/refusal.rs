//! Reasons that an address is refused.

use std::fmt;

/// Reason that an address from a source is refused. Its text ends a sentence that names the host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The host differs from the source's, and no flag allows it.
    Host,
    /// Plain HTTP for a host that no flag names.
    PlainHttp,
    /// Neither HTTP nor HTTPS; contains the scheme.
    Scheme(String),
    /// The address has a user or password.
    User,
    /// A redirect of a request that sends content.
    Content,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str(
                "which is not an allowed host; to allow it, name it in --oci-allowed-hosts of helm-component",
            ),
            Self::PlainHttp => f.write_str(
                "with an http:// address, but only https is allowed; if a proxy ends TLS for the server, set the \
                 server's external URL to its https address",
            ),
            Self::Scheme(scheme) if scheme == "oci" => f.write_str(
                "with an oci:// address; write that address into the source instead of the repository's",
            ),
            Self::Scheme(scheme) => write!(f, "with the scheme {scheme}, but only https is allowed"),
            Self::User => f.write_str(
                "with a user or password in the address; put credentials into the pull secret instead",
            ),
            Self::Content => f.write_str("but a request that sends content follows no redirect"),
        }
    }
}
