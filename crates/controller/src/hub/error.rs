//! Errors of a connection to the hub.

use crate::failure::cause::describe_cause;

/// Error of a connection to the hub.
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
        /// The searched files.
        files: String,
        /// Error of the ServiceAccount of a Pod.
        source: kube::config::InClusterError,
    },
    /// A context was selected, and no kubeconfig file exists.
    #[error(
        "no context can be selected: none of these kubeconfig files exists: {files}; name one with --kubeconfig"
    )]
    NoKubeconfig {
        /// The searched files.
        files: String,
    },
    /// The proxy to the hub is not an http or https address.
    #[error("the proxy in {name} is not an http or https address: write it as http://HOST:PORT")]
    Proxy {
        /// The environment variable or field of the kubeconfig.
        name: &'static str,
    },
    /// The User-Agent is no valid header value.
    #[error("{0:?} cannot be sent as User-Agent: POD_NAME must be the name of a Pod")]
    Agent(String),
    /// No client can be created from the configuration.
    #[error("client for the hub: {}", describe_cause(.0))]
    Client(kube::Error),
    /// The uid of the hub cannot be read.
    #[error("the hub's identity (uid of namespace kube-system): {}", describe_cause(.0))]
    Identity(kube::Error),
    /// The namespace has no uid, so this is no real API server.
    #[error("the hub's namespace kube-system has no uid")]
    NoUid,
}
