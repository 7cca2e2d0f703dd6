//! ModuleReleaseMeta: the versions of a module by channel.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema::patterns, schema::schemas};

/// Channels, versions and rollout of one module.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "ModuleReleaseMeta",
    plural = "modulereleasemetas",
    shortname = "mrm",
    namespaced,
    derive = "PartialEq",
    doc = "ModuleReleaseMeta offers one module: the version of each channel, the versions that may be pinned, \
           or the one that every cluster gets. Its name is the module's.",
    printcolumn(name = "Channels", type_ = "string", json_path = ".spec.channels"),
    printcolumn(name = "Mandatory", type_ = "string", json_path = ".spec.mandatory.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.mandatory) != (has(self.channels) || has(self.versions))",
    "message": "exactly one of 'mandatory' or 'channels' must be specified; 'versions' may stand beside or in place of 'channels'",
}]))]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct ModuleReleaseMetaSpec {
    /// Name of the module; the object must have the same name.
    #[schemars(regex(pattern = patterns::MODULE_NAME), length(max = 64))]
    pub module_name: String,
    /// OCM component that holds the module's content, for instance example.org/module/keda.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::OCM_COMPONENT), length(max = 255))]
    pub ocm_component_name: Option<String>,
    /// Versions by channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["channel"]))]
    pub channels: Option<Vec<ChannelVersion>>,
    /// Makes the module mandatory: every cluster gets it in this version. Excludes channels and versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<Mandatory>,
    /// Versions that users may pin, also without a channel. Absent: every version that has a ModuleTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 500),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"])
    )]
    pub versions: Option<Vec<ReleasedVersion>>,
    /// Not supported yet: while it is set, installed modules keep their version (NotYetSupported), except pinned
    /// ones. Absent: new versions go to all clusters at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Deprecated: the label on the ModuleTemplate decides.
    #[serde(default)]
    pub beta: bool,
    /// Deprecated: the label on the ModuleTemplate decides.
    #[serde(default)]
    pub internal: bool,
    /// Kymas of the hub that may have a module listed in --restricted-default-modules; an empty selector matches
    /// none. On any other module it excludes every Kyma. No effect on mandatory modules. Experimental, as in KLM.
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
    /// Version in this channel.
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
    /// Date from which the version is not newly installed; existing installations stay, with a warning. A date and
    /// time, or a date, which means 00:00 UTC. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "schemas::moment")]
    #[schemars(schema_with = "schemas::date_or_date_time")]
    pub deprecation_date: Option<Time>,
    /// Advice for the users of the version. Absent: `choose another version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub deprecation_message: Option<String>,
}

/// Rollout of a new version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Maximum number of clusters that upgrade at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_unavailable: Option<i32>,
    /// Percentage of failed upgraded clusters at which the rollout stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub pause_on_failure_percent: Option<i32>,
    /// Kymas of the hub that get a new version first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub canary_selector: Option<LabelSelector>,
}
