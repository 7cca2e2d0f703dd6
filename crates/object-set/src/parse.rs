//! Parses the output of Helm, and manifests for kubectl, into a set of objects.

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::object::{Object, ObjectError, map_at};
use crate::set::ObjectSet;

pub(crate) mod yaml;

use yaml::{Budget, YamlError};

/// Prefix of Helm's annotations.
const HELM_ANNOTATION_PREFIX: &str = "helm.sh/";
/// Start of the comment in which Helm names the file that it rendered.
const SOURCE_COMMENT: &str = "# Source: ";
/// Maximum length of a name in a message.
const MAX_NAME_BYTES: usize = 253;

/// Maximum sizes of a text and its content.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the text; default 32 MiB.
    pub text_bytes: usize,
    /// Objects, with the items of lists; default 5,000.
    pub objects: usize,
    /// Scalars, maps and lists, with every YAML alias expanded; default 2,000,000.
    pub nodes: usize,
    /// Bytes in scalars, with every YAML alias expanded; default 64 MiB.
    pub scalar_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { text_bytes: 32 << 20, objects: 5_000, nodes: 2_000_000, scalar_bytes: 64 << 20 }
    }
}

/// Why a text is not a set of objects. Documents count from 1 and include empty ones. A message contains only names
/// of files, kinds and objects of the text, since the text may hold Secrets.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    /// The text is not valid YAML.
    #[error("document {document}, line {line} of the text: not valid YAML: {problem}")]
    Syntax {
        /// Number of the document, from 1.
        document: usize,
        /// Line in the whole text, from 1.
        line: usize,
        /// The parser's name for the problem.
        problem: String,
    },
    /// Valid YAML that JSON cannot express, for example a map as a key.
    #[error("document {document}, line {line} of the text: {problem}")]
    Value {
        /// Number of the document, from 1.
        document: usize,
        /// Line in the whole text, from 1.
        line: usize,
        /// The value that JSON cannot express.
        problem: &'static str,
    },
    /// A document is not a Kubernetes object.
    #[error("document {document}{place}: the {object} {problem}")]
    Object {
        /// Number of the document, from 1.
        document: usize,
        /// The file that Helm rendered and the index in lists, for example ` (shop/templates/all.yaml), item 2`; else
        /// empty.
        place: String,
        /// Kind and name, for example `ConfigMap settings`; `object` if neither is valid.
        object: String,
        /// The problem of the object.
        problem: ObjectError,
    },
    /// Larger than [`Limits`] allow.
    #[error("more than {limit} {what}")]
    TooLarge {
        /// The exceeded quantity.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The text is not one map.
    #[error("the text is not one map of keys and values")]
    NotMap,
    /// The text is more than one document.
    #[error("the text is more than one document")]
    MoreThanOne,
    /// The bytes are not UTF-8.
    #[error("the text is not UTF-8")]
    NotText,
}

/// Parses one YAML or JSON document that is a map, as Helm parses a file of values; an empty text is an empty map.
///
/// # Errors
/// The text is not valid YAML, is not one map, or is larger than `limits` allow.
pub fn parse_map(text: &str, limits: &Limits) -> Result<Map<String, Value>, ParseError> {
    match parse_one(text, limits) {
        Ok(Value::Null) => Ok(Map::new()),
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) | Err(ParseError::MoreThanOne) => Err(ParseError::NotMap),
        Err(error) => Err(error),
    }
}

/// Parses one YAML or JSON document; an empty text is null. Empty documents beside it are skipped.
pub(crate) fn parse_one(text: &str, limits: &Limits) -> Result<Value, ParseError> {
    if text.len() > limits.text_bytes {
        return Err(ParseError::TooLarge { what: "bytes of text", limit: limits.text_bytes });
    }
    let mut budget = Budget { nodes: limits.nodes, bytes: limits.scalar_bytes };
    let mut found = values(text, &mut budget).map_err(|error| located(error, 1, 1, limits))?;
    found.retain(|value| !value.is_null());
    match (found.pop(), found.is_empty()) {
        (found, true) => Ok(found.unwrap_or_default()),
        (_, false) => Err(ParseError::MoreThanOne),
    }
}

impl ObjectSet {
    /// Parses YAML or JSON with any number of documents. The items of `List` kinds replace the list; they get the
    /// kind of a typed list and the list's Helm annotations. Empty and null documents are skipped. Scalars have the
    /// types that Helm and kubectl give them (YAML 1.1).
    ///
    /// # Errors
    /// The first document that is not a Kubernetes object, or the limit that was passed.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self, ParseError> {
        if text.len() > limits.text_bytes {
            return Err(ParseError::TooLarge { what: "bytes of text", limit: limits.text_bytes });
        }
        let mut budget = Budget { nodes: limits.nodes, bytes: limits.scalar_bytes };
        let mut objects = Vec::new();
        for (index, (first_line, part)) in documents(text).into_iter().enumerate() {
            let document = index + 1;
            let place = Position { document, file: rendered_file(part), items: Vec::new() };
            for value in values(part, &mut budget).map_err(|e| located(e, document, first_line, limits))? {
                flatten(value, &place, limits, &ListDefaults::default(), &mut objects)?;
            }
        }
        Ok(Self::new(objects))
    }

    /// Parses like [`ObjectSet::parse`] bytes that have to be UTF-8.
    ///
    /// # Errors
    /// As for [`ObjectSet::parse`].
    pub fn parse_bytes(bytes: &[u8], limits: &Limits) -> Result<Self, ParseError> {
        let text = std::str::from_utf8(bytes).map_err(|_| ParseError::NotText)?;
        Self::parse(text, limits)
    }
}

fn located(error: YamlError, document: usize, first_line: usize, limits: &Limits) -> ParseError {
    let at = |line: usize| first_line + line.saturating_sub(1);
    match error {
        YamlError::Syntax { problem, line } => ParseError::Syntax { document, line: at(line), problem },
        YamlError::Value { problem, line } => ParseError::Value { document, line: at(line), problem },
        YamlError::Budget => ParseError::TooLarge { what: "YAML nodes", limit: limits.nodes },
    }
}

/// Splits a text at lines that start with `---`, as Helm does: text directly after the dashes belongs to the new
/// document. Returns the parts, each with the line, from 1, at which it starts.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut start, mut start_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.starts_with("---") {
            parts.push((start_line, &text[start..offset]));
            start = offset + 3;
            start_line = index + 1;
        }
        offset += line.len();
    }
    parts.push((start_line, &text[start..]));
    // Blank text before the first separator is no document.
    if parts.first().is_some_and(|(_, part)| part.trim().is_empty()) {
        parts.remove(0);
    }
    parts
}

fn values(part: &str, budget: &mut Budget) -> Result<Vec<Value>, YamlError> {
    if part.trim_start().starts_with('{') {
        // JSON is tried first: its escapes differ from YAML's, and several objects may follow each other.
        let json: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(part).into_iter().collect();
        if let Ok(values) = json {
            values.iter().try_for_each(|value| budget.take(value))?;
            return Ok(values);
        }
    }
    yaml::parse(part, budget)
}

/// Values that a list passes on to its items.
#[derive(Clone, Debug, Default)]
struct ListDefaults {
    /// API version and kind of the items of a typed list, such as RoleBindingList, whose items may omit them.
    kind: Option<(Value, Value)>,
    /// Helm's annotations on the list. Helm reads them from the document, so they apply to each item.
    annotations: Map<String, Value>,
}

impl ListDefaults {
    /// Returns the values for the items of `list`, which may itself be an item.
    fn of(&self, list: &Map<String, Value>) -> Self {
        let kind = list.get("kind").and_then(Value::as_str).and_then(|kind| kind.strip_suffix("List"));
        let kind = kind.filter(|kind| !kind.is_empty());
        let kind = kind.and_then(|kind| Some((list.get("apiVersion")?.clone(), kind.into())));
        let own = list.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let own = own.and_then(Value::as_object).into_iter().flatten();
        let mut annotations = self.annotations.clone();
        let own = own.filter(|(key, _)| key.starts_with(HELM_ANNOTATION_PREFIX));
        annotations.extend(own.map(|(key, value)| (key.clone(), value.clone())));
        Self { kind, annotations }
    }

    fn complete(&self, item: &mut Map<String, Value>) {
        if let Some((api_version, kind)) = &self.kind
            && !item.contains_key("apiVersion")
            && !item.contains_key("kind")
        {
            item.insert("apiVersion".to_owned(), api_version.clone());
            item.insert("kind".to_owned(), kind.clone());
        }
        if self.annotations.is_empty() {
            return;
        }
        let annotations = map_at(map_at(item, "metadata"), "annotations");
        for (key, value) in &self.annotations {
            annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Position of an object in the text.
struct Position<'a> {
    /// Number of the document, from 1.
    document: usize,
    /// The file that Helm rendered to this document.
    file: Option<&'a str>,
    /// Indexes in lists, from 1, the outermost list first.
    items: Vec<usize>,
}

impl Position<'_> {
    /// Returns the position of an item of the list at this position. `index` counts from 0.
    fn item(&self, index: usize) -> Self {
        let items = self.items.iter().copied().chain([index + 1]).collect();
        Self { items, ..*self }
    }
}

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = self.file {
            write!(f, " ({file})")?;
        }
        self.items.iter().try_for_each(|item| write!(f, ", item {item}"))
    }
}

/// Returns the file that Helm rendered to a document, from Helm's comment at its beginning.
fn rendered_file(part: &str) -> Option<&str> {
    let first_line = part.lines().map(str::trim).find(|line| !line.is_empty())?;
    first_line.strip_prefix(SOURCE_COMMENT).filter(|file| is_name(file))
}

/// Returns kind and name of an object as far as they are valid.
fn describe(value: &Value) -> String {
    let name_at = |path: &str| value.pointer(path).and_then(Value::as_str).filter(|name| is_name(name));
    let kind = name_at("/kind").unwrap_or("object");
    match name_at("/metadata/name") {
        Some(name) => format!("{kind} {name}"),
        None => kind.to_owned(),
    }
}

/// Reports whether a message may contain the text: it can be the name of a file, a kind or an object.
fn is_name(text: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "-._/:".contains(character);
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.chars().all(is_part)
}

fn flatten(
    value: Value,
    place: &Position<'_>,
    limits: &Limits,
    from: &ListDefaults,
    into: &mut Vec<Object>,
) -> Result<(), ParseError> {
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match value {
        Value::Null => Ok(()),
        // Templates leave `items:` without a value if a range is empty.
        Value::Object(mut map)
            if is_list && matches!(map.get("items"), Some(Value::Array(_) | Value::Null)) =>
        {
            let Some(Value::Array(items)) = map.remove("items") else { return Ok(()) };
            let from = from.of(&map);
            let mut items = items.into_iter().enumerate();
            items.try_for_each(|(index, item)| flatten(item, &place.item(index), limits, &from, into))
        }
        mut value => {
            if into.len() >= limits.objects {
                return Err(ParseError::TooLarge { what: "objects", limit: limits.objects });
            }
            if let Value::Object(item) = &mut value {
                from.complete(item);
            }
            let object = describe(&value);
            into.push(Object::from_value(value).map_err(|problem| ParseError::Object {
                document: place.document,
                place: place.to_string(),
                object,
                problem,
            })?);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
