//! What is known about releases and what they refer to.

use std::collections::BTreeMap;

use serde_json::Value;

use super::content::{self, Content};

/// Flux's kinds, and those that hold data, that a release refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    HelmRepository,
    OciRepository,
    HelmChart,
    ConfigMap,
    Secret,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ref {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What was read. `None` is there for sure not to be.
pub(super) type Facts = BTreeMap<Ref, Option<Known>>;

/// An object, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    /// A source of Flux.
    Source(Value),
    /// A ConfigMap or Secret without its content.
    Data {
        /// Type of a Secret.
        type_: String,
        /// What matters of its data, by key.
        contents: BTreeMap<String, Option<Content>>,
    },
}

impl Kind {
    /// As in `kind`.
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

    /// Whether it is no source, but holds data.
    pub(super) fn is_data(self) -> bool {
        matches!(self, Self::ConfigMap | Self::Secret)
    }
}

impl Ref {
    pub(super) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// For people.
    pub(super) fn says(&self) -> String {
        format!("{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

impl Known {
    /// What matters of an object.
    pub(super) fn of(kind: Kind, object: Value) -> Self {
        if !kind.is_data() {
            return Self::Source(object);
        }
        let contents = content::contents(&object, kind == Kind::Secret);
        Self::Data { type_: object["type"].as_str().unwrap_or("Opaque").to_owned(), contents }
    }
}

/// A text in an object; empty is as good as absent.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}

/// A list in an object.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Whether a field is true.
pub(super) fn is_set(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}
