//! Flags of helm-component besides the common ones.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kyma_artifacts::{Artifacts, Config, RegistryBase, TrustRoot};
use kyma_helm::render::{CachingRenderer, HelmProgram, RenderLimits};
use kyma_object_set::drift::FlapLimit;
use url::Url;

use crate::error::SetupError;

/// Flags of helm-component.
#[derive(Debug, Clone, Args)]
pub struct Flags {
    /// Sources and rendering of content.
    #[command(flatten)]
    pub content: ContentArgs,
    /// ServiceAccounts that components impersonate on targets.
    #[command(flatten)]
    pub accounts: AccountArgs,
    /// Flags shared with kyma-operator.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// Flags that kyma-operator also has, with the same values; a process that runs both parses them once.
#[derive(Debug, Clone, Default, Args)]
pub struct HubArgs {
    /// Modules only for Kymas that match their kymaSelector
    #[arg(long, env, value_name = "MODULE", value_delimiter = ',')]
    pub restricted_default_modules: Vec<String>,
    /// Image-pull Secret that every target gets. Empty: none
    #[arg(long, env, value_name = "NAME", default_value = "", value_parser = kyma_controller::object_name)]
    pub skr_image_pull_secret: String,
}

/// ServiceAccounts that components impersonate on targets. A process serves one namespace of the hub, so they are
/// per tenant.
#[derive(Debug, Clone, Default, Args)]
pub struct AccountArgs {
    /// Default ServiceAccount to impersonate. Empty: the kubeconfig's user
    #[arg(long, env, value_name = "NAME", default_value = "", value_parser = kyma_controller::object_name)]
    pub default_service_account: String,
    /// Refuse components without a ServiceAccount to impersonate
    #[arg(long, env)]
    pub require_service_account: bool,
    /// Namespace of impersonated ServiceAccounts. Empty: the target namespace
    #[arg(long, env, value_name = "NAMESPACE", default_value = "", value_parser = kyma_controller::object_name)]
    pub service_account_namespace: String,
}

/// Sources and rendering of content, and limits of drift correction.
#[derive(Debug, Clone, Args)]
pub struct ContentArgs {
    /// The helm program (4.x) that renders charts. Default: helm on PATH
    #[arg(long, env = "HELM", value_name = "FILE")]
    pub helm: Option<PathBuf>,
    /// SHA-256 of the helm program, in hex; any other program is refused
    #[arg(long, env = "HELM_SHA256", value_name = "DIGEST")]
    pub helm_sha256: Option<String>,
    /// Default repository host[:port][/path] of OCM components
    #[arg(long, env = "OCI_REGISTRY", value_name = "BASE")]
    pub oci_registry: Option<RegistryBase>,
    /// Secret with registry credentials for modules without pullSecretRef
    #[arg(long, env = "OCI_REGISTRY_CRED_SECRET", value_name = "NAME", default_value = "",
          value_parser = kyma_controller::object_name)]
    pub oci_registry_cred_secret: String,
    /// host[:port] of registries and repositories with plain HTTP
    #[arg(long, env = "OCI_INSECURE_HOSTS", value_name = "HOST", value_delimiter = ',')]
    pub oci_insecure_hosts: Vec<String>,
    /// Further hosts for redirects and tokens of registries; `*.` for subdomains
    #[arg(long, env = "OCI_ALLOWED_HOSTS", value_name = "HOST", value_delimiter = ',')]
    pub oci_allowed_hosts: Vec<String>,
    /// host[:port] of registries in private networks; `*.` for subdomains
    #[arg(long, env = "OCI_PRIVATE_HOSTS", value_name = "HOST", value_delimiter = ',')]
    pub oci_private_hosts: Vec<String>,
    /// PEM file with certificates of registries, in addition to public ones
    #[arg(long, env = "OCI_CA_FILE", value_name = "FILE")]
    pub oci_ca_file: Option<PathBuf>,
    /// Timeout of one request to a registry or repository, in seconds
    #[arg(long, env = "OCI_REQUEST_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub oci_request_timeout_seconds: u64,
    /// Proxy for registries, http://host:port; HTTP_PROXY and the like are ignored
    #[arg(long, env = "OCI_PROXY", value_name = "URL")]
    pub oci_proxy: Option<Url>,
    /// host[:port] that are reached without the proxy; `*.` for subdomains
    #[arg(long, env = "OCI_NO_PROXY", value_name = "HOST", value_delimiter = ',')]
    pub oci_no_proxy: Vec<String>,
    /// trusted_root.json for keyless signers (source.verify.identities)
    #[arg(long, env = "SIGSTORE_TRUSTED_ROOT", value_name = "FILE")]
    pub sigstore_trusted_root: Option<PathBuf>,
    /// Directory of the artifact cache of this process. Default: a temporary one
    #[arg(long, env = "ARTIFACT_CACHE_DIR", value_name = "DIR")]
    pub artifact_cache_dir: Option<PathBuf>,
    /// Size of the artifact cache in MiB
    #[arg(long, env = "ARTIFACT_CACHE_MIB", value_name = "MIB", default_value_t = 1024)]
    pub artifact_cache_mib: u64,
    /// Maximum number of drift corrections of one object in 10 minutes
    #[arg(long, env = "DRIFT_REPAIRS", value_name = "COUNT", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub drift_repairs: u32,
    /// Seconds that an object must be failed before its component is Unhealthy
    #[arg(long, env = "UNHEALTHY_AFTER_SECONDS", value_name = "SECONDS", default_value_t = 30)]
    pub unhealthy_after_seconds: u32,
}

impl ContentArgs {
    /// Opens the artifact cache and prepares the HTTP client.
    pub fn artifacts(&self) -> Result<Artifacts, SetupError> {
        Artifacts::open(&self.config()?).map_err(SetupError::Artifacts)
    }

    fn config(&self) -> Result<Config, SetupError> {
        let directory = match &self.artifact_cache_dir {
            Some(directory) => directory.clone(),
            None => private_directory().map_err(SetupError::CacheDirectory)?,
        };
        let mut config = Config::new(directory);
        config.cache_bytes = self.artifact_cache_mib << 20;
        config.insecure_hosts.clone_from(&self.oci_insecure_hosts);
        config.allowed_hosts.clone_from(&self.oci_allowed_hosts);
        config.private_hosts.clone_from(&self.oci_private_hosts);
        // A flag configures this registry, so it may be in a private network.
        config.private_hosts.extend(self.oci_registry.iter().map(|base| base.host().to_owned()));
        config.deadlines.request = Duration::from_secs(self.oci_request_timeout_seconds);
        config.ca_file.clone_from(&self.oci_ca_file);
        config.proxy.clone_from(&self.oci_proxy);
        config.proxy_except.clone_from(&self.oci_no_proxy);
        concat!("helm-component/", env!("CARGO_PKG_VERSION")).clone_into(&mut config.user_agent);
        config.ca_pem = self
            .oci_ca_file
            .as_deref()
            .map(|file| {
                std::fs::read(file).map_err(|source| SetupError::CaFile { file: file.to_owned(), source })
            })
            .transpose()?;
        Ok(config)
    }

    /// Reads the trust root for signers without keys.
    pub(crate) fn trust_root(&self) -> Result<Option<Arc<TrustRoot>>, SetupError> {
        let Some(file) = &self.sigstore_trusted_root else { return Ok(None) };
        let json = std::fs::read(file)
            .map_err(|source| SetupError::TrustedRootFile { file: file.clone(), source })?;
        TrustRoot::parse(&json).map(|root| Some(Arc::new(root))).map_err(SetupError::Artifacts)
    }

    /// Returns the limit of drift corrections, beyond which another writer wins.
    pub(crate) fn flap_limit(&self) -> FlapLimit {
        let corrections = usize::try_from(self.drift_repairs).unwrap_or(usize::MAX);
        FlapLimit { corrections, ..FlapLimit::default() }
    }

    /// Returns the time for which an object must be failed before its component is unhealthy.
    pub(crate) fn unhealthy_after(&self) -> Duration {
        Duration::from_secs(u64::from(self.unhealthy_after_seconds))
    }

    /// Finds the renderer; `None` if there is no `helm` and no flag names one.
    pub fn renderer(&self) -> Result<Option<CachingRenderer<HelmProgram>>, SetupError> {
        match HelmProgram::find(self.helm.as_deref(), RenderLimits::default()) {
            Ok(helm) => {
                helm.check(self.helm_sha256.as_deref()).map_err(SetupError::Helm)?;
                Ok(Some(CachingRenderer::new(helm)))
            }
            Err(kyma_helm::render::HelmProgramError::Missing) if self.helm.is_none() => Ok(None),
            Err(error) => Err(SetupError::Helm(error)),
        }
    }
}

/// Creates a directory with a random name that only this user may enter.
fn private_directory() -> std::io::Result<PathBuf> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("helm-component-").permissions(Permissions::from_mode(0o700));
    Ok(builder.tempdir()?.keep())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        content: ContentArgs,
    }

    fn config(flags: &[&str]) -> Result<Config, SetupError> {
        let line = Line::try_parse_from(std::iter::once("operator").chain(flags.iter().copied())).unwrap();
        line.content.config()
    }

    #[test]
    fn flags_on_registries_reach_the_client() {
        let ca = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca.path(), "certificates").unwrap();
        let config = config(&[
            "--oci-proxy=http://proxy.example.org:3128",
            "--oci-no-proxy=registry.local:5000,*.example.org",
            &format!("--oci-ca-file={}", ca.path().display()),
            "--oci-insecure-hosts=plain.local",
            "--oci-allowed-hosts=*.example.com,tokens.local",
            "--artifact-cache-dir=cache",
            "--artifact-cache-mib=2",
        ])
        .unwrap();
        assert_eq!(config.proxy.unwrap().as_str(), "http://proxy.example.org:3128/");
        assert_eq!(config.proxy_except, ["registry.local:5000", "*.example.org"]);
        assert_eq!(config.ca_pem.as_deref(), Some(&b"certificates"[..]));
        assert_eq!(config.insecure_hosts, ["plain.local"]);
        assert_eq!(config.allowed_hosts, ["*.example.com", "tokens.local"]);
        assert_eq!((config.cache_dir, config.cache_bytes), (PathBuf::from("cache"), 2 << 20));
    }

    #[test]
    fn without_flags_there_is_no_proxy_and_nobody_more_is_trusted() {
        let config = config(&[]).unwrap();
        assert!(config.proxy.is_none() && config.proxy_except.is_empty() && config.ca_pem.is_none());
    }

    #[test]
    fn the_default_cache_directory_is_private_with_a_random_name() {
        let (first, second) = (config(&[]).unwrap().cache_dir, config(&[]).unwrap().cache_dir);
        assert_ne!(first, second);
        for directory in [first, second] {
            let mode = std::fs::metadata(&directory).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            std::fs::remove_dir(directory).unwrap();
        }
    }

    #[test]
    fn a_file_of_certificates_that_cannot_be_read_stops_the_start() {
        let refused = config(&["--oci-ca-file=no/such/file"]).unwrap_err().to_string();
        assert!(refused.starts_with("--oci-ca-file no/such/file: "), "{refused}");
    }
}
