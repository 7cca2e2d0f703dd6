//! Patches of the objects of a set, like those of `kubectl patch` and Kustomize.
//!
//! A text that is a map is a strategic merge patch for built-in kinds, and a JSON merge patch (RFC 7386) for others,
//! since the keys of their lists are unknown. A text that is a list is a JSON patch (RFC 6902). A patch cannot change
//! an object's identity. Patches are applied in order, each to the result of the previous ones. `$patch: delete` at
//! the top of a patch removes the object from the set.

use json_patch::PatchOperation;
use kyma_api::ObjectSelector;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::cluster::discovery::Kinds;
use crate::object::{Identity, Object, ObjectError};
use crate::order;
use crate::parse::yaml::Budget;
use crate::parse::{self, Limits};
use crate::set::{ObjectSet, Warning};

mod json;
mod problem;
mod shape;
mod strategic;

pub use problem::Problem;
use shape::Shape;
use strategic::Directive;

/// Maximum size of one patch.
const PATCH_LIMITS: Limits =
    Limits { text_bytes: 256 << 10, objects: 1, nodes: 100_000, scalar_bytes: 1 << 20 };
/// Metadata fields of a patch that select the object and are no changes.
const IDENTITY_FIELDS: [&str; 2] = ["name", "namespace"];

/// Why a patch cannot be applied. Patches count from 0, as in their list. Contains no values of patches or objects,
/// since they may be secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PatchError {
    /// The text is not a patch.
    #[error("patches[{patch}]: {problem}")]
    Text {
        /// Index of the patch.
        patch: usize,
        /// The problem.
        problem: Problem,
    },
    /// The patch does not fit an object.
    #[error("patches[{patch}], {object}: {place}{problem}")]
    Object {
        /// Index of the patch.
        patch: usize,
        /// The object that the patch selects.
        object: Box<Identity>,
        /// Place in the object, as in `spec.template: ` or `operation 2 at /spec: `; empty for the whole object.
        place: String,
        /// The problem.
        problem: Problem,
    },
}

/// Patches in the order of their application.
#[derive(Clone, Default)]
pub struct Patches {
    all: Vec<Patch>,
}

impl std::fmt::Debug for Patches {
    // Patches may hold secrets: never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Patches({})", self.all.len())
    }
}

#[derive(Clone)]
struct Patch {
    selector: ObjectSelector,
    /// Whether the patch itself names the object. Without a namespace it then selects only objects in the default
    /// namespace.
    is_named: bool,
    change: Change,
}

#[derive(Clone)]
enum Change {
    Merge(Map<String, Value>),
    Operations(Vec<PatchOperation>),
}

impl Patches {
    /// Parses patches.
    ///
    /// # Errors
    /// The first invalid patch.
    pub fn parse(patches: &[kyma_api::Patch]) -> Result<Self, PatchError> {
        let read = |(patch, one)| Patch::parse(one).map_err(|problem| PatchError::Text { patch, problem });
        Ok(Self { all: patches.iter().enumerate().map(read).collect::<Result<_, _>>()? })
    }

    /// Applies the patches to the objects of a set. Objects without a namespace belong to `namespace`, unless `kinds`
    /// has their kind as cluster-scoped. A patch that selects no object is a warning.
    ///
    /// # Errors
    /// The first patch that does not fit an object that it selects.
    pub fn apply(&self, set: ObjectSet, kinds: &Kinds, namespace: &str) -> Result<ObjectSet, PatchError> {
        if self.all.is_empty() {
            return Ok(set);
        }
        let limits = Limits::default();
        let mut budget = Budget { nodes: limits.nodes, bytes: limits.scalar_bytes };
        let mut objects: Vec<Option<Object>> = set.objects().iter().cloned().map(Some).collect();
        let mut warnings = Vec::new();
        for (number, patch) in self.all.iter().enumerate() {
            let mut is_used = false;
            for place in &mut objects {
                let Some(object) = place.take_if(|object| patch.selects(object, kinds, namespace)) else {
                    continue;
                };
                is_used = true;
                let identity = object.identity();
                *place = patch.change(object, &mut budget).map_err(|LocatedProblem { place, problem }| {
                    PatchError::Object { patch: number, object: Box::new(identity), place, problem }
                })?;
            }
            if !is_used {
                warnings.push(Warning::PatchWithoutObject { patch: number });
            }
        }
        Ok(set.with_objects(objects.into_iter().flatten().collect(), warnings))
    }
}

impl Patch {
    fn parse(patch: &kyma_api::Patch) -> Result<Self, Problem> {
        let value = parse::parse_one(&patch.patch, &PATCH_LIMITS).map_err(Problem::Yaml)?;
        let change = match value {
            Value::Array(operations) => {
                let read = |(number, operation)| {
                    // The message of serde could quote the patch.
                    serde_json::from_value(operation).map_err(|_| Problem::Operation(number))
                };
                Change::Operations(operations.into_iter().enumerate().map(read).collect::<Result<_, _>>()?)
            }
            Value::Object(body) => Change::Merge(body),
            _ => return Err(Problem::Shape),
        };
        match (&patch.target, change) {
            (None, Change::Operations(_)) => Err(Problem::NoTarget),
            (None, Change::Merge(body)) => {
                let selector = named(&body).ok_or(Problem::Unnamed)?;
                Ok(Self { selector, is_named: true, change: Change::Merge(without_identity(body)) })
            }
            (Some(target), Change::Merge(body)) => {
                let change = Change::Merge(without_identity(body));
                Ok(Self { selector: target.clone(), is_named: false, change })
            }
            (Some(target), change) => Ok(Self { selector: target.clone(), is_named: false, change }),
        }
    }

    fn selects(&self, object: &Object, kinds: &Kinds, default: &str) -> bool {
        let ObjectSelector { group, version, kind, namespace, name } = &self.selector;
        let fits =
            |selected: &Option<String>, is: &str| selected.as_ref().is_none_or(|selected| selected == is);
        if !fits(group, object.group())
            || !fits(version, object.version())
            || !fits(kind, object.kind())
            || !fits(name, object.name())
        {
            return false;
        }
        let is_unknown = kinds.preferred(&object.gvk().group_kind()).is_none();
        let place = kinds.scoped(&object.identity(), default).namespace;
        match (namespace, place) {
            (None, Some(place)) => !self.is_named || place == default,
            (None, None) => true,
            (Some(selected), None) if is_unknown => selected.is_empty() || selected == default,
            (Some(selected), place) => *selected == place.unwrap_or_default(),
        }
    }

    /// Returns the patched object; `None` if the patch removes it.
    fn change(&self, object: Object, budget: &mut Budget) -> Result<Option<Object>, LocatedProblem> {
        let before = (object.gvk(), object.identity());
        let body = match &self.change {
            Change::Merge(patch) => {
                budget.take_map(patch).map_err(|_| Problem::TooLarge)?;
                let Some(merged) = merge(&object, patch)? else { return Ok(None) };
                merged
            }
            Change::Operations(operations) => {
                let mut body = object.into_value();
                json::apply(&mut body, operations, budget)?;
                body
            }
        };
        let object = Object::from_value(body).map_err(|error| match error {
            ObjectError::FieldNotAMap(_) => Problem::NoObject(error),
            _ => Problem::OtherObject,
        })?;
        if (object.gvk(), object.identity()) != before {
            return Err(Problem::OtherObject.into());
        }
        Ok(Some(object))
    }
}

/// A problem and its path in the object, such as `spec.template: `; empty for the whole object.
struct LocatedProblem {
    place: String,
    problem: Problem,
}

impl From<Problem> for LocatedProblem {
    fn from(problem: Problem) -> Self {
        Self { place: String::new(), problem }
    }
}

impl From<strategic::MergeError> for LocatedProblem {
    fn from(fault: strategic::MergeError) -> Self {
        let (problem, path) = fault.into_parts();
        Self { place: if path.is_empty() { path } else { format!("{path}: ") }, problem }
    }
}

impl From<json::OperationError> for LocatedProblem {
    fn from(json::OperationError { operation, path, problem }: json::OperationError) -> Self {
        Self { place: format!("operation {operation} at {path}: "), problem }
    }
}

/// Returns the body of the object after a merge of the patch; `None` if the patch removes the object.
fn merge(object: &Object, patch: &Map<String, Value>) -> Result<Option<Value>, strategic::MergeError> {
    let mut body = match strategic::directive(patch)? {
        Directive::Delete => return Ok(None),
        Directive::Replace => {
            let mut body = strategic::plain(patch)?;
            put_identity(object.body(), &mut body);
            return Ok(Some(Value::Object(body)));
        }
        Directive::Merge => object.body().clone(),
    };
    if order::is_builtin(object.group()) {
        strategic::merge(&mut body, patch, Shape::of(object.group(), object.kind()))?;
        return Ok(Some(Value::Object(body)));
    }
    let mut patch = patch.clone();
    patch.remove(strategic::PATCH_DIRECTIVE);
    let mut body = Value::Object(body);
    json_patch::merge(&mut body, &Value::Object(patch));
    Ok(Some(body))
}

/// Returns a selector for exactly the object that a patch names.
fn named(patch: &Map<String, Value>) -> Option<ObjectSelector> {
    let mut identity = Map::new();
    put_identity(patch, &mut identity);
    let object = Object::from_value(Value::Object(identity)).ok()?;
    Some(ObjectSelector {
        group: Some(object.group().to_owned()),
        version: Some(object.version().to_owned()),
        kind: Some(object.kind().to_owned()),
        namespace: object.namespace().map(str::to_owned),
        name: Some(object.name().to_owned()),
    })
}

/// Copies apiVersion, kind, name and namespace.
fn put_identity(from: &Map<String, Value>, to: &mut Map<String, Value>) {
    for field in ["apiVersion", "kind"] {
        to.extend(from.get(field).map(|value| (field.to_owned(), value.clone())));
    }
    let Some(from) = from.get("metadata").and_then(Value::as_object) else { return };
    let to = crate::object::map_at(to, "metadata");
    for field in IDENTITY_FIELDS {
        to.extend(from.get(field).map(|value| (field.to_owned(), value.clone())));
    }
}

/// Returns the changes of a patch without the identity of its object.
fn without_identity(mut patch: Map<String, Value>) -> Map<String, Value> {
    patch.remove("apiVersion");
    patch.remove("kind");
    if let Some(Value::Object(metadata)) = patch.get_mut("metadata") {
        metadata.retain(|field, _| !IDENTITY_FIELDS.contains(&field.as_str()));
    }
    patch
}

#[cfg(test)]
mod tests;
