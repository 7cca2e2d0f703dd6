//! JSON patches (RFC 6902), with limits: copy operations could make an object arbitrarily large and deep.

use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::Value;

use super::problem::Problem;
use crate::parse::yaml::{Budget, MAX_YAML_DEPTH};

/// The failed operation, from 0, and the reason.
#[derive(Debug)]
pub(super) struct OperationError {
    pub(super) operation: usize,
    pub(super) path: String,
    pub(super) problem: Problem,
}

/// Applies the operations in order.
pub(super) fn apply(
    body: &mut Value,
    operations: &[PatchOperation],
    budget: &mut Budget,
) -> Result<(), OperationError> {
    for (number, operation) in operations.iter().enumerate() {
        let fault =
            |problem| OperationError { operation: number, path: operation.path().to_string(), problem };
        if let Some(added) = added(body, operation) {
            if operation.path().count() + depth(added) > MAX_YAML_DEPTH {
                return Err(fault(Problem::TooDeep));
            }
            budget.take(added).map_err(|_| fault(Problem::TooLarge))?;
        }
        json_patch::patch_unsafe(body, std::slice::from_ref(operation))
            .map_err(|error| fault(problem(&error.kind)))?;
    }
    Ok(())
}

/// Returns the value that an operation writes.
fn added<'a>(body: &'a Value, operation: &'a PatchOperation) -> Option<&'a Value> {
    match operation {
        PatchOperation::Add(add) => Some(&add.value),
        PatchOperation::Replace(replace) => Some(&replace.value),
        PatchOperation::Move(from) => body.pointer(from.from.as_str()),
        PatchOperation::Copy(from) => body.pointer(from.from.as_str()),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn problem(kind: &PatchErrorKind) -> Problem {
    match kind {
        PatchErrorKind::TestFailed => Problem::TestFailed,
        PatchErrorKind::InvalidFromPointer => Problem::NothingToTake,
        PatchErrorKind::CannotMoveInsideItself => Problem::MoveIntoItself,
        _ => Problem::NoSuchPath,
    }
}
