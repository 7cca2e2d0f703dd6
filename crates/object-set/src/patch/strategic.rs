//! Strategic merge patches, with the meaning that API servers and kubectl give them.
//!
//! Two differences: `$patch: merge` merges, and a missing map with `$patch: replace` is added, while API servers drop
//! it.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::problem::Problem;
use super::shape::{Field, PLAIN, Shape};

pub(super) const PATCH_DIRECTIVE: &str = "$patch";
const RETAIN_KEYS_DIRECTIVE: &str = "$retainKeys";
const DELETE_SCALARS_PREFIX: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER_PREFIX: &str = "$setElementOrder/";

/// Value of `$patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directive {
    Merge,
    Replace,
    Delete,
}

/// A problem and its path in the patch, innermost field first.
#[derive(Debug)]
pub(super) struct MergeError {
    path: Vec<String>,
    problem: Problem,
}

impl MergeError {
    fn new(problem: Problem) -> Self {
        Self { path: Vec::new(), problem }
    }

    fn within(mut self, field: &str) -> Self {
        self.path.push(field.to_owned());
        self
    }

    /// Returns the problem and its path, such as `spec.template.spec.containers`.
    pub(super) fn into_parts(self) -> (Problem, String) {
        let path: Vec<String> = self.path.into_iter().rev().collect();
        (self.problem, path.join("."))
    }
}

/// Returns the directive of a map.
pub(super) fn directive(patch: &Map<String, Value>) -> Result<Directive, MergeError> {
    match patch.get(PATCH_DIRECTIVE).map(Value::as_str) {
        None | Some(Some("merge")) => Ok(Directive::Merge),
        Some(Some("replace")) => Ok(Directive::Replace),
        Some(Some("delete")) => Ok(Directive::Delete),
        Some(_) => Err(MergeError::new(Problem::Directive)),
    }
}

/// Merges a patch into a map of this shape.
pub(super) fn merge(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    shape: &Shape,
) -> Result<(), MergeError> {
    match directive(patch)? {
        Directive::Merge => {}
        Directive::Replace => {
            *original = plain(patch)?;
            return Ok(());
        }
        Directive::Delete => {
            original.clear();
            return Ok(());
        }
    }
    retain_keys(original, patch)?;
    let orders = orders(original, patch, shape)?;
    for (name, gone) in prefixed(patch, DELETE_SCALARS_PREFIX) {
        let gone: HashSet<&Value> = list(gone).map_err(|fault| fault.within(name))?.iter().collect();
        if let Some(Value::Array(held)) = original.get_mut(name) {
            held.retain(|item| !gone.contains(item));
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !is_directive(name)) {
        field(original, name, value, shape.field(name)).map_err(|fault| fault.within(name))?;
    }
    for Order { name, by, wished, before } in orders {
        if let Some(Value::Array(held)) = original.get_mut(name) {
            arrange(held, by, &wished, &before).map_err(|fault| fault.within(name))?;
        }
    }
    Ok(())
}

fn field(
    original: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    how: Option<Field>,
) -> Result<(), MergeError> {
    match (original.get_mut(name), value, how) {
        (_, Value::Null, _) => {
            original.remove(name);
        }
        (Some(Value::Object(held)), Value::Object(change), None) => merge(held, change, &PLAIN)?,
        (Some(Value::Object(held)), Value::Object(change), Some(Field::Map(shape))) => {
            merge(held, change, shape)?;
        }
        (Some(Value::Array(held)), Value::Array(items), Some(Field::Keyed(by, shape))) => {
            keyed(held, items, by, shape)?;
        }
        (Some(Value::Array(held)), Value::Array(items), Some(Field::Scalars)) => scalars(held, items)?,
        _ => match cleaned(value)? {
            Some(value) => {
                original.insert(name.to_owned(), value);
            }
            None => {
                original.remove(name);
            }
        },
    }
    Ok(())
}

/// Merges the items of a list of maps with those that have the same value of a field.
fn keyed(held: &mut Vec<Value>, items: &[Value], by: &'static str, shape: &Shape) -> Result<(), MergeError> {
    let mut rest: Vec<(&Value, &Map<String, Value>)> = Vec::new();
    let mut deleted: HashSet<&Value> = HashSet::new();
    let mut is_replaced = false;
    for item in items {
        let map = item.as_object().ok_or_else(|| MergeError::new(Problem::ItemNotAMap))?;
        match directive(map)? {
            // In an item, `replace` applies to the whole list.
            Directive::Replace => is_replaced = true,
            Directive::Delete => {
                deleted.insert(key(item, Some(by))?);
            }
            Directive::Merge => rest.push((key(item, Some(by))?, map)),
        }
    }
    if is_replaced {
        *held = rest.iter().map(|(_, map)| plain(map).map(Value::Object)).collect::<Result<_, _>>()?;
        return Ok(());
    }
    if !deleted.is_empty() {
        held.retain(|item| item.get(by).is_none_or(|key| !deleted.contains(key)));
    }
    let before = keys(held, Some(by))?;
    let mut places: HashMap<Value, usize> = HashMap::new();
    for (place, key) in before.iter().enumerate() {
        places.entry(key.clone()).or_insert(place);
    }
    for (key, map) in &rest {
        let held_map = places.get(*key).and_then(|place| held.get_mut(*place)).and_then(Value::as_object_mut);
        if let Some(held_map) = held_map {
            merge(held_map, map, shape)?;
        } else {
            places.insert((*key).clone(), held.len());
            held.push(Value::Object(plain(map)?));
        }
    }
    let wished: Vec<Value> = rest.iter().map(|(key, _)| (*key).clone()).collect();
    arrange(held, Some(by), &wished, &before)
}

fn scalars(held: &mut Vec<Value>, items: &[Value]) -> Result<(), MergeError> {
    let before = held.clone();
    let mut seen = HashSet::new();
    held.extend(items.iter().cloned());
    held.retain(|item| seen.insert(item.clone()));
    arrange(held, None, items, &before)
}

/// The order from `$setElementOrder` of a list, and the keys of its items before the patch.
struct Order<'a> {
    name: &'a str,
    by: Option<&'static str>,
    wished: Vec<Value>,
    before: Vec<Value>,
}

fn orders<'a>(
    original: &Map<String, Value>,
    patch: &'a Map<String, Value>,
    shape: &Shape,
) -> Result<Vec<Order<'a>>, MergeError> {
    let mut found = Vec::new();
    for (name, wished) in prefixed(patch, ELEMENT_ORDER_PREFIX) {
        let by = match shape.field(name) {
            Some(Field::Keyed(by, _)) => Some(by),
            Some(Field::Scalars) => None,
            // Any other list is replaced as a whole.
            _ => continue,
        };
        let read = |value: Option<&Value>| match value {
            Some(Value::Array(items)) => keys(items, by),
            _ => Ok(Vec::new()),
        };
        let wished = list(wished).and_then(|items| keys(items, by)).map_err(|fault| fault.within(name))?;
        let before = read(original.get(name)).map_err(|fault| fault.within(name))?;
        found.push(Order { name, by, wished, before });
    }
    Ok(found)
}

/// Sorts a list as API servers do: items that the patch names in the order of the patch, the rest in their previous
/// order. Both are merged by the previous positions; a new item is placed as early as possible.
fn arrange(
    items: &mut Vec<Value>,
    by: Option<&'static str>,
    wished: &[Value],
    before: &[Value],
) -> Result<(), MergeError> {
    let wished = places(wished);
    let before = places(before);
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items.drain(..) {
        let key = key(&item, by)?;
        let old = before.get(key).copied();
        match wished.get(key) {
            Some(place) => named.push((*place, old, item)),
            None => others.push((old, item)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(old, _)| *old);
    let mut others = others.into_iter().peekable();
    for (_, old, item) in named {
        while let Some((_, other)) =
            others.next_if(|(other, _)| matches!((other, old), (Some(other), Some(old)) if *other < old))
        {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others.map(|(_, other)| other));
    Ok(())
}

fn places(keys: &[Value]) -> HashMap<&Value, usize> {
    let mut places = HashMap::new();
    for (place, key) in keys.iter().enumerate() {
        places.entry(key).or_insert(place);
    }
    places
}

fn keys(items: &[Value], by: Option<&'static str>) -> Result<Vec<Value>, MergeError> {
    items.iter().map(|item| key(item, by).cloned()).collect()
}

/// Returns the key of an item: one of its fields, or the item itself.
fn key<'a>(item: &'a Value, by: Option<&'static str>) -> Result<&'a Value, MergeError> {
    match by {
        None => Ok(item),
        Some(by) => item.get(by).ok_or_else(|| MergeError::new(Problem::MergeKey(by))),
    }
}

fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), MergeError> {
    let Some(retained) = patch.get(RETAIN_KEYS_DIRECTIVE) else { return Ok(()) };
    let retained: HashSet<&str> = list(retained)?.iter().filter_map(Value::as_str).collect();
    let is_set = |name: &str, value: &Value| !value.is_null() && !is_directive(name);
    if patch.iter().any(|(name, value)| is_set(name, value) && !retained.contains(name.as_str())) {
        return Err(MergeError::new(Problem::RetainKeys));
    }
    original.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// Returns a value of a patch for a field that does not exist yet: without directives and nulls, which request
/// removals. `None` if nothing is left.
fn cleaned(value: &Value) -> Result<Option<Value>, MergeError> {
    match value {
        Value::Null => Ok(None),
        Value::Object(map) if directive(map)? == Directive::Delete => Ok(None),
        Value::Object(map) => plain(map).map(|map| Some(Value::Object(map))),
        Value::Array(items) => {
            let items = items.iter().filter_map(|item| match item {
                Value::Null => Some(Ok(Value::Null)),
                item => cleaned(item).transpose(),
            });
            items.collect::<Result<Vec<_>, _>>().map(|items| Some(Value::Array(items)))
        }
        other => Ok(Some(other.clone())),
    }
}

/// Returns the fields of a map without directives, cleaned.
pub(super) fn plain(map: &Map<String, Value>) -> Result<Map<String, Value>, MergeError> {
    let mut kept = Map::new();
    for (name, value) in map.iter().filter(|(name, _)| !is_directive(name)) {
        if let Some(value) = cleaned(value).map_err(|fault| fault.within(name))? {
            kept.insert(name.clone(), value);
        }
    }
    Ok(kept)
}

fn is_directive(name: &str) -> bool {
    name == PATCH_DIRECTIVE
        || name == RETAIN_KEYS_DIRECTIVE
        || name.starts_with(DELETE_SCALARS_PREFIX)
        || name.starts_with(ELEMENT_ORDER_PREFIX)
}

fn prefixed<'a>(
    patch: &'a Map<String, Value>,
    prefix: &'static str,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    patch.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
}

fn list(value: &Value) -> Result<&Vec<Value>, MergeError> {
    value.as_array().ok_or_else(|| MergeError::new(Problem::NotAList))
}
