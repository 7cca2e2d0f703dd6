//! Strict parsing of one mapping of a kubeconfig.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::error::KubeconfigError;

/// A mapping of the kubeconfig and its path.
pub(super) struct Fields<'a> {
    pub(super) path: &'static str,
    pub(super) map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Refuses every field that is neither `used` nor known to be `harmless`. As with kubectl, a refused field counts
    /// only where it says something ([`is_unset`]).
    pub(super) fn only(
        &self,
        used: &[&str],
        harmless: &[&str],
        refused: &[(&str, &'static str, &'static str)],
    ) -> Result<(), KubeconfigError> {
        if let Some((_, field, why)) = refused.iter().find(|(name, ..)| self.has(name)) {
            return Err(KubeconfigError::Refused { field, why });
        }
        let is_refused = |name: &str| refused.iter().any(|(refused, ..)| *refused == name);
        let known = |name: &str| used.contains(&name) || harmless.contains(&name) || is_refused(name);
        if self.map.keys().all(|name| known(name)) {
            return Ok(());
        }
        Err(KubeconfigError::Unknown { parent: self.path })
    }

    /// Reports whether the field is present and not empty.
    pub(super) fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !is_unset(name, value))
    }

    /// A string, `None` if absent or empty.
    pub(super) fn text(&self, name: &str, field: &'static str) -> Result<Option<String>, KubeconfigError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(KubeconfigError::Malformed { field, why: "a string is expected" }),
        }
    }

    pub(super) fn base64(&self, name: &str, field: &'static str) -> Result<Option<Vec<u8>>, KubeconfigError> {
        let Some(text) = self.text(name, field)? else {
            return Ok(None);
        };
        let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let decoded = STANDARD.decode(packed);
        decoded.map(Some).map_err(|_| KubeconfigError::Malformed { field, why: "base64 is expected" })
    }

    /// The mapping `of` of the one entry with this name in the list `list`.
    pub(super) fn entry(
        &self,
        list: &'static str,
        of: &str,
        name: &str,
        reference: &'static str,
        path: &'static str,
    ) -> Result<Fields<'a>, KubeconfigError> {
        let malformed = |why| KubeconfigError::Malformed { field: list, why };
        let entries = match self.map.get(list) {
            None | Some(Value::Null) => return Err(KubeconfigError::Missing { field: list }),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(malformed("a list is expected")),
        };
        let mut named =
            entries.iter().filter(|entry| entry.get("name").and_then(Value::as_str) == Some(name));
        let entry = named.next().ok_or(KubeconfigError::Dangling { field: reference })?;
        if named.next().is_some() {
            return Err(malformed("two entries have the same name"));
        }
        let map = entry.get(of).and_then(Value::as_object);
        map.map(|map| Fields { path, map }).ok_or(malformed("an entry has no content"))
    }
}

/// Reports whether a field is null or the empty value of its type, as tools that write every field produce it.
fn is_unset(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag && name == "insecure-skip-tls-verify",
        Value::String(text) => {
            text.is_empty() && !matches!(name, "exec" | "auth-provider" | "insecure-skip-tls-verify")
        }
        Value::Array(items) => items.is_empty() && name == "as-groups",
        Value::Object(map) => map.is_empty() && name == "as-user-extra",
        Value::Number(_) => false,
    }
}
