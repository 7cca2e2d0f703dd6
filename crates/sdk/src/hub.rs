//! The client for the hub.

use std::{net::SocketAddr, time::Duration};

use http::{HeaderValue, header::USER_AGENT};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    api::{PartialObjectMeta, PatchParams, ValidationDirective},
};

use crate::Settings;

mod cause;
mod kubeconfig;

pub use cause::describe_cause;
pub use kubeconfig::{client_config, kubeconfig};

/// Longest time to open a connection to the hub.
const CONNECT: Duration = Duration::from_secs(5);

/// Why the hub could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The kubeconfig cannot be read.
    #[error("kubeconfig of the hub: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// No kubeconfig file exists, and the program does not run in a Pod.
    #[error(
        "no access to a hub: none of these kubeconfig files exists: {files}; name one with --kubeconfig ({source})"
    )]
    NoAccess {
        /// The files that were looked for.
        files: String,
        /// Why the ServiceAccount of a Pod cannot be used.
        source: kube::config::InClusterError,
    },
    /// A context was selected, and no kubeconfig file exists.
    #[error(
        "no context can be selected: none of these kubeconfig files exists: {files}; name one with --kubeconfig"
    )]
    NoKubeconfig {
        /// The files that were looked for.
        files: String,
    },
    /// No header takes who calls.
    #[error("{0:?} cannot be sent as User-Agent: POD_NAME has to be the name of a Pod")]
    Agent(String),
    /// No client can be made of it.
    #[error("client for the hub: {}", describe_cause(.0))]
    Client(kube::Error),
    /// The hub does not tell who it is.
    #[error("the hub's identity (uid of namespace kube-system): {}", describe_cause(.0))]
    Identity(kube::Error),
    /// The namespace has no uid: not a real apiserver.
    #[error("the hub's namespace kube-system has no uid")]
    NoUid,
}

/// Where the hub is and how to log in there: see [`client_config`].
///
/// # Errors
/// No usable kubeconfig, and not in a pod.
pub async fn hub_config(settings: &Settings) -> Result<Config, HubError> {
    Ok(bounded(client_config(settings.kubeconfig.as_deref(), None).await?))
}

/// Bounds the time to connect and turns off kube's own retries, which can hide an outage for minutes; reconciles back
/// off instead.
#[must_use]
pub fn bounded(mut config: Config) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config
}

/// Says in every call who makes it, for the hub's audit log.
///
/// # Errors
/// The name has characters that no header takes.
pub fn name_caller(config: &mut Config, agent: &str) -> Result<(), HubError> {
    let agent = HeaderValue::from_str(agent).map_err(|_| HubError::Agent(agent.to_owned()))?;
    config.headers.push((USER_AGENT, agent));
    Ok(())
}

/// uid of the hub's namespace `kube-system`: who the hub is.
///
/// # Errors
/// The hub does not answer, or forbids it.
pub async fn hub_uid(hub: &Client) -> Result<String, HubError> {
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(hub.clone());
    let namespace = namespaces.get("kube-system").await.map_err(HubError::Identity)?;
    namespace.metadata.uid.ok_or(HubError::NoUid)
}

/// The addresses of the hub's apiserver, which no access Secret may name. Empty if its name has none here.
pub async fn hub_addresses(config: &Config) -> Vec<SocketAddr> {
    let uri = &config.cluster_url;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => found.collect(),
        Err(error) => {
            tracing::warn!(%error, "the hub's addresses cannot be resolved; targets are told apart by uid alone");
            vec![]
        }
    }
}

/// Parameters of a server-side apply on the hub: `manager` owns the fields, unknown fields are errors.
pub fn hub_apply(manager: &str) -> PatchParams {
    let mut params = PatchParams::apply(manager).force();
    params.field_validation = Some(ValidationDirective::Strict);
    params
}
