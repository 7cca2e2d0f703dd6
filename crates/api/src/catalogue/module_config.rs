//! ModuleConfig: central configuration of a module for some or all Kymas.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::fields::{FreeForm, ResourcePolicy};
use crate::kyma::Upgrade;
use crate::{schema::patterns, schema::schemas};

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
    doc = "ModuleConfig configures a module centrally for some or all Kymas: values that take \
           precedence over the users', rules for the users' settings, and settings that replace theirs.",
    printcolumn(name = "Module", type_ = "string", json_path = ".spec.module"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Resource Rules",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"ResourceRulesApplied\")].status"
    ),
    printcolumn(name = "Matching", type_ = "integer", json_path = ".status.matching.count"),
    printcolumn(name = "Refused", type_ = "integer", json_path = ".status.refused.count"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.module != '*' || !has(self.resourceRules)",
    "message": "'resourceRules' apply to the objects of one module: name it in 'module'",
}, {
    "rule": "self.module != '*' || !has(self.overrides) || !has(self.overrides.module) || \
             !has(self.overrides.module.version)",
    "message": "a version belongs to one module: name it in 'module'",
}]))]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct ModuleConfigSpec {
    /// Name of the module, or * for all modules. With *, overrides.component applies to HelmComponents only. Among
    /// equal priorities a ModuleConfig that names the module takes precedence.
    #[schemars(regex(pattern = patterns::CONFIGURED_MODULE), length(min = 1, max = 64))]
    pub module: String,
    /// Selects Kymas by label. Absent or empty: all Kymas of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Precedence among ModuleConfigs for one module of a Kyma: the highest priority wins, then the name that sorts
    /// first. Rules of all of them apply. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Values that take precedence over the user's: Helm values, or spec.overrides of a component of another kind.
    /// Maps are merged key by key, everything else is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub values: Option<FreeForm>,
    /// Rules for the user's entry for the module, checked after overrides; all must hold. While one is violated,
    /// the installed version stays, nothing new is installed, and the user is shown the rule's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Option<Vec<ConfigRule>>,
    /// Rules for the module's objects on the targets, such as its custom resources. Each target with the module
    /// gets them as ValidatingAdmissionPolicies (Kubernetes 1.30 or newer), which reject a violating object with
    /// the rule's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_rules: Option<Vec<ResourceRule>>,
    /// Settings that replace those of the user and of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ConfigOverrides>,
}

/// One rule for the entry for the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigRule {
    /// CEL that is true for a valid entry. self is the effective entry in spec.modules: name, channel (by default
    /// the Kyma's; absent for a pinned version), version (only if pinned), managed, customResourcePolicy, upgrade,
    /// values. Guard optional fields with has(). An expression that cannot be evaluated counts as violated.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,
    /// Message for the user if the rule is violated.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
}

/// One rule for objects of a module on targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!self.group.endsWith('k8s.io')",
    "message": "a rule on Kubernetes' own kinds could lock a cluster: name a group of the module",
}, {
    "rule": "self.group != 'operator.kyma-project.io' || self.resource != 'kymas'",
    "message": "spec.rules, not resourceRules, apply to the entry in a Kyma",
}]))]
pub struct ResourceRule {
    /// API group of the objects, for instance operator.kyma-project.io.
    #[schemars(regex(pattern = patterns::CRD_GROUP), length(max = 253))]
    pub group: String,
    /// Resource of the objects, in plural and lower case, for instance serverlesses.
    #[schemars(regex(pattern = patterns::RESOURCE), length(max = 63))]
    pub resource: String,
    /// CEL as in a ValidatingAdmissionPolicy, true for a valid object: object is the object, oldObject its state
    /// before an update, request the request. Guard optional fields with has(). Requests that cannot be evaluated
    /// are rejected. Existing objects are checked when their spec changes; objects being deleted are never blocked.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,
    /// Message for the user if the rule is violated.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
}

/// Settings that replace those of the user and of the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigOverrides {
    /// Overrides of the user's entry for the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<ModuleOverride>,
    /// Merged over the component's spec: maps key by key, everything else is replaced. A source without content
    /// (ocm, chart, manifests) adds to the module's; source.verify replaces the module's as a whole. Fields that
    /// kyma-operator sets (target, module, userValues, overrides, dependsOn, resourcePolicy, deletionPolicy) stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub component: Option<FreeForm>,
}

/// Overrides of the user's entry for the module; absent fields stay as the user set them.
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
    /// Whether the module is managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<bool>,
    /// Policy for the default CR of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_resource_policy: Option<ResourcePolicy>,
    /// Policy for new versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
}

/// Observed state over all Kymas: counts, and the first names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct ModuleConfigStatus {
    /// Conditions of the ModuleConfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Kymas that the ModuleConfig selects and that have the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<FleetCount>,
    /// Matching Kymas whose entry violates a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<FleetCount>,
}

/// A count of Kymas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetCount {
    /// Number of Kymas.
    pub count: i64,
    /// Names of the first 20, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
}
