//! Images in a manifest, which a component version lists so that scanners and transfers find them.

use std::collections::BTreeSet;

use kyma_artifacts::Image;
use serde_json::Value;

/// Returns the images of all workloads: containers, init containers, and environment variables with an image
/// reference, which operators use. Sorted by reference; names are made distinct.
pub(crate) fn images(objects: &[Value]) -> Vec<Image> {
    let mut references = BTreeSet::new();
    for spec in objects.iter().filter_map(pod_spec) {
        for container in
            ["containers", "initContainers"].iter().filter_map(|list| spec.get(list)?.as_array()).flatten()
        {
            references.extend(container.get("image").and_then(Value::as_str).map(str::to_owned));
            let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
            let values = variables.filter_map(|variable| variable.get("value")?.as_str());
            references.extend(values.filter(|value| is_image(value)).map(str::to_owned));
        }
    }
    let mut names = BTreeSet::new();
    references.into_iter().filter_map(|reference| describe(reference, &mut names)).collect()
}

fn pod_spec(object: &Value) -> Option<&Value> {
    let spec = object.get("spec")?;
    match object.get("kind")?.as_str()? {
        "Pod" => Some(spec),
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" => spec.pointer("/template/spec"),
        "CronJob" => spec.pointer("/jobTemplate/spec/template/spec"),
        _ => None,
    }
}

/// Returns name and version for OCM: the last part of the path, and the tag or digest.
fn describe(reference: String, names: &mut BTreeSet<String>) -> Option<Image> {
    let (name, version) = split(&reference)?;
    let (base, version) = (name.rsplit('/').next()?.to_owned(), version.to_owned());
    let free = |number: usize| {
        if number == 0 { base.clone() } else { format!("{base}-{number}") }
    };
    // One more candidate than existing names.
    let name = (0..=names.len()).map(free).find(|name| !names.contains(name))?;
    names.insert(name.clone());
    Some(Image { name, version, reference })
}

/// Splits a reference into repository, and tag or digest. The default is `latest`, as for a kubelet.
fn split(reference: &str) -> Option<(&str, &str)> {
    if let Some((name, digest)) = reference.split_once('@') {
        let (name, tag) = split(name).filter(|(_, tag)| *tag != "latest").unwrap_or((name, digest));
        return Some((name, tag));
    }
    let slash = reference.rfind('/').map_or(0, |slash| slash + 1);
    if reference.len() == slash {
        return None;
    }
    Some(match reference[slash..].split_once(':') {
        Some((_, tag)) => (&reference[..reference.len() - tag.len() - 1], tag),
        None => (reference, "latest"),
    })
}

/// Reports whether a variable's value is surely an image reference: a host with a dot, a path, and a tag or digest.
fn is_image(value: &str) -> bool {
    let plain = value.chars().all(|c| c.is_ascii_alphanumeric() || ".-_/:@".contains(c));
    let Some((host, path)) = value.split_once('/') else {
        return false;
    };
    let tagged = path.rsplit('/').next().is_some_and(|last| {
        last.split_once([':', '@']).is_some_and(|(name, tag)| !name.is_empty() && !tag.is_empty())
    });
    plain && host.contains('.') && !host.starts_with('.') && !value.contains("//") && tagged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_come_from_containers_and_unmistakable_variables() {
        let deployment = json!({"kind": "Deployment", "spec": {"template": {"spec": {
            "initContainers": [{"image": "r.example/init@sha256:abc"}],
            "containers": [{"image": "r.example/a/operator:1.2.3", "env": [
                {"name": "IMAGE", "value": "r.example/b/operator:2.0"},
                {"name": "URL", "value": "https://r.example/b:1"},
                {"name": "PATH", "value": "/usr/bin:/bin"},
                {"name": "HOST", "value": "example.com:443"},
                {"name": "FROM", "valueFrom": {}},
            ]}],
        }}}});
        let secret = json!({"kind": "Secret", "spec": {"containers": [{"image": "x"}]}});
        let found = images(&[deployment, secret]);
        let found: Vec<_> = found.iter().map(|image| (image.name.as_str(), image.version.as_str())).collect();
        assert_eq!(found, [("operator", "1.2.3"), ("operator-1", "2.0"), ("init", "sha256:abc")]);
    }
}
