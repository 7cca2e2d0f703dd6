//! The client for the hub.

use std::{net::SocketAddr, time::Duration};

use http::{HeaderValue, header::USER_AGENT};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    api::{PartialObjectMeta, PatchParams, ValidationDirective},
};

use crate::process::settings::Settings;

pub(crate) mod crd_check;
mod error;
pub(crate) mod feed;
mod kubeconfig;
mod proxy;
pub(crate) mod resource;
pub(crate) mod watch;

pub use error::HubError;
pub use kubeconfig::{client_config, kubeconfig, read_kubeconfig};
pub use proxy::environment_proxy;

/// Longest time to open a connection to the hub.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns address and credentials of the hub; see [`client_config`].
///
/// # Errors
/// If there is no usable kubeconfig and the process does not run in a Pod.
pub async fn hub_config(settings: &Settings) -> Result<Config, HubError> {
    Ok(with_hub_limits(client_config(settings.kubeconfig.as_deref(), None).await?))
}

/// Limits the time to connect and disables kube's own retries, which can hide an outage for minutes; reconciles back
/// off instead.
#[must_use]
pub fn with_hub_limits(mut config: Config) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config
}

/// Sets the User-Agent of every call, for the hub's audit log.
///
/// # Errors
/// The name contains characters that a header value must not contain.
pub fn set_user_agent(config: &mut Config, agent: &str) -> Result<(), HubError> {
    let agent = HeaderValue::from_str(agent).map_err(|_| HubError::Agent(agent.to_owned()))?;
    config.headers.push((USER_AGENT, agent));
    Ok(())
}

/// Returns the uid of the hub's namespace `kube-system`, which identifies the hub.
///
/// # Errors
/// The hub does not answer, or forbids it.
pub async fn hub_uid(hub: &Client) -> Result<String, HubError> {
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(hub.clone());
    let namespace = namespaces.get("kube-system").await.map_err(HubError::Identity)?;
    namespace.metadata.uid.ok_or(HubError::NoUid)
}

/// Returns the addresses of the hub's API server, which no access Secret may name. Empty if its name cannot be
/// resolved.
pub async fn hub_addresses(config: &Config) -> Vec<SocketAddr> {
    let uri = &config.cluster_url;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => found.collect(),
        Err(error) => {
            tracing::warn!(%error, "the hub's addresses cannot be resolved; targets are distinguished only by uid");
            vec![]
        }
    }
}

/// Returns parameters of a server-side apply on the hub: `manager` owns the fields, unknown fields are errors.
pub fn hub_apply(manager: &str) -> PatchParams {
    let mut params = PatchParams::apply(manager).force();
    params.field_validation = Some(ValidationDirective::Strict);
    params
}
