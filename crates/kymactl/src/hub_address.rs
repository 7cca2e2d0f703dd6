//! Address of the hub, for messages about failed calls.

use std::sync::OnceLock;

use kube::Config;

/// Address of the hub, for messages. A process has one hub.
static ADDRESS: OnceLock<String> = OnceLock::new();

/// Stores the address for messages about failed calls.
pub(crate) fn note_address(config: &Config) {
    ADDRESS.get_or_init(|| config.cluster_url.to_string().trim_end_matches('/').to_owned());
}

/// Returns ` at <address>` for messages, or an empty text before the kubeconfig is read.
pub(crate) fn at_address() -> String {
    ADDRESS.get().map(|address| format!(" at {address}")).unwrap_or_default()
}
