//! Kyma: which modules a cluster has.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FreeForm, ResourcePolicy, SecretKeyRef, State, patterns, schemas};

/// What is wished for one cluster.
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
           as kyma-system/default, it is where users choose modules.",
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
pub struct KymaSpec {
    /// Channel of all modules that do not name their own.
    #[schemars(regex(pattern = patterns::CHANNEL), length(min = 3, max = 32))]
    pub channel: String,
    /// The cluster that this Kyma manages: a Secret with its kubeconfig in the same namespace. Absent: the Secret
    /// labelled operator.kyma-project.io/kyma-name with this Kyma's name. Only read on the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyRef>,
    /// Modules that the cluster shall have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub modules: Option<Vec<KymaModule>>,
    /// Upgrades that need downtime do not wait for a maintenance window. Counts on the hub and on the target alike; the
    /// condition MaintenanceWindow says where it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_maintenance_windows: Option<bool>,
}

/// One module that the cluster shall have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KymaModule {
    /// Name of the module: that of its ModuleReleaseMeta.
    pub name: String,
    /// Channel of this module; instead of the Kyma's. Excludes version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::CHANNEL), length(min = 3, max = 32))]
    pub channel: Option<String>,
    /// Exactly this version, whatever the channels say. It must be one that the ModuleReleaseMeta lists under
    /// versions or, if it has no such list, one that has a ModuleTemplate. Excludes channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = patterns::PINNED_VERSION), length(max = 32))]
    pub version: Option<String>,
    /// Copied to the label operator.kyma-project.io/controller-name of the module's component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// What happens with the module's default CR. CreateAndDelete creates it with the module and deletes it with
    /// the module; Ignore leaves it to you, and removing the module leaves everything of it on the cluster.
    #[serde(default)]
    pub custom_resource_policy: ResourcePolicy,
    /// False takes the module out of management: what is installed stays and is yours.
    #[serde(default = "yes")]
    pub managed: bool,
    /// Helm values for a module whose content is a chart, at most 64 KiB. They win over the module's own and lose to the
    /// central ones. For other content they have no effect, which the module's status says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub values: Option<FreeForm>,
    /// How new versions arrive. Absent: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// Has no effect any more; accepted so that old objects stay valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_module_template_ref: Option<String>,
}

fn yes() -> bool {
    true
}

impl KymaModule {
    /// A managed module that follows the Kyma's channel, with nothing else said.
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

/// How new versions of a module arrive.
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
    /// After so many days of waiting the module is upgraded without approval. They count from the first version that
    /// waited, see status.modules[].pendingUpgrade. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 365))]
    pub deadline_days: Option<i32>,
}

/// Who decides about an upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeMode {
    /// The channel.
    #[default]
    Automatic,
    /// A person, until the deadline.
    Manual,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KymaStatus {
    /// The whole in one word: Ready, Processing, Warning, Error, Deleting, Unmanaged, or empty before the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Channel in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_channel: Option<String>,
    /// How many of the entries in `modules` are Ready, as `3/4`. Unmanaged ones count as Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules_ready: Option<String>,
    /// Aspects of the whole: Modules, ModuleCatalog, CRDsSync, TargetReachable and others. One owner each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The last step or fault in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Every module that is wished or not yet gone, refused ones too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<Vec<ModuleStatus>>,
    /// The cluster as it was known at first contact; on the hub only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetIdentity>,
    /// The last choice of modules read from the cluster; on the hub only. Where the cluster's Kyma was lost, the new
    /// one starts from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// Mandatory modules that are on the cluster; on the hub only. They have no entry in modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mandatory_modules: Option<Vec<MandatoryModule>>,
}

/// A mandatory module on the cluster, and what installs it.
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
    /// Its component has been told to go. Absent: it has not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
}

/// The last step or fault in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// What was done or went wrong.
    pub operation: String,
    /// When that changed.
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
    /// State in words; names what to do where a person must act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// State of the module.
    pub state: State,
    /// Why it is in that state, in one stable word: Ready, Progressing, DowngradeRefused and others. Each has a page in
    /// the runbook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when state, reason, version and channel are as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::date_time")]
    pub last_transition_time: Option<Time>,
    /// The module is in the initial set, that is in spec.modules of the hub's Kyma. Absent: it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
    /// An upgrade waits for a maintenance window.
    #[serde(default)]
    pub maintenance: bool,
    /// The upgrade that waits for approval (spec.modules[].upgrade).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_upgrade: Option<PendingUpgrade>,
    /// The object on the hub that installs the module: its component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<TrackedObject>,
    /// The module's default CR on the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<TrackedObject>,
    /// The ModuleTemplate in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TrackedObject>,
    /// The module's default CR was created, so it is not created again when the module is managed again; on the hub only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_resource_created: bool,
    /// Uids of the ModuleConfigs that apply to the module, by name; on the hub only. A ModuleConfig that is missing
    /// later stays in force until its deletion is certain.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub module_configs: BTreeMap<String, String>,
}

/// An upgrade that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingUpgrade {
    /// Version to be approved.
    pub version: String,
    /// Since when upgrades of the module have been waiting; upgrade.deadlineDays count from here.
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
    /// Which one.
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
    /// Generation last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// Which cluster it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetIdentity {
    /// Uid of the cluster's kube-system Namespace at first contact. Another one later means another cluster, and
    /// nothing is written or deleted there until a person says so.
    pub cluster_uid: String,
    /// Counts how often this Kyma took the cluster over; the cluster's stamp has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Counts the changes that were ordered for the cluster, with a mark drawn at random, such as 12-x3f9; the cluster's
    /// stamp has the same. Where the stamp is further, this hub is an old copy or was restored from a backup, and
    /// nothing is written or deleted there until a person says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
}

/// A choice of modules as read from the cluster.
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
