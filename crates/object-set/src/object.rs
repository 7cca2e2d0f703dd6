//! A Kubernetes object of a set, its identity on a cluster, and its selection.

use std::fmt;
use std::sync::Arc;

use kyma_api::ObjectSelector;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

mod identity;

pub use identity::{GroupKind, Gvk, Identity};

/// Why a document is not a Kubernetes object.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ObjectError {
    /// The document is a list or a scalar.
    #[error("is not a map")]
    NotAMap,
    /// `apiVersion` is absent, empty or not a string of the form `[group/]version`.
    #[error("has no valid apiVersion")]
    ApiVersion,
    /// `kind` is absent, empty or not a string.
    #[error("has no kind")]
    Kind,
    /// `metadata.name` is absent, empty or not a string.
    #[error("has no metadata.name")]
    Name,
    /// `metadata.generateName` takes the place of `metadata.name`.
    #[error("has only a generateName, which cannot be applied; give it a metadata.name")]
    GeneratedName,
    /// `metadata.namespace` is not a string.
    #[error("has a metadata.namespace that is not a string")]
    Namespace,
    /// A field that is changed on the way to the cluster is not the map that it has to be.
    #[error("has a {0} that is not a map")]
    FieldNotAMap(&'static str),
}

/// One object as its author wrote it: a JSON map that is known to have `apiVersion`, `kind` and
/// `metadata.name`.
///
/// Clones share the map until one of them is changed, so that a set passes through an apply without copies of its
/// objects.
#[derive(Clone, PartialEq)]
pub struct Object {
    body: Arc<Map<String, Value>>,
    /// Whether hashes leave its data out.
    unhashed: bool,
}

impl fmt::Debug for Object {
    // Bodies may contain Secrets and are never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.identity())
    }
}

impl Object {
    /// Takes a JSON value that has to be an object with `apiVersion`, `kind` and `metadata.name`.
    ///
    /// # Errors
    /// Names the first of these fields that is missing or of a wrong type.
    pub fn from_value(value: Value) -> Result<Self, ObjectError> {
        let Value::Object(body) = value else { return Err(ObjectError::NotAMap) };
        let text = |v: Option<&Value>| v.and_then(Value::as_str).is_some_and(|s| !s.is_empty());
        if !text(body.get("apiVersion")) || split_api_version(&body).1.is_empty() {
            return Err(ObjectError::ApiVersion);
        }
        if !text(body.get("kind")) {
            return Err(ObjectError::Kind);
        }
        let metadata = body.get("metadata").and_then(Value::as_object);
        if !text(metadata.and_then(|m| m.get("name"))) {
            let is_generated = text(metadata.and_then(|m| m.get("generateName")));
            return Err(if is_generated { ObjectError::GeneratedName } else { ObjectError::Name });
        }
        match metadata.and_then(|m| m.get("namespace")) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(_) => return Err(ObjectError::Namespace),
        }
        match odd_map(&body) {
            Some(field) => Err(ObjectError::FieldNotAMap(field)),
            None => Ok(Self { body: Arc::new(body), unhashed: false }),
        }
    }

    /// API group, empty for the core group.
    pub fn group(&self) -> &str {
        split_api_version(&self.body).0
    }

    /// Version as in `v1beta1`.
    pub fn version(&self) -> &str {
        split_api_version(&self.body).1
    }

    /// Kind as in `Deployment`.
    pub fn kind(&self) -> &str {
        self.body.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk::new(self.group(), self.version(), self.kind())
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.metadata("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.namespace`; `None` where absent, null or empty.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata("namespace").and_then(Value::as_str).filter(|n| !n.is_empty())
    }

    /// Sets or removes `metadata.namespace`.
    pub fn set_namespace(&mut self, namespace: Option<&str>) {
        let metadata = self.metadata_mut();
        match namespace {
            Some(namespace) => metadata.insert("namespace".to_owned(), namespace.into()),
            None => metadata.remove("namespace"),
        };
    }

    /// A label; `None` where absent or not a string.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata("labels")?.get(key)?.as_str()
    }

    /// Sets a label, replacing what was there.
    pub fn set_label(&mut self, key: &str, value: &str) {
        self.set_in("labels", key, value);
    }

    /// An annotation; `None` where absent or not a string.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata("annotations")?.get(key)?.as_str()
    }

    /// Sets an annotation, replacing what was there.
    pub fn set_annotation(&mut self, key: &str, value: &str) {
        self.set_in("annotations", key, value);
    }

    /// Returns the identity of this object on a cluster.
    pub fn identity(&self) -> Identity {
        Identity::new(self.group(), self.kind(), self.namespace(), self.name())
    }

    /// The whole object.
    pub fn body(&self) -> &Map<String, Value> {
        &self.body
    }

    /// Returns the whole object for changes, which copies it if clones share it. `apiVersion`, `kind` and
    /// `metadata.name` must stay.
    pub fn body_mut(&mut self) -> &mut Map<String, Value> {
        Arc::make_mut(&mut self.body)
    }

    /// The whole object as a JSON value.
    pub fn into_value(self) -> Value {
        Value::Object(Arc::unwrap_or_clone(self.body))
    }

    /// Leaves `data` out of [`Object::intent_hash`], which others can read: a short secret could be guessed from it.
    /// Another field of the object then has to change with the data.
    pub fn leave_data_out_of_hashes(&mut self) {
        self.unhashed = true;
    }

    /// Returns a hash of the object: 16 hex digits, equal for equal content in any order of keys.
    pub fn intent_hash(&self) -> String {
        let mut hasher = Sha256::new();
        if self.unhashed {
            let mut rest = (*self.body).clone();
            rest.remove("data");
            hash_map(&rest, &mut hasher);
        } else {
            hash_map(&self.body, &mut hasher);
        }
        short(hasher)
    }

    fn metadata(&self, field: &str) -> Option<&Value> {
        self.body.get("metadata")?.get(field)
    }

    fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        map_at(self.body_mut(), "metadata")
    }

    fn set_in(&mut self, field: &str, key: &str, value: &str) {
        map_at(self.metadata_mut(), field).insert(key.to_owned(), value.into());
    }
}

/// Returns the first of labels, annotations and data of a Secret that is not a map. Replacing it by a map would drop
/// its author's content.
fn odd_map(body: &Map<String, Value>) -> Option<&'static str> {
    let metadata = body.get("metadata");
    let in_metadata = |field: &str| metadata.and_then(|metadata| metadata.get(field));
    let is_secret =
        split_api_version(body) == ("", "v1") && body.get("kind").is_some_and(|kind| kind == "Secret");
    let of_secret = |field: &str| body.get(field).filter(|_| is_secret);
    let maps = [
        ("metadata.labels", in_metadata("labels")),
        ("metadata.annotations", in_metadata("annotations")),
        ("data", of_secret("data")),
        ("stringData", of_secret("stringData")),
    ];
    let odd = |value: &Value| !matches!(value, Value::Null | Value::Object(_));
    maps.into_iter().find_map(|(field, value)| value.is_some_and(odd).then_some(field))
}

/// Returns the map at `key`; replaces any other value there by an empty map.
pub(crate) fn map_at<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(key.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // The lines above made it a map.
        _ => unreachable!("a map was just put here"),
    }
}

/// Returns a hash of a JSON value, 16 hex digits, independent of the order of keys.
pub(crate) fn hash_value(value: &Value) -> String {
    let mut hasher = Sha256::new();
    hash_into(value, &mut hasher);
    short(hasher)
}

fn short(hasher: Sha256) -> String {
    hex::encode(&hasher.finalize()[..8])
}

fn hash_map(map: &Map<String, Value>, hasher: &mut Sha256) {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort_unstable();
    hasher.update(b"{");
    for key in keys {
        hash_text(key, hasher);
        if let Some(value) = map.get(key) {
            hash_into(value, hasher);
        }
    }
    hasher.update(b"}");
}

fn hash_into(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Object(map) => hash_map(map, hasher),
        Value::Array(items) => {
            hasher.update(b"[");
            for item in items {
                hash_into(item, hasher);
            }
            hasher.update(b"]");
        }
        Value::String(text) => hash_text(text, hasher),
        Value::Number(number) => hasher.update(format!("#{number};")),
        Value::Bool(flag) => hasher.update(if *flag { b"T" } else { b"F" }),
        Value::Null => hasher.update(b"N"),
    }
}

fn hash_text(text: &str, hasher: &mut Sha256) {
    hasher.update(format!("\"{}:", text.len()));
    hasher.update(text);
}

fn split_api_version(body: &Map<String, Value>) -> (&str, &str) {
    let text = body.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    match text.split_once('/') {
        Some((_, version)) if version.contains('/') => ("", ""),
        Some((group, version)) => (group, version),
        None => ("", text),
    }
}

/// Reports whether a selector matches an object with filled-in namespace. An absent field of the selector matches any
/// value.
pub(crate) fn selects(selector: &ObjectSelector, object: &Object) -> bool {
    let ObjectSelector { group, version, kind, namespace, name } = selector;
    let fits = |selected: &Option<String>, is: &str| selected.as_ref().is_none_or(|selected| selected == is);
    fits(group, object.group())
        && fits(version, object.version())
        && fits(kind, object.kind())
        && fits(namespace, object.namespace().unwrap_or_default())
        && fits(name, object.name())
}

#[cfg(test)]
mod tests;
