//! Parses the output of Helm, and manifests for kubectl, into a set of objects.

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::object::{Object, ObjectError, map_at};
use crate::set::ObjectSet;
use crate::yaml::{self, Budget, YamlError};

/// Prefix of Helm's annotations.
const HELM_ANNOTATIONS: &str = "helm.sh/";
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
    /// It is not valid YAML.
    #[error("document {document}, line {line} of the text: not valid YAML: {problem}")]
    Syntax {
        /// Which document, from 1.
        document: usize,
        /// Line in the whole text, from 1.
        line: usize,
        /// The parser's name for the problem.
        problem: String,
    },
    /// Valid YAML that JSON cannot express, for example a map as a key.
    #[error("document {document}, line {line} of the text: {problem}")]
    Value {
        /// Which document, from 1.
        document: usize,
        /// Line in the whole text, from 1.
        line: usize,
        /// The value that JSON cannot express.
        problem: &'static str,
    },
    /// A document is not a Kubernetes object.
    #[error("document {document}{place}: the {object} {problem}")]
    Object {
        /// Which document, from 1.
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
        let own = own.filter(|(key, _)| key.starts_with(HELM_ANNOTATIONS));
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
    /// Which document, from 1.
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
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let set = ObjectSet::parse(text, &Limits::default()).unwrap();
        set.objects().iter().map(|object| object.name().to_owned()).collect()
    }

    fn cm(name: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
    }

    #[test]
    fn documents_are_split_as_helm_splits_them() {
        assert_eq!(names(&format!("{}---\n{}", cm("a"), cm("b"))), ["a", "b"]);
        assert_eq!(names(&format!("---\n# only words\n---\n\n---\nnull\n---\n{}", cm("a"))), ["a"]);
        assert_eq!(names(&format!("---{}---   \n{}", cm("a"), cm("b"))), ["a", "b"]);
        assert_eq!(names(&format!("{}--- # note\n{}...\n", cm("a"), cm("b"))), ["a", "b"]);
        assert_eq!(names(&format!("\u{feff}{}", cm("a"))), ["a"]);
        assert_eq!(names(&cm("a").replace('\n', "\r\n")), ["a"]);
        assert_eq!(names(""), Vec::<String>::new());
    }

    #[test]
    fn dashes_inside_a_block_do_not_split() {
        let text = format!("{}data:\n  k: |\n    ---\n    x: 1\n", cm("a"));
        let set = ObjectSet::parse(&text, &Limits::default()).unwrap();
        assert_eq!(set.objects()[0].body()["data"]["k"], "---\nx: 1\n");
    }

    #[test]
    fn a_list_whose_items_are_null_has_no_objects() {
        for kind in ["List", "ConfigMapList"] {
            let text = format!(
                "apiVersion: v1\nkind: {kind}\nmetadata: {{annotations: {{a: b}}}}\nitems:\n---\n{}",
                cm("a")
            );
            assert_eq!(names(&text), ["a"], "{kind}");
        }
        let named = "apiVersion: x.io/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {items: null}\n";
        assert_eq!(names(named), ["a"], "no list of objects");
        let problem = ObjectSet::parse("apiVersion: v1\nkind: List\n", &Limits::default()).unwrap_err();
        assert!(problem.to_string().contains("metadata.name"), "{problem}");
    }

    #[test]
    fn lists_and_json_become_objects() {
        let text = r#"{"apiVersion":"v1","kind":"List","items":[
            {"apiVersion":"v1","kind":"Secret","metadata":{"name":"a\/b"}},
            {"apiVersion":"v1","kind":"ConfigMapList","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}]}]}"#;
        assert_eq!(names(text), ["a/b", "c"]);
    }

    #[test]
    fn items_of_a_typed_list_have_its_kind() {
        let text = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBindingList\nitems:\n\
                    - metadata: {name: bare}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c}\n";
        let set = ObjectSet::parse(text, &Limits::default()).unwrap();
        let kinds: Vec<_> = set.objects().iter().map(|object| (object.group(), object.kind())).collect();
        assert_eq!(kinds, [("rbac.authorization.k8s.io", "RoleBinding"), ("", "ConfigMap")]);
        let untyped = "apiVersion: v1\nkind: List\nitems:\n- metadata: {name: bare}\n";
        assert!(ObjectSet::parse(untyped, &Limits::default()).is_err());
        let half = "apiVersion: v1\nkind: ConfigMapList\nitems:\n- {kind: Secret, metadata: {name: half}}\n";
        assert!(ObjectSet::parse(half, &Limits::default()).is_err(), "only items that name neither");
    }

    #[test]
    fn helms_annotations_of_a_list_hold_for_its_items() {
        let text = "apiVersion: v1\nkind: List\nmetadata:\n  annotations:\n    helm.sh/hook: pre-install\n    \
                    helm.sh/resource-policy: keep\n    example.org/other: x\nitems:\n\
                    - {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n\
                    - {apiVersion: v1, kind: ConfigMap, metadata: {name: b, annotations: {helm.sh/hook: test}}}\n\
                    - apiVersion: v1\n  kind: SecretList\n  metadata: {annotations: {helm.sh/hook-weight: '5'}}\n  \
                    items: [{metadata: {name: c}}]\n";
        let set = ObjectSet::parse(text, &Limits::default()).unwrap();
        let of = |name: &str, key: &str| {
            let object = set.objects().iter().find(|object| object.name() == name).unwrap();
            object.annotation(key).map(str::to_owned)
        };
        assert_eq!(of("a", "helm.sh/hook").as_deref(), Some("pre-install"));
        assert_eq!(of("a", "helm.sh/resource-policy").as_deref(), Some("keep"));
        assert_eq!(of("a", "example.org/other"), None);
        assert_eq!(of("b", "helm.sh/hook").as_deref(), Some("test"), "the item's own counts");
        assert_eq!(of("c", "helm.sh/hook").as_deref(), Some("pre-install"));
        assert_eq!(of("c", "helm.sh/hook-weight").as_deref(), Some("5"));
    }

    #[test]
    fn a_kind_that_only_sounds_like_a_list_stays() {
        assert_eq!(
            names("apiVersion: x.io/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {items: []}\n"),
            ["a"]
        );
    }

    #[test]
    fn the_last_duplicate_counts_and_is_reported() {
        let text = format!("{}data: {{v: '1'}}\n---\n{}---\n{}data: {{v: '2'}}\n", cm("a"), cm("b"), cm("a"));
        let set = ObjectSet::parse(&text, &Limits::default()).unwrap();
        assert_eq!(set.len(), 2);
        assert_eq!(set.objects()[0].body()["data"]["v"], "2");
        assert_eq!(set.warnings().len(), 1);
    }

    #[test]
    fn errors_name_document_and_line() {
        let text = format!("{}---\n{}---\nkind: [x\n", cm("a"), cm("b"));
        let error = ObjectSet::parse(&text, &Limits::default()).unwrap_err();
        assert!(matches!(error, ParseError::Syntax { document: 3, line: 10..=13, .. }), "{error:?}");
        let error = ObjectSet::parse("- a\n", &Limits::default()).unwrap_err();
        assert!(matches!(error, ParseError::Object { document: 1, problem: ObjectError::NotAMap, .. }));
        assert_eq!(error.to_string(), "document 1: the object is not a map");
    }

    #[test]
    fn errors_name_file_item_kind_and_name_of_the_object() {
        let of = |text: &str| ObjectSet::parse(text, &Limits::default()).unwrap_err().to_string();
        let nameless = "apiVersion: v1\nkind: ConfigMap\ndata: {key: value}\n";
        assert_eq!(of(nameless), "document 1: the ConfigMap has no metadata.name");
        let generated = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: once-}\n";
        assert_eq!(
            of(&format!("{}---\n{generated}", cm("a"))),
            "document 2: the Job has only a generateName, which cannot be applied; give it a metadata.name"
        );
        let rendered = format!("---\n# Source: shop/templates/a.yaml\n{}---\n", cm("a"));
        assert_eq!(
            of(&format!("{rendered}# Source: shop/charts/db/templates/b.yaml\n{nameless}")),
            "document 2 (shop/charts/db/templates/b.yaml): the ConfigMap has no metadata.name"
        );
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n\
                    - {apiVersion: v1, kind: Secret, data: {password: aHVudGVyMg==}}\n";
        assert_eq!(of(list), "document 1, item 2: the Secret has no metadata.name");
        let nested = r#"{"apiVersion":"v1","kind":"List","items":[
            {"apiVersion":"v1","kind":"ConfigMapList","items":[{"data":{}}]}]}"#;
        assert_eq!(of(nested), "document 1, item 1, item 1: the ConfigMap has no metadata.name");
        assert_eq!(of("metadata: {name: a}\nkind: Pod\n"), "document 1: the Pod a has no valid apiVersion");
        assert_eq!(of("metadata: {name: a}\napiVersion: v1\n"), "document 1: the object a has no kind");
    }

    #[test]
    fn errors_name_nothing_that_is_no_name() {
        let of = |text: &str| ObjectSet::parse(text, &Limits::default()).unwrap_err().to_string();
        for secret in ["my pass word", "p\u{e4}ss", "a=b;c", &*"x".repeat(MAX_NAME_BYTES + 1)] {
            for text in [
                format!("# Source: {secret}\napiVersion: v1\nkind: Pod\n"),
                format!("apiVersion: v1\nkind: '{secret}'\n"),
                format!("apiVersion: ''\nmetadata: {{name: '{secret}'}}\n"),
            ] {
                let message = of(&text);
                assert!(!message.contains(secret), "{message}");
            }
        }
    }

    #[test]
    fn one_map_is_all_that_values_may_be() {
        let map = |text: &str| parse_map(text, &Limits::default());
        assert_eq!(map("a: 1\n").unwrap()["a"], 1);
        assert!(map("").unwrap().is_empty());
        assert!(map("# nothing\n").unwrap().is_empty());
        for text in ["---\na: 1\n---\n", "a: 1\n---\n# end\n", "\u{feff}a: 1\r\n...\r\n"] {
            assert_eq!(map(text).unwrap()["a"], 1, "{text}");
        }
        for text in ["- a\n", "a", "a: 1\n---\nb: 2\n"] {
            assert!(matches!(map(text), Err(ParseError::NotMap)), "{text}");
        }
        assert!(matches!(map("a: [b\n"), Err(ParseError::Syntax { .. })));
    }

    #[test]
    fn limits_hold() {
        let limits = Limits { objects: 1, ..Limits::default() };
        let text = format!("{}---\n{}", cm("a"), cm("b"));
        assert!(matches!(
            ObjectSet::parse(&text, &limits),
            Err(ParseError::TooLarge { what: "objects", .. })
        ));
        let limits = Limits { text_bytes: 3, ..Limits::default() };
        assert!(matches!(ObjectSet::parse(&text, &limits), Err(ParseError::TooLarge { .. })));
    }

    #[test]
    fn json_counts_as_yaml_does() {
        let limits = Limits { nodes: 10, ..Limits::default() };
        let text = r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":[1,2,3,4,5,6,7,8]}"#;
        let error = ObjectSet::parse(text, &limits).unwrap_err();
        assert!(matches!(error, ParseError::TooLarge { what: "YAML nodes", .. }), "{error}");
    }

    #[test]
    fn nesting_is_bounded() {
        for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", "")] {
            let text = format!("a:\n  {}x{}\n", open.repeat(200_000), close.repeat(200_000));
            let text = if close.is_empty() { text.replace("a:\n  ", "") } else { text };
            assert!(ObjectSet::parse(&text, &Limits::default()).is_err(), "{open}");
        }
    }
}
