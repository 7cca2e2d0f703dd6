//! YAML text to JSON values, with the meaning that Helm and kubectl give to it.
//!
//! Both parse by `sigs.k8s.io/yaml`, that is go-yaml v2 (YAML 1.1 scalars) and then JSON. The parser under
//! this module is a YAML 1.2 one that yields events; everything that differs (booleans, octal integers,
//! merge keys, keys that are not strings) is decided here.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

mod scalar;

/// How much one YAML text may hold, counted with every alias written out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Scalars, sequences and mappings.
    pub(crate) nodes: usize,
    /// Bytes in scalars.
    pub(crate) bytes: usize,
}

/// Why a text is not YAML that can be used; never holds text of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum YamlError {
    /// The text breaks YAML's grammar: what was wrong, and the line (from 1) in this text.
    Syntax { problem: String, line: usize },
    /// The text is larger than its budget once aliases are written out.
    Budget,
    /// A value or key that JSON cannot express.
    Value { problem: &'static str, line: usize },
}

/// Parses all documents of a text and takes what they use from the budget.
pub(crate) fn parse(text: &str, budget: &mut Budget) -> Result<Vec<Value>, YamlError> {
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

/// The variant's name as words, without its payload, which could quote the input.
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

/// A finished node, with what it costs to repeat it.
#[derive(Clone)]
struct Node {
    value: Value,
    nodes: usize,
    bytes: usize,
    /// A plain `<<`, which is an instruction when it stands as a key.
    merge: bool,
}

enum Open {
    Sequence { items: Vec<Value>, anchor: usize, nodes: usize, bytes: usize },
    Mapping { map: Map<String, Value>, key: Option<Key>, anchor: usize, nodes: usize, bytes: usize },
}

enum Key {
    Name(String),
    Merge,
}

struct Builder<'a> {
    budget: &'a mut Budget,
    anchors: HashMap<usize, Node>,
    open: Vec<Open>,
    documents: Vec<Value>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::DocumentStart(..) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                self.charge(1, text.len())?;
                let plain = style == ScalarStyle::Plain;
                let value = scalar::resolve(&text, plain, tag.as_deref())
                    .map_err(|problem| YamlError::Value { problem, line })?;
                let merge = plain && tag.is_none() && text == "<<";
                self.place(Node { value, nodes: 1, bytes: text.len(), merge }, anchor, line)?;
            }
            Event::SequenceStart(_, anchor, _) => {
                self.charge(1, 0)?;
                self.open.push(Open::Sequence { items: Vec::new(), anchor, nodes: 1, bytes: 0 });
            }
            Event::MappingStart(_, anchor, _) => {
                self.charge(1, 0)?;
                self.open.push(Open::Mapping { map: Map::new(), key: None, anchor, nodes: 1, bytes: 0 });
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(line)?,
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    return Err(YamlError::Value { problem: "an anchor contains itself", line });
                };
                self.charge(node.nodes, node.bytes)?;
                self.place(node, 0, line)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn charge(&mut self, nodes: usize, bytes: usize) -> Result<(), YamlError> {
        self.budget.nodes = self.budget.nodes.checked_sub(nodes).ok_or(YamlError::Budget)?;
        self.budget.bytes = self.budget.bytes.checked_sub(bytes).ok_or(YamlError::Budget)?;
        Ok(())
    }

    fn close(&mut self, line: usize) -> Result<(), YamlError> {
        let (value, anchor, nodes, bytes) = match self.open.pop() {
            Some(Open::Sequence { items, anchor, nodes, bytes }) => {
                (Value::Array(items), anchor, nodes, bytes)
            }
            Some(Open::Mapping { map, anchor, nodes, bytes, .. }) => {
                (Value::Object(map), anchor, nodes, bytes)
            }
            None => return Ok(()),
        };
        self.place(Node { value, nodes, bytes, merge: false }, anchor, line)
    }

    fn place(&mut self, node: Node, anchor: usize, line: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.documents.push(node.value),
            Some(Open::Sequence { items, nodes, bytes, .. }) => {
                *nodes += node.nodes;
                *bytes += node.bytes;
                items.push(node.value);
            }
            Some(Open::Mapping { map, key, nodes, bytes, .. }) => {
                *nodes += node.nodes;
                *bytes += node.bytes;
                match key.take() {
                    None if node.merge => *key = Some(Key::Merge),
                    None => {
                        let name = scalar::key(&node.value);
                        *key = Some(Key::Name(name.map_err(|problem| YamlError::Value { problem, line })?));
                    }
                    Some(Key::Name(name)) => {
                        map.insert(name, node.value);
                    }
                    Some(Key::Merge) => {
                        merge(map, node.value).map_err(|problem| YamlError::Value { problem, line })?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// What `<<` does in go-yaml v2: keys of the merged maps replace what was read before them, earlier maps of
/// a list win over later ones.
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

/// Whether a tag is the YAML core one of that name (`!!name`).
fn is_core(tag: &Tag, name: &str) -> bool {
    tag.to_string() == format!("tag:yaml.org,2002:{name}") || tag.is_yaml_core_schema_tag(name)
}

#[cfg(test)]
mod tests;
