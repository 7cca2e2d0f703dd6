//! A CEL rule for entries, evaluated within limits.

use kyma_api::ConfigRule;
use kyma_controller::{Expression, ExpressionError as RuleError, ExpressionResult};
use serde_json::Value;

/// Name of the entry in expressions.
const ENTRY_VARIABLE: &str = "self";

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Message for a violation.
    message: String,
    expression: Expression,
}

impl Rule {
    /// Compiles a rule.
    pub(crate) fn compile(rule: ConfigRule) -> Result<Self, RuleError> {
        Ok(Self { message: rule.message, expression: Expression::compile(&rule.expression)? })
    }

    /// Returns the message if the entry violates the rule or the rule cannot be evaluated. Subtracts the cost from
    /// `steps`; a rule without remaining steps is not evaluated. Messages contain no values.
    pub(crate) fn objection(&self, entry: &Value, steps: &mut u64) -> Option<String> {
        let judgement = if *steps == 0 {
            ExpressionResult::TooLarge
        } else {
            let (judgement, cost) = self.expression.evaluate_with_cost(&[(ENTRY_VARIABLE, entry)]);
            *steps = steps.saturating_sub(cost.steps);
            judgement
        };
        match judgement {
            ExpressionResult::Holds => None,
            ExpressionResult::Fails => Some(self.message.clone()),
            ExpressionResult::Unclear => Some(format!(
                "{} (the entry lacks a field that the rule reads, the field has another type, or the rule calls an \
                 unknown function)",
                self.message
            )),
            ExpressionResult::TooLarge => {
                Some(format!("{} (the entry is too large to be evaluated: shorten its values)", self.message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Maximum nesting depth of an expression.
    const DEPTH: usize = 48;

    fn rule(expression: &str) -> Result<Rule, RuleError> {
        Rule::compile(ConfigRule { expression: expression.to_owned(), message: "no".to_owned() })
    }

    fn objection(expression: &str, entry: &Value) -> Option<String> {
        rule(expression).unwrap().objection(entry, &mut u64::MAX.clone())
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
    fn rule_that_fails_to_evaluate_refuses_without_naming_values() {
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
    fn a_rule_that_calls_an_unknown_function_says_so() {
        let entry = json!({"channel": "fast"});
        let said = objection("self.channel.lowerAscii() == 'fast'", &entry).unwrap();
        assert!(said.contains("unknown function"), "{said}");
    }

    #[test]
    fn a_rule_that_is_no_cel_is_refused() {
        for expression in ["self.channel ==", "((", "self.channel = 'a'", ""] {
            assert!(matches!(rule(expression), Err(RuleError::Syntax(_))), "{expression}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_or_evaluated_on_a_small_stack() {
        let sum = |terms: usize| format!("{}1 > 0", "1 + ".repeat(terms));
        assert_eq!(rule(&sum(1_000)).err(), Some(RuleError::TooDeep));
        let judge = move || {
            let deepest = rule(&sum(DEPTH - 3)).unwrap();
            deepest.objection(&json!({}), &mut u64::MAX.clone())
        };
        let small = std::thread::Builder::new().stack_size(1 << 20).spawn(judge).unwrap();
        assert_eq!(small.join().unwrap(), None);
        assert!(rule(&format!("{}1{}", "[".repeat(2_000), "]".repeat(2_000))).is_err());
    }

    #[test]
    fn rules_share_the_steps_of_a_kyma() {
        let mut steps = 1;
        let rule = rule("self.name == 'keda'").unwrap();
        let entry = json!({"name": "keda"});
        assert_eq!(rule.objection(&entry, &mut steps), None, "the last one is evaluated to its end");
        assert_eq!(steps, 0);
        assert!(rule.objection(&entry, &mut steps).unwrap().contains("too large"));
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
