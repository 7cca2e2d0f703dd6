//! Kyma: the modules of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::fields::{FreeForm, ResourcePolicy, SecretKeyRef};
use crate::status::state::State;
use crate::{schema::patterns, schema::schemas};

mod target_identity;

pub use target_identity::TargetIdentity;

/// Desired state of one cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "Kyma",
    plural = "kymas",
    namespaced,
    status = "KymaStatus",
    derive = "PartialEq",
    doc = "Kyma lists the modules of one cluster. On the hub it stands for that cluster; on the cluster itself, \
           as kyma-system/default, it is where users select modules.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "Modules", type_ = "string", json_path = ".status.modulesReady"),
    printcolumn(name = "Channel", type_ = "string", json_path = ".spec.channel"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct KymaSpec {
    /// Channel of all modules without a channel of their own.
    #[schemars(regex(pattern = patterns::CHANNEL), length(min = 3, max = 32))]
    pub channel: String,
    /// Secret in the same namespace with the kubeconfig of the cluster; Cluster API has it under the key value. Absent:
    /// the Secret labelled operator.kyma-project.io/kyma-name with this Kyma's name. Only read on the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyRef>,
    /// Desired modules of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub modules: Option<Vec<KymaModule>>,
    /// Whether upgrades with downtime skip the maintenance window. Read on the hub and on the target; the condition
    /// MaintenanceWindow names where it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_maintenance_windows: Option<bool>,
}

/// One desired module of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KymaModule {
    /// Name of the module and of its ModuleReleaseMeta.
    pub name: String,
    /// Channel of this module, instead of the Kyma's. Excludes version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::CHANNEL), length(min = 3, max = 32))]
    pub channel: Option<String>,
    /// Pinned version, independent of channels. The ModuleReleaseMeta must list it under versions or, without such
    /// a list, a ModuleTemplate must exist. Excludes channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::PINNED_VERSION), length(max = 32))]
    pub version: Option<String>,
    /// Copied to the label operator.kyma-project.io/controller-name of the module's component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Policy for the module's default CR. CreateAndDelete creates and deletes it with the module; with Ignore the
    /// user manages it, and removing the module leaves all its objects on the cluster.
    #[serde(default)]
    pub custom_resource_policy: ResourcePolicy,
    /// False stops the management of the module: its objects stay on the cluster, and the user manages them.
    #[serde(default = "yes")]
    pub managed: bool,
    /// Values of the module, at most 64 KiB: Helm values of a chart, or spec.userValues of a component of another
    /// kind. They take precedence over the module's own values, central ones over both. The module's status reports
    /// if they have no effect on its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub values: Option<FreeForm>,
    /// Policy for new versions. Absent: they are installed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// Has no effect; accepted so that stored objects stay valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_module_template_ref: Option<String>,
}

fn yes() -> bool {
    true
}

impl KymaModule {
    /// Returns a managed module that follows the Kyma's channel, without further settings.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            channel: None,
            version: None,
            controller: None,
            custom_resource_policy: ResourcePolicy::default(),
            managed: true,
            values: None,
            upgrade: None,
            remote_module_template_ref: None,
        }
    }
}

/// Policy for new versions of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Automatic installs a new version when the channel has one; Manual waits for approval.
    #[serde(default)]
    pub mode: UpgradeMode,
    /// Version that may be installed under Manual. A pinned version needs no approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::PINNED_VERSION), length(max = 32))]
    pub approved: Option<String>,
    /// Number of days after which an upgrade needs no approval, counted from the first version that waited
    /// (status.modules[].pendingUpgrade). Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 365))]
    pub deadline_days: Option<i32>,
}

/// Mode of upgrades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeMode {
    /// Upgrades follow the channel.
    #[default]
    Automatic,
    /// Upgrades wait for approval, until the deadline.
    Manual,
}

/// Observed state of the Kyma.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct KymaStatus {
    /// State in one word: Ready, Processing, Warning, Error, Deleting, Unmanaged, or empty before the first
    /// reconcile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Channel in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_channel: Option<String>,
    /// Number of ready entries in `modules`, as `3/4`. Unmanaged ones count as Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules_ready: Option<String>,
    /// Conditions: Modules, ModuleCatalog, CRDsSync, TargetReachable and others, each with one writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// Last step or error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// All modules that are desired or not yet removed, including refused ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<Vec<ModuleStatus>>,
    /// Identity of the cluster at first contact; on the hub only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetIdentity>,
    /// Modules last read from the cluster's Kyma; on the hub only. If that Kyma is lost, it is created again from
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// Mandatory modules that are on the cluster; on the hub only. They have an entry in modules only while they are
    /// removed, kept as they are, or held back at their version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mandatory_modules: Option<Vec<MandatoryModule>>,
}

/// A mandatory module on the cluster, and its component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MandatoryModule {
    /// Name of the module.
    pub name: String,
    /// Version that is installed or being installed.
    pub version: String,
    /// API group and version of its component.
    pub api_version: String,
    /// Kind of its component.
    pub kind: String,
    /// Whether the deletion of its component was requested. Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// Uids of the ModuleConfigs that apply to the module, by name; on the hub only. A missing ModuleConfig stays
    /// in force until its deletion is proven.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub module_configs: BTreeMap<String, String>,
}

/// Last step or error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// Description of the step or error.
    pub operation: String,
    /// Time of its last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::date_time")]
    pub last_update_time: Option<Time>,
}

/// One module on the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleStatus {
    /// Name of the module.
    pub name: String,
    /// OCM component name of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocm_component_name: Option<String>,
    /// The same as ocmComponentName, for tools that read the old field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// Channel that the module follows; absent for a pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Version that is installed or being installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Message about the state, with the necessary action if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// State of the module.
    pub state: State,
    /// Stable reason of the state in one word: Ready, Progressing, DowngradeRefused and others. Each has a page in
    /// the runbook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the last change of state, reason, version or channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::date_time")]
    pub last_transition_time: Option<Time>,
    /// Whether the module is in spec.modules of the hub's Kyma, the initial set. Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
    /// Whether an upgrade waits for a maintenance window.
    #[serde(default)]
    pub maintenance: bool,
    /// Upgrade that waits for approval (spec.modules[].upgrade).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_upgrade: Option<PendingUpgrade>,
    /// Component of the module on the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<TrackedObject>,
    /// The module's default CR on the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<TrackedObject>,
    /// The ModuleTemplate in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TrackedObject>,
    /// Whether the default CR was created: it is not created again when the module is managed again. On the hub
    /// only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_resource_created: bool,
    /// Uids of the ModuleConfigs that apply to the module, by name; on the hub only. A missing ModuleConfig stays
    /// in force until its deletion is proven.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub module_configs: BTreeMap<String, String>,
}

/// An upgrade that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingUpgrade {
    /// Version to be approved.
    pub version: String,
    /// Start of the wait for approval; upgrade.deadlineDays count from here.
    #[schemars(schema_with = "schemas::date_time")]
    pub since: Time,
}

/// An object that a module's state depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrackedObject {
    /// API group and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name, namespace and generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<PartialMeta>,
}

/// The part of an object's metadata that identifies it and its generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartialMeta {
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace; absent for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Last observed generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// Modules as read from the cluster's Kyma.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selection {
    /// Channel of the cluster's Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Its modules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub modules: Vec<KymaModule>,
}
