//! module-config.yaml in modulectl's format, with additional fields.

use std::{collections::BTreeMap, path::Path};

use kyma_api::{ChartSource, Dependency, FreeForm, GroupKind, Icon, KindRef, Manager, Resource};
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

/// Fields of modulectl without an effect here: scanners and release jobs read them.
const UNUSED_FIELDS: [&str; 5] = ["channel", "security", "securityScanEnabled", "bdba", "moduleRepo"];

/// A module-config.yaml.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ModuleConfig {
    /// Name of the OCM component, such as `kyma-project.io/module/keda`.
    pub(crate) name: Option<String>,
    /// Semantic version.
    pub(crate) version: Option<String>,
    /// File or https address of the manifest.
    pub(crate) manifest: Option<String>,
    /// File or https address of the default CR.
    #[serde(rename = "defaultCR")]
    pub(crate) default_cr: Option<String>,
    /// Additional field: a Helm chart as the content.
    pub(crate) chart: Option<Chart>,
    /// Additional field: the module's own reconciler.
    pub(crate) component: Option<Component>,
    pub(crate) repository: Option<String>,
    pub(crate) documentation: Option<String>,
    pub(crate) icons: Option<Vec<Icon>>,
    pub(crate) resources: Option<Vec<Resource>>,
    pub(crate) manager: Option<Manager>,
    pub(crate) associated_resources: Option<Vec<KindRef>>,
    /// Additional field: further kinds whose objects block removal.
    pub(crate) managed_resources: Option<Vec<GroupKind>>,
    /// Additional field: dependencies of parts of the module.
    pub(crate) depends_on: Option<Vec<Dependency>>,
    pub(crate) requires_downtime: Option<bool>,
    pub(crate) mandatory: Option<bool>,
    pub(crate) beta: Option<bool>,
    pub(crate) internal: Option<bool>,
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) namespace: Option<String>,
    pub(crate) team: Option<String>,
}

/// A chart of a module.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Chart {
    /// Directory or archive to push.
    File(String),
    /// A published chart.
    Published(ChartSource),
}

/// The module's own reconciler.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Component {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) spec: Option<FreeForm>,
    #[serde(default)]
    pub(crate) crd: Option<Crd>,
}

/// The CRD of a module's own reconciler.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Crd {
    /// File with the CRD.
    File(String),
    /// The CRD itself.
    Inline(FreeForm),
}

/// A parsed config and its unused fields.
#[derive(Debug, PartialEq)]
pub(crate) struct ParsedConfig {
    pub(crate) config: ModuleConfig,
    /// Names of fields that modulectl reads and that have no effect here.
    pub(crate) unused: Vec<String>,
}

/// Parses the content of a config file.
pub(crate) fn parse(path: &Path, yaml: &[u8]) -> Result<ParsedConfig, Error> {
    let invalid = |problem: String| Error::input(path.display().to_string(), problem);
    let mut fields: serde_json::Map<String, Value> = serde_saphyr::from_slice(yaml).map_err(|error| {
        invalid(format!("not a module-config.yaml ({error}); a Go template must be rendered first"))
    })?;
    let mut unused = Vec::new();
    fields.retain(|name, value| {
        let known = UNUSED_FIELDS.contains(&name.as_str());
        if known {
            unused.push(name.clone());
        }
        // Release jobs fill in empty fields.
        !known && !value.is_null() && value.as_str() != Some("")
    });
    let config = serde_json::from_value(Value::Object(fields)).map_err(|error| invalid(error.to_string()))?;
    Ok(ParsedConfig { config, unused })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<ParsedConfig, Error> {
        parse(Path::new("module-config.yaml"), yaml.as_bytes())
    }

    #[test]
    fn an_empty_version_counts_as_absent() {
        for version in ["version:", "version: ''"] {
            assert_eq!(read(&format!("name: a\n{version}\n")).unwrap().config.version, None);
        }
    }

    #[test]
    fn fields_without_effect_are_named_and_unknown_ones_refused() {
        assert_eq!(read("channel: regular\nsecurity: x.yaml\n").unwrap().unused, ["channel", "security"]);
        assert!(read("defaultCr: x.yaml\n").unwrap_err().to_string().contains("defaultCr"));
    }

    #[test]
    fn an_unrendered_template_is_said_to_be_one() {
        let error = read("{{- if .Values.x }}\nname: a\n").unwrap_err().to_string();
        assert!(error.contains("Go template"), "{error}");
    }

    #[test]
    fn a_chart_is_a_path_or_a_published_one() {
        assert_eq!(read("chart: ./chart").unwrap().config.chart, Some(Chart::File("./chart".to_owned())));
        let published = read("chart: {url: 'oci://r.example/c', version: 1.0.0}").unwrap().config.chart;
        assert!(matches!(published, Some(Chart::Published(chart)) if chart.url == "oci://r.example/c"));
    }
}
