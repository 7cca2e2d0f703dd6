//! ModuleReleaseMeta: which version of a module each channel has.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{patterns, schemas};

/// How one module is offered.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "ModuleReleaseMeta",
    plural = "modulereleasemetas",
    shortname = "mrm",
    namespaced,
    derive = "PartialEq",
    doc = "ModuleReleaseMeta says how one module is offered: which version each channel has, which versions may be \
           pinned, or which one every cluster must have. Its name is the module's.",
    printcolumn(name = "Channels", type_ = "string", json_path = ".spec.channels"),
    printcolumn(name = "Mandatory", type_ = "string", json_path = ".spec.mandatory.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.mandatory) != (has(self.channels) || has(self.versions))",
    "message": "exactly one of 'mandatory' or 'channels' must be specified; 'versions' may stand beside or in place of 'channels'",
}]))]
pub struct ModuleReleaseMetaSpec {
    /// Name of the module; the object must have the same name.
    #[schemars(regex(pattern = patterns::MODULE_NAME), length(max = 64))]
    pub module_name: String,
    /// OCM component that holds the module's content, for instance example.org/module/keda.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::OCM_COMPONENT), length(max = 255))]
    pub ocm_component_name: Option<String>,
    /// The version of each channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["channel"]))]
    pub channels: Option<Vec<ChannelVersion>>,
    /// Every cluster gets the module in this version. Excludes channels and versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<Mandatory>,
    /// Versions that users may pin, also without a channel. Absent: every version that has a ModuleTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 500),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"])
    )]
    pub versions: Option<Vec<ReleasedVersion>>,
    /// How a new version spreads over the clusters. Absent: everywhere at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Deprecated: the label on the ModuleTemplate counts.
    #[serde(default)]
    pub beta: bool,
    /// Deprecated: the label on the ModuleTemplate counts.
    #[serde(default)]
    pub internal: bool,
    /// Restricts the module to Kymas of the hub whose labels match. Experimental, as in KLM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub kyma_selector: Option<LabelSelector>,
}

/// The version of one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelVersion {
    /// Channel.
    #[schemars(regex(pattern = patterns::CHANNEL), length(min = 3, max = 32))]
    pub channel: String,
    /// Version that it has.
    #[schemars(regex(pattern = patterns::VERSION), length(max = 32))]
    pub version: String,
}

/// The version that every cluster gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mandatory {
    /// Semantic version.
    #[schemars(regex(pattern = patterns::SEMVER), length(min = 1))]
    pub version: String,
}

/// A version that may be pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleasedVersion {
    /// The version.
    #[schemars(regex(pattern = patterns::PINNED_VERSION), length(max = 32))]
    pub version: String,
    /// From then on the version is not installed anew; where it runs it stays, with a warning. A date and time, or a date,
    /// which means its beginning in UTC. Absent: no such date.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "schemas::moment")]
    #[schemars(schema_with = "schemas::date_or_date_time")]
    pub deprecation_date: Option<Time>,
    /// What to do instead; shown to the users of the version. Absent: `choose another version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub deprecation_message: Option<String>,
}

/// How a new version spreads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// So many clusters may be upgrading at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_unavailable: Option<i32>,
    /// Stop when so many percent of the upgraded clusters fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub pause_on_failure_percent: Option<i32>,
    /// Kymas of the hub that get a new version first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub canary_selector: Option<LabelSelector>,
}
