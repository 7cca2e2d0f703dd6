//! Splits field ownership of an object between the operator's manager and the manager of ignored fields.

use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::{Map, Value};
use thiserror::Error;

use super::field::{Field, pointer};
use crate::managed_fields::entries::{self, applied_entry};
use crate::managed_fields::field_set::{empty, is_leaf, take, union};

/// A field is part of a value that the API server owns only as a whole, so the field has no manager of its own.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{rule}: {field} is part of {whole}, which changes as a whole; name that instead")]
pub struct PartOfWhole {
    /// The rule that names the field.
    pub rule: String,
    /// The field, as a JSON pointer.
    pub field: String,
    /// JSON pointer of the whole that it is part of.
    pub whole: String,
}

/// A move of field ownership.
#[derive(Debug)]
pub(crate) struct OwnershipMove {
    /// The patch; fails if the object changed since its metadata was read.
    pub(crate) patch: Patch,
    /// Whether fields move back to the operator's manager; its next apply removes those that are not desired.
    pub(crate) returns: bool,
}

/// Returns the move after which `ignored_manager` owns exactly those of `fields` that one of both managers owned before;
/// `None` if nothing has to move. `whole` is the object in the form for its creation.
pub(crate) fn split(
    metadata: &ObjectMeta,
    whole: &Value,
    fields: &[&Field],
    manager: &str,
    ignored_manager: &str,
) -> Result<Option<OwnershipMove>, PartOfWhole> {
    let entries = [manager, ignored_manager].map(|name| applied_entry(metadata, name));
    let owned = |entry: Option<&ManagedFieldsEntry>| {
        entry.and_then(|entry| entry.fields_v1.as_ref()).map_or_else(empty, |fields| fields.0.clone())
    };
    let [had, kept] = entries.map(owned);
    let (mut ours, mut theirs) = (had.clone(), kept.clone());
    let mut keeps = empty();
    for field in fields {
        for set in [&mut ours, &mut theirs] {
            if let Some(path) = find(field, whole, set)? {
                union(&mut keeps, &take(set, &path));
            }
        }
    }
    // Other fields of `ignored_manager` are no longer ignored, or no longer part of the object.
    union(&mut ours, &theirs);
    if ours == had && keeps == kept {
        return Ok(None);
    }
    let version = entries.into_iter().flatten().find_map(|entry| entry.api_version.clone());
    let held = metadata.managed_fields.iter().flatten();
    let mut all: Vec<ManagedFieldsEntry> =
        held.filter(|held| !entries.contains(&Some(*held))).cloned().collect();
    let moved =
        [(manager, ours), (ignored_manager, keeps)].into_iter().filter(|(_, fields)| !is_leaf(fields));
    all.extend(moved.map(|(name, fields)| entries::applied(name, version.clone(), fields)));
    Ok(Some(OwnershipMove { patch: entries::replace(metadata, &all), returns: !is_leaf(&theirs) }))
}

/// Returns the path of a field in a set of fields; `None` if the set lacks it.
fn find(field: &Field, whole: &Value, set: &Value) -> Result<Option<Vec<String>>, PartOfWhole> {
    let (mut value, mut place) = (whole, set);
    let mut path = Vec::new();
    for (depth, token) in field.tokens.iter().enumerate() {
        let (below, key) = match value {
            Value::Object(map) => (map.get(token), Key::Unique(format!("f:{token}"))),
            Value::Array(items) => {
                let item = token.parse().ok().and_then(|index: usize| items.get(index));
                (item, item.map_or(Key::Absent, |item| key_of(item, place)))
            }
            _ => return Ok(None),
        };
        let Some(below) = below else { return Ok(None) };
        // The parent is owned as a whole, so the field has no manager of its own.
        let key = if depth > 0 && is_leaf(place) { Key::Ambiguous } else { key };
        let key = match key {
            Key::Unique(key) => key,
            Key::Absent => return Ok(None),
            Key::Ambiguous => {
                let whole = pointer(&field.tokens[..depth]);
                return Err(PartOfWhole { rule: field.rule.clone(), field: field.to_string(), whole });
            }
        };
        let Some(next) = place.get(&key) else { return Ok(None) };
        path.push(key);
        (value, place) = (below, next);
    }
    Ok(Some(path))
}

/// Key of a value in a set of fields.
enum Key {
    Unique(String),
    /// The set has no such key.
    Absent,
    /// One of several keys, or a part of a value that is owned as a whole.
    Ambiguous,
}

/// Returns the key of a list item in a set of fields: by its keys, or by its value. An item may lack keys that have a
/// default.
fn key_of(item: &Value, place: &Value) -> Key {
    let keys =
        |key: &str| -> Option<Map<String, Value>> { serde_json::from_str(key.strip_prefix("k:")?).ok() };
    let is_it = |key: &str| match key.strip_prefix("v:") {
        Some(value) => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item),
        None => keys(key).is_some_and(|keys| keys.iter().all(|(key, value)| item.get(key) == Some(value))),
    };
    let may_be_it = |key: &str| {
        keys(key)
            .is_some_and(|keys| keys.iter().all(|(key, value)| item.get(key).is_none_or(|is| is == value)))
    };
    let names = || place.as_object().into_iter().flatten().map(|(key, _)| key);
    if let Some(key) = names().find(|key| is_it(key)) {
        return Key::Unique(key.clone());
    }
    let mut fitting = names().filter(|key| may_be_it(key));
    match (fitting.next(), fitting.next()) {
        (None, _) => Key::Absent,
        (Some(key), None) => Key::Unique(key.clone()),
        (Some(_), Some(_)) => Key::Ambiguous,
    }
}
