//! The CustomResourceDefinitions as they are applied.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::catalogue::module_config::ModuleConfig;
use crate::catalogue::module_release_meta::ModuleReleaseMeta;
use crate::catalogue::module_template::ModuleTemplate;
use crate::helm_component::HelmComponent;
use crate::kyma::Kyma;
use crate::metadata::annotations;
use crate::pause::Pause;
use crate::watcher::Watcher;

/// Returns every CRD for a hub, annotated with its version: an older program does not change a newer CRD.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        helm_component(),
        kyma(),
        module_config(),
        module_release_meta(),
        module_template(),
        pause(),
        watcher(),
    ];
    for crd in &mut all {
        let version = (annotations::CRD_VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        crd.metadata.annotations.get_or_insert_default().extend([version]);
    }
    all
}

/// `kymas.operator.kyma-project.io`, for hub and targets.
pub fn kyma() -> CustomResourceDefinition {
    with_v1beta1(tidy(Kyma::crd()), true)
}

/// `moduletemplates.operator.kyma-project.io`, for hub and targets.
pub fn module_template() -> CustomResourceDefinition {
    with_v1beta1(tidy(ModuleTemplate::crd()), false)
}

/// `modulereleasemetas.operator.kyma-project.io`, for hub and targets.
pub fn module_release_meta() -> CustomResourceDefinition {
    tidy(ModuleReleaseMeta::crd())
}

/// `watchers.operator.kyma-project.io`, for a hub.
pub fn watcher() -> CustomResourceDefinition {
    with_v1beta1(tidy(Watcher::crd()), true)
}

/// `moduleconfigs.operator.kyma-project.io`, for a hub.
pub fn module_config() -> CustomResourceDefinition {
    tidy(ModuleConfig::crd())
}

/// `pauses.operator.kyma-project.io`, for a hub.
pub fn pause() -> CustomResourceDefinition {
    tidy(Pause::crd())
}

/// `helmcomponents.component.kyma-project.io`, for a hub.
pub fn helm_component() -> CustomResourceDefinition {
    tidy(HelmComponent::crd())
}

/// Returns a CRD as one YAML document, without a leading separator.
pub fn to_yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser_error::Error> {
    serde_saphyr::to_string(crd)
}

/// Removes parts of the generated CRD that users of Kubernetes or KLM do not expect.
fn tidy(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy_schema(schema);
        }
    }
    crd
}

/// `nullable` would store an explicit null, which KLM's CRDs drop; the title is the Rust type's name.
fn tidy_schema(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy_schema(property);
    }
    match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(items)) => tidy_schema(items),
        Some(JSONSchemaPropsOrArray::Schemas(several)) => several.iter_mut().for_each(tidy_schema),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = schema.additional_properties.as_mut() {
        tidy_schema(values);
    }
}

/// Lists KLM's former version as not served: a cluster that once stored it refuses a CRD without it.
fn with_v1beta1(mut crd: CustomResourceDefinition, has_status: bool) -> CustomResourceDefinition {
    let kind = &crd.spec.names.kind;
    let v1beta1 = CustomResourceDefinitionVersion {
        name: "v1beta1".to_owned(),
        served: false,
        storage: false,
        deprecated: Some(true),
        deprecation_warning: Some(format!("{kind} v1beta1 is no longer served; use v1beta2")),
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(JSONSchemaProps {
                description: Some(format!("{kind} in its former version, which is no longer served.")),
                type_: Some("object".to_owned()),
                x_kubernetes_preserve_unknown_fields: Some(true),
                ..JSONSchemaProps::default()
            }),
        }),
        subresources: has_status.then(|| CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
            ..CustomResourceSubresources::default()
        }),
        ..CustomResourceDefinitionVersion::default()
    };
    crd.spec.versions.insert(0, v1beta1);
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    /// KLM's columns keep their positions: State first if it exists, Age last.
    #[test]
    fn printer_columns_show_the_main_fields() {
        let columns = |crd: &CustomResourceDefinition| -> Vec<String> {
            let served = crd.spec.versions.iter().find(|version| version.served).unwrap();
            let columns = served.additional_printer_columns.iter().flatten();
            columns
                .filter(|column| column.priority.is_none_or(|it| it == 0))
                .map(|it| it.name.clone())
                .collect()
        };
        assert_eq!(columns(&kyma()), ["State", "Reason", "Modules", "Channel", "Age"]);
        assert_eq!(columns(&module_template()), ["Module", "Version", "Mandatory", "Age"]);
        assert_eq!(columns(&module_release_meta()), ["Channels", "Mandatory", "Age"]);
        let config = ["Module", "Ready", "Resource Rules", "Matching", "Refused", "Age"];
        assert_eq!(columns(&module_config()), config);
        let component = columns(&helm_component());
        for column in ["Desired", "Version", "Ready", "Reason", "Target", "Age"] {
            assert!(component.iter().any(|name| name == column), "{column} is missing: {component:?}");
        }
    }

    #[test]
    fn an_optional_enum_keeps_the_description_of_its_field() {
        let rows = [
            (helm_component(), "spec.drift.mode", "Correct reverts changes, Warn only reports them"),
            (helm_component(), "status.state", "Summary of the conditions in one word"),
            (kyma(), "status.state", "State in one word: Ready, Processing,"),
            (module_config(), "spec.overrides.module.customResourcePolicy", "Policy for the default CR of"),
        ];
        for (crd, path, expected) in rows {
            let served = crd.spec.versions.iter().find(|version| version.served).unwrap();
            let root = served.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
            let field = path.split('.').fold(root, |schema, name| &schema.properties.as_ref().unwrap()[name]);
            let description = field.description.as_deref().unwrap_or_default();
            assert!(description.starts_with(expected), "{path}: {description}");
            assert!(field.enum_.is_some() && field.any_of.is_none(), "{path}");
        }
    }

    /// The use of each spec field, one per line: `read` by an operator, `shown` to users, `told` in a condition or
    /// message if it has no effect, or `none` if its description says so. HelmComponent fields have their own table in
    /// helm-component.
    const FIELDS: &str = include_str!("crds/fields.txt");

    /// Returns the leaves of a schema by path, with the descriptions of their parents.
    fn leaves(schema: &JSONSchemaProps, path: &str, told: &str, found: &mut Vec<(String, String)>) {
        let told = format!("{told} {}", schema.description.as_deref().unwrap_or_default());
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items
            && items.properties.is_some()
        {
            return leaves(items, &format!("{path}[]"), &told, found);
        }
        let Some(properties) = &schema.properties else {
            found.push((path.to_owned(), told));
            return;
        };
        for (name, property) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            leaves(property, &path, &told, found);
        }
    }

    #[test]
    fn every_field_is_read_or_documented_without_effect() {
        let mut rows: std::collections::BTreeMap<(String, String), &str> = FIELDS
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                ((words[0].to_owned(), words[1].to_owned()), words[2])
            })
            .collect();
        let kinds = [kyma(), module_template(), module_release_meta(), module_config(), pause(), watcher()];
        for crd in &kinds {
            let kind = crd.spec.names.kind.as_str();
            let served = crd.spec.versions.iter().find(|version| version.served).unwrap();
            let schema =
                served.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
            let spec = &schema.properties.as_ref().unwrap()["spec"];
            let mut found = Vec::new();
            leaves(spec, "", schema.description.as_deref().unwrap_or_default(), &mut found);
            for (path, told) in found {
                let row = rows.remove(&(kind.to_owned(), path.clone()));
                let says_none = ["no effect", "without effect", "not read", "Deprecated", "not evaluated"];
                match row {
                    Some("none") => {
                        assert!(says_none.iter().any(|words| told.contains(words)), "{kind} {path}: {told}");
                    }
                    Some("read" | "shown" | "told") => {}
                    other => panic!("{kind} {path} has no row in crds/fields.txt: {other:?}"),
                }
            }
        }
        assert!(rows.is_empty(), "no CRD has these fields: {rows:?}");
    }
}
