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
mod account;
mod apply_body;
mod breaker;
mod cache;
mod caller;
mod client_certificate;
mod component_target;
mod contact;
mod dial;
mod error;
mod fence;
mod fencing_generation;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grant;
mod identity;
mod identity_cache;
mod kubeconfig;
mod limits;
mod namespace;
mod notices;
mod request;
mod secret_key;
mod target;
mod throttle;
mod tokens;
mod transport;

pub use access::AccessPolicy;
pub use account::ServiceAccount;
pub use apply_body::client_from;
pub use breaker::{Breaker, Effect, Outcome};
pub use cache::Targets;
pub use component_target::{ComponentTarget, Streams};
pub use contact::Contact;
pub use error::{TargetError, TlsFault, classify, is_initializing};
pub use fence::{Fence, Ledger};
pub use fencing_generation::{FencingGeneration, FencingGenerationError};
pub use grant::Grant;
pub use identity::{
    Claim, KymaId, LiveIdentity, Mismatch, STAMP_MANAGERS, STAMP_NAME, STAMP_NAMESPACE, Stamp, TARGET_EPOCH,
    TargetRecord, Verdict, adopt, compare, record, recorded,
};
pub use kubeconfig::{Kubeconfig, KubeconfigError, decode_text};
pub use limits::{BreakerLimits, Limits, WatchPace};
pub use namespace::{create_namespace, ensure_namespace};
pub use notices::TargetEvent;
pub use secret_key::SecretKey;
pub use target::Target;
pub use tokens::{
    ExchangeSettings, ExchangeSettingsError, IssuedToken, TokenError, TokenExchange, TokenProvider,
    TokenProviders,
};

pub use kyma_api::AddressRefusal;
