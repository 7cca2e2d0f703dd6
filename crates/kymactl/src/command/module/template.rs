//! The ModuleTemplate of a version, in modulectl's format.

use std::collections::BTreeMap;

use kyma_api::{
    ChartSource, FreeForm, ModuleInfo, ModuleTemplate, ModuleTemplateSpec, Resource, TemplateComponent,
    annotations, labels, names,
};
use serde_json::Value;

use super::config::ModuleConfig;
use crate::error::Error;

/// Inputs of a ModuleTemplate.
pub(crate) struct Parts<'a> {
    /// Name of the module, the last part of its component's name.
    pub(crate) module: &'a str,
    /// Semantic version.
    pub(crate) version: &'a str,
    /// The author's config.
    pub(crate) config: &'a ModuleConfig,
    /// The default CR.
    pub(crate) default_cr: Option<FreeForm>,
    /// Objects of the manifest, which may have the default CR's CRD.
    pub(crate) objects: &'a [Value],
    /// Address of the manifest, if it has one.
    pub(crate) manifest_link: Option<String>,
    /// The chart, if the module is one.
    pub(crate) chart: Option<ChartSource>,
    /// The module's own reconciler.
    pub(crate) component: Option<TemplateComponent>,
}

/// Returns the ModuleTemplate.
pub(crate) fn template(parts: Parts<'_>) -> ModuleTemplate {
    let config = parts.config;
    let cluster_scoped = parts.default_cr.as_ref().is_some_and(|cr| is_cluster_scoped(cr, parts.objects));
    let spec = ModuleTemplateSpec {
        module_name: Some(parts.module.to_owned()),
        version: Some(parts.version.to_owned()),
        mandatory: config.mandatory.filter(|mandatory| *mandatory),
        data: parts.default_cr,
        resources: resources(config, parts.manifest_link),
        info: info(config),
        associated_resources: config.associated_resources.clone(),
        manager: config.manager.clone(),
        requires_downtime: Some(config.requires_downtime.unwrap_or(false)),
        component: parts.component,
        chart: parts.chart,
        depends_on: config.depends_on.clone(),
        managed_resources: config.managed_resources.clone(),
        ..ModuleTemplateSpec::default()
    };
    let mut template = ModuleTemplate::new(&names::template_name(parts.module, parts.version), spec);
    template.metadata.namespace.clone_from(&config.namespace);
    template.metadata.labels = Some(all_labels(parts.module, config));
    let mut all = config.annotations.clone().unwrap_or_default();
    all.insert(annotations::IS_CLUSTER_SCOPED.to_owned(), cluster_scoped.to_string());
    template.metadata.annotations = Some(all);
    template
}

/// Serializes the template as YAML.
pub(crate) fn yaml(template: &ModuleTemplate) -> Result<String, Error> {
    serde_saphyr::to_string(template).map_err(|error| Error::input("ModuleTemplate", error.to_string()))
}

fn all_labels(module: &str, config: &ModuleConfig) -> BTreeMap<String, String> {
    let mut all = config.labels.clone().unwrap_or_default();
    all.insert(labels::MODULE_NAME.to_owned(), names::label_value(module));
    let marks = [
        (labels::BETA, config.beta),
        (labels::INTERNAL, config.internal),
        (labels::MANDATORY_MODULE, config.mandatory),
    ];
    for (label, _) in marks.into_iter().filter(|(_, set)| *set == Some(true)) {
        all.insert(label.to_owned(), "true".to_owned());
    }
    all
}

/// Returns the author's links, and the manifest's address unless the author links it.
fn resources(config: &ModuleConfig, manifest_link: Option<String>) -> Option<Vec<Resource>> {
    const RAW_MANIFEST: &str = "rawManifest";
    let mut all = config.resources.clone().unwrap_or_default();
    if let Some(link) = manifest_link
        && !all.iter().any(|resource| resource.name == RAW_MANIFEST)
    {
        all.push(Resource { name: RAW_MANIFEST.to_owned(), link: link.into() });
    }
    Some(all).filter(|all| !all.is_empty())
}

fn info(config: &ModuleConfig) -> Option<ModuleInfo> {
    if config.repository.is_none() && config.documentation.is_none() && config.icons.is_none() {
        return None;
    }
    Some(ModuleInfo {
        repository: config.repository.clone().unwrap_or_default(),
        documentation: config.documentation.clone().unwrap_or_default(),
        icons: config.icons.clone(),
    })
}

/// Reports whether a CRD among the objects makes the default CR cluster-scoped.
fn is_cluster_scoped(default_cr: &FreeForm, objects: &[Value]) -> bool {
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let group =
        default_cr.get("apiVersion").and_then(Value::as_str).and_then(|version| version.split_once('/'));
    let kind = default_cr.get("kind").and_then(Value::as_str);
    objects.iter().any(|object| {
        text(object, "/kind").as_deref() == Some("CustomResourceDefinition")
            && text(object, "/spec/scope").as_deref() == Some("Cluster")
            && text(object, "/spec/group").as_deref() == group.map(|(group, _)| group)
            && text(object, "/spec/names/kind").as_deref() == kind
    })
}

#[cfg(test)]
mod tests;
