//! Everything that operators emit, to be searched.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use serde_json::Value;
use testbed::Cluster;

use crate::planted::WORD;
use crate::world::World;

/// Where secrets belong: people put them there, or a module installs them there.
const HOLDERS: [(&str, &str, &str); 9] = [
    ("", "Secret", "/data"),
    ("batch", "Job", "/spec/template"),
    ("component.kyma-project.io", "HelmComponent", "/spec"),
    ("operator.kyma-project.io", "Kyma", "/spec/modules"),
    // From which a Kyma that vanished from its target is made anew.
    ("operator.kyma-project.io", "Kyma", "/status/selection"),
    // Default custom resources, and what components are made of.
    ("operator.kyma-project.io", "ModuleTemplate", "/spec/data"),
    ("operator.kyma-project.io", "ModuleTemplate", "/spec/defaultCR"),
    ("operator.kyma-project.io", "ModuleTemplate", "/spec/component/spec"),
    ("demo.kyma-project.io", "Greeting", "/spec"),
];

/// Programs whose logs and metrics are looked at.
const OPERATORS: [&str; 4] = ["kyma-operator", "helm-component", "release-meta-syncer", "greeting-component"];

/// One thing that was emitted.
pub(crate) struct Output {
    /// Which it is, for people.
    pub(crate) place: String,
    /// What it is one of: the word is somewhere in each kind.
    pub(crate) kind: String,
    pub(crate) text: String,
}

/// Logs, metrics, and all that is stored on hub and targets.
pub(crate) async fn everywhere(world: &World) -> Result<Vec<Output>> {
    let mut all = Vec::new();
    for operator in world.landscape.operators() {
        let text = String::from_utf8_lossy(&std::fs::read(operator.log())?).into_owned();
        let kind = format!("log of {}", operator.name());
        all.extend(text.lines().map(|line| Output {
            place: kind.clone(),
            kind: kind.clone(),
            text: line.to_owned(),
        }));
    }
    for name in OPERATORS {
        let kind = format!("metrics of {name}");
        all.push(Output { place: kind.clone(), kind, text: world.landscape.metrics(name).await? });
    }
    for cluster in [world.landscape.hub(), &world.quay, &world.lake] {
        all.extend(stored(cluster).await.with_context(|| cluster.name().to_owned())?);
    }
    Ok(all)
}

/// What people are shown who ask.
pub(crate) async fn kymactl(world: &World) -> Result<Vec<Output>> {
    let mut all = Vec::new();
    let way = ["target", "test", WORD, "--allow-loopback-targets"];
    for arguments in [&["status"] as &[&str], &["status", "--output=json"], &way] {
        let output = world.landscape.kymactl().args(arguments).output().await?;
        let text = [output.stdout, output.stderr].concat();
        let kind = format!("kymactl {}", arguments.join(" "));
        all.push(Output { place: kind.clone(), kind, text: String::from_utf8_lossy(&text).into_owned() });
    }
    Ok(all)
}

/// Kinds of output in which the harmless word is not to be found.
pub(crate) fn without_the_word(outputs: &[Output]) -> BTreeSet<&str> {
    let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
    for output in outputs {
        // Metrics name no object but Kymas, and those are kyma-operator's: a reason has to do.
        let has_no_names = output.kind.starts_with("metrics of ") && !output.kind.ends_with("kyma-operator");
        let word = if has_no_names { "AccessInvalid" } else { WORD };
        *seen.entry(&output.kind).or_default() |= output.text.contains(word);
    }
    seen.into_iter().filter(|(_, found)| !found).map(|(kind, _)| kind).collect()
}

/// Events whole; of everything else all that is not a secret's own place.
async fn stored(cluster: &Cluster) -> Result<Vec<Output>> {
    let client = cluster.client()?;
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut all = Vec::new();
    for (resource, capabilities) in
        discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources)
    {
        if !capabilities.supports_operation(verbs::LIST) || resource.kind == "ComponentStatus" {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let listed = api.list(&ListParams::default()).await.with_context(|| resource.plural.clone())?;
        for object in listed {
            all.extend(parts(cluster.name(), &resource, serde_json::to_value(object)?));
        }
    }
    Ok(all)
}

fn parts(cluster: &str, resource: &ApiResource, mut object: Value) -> Vec<Output> {
    for (group, kind, place) in HOLDERS {
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
