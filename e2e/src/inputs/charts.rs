//! Third-party charts for measurements, read from outside the repository.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// A chart and its values.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Name and version: the name of its directory.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Namespace that the chart requires.
    pub namespace: Option<&'static str>,
    /// Name of the release if the chart's name is too long.
    pub release: Option<&'static str>,
    /// Values that override the chart's.
    pub values: Value,
}

impl Chart {
    /// Returns name and version from its Chart.yaml.
    ///
    /// # Errors
    /// Chart.yaml lacks one of them.
    pub fn identity(&self) -> Result<(String, String)> {
        let text = std::fs::read_to_string(self.path.join("Chart.yaml"))?;
        let yaml: Value = serde_saphyr::from_str(&text)?;
        let field = |key: &str| yaml[key].as_str().map(str::to_owned).with_context(|| format!("no {key}"));
        Ok((field("name")?, field("version")?))
    }

    /// Returns the values with which its own project tests it, by the names of their files.
    ///
    /// # Errors
    /// A file cannot be read, or is no YAML.
    pub fn tested_values(&self) -> Result<Vec<(String, Value)>> {
        let Ok(entries) = std::fs::read_dir(self.path.join("ci")) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
                let text = std::fs::read_to_string(&path)?;
                let values = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
                found.push((name, values));
            }
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }
}

/// Returns all charts of the test inputs by name.
///
/// # Errors
/// A chart, or a values file that it needs, cannot be read.
pub fn all(inputs: &Path) -> Result<Vec<Chart>> {
    let directory = inputs.join("charts");
    let entries =
        std::fs::read_dir(&directory).with_context(|| format!("no charts in {}", directory.display()))?;
    let mut charts = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.join("Chart.yaml").is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let namespace = (stem(&name) == "istiod").then_some("istio-system");
            // The name of its pre-delete Job is the release's name plus forty characters, and limited to 63.
            let release = (stem(&name) == "victoria-metrics-k8s-stack").then_some("vmks");
            charts.push(Chart { values: values(&name, &path)?, namespace, release, name, path });
        }
    }
    charts.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(charts)
}

/// Returns a directory's name without the version.
fn stem(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(stem, _)| stem)
}

/// Returns the values that a chart requires.
fn values(name: &str, path: &Path) -> Result<Value> {
    let file = |name: &str| -> Result<Value> {
        let text = std::fs::read_to_string(path.join("ci").join(name))?;
        Ok(serde_saphyr::from_str(&text)?)
    };
    Ok(match stem(name) {
        "aws-load-balancer-controller" => serde_json::json!({"clusterName": "c"}),
        "linkerd-control-plane" => serde_json::json!({
            "identityTrustAnchorsPEM": "x", "identity": {"issuer": {"tls": {"crtPEM": "x", "keyPEM": "x"}}},
        }),
        "opentelemetry-collector" => serde_json::json!({
            "mode": "deployment", "image": {"repository": "registry.example.com/collector"},
        }),
        "temporal" => first_file(path, &file)?,
        _ => serde_json::json!({}),
    })
}

/// Returns the first values file in the chart's own tests.
fn first_file(path: &Path, read: &dyn Fn(&str) -> Result<Value>) -> Result<Value> {
    let mut names: Vec<String> = std::fs::read_dir(path.join("ci"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    read(names.first().context("the chart has values files")?)
}
