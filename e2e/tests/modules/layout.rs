//! OCM component versions as OCI image layouts on disk, and the ModuleTemplates that go with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kyma_api::ModuleTemplate;
use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

/// A component version.
pub(crate) struct ComponentVersion {
    pub(crate) template: ModuleTemplate,
    layout: PathBuf,
}

impl ComponentVersion {
    pub(crate) fn version(&self) -> &str {
        self.template.spec.version.as_deref().unwrap_or_default()
    }
}

/// Returns the component versions of the test inputs by module, with the oldest version first.
pub(crate) fn all(inputs: &Path) -> Result<BTreeMap<String, Vec<ComponentVersion>>> {
    let directory = inputs.join("ocm");
    let mut found: BTreeMap<String, Vec<ComponentVersion>> = BTreeMap::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let layout = entry?.path();
        if !layout.join("oci-layout").is_file() {
            continue;
        }
        let template = format!("{}.moduletemplate.yaml", layout.display());
        let template: ModuleTemplate = serde_saphyr::from_str(&fs::read_to_string(template)?)?;
        let module = template.spec.module_name.clone().context("the ModuleTemplate names its module")?;
        found.entry(module).or_default().push(ComponentVersion { template, layout });
    }
    for versions in found.values_mut() {
        versions.sort_by(|one, other| one.version().cmp(other.version()));
    }
    Ok(found)
}

/// Returns the name of a module's OCM component.
pub(crate) fn component(module: &str) -> String {
    format!("kyma-project.io/module/{module}")
}

/// Pushes the layout unchanged below `base`, which is a registry or a path in one.
pub(crate) async fn push(published: &ComponentVersion, module: &str, base: &str) -> Result<()> {
    let (host, path) = base.split_once('/').unwrap_or((base, ""));
    let below = if path.is_empty() { String::new() } else { format!("{path}/") };
    let repository = format!("http://{host}/v2/{below}component-descriptors/{}", component(module));
    let blobs = published.layout.join("blobs/sha256");
    let index: Value = serde_json::from_slice(&fs::read(published.layout.join("index.json"))?)?;
    let manifest = index["manifests"][0]["digest"].as_str().context("the layout has a manifest")?;
    let manifest = manifest.strip_prefix("sha256:").context("its digest is sha256")?;
    let http = client()?;
    for entry in fs::read_dir(&blobs)? {
        let path = entry?.path();
        let digest = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if digest != manifest {
            let upload = format!("{repository}/blobs/uploads/?digest=sha256:{digest}");
            http.post(upload).body(fs::read(&path)?).send().await?.error_for_status()?;
        }
    }
    http.put(format!("{repository}/manifests/{}", published.version()))
        .header(CONTENT_TYPE, "application/vnd.oci.image.manifest.v1+json")
        .body(fs::read(blobs.join(manifest))?)
        .send()
        .await?
        .error_for_status()?;
    Ok(())
}

/// Returns a client for a registry without a password.
pub(crate) fn client() -> Result<Client> {
    // reqwest needs a crypto provider even for plain HTTP; the first caller in the process installs it.
    rustls::crypto::ring::default_provider().install_default().ok();
    Ok(Client::builder().no_proxy().build()?)
}
