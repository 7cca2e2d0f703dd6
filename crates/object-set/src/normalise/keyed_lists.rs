//! Lists of type map (`x-kubernetes-list-type: map`) with duplicate keys: `kubectl create` accepts them, server-side apply
//! does not.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// A segment of the path to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathSegment {
    /// A field.
    Field(&'static str),
    /// The list item with this name.
    Item(String),
}

/// A list that may have duplicate keys.
pub(crate) struct KeyedList<'a> {
    /// The list.
    pub(crate) items: &'a mut Vec<Value>,
    /// Fields of an item that form its key.
    pub(crate) keys: &'static [&'static str],
    /// Path for messages, as in `spec.template.spec.containers[0].env`.
    pub(crate) path: String,
    /// Path to the list.
    pub(crate) segments: Vec<PathSegment>,
}

/// A list with duplicate keys, as its author wrote it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListAsWritten {
    /// Path to the list.
    pub(crate) segments: Vec<PathSegment>,
    /// Fields of an item that form its key.
    pub(crate) keys: &'static [&'static str],
    /// All items.
    pub(crate) items: Vec<Value>,
    /// Path and key for messages, as in `spec.containers[0].env has name=PATH more than once`.
    pub(crate) text: String,
}

/// Path of the list and duplicate key, for each key of which items were removed.
pub(crate) type Duplicates = Vec<(String, String)>;

/// Removes items whose key a later item has too, if that does not change the meaning of the list.
pub(crate) fn remove_harmless_duplicates(
    body: &mut Map<String, Value>,
    group: &str,
    kind: &str,
) -> Duplicates {
    let mut found = Vec::new();
    visit(body, group, kind, &mut |list| {
        let is_env = list.segments.last() == Some(&PathSegment::Field("env"));
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

/// Keeps the last item of each key, and returns the original lists of which items were removed. Lists in which the API
/// server never accepts duplicate keys stay unchanged.
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
            taken.push(ListAsWritten { segments: list.segments, keys: list.keys, items, text });
        }
    });
    taken
}

/// Calls `see` for each list of a kind in which authors write duplicate keys. Sets the defaults of their key fields
/// first: the protocol of ports, and the empty name of image pull Secrets.
fn visit(body: &mut Map<String, Value>, group: &str, kind: &str, see: &mut dyn FnMut(KeyedList<'_>)) {
    match (group, kind) {
        ("", "Service") => {
            if let Some(Value::Object(spec)) = body.get_mut("spec") {
                see_list(spec, "ports", &["port", "protocol"], "spec", &[PathSegment::Field("spec")], see);
            }
        }
        ("", "ServiceAccount") => see_list(body, "secrets", &["name"], "", &[], see),
        _ => {
            let Some(fields) = pod_spec_fields(group, kind) else { return };
            let mut spec = Some(body);
            for field in fields {
                spec = spec.and_then(|map| map.get_mut(*field)).and_then(Value::as_object_mut);
            }
            if let Some(spec) = spec {
                let segments: Vec<PathSegment> =
                    fields.iter().map(|field| PathSegment::Field(field)).collect();
                visit_pod_spec(spec, &fields.join("."), &segments, see);
            }
        }
    }
}

/// Returns the path to the Pod spec of a built-in kind.
pub(crate) fn pod_spec_fields(group: &str, kind: &str) -> Option<&'static [&'static str]> {
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
    segments: &[PathSegment],
    see: &mut dyn FnMut(KeyedList<'_>),
) {
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for (index, container) in containers.enumerate() {
            let Value::Object(container) = container else { continue };
            let path = format!("{path}.{field}[{index}]");
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let segments: Vec<PathSegment> = segments
                .iter()
                .cloned()
                .chain([PathSegment::Field(field), PathSegment::Item(name)])
                .collect();
            see_list(container, "env", &["name"], &path, &segments, see);
            see_list(container, "ports", &["containerPort", "protocol"], &path, &segments, see);
        }
    }
    see_list(spec, "imagePullSecrets", &["name"], path, segments, see);
    see_list(spec, "hostAliases", &["ip"], path, segments, see);
}

fn see_list(
    parent: &mut Map<String, Value>,
    field: &'static str,
    keys: &'static [&'static str],
    path: &str,
    segments: &[PathSegment],
    see: &mut dyn FnMut(KeyedList<'_>),
) {
    let Some(items) = parent.get_mut(field).and_then(Value::as_array_mut) else { return };
    if keys.contains(&"protocol") {
        set_default(items, "protocol", "TCP");
    }
    if field == "imagePullSecrets" {
        set_default(items, "name", "");
    }
    let path = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    let segments = segments.iter().cloned().chain([PathSegment::Field(field)]).collect();
    see(KeyedList { items, keys, path, segments });
}

/// Sets the API server's default of a key field. The API server also sets it for an empty text, but only after the
/// merge: the item would have another key in the live list, and each apply would add it again.
/// Source: `defaults.go` and `zz_generated.defaults.go` in `pkg/apis/core/v1` of Kubernetes.
fn set_default(items: &mut [Value], field: &str, default: &str) {
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        let value = item.entry(field).or_insert(Value::Null);
        if value.is_null() || value.as_str() == Some("") {
            *value = default.into();
        }
    }
}

/// Returns whether the other item has every field of an item with the same value.
fn is_part(item: &Value, other: &Value) -> bool {
    match (item, other) {
        (Value::Object(item), Value::Object(other)) => {
            item.iter().all(|(field, value)| other.get(field) == Some(value))
        }
        (item, other) => item == other,
    }
}

/// Returns, for each variable name, the indexes of the variables that refer to it by `$(NAME)`, in order.
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

/// Returns the names in `$(NAME)` of a text; `$$(NAME)` is not a reference.
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

/// Keeps only the last of the items with the same key, at its index, if `is_harmless` returns true; it receives the list
/// and the indexes of the items. Returns each key of which items were removed once.
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
    // In the order of the warnings.
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
