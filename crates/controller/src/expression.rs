//! A condition in CEL over JSON, evaluated within bounds.
//!
//! The evaluator is this crate's own: the crate `cel` parses, and its evaluator bounds neither time nor memory.

mod budget;
mod evaluate;
pub(crate) mod evaluation;
mod functions;
mod loops;
mod parse;
mod pattern;
mod value;

use std::collections::BTreeMap;

use serde_json::Value;

use budget::{Budget, EvaluationError, MAX_ALLOCATED_BYTES, MAX_STEPS};
use evaluate::Evaluation;
pub use parse::ExpressionError;
use parse::Tree;

/// A condition that can be evaluated.
///
/// ```
/// use kyma_controller::{Expression, ExpressionResult};
///
/// let ready = Expression::compile("status.phase == 'Ready'").unwrap();
/// let object = serde_json::json!({"status": {"phase": "Ready"}});
/// assert_eq!(ready.evaluate_object(&object), ExpressionResult::Holds);
/// ```
#[derive(Debug)]
pub struct Expression {
    tree: Tree,
}

/// Result of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionResult {
    /// The condition is true.
    Holds,
    /// The condition is false.
    Fails,
    /// The condition reads a variable or field that is missing or has another type, or its result is not a boolean.
    Unclear,
    /// The evaluation was stopped, since it would take too many steps or too much memory.
    TooLarge,
}

/// Cost of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvaluationCost {
    /// Steps, of at most 400,000.
    pub steps: u64,
    /// Allocated bytes, freed or not, of at most 1 MiB.
    pub allocated_bytes: usize,
}

impl Expression {
    /// Compiles a text.
    ///
    /// # Errors
    /// If the text is not valid CEL, too long, or nested too deep.
    pub fn compile(text: &str) -> Result<Self, ExpressionError> {
        Ok(Self { tree: parse::parse(text)? })
    }

    /// Returns the functions that the expression calls and that do not exist, sorted. The evaluation of such a call
    /// fails.
    ///
    /// ```
    /// use kyma_controller::Expression;
    ///
    /// let expression = Expression::compile("status.phase.lowerAscii() == 'ready'").unwrap();
    /// assert_eq!(expression.unknown_functions(), ["lowerAscii"]);
    /// ```
    pub fn unknown_functions(&self) -> Vec<&str> {
        let called = self.tree.functions.iter().map(String::as_str);
        called.filter(|name| !functions::is_known(name)).collect()
    }

    /// Evaluates the expression with variables, each by its name. Takes at most 20 ms of processor time and 2 MiB of memory.
    pub fn evaluate(&self, variables: &[(&str, &Value)]) -> ExpressionResult {
        self.evaluate_with_cost(variables).0
    }

    /// Evaluates the expression with an object of Kubernetes: `self` is all of it, and its fields have their own names
    /// too. Takes at most 20 ms of processor time and 2 MiB of memory.
    pub fn evaluate_object(&self, object: &Value) -> ExpressionResult {
        // By name, since an object may have far more fields than the expression has names.
        let variables = self.tree.names.iter().filter_map(|name| match name.as_str() {
            "self" => Some(("self", object)),
            field => Some((field, object.get(field)?)),
        });
        let variables: Vec<(&str, &Value)> = variables.collect();
        self.evaluate(&variables)
    }

    /// Evaluates like [`evaluate`](Self::evaluate), and returns the cost too.
    pub fn evaluate_with_cost(&self, variables: &[(&str, &Value)]) -> (ExpressionResult, EvaluationCost) {
        let variables = variables.iter().map(|(name, value)| (*name, value::Value::from_json(value)));
        let variables: BTreeMap<_, _> = variables.collect();
        let mut evaluation =
            Evaluation::new(&self.tree, variables, Budget::new(MAX_STEPS, MAX_ALLOCATED_BYTES));
        let judgement = match evaluation.evaluate(&self.tree.root) {
            Ok(value::Value::Bool(true)) => ExpressionResult::Holds,
            Ok(value::Value::Bool(false)) => ExpressionResult::Fails,
            Ok(_) | Err(EvaluationError::Error) => ExpressionResult::Unclear,
            Err(EvaluationError::Exhausted) => ExpressionResult::TooLarge,
        };
        let (steps, bytes) = evaluation.budget.remaining();
        let cost = EvaluationCost { steps: MAX_STEPS - steps, allocated_bytes: MAX_ALLOCATED_BYTES - bytes };
        (judgement, cost)
    }
}

#[cfg(test)]
mod tests;
