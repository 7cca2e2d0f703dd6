//! Changes to the Pods of a component's workloads.

use kyma_artifacts::LocalisedImages;
use kyma_object_set::Object;
use serde_json::{Map, Value, json};

/// Environment variable in which operators of modules find the name of the image-pull Secret, as from KLM.
const PULL_SECRET_VARIABLE: &str = "SKR_IMG_PULL_SECRET";

/// Changes to the Pods of every workload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workloads {
    /// Location of the component's images.
    pub images: LocalisedImages,
    /// The image-pull Secret on the target.
    pub pull_secret: Option<String>,
}

impl Workloads {
    /// Returns the unreadable parts, for messages.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.images.unreadable().iter().map(|name| format!("the component's image {name} has no reference"))
    }

    /// Changes an object that creates Pods.
    pub(crate) fn change(&self, object: &mut Object) {
        if let Some(name) = &self.pull_secret {
            give_pull_secret(object, name);
        }
        let Some(pod) = pod_spec(object) else { return };
        for list in ["initContainers", "containers"] {
            for container in maps(pod.get_mut(list)) {
                self.localise(container);
            }
        }
    }

    /// Rewrites a container's image, and environment values that are images.
    fn localise(&self, container: &mut Map<String, Value>) {
        rewrite(container.get_mut("image"), |image| self.images.for_image(image));
        for variable in maps(container.get_mut("env")) {
            rewrite(variable.get_mut("value"), |value| self.images.for_value(value));
        }
    }
}

/// Adds the Secret to Pods, and passes its name to operators, which may create Pods of their own. KLM does both for
/// Deployments and StatefulSets. The Pods of a Job cannot be changed: its apply would fail once there is a Secret.
fn give_pull_secret(object: &mut Object, name: &str) {
    let is_operator = matches!((object.group(), object.kind()), ("apps", "Deployment" | "StatefulSet"));
    let is_fixed = matches!(object.kind(), "Pod" | "Job");
    let Some(pod) = pod_spec(object).filter(|_| !is_fixed) else { return };
    put_by_name(pod, "imagePullSecrets", json!({"name": name}));
    if is_operator {
        for container in maps(pod.get_mut("containers")) {
            put_by_name(container, "env", json!({"name": PULL_SECRET_VARIABLE, "value": name}));
        }
    }
}

/// Adds an item to a list whose items have names; replaces an item of the same name.
fn put_by_name(map: &mut Map<String, Value>, list: &str, item: Value) {
    let list = map.entry(list).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    // The target refuses any other shape.
    let Some(items) = list.as_array_mut() else { return };
    match items.iter_mut().find(|held| held.get("name") == item.get("name")) {
        Some(held) => *held = item,
        None => items.push(item),
    }
}

fn rewrite<'a>(text: Option<&mut Value>, other: impl FnOnce(&str) -> Option<&'a str>) {
    if let Some(text) = text
        && let Some(other) = text.as_str().and_then(other)
    {
        *text = other.into();
    }
}

fn maps(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Returns the spec of the Pods that an object of a built-in kind creates. KLM supports only Deployment and
/// StatefulSet.
fn pod_spec(object: &mut Object) -> Option<&mut Map<String, Value>> {
    let path = match (object.group(), object.kind()) {
        ("", "Pod") => "",
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("", "ReplicationController")
        | ("batch", "Job") => "/template/spec",
        ("batch", "CronJob") => "/jobTemplate/spec/template/spec",
        _ => return None,
    };
    object.body_mut().get_mut("spec")?.pointer_mut(path)?.as_object_mut()
}

#[cfg(test)]
mod tests {
    use kyma_artifacts::Image;

    use super::*;

    fn workloads(references: &[&str]) -> Workloads {
        let image = |reference: &&str| Image {
            name: "image".to_owned(),
            version: "1".to_owned(),
            reference: (*reference).to_owned(),
        };
        let images: Vec<Image> = references.iter().map(image).collect();
        Workloads { images: LocalisedImages::new(&images), pull_secret: None }
    }

    /// Returns an object of a kind whose Pods have this spec.
    fn object(api_version: &str, kind: &str, pod: &Value) -> Object {
        let spec = match kind {
            "Pod" => pod.clone(),
            "CronJob" => json!({"jobTemplate": {"spec": {"template": {"spec": pod}}}}),
            _ => json!({"template": {"spec": pod}}),
        };
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "o"}, "spec": spec});
        Object::from_value(body).unwrap()
    }

    fn changed(workloads: &Workloads, api_version: &str, kind: &str, pod: &Value) -> Object {
        let mut object = object(api_version, kind, pod);
        workloads.change(&mut object);
        object
    }

    #[test]
    fn e40_images_of_every_workload_are_rewritten() {
        let workloads = workloads(&["new.io/mirror/keda:1"]);
        let (before, after) = (
            json!({"containers": [{"name": "c", "image": "old.io/keda:1"}]}),
            json!({"containers": [{"name": "c", "image": "new.io/mirror/keda:1"}]}),
        );
        let rows = [
            ("apps/v1", "Deployment", true),
            ("apps/v1", "StatefulSet", true),
            ("apps/v1", "DaemonSet", true),
            ("apps/v1", "ReplicaSet", true),
            ("v1", "ReplicationController", true),
            ("batch/v1", "Job", true),
            ("batch/v1", "CronJob", true),
            ("v1", "Pod", true),
            // Not a built-in kind: its fields have another meaning.
            ("example.org/v1", "Deployment", false),
            ("v1", "ConfigMap", false),
        ];
        for (api_version, kind, is_rewritten) in rows {
            let expected = object(api_version, kind, if is_rewritten { &after } else { &before });
            assert_eq!(
                changed(&workloads, api_version, kind, &before).body(),
                expected.body(),
                "{api_version} {kind}"
            );
        }
    }

    #[test]
    fn e40_rewrite_changes_only_images_and_env_of_all_containers() {
        let workloads = workloads(&["new.io/keda:1", "new.io/init:2"]);
        let before = json!({
            "initContainers": [{"image": "old.io/init:2", "env": [{"name": "NEXT", "value": "old.io/keda:1"}]}],
            "containers": [
                {"image": "old.io/keda:1", "args": ["--image=old.io/keda:1", "old.io/keda:1"], "env": [
                    {"name": "IMAGE", "value": "old.io/init:2"},
                    {"name": "TEXT", "value": "run old.io/init:2"},
                    {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "NUMBER", "value": 1},
                ]},
                {"image": "old.io/other:1"},
                {"name": "without"},
            ],
            // A manifest cannot set these: the API server accepts them only for a running Pod.
            "ephemeralContainers": [{"image": "old.io/keda:1"}],
            "volumes": [{"image": {"reference": "old.io/keda:1"}}],
        });
        let mut after = before.clone();
        after["initContainers"][0]["image"] = json!("new.io/init:2");
        after["initContainers"][0]["env"][0]["value"] = json!("new.io/keda:1");
        after["containers"][0]["image"] = json!("new.io/keda:1");
        after["containers"][0]["env"][0]["value"] = json!("new.io/init:2");
        let changed = changed(&workloads, "apps/v1", "Deployment", &before);
        assert_eq!(changed.body(), object("apps/v1", "Deployment", &after).body());
    }

    #[test]
    fn workloads_get_the_pull_secret_and_operators_are_told_of_it() {
        let workloads = Workloads { pull_secret: Some("pull".to_owned()), ..Workloads::default() };
        let pod = json!({
            "initContainers": [{"name": "init"}],
            "containers": [{"name": "a"}, {"name": "b", "env": [{"name": "OWN", "value": "1"}]}],
        });
        let mut named = pod.clone();
        named["imagePullSecrets"] = json!([{"name": "pull"}]);
        let mut told = named.clone();
        let variable = json!({"name": "SKR_IMG_PULL_SECRET", "value": "pull"});
        told["containers"][0]["env"] = json!([variable]);
        told["containers"][1]["env"] = json!([{"name": "OWN", "value": "1"}, variable]);
        let rows = [
            ("apps/v1", "Deployment", &told),
            ("apps/v1", "StatefulSet", &told),
            ("apps/v1", "DaemonSet", &named),
            ("batch/v1", "CronJob", &named),
            ("batch/v1", "Job", &pod),
            ("v1", "Pod", &pod),
        ];
        for (api_version, kind, expected) in rows {
            let found = changed(&workloads, api_version, kind, &pod);
            assert_eq!(found.body(), object(api_version, kind, expected).body(), "{kind}");
            let again = changed(&workloads, api_version, kind, expected);
            assert_eq!(again.body(), found.body(), "{kind}: once");
        }
        let theirs = json!({
            "imagePullSecrets": [{"name": "theirs"}],
            "containers": [{"env": [{"name": "SKR_IMG_PULL_SECRET", "value": "theirs"}]}],
        });
        let found = changed(&workloads, "apps/v1", "Deployment", &theirs);
        let pod = &found.body()["spec"]["template"]["spec"];
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "theirs"}, {"name": "pull"}]));
        assert_eq!(pod["containers"][0]["env"], json!([variable]), "the hub's admin decides");
    }

    #[test]
    fn odd_shapes_are_left_to_the_target_to_refuse() {
        let workloads = workloads(&["new.io/keda:1"]);
        for pod in [
            json!(null),
            json!("text"),
            json!({"containers": {}}),
            json!({"containers": [1, {"image": 2, "env": {}}, {"env": [3, {"value": []}]}]}),
        ] {
            assert_eq!(changed(&workloads, "v1", "Pod", &pod).body(), object("v1", "Pod", &pod).body());
        }
    }
}
