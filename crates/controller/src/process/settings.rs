//! Settings of an operator: [`Args`] with every value parsed and validated.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use jiff::SignedDuration;
use kyma_api::{
    labels,
    names::{label_selector, label_value},
};
use kyma_targets::{AccessPolicy, ExchangeSettings, ExchangeSettingsError, TokenExchange, TokenProviders};

use crate::deletion::brake::window::BrakeLimit;
use crate::process::args::{AccessArgs, TokenExchangeArgs};
use crate::process::args::{Args, LogFormat, Mode};

/// Validated settings. Reconcilers read only these.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace on the hub in which custom resources and access Secrets live.
    pub hub_namespace: String,
    /// Namespace on targets for objects of the operators themselves.
    pub target_namespace: String,
    /// Label selector for the operator's custom resources; `None`: all.
    pub selector: Option<String>,
    /// Kubeconfig of the hub; `None`: inferred.
    pub kubeconfig: Option<PathBuf>,
    /// Reconciles at the same time, 1 to 1024.
    pub concurrency: u16,
    /// Longest time between two verifications of one object.
    pub resync: Duration,
    /// Maximum duration of one reconcile.
    pub reconcile_deadline: Duration,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Filter directives for log lines.
    pub log_level: String,
    /// Address of the server for /livez, /readyz and /metrics; `None`: no server.
    pub admin_address: Option<SocketAddr>,
    /// Whether targets are other clusters or the hub itself.
    pub mode: Mode,
    /// Name of the one Kyma whose target is the hub.
    pub local_kyma: Option<String>,
    /// Name of the one Kyma that the process works on, with its components; `None`: all. Set by programs, not by a
    /// flag.
    pub only_kyma: Option<String>,
    /// Whether component CRDs that the process creates are marked with
    /// [`CREATED_BY_RUN`](kyma_api::annotations::CREATED_BY_RUN). Set by programs, not by a flag.
    pub marks_created_crds: bool,
    /// Number of targets with deletions after which a user has to confirm more.
    pub brake: BrakeLimit,
    /// Rights of access Secrets. The hub's own addresses are added when the hub is connected.
    pub access: AccessPolicy,
}

/// A flag whose value cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Not a duration such as `30s` or `24h`, or not above zero.
    #[error("--{flag}: {value:?} is not a duration above zero, such as 30s, 5m or 24h")]
    Duration {
        /// The flag, without dashes.
        flag: &'static str,
        /// The value of the flag.
        value: String,
    },
    /// Not `address:port`.
    #[error("--admin-address: {value:?} is not address:port")]
    Address {
        /// The value of the flag.
        value: String,
    },
    /// Not a label selector.
    #[error("--selector: {value:?} is not a label selector")]
    Selector {
        /// The value of the flag.
        value: String,
    },
    /// Token exchange that cannot work, or would send tokens to any server.
    #[error("--token-exchange-url needs --token-exchange-audience and --token-exchange-servers as well: {0}")]
    TokenExchange(#[from] ExchangeSettingsError),
    /// A file that cannot be read.
    #[error("--{flag}: {file} cannot be read: {source}")]
    File {
        /// The flag, without dashes.
        flag: &'static str,
        /// The file.
        file: PathBuf,
        /// Error of the read.
        source: std::io::Error,
    },
    /// Two flags that exclude each other.
    #[error("--local-kyma has no meaning with --mode=single-cluster, where every Kyma's target is the hub")]
    LocalKyma,
    /// A required value is empty.
    #[error("--{flag} must not be empty")]
    Empty {
        /// The flag, without dashes.
        flag: &'static str,
    },
}

impl Settings {
    /// Returns settings for a process that neither reconciles in the background nor serves anything: a command or a
    /// unit test. All custom resources are selected, targets are other clusters, and log lines have at least level
    /// `warn`.
    pub fn for_command(hub_namespace: impl Into<String>, target_namespace: impl Into<String>) -> Self {
        Self {
            hub_namespace: hub_namespace.into(),
            target_namespace: target_namespace.into(),
            selector: None,
            kubeconfig: None,
            concurrency: 1,
            resync: Duration::from_hours(24),
            reconcile_deadline: Duration::from_mins(2),
            log_format: LogFormat::Text,
            log_level: "warn".to_owned(),
            admin_address: None,
            mode: Mode::Fleet,
            local_kyma: None,
            only_kyma: None,
            marks_created_crds: false,
            brake: BrakeLimit::default(),
            access: AccessPolicy::default(),
        }
    }

    /// Parses and validates every flag.
    ///
    /// # Errors
    /// The first flag whose value cannot be used.
    pub fn resolve(args: Args) -> Result<Self, SettingsError> {
        if args.mode == Mode::SingleCluster && args.local_kyma.is_some() {
            return Err(SettingsError::LocalKyma);
        }
        Ok(Self {
            hub_namespace: non_empty("hub-namespace", args.hub_namespace)?,
            target_namespace: non_empty("target-namespace", args.target_namespace)?,
            selector: selector(args.selector)?,
            kubeconfig: args.kubeconfig,
            concurrency: args.concurrency,
            resync: duration("resync", &args.resync)?,
            reconcile_deadline: duration("reconcile-deadline", &args.reconcile_deadline)?,
            log_format: args.log_format,
            log_level: args.log_level,
            admin_address: address(&args.admin_address)?,
            mode: args.mode,
            local_kyma: args.local_kyma.filter(|name| !name.is_empty()),
            only_kyma: None,
            marks_created_crds: false,
            brake: BrakeLimit { targets: args.brake_targets, percent: args.brake_percent },
            access: args.access.policy()?,
        })
    }

    /// The objects of `kind` that the process works on: a label selector and a field selector.
    pub(crate) fn scope(&self, kind: &str) -> (Option<String>, Option<String>) {
        match &self.only_kyma {
            None => (self.selector.clone(), None),
            Some(name) if kind == "Kyma" => (self.selector.clone(), Some(format!("metadata.name={name}"))),
            Some(name) => {
                let of_kyma = label_selector(labels::KYMA_NAME, name);
                let terms: Vec<String> = self.selector.clone().into_iter().chain([of_kyma]).collect();
                (Some(terms.join(",")), None)
            }
        }
    }

    /// Reports whether the process reconciles all objects of the hub namespace.
    pub fn has_full_scope(&self) -> bool {
        self.selector.is_none() && self.only_kyma.is_none()
    }

    /// Reports whether the hub is the target of the Kyma of this name, or with this value of the label `kyma-name`.
    pub fn is_local(&self, kyma: &str) -> bool {
        let same = |local: &String| label_value(local) == label_value(kyma);
        self.mode == Mode::SingleCluster || self.local_kyma.as_ref().is_some_and(same)
    }
}

impl AccessArgs {
    /// Returns the policy of the flags, without the hub's addresses.
    ///
    /// # Errors
    /// Token exchange that cannot work or would send tokens to any server, or a file that cannot be read.
    pub fn policy(self) -> Result<AccessPolicy, SettingsError> {
        Ok(AccessPolicy {
            allow_loopback: self.allow_loopback_targets,
            allow_link_local: self.allow_link_local_targets,
            allow_proxy: self.allow_target_proxy,
            token_providers: token_providers(self.token_exchange)?,
            ..AccessPolicy::default()
        })
    }
}

fn token_providers(args: TokenExchangeArgs) -> Result<TokenProviders, SettingsError> {
    if args.token_exchange_url.is_empty() {
        return Ok(TokenProviders::default());
    }
    let read = |file: PathBuf| {
        let flag = "token-exchange-ca-file";
        std::fs::read(&file).map_err(|source| SettingsError::File { flag, file, source })
    };
    let exchange = TokenExchange::new(ExchangeSettings {
        endpoint: args.token_exchange_url.parse().map_err(|_| ExchangeSettingsError::Endpoint)?,
        audience: args.token_exchange_audience,
        token_file: args.token_exchange_token_file,
        servers: args.token_exchange_servers,
        ca_pem: args.token_exchange_ca_file.map(read).transpose()?,
    })?;
    let command = non_empty("token-exchange-command", args.token_exchange_command)?;
    Ok(TokenProviders::default().with(&command, exchange))
}

fn non_empty(flag: &'static str, value: String) -> Result<String, SettingsError> {
    if value.is_empty() { Err(SettingsError::Empty { flag }) } else { Ok(value) }
}

fn duration(flag: &'static str, value: &str) -> Result<Duration, SettingsError> {
    value
        .parse::<SignedDuration>()
        .ok()
        .and_then(|parsed| Duration::try_from(parsed).ok())
        .filter(|parsed| !parsed.is_zero())
        .ok_or_else(|| SettingsError::Duration { flag, value: value.to_owned() })
}

fn address(value: &str) -> Result<Option<SocketAddr>, SettingsError> {
    if value.is_empty() {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| SettingsError::Address { value: value.to_owned() })
}

fn selector(value: String) -> Result<Option<String>, SettingsError> {
    if value.is_empty() {
        return Ok(None);
    }
    // The API server judges the details; here only what would silently select something else.
    let terms_are_whole = value.split(',').all(|term| !term.trim().is_empty());
    if terms_are_whole && !value.contains(char::is_control) {
        Ok(Some(value))
    } else {
        Err(SettingsError::Selector { value })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn resolve(flags: &[&str]) -> Result<Settings, SettingsError> {
        let line = Line::try_parse_from(std::iter::once("operator").chain(flags.iter().copied())).unwrap();
        Settings::resolve(line.args)
    }

    #[test]
    fn defaults_are_those_of_the_design() {
        let settings = resolve(&[]).unwrap();
        assert_eq!(settings.hub_namespace, "kcp-system");
        assert_eq!(settings.target_namespace, "kyma-system");
        assert_eq!(settings.resync, Duration::from_hours(24));
        assert_eq!(settings.selector, None);
        assert_eq!(settings.access, AccessPolicy::default());
        assert!(!settings.is_local("default"));
    }

    #[test]
    fn wrong_values_name_their_flag() {
        for (flags, flag) in [
            (["--resync=0s"], "--resync"),
            (["--resync=soon"], "--resync"),
            (["--admin-address=8080"], "--admin-address"),
            (["--selector=a=b,,c=d"], "--selector"),
            (["--hub-namespace="], "--hub-namespace"),
        ] {
            let error = resolve(&flags).unwrap_err().to_string();
            assert!(error.starts_with(flag), "{error}");
        }
    }

    #[test]
    fn tokens_are_exchanged_only_where_it_is_said_for_whom() {
        let url = "--token-exchange-url=https://issuer.example.org/token";
        let servers = "--token-exchange-servers=*.targets.example.org";
        assert_eq!(resolve(&[servers]).unwrap().access, AccessPolicy::default());
        let audience = "--token-exchange-audience={server}";
        let plain = "--token-exchange-url=http://issuer.example.org/token";
        for incomplete in [&[url][..], &[url, servers], &[url, audience], &[plain, servers, audience]] {
            let error = resolve(incomplete).unwrap_err().to_string();
            assert!(error.starts_with("--token-exchange-url"), "{error}");
        }
        let whole = resolve(&[url, servers, audience]).unwrap();
        assert_eq!(format!("{:?}", whole.access.token_providers), r#"{"token-exchange"}"#);
    }

    #[test]
    fn a_process_for_one_kyma_sees_it_and_its_components_only() {
        let all = resolve(&["--selector=team=a"]).unwrap();
        assert_eq!(all.scope("Kyma"), (Some("team=a".to_owned()), None));
        let mut one = resolve(&[]).unwrap();
        assert!(one.has_full_scope());
        one.only_kyma = Some("sample".to_owned());
        assert!(!one.has_full_scope());
        assert_eq!(one.scope("Kyma"), (None, Some("metadata.name=sample".to_owned())));
        let labels = label_selector(labels::KYMA_NAME, "sample");
        assert_eq!(one.scope("HelmComponent"), (Some(labels.clone()), None));
        one.selector = Some("team=a".to_owned());
        assert_eq!(one.scope("HelmComponent"), (Some(format!("team=a,{labels}")), None));
    }

    #[test]
    fn one_kyma_or_every_kyma_is_local() {
        assert!(resolve(&["--mode=single-cluster"]).unwrap().is_local("any"));
        let hub_too = resolve(&["--local-kyma=hub"]).unwrap();
        assert!(hub_too.is_local("hub") && !hub_too.is_local("other") && !hub_too.is_local(""));
        let long = "k".repeat(100);
        let by_label = resolve(&[&format!("--local-kyma={long}")]).unwrap();
        assert!(by_label.is_local(&long) && by_label.is_local(&label_value(&long)));
        assert!(resolve(&["--mode=single-cluster", "--local-kyma=hub"]).is_err());
    }
}
