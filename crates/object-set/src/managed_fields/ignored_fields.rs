//! Fields that drift detection ignores: they are set when an object is created, and other managers may change them
//! afterwards.
//!
//! The API server removes or resets a field without manager. So, before an apply leaves such a field out, its
//! ownership moves from the operator to a manager that never applies anything
//! ([`crate::Ownership::ignored_fields_manager`]).

use std::collections::BTreeSet;

use kyma_api::{DriftIgnore, ObjectSelector};
use serde_json::Value;
use thiserror::Error;

use crate::object::{Identity, Object, selects};

mod field;
mod split;

pub(crate) use field::Field;
pub use field::PathProblem;
use field::tokens;
pub use split::PartOfWhole;
pub(crate) use split::split;

/// Error of an invalid path. Rules and paths count from 0, as in their lists.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("drift.ignore[{rule}].paths[{path}]: {problem}")]
pub struct IgnoreRuleError {
    /// Index of the rule.
    pub rule: usize,
    /// Index of the path in the rule.
    pub path: usize,
    /// The problem of the path.
    pub problem: PathProblem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    target: ObjectSelector,
    fields: Vec<Field>,
}

/// Fields that drift detection ignores, by object: other managers may change them once the object exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields {
    rules: Vec<Rule>,
    /// Namespaces in which writes through the scale subresource are overwritten.
    overwritten_scale: BTreeSet<String>,
}

impl IgnoredFields {
    /// Parses rules.
    ///
    /// # Errors
    /// The first path that is invalid, or that cannot have another manager.
    pub fn parse(rules: &[DriftIgnore]) -> Result<Self, IgnoreRuleError> {
        let read = |(rule, DriftIgnore { target, paths }): (usize, &DriftIgnore)| {
            let field = |(path, text): (usize, &String)| {
                let rule_path = format!("spec.drift.ignore[{rule}].paths[{path}]");
                tokens(text)
                    .map(|tokens| Field { tokens, rule: rule_path })
                    .map_err(|problem| IgnoreRuleError { rule, path, problem })
            };
            let fields = paths.iter().enumerate().map(field).collect::<Result<_, _>>()?;
            Ok(Rule { target: target.clone().unwrap_or_default(), fields })
        };
        let rules = rules.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { rules, overwritten_scale: BTreeSet::new() })
    }

    /// Adds the replicas of the workloads that autoscalers among these objects scale.
    pub fn with_autoscalers<'a>(mut self, objects: impl IntoIterator<Item = &'a Object>) -> Self {
        self.rules.extend(objects.into_iter().filter_map(scaled_by));
        self
    }

    /// Overwrites writes through the scale subresource in these namespaces, whose autoscaler is about to be removed.
    pub fn with_overwritten_scale(mut self, namespaces: BTreeSet<String>) -> Self {
        self.overwritten_scale = namespaces;
        self
    }

    /// Returns the fields of an object, with filled-in namespace, that other managers may change.
    pub(crate) fn fields_of(&self, object: &Object) -> Vec<&Field> {
        let rules = self.rules.iter().filter(|rule| selects(&rule.target, object));
        rules.flat_map(|rule| &rule.fields).collect()
    }

    /// Reports whether other managers' writes through the scale subresource of an object are overwritten.
    pub(crate) fn overwrites_scale(&self, object: &Identity) -> bool {
        object.namespace.as_ref().is_some_and(|namespace| self.overwritten_scale.contains(namespace))
    }
}

/// Reports whether an object is an autoscaler.
pub fn is_autoscaler(object: &Identity) -> bool {
    object.is("autoscaling", "HorizontalPodAutoscaler")
}

fn scaled_by(object: &Object) -> Option<Rule> {
    if !is_autoscaler(&object.identity()) {
        return None;
    }
    let target = object.body().get("spec")?.get("scaleTargetRef")?;
    let text = |field: &str| target.get(field).and_then(Value::as_str).map(str::to_owned);
    let group = text("apiVersion")
        .map(|version| version.split_once('/').map_or_else(String::new, |(group, _)| group.to_owned()));
    let target = ObjectSelector {
        group,
        version: None,
        kind: Some(text("kind")?),
        namespace: Some(object.namespace().unwrap_or_default().to_owned()),
        name: Some(text("name")?),
    };
    let replicas = ["spec", "replicas"].map(str::to_owned).to_vec();
    Some(Rule { target, fields: vec![Field { tokens: replicas, rule: object.identity().to_string() }] })
}

/// Removes fields from an object. Returns those that it had.
pub(crate) fn leave_out(object: &mut Object, fields: &[&Field]) -> BTreeSet<String> {
    let had = fields.iter().filter(|field| is_in(object, &field.tokens)).map(ToString::to_string).collect();
    leave_out_paths(object, fields.iter().map(|field| field.tokens.as_slice()).collect());
    had
}

fn is_in(object: &Object, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    let mut at = object.body().get(first);
    for token in rest {
        at = match at {
            Some(Value::Object(map)) => map.get(token),
            Some(Value::Array(items)) => token.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
    }
    at.is_some()
}

/// Removes the values at these paths.
fn leave_out_paths(object: &mut Object, mut paths: Vec<&[String]>) {
    if paths.is_empty() {
        // The body stays shared with clones of the object.
        return;
    }
    // Later items of a list are removed first, and values in an item before the item, since indices are those of the
    // whole object.
    let order = |path: &[String]| -> Vec<(Option<usize>, String)> {
        path.iter().map(|token| (token.parse().ok(), token.clone())).collect()
    };
    paths.sort_by_cached_key(|path| std::cmp::Reverse(order(path)));
    let mut body = Value::Object(std::mem::take(object.body_mut()));
    for path in paths {
        remove(&mut body, path);
    }
    if let Value::Object(body) = body {
        *object.body_mut() = body;
    }
}

/// Removes a value, and maps that become empty, which an apply would own as a whole. Returns whether its parent is
/// empty now.
fn remove(value: &mut Value, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    match value {
        Value::Object(map) => {
            let Some(below) = map.get_mut(first) else { return false };
            if !remove(below, rest) {
                return false;
            }
            map.remove(first);
            map.is_empty()
        }
        Value::Array(items) => {
            let Some(index) = first.parse().ok().filter(|index: &usize| *index < items.len()) else {
                return false;
            };
            if rest.is_empty() {
                items.remove(index);
            } else {
                remove(&mut items[index], rest);
            }
            false
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
