//! ModuleTemplate: one version of one module.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::component::fields::{Dependency, FreeForm, GroupKind, KindRef, Manager};
use crate::helm_component::ChartSource;
use crate::status::state::State;
use crate::{schema::patterns, schema::schemas};

/// One version of one module.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "ModuleTemplate",
    plural = "moduletemplates",
    shortname = "mt",
    namespaced,
    derive = "PartialEq",
    doc = "ModuleTemplate describes one version of one module. Its name is <module>-<version>; its spec never changes.",
    printcolumn(name = "Module", type_ = "string", json_path = ".spec.moduleName"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Mandatory", type_ = "boolean", json_path = ".spec.mandatory"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct ModuleTemplateSpec {
    /// Name of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::MODULE_NAME), length(max = 64))]
    pub module_name: Option<String>,
    /// Version of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::VERSION), length(max = 32))]
    pub version: Option<String>,
    /// Deprecated and without effect: channels are assigned by the ModuleReleaseMeta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::TEMPLATE_CHANNEL), length(max = 32))]
    pub channel: Option<String>,
    /// Deprecated. True: users cannot choose this version (Mandatory). spec.mandatory of the ModuleReleaseMeta
    /// decides whether every cluster gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<bool>,
    /// The default CR: a complete object, created once when the module is installed. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::embedded_object")]
    pub data: Option<FreeForm>,
    /// Required for compatibility and not read: the descriptor comes from the registry. Write {}.
    #[schemars(schema_with = "schemas::free_form")]
    pub descriptor: FreeForm,
    /// Deprecated and without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_state_check: Option<Vec<CustomStateCheck>>,
    /// Links for people and catalogues, such as the raw manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Option<Vec<Resource>>,
    /// Information for catalogues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<ModuleInfo>,
    /// Kinds that the module serves. Objects of these kinds that the module did not create block its removal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub associated_resources: Option<Vec<KindRef>>,
    /// Workload whose readiness determines the module's state. Absent: all workloads of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Whether an upgrade to this version waits for a maintenance window; a first installation does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_downtime: Option<bool>,
    /// The module's own component kind. Absent: HelmComponent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<TemplateComponent>,
    /// Helm chart with the module's content, instead of the manifest in its OCM component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<ChartSource>,
    /// Dependencies. A missing kind delays only objects of that kind; a module or component that is not ready
    /// delays the whole module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub depends_on: Option<Vec<Dependency>>,
    /// Kinds whose objects block the module's removal, besides the CRDs in its content and associatedResources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub managed_resources: Option<Vec<GroupKind>>,
}

/// A rule that had an effect in early KLM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomStateCheck {
    /// JSON path in the module's CR.
    pub json_path: String,
    /// Required value.
    pub value: String,
    /// State for that value.
    pub mapped_state: State,
}

/// A named link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Type of the link, for instance rawManifest.
    pub name: String,
    /// Address of the link.
    // An API server also takes an empty list, and one object that cannot be read would end the watch of all.
    #[schemars(schema_with = "schemas::uri")]
    pub link: Value,
}

/// Information about a module for catalogues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleInfo {
    /// Link to the source repository.
    pub repository: String,
    /// Link to the documentation.
    pub documentation: String,
    /// Icons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub icons: Option<Vec<Icon>>,
}

/// An icon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Icon {
    /// Name of the icon.
    pub name: String,
    /// Address of the icon.
    pub link: String,
}

/// The module's own component kind, which its reconciler watches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateComponent {
    /// API group and version of the component. Its group must be allowed on the hub.
    #[schemars(length(min = 3, max = 317))]
    pub api_version: String,
    /// Kind of the component, which is created in the Kyma's namespace.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Initial spec. Fields of the component contract are set over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub spec: Option<FreeForm>,
    /// CRD of the kind, at most 256 KiB, to install on the hub. Absent: the CRD exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::embedded_object")]
    pub crd: Option<FreeForm>,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn link_of_any_type_that_an_api_server_accepts_is_kept() {
        for link in [json!([]), json!("https://example.com/manifest.yaml")] {
            let template = json!({"descriptor": {}, "resources": [{"name": "rawManifest", "link": link}]});
            let read: ModuleTemplateSpec = from_value(template.clone()).unwrap();
            assert_eq!(json!(read)["resources"], template["resources"]);
        }
    }
}
