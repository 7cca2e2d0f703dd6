//! One rule: CEL about an entry, judged within bounds.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, Program};
use kyma_api::ConfigRule;
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

/// How deep an expression may be nested, operators included.
const DEPTH: usize = 48;
/// How many steps the loops of an expression may take over an entry.
const STEPS: usize = 1_000_000;
/// Characters that are looked through in one step.
const STEP_CHARS: usize = 256;
/// What an expression calls the entry.
const ENTRY: &str = "self";

/// A rule that can be judged.
#[derive(Debug)]
pub(crate) struct Rule {
    /// What the user reads when it does not hold.
    message: String,
    program: Program,
    /// How many loops are inside of each other.
    loops: u32,
}

/// Why a rule can never be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    /// It is no CEL.
    #[error("is no CEL: {0}")]
    Syntax(String),
    /// It is nested deeper than [`DEPTH`].
    #[error("is nested deeper than {DEPTH} levels: split it into several rules")]
    TooDeep,
}

impl Rule {
    /// Compiles a rule.
    pub(crate) fn compile(rule: ConfigRule) -> Result<Self, RuleError> {
        let program = Program::compile(&rule.expression)
            .map_err(|errors| RuleError::Syntax(errors.to_string().replace('\n', " ")))?;
        let Shape { depth, loops } = shape(program.expression());
        if depth > DEPTH {
            return Err(RuleError::TooDeep);
        }
        Ok(Self { message: rule.message, program, loops })
    }

    /// What the user has to hear about an entry; none where the rule holds. A rule that cannot be judged does not hold.
    /// Values never appear.
    pub(crate) fn objection(&self, entry: &Value) -> Option<String> {
        if steps(entry, self.loops) > STEPS {
            return Some(format!(
                "{} (the entry is too large to be judged: shorten its values)",
                self.message
            ));
        }
        let mut context = Context::default();
        let judged =
            context.add_variable(ENTRY, Entry(entry)).ok().and_then(|()| self.program.execute(&context).ok());
        match judged {
            Some(cel::Value::Bool(true)) => None,
            Some(cel::Value::Bool(false)) => Some(self.message.clone()),
            _ => Some(format!(
                "{} (the entry lacks what the rule looks at, or has it in another type)",
                self.message
            )),
        }
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

/// How many steps so many loops inside of each other may take over the entry.
fn steps(entry: &Value, loops: u32) -> usize {
    let (mut values, mut longest) = (0_usize, 0);
    let mut open = vec![entry];
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

    fn rule(expression: &str) -> Result<Rule, RuleError> {
        Rule::compile(ConfigRule { expression: expression.to_owned(), message: "no".to_owned() })
    }

    fn objection(expression: &str, entry: &Value) -> Option<String> {
        rule(expression).unwrap().objection(entry)
    }

    #[test]
    fn an_entry_is_judged_as_in_kubernetes() {
        let entry = json!({
            "name": "keda", "channel": "fast", "managed": true, "upgrade": {"mode": "Manual"},
            "values": {"replicas": 3, "share": 0.5, "hosts": ["a.example.com", "b.example.com"], "debug": false},
        });
        let holds = [
            "self.channel != 'experimental'",
            "self.managed",
            "!has(self.version)",
            "!has(self.values.debug) || !self.values.debug",
            "self.values.replicas <= 3 && self.values.replicas * 2 == 6",
            "self.values.share < 1.0",
            "self.values.hosts.all(host, host.endsWith('.example.com'))",
            "self.values.hosts.exists(host, host.matches('^a[.]'))",
            "self.upgrade.mode in ['Manual', 'Automatic']",
            "size(self.values.hosts) == 2",
        ];
        for expression in holds {
            assert_eq!(objection(expression, &entry), None, "{expression}");
        }
        assert_eq!(objection("self.values.replicas > 3", &entry).as_deref(), Some("no"));
    }

    #[test]
    fn what_cannot_be_judged_does_not_hold_and_tells_no_value() {
        let entry = json!({"values": {"password": "hunter2"}});
        for expression in
            ["self.values.replicas < 3", "self.values.password + 1 > 2", "'text'", "other.channel == ''"]
        {
            let said = objection(expression, &entry).unwrap();
            assert!(said.starts_with("no (the entry lacks"), "{expression}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn a_rule_that_is_no_cel_is_refused() {
        for expression in ["self.channel ==", "((", "self.channel = 'a'", ""] {
            assert!(matches!(rule(expression), Err(RuleError::Syntax(_))), "{expression}");
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_refused_and_the_deepest_is_judged_on_a_small_stack() {
        let sum = |terms: usize| format!("{}1 > 0", "1 + ".repeat(terms));
        assert_eq!(rule(&sum(1_000)).err(), Some(RuleError::TooDeep));
        let judge = move || {
            let deepest = rule(&sum(DEPTH - 3)).unwrap();
            deepest.objection(&json!({}))
        };
        let small = std::thread::Builder::new().stack_size(1 << 20).spawn(judge).unwrap();
        assert_eq!(small.join().unwrap(), None);
        assert!(rule(&format!("{}1{}", "[".repeat(2_000), "]".repeat(2_000))).is_err());
    }

    #[test]
    fn a_large_entry_is_not_looped_over_in_loops() {
        let each_with_each = "self.values.list.all(a, self.values.list.exists(b, a == b))";
        let entry = |length: usize| json!({"values": {"list": vec![1; length]}});
        assert_eq!(objection(each_with_each, &entry(100)), None);
        let said = objection(each_with_each, &entry(30_000)).unwrap();
        assert!(said.contains("too large"), "{said}");
        assert_eq!(objection("self.values.list.all(a, a == 1)", &entry(30_000)), None, "once is fine");
    }
}
