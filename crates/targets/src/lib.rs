//! Clients for the clusters behind access Secrets, with limited cost and without trust in these clusters.
//!
//! - [`Targets`] is the cache: one [`Target`] for each access Secret and version of it.
//! - [`Kubeconfig`] is the only form of access; [`AccessPolicy`] holds what operators may allow beyond the default.
//! - [`TokenProviders`] replace the programs that kubeconfigs name for tokens, which are never run.
//! - [`client_from`] returns a client for a trusted cluster, such as the hub.
//! - [`Target::client`] is a kube client with deadlines, budgets ([`Limits`]), body limit and [`Breaker`].
//! - [`ComponentTarget`] is a target for one component and its [`ServiceAccount`]; [`Streams`] is the access for
//!   streams that components share.
//! - [`classify`] turns an error of a call into a [`TargetError`] with a class and a reason.
//! - [`compare`] verifies the identity of a cluster.
//! - [`ensure_namespace`] creates a namespace unless it exists.

mod access;
mod apply_body;
mod client;
mod connection;
mod credentials;
mod error;
mod fencing;
#[cfg(fuzzing)]
pub mod fuzzing;
mod identity;
mod identity_cache;
mod namespace;

pub use access::AccessPolicy;
pub use apply_body::client_from;
pub use client::account::ServiceAccount;
pub use client::cache::Targets;
pub use client::component_target::{ComponentTarget, Streams};
pub use client::target::Target;
pub use connection::breaker::{Breaker, Effect, Outcome};
pub use connection::contact::Contact;
pub use connection::limits::{BreakerLimits, Limits, WatchPace};
pub use connection::notices::TargetEvent;
pub use credentials::grant::Grant;
pub use credentials::kubeconfig::{Kubeconfig, KubeconfigError, decode_text};
pub use credentials::secret_key::SecretKey;
pub use credentials::tokens::{
    ExchangeSettings, ExchangeSettingsError, IssuedToken, TokenError, TokenExchange, TokenProvider,
    TokenProviders,
};
pub use error::{TargetError, TlsFault, classify, is_initializing};
pub use fencing::fence::{Fence, Ledger};
pub use fencing::fencing_generation::{FencingGeneration, FencingGenerationError};
pub use identity::{
    Claim, KymaId, LiveIdentity, Mismatch, STAMP_MANAGERS, STAMP_NAME, STAMP_NAMESPACE, Stamp, TARGET_EPOCH,
    TargetRecord, Verdict, adopt, compare, record, recorded,
};
pub use namespace::{create_namespace, ensure_namespace};

pub use kyma_api::AddressRefusal;
