//! Evaluates a syntax tree within a budget. Each node, element and compared or copied part of a text takes a step.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue};
use cel::common::ast::{MapExpr, SelectExpr, operators};

use super::budget::{Budget, EvaluationError};
use super::functions;
use super::loops::{AppendStep, short_circuit_value};
use super::parse::Tree;
use super::pattern::Patterns;
use super::value::{Key, List, MAP_ENTRY_BYTES, MAP_NODE_BYTES, Map, Text, Value};

type Result<T> = std::result::Result<T, EvaluationError>;

/// Variables of loops that are compared with a short name in one step.
const SCOPES_PER_STEP: usize = 8;
/// Memory that one entry of the constants takes: a tree node may be half empty.
const CONSTANT_BYTES: usize = 2 * (size_of::<u64>() + size_of::<List<'_>>());

/// One evaluation.
#[derive(Debug)]
pub(super) struct Evaluation<'a> {
    /// Variables that were given.
    variables: BTreeMap<&'a str, Value<'a>>,
    /// Variables of the loops around the current node, the innermost last.
    scopes: Vec<(&'a str, Value<'a>)>,
    /// The nodes that are lists of literals, by id.
    constant_nodes: &'a BTreeSet<u64>,
    /// Lists of literals by the id of their nodes, once they are built.
    constants: BTreeMap<u64, List<'a>>,
    pub(super) budget: Budget,
    pub(super) patterns: Patterns,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(tree: &'a Tree, variables: BTreeMap<&'a str, Value<'a>>, budget: Budget) -> Self {
        Self {
            variables,
            scopes: vec![],
            constant_nodes: &tree.constants,
            constants: BTreeMap::new(),
            budget,
            patterns: Patterns::default(),
        }
    }

    /// The value of a node.
    pub(super) fn evaluate(&mut self, node: &'a IdedExpr) -> Result<Value<'a>> {
        self.budget.take_steps(1)?;
        match &node.expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) if list.optional_indices.is_empty() => self.list(node.id, list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            // There are no message types.
            Expr::List(_) | Expr::Struct(_) | Expr::Unspecified => Err(EvaluationError::Error),
        }
    }

    fn literal(&mut self, literal: &'a LiteralValue) -> Result<Value<'a>> {
        Ok(match literal {
            LiteralValue::Boolean(truth) => Value::Bool(*truth.inner()),
            LiteralValue::Bytes(bytes) => {
                self.budget.allocate(bytes.inner().len())?;
                Value::Bytes(bytes.inner().into())
            }
            LiteralValue::Double(number) => Value::Double(*number.inner()),
            LiteralValue::Int(number) => Value::Int(*number.inner()),
            LiteralValue::Null => Value::Null,
            LiteralValue::String(text) => Value::String(Text::Borrowed(text.inner())),
            LiteralValue::UInt(number) => Value::Uint(*number.inner()),
        })
    }

    fn list(&mut self, id: u64, list: &'a ListExpr) -> Result<Value<'a>> {
        if let Some(list) = self.constants.get(&id) {
            return Ok(Value::List(list.clone()));
        }
        self.budget.allocate_values(list.elements.len())?;
        let list = List::Shared(Rc::new(self.evaluate_all(&list.elements)?));
        if self.constant_nodes.contains(&id) {
            self.budget.allocate(CONSTANT_BYTES)?;
            self.constants.insert(id, list.clone());
        }
        Ok(Value::List(list))
    }

    /// Returns the values of nodes, in a vector without spare capacity, which would take memory that is not counted.
    fn evaluate_all(&mut self, nodes: &'a [IdedExpr]) -> Result<Vec<Value<'a>>> {
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            values.push(self.evaluate(node)?);
        }
        Ok(values)
    }

    fn variable(&mut self, name: &str) -> Result<Value<'a>> {
        // A name is compared with those of all loops around it.
        let parts = name.len() / 32;
        self.budget.take_steps(parts + self.scopes.len() * (1 + parts) / SCOPES_PER_STEP)?;
        if let Some((_, value)) = self.scopes.iter().rev().find(|(scoped, _)| *scoped == name) {
            return Ok(value.clone());
        }
        // A name without its leading dot; those of loops are not absolute.
        let name = name.strip_prefix('.').unwrap_or(name);
        match self.variables.get(name) {
            Some(value) => Ok(value.clone()),
            None => functions::type_of_name(name).map(Value::Type).ok_or(EvaluationError::Error),
        }
    }

    fn select(&mut self, select: &'a SelectExpr) -> Result<Value<'a>> {
        let operand = self.evaluate(&select.operand)?;
        let (map, is_optional) = match operand {
            Value::Map(map) => (map, false),
            Value::Optional(None) if select.test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => match &*value {
                Value::Map(map) => (map.clone(), true),
                _ => return Err(EvaluationError::Error),
            },
            _ => return Err(EvaluationError::Error),
        };
        let found = map.get(&Key::String(Text::Borrowed(&select.field)), &mut self.budget)?;
        match (select.test, is_optional) {
            (true, _) => Ok(Value::Bool(found.is_some())),
            (false, true) => self.optional(found),
            (false, false) => found.ok_or(EvaluationError::Error),
        }
    }

    fn optional(&mut self, value: Option<Value<'a>>) -> Result<Value<'a>> {
        self.budget.allocate_values(1)?;
        Ok(Value::Optional(value.map(Rc::new)))
    }

    fn map(&mut self, map: &'a MapExpr) -> Result<Value<'a>> {
        // An empty map has no tree; the first node of a tree has room for several entries.
        self.budget.allocate(if map.entries.is_empty() { 0 } else { MAP_NODE_BYTES })?;
        let mut entries = BTreeMap::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(EvaluationError::Error) };
            if entry.optional {
                return Err(EvaluationError::Error);
            }
            self.budget.allocate(MAP_ENTRY_BYTES)?;
            let key = self.evaluate(&entry.key)?.literal_key()?;
            let value = self.evaluate(&entry.value)?;
            self.budget.take_steps(entries.len().checked_ilog2().unwrap_or(0) as usize)?;
            if let Key::String(text) = &key {
                self.budget.read_text(text.len())?;
            }
            if entries.insert(key, value).is_some() {
                return Err(EvaluationError::Error);
            }
        }
        Ok(Value::Map(Map::Shared(Rc::new(entries))))
    }

    fn call(&mut self, call: &'a CallExpr) -> Result<Value<'a>> {
        match (&call.target, call.args.as_slice()) {
            (None, [condition, then, otherwise]) if call.func_name == operators::CONDITIONAL => {
                match self.evaluate(condition)? {
                    Value::Bool(true) => self.evaluate(then),
                    Value::Bool(false) => self.evaluate(otherwise),
                    _ => Err(EvaluationError::Error),
                }
            }
            (None, [left, right]) if call.func_name == operators::LOGICAL_AND => {
                self.evaluate_logical(left, right, false)
            }
            (None, [left, right]) if call.func_name == operators::LOGICAL_OR => {
                self.evaluate_logical(left, right, true)
            }
            (None, [operand]) if call.func_name == operators::NOT_STRICTLY_FALSE => {
                Ok(Value::Bool(!matches!(self.evaluate_absorbing_errors(operand)?, Some(Value::Bool(false)))))
            }
            (None, [left, right]) => {
                let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
                match self.binary(&call.func_name, &left, &right)? {
                    Some(value) => Ok(value),
                    None => functions::call(
                        &mut self.budget,
                        &mut self.patterns,
                        &call.func_name,
                        None,
                        &[left, right],
                    ),
                }
            }
            (target, arguments) => {
                let arguments = self.evaluate_all(arguments)?;
                let target = match target.as_deref() {
                    Some(IdedExpr { expr: Expr::Ident(name), .. })
                        if functions::is_namespace(name, &call.func_name) =>
                    {
                        return functions::call_optional(&call.func_name, arguments, &mut self.budget);
                    }
                    Some(target) => Some(self.evaluate(target)?),
                    None => None,
                };
                functions::call(
                    &mut self.budget,
                    &mut self.patterns,
                    &call.func_name,
                    target.as_ref(),
                    &arguments,
                )
            }
        }
    }

    /// Evaluates `&&` or `||`. An operand that decides the result absorbs an error of the other.
    fn evaluate_logical(
        &mut self,
        left: &'a IdedExpr,
        right: &'a IdedExpr,
        decides: bool,
    ) -> Result<Value<'a>> {
        let left = self.evaluate_absorbing_errors(left)?;
        if matches!(left, Some(Value::Bool(truth)) if truth == decides) {
            return Ok(Value::Bool(decides));
        }
        let right = self.evaluate(right)?;
        match (left, right) {
            (_, Value::Bool(truth)) if truth == decides => Ok(Value::Bool(decides)),
            (Some(Value::Bool(_)), Value::Bool(_)) => Ok(Value::Bool(!decides)),
            _ => Err(EvaluationError::Error),
        }
    }

    /// Evaluates a node and returns `None` for an error. Returns `Exhausted` unchanged.
    fn evaluate_absorbing_errors(&mut self, node: &'a IdedExpr) -> Result<Option<Value<'a>>> {
        match self.evaluate(node) {
            Ok(value) => Ok(Some(value)),
            Err(EvaluationError::Error) => Ok(None),
            Err(EvaluationError::Exhausted) => Err(EvaluationError::Exhausted),
        }
    }

    /// Returns the value of a binary operator, or `None` if `operator` is not one.
    fn binary(&mut self, operator: &str, left: &Value<'a>, right: &Value<'a>) -> Result<Option<Value<'a>>> {
        let ordered = |ordering: Result<Ordering>, holds: fn(Ordering) -> bool| {
            ordering.map(|ordering| Some(Value::Bool(holds(ordering))))
        };
        let budget = &mut self.budget;
        match operator {
            operators::EQUALS => left.equals(right, budget).map(|equal| Some(Value::Bool(equal))),
            operators::NOT_EQUALS => left.equals(right, budget).map(|equal| Some(Value::Bool(!equal))),
            operators::LESS => ordered(left.compare(right, budget), Ordering::is_lt),
            operators::LESS_EQUALS => ordered(left.compare(right, budget), Ordering::is_le),
            operators::GREATER => ordered(left.compare(right, budget), Ordering::is_gt),
            operators::GREATER_EQUALS => ordered(left.compare(right, budget), Ordering::is_ge),
            operators::IN => {
                functions::contains_value(right, left, budget).map(|is_in| Some(Value::Bool(is_in)))
            }
            operators::INDEX => self.index(left, right).map(Some),
            operators::ADD => functions::add(left, right, budget).map(Some),
            operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO => {
                functions::arithmetic(operator, left, right).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn index(&mut self, container: &Value<'a>, index: &Value<'a>) -> Result<Value<'a>> {
        match container {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(container)) => {
                let element = self.element(container, index)?;
                self.optional(element)
            }
            _ => self.element(container, index)?.ok_or(EvaluationError::Error),
        }
    }

    /// Returns the element of a list or a map; `None` if it has none at this index.
    ///
    /// # Errors
    /// The container is of another type, or cannot have an index of this type.
    fn element(&mut self, container: &Value<'a>, index: &Value<'a>) -> Result<Option<Value<'a>>> {
        match (container, index) {
            (Value::List(list), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
                Ok(index.as_index().and_then(|index| list.get(index)))
            }
            (Value::Map(map), _) => match index.clone().lookup_key()? {
                Some(key) => map.get(&key, &mut self.budget),
                None => Ok(None),
            },
            _ => Err(EvaluationError::Error),
        }
    }

    fn comprehension(&mut self, each: &'a ComprehensionExpr) -> Result<Value<'a>> {
        let range = self.evaluate(&each.iter_range)?;
        let elements = match range {
            Value::List(list) => list,
            Value::Map(map) => List::Shared(Rc::new(map.keys(&mut self.budget)?)),
            _ => return Err(EvaluationError::Error),
        };
        let initial = self.evaluate(&each.accu_init)?;
        if each.iter_var2.is_some() {
            return Err(EvaluationError::Error);
        }
        let depth = self.scopes.len();
        self.scopes.push((&each.accu_var, initial));
        self.scopes.push((&each.iter_var, Value::Null));
        let result = match AppendStep::of(each) {
            Some(append) => self.append_each(&append, &elements, depth),
            None => self.fold_each(each, &elements, depth),
        };
        self.scopes.truncate(depth);
        result
    }

    /// Runs a loop that only appends to a list, as those of `map` and `filter` do, without a copy for each element.
    fn append_each(
        &mut self,
        append: &AppendStep<'a>,
        elements: &List<'a>,
        depth: usize,
    ) -> Result<Value<'a>> {
        // The list itself, which may stay empty.
        self.budget.allocate(0)?;
        let mut values = vec![];
        for element in elements.iter() {
            self.budget.take_steps(1)?;
            self.scopes[depth + 1].1 = element;
            match append.condition.map(|condition| self.evaluate(condition)).transpose()? {
                None | Some(Value::Bool(true)) => {
                    let value = self.evaluate(append.value)?;
                    // A vector that grows has a second one of up to twice the size beside it.
                    self.budget.allocate(3 * size_of::<Value<'_>>())?;
                    values.push(value);
                }
                Some(Value::Bool(false)) => {}
                Some(_) => return Err(EvaluationError::Error),
            }
        }
        Ok(Value::List(List::Shared(Rc::new(values))))
    }

    fn fold_each(
        &mut self,
        each: &'a ComprehensionExpr,
        elements: &List<'a>,
        depth: usize,
    ) -> Result<Value<'a>> {
        let decides = short_circuit_value(each);
        let mut has_failed = false;
        for element in elements.iter() {
            match self.evaluate(&each.loop_cond)? {
                Value::Bool(true) => {}
                Value::Bool(false) => break,
                _ => return Err(EvaluationError::Error),
            }
            self.scopes[depth + 1].1 = element;
            match (self.evaluate(&each.loop_step), decides) {
                (Err(EvaluationError::Error), Some(_)) => has_failed = true,
                (Err(stop), _) => return Err(stop),
                // `error && true` stays the error, `error && false` is false.
                (Ok(value), Some(decides)) => {
                    if !has_failed || matches!(value, Value::Bool(truth) if truth == decides) {
                        has_failed = false;
                        self.scopes[depth].1 = value;
                    }
                }
                (Ok(value), None) => self.scopes[depth].1 = value,
            }
        }
        if has_failed { Err(EvaluationError::Error) } else { self.evaluate(&each.result) }
    }
}
