//! Checks what a removal leaves on a target.

use std::time::Duration;

use anyhow::Result;
use kube::api::{DeleteParams, DynamicObject};
use kube::{Api, Client, Discovery};
use kyma_api::Kyma;
use serde_json::Value;
use testbed::until_or_why;

use crate::landscape::TARGET_NAMESPACE;
use crate::snapshot::{self, Difference, Key, Snapshot};

/// Deadline for garbage collection on the target.
const DEADLINE: Duration = Duration::from_mins(2);

/// Waits until the target is as before, except for objects that a removal may leave. Returns these, without roles
/// that Kubernetes recreated.
///
/// # Errors
/// Something else differs; the message lists it.
pub async fn until_as_before(target: &Client, before: &Snapshot) -> Result<Vec<Difference>> {
    until_only(target, before, may_stay).await
}

/// Does the same as [`until_as_before`] after a removal that skipped hooks: hooks and their objects may stay too.
///
/// # Errors
/// Something else differs; the message lists it.
pub async fn until_as_before_but_for_hooks(target: &Client, before: &Snapshot) -> Result<Vec<Difference>> {
    until_only(target, before, |key, after| may_stay(key, after) || is_of_any_hook(key, after)).await
}

async fn until_only(
    target: &Client,
    before: &Snapshot,
    may_stay: fn(&Key, &Snapshot) -> bool,
) -> Result<Vec<Difference>> {
    until_or_why("the target is as before", DEADLINE, || async {
        let after = snapshot::take(target).await?;
        let (kept, wrong): (Vec<_>, Vec<_>) =
            snapshot::differences(before, &after).into_iter().partition(|difference| match difference {
                Difference::Added(key) => may_stay(key, &after),
                Difference::Removed(_) | Difference::Changed(..) => false,
            });
        if !wrong.is_empty() {
            return Ok(Err(listed(&wrong)));
        }
        // May be present or absent.
        let came_back = |difference: &Difference| match difference {
            Difference::Added(key) => is_a_role(key) && is_back(key, &after) && !stays(key, &after),
            Difference::Removed(_) | Difference::Changed(..) => false,
        };
        Ok(Ok(kept.into_iter().filter(|difference| !came_back(difference)).collect()))
    })
    .await
}

fn is_a_role(key: &Key) -> bool {
    key.is("rbac.authorization.k8s.io", "ClusterRole")
}

/// Deletes objects that were created since `before`, by any client, until the target is as it was.
///
/// # Errors
/// An object stays, or was changed or removed meanwhile.
pub async fn clear(target: &Client, before: &Snapshot) -> Result<()> {
    until_or_why("what was left is gone", DEADLINE, || async {
        let left = snapshot::differences(before, &snapshot::take(target).await?);
        let discovery = Discovery::new(target.clone()).run_aggregated().await?;
        for difference in &left {
            if let Difference::Added(key) = difference {
                delete(target, &discovery, key).await?;
            }
        }
        Ok(if left.is_empty() { Ok(()) } else { Err(listed(&left)) })
    })
    .await
}

async fn delete(target: &Client, discovery: &Discovery, key: &Key) -> Result<()> {
    let mut kinds = discovery.groups().filter(|group| group.name() == key.group);
    let kind = kinds.find_map(|group| group.recommended_kind(&key.kind));
    // Deleted with its CRD.
    let Some((resource, _)) = kind else { return Ok(()) };
    let api: Api<DynamicObject> = match &key.namespace {
        Some(namespace) => Api::namespaced_with(target.clone(), namespace, &resource),
        None => Api::all_with(target.clone(), &resource),
    };
    match api.delete(&key.name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        // Already deleted, or being deleted with its namespace.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405 | 409) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(|difference| format!("\n  {difference}")).collect()
}

/// Reports whether the target has a Kyma for its users.
///
/// # Errors
/// The target does not respond.
pub async fn has_kyma(target: Client) -> Result<bool> {
    let kymas: Api<Kyma> = Api::namespaced(target, TARGET_NAMESPACE);
    match kymas.get_opt("default").await {
        Ok(found) => Ok(found.is_some()),
        // Deleted with its CRD.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reports whether Kubernetes creates this object in every namespace.
pub fn is_in_every_namespace(key: &Key) -> bool {
    key.is("", "ServiceAccount") && key.name == "default"
        || key.is("", "ConfigMap") && key.name == "kube-root-ca.crt"
}

/// Reports whether an object may stay: namespaces with their default objects, claims with their volumes, CRDs with
/// objects, objects that Helm's annotation keeps, and hooks that Helm leaves too.
fn may_stay(key: &Key, after: &Snapshot) -> bool {
    match (key.group.as_str(), key.kind.as_str()) {
        ("", "Namespace" | "PersistentVolumeClaim" | "PersistentVolume") => true,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => keeps(key, after) || is_in_use(key, after),
        // The apiserver's own record of a group and version that a CRD still serves.
        ("apiregistration.k8s.io", "APIService") => {
            after.iter().any(|(other, object)| {
                other.kind == "CustomResourceDefinition"
                    && serves(object, key)
                    && (keeps(other, after) || is_in_use(other, after))
            }) || keeps(key, after)
        }
        ("rbac.authorization.k8s.io", "ClusterRole") => is_back(key, after) || stays(key, after),
        ("", "Pod") => stays(key, after) || is_of_hook(key, after),
        _ => is_in_every_namespace(key) || stays(key, after),
    }
}

/// Reports whether Kubernetes recreated an aggregated role: its controller applies the rules of a role that was
/// deleted meanwhile.
fn is_back(role: &Key, after: &Snapshot) -> bool {
    after.get(role).is_some_and(|found| {
        let metadata = &found["metadata"];
        metadata["labels"].is_null()
            && metadata["annotations"].is_null()
            && found["aggregationRule"].is_null()
    })
}

fn keeps(key: &Key, after: &Snapshot) -> bool {
    after
        .get(key)
        .is_some_and(|object| object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep")
}

fn stays(key: &Key, after: &Snapshot) -> bool {
    keeps(key, after) || after.get(key).is_some_and(is_left_hook)
}

/// Reports whether a hook has no policy to be deleted after success.
fn is_left_hook(object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    let policy = annotations["helm.sh/hook-delete-policy"].as_str().unwrap_or_default();
    annotations["helm.sh/hook"].is_string() && !policy.contains("hook-succeeded")
}

/// Reports whether the Pod belongs to a Job of a hook that stays.
fn is_of_hook(pod: &Key, after: &Snapshot) -> bool {
    let owners = after.get(pod).and_then(|found| found["metadata"]["ownerReferences"].as_array());
    owners.into_iter().flatten().any(|owner| {
        after.iter().any(|(key, found)| found["metadata"]["uid"] == owner["uid"] && stays(key, after))
    })
}

/// Reports whether the object is a hook or belongs to one.
fn is_of_any_hook(key: &Key, after: &Snapshot) -> bool {
    let is_hook = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook"].is_string();
    let Some(object) = after.get(key) else { return false };
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut owners = owners.map(|owner| &owner["uid"]);
    is_hook(object)
        || owners.any(|uid| after.values().any(|found| is_hook(found) && found["metadata"]["uid"] == *uid))
}

/// Reports whether this APIService has the CRD's group.
fn serves(crd: &Value, service: &Key) -> bool {
    crd["spec"]["group"].as_str().is_some_and(|group| service.name.ends_with(&format!(".{group}")))
}

fn is_in_use(crd: &Key, after: &Snapshot) -> bool {
    let Some(spec) = after.get(crd).map(|object| &object["spec"]) else { return false };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
    after.keys().any(|key| key.is(&group, &kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(group: &str, kind: &str, name: &str) -> Key {
        Key::of(group, kind, &json!({"name": name}))
    }

    #[test]
    fn crd_and_api_service_stay_while_crd_has_objects_or_is_kept() {
        let crd = key("apiextensions.k8s.io", "CustomResourceDefinition", "lanterns.example.com");
        let record = key("apiregistration.k8s.io", "APIService", "v1.example.com");
        let spec = json!({"group": "example.com", "names": {"kind": "Lantern"}});
        let mut after = Snapshot::from([(crd.clone(), json!({"spec": spec})), (record.clone(), json!({}))]);
        assert!(!may_stay(&crd, &after) && !may_stay(&record, &after));
        after.insert(key("example.com", "Lantern", "mine"), json!({}));
        assert!(may_stay(&crd, &after) && may_stay(&record, &after));
        after.remove(&key("example.com", "Lantern", "mine"));
        let annotations = json!({"annotations": {"helm.sh/resource-policy": "keep"}});
        after.insert(crd.clone(), json!({"metadata": annotations, "spec": spec}));
        assert!(may_stay(&crd, &after) && may_stay(&record, &after));
        assert!(!may_stay(&key("apiregistration.k8s.io", "APIService", "v1.other.com"), &after));
    }

    #[test]
    fn a_role_stays_only_if_kubernetes_brought_back_its_rules_alone() {
        let role = key("rbac.authorization.k8s.io", "ClusterRole", "background");
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let back = json!({"metadata": {"name": "background", "uid": "new"}, "rules": rules});
        assert!(may_stay(&role, &Snapshot::from([(role.clone(), back)])));
        let ours = json!({"metadata": {"name": "background", "labels": {"app": "a"}}, "rules": rules});
        assert!(!may_stay(&role, &Snapshot::from([(role.clone(), ours)])));
        let aggregated = json!({"metadata": {"name": "background"}, "aggregationRule": {}, "rules": rules});
        assert!(!may_stay(&role, &Snapshot::from([(role.clone(), aggregated)])));
    }

    #[test]
    fn hooks_stay_that_helm_leaves_with_their_pods() {
        let job = key("batch", "Job", "setup");
        let pod = key("", "Pod", "setup-x");
        let hook =
            |policy: &str| json!({"helm.sh/hook": "pre-install", "helm.sh/hook-delete-policy": policy});
        let with = |policy: &str| {
            let owners = json!({"ownerReferences": [{"uid": "1"}]});
            let left = json!({"metadata": {"uid": "1", "annotations": hook(policy)}});
            Snapshot::from([(job.clone(), left), (pod.clone(), json!({"metadata": owners}))])
        };
        assert!(may_stay(&job, &with("before-hook-creation")) && may_stay(&pod, &with("hook-failed")));
        assert!(!may_stay(&job, &with("before-hook-creation,hook-succeeded")));
        assert!(!may_stay(&pod, &with("hook-succeeded")));
        assert!(
            is_of_any_hook(&job, &with("hook-succeeded")) && is_of_any_hook(&pod, &with("hook-succeeded"))
        );
        let others =
            Snapshot::from([(pod.clone(), json!({"metadata": {"ownerReferences": [{"uid": "1"}]}}))]);
        assert!(!is_of_any_hook(&pod, &others) && !is_of_any_hook(&job, &others));
    }

    #[test]
    fn configuration_and_workloads_do_not_stay() {
        let nothing = Snapshot::new();
        assert!(may_stay(&key("", "ConfigMap", "kube-root-ca.crt"), &nothing));
        assert!(!may_stay(&key("", "ConfigMap", "settings"), &nothing));
        assert!(!may_stay(&key("apps", "Deployment", "operator"), &nothing));
    }
}
