//! Reads the status of an object without trusting its structure.

use serde_json::Value;

/// Read access to an object.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    object: &'a Value,
}

/// A condition of an object's status.
#[derive(Clone, Copy)]
pub(super) struct Condition<'a> {
    value: &'a Value,
}

impl<'a> View<'a> {
    pub(super) fn of(object: &'a Value) -> Self {
        Self { object }
    }

    pub(super) fn group_kind(self) -> (&'a str, &'a str) {
        let api_version = self.object["apiVersion"].as_str().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        (group, self.object["kind"].as_str().unwrap_or_default())
    }

    pub(super) fn at(self, pointer: &str) -> Option<&'a Value> {
        self.object.pointer(pointer).filter(|value| !value.is_null())
    }

    pub(super) fn int(self, pointer: &str) -> Option<i64> {
        self.at(pointer)?.as_i64()
    }

    pub(super) fn text(self, pointer: &str) -> Option<&'a str> {
        self.at(pointer)?.as_str().filter(|text| !text.is_empty())
    }

    pub(super) fn flag(self, pointer: &str) -> bool {
        self.at(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn items(self, pointer: &str) -> &'a [Value] {
        self.at(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Returns a counter of the status, 0 if absent.
    pub(super) fn count(self, field: &str) -> i64 {
        self.status_int(field).unwrap_or(0)
    }

    pub(super) fn status_int(self, field: &str) -> Option<i64> {
        self.object.get("status")?.get(field)?.as_i64()
    }

    pub(super) fn generation(self) -> Option<i64> {
        self.int("/metadata/generation")
    }

    pub(super) fn deleting(self) -> bool {
        self.at("/metadata/deletionTimestamp").is_some()
    }

    pub(super) fn condition(self, kind: &str) -> Option<Condition<'a>> {
        Condition::of(self.at("/status/conditions")?, kind)
    }
}

impl<'a> Condition<'a> {
    /// Returns the condition of a type from a list.
    pub(super) fn of(conditions: &'a Value, kind: &str) -> Option<Self> {
        let found = conditions.as_array()?.iter().find(|condition| condition["type"] == kind);
        found.map(|value| Self { value })
    }

    /// Returns the generation that the condition describes, if it names one.
    pub(super) fn observed_generation(self) -> Option<i64> {
        self.value["observedGeneration"].as_i64()
    }

    pub(super) fn is_true(self) -> bool {
        self.value["status"] == "True"
    }

    pub(super) fn is_false(self) -> bool {
        self.value["status"] == "False"
    }

    pub(super) fn reason(self) -> &'a str {
        self.value["reason"].as_str().unwrap_or_default()
    }

    /// Returns type, status and reason, without the free text.
    pub(super) fn summary(self) -> String {
        let word = |field: &str| match self.value[field].as_str() {
            Some(text) if is_word(text) => text,
            _ => "",
        };
        let (kind, status, reason) = (word("type"), word("status"), word("reason"));
        if reason.is_empty() {
            format!("{kind} is {status}")
        } else {
            format!("{kind} is {status}: {reason}")
        }
    }
}

/// Reports whether a text of the target is a word of the API and not prose.
pub(super) fn is_word(text: &str) -> bool {
    text.len() <= 100 && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:".contains(c))
}
