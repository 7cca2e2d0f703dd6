//! The contents of a Namespace that `run --once` created.

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, ObjectMeta},
    discovery::{ApiGroup, Discovery, Scope, verbs},
};
use kyma_controller::{none_if_unserved, record_names};

/// Operators of a run, whose records are deleted together with their Namespace.
const OPERATORS: [&str; 2] = ["kyma-operator", "helm-component"];

/// Returns an object of the Namespace that neither Kubernetes nor an operator of the run created for itself. `programs`
/// are the names of further operators of the run.
///
/// # Errors
/// If the objects of a kind cannot be listed.
pub(super) async fn find_foreign(
    client: &Client,
    namespace: &str,
    programs: &[String],
) -> kube::Result<Option<String>> {
    // An aggregated discovery leaves out groups whose server does not answer.
    let discovery = Discovery::new(client.clone()).run().await?;
    for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::resources_by_stability) {
        let is_stored = [verbs::LIST, verbs::DELETE].iter().all(|verb| capabilities.supports_operation(verb));
        if capabilities.scope != Scope::Namespaced || !is_stored {
            continue;
        }
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let listed = api.list_metadata(&ListParams::default()).await;
        // `None` if the kind was removed meanwhile.
        let Some(listed) = none_if_unserved(client, &resource, listed).await? else { continue };
        let foreign = listed
            .items
            .iter()
            .find(|item| is_foreign(&resource.group, &resource.kind, &item.metadata, programs));
        if let Some(object) = foreign {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            return Ok(Some(format!("{} {name}", resource.kind)));
        }
    }
    Ok(None)
}

fn is_foreign(group: &str, kind: &str, meta: &ObjectMeta, programs: &[String]) -> bool {
    let name = meta.name.as_deref().unwrap_or_default();
    match (group, kind) {
        ("", "ConfigMap") => name != "kube-root-ca.crt" && !is_record(name, programs),
        ("", "ServiceAccount") => name != "default",
        ("" | "events.k8s.io", "Event")
        | ("", "Endpoints")
        | ("discovery.k8s.io", "EndpointSlice")
        | ("coordination.k8s.io", "Lease") => false,
        _ => true,
    }
}

/// Reports whether a ConfigMap is a record of Pauses or of the brake.
fn is_record(name: &str, programs: &[String]) -> bool {
    let mut operators = OPERATORS.into_iter().chain(programs.iter().map(String::as_str));
    operators.any(|operator| record_names(operator).iter().any(|record| record == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_kept_for_objects_of_users_only() {
        let programs = ["greeter".to_owned()];
        let meta = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        for (group, kind, name) in [
            ("", "ConfigMap", "kube-root-ca.crt"),
            ("", "ConfigMap", "brake-kyma-operator"),
            ("", "ConfigMap", "brake-helm-component-mark"),
            ("", "ConfigMap", "pauses-helm-component"),
            ("", "ConfigMap", "brake-greeter-mark"),
            ("", "ServiceAccount", "default"),
            ("events.k8s.io", "Event", "any"),
            ("coordination.k8s.io", "Lease", "leader"),
        ] {
            assert!(!is_foreign(group, kind, &meta(name), &programs), "{kind} {name}");
        }
        for (group, kind, name) in [
            ("", "ConfigMap", "settings"),
            ("", "ConfigMap", "pauses-other"),
            ("", "ServiceAccount", "robot"),
            ("", "Secret", "default"),
            ("", "PersistentVolumeClaim", "data"),
            ("example.org", "Event", "any"),
        ] {
            assert!(is_foreign(group, kind, &meta(name), &programs), "{kind} {name}");
        }
    }
}
