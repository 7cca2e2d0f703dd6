//! Watcher: routes changes on targets to an operator on the hub.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::schemas;
use crate::status::state::State;

/// Changes on targets to report, and their receiver.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "Watcher",
    plural = "watchers",
    namespaced,
    status = "WatcherStatus",
    derive = "PartialEq",
    doc = "Watcher routes changes on the clusters to an operator on the hub. It has no effect in this version: the operators watch the clusters themselves, and only Kyma Lifecycle Manager reads it.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct WatcherSpec {
    /// Service on the hub that receives the events.
    pub service_info: ServiceInfo,
    /// Operator that receives the events; part of the address that they are posted to. Absent: the label
    /// operator.kyma-project.io/managed-by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// Labels of the objects to report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels_to_watch: Option<BTreeMap<String, String>>,
    /// Resource to watch on the clusters.
    pub resource_to_watch: ResourceToWatch,
    /// Part of the object whose changes are reported: spec or status.
    pub field: WatchedField,
    /// Gateway that receives the events.
    pub gateway: Gateway,
}

/// A Service on the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceInfo {
    /// Port.
    pub port: i64,
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
}

/// A resource of an API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceToWatch {
    /// API group.
    pub group: String,
    /// API version; * for any.
    pub version: String,
    /// Plural name of the resource.
    pub resource: String,
}

/// Part of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WatchedField {
    /// The spec.
    #[default]
    Spec,
    /// The status.
    Status,
}

/// The ingress of the hub.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// Labels of the gateway object.
    #[schemars(schema_with = "schemas::label_selector")]
    pub selector: LabelSelector,
}

/// Observed state of the Watcher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct WatcherStatus {
    /// State of the Watcher.
    pub state: State,
    /// Conditions of the Watcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
