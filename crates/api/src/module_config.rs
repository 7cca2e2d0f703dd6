//! ModuleConfig: central configuration of a module for some or all Kymas.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FreeForm, ResourcePolicy, Upgrade, patterns, schemas};

/// Central configuration of one module.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1alpha1",
    kind = "ModuleConfig",
    plural = "moduleconfigs",
    namespaced,
    status = "ModuleConfigStatus",
    derive = "PartialEq",
    doc = "ModuleConfig is what the owner of the fleet decides about a module for some or all Kymas: values that win \
           over the users', rules that users' wishes must keep, and wishes that replace theirs.",
    printcolumn(name = "Module", type_ = "string", json_path = ".spec.module"),
    printcolumn(name = "Matching", type_ = "integer", json_path = ".status.matching.count"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ModuleConfigSpec {
    /// Name of the module.
    #[schemars(regex(pattern = patterns::MODULE_NAME), length(min = 1, max = 64))]
    pub module: String,
    /// Kymas that it holds for. Absent or empty: all of its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Helm values that win over the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub values: Option<FreeForm>,
    /// What the user's entry for the module must keep; all must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Option<Vec<ConfigRule>>,
    /// What replaces the user's wishes and the module's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ConfigOverrides>,
}

/// One rule on the user's entry for the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigRule {
    /// CEL; self is the entry in spec.modules: channel, version, managed, customResourcePolicy, upgrade, values.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,
    /// What the user reads when it does not hold.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
}

/// What replaces the user's wishes and the module's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigOverrides {
    /// Fields of the user's entry for the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<ModuleOverride>,
    /// Merged over the component's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub component: Option<FreeForm>,
}

/// Fields of the user's entry for the module; what is absent stays the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleOverride {
    /// Channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::CHANNEL), length(min = 3, max = 32))]
    pub channel: Option<String>,
    /// Version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::PINNED_VERSION), length(max = 32))]
    pub version: Option<String>,
    /// Whether it is managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<bool>,
    /// What happens with the default CR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_resource_policy: Option<ResourcePolicy>,
    /// How new versions arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
}

/// What was found, over the whole fleet: counts, and the first names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleConfigStatus {
    /// Aspects of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that this was found for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Kymas that it holds for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<FleetCount>,
    /// Kymas whose wish breaks a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<FleetCount>,
}

/// Some of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetCount {
    /// How many.
    pub count: i64,
    /// The first 20 of them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
}
