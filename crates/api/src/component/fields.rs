//! Fields of the contract, and the references that several kinds use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A JSON object without a schema of this API, such as Helm values or a Kubernetes object. Kept unchanged.
pub type FreeForm = serde_json::Map<String, serde_json::Value>;

/// The target cluster of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// Secret in the component's namespace with the kubeconfig of the target; Cluster API has it under the key value.
    /// May only be absent if the hub is the target: in single-cluster mode, or for the Kyma that --local-kyma names.
    /// Otherwise its absence is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyRef>,
}

/// One key of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its data. Absent: config.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_key() -> String {
    "config".to_owned()
}

/// The module that a component installs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleRef {
    /// Name of the module.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Version to install; reported back in status.version once it runs.
    #[schemars(length(min = 1, max = 128))]
    pub version: String,
    /// Channel that led to this version. Absent for a pinned or mandatory module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub channel: Option<String>,
}

/// Effect of a component's deletion on the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Everything on the target stays. The default, so that an accidental deletion removes nothing.
    #[default]
    Orphan,
    /// The module is removed from the target.
    Delete,
}

/// Policy for the module's default CR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ResourcePolicy {
    /// The default CR is created with the module, unless it exists, and deleted with the module.
    #[default]
    CreateAndDelete,
    /// The default CR is neither created nor deleted.
    Ignore,
}

/// A dependency of a component. A missing kind (api) delays only objects of that kind; a module or component that
/// is not ready delays the first installation and later changes of the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": ONE_DEPENDENCY,
        "message": "exactly one of 'api', 'module' or 'component' must be specified",
    },
    {
        "rule": READY_OF_COMPONENT,
        "message": "'ready' is about a module or component, not an 'api'",
    },
]))]
pub struct Dependency {
    /// A kind that the target's API must serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<GroupKind>,
    /// Name of a module that must be Ready on the same Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub module: Option<String>,
    /// A component in the same namespace that must be Ready, of the same Kyma or, if this one has none, without a
    /// Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<ComponentDependency>,
    /// CEL that is true if the component is ready, instead of its condition Ready for its current generation. self
    /// is the component; metadata, spec and status can be used without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub ready: Option<String>,
}

const ONE_DEPENDENCY: &str =
    "(has(self.api) ? 1 : 0) + (has(self.module) ? 1 : 0) + (has(self.component) ? 1 : 0) == 1";
const READY_OF_COMPONENT: &str = "!has(self.ready) || !has(self.api)";

/// A component in the namespace of its dependent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentDependency {
    /// API group and version. Absent: component.kyma-project.io/v1alpha1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub api_version: Option<String>,
    /// Kind. Absent: HelmComponent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A kind, in one or any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupKind {
    /// API group; empty for the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// API version. Absent: any served version. In dependsOn this exact version must be served; in
    /// managedResources objects of all served versions block if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub version: Option<String>,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// A kind in one version, as KLM writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KindRef {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Workload whose readiness determines the module's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Manager {
    /// API group, for instance apps.
    pub group: String,
    /// API version, for instance v1.
    pub version: String,
    /// Kind, usually Deployment.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// One object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// API group and version, for instance apps/v1.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Uid of the object. A later object of the same name does not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}
