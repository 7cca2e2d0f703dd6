//! A condition in CEL over JSON, judged within bounds.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, Program};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

/// How deep an expression may be nested, operators included.
const DEPTH: usize = 48;
/// How many steps the loops of an expression may take over its variables.
const STEPS: usize = 1_000_000;
/// Characters that are looked through in one step.
const STEP_CHARS: usize = 256;

/// A condition that can be judged.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    /// How many loops are inside of each other.
    loops: u32,
    /// How many steps they may take.
    steps: usize,
}

/// Why a text can never be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// It is no CEL.
    #[error("is no CEL: {0}")]
    Syntax(String),
    /// It is nested deeper than 48 levels.
    #[error("is nested deeper than {DEPTH} levels: split it")]
    TooDeep,
}

/// What an expression says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It holds.
    Holds,
    /// It does not hold.
    Fails,
    /// The variables lack what it looks at, or have it in another type; or it is no condition.
    Unclear,
    /// Its loops would take too long over the variables: they were not judged.
    TooLarge,
}

impl Expression {
    /// Compiles a text.
    ///
    /// # Errors
    /// It is no CEL, or nested too deep.
    pub fn compile(text: &str) -> Result<Self, ExpressionError> {
        let program = Program::compile(text)
            .map_err(|errors| ExpressionError::Syntax(errors.to_string().replace('\n', " ")))?;
        let Shape { depth, loops } = shape(program.expression());
        if depth > DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        Ok(Self { program, loops, steps: STEPS })
    }

    /// The same with fewer steps than a million for its loops: of what is judged often, or comes from a target.
    #[must_use]
    pub fn within(self, steps: usize) -> Self {
        Self { steps, ..self }
    }

    /// Judges variables, each by its name.
    pub fn judge(&self, variables: &[(&str, &Value)]) -> Judgement {
        if steps(variables, self.loops) > self.steps {
            return Judgement::TooLarge;
        }
        let mut context = Context::default();
        for (name, value) in variables {
            if context.add_variable(*name, Entry(value)).is_err() {
                return Judgement::Unclear;
            }
        }
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(true)) => Judgement::Holds,
            Ok(cel::Value::Bool(false)) => Judgement::Fails,
            _ => Judgement::Unclear,
        }
    }

    /// Judges an object of Kubernetes: `self` is all of it, and its fields have their own names too.
    pub fn judge_object(&self, object: &Value) -> Judgement {
        let fields = object.as_object().into_iter().flatten();
        let fields = fields.map(|(name, value)| (name.as_str(), value));
        let named = self.program.references();
        let all = std::iter::once(("self", object)).chain(fields);
        let variables: Vec<(&str, &Value)> = all.filter(|(name, _)| named.has_variable(name)).collect();
        self.judge(&variables)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shape {
    depth: usize,
    loops: u32,
}

/// Without recursion: nothing bounds what was parsed yet.
fn shape(root: &IdedExpr) -> Shape {
    let mut found = Shape::default();
    let mut open = vec![(root, Shape { depth: 1, loops: 0 })];
    while let Some((node, at)) = open.pop() {
        found = Shape { depth: found.depth.max(at.depth), loops: found.loops.max(at.loops) };
        let below = Shape { depth: at.depth + 1, ..at };
        match &node.expr {
            Expr::Comprehension(each) => {
                open.extend([&each.iter_range, &each.accu_init, &each.result].map(|part| (part, below)));
                let inside = Shape { loops: at.loops + 1, ..below };
                open.extend([&each.loop_cond, &each.loop_step].map(|part| (part, inside)));
            }
            Expr::Call(call) => {
                open.extend(call.target.iter().map(|target| (&**target, below)));
                open.extend(call.args.iter().map(|argument| (argument, below)));
            }
            Expr::List(list) => open.extend(list.elements.iter().map(|element| (element, below))),
            Expr::Map(map) => {
                open.extend(
                    map.entries.iter().flat_map(|entry| parts(&entry.expr)).map(|part| (part, below)),
                );
            }
            Expr::Struct(made) => {
                open.extend(
                    made.entries.iter().flat_map(|entry| parts(&entry.expr)).map(|part| (part, below)),
                );
            }
            Expr::Select(select) => open.push((&select.operand, below)),
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
        }
    }
    found
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(pair) => vec![&pair.key, &pair.value],
    }
}

/// How many steps so many loops inside of each other may take over the variables.
fn steps(variables: &[(&str, &Value)], loops: u32) -> usize {
    let (mut values, mut longest) = (0_usize, 0);
    let mut open: Vec<&Value> = variables.iter().map(|(_, value)| *value).collect();
    while let Some(value) = open.pop() {
        values += 1;
        match value {
            Value::String(text) => longest = longest.max(text.len()),
            Value::Array(list) => open.extend(list),
            Value::Object(map) => open.extend(map.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    values.saturating_pow(loops).saturating_mul(1 + longest / STEP_CHARS)
}

/// JSON as CEL has it in Kubernetes: whole numbers are `int`.
struct Entry<'a>(&'a Value);

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => match number.as_i64() {
                Some(whole) => serializer.serialize_i64(whole),
                None => number.serialize(serializer),
            },
            Value::Array(list) => serializer.collect_seq(list.iter().map(Entry)),
            Value::Object(map) => serializer.collect_map(map.iter().map(|(key, value)| (key, Entry(value)))),
            simple => simple.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_judged_by_itself_or_by_its_fields() {
        let object = json!({"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let judged = |text: &str| Expression::compile(text).unwrap().judge_object(&object);
        for text in [
            "status.conditions.exists(one, one.type == 'Ready' && one.status == 'True')",
            "self.status.conditions[0].status == 'True' && metadata.name == 'a'",
            "!has(self.spec)",
        ] {
            assert_eq!(judged(text), Judgement::Holds, "{text}");
        }
        assert_eq!(judged("metadata.name == 'b'"), Judgement::Fails);
        assert_eq!(judged("status.version == '1'"), Judgement::Unclear);
        assert_eq!(judged("spec.version == '1'"), Judgement::Unclear);
    }

    #[test]
    fn a_loop_that_would_take_more_steps_than_it_may_is_not_judged() {
        let object = json!({"status": {"parts": vec!["a"; 100]}});
        let judged = |text: &str| Expression::compile(text).unwrap().within(1_000).judge_object(&object);
        let nested = "status.parts.all(a, status.parts.all(b, a == b))";
        assert_eq!(judged("status.parts.all(a, a == 'a')"), Judgement::Holds);
        assert_eq!(judged(nested), Judgement::TooLarge);
        assert_eq!(Expression::compile(nested).unwrap().judge_object(&object), Judgement::Holds);
    }
}
