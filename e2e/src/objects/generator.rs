//! Generates random values from a schema; equal seeds give equal values.

use std::collections::{HashMap, HashSet};

use fastrand::Rng;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::schema::Kind;
use super::words::{LABELS, TEXTS, TIMES, VALID_TIMES};

/// Maximum depth of a free-form value.
const MAX_DEPTH: usize = 6;
/// Maximum number of entries in a map generated for its size.
const MAX_MAP_ENTRIES: usize = 40;

/// A generated object.
#[derive(Clone, Debug)]
pub struct GeneratedObject {
    /// Its name; invalid if the name is beyond a limit.
    pub name: String,
    /// The whole object.
    pub object: Value,
}

/// Which fields of an object are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fields {
    /// Required and some optional fields.
    Some,
    /// Required fields only.
    Required,
    /// All fields that do not exclude each other.
    All,
    /// Any fields, independent of the schema.
    Careless,
}

/// Generates objects.
pub struct ObjectGenerator {
    pub(super) rng: Rng,
    patterns: HashMap<String, Option<Regex>>,
}

/// Returns a name of letters only, as modules have.
fn module_name(number: usize) -> String {
    let letters = [number / 676, number / 26, number].map(|digit| b"abcdefghijklmnopqrstuvwxyz"[digit % 26]);
    format!("drawn-{}", letters.map(char::from).iter().collect::<String>())
}

impl ObjectGenerator {
    /// Creates a generator; equal seeds give equal objects.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), patterns: HashMap::new() }
    }

    /// Generates the next object of a kind. Most satisfy the schema except for one or two fields at or beyond a
    /// limit; a few ignore it.
    pub fn object(&mut self, kind: &Kind, number: usize) -> GeneratedObject {
        let is_module = kind.resource.kind == "ModuleReleaseMeta" && !number.is_multiple_of(16);
        let name = if is_module { module_name(number) } else { self.name(number) };
        let mut spec = self.value(&kind.spec, 0);
        let strained = *self.one_of(&[0, 1, 1, 1, 2, 2, 2, 12]);
        (0..strained).for_each(|_| self.strain(&kind.spec, &mut spec));
        // An admission policy refuses other names.
        if is_module && let Some(spec) = spec.as_object_mut() {
            spec.insert("moduleName".to_owned(), json!(name));
        }
        let object = json!({
            "apiVersion": kind.resource.api_version, "kind": kind.resource.kind,
            "metadata": {"name": name, "labels": self.labels()}, "spec": spec,
        });
        GeneratedObject { name, object }
    }

    fn name(&mut self, number: usize) -> String {
        let name = format!("drawn-{number}");
        match self.rng.u8(..40) {
            0 => format!("{name}{}", "x".repeat(253 - name.len())),
            1 => format!("{name}{}", "x".repeat(254 - name.len())),
            2 => format!("{name}.{}", "y".repeat(63)),
            3 => format!("{name}-Ü"),
            _ => name,
        }
    }

    fn labels(&mut self) -> Value {
        let mut result = Map::new();
        for _ in 0..self.rng.usize(..3) {
            let value = self.one_of(&["true", "false", "", "regular", "sentinel", "anchor"]).to_owned();
            result.insert((*self.one_of(&LABELS)).to_owned(), json!(value));
        }
        Value::Object(result)
    }

    /// Generates a value that satisfies the schema.
    pub(super) fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if let Some(values) = schema["enum"].as_array() {
            return self.one_of(values).clone();
        }
        match schema["type"].as_str() {
            Some("object") => self.map(schema, depth, Fields::Some),
            Some("array") => {
                let length = schema["minItems"].as_u64().unwrap_or(0) + self.rng.u64(..3);
                self.list(schema, length, depth)
            }
            Some("string") => json!(self.text(schema)),
            Some("boolean") => json!(self.rng.bool()),
            Some("integer" | "number") => self.number(schema),
            _ => self.free_form(depth),
        }
    }

    pub(super) fn map(&mut self, schema: &Value, depth: usize, fields: Fields) -> Value {
        let mut result = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let is_required =
                schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
            let is_wanted = match fields {
                Fields::Some => is_required || self.rng.usize(..depth + 2) == 0,
                Fields::Required => is_required,
                Fields::All => true,
                Fields::Careless => self.rng.bool(),
            };
            if is_wanted {
                result.insert(name.clone(), self.value(property, depth + 1));
            }
        }
        let entries = match fields {
            Fields::Required => 0,
            Fields::All => MAX_MAP_ENTRIES,
            Fields::Some | Fields::Careless => self.rng.usize(..4),
        };
        let of_one_kind = schema.get("additionalProperties").filter(|one| one.is_object());
        let are_free = schema["x-kubernetes-preserve-unknown-fields"] == true;
        for _ in 0..if are_free || of_one_kind.is_some() { entries } else { 0 } {
            let name = (*self.one_of(&TEXTS)).to_owned();
            let value = match of_one_kind {
                Some(schema) => self.value(schema, depth + 1),
                None => self.free_form(depth + 1),
            };
            result.insert(name, value);
        }
        if fields != Fields::Careless {
            self.agree(schema, &mut result, depth);
        }
        Value::Object(result)
    }

    /// Generates at most this many items, without those that exclude each other.
    pub(super) fn list(&mut self, schema: &Value, length: u64, depth: usize) -> Value {
        let mut items: Vec<Value> = (0..length).map(|_| self.value(&schema["items"], depth + 1)).collect();
        let keys = schema["x-kubernetes-list-map-keys"].as_array();
        if keys.is_some() || schema["x-kubernetes-list-type"] == "set" {
            let mut seen = HashSet::new();
            items.retain(|item| {
                let key = |name: &Value| item[name.as_str().unwrap_or_default()].to_string();
                seen.insert(
                    keys.map_or_else(|| vec![item.to_string()], |keys| keys.iter().map(key).collect()),
                )
            });
        }
        Value::Array(items)
    }

    pub(super) fn text(&mut self, schema: &Value) -> String {
        let usable: Vec<&str> =
            TEXTS.into_iter().chain(TIMES).filter(|text| self.fits(schema, text)).collect();
        if usable.is_empty() { String::new() } else { (*self.one_of(&usable)).to_owned() }
    }

    /// Reports whether a text satisfies its schema.
    pub(super) fn fits(&mut self, schema: &Value, text: &str) -> bool {
        let count = text.chars().count() as u64;
        let pattern = schema["pattern"].as_str().unwrap_or_default();
        let compiled = self.patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
        let is_formed =
            schema["anyOf"].as_array().is_none_or(|all| all.iter().any(|one| is_of_format(one, text)));
        is_formed
            && is_of_format(schema, text)
            && schema["minLength"].as_u64().is_none_or(|least| count >= least)
            && schema["maxLength"].as_u64().is_none_or(|most| count <= most)
            && compiled.as_ref().is_none_or(|pattern| pattern.is_match(text))
    }

    fn number(&mut self, schema: &Value) -> Value {
        let (least, most) = bounds(schema);
        let (least, most) = (least.unwrap_or(0), most.unwrap_or(i64::from(i32::MAX)));
        json!(self.rng.i64(least..=most))
    }

    /// Generates any JSON.
    pub(super) fn free_form(&mut self, depth: usize) -> Value {
        let leaf = depth >= MAX_DEPTH;
        match self.rng.u8(..if leaf { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.rng.bool()),
            2 => json!(self.rng.i64(..)),
            3 => json!(0.1),
            4 => json!(self.one_of(&TEXTS)),
            5 => (0..self.rng.usize(..3)).map(|_| self.free_form(depth + 1)).collect(),
            _ => {
                let names: Vec<String> =
                    (0..self.rng.usize(..3)).map(|_| (*self.one_of(&TEXTS)).to_owned()).collect();
                names.into_iter().map(|name| (name, self.free_form(depth + 1))).collect()
            }
        }
    }

    pub(super) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.rng.usize(..all.len())]
    }
}

fn is_of_format(schema: &Value, text: &str) -> bool {
    match schema["format"].as_str() {
        Some("date-time") => TIMES[..VALID_TIMES].contains(&text),
        // A date is only valid as an alternative to a date with time, which is generated.
        Some("date") => false,
        Some("uri") => text.contains("://"),
        _ => true,
    }
}

/// Returns the minimum and maximum of a number's schema.
pub(super) fn bounds(schema: &Value) -> (Option<i64>, Option<i64>) {
    #[expect(clippy::cast_possible_truncation, reason = "generated schemas write whole numbers as 1.0")]
    let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
    (bound("minimum"), bound("maximum"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::objects::kinds;

    #[test]
    fn a_seed_makes_the_same_objects_again_and_another_one_others() {
        let kinds = kinds().unwrap();
        let made = |seed| {
            let mut generator = ObjectGenerator::new(seed);
            (0..50).map(|number| generator.object(&kinds[0], number).object.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
        assert!(made(7).into_iter().collect::<BTreeSet<_>>().len() > 40, "they differ among themselves");
    }

    /// Otherwise all objects with such a field would be refused.
    #[test]
    fn a_word_fits_each_text_of_the_crds() {
        let mut generator = ObjectGenerator::new(1);
        let mut open: Vec<Value> = kinds().unwrap().into_iter().map(|kind| kind.spec).collect();
        while let Some(schema) = open.pop() {
            if schema["type"] == "string" && schema["enum"].is_null() {
                let text = generator.text(&schema);
                assert!(generator.fits(&schema, &text), "no word fits {schema}");
            }
            let properties = schema["properties"].as_object();
            open.extend(properties.into_iter().flat_map(|all| all.values()).cloned());
            let others = ["items", "additionalProperties"].map(|below| schema[below].clone());
            open.extend(others.into_iter().filter(Value::is_object));
        }
    }

    #[test]
    fn items_that_may_not_stand_beside_others_are_left_out() {
        let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"enum": ["a", "b"]}, "n": {"type": "integer"}}}});
        assert_eq!(ObjectGenerator::new(1).list(&schema, 50, 0).as_array().map(Vec::len), Some(2));
    }
}
