//! Splits field ownership of an object between the operator's manager and the manager of yielded fields.

use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{Field, pointer};
use crate::drift::applied_entry;
use crate::field_set::{empty, is_leaf, take, union};
use crate::managed_fields;

/// A field is part of something that the API server knows only as a whole, so it has no owner of its own.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{place}: {field} is part of {whole}, which changes as a whole; name that instead")]
pub struct PartOfWhole {
    /// Where it is named.
    pub place: String,
    /// The field, as a JSON pointer.
    pub field: String,
    /// JSON pointer of the whole that it is part of.
    pub whole: String,
}

/// Ownership that has to move.
#[derive(Debug)]
pub(crate) struct Split {
    /// Moves it; fails when the object changed since its metadata was read.
    pub(crate) patch: Patch,
    /// Whether we get something back, which the next apply takes off the object unless it is wished.
    pub(crate) returns: bool,
}

/// What has to move so that `keeper` has exactly those of `fields` that nobody else took; `None` where it is so already.
/// `whole` is the object as it would be made.
pub(crate) fn split(
    metadata: &ObjectMeta,
    whole: &Value,
    fields: &[&Field],
    manager: &str,
    keeper: &str,
) -> Result<Option<Split>, PartOfWhole> {
    let entries = [manager, keeper].map(|name| applied_entry(metadata, name));
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
    // What it keeps beyond that is no longer to be left to others, or not part of the object any more.
    union(&mut ours, &theirs);
    if ours == had && keeps == kept {
        return Ok(None);
    }
    let version = entries.into_iter().flatten().find_map(|entry| entry.api_version.clone());
    let held = metadata.managed_fields.iter().flatten();
    let mut all: Vec<ManagedFieldsEntry> =
        held.filter(|held| !entries.contains(&Some(*held))).cloned().collect();
    let moved = [(manager, ours), (keeper, keeps)].into_iter().filter(|(_, fields)| !is_leaf(fields));
    all.extend(moved.map(|(name, fields)| managed_fields::applied(name, version.clone(), fields)));
    Ok(Some(Split { patch: managed_fields::replace(metadata, &all), returns: !is_leaf(&theirs) }))
}

/// Where in a set of fields one of them is; `None` where it is not in it.
fn find(field: &Field, whole: &Value, set: &Value) -> Result<Option<Vec<String>>, PartOfWhole> {
    let (mut value, mut place) = (whole, set);
    let mut path = Vec::new();
    for (depth, token) in field.tokens.iter().enumerate() {
        let (below, key) = match value {
            Value::Object(map) => (map.get(token), Key::Is(format!("f:{token}"))),
            Value::Array(items) => {
                let item = token.parse().ok().and_then(|index: usize| items.get(index));
                (item, item.map_or(Key::None, |item| key_of(item, place)))
            }
            _ => return Ok(None),
        };
        let Some(below) = below else { return Ok(None) };
        // Owned whole, so that what is in it has no owner of its own.
        let key = if depth > 0 && is_leaf(place) { Key::Unclear } else { key };
        let key = match key {
            Key::Is(key) => key,
            Key::None => return Ok(None),
            Key::Unclear => {
                let whole = pointer(&field.tokens[..depth]);
                return Err(PartOfWhole { place: field.place.clone(), field: field.to_string(), whole });
            }
        };
        let Some(next) = place.get(&key) else { return Ok(None) };
        path.push(key);
        (value, place) = (below, next);
    }
    Ok(Some(path))
}

/// What a set of fields calls something.
enum Key {
    Is(String),
    /// It has no such thing.
    None,
    /// It may be one of several, or a part of something that is owned whole.
    Unclear,
}

/// How a set of fields calls an item of a list: by its keys, or by its value. An item may lack keys that have a default.
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
        return Key::Is(key.clone());
    }
    let mut fitting = names().filter(|key| may_be_it(key));
    match (fitting.next(), fitting.next()) {
        (None, _) => Key::None,
        (Some(key), None) => Key::Is(key.clone()),
        (Some(_), Some(_)) => Key::Unclear,
    }
}
