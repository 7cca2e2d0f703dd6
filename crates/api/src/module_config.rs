//! ModuleConfig: central configuration of a module for some or all Kymas.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FreeForm, ResourcePolicy, Upgrade, patterns, schemas};

/// Central configuration of a module, or of all modules.
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
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Matching", type_ = "integer", json_path = ".status.matching.count"),
    printcolumn(name = "Refused", type_ = "integer", json_path = ".status.refused.count"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.module != '*' || !has(self.resourceRules)",
    "message": "'resourceRules' are about the objects of one module: name it",
}, {
    "rule": "self.module != '*' || !has(self.overrides) || !has(self.overrides.module) || \
             !has(self.overrides.module.version)",
    "message": "a version is that of one module: name it",
}]))]
pub struct ModuleConfigSpec {
    /// Name of the module, or * for all modules. What is laid over the component's spec for all modules holds for
    /// HelmComponents; among equal priorities a ModuleConfig that names the module wins.
    #[schemars(regex(pattern = patterns::CONFIGURED_MODULE), length(min = 1, max = 64))]
    pub module: String,
    /// Kymas that it holds for. Absent or empty: all of its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Where several hold for one module of a Kyma, the one of higher priority wins, and among equals the one whose
    /// name sorts first. Rules of all of them have to hold. 0 unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Helm values that win over the user's. Maps are merged key by key, everything else is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub values: Option<FreeForm>,
    /// What the entry for the module must keep, as it is in force after overrides; all must hold. While one does not,
    /// the version that runs stays as it is, nothing is installed anew, and the user reads the rule's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Option<Vec<ConfigRule>>,
    /// What the module's own objects must keep on the targets, such as its custom resources. Each target gets them as
    /// ValidatingAdmissionPolicies (Kubernetes 1.30 or newer) while it has the module: who writes an object that
    /// breaks one is refused, and reads its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_rules: Option<Vec<ResourceRule>>,
    /// What replaces the user's wishes and the module's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ConfigOverrides>,
}

/// One rule on the entry for the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigRule {
    /// CEL that is true where the entry is fine. self is the entry in spec.modules as it is in force: name, channel
    /// (the Kyma's where the entry names none; absent where a version is pinned), version (only where it is pinned),
    /// managed, customResourcePolicy, upgrade, values. Guard what may be absent with has(). What cannot be judged
    /// counts as broken.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,
    /// What the user reads when it does not hold.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
}

/// One rule on objects of a module on targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!self.group.endsWith('k8s.io')",
    "message": "a rule on Kubernetes' own kinds could lock a cluster: name a group of the module's",
}, {
    "rule": "self.group != 'operator.kyma-project.io' || self.resource != 'kymas'",
    "message": "the entry in a Kyma is what spec.rules are about",
}]))]
pub struct ResourceRule {
    /// API group of the objects, for instance operator.kyma-project.io.
    #[schemars(regex(pattern = patterns::CRD_GROUP), length(max = 253))]
    pub group: String,
    /// Their resource, in plural and lower case, for instance serverlesses.
    #[schemars(regex(pattern = patterns::RESOURCE), length(max = 63))]
    pub resource: String,
    /// CEL as in a ValidatingAdmissionPolicy, true where the object is fine: object is the object, oldObject what it
    /// was before an update, request the request. Guard what may be absent with has(). What cannot be judged is
    /// refused. Objects that were there before are judged when their spec changes; one that is going is never held.
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
    /// Merged over what the module says of the component's spec: maps key by key, everything else is replaced. Without
    /// a content of its own (source.ocm, chart, manifests) source adds to the module's; source.verify replaces the
    /// module's as a whole. What
    /// kyma-operator sets itself (target, module, userValues, overrides, dependsOn, resourcePolicy, deletionPolicy)
    /// stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub component: Option<FreeForm>,
}

/// Fields of the user's entry for the module; what is absent stays the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleOverride {
    /// Channel; replaces the entry's channel and version. Excludes version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::CHANNEL), length(min = 3, max = 32))]
    pub channel: Option<String>,
    /// Version; replaces the entry's channel and version. Excludes channel.
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
    /// Kymas that have the module and that it holds for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<FleetCount>,
    /// Those of them whose entry breaks a rule.
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
