//! Detects, by the workloads on the target, that a user installed a newer version before the module was enabled.

use kube::api::DynamicObject;
use kyma_api::{annotations, labels};
use kyma_artifacts::image_tag;
use kyma_object_set::drift::Drift;
use kyma_object_set::{Object, Ownership, drift};
use semver::Version;
use serde_json::Value;

use super::{is_manager, version};
use crate::pass::Pass;
use crate::plan::{ExistingInstallation, ObjectState};

/// Returns the existing installation as far as it is known at this point of a pass. After the first apply, only a
/// changed candidate counts as an existing installation: a user may have upgraded the module by hand.
pub(super) fn of(pass: &Pass<'_>, objects: &[ObjectState]) -> ExistingInstallation {
    let mut candidates = candidates(pass).map(Object::identity);
    let may_have_one = if is_applied(pass) {
        candidates
            .any(|candidate| objects.iter().any(|object| object.identity == candidate && is_changed(object)))
    } else {
        candidates.next().is_some()
    };
    if !may_have_one || !version::is_judged(pass) {
        return ExistingInstallation::None;
    }
    pass.done.existing_installation.clone().unwrap_or(ExistingInstallation::Unread)
}

/// Reports whether objects of the module were applied.
pub(crate) fn is_applied(pass: &Pass<'_>) -> bool {
    !pass.state.recorded.inventory.is_empty()
}

fn is_changed(object: &ObjectState) -> bool {
    matches!(object.drift, Some(Drift::Changed | Drift::Taken | Drift::Recreated))
}

/// Returns the objects that identify an existing installation: the object that `spec.manager` names, otherwise all
/// workloads of the module.
pub(crate) fn candidates<'a>(pass: &'a Pass<'_>) -> impl Iterator<Item = &'a Object> {
    let manager = pass.context.resource.spec.manager.as_ref();
    let is_candidate = move |object: &Object| match manager {
        Some(manager) => is_manager(manager, &object.identity()),
        None => {
            object.group() == "apps" && matches!(object.kind(), "Deployment" | "StatefulSet" | "DaemonSet")
        }
    };
    let objects = pass.state.loaded.iter().flat_map(|loaded| &loaded.prepared.objects);
    objects.filter(move |object| is_candidate(object))
}

/// A workload of the module, and the live object of the same identity.
pub(crate) struct WorkloadPair<'a> {
    /// Desired workload.
    pub desired: &'a Object,
    /// Live workload.
    pub live: &'a DynamicObject,
}

impl WorkloadPair<'_> {
    /// Compares the version label of the live object with that of the desired one, and the image tag with the image
    /// tag: their versions may differ from the module's version.
    pub(crate) fn existing_installation(&self, ownership: &Ownership) -> ExistingInstallation {
        let metadata = &self.live.metadata;
        let owner = metadata.labels.as_ref().and_then(|all| all.get(labels::OWNER));
        if owner.is_some_and(|owner| *owner != ownership.owner) {
            // The apply decides whether another component's object may be adopted.
            return ExistingInstallation::None;
        }
        let desired = parse(&ownership.version);
        let applied_version =
            drift::applied_annotation(metadata, &ownership.manager, annotations::MODULE_VERSION);
        if let Some(applied_version) =
            applied_version.and_then(parse).filter(|_| !self.has_image_of_another_manager(&ownership.manager))
        {
            return newer_version([(applied_version, desired)]).unwrap_or(ExistingInstallation::None);
        }
        let (live, body) = (self.live_body(), Value::Object(self.desired.body().clone()));
        let version_sources = [app_version as fn(&Value) -> Option<Version>, tag];
        let versions = version_sources
            .iter()
            .filter_map(|source| Some((source(&live)?, source(&body).or(desired.clone()))));
        let unknown = || {
            let is_same = images(&live) == images(&body);
            if is_same {
                ExistingInstallation::None
            } else {
                ExistingInstallation::UnknownVersion(self.desired.identity().to_string())
            }
        };
        newer_version(versions).unwrap_or_else(unknown)
    }

    /// Reports whether another manager set an image since the operator's apply, as an upgrade by hand does.
    fn has_image_of_another_manager(&self, manager: &str) -> bool {
        let others = self.live.metadata.managed_fields.iter().flatten();
        let mut others = others.filter(|entry| entry.manager.as_deref() != Some(manager));
        others.any(|entry| entry.fields_v1.as_ref().is_some_and(|fields| names_image(&fields.0)))
    }

    fn live_body(&self) -> Value {
        serde_json::to_value(self.live).unwrap_or_default()
    }
}

/// Reports whether a live version is newer than its desired version; `None` if there are no pairs of a live and a
/// desired version.
fn newer_version(
    versions: impl IntoIterator<Item = (Version, Option<Version>)>,
) -> Option<ExistingInstallation> {
    let mut known = false;
    for (found, desired) in versions {
        known = true;
        if desired.is_some_and(|desired| found.cmp_precedence(&desired).is_gt()) {
            return Some(ExistingInstallation::Newer(found.to_string()));
        }
    }
    known.then_some(ExistingInstallation::None)
}

fn parse(text: &str) -> Option<Version> {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
}

fn app_version(object: &Value) -> Option<Version> {
    parse(object.get("metadata")?.get("labels")?.get(labels::APP_VERSION)?.as_str()?)
}

/// Returns the version in the image tag of the first container, by convention the operator.
fn tag(object: &Value) -> Option<Version> {
    parse(&image_tag(images(object).first()?)?)
}

fn images(object: &Value) -> Vec<&str> {
    let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    containers.into_iter().flatten().filter_map(|one| one.get("image")?.as_str()).collect()
}

fn names_image(fields: &Value) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    fields.iter().any(|(field, below)| field == "f:image" || names_image(below))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(label: Option<&str>, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "n", "labels": label.map(|label| json!({labels::APP_VERSION: label}))},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}, {"image": "side:9.9.9"}]}}},
        })
    }

    /// Returns the existing installation that a live object shows for a module of version 1.0.0.
    fn found(live: Value, desired: Value) -> ExistingInstallation {
        let ownership =
            Ownership { manager: "us".to_owned(), owner: "owner".to_owned(), version: "1.0.0".to_owned() };
        let mut desired = desired;
        if desired["metadata"]["labels"].is_null() {
            desired["metadata"].as_object_mut().unwrap().remove("labels");
        }
        let desired = Object::from_value(desired).unwrap();
        WorkloadPair { desired: &desired, live: &serde_json::from_value(live).unwrap() }
            .existing_installation(&ownership)
    }

    #[test]
    fn existing_version_is_compared_by_the_same_label_or_image() {
        let newer = |version: &str| ExistingInstallation::Newer(version.to_owned());
        let unknown = ExistingInstallation::UnknownVersion("Deployment.apps n/d".to_owned());
        let rows = [
            ("the label", workload(Some("2.0.0"), "x/a"), workload(Some("1.0.0"), "x/a"), newer("2.0.0")),
            (
                "older",
                workload(Some("0.9.0"), "x/a"),
                workload(Some("1.0.0"), "x/a"),
                ExistingInstallation::None,
            ),
            ("pre-release", workload(Some("1.0.0"), "x/a"), workload(Some("1.0.0-b"), "x/a"), newer("1.0.0")),
            ("the tag", workload(None, "x:5000/a:v2.0.0"), workload(None, "y/a:1.0.0"), newer("2.0.0")),
            (
                "the same tag from another registry",
                workload(None, "x/a:1.0.0"),
                workload(None, "y/a:1.0.0"),
                ExistingInstallation::None,
            ),
            (
                "only the image",
                workload(Some("1.0.0"), "x/a:2.0.0"),
                workload(Some("1.0.0"), "x/a:1.0.0"),
                newer("2.0.0"),
            ),
            (
                "a label with its own numbering",
                workload(Some("7.1.0"), "x/a"),
                workload(Some("7.2.0"), "x/a"),
                ExistingInstallation::None,
            ),
            (
                "compared with the version of the module",
                workload(Some("1.1.0"), "x/a"),
                workload(None, "x/b"),
                newer("1.1.0"),
            ),
            (
                "neither the label nor a tag has a version",
                workload(None, "x/a:main"),
                workload(None, "x/a:stable"),
                unknown.clone(),
            ),
            (
                "no version",
                workload(Some("new"), "x/a"),
                workload(Some("1.0.0"), "x/a:1.0.0"),
                unknown.clone(),
            ),
            (
                "the same image",
                workload(None, "x/a:main"),
                workload(None, "x/a:main"),
                ExistingInstallation::None,
            ),
        ];
        for (what, live, desired, expected) in rows {
            assert_eq!(found(live, desired), expected, "{what}");
        }
    }

    #[test]
    fn version_annotation_counts_unless_another_manager_set_images() {
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "operation": "Apply", "fieldsV1": fields});
        let image = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}}});
        let mark =
            json!({"f:metadata": {"f:annotations": {format!("f:{}", annotations::MODULE_VERSION): {}}}});
        let live_workload = |by: &str, version: &str| {
            let mut live = workload(None, "x/a:2.0.0");
            live["metadata"]["annotations"] = json!({annotations::MODULE_VERSION: version});
            live["metadata"]["managedFields"] = json!([entry("us", mark.clone()), entry(by, image.clone())]);
            live
        };
        let desired = || workload(None, "x/a:1.0.0");
        assert_eq!(
            found(live_workload("us", "1.0.0"), desired()),
            ExistingInstallation::None,
            "the version in the annotation counts"
        );
        assert_eq!(
            found(live_workload("us", "1.1.0"), desired()),
            ExistingInstallation::Newer("1.1.0".to_owned())
        );
        assert_eq!(
            found(live_workload("kubectl", "1.0.0"), desired()),
            ExistingInstallation::Newer("2.0.0".to_owned())
        );
    }

    #[test]
    fn objects_of_another_component_are_left_to_the_apply() {
        let mut live = workload(Some("2.0.0"), "x/a:2.0.0");
        live["metadata"]["labels"][labels::OWNER] = "another".into();
        assert_eq!(found(live, workload(Some("1.0.0"), "x/a:1.0.0")), ExistingInstallation::None);
    }
}
