//! `kymactl module push`.

mod flags;
mod plan;
mod progress;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kyma_api::ModuleTemplate;
use kyma_artifacts::{Artifacts, ChartArchive, Config, Credentials, PushedArtifact, RegistryBase};
use kyma_helm::chart::Chart;
use serde_json::{Value, json};
use url::Url;

use super::{
    config::{self, ModuleConfig},
    images::images,
    sources::{self, Location},
    template::{self, Parts},
};
use crate::{
    error::Error,
    output::{self, Format},
};

use plan::{Content, Plan};

pub(crate) use flags::Push;

impl Push {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let cache = tempfile::tempdir()?;
        let artifacts = Artifacts::open(&self.settings(cache.path())?)?;
        let plan = Plan::resolve(self.file()?, &self)?;
        if let Some(remark) = plan::numbering_remark(&plan.version) {
            output::remark(&remark);
        }
        let credentials = self.credentials()?;
        let published = Publisher { push: &self, artifacts: &artifacts, credentials: &credentials }
            .publish(&plan)
            .await?;
        self.print(&published)
    }

    /// Returns the config with flags applied, and the base directory of its relative paths.
    fn file(&self) -> Result<(ModuleConfig, PathBuf), Error> {
        let Some(path) = &self.config else {
            return Ok((ModuleConfig::default(), PathBuf::new()));
        };
        let parsed = config::parse(path, &sources::read(path)?)?;
        if !parsed.unused.is_empty() {
            output::remark(&format!("{}: without effect here: {}", path.display(), parsed.unused.join(", ")));
        }
        Ok((parsed.config, path.parent().unwrap_or(Path::new("")).to_owned()))
    }

    fn settings(&self, cache: &Path) -> Result<Config, Error> {
        let mut settings = Config::new(cache);
        concat!("kymactl/", env!("CARGO_PKG_VERSION")).clone_into(&mut settings.user_agent);
        // Private addresses are allowed: the user names them, and the calls come from the user's machine.
        settings.private_hosts.push("*".to_owned());
        settings.ca_pem = self.ca.as_deref().map(sources::read).transpose()?;
        settings.proxy = self.proxy()?;
        if self.insecure {
            settings.insecure_hosts.push(self.registry.host().to_owned());
        }
        Ok(settings)
    }

    /// Returns the proxy that the environment names for the registry.
    fn proxy(&self) -> Result<Option<Url>, Error> {
        let scheme = if self.insecure { "http" } else { "https" };
        let registry: http::Uri = format!("{scheme}://{}/", self.registry.host())
            .parse()
            .map_err(|_| Error::input("--registry", "it has no usable host"))?;
        let Some(proxy) = kyma_controller::environment_proxy(&registry)? else { return Ok(None) };
        let usable = without_credentials(&proxy);
        if usable.is_none() {
            output::remark(
                "the proxy of the environment has a user or password and is not used for the registry",
            );
        }
        Ok(usable)
    }

    fn credentials(&self) -> Result<Credentials, Error> {
        let default = || {
            let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
            let home = || std::env::home_dir().map(|home| home.join(".docker"));
            directory
                .or_else(home)
                .map(|directory| directory.join("config.json"))
                .filter(|file| file.is_file())
        };
        match self.docker_config.clone().or_else(default) {
            Some(file) => {
                let config = sources::read(&file)?;
                let credentials = Credentials::from_docker_config(&config)?;
                let host = self.registry.host();
                if !credentials.has_host(host) && has_store(&config, host) {
                    output::remark(&format!(
                        "{}: the credentials of {host} may be in a credential store, which kymactl does not read; name a \
                         Docker config that contains them with --docker-config",
                        file.display()
                    ));
                }
                Ok(credentials)
            }
            None => Ok(Credentials::anonymous()),
        }
    }

    fn print(&self, published: &PublishedModule) -> Result<(), Error> {
        for artifact in &published.artifacts {
            output::remark(&format!("published {}@{}", artifact.reference, artifact.digest));
        }
        let artifacts: Vec<Value> = published
            .artifacts
            .iter()
            .map(|one| json!({"reference": one.reference.to_string(), "digest": one.digest}))
            .collect();
        let all = json!({
            "component": published.component, "published": artifacts, "moduleTemplate": published.template,
        });
        let yaml = template::yaml(&published.template)?;
        let names = || vec![output::resource_name(&published.template)];
        // `kubectl apply` takes YAML; JSON also has the published artifacts.
        let format = if self.hub.format() == Format::Yaml { Format::Table } else { self.hub.format() };
        output::result(&format.text(&all, || yaml, names)?)
    }
}

/// Returns the address of a proxy; `None` if it has credentials, which are not sent to proxies.
fn without_credentials(proxy: &http::Uri) -> Option<Url> {
    let proxy = Url::parse(&proxy.to_string()).ok()?;
    (proxy.username().is_empty() && proxy.password().is_none()).then_some(proxy)
}

/// Reports whether a Docker config has its credentials of a host in a store or from a helper, which are programs.
fn has_store(config: &[u8], host: &str) -> bool {
    let Ok(config) = serde_json::from_slice::<Value>(config) else { return false };
    let is_named = |program: &Value| program.as_str().is_some_and(|program| !program.is_empty());
    is_named(&config["credsStore"]) || is_named(&config["credHelpers"][host])
}

/// Published artifacts.
struct PublishedModule {
    component: String,
    template: ModuleTemplate,
    artifacts: Vec<PushedArtifact>,
}

/// Pushes a plan's content to the registry.
struct Publisher<'a> {
    push: &'a Push,
    artifacts: &'a Artifacts,
    credentials: &'a Credentials,
}

impl Publisher<'_> {
    async fn publish(&self, plan: &Plan) -> Result<PublishedModule, Error> {
        let default_cr = match &plan.default_cr {
            Some(place) => Some(place.read(self.artifacts).await?),
            None => None,
        };
        let parts = Parts {
            module: &plan.module,
            version: &plan.version,
            config: &plan.config,
            default_cr: default_cr.as_ref().map(|yaml| plan::default_cr(yaml)).transpose()?,
            objects: &[],
            manifest_link: None,
            chart: None,
            component: plan.component()?,
        };
        let (template, artifacts) = match &plan.content {
            Content::Manifest(place) => self.manifest(plan, place, default_cr, parts).await?,
            Content::Chart(path) => {
                let (chart, pushed) = self.chart(path).await?;
                (template::template(Parts { chart: Some(chart), ..parts }), vec![pushed])
            }
            Content::PublishedChart(chart) => {
                (template::template(Parts { chart: Some(chart.clone()), ..parts }), Vec::new())
            }
            Content::OwnReconciler => (template::template(parts), Vec::new()),
        };
        Ok(PublishedModule { component: plan.name.clone(), template, artifacts })
    }

    /// Pushes the component version, which contains the ModuleTemplate, as modulectl does.
    async fn manifest(
        &self,
        plan: &Plan,
        place: &Location,
        default_cr: Option<Bytes>,
        parts: Parts<'_>,
    ) -> Result<(ModuleTemplate, Vec<PushedArtifact>), Error> {
        let manifest = place.read(self.artifacts).await?;
        let objects = plan::objects(&manifest)?;
        let manifest_link = place.address().map(ToString::to_string);
        let template = template::template(Parts { objects: &objects, manifest_link, ..parts });
        let mut component = plan.component_version(manifest, default_cr, images(&objects));
        component.module_template = Some(template::yaml(&template)?.into());
        component.source = plan.config.repository.clone().zip(self.push.commit.clone());
        let progress = progress::Bars::new();
        let pushed = self
            .artifacts
            .push_component(&self.push.registry, &component, self.credentials, &progress)
            .await?;
        progress.finish();
        Ok((template, vec![pushed]))
    }

    /// Pushes a chart to `<registry>/charts/<chart>:<version>`.
    async fn chart(&self, path: &Path) -> Result<(kyma_api::ChartSource, PushedArtifact), Error> {
        let archive = if path.is_dir() { ChartArchive::package(path)? } else { ChartArchive::load(path)? };
        Chart::open(archive.content()).map_err(|fault| Error::input("chart", fault.to_string()))?;
        let parent: RegistryBase = format!("{}/charts", self.push.registry).parse()?;
        let progress = progress::Bars::new();
        let pushed = self.artifacts.push_chart(&parent, &archive, self.credentials, &progress).await?;
        progress.finish();
        let chart = kyma_api::ChartSource {
            url: format!("oci://{}", pushed.reference.repository()),
            name: None,
            version: Some(archive.metadata.version.clone()),
            digest: Some(pushed.digest.to_string()),
            check_every_seconds: None,
        };
        Ok((chart, pushed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_used_unless_it_has_credentials() {
        let used = |proxy: &str| without_credentials(&proxy.parse().unwrap()).map(String::from);
        assert_eq!(used("http://proxy.corp:3128").as_deref(), Some("http://proxy.corp:3128/"));
        assert_eq!(used("http://me:hush@proxy.corp:3128"), None);
        assert_eq!(used("http://me@proxy.corp:3128"), None);
    }

    #[test]
    fn credentials_in_a_store_are_noticed() {
        let host = "registry.example:5000";
        for (config, expected) in [
            (r#"{"auths": {"registry.example:5000": {}}, "credsStore": "desktop"}"#, true),
            (r#"{"credHelpers": {"registry.example:5000": "ecr-login"}}"#, true),
            (r#"{"credHelpers": {"other.example": "ecr-login"}}"#, false),
            (r#"{"credsStore": "", "auths": {}}"#, false),
            ("{}", false),
            ("[]", false),
        ] {
            assert_eq!(has_store(config.as_bytes(), host), expected, "{config}");
            assert!(
                !Credentials::from_docker_config(config.as_bytes()).is_ok_and(|found| found.has_host(host))
            );
        }
        assert!(Credentials::basic(host, "a", "b").has_host("registry.example:5000"));
    }
}
