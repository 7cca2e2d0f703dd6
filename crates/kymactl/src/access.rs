//! What access Secrets may name, as people say it in flags.

use clap::Args;
use kyma_sdk::targets::AccessPolicy;

/// What an access Secret may name beyond the default.
#[derive(Args)]
pub(crate) struct AccessFlags {
    /// Let the access Secret name a loopback address. For test beds.
    #[arg(long, env)]
    allow_loopback_targets: bool,
    /// Let the access Secret name a link-local address.
    #[arg(long, env)]
    allow_link_local_targets: bool,
    /// Let the access Secret name a proxy (`proxy-url`).
    #[arg(long, env)]
    allow_target_proxy: bool,
}

impl AccessFlags {
    /// The policy that they stand for.
    pub(crate) fn policy(&self) -> AccessPolicy {
        AccessPolicy {
            allow_loopback: self.allow_loopback_targets,
            allow_link_local: self.allow_link_local_targets,
            allow_proxy: self.allow_target_proxy,
            ..AccessPolicy::default()
        }
    }
}
