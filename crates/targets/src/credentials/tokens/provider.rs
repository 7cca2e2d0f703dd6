//! A source of tokens, its tokens and its errors.

use std::time::Duration;

use futures::future::BoxFuture;
use secrecy::SecretString;
use url::Url;

/// A source of tokens for targets.
pub trait TokenProvider: Send + Sync + 'static {
    /// Reports whether its tokens may be sent to this server, the https address in a kubeconfig. The author of a
    /// kubeconfig chooses the server, so a provider that accepts every server gives its tokens away.
    fn serves(&self, server: &Url) -> bool;

    /// Returns a new token for a server that it serves. The caller limits the time; only one caller at a time
    /// requests a token for a target.
    fn issue<'a>(&'a self, server: &'a Url) -> BoxFuture<'a, Result<IssuedToken, TokenError>>;
}

/// A token as it was issued. `Debug` does not show it.
#[derive(Clone, Debug)]
pub struct IssuedToken {
    /// The bearer token.
    pub token: SecretString,
    /// Remaining validity.
    pub valid_for: Duration,
}

/// Error of a request for a token. Contains no text of the issuer except error codes of the specifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The operator's own token, which it would exchange, cannot be read.
    #[error(
        "the operator's own token cannot be read ({0}): see the file that --token-exchange-token-file names"
    )]
    Own(std::io::ErrorKind),
    /// The issuer does not answer.
    #[error("the token issuer cannot be reached: {0}")]
    Unreachable(&'static str),
    /// The issuer answers with an error of its own.
    #[error("the token issuer answers HTTP {0}")]
    Unavailable(u16),
    /// The issuer's answer does not match the specification.
    #[error("the token issuer's answer cannot be used: {0}")]
    Unreadable(&'static str),
    /// The issuer refuses the request.
    #[error("the token issuer gives no token for this target (HTTP {status}, {code})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Error code of OAuth, or a substitute for an unknown one.
        code: &'static str,
    },
}
