//! Tokens for targets that this process requests itself, instead of running the programs that kubeconfigs name.
//!
//! A kubeconfig selects a provider only by the command of its `exec` entry: the program is never run, and arguments
//! and environment of the entry are not read. The registration of a provider determines its issuer, its identity, and
//! the servers that get its tokens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

mod cache;
mod exchange;
mod provider;

pub(crate) use cache::TokenCache;
pub use exchange::{ExchangeSettings, ExchangeSettingsError, TokenExchange};
pub use provider::{IssuedToken, TokenError, TokenProvider};

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
