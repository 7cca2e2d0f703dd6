//! Operators and functions of CEL's standard library.

use std::rc::Rc;

use cel::common::ast::operators;

use super::budget::{Budget, EvaluationError};
use super::pattern::Patterns;
use super::value::{List, Text, Value};

type Result<T> = std::result::Result<T, EvaluationError>;

/// Bytes of text that are searched in one step.
const SEARCHED_BYTES_PER_STEP: usize = 8;
/// Longest text whose conversion to a `double` never needs more digits than a machine word holds.
const SHORT_NUMBER_BYTES: usize = 19;
/// Steps to convert a longer one: its digits, up to 768 of them, may be shifted about twenty times.
const STEPS_PER_LONG_NUMBER: usize = 1_000;

/// Names of all functions.
const FUNCTIONS: [&str; 20] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "hasValue",
    "int",
    "matches",
    "none",
    "of",
    "ofNonZeroValue",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
    "value",
];

/// Reports whether a function of this name exists. Operators are called by names without letters at the start.
pub(super) fn is_known(name: &str) -> bool {
    FUNCTIONS.contains(&name) || !name.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Returns the CEL type of this name; a variable of the same name takes precedence.
pub(super) fn type_of_name(name: &str) -> Option<&'static str> {
    const TYPES: [&str; 11] = [
        "null_type",
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "type",
        "optional_type",
    ];
    TYPES.into_iter().find(|known| *known == name)
}

/// Reports whether a function of this name belongs to a namespace, as in `optional.of(1)`.
pub(super) fn is_namespace(namespace: &str, function: &str) -> bool {
    namespace == "optional" && matches!(function, "none" | "of" | "ofNonZeroValue")
}

/// Returns an optional value.
pub(super) fn call_optional<'a>(
    function: &str,
    arguments: Vec<Value<'a>>,
    budget: &mut Budget,
) -> Result<Value<'a>> {
    budget.allocate_values(1)?;
    let value = match (function, <[Value<'a>; 1]>::try_from(arguments)) {
        ("none", Err(none)) if none.is_empty() => None,
        ("ofNonZeroValue", Ok([value])) if value.is_zero() => None,
        ("of" | "ofNonZeroValue", Ok([value])) => Some(Rc::new(value)),
        _ => return Err(EvaluationError::Error),
    };
    Ok(Value::Optional(value))
}

/// Calls a function, or a method of `target`.
pub(super) fn call<'a>(
    budget: &mut Budget,
    patterns: &mut Patterns,
    function: &str,
    target: Option<&Value<'a>>,
    arguments: &[Value<'a>],
) -> Result<Value<'a>> {
    match (function, target, arguments) {
        ("size", Some(of), []) | ("size", None, [of]) => size(of, budget),
        ("matches", Some(Value::String(text)), [Value::String(pattern)])
        | ("matches", None, [Value::String(text), Value::String(pattern)]) => {
            patterns.is_match(pattern, text, budget).map(Value::Bool)
        }
        ("contains", Some(Value::String(text)), [Value::String(part)]) => {
            budget.take_steps(1 + (text.len() + part.len()) / SEARCHED_BYTES_PER_STEP)?;
            Ok(Value::Bool(text.contains(&**part)))
        }
        ("startsWith", Some(Value::String(text)), [Value::String(part)]) => {
            budget.read_text(part.len())?;
            Ok(Value::Bool(text.starts_with(&**part)))
        }
        ("endsWith", Some(Value::String(text)), [Value::String(part)]) => {
            budget.read_text(part.len())?;
            Ok(Value::Bool(text.ends_with(&**part)))
        }
        ("value", Some(Value::Optional(value)), []) => {
            value.as_deref().cloned().ok_or(EvaluationError::Error)
        }
        ("hasValue", Some(Value::Optional(value)), []) => Ok(Value::Bool(value.is_some())),
        ("or", Some(one @ Value::Optional(value)), [other @ Value::Optional(_)]) => {
            Ok(if value.is_some() { one } else { other }.clone())
        }
        ("orValue", Some(Value::Optional(value)), [other]) => Ok(value.as_deref().unwrap_or(other).clone()),
        ("type", None, [value]) => Ok(Value::Type(value.type_name())),
        ("dyn", None, [value]) => Ok(value.clone()),
        (operators::LOGICAL_NOT, None, [Value::Bool(truth)]) => Ok(Value::Bool(!truth)),
        (operators::NEGATE, None, [Value::Int(number)]) => {
            number.checked_neg().map(Value::Int).ok_or(EvaluationError::Error)
        }
        (operators::NEGATE, None, [Value::Double(number)]) => Ok(Value::Double(-number)),
        (_, None, [value]) => convert(function, value, budget),
        _ => Err(EvaluationError::Error),
    }
}

fn size<'a>(of: &Value<'a>, budget: &mut Budget) -> Result<Value<'a>> {
    let size = match of {
        Value::String(text) => {
            budget.take_steps(1 + text.len() / SEARCHED_BYTES_PER_STEP)?;
            text.chars().count()
        }
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => return Err(EvaluationError::Error),
    };
    i64::try_from(size).map(Value::Int).map_err(|_| EvaluationError::Error)
}

/// Conversions between types, by the name of the type that is asked for.
#[expect(clippy::cast_precision_loss, reason = "CEL rounds an int to a double")]
fn convert<'a>(to: &str, value: &Value<'a>, budget: &mut Budget) -> Result<Value<'a>> {
    if let Value::String(text) = value {
        budget.take_steps(1 + text.len() / SEARCHED_BYTES_PER_STEP)?;
    }
    let parsed = match (to, value) {
        ("int", Value::Int(_))
        | ("uint", Value::Uint(_))
        | ("double", Value::Double(_))
        | ("string", Value::String(_))
        | ("bytes", Value::Bytes(_))
        | ("bool", Value::Bool(_)) => Some(value.clone()),
        ("int", Value::Uint(number)) => i64::try_from(*number).ok().map(Value::Int),
        ("int", Value::Double(number)) => to_int(*number).map(Value::Int),
        ("int", Value::String(text)) => text.parse().ok().map(Value::Int),
        ("uint", Value::Int(number)) => u64::try_from(*number).ok().map(Value::Uint),
        ("uint", Value::Double(number)) => to_uint(*number).map(Value::Uint),
        ("uint", Value::String(text)) => text.parse().ok().map(Value::Uint),
        ("double", Value::Int(number)) => Some(Value::Double(*number as f64)),
        ("double", Value::Uint(number)) => Some(Value::Double(*number as f64)),
        ("double", Value::String(text)) => {
            if text.len() > SHORT_NUMBER_BYTES {
                budget.take_steps(STEPS_PER_LONG_NUMBER)?;
            }
            text.parse().ok().map(Value::Double)
        }
        ("bool", Value::String(text)) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" => Some(Value::Bool(true)),
            "0" | "f" | "false" | "FALSE" | "False" => Some(Value::Bool(false)),
            _ => None,
        },
        ("bytes", Value::String(text)) => {
            budget.allocate(text.len())?;
            Some(Value::Bytes(text.as_bytes().into()))
        }
        ("string", Value::Bytes(bytes)) => {
            budget.allocate(bytes.len())?;
            std::str::from_utf8(bytes).ok().map(|text| Value::String(Text::Shared(text.into())))
        }
        ("string", Value::Bool(truth)) => Some(text(truth.to_string(), budget)?),
        ("string", Value::Int(number)) => Some(text(number.to_string(), budget)?),
        ("string", Value::Uint(number)) => Some(text(number.to_string(), budget)?),
        ("string", Value::Double(number)) => Some(text(number.to_string(), budget)?),
        _ => None,
    };
    parsed.ok_or(EvaluationError::Error)
}

/// A text that is short.
fn text<'a>(text: String, budget: &mut Budget) -> Result<Value<'a>> {
    budget.allocate(2 * text.len())?;
    Ok(Value::String(Text::Shared(text.into())))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "checked")]
fn to_int(number: f64) -> Option<i64> {
    (number > i64::MIN as f64 && number < i64::MAX as f64).then_some(number as i64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "checked"
)]
fn to_uint(number: f64) -> Option<u64> {
    (number >= 0.0 && number < u64::MAX as f64).then_some(number as u64)
}

/// `value in container`.
pub(super) fn contains_value<'a>(
    container: &Value<'a>,
    value: &Value<'a>,
    budget: &mut Budget,
) -> Result<bool> {
    match container {
        Value::List(list) => list.contains(value, budget),
        Value::Map(map) => match value.clone().lookup_key()? {
            Some(key) => Ok(map.get(&key, budget)?.is_some()),
            None => Ok(false),
        },
        _ => Err(EvaluationError::Error),
    }
}

/// `left + right`.
pub(super) fn add<'a>(left: &Value<'a>, right: &Value<'a>, budget: &mut Budget) -> Result<Value<'a>> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => {
            // Twice: for the text that is built, and for its shared copy.
            budget.allocate(2 * (left.len() + right.len()))?;
            Ok(Value::String(Text::Shared(format!("{}{}", &**left, &**right).into())))
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            budget.allocate(2 * (left.len() + right.len()))?;
            Ok(Value::Bytes([&**left, &**right].concat().into()))
        }
        (Value::List(left), Value::List(right)) => {
            let length = left.len() + right.len();
            budget.allocate_values(length)?;
            let mut values = Vec::with_capacity(length);
            values.extend(left.iter());
            values.extend(right.iter());
            Ok(Value::List(List::Shared(Rc::new(values))))
        }
        _ => arithmetic(operators::ADD, left, right),
    }
}

/// The functions add, subtract, multiply, divide and take the remainder.
type CheckedOperations<N> = [fn(N, N) -> Option<N>; 5];

/// An operator on two integers; `None` where the result does not fit.
fn apply_checked<N>(operator: &str, left: N, right: N, functions: CheckedOperations<N>) -> Option<N> {
    let [add, subtract, multiply, divide, modulo] = functions;
    let function = match operator {
        operators::ADD => add,
        operators::SUBSTRACT => subtract,
        operators::MULTIPLY => multiply,
        operators::DIVIDE => divide,
        operators::MODULO => modulo,
        _ => return None,
    };
    function(left, right)
}

/// An operator on two numbers of the same type.
pub(super) fn arithmetic<'a>(operator: &str, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>> {
    let result = match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            let functions: CheckedOperations<i64> =
                [i64::checked_add, i64::checked_sub, i64::checked_mul, i64::checked_div, i64::checked_rem];
            apply_checked(operator, *left, *right, functions).map(Value::Int)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            let functions: CheckedOperations<u64> =
                [u64::checked_add, u64::checked_sub, u64::checked_mul, u64::checked_div, u64::checked_rem];
            apply_checked(operator, *left, *right, functions).map(Value::Uint)
        }
        (Value::Double(left), Value::Double(right)) => match operator {
            operators::ADD => Some(left + right),
            operators::SUBSTRACT => Some(left - right),
            operators::MULTIPLY => Some(left * right),
            operators::DIVIDE => Some(left / right),
            _ => None,
        }
        .map(Value::Double),
        _ => None,
    };
    result.ok_or(EvaluationError::Error)
}
