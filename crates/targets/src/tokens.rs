//! Tokens for targets that this process requests itself, instead of running the programs that kubeconfigs name.
//!
//! A kubeconfig selects a provider only by the command of its `exec` entry: the program is never run, and arguments
//! and environment of the entry are not read. The registration of a provider determines its issuer, its identity, and
//! the servers that get its tokens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use secrecy::SecretString;
use url::Url;

mod cache;
mod exchange;

pub(crate) use cache::TokenCache;
pub use exchange::{ExchangeSettings, ExchangeSettingsError, TokenExchange};

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

/// Providers by the name that a kubeconfig's `exec` entry gives as its command.
#[derive(Clone, Default)]
pub struct TokenProviders {
    by_name: BTreeMap<String, Arc<dyn TokenProvider>>,
}

impl TokenProviders {
    /// Adds a provider; replaces one of the same name.
    pub fn with(mut self, name: &str, provider: impl TokenProvider) -> Self {
        self.by_name.insert(name.to_owned(), Arc::new(provider));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn TokenProvider>> {
        self.by_name.get(name)
    }
}

impl PartialEq for TokenProviders {
    fn eq(&self, other: &Self) -> bool {
        let same =
            |((name, provider), (its_name, its_provider)): ((&String, &Arc<_>), (&String, &Arc<_>))| {
                name == its_name && Arc::ptr_eq(provider, its_provider)
            };
        self.by_name.len() == other.by_name.len() && self.by_name.iter().zip(&other.by_name).all(same)
    }
}

impl Eq for TokenProviders {}

impl fmt::Debug for TokenProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}
