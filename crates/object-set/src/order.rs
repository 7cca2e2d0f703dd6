//! Order in which the objects of a set are applied and deleted.

use std::borrow::Borrow;

use serde_json::Value;

use crate::object::{GroupKind, Identity, Object};

/// A stage of an installation. The objects of a stage are applied in parallel; the next stage starts when all of them
/// were sent (and, for [`Stage::Foundation`], its CRDs are established or late).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Namespaces and CRDs, which other objects need.
    Foundation,
    /// Cluster-scoped RBAC, storage classes, priority classes and the like.
    Cluster,
    /// Namespaced configuration: accounts, Secrets, ConfigMaps, roles, quotas, policies, claims.
    Configuration,
    /// Services and workloads.
    Workload,
    /// Objects that the API server consults for other requests: aggregated APIs, webhooks, admission policies.
    Admission,
    /// Objects of custom or unknown kinds.
    Custom,
}

impl Stage {
    /// All stages in the order of an installation.
    pub const ALL: [Self; 6] =
        [Self::Foundation, Self::Cluster, Self::Configuration, Self::Workload, Self::Admission, Self::Custom];
}

/// Kinds with their group and stage, in Helm's install order. Kubernetes kinds that Helm does not list are placed
/// where their order does no harm.
const INSTALL_ORDER: &[(&str, &str, Stage)] = &[
    ("scheduling.k8s.io", "PriorityClass", Stage::Cluster),
    ("", "Namespace", Stage::Foundation),
    ("networking.k8s.io", "NetworkPolicy", Stage::Configuration),
    ("", "ResourceQuota", Stage::Configuration),
    ("", "LimitRange", Stage::Configuration),
    ("policy", "PodSecurityPolicy", Stage::Cluster),
    ("policy", "PodDisruptionBudget", Stage::Configuration),
    ("", "ServiceAccount", Stage::Configuration),
    ("", "Secret", Stage::Configuration),
    ("", "ConfigMap", Stage::Configuration),
    ("storage.k8s.io", "StorageClass", Stage::Cluster),
    ("storage.k8s.io", "CSIDriver", Stage::Cluster),
    ("storage.k8s.io", "VolumeAttributesClass", Stage::Cluster),
    ("node.k8s.io", "RuntimeClass", Stage::Cluster),
    ("", "PersistentVolume", Stage::Cluster),
    ("", "PersistentVolumeClaim", Stage::Configuration),
    ("apiextensions.k8s.io", "CustomResourceDefinition", Stage::Foundation),
    ("rbac.authorization.k8s.io", "ClusterRole", Stage::Cluster),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", Stage::Cluster),
    ("rbac.authorization.k8s.io", "Role", Stage::Configuration),
    ("rbac.authorization.k8s.io", "RoleBinding", Stage::Configuration),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", Stage::Cluster),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", Stage::Cluster),
    ("", "Service", Stage::Workload),
    ("", "Endpoints", Stage::Workload),
    ("discovery.k8s.io", "EndpointSlice", Stage::Workload),
    ("apps", "DaemonSet", Stage::Workload),
    ("", "Pod", Stage::Workload),
    ("", "ReplicationController", Stage::Workload),
    ("apps", "ReplicaSet", Stage::Workload),
    ("apps", "Deployment", Stage::Workload),
    ("autoscaling", "HorizontalPodAutoscaler", Stage::Workload),
    ("apps", "StatefulSet", Stage::Workload),
    ("batch", "Job", Stage::Workload),
    ("batch", "CronJob", Stage::Workload),
    ("networking.k8s.io", "IngressClass", Stage::Cluster),
    ("networking.k8s.io", "Ingress", Stage::Workload),
    ("apiregistration.k8s.io", "APIService", Stage::Admission),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", Stage::Admission),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", Stage::Admission),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", Stage::Admission),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", Stage::Admission),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", Stage::Admission),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", Stage::Admission),
];

/// Reports whether a group belongs to Kubernetes, also if the kind is not listed.
pub(crate) fn is_builtin(group: &str) -> bool {
    matches!(group, "" | "apps" | "batch" | "autoscaling" | "policy")
        || INSTALL_ORDER.iter().any(|(g, ..)| *g == group)
}

fn rank(kind: &GroupKind) -> Option<usize> {
    INSTALL_ORDER.iter().position(|(group, name, _)| *group == kind.group && *name == kind.kind)
}

/// Returns the stage in which objects of a kind are applied.
pub fn stage(kind: &GroupKind) -> Stage {
    match rank(kind) {
        Some(index) => INSTALL_ORDER[index].2,
        None if is_builtin(&kind.group) => Stage::Configuration,
        None => Stage::Custom,
    }
}

/// Type of the Secrets with the token of a ServiceAccount.
const ACCOUNT_TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

/// Returns the stage in which an object is applied. The token Secret of a ServiceAccount has a later stage than the
/// account: Kubernetes deletes the Secret if the account does not exist.
/// Source: `syncSecret` in `pkg/controller/serviceaccount/tokens_controller.go` of Kubernetes.
fn stage_of(object: &Object, kind: &GroupKind) -> Stage {
    let is_secret = kind.group.is_empty() && kind.kind == "Secret";
    let secret_type = object.body().get("type").and_then(Value::as_str);
    if is_secret && secret_type == Some(ACCOUNT_TOKEN_TYPE) { Stage::Workload } else { stage(kind) }
}

/// Returns the objects of each non-empty stage, in Helm's kind order and otherwise in the order of the input.
pub fn stages<T: Borrow<Object>>(objects: impl IntoIterator<Item = T>) -> Vec<(Stage, Vec<T>)> {
    let mut all: Vec<(Stage, usize, T)> = objects
        .into_iter()
        .map(|item| {
            let object: &Object = item.borrow();
            let kind = object.gvk().group_kind();
            (stage_of(object, &kind), rank(&kind).unwrap_or(INSTALL_ORDER.len()), item)
        })
        .collect();
    all.sort_by_key(|(stage, rank, _)| (*stage, *rank));
    let mut out: Vec<(Stage, Vec<T>)> = Vec::new();
    for (stage, _, object) in all {
        match out.last_mut() {
            Some((last, objects)) if *last == stage => objects.push(object),
            _ => out.push((stage, vec![object])),
        }
    }
    out
}

/// A stage of an uninstallation: all objects of a stage are gone before the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeletionStage {
    /// Custom resources, while the operator that handles their finalizers still runs.
    Custom,
    /// Objects that can refuse or route other requests: webhooks, aggregated APIs, admission policies.
    Admission,
    /// Workloads, before their configuration and rights are deleted.
    Workload,
    /// All other objects except CRDs and Namespaces.
    Other,
    /// CRDs, whose custom resources are gone by then.
    Crd,
    /// Namespaces.
    Namespace,
}

impl DeletionStage {
    /// All stages in the order of an uninstallation.
    pub const ALL: [Self; 6] =
        [Self::Custom, Self::Admission, Self::Workload, Self::Other, Self::Crd, Self::Namespace];
}

/// Returns the stage in which an object is deleted. Unlike Helm, custom resources are deleted first: Helm deletes them
/// after their operator and CRD, so that no controller handles their finalizers.
pub fn deletion_stage(identity: &Identity) -> DeletionStage {
    if identity.is_namespace() {
        return DeletionStage::Namespace;
    }
    if identity.is_crd() {
        return DeletionStage::Crd;
    }
    match stage(&identity.group_kind()) {
        Stage::Custom => DeletionStage::Custom,
        Stage::Admission => DeletionStage::Admission,
        Stage::Workload => DeletionStage::Workload,
        Stage::Foundation | Stage::Cluster | Stage::Configuration => DeletionStage::Other,
    }
}

/// Reports whether objects of a kind are Pods, or make Pods themselves or by what they own.
pub(crate) fn makes_pods(kind: &GroupKind) -> bool {
    matches!(
        (kind.group.as_str(), kind.kind.as_str()),
        ("", "Pod" | "ReplicationController")
            | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job" | "CronJob")
    )
}

/// Sorts objects for deletion: by stage, and within a stage in reverse of Helm's install order.
pub fn sort_for_deletion(identities: &mut [Identity]) {
    identities.sort_by_cached_key(|identity| {
        let rank = rank(&identity.group_kind()).unwrap_or(INSTALL_ORDER.len());
        (deletion_stage(identity), std::cmp::Reverse(rank), identity.clone())
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str) -> Object {
        Object::from_value(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}}))
            .unwrap()
    }

    #[test]
    fn workloads_without_pods_need_no_foreground_deletion() {
        let kinds = INSTALL_ORDER.iter().filter(|(.., stage)| *stage == Stage::Workload);
        let kinds = kinds.map(|(group, kind, _)| GroupKind::new(*group, *kind));
        let without: Vec<String> = kinds.filter(|kind| !makes_pods(kind)).map(|kind| kind.kind).collect();
        assert_eq!(without, ["Service", "Endpoints", "EndpointSlice", "HorizontalPodAutoscaler", "Ingress"]);
    }

    #[test]
    fn the_token_of_an_account_is_applied_after_the_account() {
        let secret = |secret_type: &str| {
            let body =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "type": secret_type});
            Object::from_value(body).unwrap()
        };
        let objects = [secret(ACCOUNT_TOKEN_TYPE), secret("Opaque"), object("v1", "ServiceAccount")];
        let found = stages(objects).into_iter().map(|(stage, objects)| (stage, objects.len()));
        assert_eq!(found.collect::<Vec<_>>(), [(Stage::Configuration, 2), (Stage::Workload, 1)]);
    }

    #[test]
    fn stages_follow_what_stands_on_what() {
        let objects = [
            object("widgets.io/v1", "Widget"),
            object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            object("apps/v1", "Deployment"),
            object("v1", "Service"),
            object("v1", "ConfigMap"),
            object("v1", "ServiceAccount"),
            object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            object("rbac.authorization.k8s.io/v1", "ClusterRole"),
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            object("v1", "Namespace"),
        ];
        let stages = stages(&objects);
        let kinds: Vec<Vec<&str>> =
            stages.iter().map(|(_, objects)| objects.iter().map(|o| o.kind()).collect()).collect();
        assert_eq!(
            kinds,
            [
                vec!["Namespace", "CustomResourceDefinition"],
                vec!["ClusterRole", "ClusterRoleBinding"],
                vec!["ServiceAccount", "ConfigMap"],
                vec!["Service", "Deployment"],
                vec!["ValidatingWebhookConfiguration"],
                vec!["Widget"],
            ]
        );
        assert_eq!(stages.iter().map(|(stage, _)| *stage).collect::<Vec<_>>(), Stage::ALL);
    }

    #[test]
    fn a_custom_kind_with_a_builtin_name_is_custom() {
        assert_eq!(stage(&GroupKind::new("serving.knative.dev", "Service")), Stage::Custom);
        assert_eq!(stage(&GroupKind::new("", "PodTemplate")), Stage::Configuration);
    }

    #[test]
    fn custom_resources_go_first_and_namespaces_last() {
        let mut identities = vec![
            Identity::new("", "Namespace", None, "n"),
            Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, "c"),
            Identity::new("rbac.authorization.k8s.io", "ClusterRole", None, "r"),
            Identity::new("rbac.authorization.k8s.io", "ClusterRoleBinding", None, "b"),
            Identity::new("", "Service", Some("n"), "s"),
            Identity::new("apps", "Deployment", Some("n"), "d"),
            Identity::new("admissionregistration.k8s.io", "MutatingWebhookConfiguration", None, "w"),
            Identity::new("widgets.io", "Widget", Some("n"), "w"),
        ];
        sort_for_deletion(&mut identities);
        let kinds: Vec<&str> = identities.iter().map(|i| i.kind.as_str()).collect();
        let expected = [
            "Widget",
            "MutatingWebhookConfiguration",
            "Deployment",
            "Service",
            "ClusterRoleBinding",
            "ClusterRole",
            "CustomResourceDefinition",
            "Namespace",
        ];
        assert_eq!(kinds, expected);
    }
}
