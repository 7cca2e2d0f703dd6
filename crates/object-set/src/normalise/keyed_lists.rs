//! Lists that API servers merge by keys: `kubectl create` takes a key twice, server-side apply does not.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// A step on the way to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field.
    Field(&'static str),
    /// The item of a list that has this name.
    Named(String),
}

/// A list in which a key may be there twice.
pub(crate) struct KeyedList<'a> {
    /// The list.
    pub(crate) items: &'a mut Vec<Value>,
    /// Fields of an item that are its key.
    pub(crate) keys: &'static [&'static str],
    /// Its place, as in `spec.template.spec.containers[0].env`.
    pub(crate) path: String,
    /// The way to it.
    pub(crate) steps: Vec<Step>,
}

/// A list as its author wrote it, with a key twice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListAsWritten {
    /// The way to it.
    pub(crate) steps: Vec<Step>,
    /// Fields of an item that are its key.
    pub(crate) keys: &'static [&'static str],
    /// All items.
    pub(crate) items: Vec<Value>,
    /// Place and keys for messages, as in `spec.containers[0].env has name=PATH twice`.
    pub(crate) text: String,
}

/// Where each key that is there more than once is, and which key it is.
pub(crate) type Duplicates = Vec<(String, String)>;

/// Removes the items whose key a later item has too, where nothing changes by that.
pub(crate) fn remove_harmless_duplicates(
    body: &mut Map<String, Value>,
    group: &str,
    kind: &str,
) -> Duplicates {
    let mut found = Vec::new();
    visit(body, group, kind, &mut |list| {
        let is_env = list.steps.last() == Some(&Step::Field("env"));
        let readers = if is_env { readers(list.items) } else { HashMap::new() };
        let is_harmless = |items: &[Value], places: &[usize]| {
            let (Some(first), Some(last)) = (places.first(), places.last()) else { return true };
            let Some(kept) = items.get(*last) else { return true };
            if is_env {
                let name = kept.get("name").and_then(Value::as_str).unwrap_or_default();
                let reads = readers.get(name).map_or(&[][..], Vec::as_slice);
                return !reads.iter().any(|reader| reader > first && reader <= last);
            }
            places.iter().filter_map(|place| items.get(*place)).all(|item| is_part(item, kept))
        };
        found.extend(unique(list.items, list.keys, &list.path, is_harmless));
    });
    found
}

/// Leaves the last item of each key, and gives back the lists in which items were left out. Lists in which the API server
/// never allows a key twice stay as they are.
pub(crate) fn take_lists_as_written(
    body: &mut Map<String, Value>,
    group: &str,
    kind: &str,
) -> Vec<ListAsWritten> {
    let mut taken = Vec::new();
    if (group, kind) == ("", "Service") {
        return taken;
    }
    visit(body, group, kind, &mut |list| {
        let items = list.items.clone();
        let twice = unique(list.items, list.keys, &list.path, |_, _| true);
        if let Some((path, key)) = twice.first() {
            let text = format!("{path} has {key} more than once");
            taken.push(ListAsWritten { steps: list.steps, keys: list.keys, items, text });
        }
    });
    taken
}

/// Calls `see` for each list of a kind whose items have keys that authors write twice. The protocol of ports, which is a
/// part of their key, is filled in.
fn visit(body: &mut Map<String, Value>, group: &str, kind: &str, see: &mut dyn FnMut(KeyedList<'_>)) {
    match (group, kind) {
        ("", "Service") => {
            if let Some(Value::Object(spec)) = body.get_mut("spec") {
                see_list(spec, "ports", &["port", "protocol"], "spec", &[Step::Field("spec")], see);
            }
        }
        ("", "ServiceAccount") => see_list(body, "secrets", &["name"], "", &[], see),
        _ => {
            let Some(way) = pod_spec_way(group, kind) else { return };
            let mut spec = Some(body);
            for field in way {
                spec = spec.and_then(|map| map.get_mut(*field)).and_then(Value::as_object_mut);
            }
            if let Some(spec) = spec {
                let steps: Vec<Step> = way.iter().map(|field| Step::Field(field)).collect();
                visit_pod_spec(spec, &way.join("."), &steps, see);
            }
        }
    }
}

/// Where kinds of Kubernetes have the spec of their Pods.
pub(crate) fn pod_spec_way(group: &str, kind: &str) -> Option<&'static [&'static str]> {
    match (group, kind) {
        ("", "Pod") => Some(&["spec"]),
        ("", "PodTemplate") => Some(&["template", "spec"]),
        ("" | "apps" | "batch", "CronJob") => Some(&["spec", "jobTemplate", "spec", "template", "spec"]),
        ("" | "apps" | "batch", _) => Some(&["spec", "template", "spec"]),
        _ => None,
    }
}

fn visit_pod_spec(
    spec: &mut Map<String, Value>,
    path: &str,
    steps: &[Step],
    see: &mut dyn FnMut(KeyedList<'_>),
) {
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for (index, container) in containers.enumerate() {
            let Value::Object(container) = container else { continue };
            let path = format!("{path}.{field}[{index}]");
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let steps: Vec<Step> =
                steps.iter().cloned().chain([Step::Field(field), Step::Named(name)]).collect();
            see_list(container, "env", &["name"], &path, &steps, see);
            see_list(container, "ports", &["containerPort", "protocol"], &path, &steps, see);
        }
    }
    see_list(spec, "imagePullSecrets", &["name"], path, steps, see);
    see_list(spec, "hostAliases", &["ip"], path, steps, see);
}

fn see_list(
    parent: &mut Map<String, Value>,
    field: &'static str,
    keys: &'static [&'static str],
    path: &str,
    steps: &[Step],
    see: &mut dyn FnMut(KeyedList<'_>),
) {
    let Some(items) = parent.get_mut(field).and_then(Value::as_array_mut) else { return };
    if keys.contains(&"protocol") {
        default_protocol(items);
    }
    let path = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    let steps = steps.iter().cloned().chain([Step::Field(field)]).collect();
    see(KeyedList { items, keys, path, steps });
}

fn default_protocol(ports: &mut [Value]) {
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        let protocol = port.entry("protocol").or_insert(Value::Null);
        if protocol.is_null() {
            *protocol = "TCP".into();
        }
    }
}

/// Whether every field of an item is in the other one too.
fn is_part(item: &Value, other: &Value) -> bool {
    match (item, other) {
        (Value::Object(item), Value::Object(other)) => {
            item.iter().all(|(field, value)| other.get(field) == Some(value))
        }
        (item, other) => item == other,
    }
}

/// The places of the variables that read each variable by `$(NAME)`, in order.
fn readers(env: &[Value]) -> HashMap<String, Vec<usize>> {
    let mut found: HashMap<String, Vec<usize>> = HashMap::new();
    for (place, variable) in env.iter().enumerate() {
        let value = variable.get("value").and_then(Value::as_str).unwrap_or_default();
        for name in references(value) {
            found.entry(name.to_owned()).or_default().push(place);
        }
    }
    found
}

/// The names in `$(NAME)` of a text; `$$(NAME)` is no reference.
/// Source: `Expand` in `third_party/forked/golang/expansion/expand.go` of Kubernetes.
fn references(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('$') {
        rest = after;
        if let Some(escaped) = after.strip_prefix('$') {
            rest = escaped;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            found.push(name);
            rest = after;
        }
    }
    found
}

/// Of the items that share their keys only the last stays, where it stands, if `is_harmless` says so for all of them; it
/// gets the list and their places. Each key from which items went is told once.
pub(super) fn unique(
    items: &mut Vec<Value>,
    keys: &[&str],
    path: &str,
    is_harmless: impl Fn(&[Value], &[usize]) -> bool,
) -> Duplicates {
    let mut places: HashMap<Vec<&Value>, Vec<usize>> = HashMap::new();
    for (place, item) in items.iter().enumerate() {
        if let Some(key) = keys.iter().map(|key| item.get(*key)).collect() {
            places.entry(key).or_default().push(place);
        }
    }
    let mut twice: Vec<_> = places.into_iter().filter(|(_, places)| places.len() > 1).collect();
    // In the order in which the keys are told.
    twice.sort_by_key(|(_, places)| places.first().copied());
    let (mut leaving, mut found) = (HashSet::new(), Vec::new());
    for (key, places) in twice.into_iter().filter(|(_, places)| is_harmless(items, places)) {
        let parts = keys.iter().zip(key).map(|(key, value)| match value {
            Value::String(text) => format!("{key}={text}"),
            other => format!("{key}={other}"),
        });
        found.push((path.to_owned(), parts.collect::<Vec<_>>().join(",")));
        leaving.extend(places.iter().rev().skip(1).copied());
    }
    let mut place = 0;
    items.retain(|_| {
        place += 1;
        !leaving.contains(&(place - 1))
    });
    found
}

#[cfg(test)]
mod tests;
