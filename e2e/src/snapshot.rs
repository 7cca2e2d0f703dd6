//! Snapshots of all objects of a cluster, and their differences.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{ApiCapabilities, Discovery, verbs};
use kube::{Api, Client};
use serde_json::Value;
use testbed::until;

/// Kinds whose objects change by themselves.
const VOLATILE_KINDS: [(&str, &str); 4] =
    [("", "Event"), ("events.k8s.io", "Event"), ("coordination.k8s.io", "Lease"), ("", "ComponentStatus")];
/// Fields of `metadata` that change with each write.
const VOLATILE_METADATA: [&str; 3] = ["generation", "managedFields", "resourceVersion"];
/// The stamp of a target, whose fencing generation counts changes.
const STAMP: &str = "kyma-target-stamp";
/// Deadline for the apiserver to serve a new kind.
const DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of concurrent lists.
const MAX_PARALLEL_LISTS: usize = 4;

/// Identifies an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace of a namespaced object.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl Key {
    /// Returns the key of an object from the apiserver.
    pub fn of(group: &str, kind: &str, metadata: &Value) -> Self {
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: text("namespace").filter(|namespace| !namespace.is_empty()),
            name: text("name").unwrap_or_default(),
        }
    }

    /// Reports whether it has this group and kind.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(formatter, "{}{dot}{} ", self.kind, self.group)?;
        if let Some(namespace) = &self.namespace {
            write!(formatter, "{namespace}/")?;
        }
        formatter.write_str(&self.name)
    }
}

/// The objects of a cluster.
pub type Snapshot = BTreeMap<Key, Value>;

/// Returns all objects of all kinds that the cluster serves, without status and counters.
///
/// # Errors
/// The cluster does not answer.
pub async fn take(client: &Client) -> Result<Snapshot> {
    Ok(without_noise(list(client, &ListParams::default(), |_, _| true).await?))
}

/// Returns the objects of all kinds for which `is_wanted` holds, by group and kind, with status and counters.
///
/// # Errors
/// The cluster does not answer.
pub async fn take_whole(client: &Client, is_wanted: fn(&str, &str) -> bool) -> Result<Snapshot> {
    list(client, &ListParams::default(), is_wanted).await
}

/// Returns the objects with a label, without status and counters.
///
/// # Errors
/// The cluster does not answer.
pub async fn labelled(client: &Client, label: &str, value: &str) -> Result<Snapshot> {
    let wanted = ListParams::default().labels(&format!("{label}={value}"));
    Ok(without_noise(list(client, &wanted, |_, _| true).await?))
}

/// Removes status and counters.
fn without_noise(mut snapshot: Snapshot) -> Snapshot {
    for (key, object) in &mut snapshot {
        if key.is("", "ConfigMap")
            && key.name == STAMP
            && let Some(data) = object["data"].as_object_mut()
        {
            data.remove("turn");
        }
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|field, _| !VOLATILE_METADATA.contains(&field.as_str()));
        }
    }
    snapshot
}

/// A difference between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The object was created.
    Added(Key),
    /// The object was deleted.
    Removed(Key),
    /// The object was replaced or changed, at these paths.
    Changed(Key, Vec<String>),
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(key) => write!(formatter, "+ {key}"),
            Self::Removed(key) => write!(formatter, "- {key}"),
            Self::Changed(key, paths) => write!(formatter, "~ {key}: {}", paths.join(", ")),
        }
    }
}

/// Returns all differences in order.
pub fn differences(before: &Snapshot, after: &Snapshot) -> Vec<Difference> {
    let gone = before.keys().filter(|key| !after.contains_key(key)).cloned().map(Difference::Removed);
    let others = after.iter().filter_map(|(key, object)| {
        let Some(known) = before.get(key) else { return Some(Difference::Added(key.clone())) };
        let paths = paths(known, object);
        (!paths.is_empty()).then(|| Difference::Changed(key.clone(), paths))
    });
    gone.chain(others).collect()
}

/// Returns JSON pointers of the smallest parts that differ.
pub fn paths(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect("", one, other, &mut found);
    found
}

fn collect(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                let at = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                collect(&path, &at(one), &at(other), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                collect(&format!("{path}/{index}"), one, other, found);
            }
        }
        _ if one == other => {}
        _ => found.push(path.to_owned()),
    }
}

/// Returns every kind once, in its most stable version, which a group need not prefer for its other kinds.
async fn kinds(client: &Client) -> Result<Vec<(ApiResource, ApiCapabilities)>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let all = discovery.groups().flat_map(kube::discovery::ApiGroup::resources_by_stability);
    Ok(all
        .filter(|(resource, capabilities)| {
            let restless = VOLATILE_KINDS.contains(&(resource.group.as_str(), resource.kind.as_str()));
            capabilities.supports_operation(verbs::LIST) && !restless
        })
        .collect())
}

async fn list(client: &Client, wanted: &ListParams, is_wanted: fn(&str, &str) -> bool) -> Result<Snapshot> {
    let mut kinds = kinds(client).await?;
    kinds.retain(|(resource, _)| is_wanted(&resource.group, &resource.kind));
    let lists =
        futures::stream::iter(kinds.into_iter().map(|(resource, _)| list_kind(client, resource, wanted)))
            .buffer_unordered(MAX_PARALLEL_LISTS)
            .try_collect::<Vec<_>>()
            .await?;
    Ok(lists.into_iter().flatten().collect())
}

async fn list_kind(client: &Client, resource: ApiResource, wanted: &ListParams) -> Result<Vec<(Key, Value)>> {
    let keyed = objects(client, &resource, wanted).await?.into_iter().map(|object| {
        let object = serde_json::to_value(object)?;
        Ok((Key::of(&resource.group, &resource.kind, &object["metadata"]), object))
    });
    keyed.collect()
}

/// Returns all objects of a kind; none if it is not served any more.
///
/// # Errors
/// The cluster refuses the list, or cannot return it within the deadline.
pub async fn objects(
    client: &Client,
    resource: &ApiResource,
    wanted: &ListParams,
) -> Result<Vec<DynamicObject>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    until(&format!("{} can be listed", resource.plural), DEADLINE, || async {
        match api.list(wanted).await {
            Ok(list) => Ok(Some(list.items)),
            // Its CRD or aggregated API was removed since discovery.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 503) => Ok(Some(Vec::new())),
            // Its CRD was just installed.
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot list {}", resource.plural)),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    #[test]
    fn the_smallest_parts_that_differ_are_named() {
        let one = json!({"a": {"b/c": 1, "d": [1, 2]}, "e": 1});
        let other = json!({"a": {"b/c": 2, "d": [1, 3]}, "f": 1});
        assert_eq!(paths(&one, &other), ["/a/b~1c", "/a/d/1", "/e", "/f"]);
        assert_eq!(paths(&json!({"a": [1]}), &json!({"a": [1, 2]})), ["/a"]);
        assert!(paths(&one, &one).is_empty());
    }

    #[tokio::test]
    async fn kinds_of_an_unpreferred_version_are_found_once() {
        let resource = |version: &str, plural: &str, kind: &str| {
            json!({
                "resource": plural, "scope": "Namespaced", "verbs": ["list"],
                "responseKind": {"group": "lamps.example.com", "version": version, "kind": kind},
            })
        };
        let lantern = |version| resource(version, "lanterns", "Lantern");
        let candle = resource("v1beta1", "candles", "Candle");
        let groups = json!([{"metadata": {"name": "lamps.example.com"}, "versions": [
            {"version": "v1", "freshness": "Current", "resources": [lantern("v1")]},
            {"version": "v1beta1", "freshness": "Current", "resources": [lantern("v1beta1"), candle]},
        ]}]);
        let list = |groups: &Value| {
            Answer::json(&json!({
                "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "items": groups,
            }))
        };
        let server = ScriptedServer::start().await.unwrap();
        server.always(RequestMatcher::path("/apis"), list(&groups));
        server.always(RequestMatcher::path("/api"), list(&json!([])));
        let found = kinds(&server.access().client().unwrap()).await.unwrap();
        let mut found: Vec<_> =
            found.into_iter().map(|(resource, _)| (resource.kind, resource.version)).collect();
        found.sort_unstable();
        let expected = [("Candle", "v1beta1"), ("Lantern", "v1")];
        assert_eq!(found, expected.map(|(kind, version)| (kind.to_owned(), version.to_owned())));
    }

    #[test]
    fn added_removed_and_changed_objects_are_distinguished() {
        let key = |name: &str| Key::of("", "ConfigMap", &json!({"name": name, "namespace": "n"}));
        let snapshot = |entries: &[(&str, i32)]| {
            entries.iter().map(|(name, value)| (key(name), json!({"v": value}))).collect()
        };
        let found = differences(
            &snapshot(&[("a", 1), ("b", 1), ("c", 1)]),
            &snapshot(&[("b", 2), ("c", 1), ("d", 1)]),
        );
        let text: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["- ConfigMap n/a", "~ ConfigMap n/b: /v", "+ ConfigMap n/d"]);
    }
}
