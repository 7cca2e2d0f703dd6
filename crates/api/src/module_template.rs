//! ModuleTemplate: one version of one module.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ChartSource, Dependency, FreeForm, GroupKind, KindRef, Manager, State, patterns, schemas};

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
    /// Deprecated: whether a module is mandatory is said by its ModuleReleaseMeta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<bool>,
    /// The default CR: a whole object that is created once, when the module is installed. Absent: none.
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
    /// What catalogues show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<ModuleInfo>,
    /// Kinds that the module serves. While objects of them exist that the module did not make, it is not removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub associated_resources: Option<Vec<KindRef>>,
    /// The workload whose readiness is the module's state. Absent: all workloads of the module count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// An upgrade to this version waits for a maintenance window; a first installation does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_downtime: Option<bool>,
    /// The module's own reconciler. Absent: HelmComponent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<TemplateComponent>,
    /// A Helm chart as the module's content, instead of the manifest in its OCM component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<ChartSource>,
    /// What the module needs: kinds, for which only their objects wait, and modules or components, for which all of it
    /// waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub depends_on: Option<Vec<Dependency>>,
    /// Further kinds whose objects block the module's removal, beside the CRDs in its content and associatedResources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub managed_resources: Option<Vec<GroupKind>>,
}

/// A rule that had an effect in early KLM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomStateCheck {
    /// Where to look in the module's CR.
    pub json_path: String,
    /// What must be found there.
    pub value: String,
    /// The state that it stood for.
    pub mapped_state: State,
}

/// A named link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// What it is, for instance rawManifest.
    pub name: String,
    /// Where it is: an address.
    // An API server also takes an empty list, and one object that cannot be read would end the watch of all.
    #[schemars(schema_with = "schemas::uri")]
    pub link: Value,
}

/// What catalogues show about a module.
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
    /// Where it is.
    pub link: String,
}

/// The module's own reconciler, by the kind that it reconciles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateComponent {
    /// API group and version of the kind to create on the hub. Its group must be allowed there.
    #[schemars(length(min = 3, max = 317))]
    pub api_version: String,
    /// Kind to create on the hub, in the namespace of the Kyma.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// What its spec starts from. The fields of the component contract are set over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub spec: Option<FreeForm>,
    /// The kind's CRD, to be installed on the hub, at most 256 KiB. Absent: it is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::embedded_object")]
    pub crd: Option<FreeForm>,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_link_that_an_api_server_takes_though_it_is_none_can_be_read_and_goes_on_as_it_is() {
        for link in [json!([]), json!("https://example.com/manifest.yaml")] {
            let template = json!({"descriptor": {}, "resources": [{"name": "rawManifest", "link": link}]});
            let read: ModuleTemplateSpec = from_value(template.clone()).unwrap();
            assert_eq!(json!(read)["resources"], template["resources"]);
        }
    }
}
