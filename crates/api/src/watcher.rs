//! Watcher: which changes on targets are reported, and to whom.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{State, schemas};

/// Which changes on targets are reported, and to whom.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "Watcher",
    plural = "watchers",
    namespaced,
    status = "WatcherStatus",
    derive = "PartialEq",
    doc = "Watcher says which changes on the clusters are reported to which operator on the hub. It has no effect in this version: the operators watch the clusters themselves, and only Kyma Lifecycle Manager reads it.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WatcherSpec {
    /// Service on the hub that receives the events.
    pub service_info: ServiceInfo,
    /// Operator that the events are for; part of the address that they are posted to. Absent: the label
    /// operator.kyma-project.io/managed-by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// Labels that an object must carry to be reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels_to_watch: Option<BTreeMap<String, String>>,
    /// Resource to watch on the clusters.
    pub resource_to_watch: ResourceToWatch,
    /// Part of the object whose changes count: spec or status.
    pub field: WatchedField,
    /// Where the events come in.
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
    /// The wish.
    #[default]
    Spec,
    /// The report.
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

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatcherStatus {
    /// State of the Watcher.
    pub state: State,
    /// Aspects of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that this was found for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
