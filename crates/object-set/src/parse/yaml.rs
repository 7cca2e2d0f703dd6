//! Parses YAML text to JSON values, as Helm and kubectl do.
//!
//! Both use `sigs.k8s.io/yaml`: go-yaml v2 (YAML 1.1 scalars) and then JSON. The parser below this module is a YAML
//! 1.2 parser that yields events; this module handles the differences: booleans, octal integers, merge keys, and keys
//! that are not strings.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

mod lenient;
mod scalar;

/// Limits of one YAML text, with every alias expanded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Scalars, sequences and mappings.
    pub(crate) nodes: usize,
    /// Bytes in scalars.
    pub(crate) bytes: usize,
}

impl Budget {
    /// Charges the cost of a value that was not parsed from YAML.
    pub(crate) fn take(&mut self, value: &Value) -> Result<(), YamlError> {
        let bytes = value.as_str().map_or(0, str::len);
        self.charge(1, bytes)?;
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.take(item)),
            Value::Object(map) => self.take_map(map),
            _ => Ok(()),
        }
    }

    /// Charges the cost of the entries of a map.
    pub(crate) fn take_map(&mut self, map: &Map<String, Value>) -> Result<(), YamlError> {
        map.iter().try_for_each(|(key, value)| {
            self.charge(1, key.len())?;
            self.take(value)
        })
    }

    fn charge(&mut self, nodes: usize, bytes: usize) -> Result<(), YamlError> {
        self.nodes = self.nodes.checked_sub(nodes).ok_or(YamlError::Budget)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(YamlError::Budget)?;
        Ok(())
    }
}

/// Maximum nesting of lists and maps: JSON parsers, including this program's, read no deeper ones.
pub(crate) const MAX_YAML_DEPTH: usize = 127;

/// Why a text cannot be used as YAML. Contains no text of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum YamlError {
    /// The text is not valid YAML: the problem, and the line (from 1) in this text.
    Syntax { problem: String, line: usize },
    /// The text exceeds its budget once aliases are expanded.
    Budget,
    /// A value or key that JSON cannot express.
    Value { problem: &'static str, line: usize },
}

/// Parses all documents of a text and charges their cost to the budget.
///
/// Text with syntax errors that go-yaml tolerates is corrected and parsed again.
pub(crate) fn parse(text: &str, budget: &mut Budget) -> Result<Vec<Value>, YamlError> {
    let before = *budget;
    let error = match parse_strictly(text, budget) {
        Err(error @ YamlError::Syntax { .. }) => error,
        done => return done,
    };
    let Some(corrected) = lenient::corrected(text) else { return Err(error) };
    *budget = before;
    parse_strictly(&corrected, budget)
        .map_err(|second| if second == YamlError::Budget { second } else { error })
}

fn parse_strictly(text: &str, budget: &mut Budget) -> Result<Vec<Value>, YamlError> {
    let options = granit_parser::options! { emit_comments: false };
    let mut builder = Builder { budget, anchors: HashMap::new(), open: Vec::new(), documents: Vec::new() };
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| YamlError::Syntax {
            problem: words(&format!("{:?}", error.kind())),
            line: error.marker().line(),
        })?;
        builder.take(event, span.start.line())?;
    }
    Ok(builder.documents)
}

/// Returns the variant's name as words, without its payload, which could quote the input.
fn words(debug: &str) -> String {
    let mut out = String::new();
    for c in debug.chars().take_while(char::is_ascii_alphanumeric) {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// A complete node, with the cost of repeating it.
#[derive(Clone)]
struct Node {
    value: Value,
    nodes: usize,
    bytes: usize,
    /// Nesting of lists and maps; 0 for a scalar.
    depth: usize,
    /// Whether it is a plain `<<`, which merges maps if it is a key.
    merge: bool,
}

/// A list or map that is being parsed.
struct OpenCollection {
    content: Content,
    anchor: usize,
    nodes: usize,
    bytes: usize,
    /// Depth of its deepest node.
    depth: usize,
}

enum Content {
    Sequence(Vec<Value>),
    Mapping { map: Map<String, Value>, key: Option<Key> },
}

enum Key {
    Name(String),
    Merge,
}

struct Builder<'a> {
    budget: &'a mut Budget,
    anchors: HashMap<usize, Node>,
    open: Vec<OpenCollection>,
    documents: Vec<Value>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::DocumentStart(..) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                self.budget.charge(1, text.len())?;
                let plain = style == ScalarStyle::Plain;
                let value = scalar::resolve(&text, plain, tag.as_deref())
                    .map_err(|problem| YamlError::Value { problem, line })?;
                let merge = plain && tag.is_none() && text == "<<";
                self.place(Node { value, nodes: 1, bytes: text.len(), depth: 0, merge }, anchor, line)?;
            }
            Event::SequenceStart(_, anchor, _) => self.open(Content::Sequence(Vec::new()), anchor)?,
            Event::MappingStart(_, anchor, _) => {
                self.open(Content::Mapping { map: Map::new(), key: None }, anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(line)?,
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    return Err(YamlError::Value { problem: "an anchor contains itself", line });
                };
                self.budget.charge(node.nodes, node.bytes)?;
                self.place(node, 0, line)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, content: Content, anchor: usize) -> Result<(), YamlError> {
        self.budget.charge(1, 0)?;
        self.open.push(OpenCollection { content, anchor, nodes: 1, bytes: 0, depth: 0 });
        Ok(())
    }

    fn close(&mut self, line: usize) -> Result<(), YamlError> {
        let Some(OpenCollection { content, anchor, nodes, bytes, depth }) = self.open.pop() else {
            return Ok(());
        };
        let value = match content {
            Content::Sequence(items) => Value::Array(items),
            Content::Mapping { map, .. } => Value::Object(map),
        };
        self.place(Node { value, nodes, bytes, depth: depth + 1, merge: false }, anchor, line)
    }

    fn place(&mut self, node: Node, anchor: usize, line: usize) -> Result<(), YamlError> {
        if self.open.len() + node.depth > MAX_YAML_DEPTH {
            return Err(YamlError::Value { problem: "nested too deeply", line });
        }
        if anchor != 0 {
            // The copy takes memory even if no alias uses it.
            self.budget.charge(node.nodes, node.bytes)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node.value);
            return Ok(());
        };
        open.nodes += node.nodes;
        open.bytes += node.bytes;
        open.depth = open.depth.max(node.depth);
        let wrong = |problem| YamlError::Value { problem, line };
        match &mut open.content {
            Content::Sequence(items) => items.push(node.value),
            Content::Mapping { map, key } => match key.take() {
                None if node.merge => *key = Some(Key::Merge),
                None => *key = Some(Key::Name(scalar::key(&node.value).map_err(wrong)?)),
                Some(Key::Name(name)) => {
                    map.insert(name, node.value);
                }
                Some(Key::Merge) => merge(map, node.value).map_err(wrong)?,
            },
        }
        Ok(())
    }
}

/// Merges maps like `<<` in go-yaml v2: their keys replace previous ones, and earlier maps of a list win over later
/// ones.
fn merge(map: &mut Map<String, Value>, value: Value) -> Result<(), &'static str> {
    match value {
        Value::Object(other) => map.extend(other),
        Value::Array(items) => {
            for item in items.into_iter().rev() {
                let Value::Object(other) = item else { return Err("map merge requires maps") };
                map.extend(other);
            }
        }
        _ => return Err("map merge requires maps"),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
