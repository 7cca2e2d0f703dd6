//! Detects which system applied an object before, by its metadata.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

/// Helm's annotations for the release that an object is part of.
/// Source: <https://helm.sh/docs/topics/charts_hooks/> and `pkg/action/validate.go` of Helm.
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
/// The label that Helm sets beside them, unless the chart did.
const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Prefixes of labels and annotations by which systems find their objects. Removed, so that no system deletes an
/// adopted object.
const TRACKING_PREFIXES: [&str; 3] =
    ["helm.toolkit.fluxcd.io/", "kustomize.toolkit.fluxcd.io/", "argocd.argoproj.io/"];

/// The label by which Argo CD tracks if it does not track by annotation, its default since v3. Many charts set the
/// label themselves, and then it belongs to the chart.
/// Source: <https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/>.
pub(super) const TRACKING_LABEL: &str = "app.kubernetes.io/instance";
/// The annotation by which Argo CD tracks by default.
const TRACKING_ID_ANNOTATION: &str = "argocd.argoproj.io/tracking-id";

/// Another system that keeps objects on clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum System {
    /// Flux: helm-controller and kustomize-controller.
    Flux,
    /// Argo CD.
    ArgoCd,
    /// Helm, as a program or inside of another one.
    Helm,
    /// kubectl, with or without `--server-side`.
    Kubectl,
    /// A system that the caller named, see [`crate::ApplyOptions::take_over`].
    Other,
}

impl System {
    /// Returns the system that applied an object; of several, the one that uses the others.
    pub(super) fn of(metadata: &ObjectMeta, more: &[&str]) -> Option<Self> {
        let entries = metadata.managed_fields.iter().flatten();
        entries.filter(|entry| is_of_object(entry)).filter_map(|entry| Self::of_entry(entry, more)).min()
    }

    /// The system to which an entry of `managedFields` belongs.
    pub(super) fn of_entry(entry: &ManagedFieldsEntry, more: &[&str]) -> Option<Self> {
        let name = entry.manager.as_deref().unwrap_or_default();
        match name {
            "helm-controller" | "kustomize-controller" => Some(Self::Flux),
            "argocd-controller" | "argocd-application-controller" => Some(Self::ArgoCd),
            "kubectl" | "kubectl-client-side-apply" | "kubectl-create" => Some(Self::Kubectl),
            _ if name == "helm" || is_helms(entry) => Some(Self::Helm),
            _ => more.contains(&name).then_some(Self::Other),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flux => "Flux",
            Self::ArgoCd => "Argo CD",
            Self::Helm => "Helm",
            Self::Kubectl => "kubectl",
            Self::Other => "another system",
        })
    }
}

/// Reports whether an entry is for the object itself, not for a subresource.
pub(super) fn is_of_object(entry: &ManagedFieldsEntry) -> bool {
    entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// Reports whether the manager of this entry made the object part of a Helm release. Helm's field manager has the
/// name of the program that contains Helm. The annotations of `kubectl annotate`, with which users let Helm adopt an
/// object, do not count.
pub(super) fn is_helms(entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    let annotations = entry.fields_v1.as_ref().map(|fields| &fields.0["f:metadata"]["f:annotations"]);
    !manager.starts_with("kubectl")
        && annotations.is_some_and(|all| all.get(format!("f:{RELEASE_NAME}")).is_some())
}

/// Removes Helm's own marks from a set of fields that Helm owns: they stay on the object without a manager. If the
/// chart renders them, its apply owns them again.
pub(super) fn leave_helms_marks(fields: &mut Value) {
    let Some(metadata) = fields.get_mut("f:metadata").and_then(Value::as_object_mut) else { return };
    let marks = [
        ("f:annotations", RELEASE_NAME),
        ("f:annotations", RELEASE_NAMESPACE),
        ("f:labels", MANAGED_BY_LABEL),
    ];
    for (place, key) in marks {
        let Some(Value::Object(held)) = metadata.get_mut(place) else { continue };
        if held.remove(&format!("f:{key}")).is_none() {
            continue;
        }
        // The manager of the map itself would remove entries without a manager.
        held.remove(".");
        if held.is_empty() {
            metadata.remove(place);
        }
    }
    // An empty set of fields would stand for all of the metadata.
    if metadata.is_empty()
        && let Some(fields) = fields.as_object_mut()
    {
        fields.remove("f:metadata");
    }
}

/// Reports whether a label or annotation is a mark by which another system finds its objects.
pub(super) fn is_mark(key: &str) -> bool {
    TRACKING_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// Reports whether Argo CD tracks an object by the label that charts may set too: it set the label, and no
/// annotation.
pub(in crate::apply) fn is_tracked_by_label(metadata: &ObjectMeta) -> bool {
    let has =
        |all: Option<&BTreeMap<String, String>>, key: &str| all.is_some_and(|all| all.contains_key(key));
    let sets_it = |entry: &ManagedFieldsEntry| {
        let labels = entry.fields_v1.as_ref().map(|fields| &fields.0["f:metadata"]["f:labels"]);
        is_of_object(entry)
            && System::of_entry(entry, &[]) == Some(System::ArgoCd)
            && labels.is_some_and(|all| all.get(format!("f:{TRACKING_LABEL}")).is_some())
    };
    has(metadata.labels.as_ref(), TRACKING_LABEL)
        && !has(metadata.annotations.as_ref(), TRACKING_ID_ANNOTATION)
        && metadata.managed_fields.iter().flatten().any(sets_it)
}

/// Returns name and namespace of the Helm release that created an object, from its annotations, if a Helm program
/// wrote them.
pub fn helm_release(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).map(String::as_str);
    let mut entries = metadata.managed_fields.iter().flatten();
    let release = (annotation(RELEASE_NAME)?, annotation(RELEASE_NAMESPACE)?);
    entries.any(|entry| is_of_object(entry) && is_helms(entry)).then_some(release)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made_by(managers: &[(&str, Value)]) -> ObjectMeta {
        let entry = |(manager, fields): &(&str, Value)| json!({"manager": manager, "fieldsV1": fields});
        let entries: Vec<Value> = managers.iter().map(entry).collect();
        let annotations = json!({RELEASE_NAME: "shop", RELEASE_NAMESPACE: "store"});
        serde_json::from_value(json!({"annotations": annotations, "managedFields": entries})).unwrap()
    }

    fn annotated() -> Value {
        json!({"f:metadata": {"f:annotations": {format!("f:{RELEASE_NAME}"): {}}}})
    }

    #[test]
    fn a_system_is_known_by_its_field_manager() {
        let of = |manager: &str| System::of(&made_by(&[(manager, json!({}))]), &["applier"]);
        let rows = [
            ("helm", Some(System::Helm)),
            ("helm-controller", Some(System::Flux)),
            ("kustomize-controller", Some(System::Flux)),
            ("argocd-controller", Some(System::ArgoCd)),
            ("argocd-application-controller", Some(System::ArgoCd)),
            ("kubectl", Some(System::Kubectl)),
            ("kubectl-client-side-apply", Some(System::Kubectl)),
            ("applier", Some(System::Other)),
            ("kubectl-edit", None),
            ("manager", None),
        ];
        for (manager, expected) in rows {
            assert_eq!(of(manager), expected, "{manager}");
        }
        let both = made_by(&[("kubectl-client-side-apply", json!({})), ("argocd-controller", json!({}))]);
        assert_eq!(System::of(&both, &[]), Some(System::ArgoCd));
        let mut status = made_by(&[("helm", json!({}))]);
        status.managed_fields.as_mut().unwrap()[0].subresource = Some("status".to_owned());
        assert_eq!(System::of(&status, &[]), None);
    }

    #[test]
    fn a_program_that_embeds_helm_is_known_by_its_annotations() {
        let provider = made_by(&[("terraform-provider-helm_v3", annotated())]);
        assert_eq!(System::of(&provider, &[]), Some(System::Helm));
        assert_eq!(helm_release(&provider), Some(("shop", "store")));
        let by_hand = made_by(&[("kubectl-annotate", annotated())]);
        assert_eq!((System::of(&by_hand, &[]), helm_release(&by_hand)), (None, None));
        assert_eq!(
            helm_release(&made_by(&[("helm", json!({}))])),
            None,
            "somebody else wrote the annotations"
        );
    }

    #[test]
    fn the_instance_label_tracks_only_if_argo_cd_set_and_uses_it() {
        let labelled = json!({"f:metadata": {"f:labels": {format!("f:{TRACKING_LABEL}"): {}}}});
        let tracked = |manager: &str, fields: &Value, label: &str, annotation: &str| {
            let found = ObjectMeta {
                labels: Some([(label.to_owned(), "shop".to_owned())].into()),
                annotations: Some([(annotation.to_owned(), "x".to_owned())].into()),
                ..made_by(&[(manager, fields.clone()), ("kubectl-label", labelled.clone())])
            };
            is_tracked_by_label(&found)
        };
        assert!(tracked("argocd-controller", &labelled, TRACKING_LABEL, "own"));
        assert!(tracked("argocd-application-controller", &labelled, TRACKING_LABEL, "own"));
        assert!(!tracked("argocd-controller", &labelled, TRACKING_LABEL, TRACKING_ID_ANNOTATION));
        assert!(!tracked("argocd-controller", &labelled, "own", "own"), "it is gone by now");
        assert!(!tracked("argocd-controller", &json!({}), TRACKING_LABEL, "own"), "a user set it");
        assert!(!tracked("helm", &labelled, TRACKING_LABEL, "own"));
        assert!(!tracked("manager", &labelled, TRACKING_LABEL, "own"));
    }

    #[test]
    fn marks_of_helm_are_removed_from_a_set_of_fields() {
        let mut fields = json!({"f:metadata": {
            "f:annotations": {format!("f:{RELEASE_NAME}"): {}, format!("f:{RELEASE_NAMESPACE}"): {}, "f:own": {}},
            "f:labels": {format!("f:{MANAGED_BY_LABEL}"): {}, "f:app": {}},
        }, "f:data": {}});
        leave_helms_marks(&mut fields);
        let left =
            json!({"f:metadata": {"f:annotations": {"f:own": {}}, "f:labels": {"f:app": {}}}, "f:data": {}});
        assert_eq!(fields, left);
        let mut alone = json!({"f:metadata": {"f:annotations": {".": {}, format!("f:{RELEASE_NAME}"): {}}}});
        leave_helms_marks(&mut alone);
        assert_eq!(alone, json!({}), "nor is the map in which they are");
        let mut none = json!({"f:data": {}});
        leave_helms_marks(&mut none);
        assert_eq!(none, json!({"f:data": {}}));
    }
}
