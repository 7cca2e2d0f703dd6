//! Flags and environment variables, parsed but not yet checked. See [`crate::Settings`].

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

/// Common flags of all operators. Each can also be set by an environment variable with the flag's name in upper
/// case (`--hub-namespace`, `HUB_NAMESPACE`).
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Namespace on the hub with custom resources and access Secrets
    #[arg(long, env, default_value = "kcp-system")]
    pub hub_namespace: String,
    /// Namespace on targets for objects of the operators themselves
    #[arg(long, env, default_value = "kyma-system")]
    pub target_namespace: String,
    /// Label selector of the custom resources to reconcile. Empty: all
    #[arg(long, env, default_value = "")]
    pub selector: String,
    /// Kubeconfig of the hub. Default: $KUBECONFIG, ~/.kube/config, ServiceAccount
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Maximum number of custom resources that are reconciled at the same time
    #[arg(long, env, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub concurrency: u16,
    /// Maximum time between two verifications of a resource, minus up to 10 %
    #[arg(long, env, default_value = "24h")]
    pub resync: String,
    /// Maximum duration of one reconcile
    #[arg(long, env, default_value = "2m")]
    pub reconcile_deadline: String,
    /// Format of log lines
    #[arg(long, env, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Lowest level that is logged, or directives such as info,kube=debug
    #[arg(long, env, default_value = "info")]
    pub log_level: String,
    /// Address of /livez, /readyz and /metrics. Empty: not served
    #[arg(long, env, default_value = "0.0.0.0:8080")]
    pub admin_address: String,
    /// Mode: targets are other clusters, or the hub itself
    #[arg(long, env, value_enum, default_value_t = Mode::Fleet)]
    pub mode: Mode,
    /// The one Kyma whose target is the hub, on a hub that also manages itself
    #[arg(long, env)]
    pub local_kyma: Option<String>,
    /// Maximum number of targets with deletions in 10 minutes without confirmation
    #[arg(long, env, default_value_t = 10)]
    pub brake_targets: u32,
    /// --brake-targets as a percentage of all targets; the larger value applies
    #[arg(long, env, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub brake_percent: u8,
    /// Restrictions of access Secrets, and tokens for targets.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Restrictions of access Secrets, and the source of tokens for targets.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct AccessArgs {
    /// Allow loopback addresses in access Secrets; for tests only
    #[arg(long, env)]
    pub allow_loopback_targets: bool,
    /// Allow link-local addresses in access Secrets
    #[arg(long, env)]
    pub allow_link_local_targets: bool,
    /// Allow a proxy (proxy-url) in access Secrets
    #[arg(long, env)]
    pub allow_target_proxy: bool,
    /// Tokens for kubeconfigs with an exec entry.
    #[command(flatten)]
    pub token_exchange: TokenExchangeArgs,
}

/// Tokens for targets by token exchange (RFC 8693), instead of the program in a kubeconfig's exec entry. A
/// kubeconfig cannot change these settings.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct TokenExchangeArgs {
    /// Token endpoint (https) that exchanges tokens for targets. Empty: none
    #[arg(long, env, value_name = "URL", default_value = "")]
    pub token_exchange_url: String,
    /// Audience of exchanged tokens; {server} stands for the target's host[:port]
    #[arg(long, env, value_name = "AUDIENCE", default_value = "")]
    pub token_exchange_audience: String,
    /// host[:port] of targets that get exchanged tokens; `*.` covers subdomains
    #[arg(long, env, value_name = "HOST", value_delimiter = ',')]
    pub token_exchange_servers: Vec<String>,
    /// File with the operator's own token, whose audience is the issuer
    #[arg(long, env, value_name = "FILE", default_value = "/var/run/secrets/token-exchange/token")]
    pub token_exchange_token_file: PathBuf,
    /// PEM file with certificates of the issuer, instead of public ones
    #[arg(long, env, value_name = "FILE")]
    pub token_exchange_ca_file: Option<PathBuf>,
    /// Command of exec entries in kubeconfigs that selects the exchange; never run
    #[arg(long, env, value_name = "NAME", default_value = "token-exchange")]
    pub token_exchange_command: String,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line, for machines.
    Json,
    /// One plain line per event, for people.
    Text,
}

/// Mode: targets are other clusters, or the hub itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Each Kyma has a target of its own, reached through an access Secret.
    Fleet,
    /// Every Kyma's target is the hub.
    SingleCluster,
}
