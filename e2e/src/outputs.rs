//! Collects all output of operators for a search.

use anyhow::{Context, Result};
use kube::api::{ApiResource, ListParams};
use kube::discovery::{Discovery, verbs};
use serde_json::Value;
use testbed::Cluster;

use crate::landscape::Landscape;
use crate::snapshot;

/// Fields in which secrets are expected: users or modules put them there.
const SECRET_FIELDS: [(&str, &str, &str); 9] = [
    ("", "Secret", "/data"),
    ("batch", "Job", "/spec/template"),
    ("component.kyma-project.io", "HelmComponent", "/spec"),
    ("operator.kyma-project.io", "Kyma", "/spec/modules"),
    // The record from which a deleted Kyma of a target is recreated.
    ("operator.kyma-project.io", "Kyma", "/status/selection"),
    // Default custom resources and the templates of components.
    ("operator.kyma-project.io", "ModuleTemplate", "/spec/data"),
    ("operator.kyma-project.io", "ModuleTemplate", "/spec/defaultCR"),
    ("operator.kyma-project.io", "ModuleTemplate", "/spec/component/spec"),
    ("demo.kyma-project.io", "Greeting", "/spec"),
];

/// A text that an operator or a cluster shows.
pub struct Output {
    /// Name of the output for messages.
    pub place: String,
    /// Kind of the output, such as `log of kyma-operator`.
    pub kind: String,
    /// Text of the output.
    pub text: String,
}

/// Returns logs, metrics, and all objects on the hub and these targets.
///
/// # Errors
/// If a log cannot be read or a server does not answer.
pub async fn collect(landscape: &Landscape, targets: &[&Cluster]) -> Result<Vec<Output>> {
    let mut all = Vec::new();
    for operator in landscape.operators() {
        let text = String::from_utf8_lossy(&std::fs::read(operator.log())?).into_owned();
        let kind = format!("log of {}", operator.name());
        all.extend(text.lines().map(|line| Output {
            place: kind.clone(),
            kind: kind.clone(),
            text: line.to_owned(),
        }));
        let kind = format!("metrics of {}", operator.name());
        let text = landscape.metrics(operator.name()).await?;
        all.push(Output { place: kind.clone(), kind, text });
    }
    for cluster in std::iter::once(landscape.hub()).chain(targets.iter().copied()) {
        all.extend(stored(cluster).await.with_context(|| cluster.name().to_owned())?);
    }
    Ok(all)
}

/// Returns whole Events, and all other objects without the expected fields of secrets.
async fn stored(cluster: &Cluster) -> Result<Vec<Output>> {
    let client = cluster.client()?;
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut all = Vec::new();
    for (resource, capabilities) in
        discovery.groups().flat_map(kube::discovery::ApiGroup::resources_by_stability)
    {
        if !capabilities.supports_operation(verbs::LIST) || resource.kind == "ComponentStatus" {
            continue;
        }
        for object in snapshot::objects(&client, &resource, &ListParams::default()).await? {
            all.extend(parts(cluster.name(), &resource, serde_json::to_value(object)?));
        }
    }
    Ok(all)
}

fn parts(cluster: &str, resource: &ApiResource, mut object: Value) -> Vec<Output> {
    for (group, kind, place) in SECRET_FIELDS {
        if group == resource.group && kind == resource.kind {
            remove(&mut object, place);
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let output = |kind: &str, value: &Value| Output {
        place: format!("{} {name} on {cluster} ({kind})", resource.kind),
        kind: format!("{kind} on {cluster}"),
        text: value.to_string(),
    };
    if resource.kind == "Event" {
        return vec![output("events", &object)];
    }
    let mut parts = Vec::new();
    for (kind, place) in [("managedFields", "/metadata/managedFields"), ("status", "/status")] {
        if let Some(part) = remove(&mut object, place) {
            parts.push(output(kind, &part));
        }
    }
    parts.push(output("the rest", &object));
    parts
}

fn remove(object: &mut Value, place: &str) -> Option<Value> {
    let (parent, field) = place.rsplit_once('/')?;
    object.pointer_mut(parent)?.as_object_mut()?.remove(field)
}
