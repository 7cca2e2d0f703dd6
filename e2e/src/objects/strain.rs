//! Changes one field of a generated value to a limit of its schema or beyond.

use serde_json::{Value, json};

use super::generator::{Fields, ObjectGenerator, bounds};
use super::words::TEXTS;

/// Number of fields of eight that are set beyond their limits.
const INVALID_FIELDS_OF_EIGHT: u8 = 2;
/// Maximum length of a text generated for its length.
const MAX_TEXT_LENGTH: u64 = 70_000;
/// Maximum length of a list generated for its length.
const MAX_LIST_LENGTH: u64 = 300;

/// A nested value with its schema.
struct NestedValue<'a> {
    pointer: String,
    schema: &'a Value,
    depth: usize,
}

impl ObjectGenerator {
    /// Changes one field of a valid value to a limit of `schema` or beyond.
    pub(super) fn strain(&mut self, schema: &Value, value: &mut Value) {
        let root = NestedValue { pointer: String::new(), schema, depth: 0 };
        let places = root.and_within(value);
        let NestedValue { pointer, schema, depth } = self.one_of(&places);
        let Some(held) = value.pointer_mut(pointer) else { return };
        *held = if self.rng.u8(..8) < INVALID_FIELDS_OF_EIGHT {
            self.beyond(schema, *depth)
        } else {
            self.at_a_limit(schema, *depth)
        };
    }

    /// Returns a value at a limit of the schema.
    fn at_a_limit(&mut self, schema: &Value, depth: usize) -> Value {
        let is_most = self.rng.bool();
        match schema["type"].as_str() {
            Some("object") => self.map(schema, depth, if is_most { Fields::All } else { Fields::Required }),
            Some("array") => {
                let bound = schema[if is_most { "maxItems" } else { "minItems" }].as_u64().unwrap_or(0);
                self.list(schema, bound.min(MAX_LIST_LENGTH), depth)
            }
            Some("string") if schema["enum"].is_null() => {
                let bound = schema[if is_most { "maxLength" } else { "minLength" }].as_u64().unwrap_or(0);
                let text = self.padded(schema, bound.min(MAX_TEXT_LENGTH));
                json!(if self.fits(schema, &text) { text } else { self.text(schema) })
            }
            Some("integer" | "number") => {
                let (least, most) = bounds(schema);
                json!(if is_most { most.unwrap_or(i64::from(i32::MAX)) } else { least.unwrap_or(0) })
            }
            _ => self.value(schema, depth),
        }
    }

    /// Returns an invalid value, if the schema refuses any.
    fn beyond(&mut self, schema: &Value, depth: usize) -> Value {
        if self.rng.u8(..3) == 0 {
            return self.free_form(depth);
        }
        match schema["type"].as_str() {
            Some("object") => self.map(schema, depth, Fields::Careless),
            Some("array") => self.list_beyond(schema, depth),
            Some("string") => self.text_beyond(schema),
            Some("integer" | "number") => {
                let (least, most) = bounds(schema);
                let under = least.map_or(json!(-1), |least| json!(least.saturating_sub(1)));
                let over = most.map_or(json!(i64::MAX), |most| json!(most.saturating_add(1)));
                self.one_of(&[under, over, json!(1.5)]).clone()
            }
            _ => self.free_form(depth),
        }
    }

    fn list_beyond(&mut self, schema: &Value, depth: usize) -> Value {
        let most = schema["maxItems"].as_u64().filter(|most| *most < MAX_LIST_LENGTH);
        let twice = |list: Value| list.as_array().map(|items| [items.clone(), items.clone()].concat());
        match most.filter(|_| self.rng.bool()) {
            Some(most) => self.list(schema, most + 1, depth),
            None => json!(twice(self.list(schema, 2, depth))),
        }
    }

    fn text_beyond(&mut self, schema: &Value) -> Value {
        let most = schema["maxLength"].as_u64().filter(|most| *most < MAX_TEXT_LENGTH);
        let unfit: Vec<&str> = TEXTS.into_iter().filter(|text| !self.fits(schema, text)).collect();
        match most.filter(|_| self.rng.bool()) {
            Some(most) => json!(self.padded(schema, most + 1)),
            None if unfit.is_empty() => self.free_form(0),
            None => json!(*self.one_of(&unfit)),
        }
    }

    /// Returns a valid text of this length.
    fn padded(&mut self, schema: &Value, length: u64) -> String {
        let letter = *self.one_of(&['a', '7', 'é']);
        let word = self.text(schema);
        let length = usize::try_from(length).unwrap_or_default();
        word.chars().chain(std::iter::repeat(letter)).take(length).collect()
    }
}

impl<'a> NestedValue<'a> {
    /// Returns this value and all nested values that have a schema.
    fn and_within(self, value: &Value) -> Vec<Self> {
        let below = |key: &str, schema| NestedValue {
            pointer: format!("{}/{}", self.pointer, key.replace('~', "~0").replace('/', "~1")),
            schema,
            depth: self.depth + 1,
        };
        let mut found = match value {
            Value::Object(fields) => fields
                .iter()
                .filter_map(|(name, value)| Some(below(name, self.schema_of(name)?).and_within(value)))
                .flatten()
                .collect(),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .flat_map(|(index, item)| {
                        below(&index.to_string(), &self.schema["items"]).and_within(item)
                    })
                    .collect()
            }
            _ => Vec::new(),
        };
        found.push(self);
        found
    }

    fn schema_of(&self, field: &str) -> Option<&'a Value> {
        let others = self.schema.get("additionalProperties").filter(|one| one.is_object());
        self.schema.get("properties").and_then(|all| all.get(field)).or(others)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn strained(schema: &Value) -> Vec<Value> {
        let mut generator = ObjectGenerator::new(1);
        let one = |_| {
            let mut value = generator.value(schema, 0);
            generator.strain(schema, &mut value);
            value
        };
        (0..1000).map(one).collect()
    }

    #[test]
    fn values_lie_within_on_and_beyond_their_limits() {
        let schema = json!({"type": "array", "minItems": 1, "maxItems": 9, "items": {"type": "string", "maxLength": 5}});
        let lists = strained(&schema);
        let lengths: BTreeSet<usize> = lists.iter().filter_map(Value::as_array).map(Vec::len).collect();
        assert!(lengths.is_superset(&BTreeSet::from([1, 2, 3, 9, 10])), "{lengths:?}");
        let texts = lists.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        let lengths: BTreeSet<usize> = texts.map(|text| text.chars().count()).collect();
        assert!(lengths.contains(&0) && lengths.contains(&5) && lengths.contains(&6), "{lengths:?}");
    }

    #[test]
    fn numbers_and_fields_go_to_their_limits_and_beyond_too() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer", "minimum": 1.0, "maximum": 600.0}, "a": {"type": "boolean"}, "a~/b": {"type": "integer"}}});
        let objects = strained(&schema);
        let numbers: BTreeSet<i64> = objects.iter().filter_map(|object| object["n"].as_i64()).collect();
        assert!(numbers.is_superset(&BTreeSet::from([0, 1, 600, 601])), "{numbers:?}");
        assert!(
            objects.iter().any(|object| object.is_object() && object.get("n").is_none()),
            "a required field"
        );
        assert!(
            objects.iter().any(|object| object["a~/b"] == json!(i64::MAX)),
            "a name that a pointer escapes"
        );
    }

    #[test]
    fn most_places_keep_to_their_limits() {
        let objects = strained(&json!({"type": "integer", "minimum": 1.0, "maximum": 600.0}));
        let kept = objects.iter().filter(|value| value.as_i64().is_some_and(|n| (1..=600).contains(&n)));
        let kept = kept.count();
        assert!((650..850).contains(&kept), "{kept} of 1000");
    }
}
