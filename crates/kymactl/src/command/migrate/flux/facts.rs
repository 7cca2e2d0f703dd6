//! Objects that releases refer to, as far as they are known.

use std::collections::BTreeMap;

use serde_json::Value;

use super::content::{self, Content};

/// Kinds that a release refers to: sources of Flux, ConfigMap and Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    HelmRepository,
    OciRepository,
    HelmChart,
    ConfigMap,
    Secret,
}

/// Reference to an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ref {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Objects that were read; `None` means that the object does not exist.
pub(super) type Facts = BTreeMap<Ref, Option<ReducedObject>>;

/// A reduced object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReducedObject {
    /// A source of Flux.
    Source(Value),
    /// A ConfigMap or Secret without its values.
    Data {
        /// Type of a Secret.
        type_: String,
        /// Reduced values by key.
        contents: BTreeMap<String, Option<Content>>,
    },
}

impl Kind {
    /// Parses the value of a `kind` field.
    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::HelmRepository, Self::OciRepository, Self::HelmChart, Self::ConfigMap, Self::Secret]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::HelmRepository => "HelmRepository",
            Self::OciRepository => "OCIRepository",
            Self::HelmChart => "HelmChart",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// Reports whether it is a ConfigMap or Secret, not a source.
    pub(super) fn is_data(self) -> bool {
        matches!(self, Self::ConfigMap | Self::Secret)
    }
}

impl Ref {
    pub(super) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Returns kind, namespace and name for messages.
    pub(super) fn says(&self) -> String {
        format!("{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

impl ReducedObject {
    /// Reduces an object.
    pub(super) fn of(kind: Kind, object: Value) -> Self {
        if !kind.is_data() {
            return Self::Source(object);
        }
        let contents = content::contents(&object, kind == Kind::Secret);
        Self::Data { type_: object["type"].as_str().unwrap_or("Opaque").to_owned(), contents }
    }
}

/// Returns a text in an object; an empty one counts as absent.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}

/// Returns a list in an object.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Reports whether a field is true.
pub(super) fn is_set(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}
