//! Health of objects by the expressions of a component: `spec.health.expressions`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kyma_api::{HealthExpression, HelmComponentSpec, Reason};
use kyma_controller::{Expression, ExpressionResult, Failure};
use kyma_health::{Health, HealthStatus};
use kyma_object_set::GroupKind;
use serde_json::Value;

/// Message for an object whose expression exceeds its budget.
const TOO_LARGE: &str = "would take too long";
/// Maximum length of an expression's error in messages, in characters.
const MAX_ERROR_CHARS: usize = 200;

/// The expressions of one component, compiled.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    source: Vec<HealthExpression>,
    rules: BTreeMap<GroupKind, Rule>,
}

#[derive(Debug)]
struct Rule {
    number: usize,
    in_progress: Option<Expression>,
    failed: Option<Expression>,
    current: Expression,
}

impl Rules {
    /// Compiles the expressions of a spec.
    ///
    /// # Errors
    /// An expression is not valid CEL, or two are for the same kind.
    pub(crate) fn of(spec: &HelmComponentSpec) -> Result<Self, Failure> {
        let source = expressions(spec).to_vec();
        let mut rules: BTreeMap<GroupKind, Rule> = BTreeMap::new();
        for (number, one) in source.iter().enumerate() {
            let kind = kind_of(one);
            if let Some(Rule { number: other, .. }) = rules.get(&kind) {
                let message = format!("spec.health.expressions[{number}] and [{other}] are both for {kind}");
                return Err(Failure::new(Reason::SpecInvalid, message));
            }
            rules.insert(kind, Rule::of(number, one)?);
        }
        Ok(Self { source, rules })
    }

    /// Reports whether these are the expressions of this spec.
    pub(crate) fn are_of(&self, spec: &HelmComponentSpec) -> bool {
        self.source == expressions(spec)
    }

    /// Reports whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.rules.is_empty()
    }

    /// Reports whether there is an expression for a kind.
    pub(crate) fn has(&self, kind: &GroupKind) -> bool {
        self.rules.contains_key(kind)
    }

    /// Returns the kinds whose expressions differ between the two.
    pub(crate) fn differing(&self, others: &Self) -> BTreeSet<GroupKind> {
        let said = |rules: &Self, kind: &GroupKind| {
            let number = rules.rules.get(kind)?.number;
            let HealthExpression { in_progress, failed, current, .. } = rules.source.get(number)?.clone();
            Some((in_progress, failed, current))
        };
        let kinds = self.rules.keys().chain(others.rules.keys());
        kinds.filter(|kind| said(self, kind) != said(others, kind)).cloned().collect()
    }

    /// Returns the health of an object of this kind: by its expressions if there are any, and by the built-in rules
    /// otherwise.
    pub(crate) fn assess(&self, kind: &GroupKind, object: &Value, now: Timestamp) -> Health {
        match self.rules.get(kind) {
            Some(rule) => kyma_health::assess_progress(object).unwrap_or_else(|| rule.judge(object)),
            None => kyma_health::assess(object, now),
        }
    }
}

impl Rule {
    fn of(number: usize, one: &HealthExpression) -> Result<Self, Failure> {
        let compile = |field: &str, text: &str| {
            Expression::compile(text).map_err(|error| {
                let why: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
                Failure::new(Reason::SpecInvalid, format!("spec.health.expressions[{number}].{field} {why}"))
            })
        };
        Ok(Self {
            number,
            in_progress: one.in_progress.as_deref().map(|text| compile("inProgress", text)).transpose()?,
            failed: one.failed.as_deref().map(|text| compile("failed", text)).transpose()?,
            current: compile("current", &one.current)?,
        })
    }

    /// Returns the first expression that calls unknown functions, with their names.
    fn unknown_functions(&self) -> Option<String> {
        let fields = [
            ("inProgress", self.in_progress.as_ref()),
            ("failed", self.failed.as_ref()),
            ("current", Some(&self.current)),
        ];
        fields.into_iter().find_map(|(field, expression)| {
            let unknown = expression?.unknown_functions();
            let place = format!("health.expressions[{}].{field}", self.number);
            (!unknown.is_empty()).then(|| format!("{place} calls unknown functions: {}", unknown.join(", ")))
        })
    }

    fn judge(&self, object: &Value) -> Health {
        let says = |status, field: &str, what: &str| {
            Health::new(status, format!("health.expressions[{}].{field} {what}", self.number))
        };
        let earlier = [
            (&self.in_progress, HealthStatus::InProgress, "inProgress"),
            (&self.failed, HealthStatus::Failed, "failed"),
        ];
        for (expression, status, field) in earlier {
            match expression.as_ref().map(|expression| expression.evaluate_object(object)) {
                Some(ExpressionResult::Holds) => return says(status, field, "is true"),
                Some(ExpressionResult::TooLarge) => return says(HealthStatus::Unknown, field, TOO_LARGE),
                Some(ExpressionResult::Fails | ExpressionResult::Unclear) | None => {}
            }
        }
        match self.current.evaluate_object(object) {
            ExpressionResult::Holds => Health::new(HealthStatus::Current, ""),
            ExpressionResult::Fails => says(HealthStatus::InProgress, "current", "is false"),
            ExpressionResult::Unclear => says(
                HealthStatus::Unknown,
                "current",
                "reads a field that the object lacks, calls an unknown function, or does not return a Boolean",
            ),
            ExpressionResult::TooLarge => says(HealthStatus::Unknown, "current", TOO_LARGE),
        }
    }
}

/// Returns the health of an object whose expressions are skipped because they exceeded their budget for another
/// object.
pub(crate) fn too_large() -> Health {
    Health::new(HealthStatus::Unknown, format!("health.expressions {TOO_LARGE} for all objects of this kind"))
}

/// Returns whether an object's expressions exceeded their budget.
pub(crate) fn is_too_large(health: &Health) -> bool {
    health.status == HealthStatus::Unknown && health.message.contains(TOO_LARGE)
}

/// Returns the error in `spec.health.expressions`; `None` if they are valid. A component with such an error is not
/// installed.
pub fn invalid_expressions(spec: &HelmComponentSpec) -> Option<String> {
    Rules::of(spec).err().map(|failure| failure.message)
}

/// Returns an expression in `spec.health.expressions` that calls unknown functions, with their names; `None` if there
/// is none or the expressions are invalid. Such a call cannot be evaluated.
pub fn unknown_functions(spec: &HelmComponentSpec) -> Option<String> {
    Rules::of(spec).ok()?.rules.values().find_map(Rule::unknown_functions)
}

/// Reports whether the spec has an expression for a kind.
pub(crate) fn names(spec: &HelmComponentSpec, kind: &GroupKind) -> bool {
    expressions(spec).iter().any(|one| kind_of(one) == *kind)
}

fn expressions(spec: &HelmComponentSpec) -> &[HealthExpression] {
    spec.health.as_ref().and_then(|health| health.expressions.as_deref()).unwrap_or_default()
}

fn kind_of(one: &HealthExpression) -> GroupKind {
    let group = one.api_version.split_once('/').map_or("", |(group, _)| group);
    GroupKind::new(group, &one.kind)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Rules of a spec with these expressions.
    pub(crate) fn rules(expressions: &Value) -> Result<Rules, Failure> {
        let spec = json!({"source": {}, "health": {"expressions": expressions}});
        Rules::of(&serde_json::from_value(spec).unwrap())
    }

    fn lamp() -> GroupKind {
        GroupKind::new("example.org", "Lamp")
    }

    fn one(more: &Value) -> Value {
        let mut one =
            json!({"apiVersion": "example.org/v1", "kind": "Lamp", "current": "status.phase == 'Lit'"});
        json_patch(&mut one, more);
        one
    }

    fn json_patch(one: &mut Value, more: &Value) {
        let (Value::Object(one), Value::Object(more)) = (one, more) else { return };
        one.extend(more.clone());
    }

    fn assess(more: &Value, object: &Value) -> (HealthStatus, String) {
        let rules = rules(&json!([one(more)])).unwrap();
        let health = rules.assess(&lamp(), object, Timestamp::UNIX_EPOCH);
        (health.status, health.message)
    }

    #[test]
    fn the_first_that_is_true_decides() {
        let all = json!({
            "inProgress": "status.phase in ['Warming', 'Odd']",
            "failed": "self.status.phase in ['Broken', 'Odd']",
            "current": "status.phase in ['Lit', 'Broken', 'Odd']",
        });
        for (phase, expected) in [
            ("Warming", HealthStatus::InProgress),
            ("Odd", HealthStatus::InProgress),
            ("Broken", HealthStatus::Failed),
            ("Lit", HealthStatus::Current),
            ("Dark", HealthStatus::InProgress),
        ] {
            assert_eq!(assess(&all, &json!({"status": {"phase": phase}})).0, expected, "{phase}");
        }
    }

    #[test]
    fn an_expression_that_reads_a_missing_field_is_false() {
        let more = json!({"inProgress": "status.a == 1", "failed": "status.b == 1", "current": "metadata.name == 'l'"});
        assert_eq!(assess(&more, &json!({"metadata": {"name": "l"}})).0, HealthStatus::Current);
        let (status, message) = assess(&json!({}), &json!({"metadata": {}}));
        assert_eq!(status, HealthStatus::Unknown);
        assert_eq!(
            message,
            "health.expressions[0].current reads a field that the object lacks, calls an unknown function, or \
             does not return a Boolean"
        );
        let unknown = json!({"current": "status.phase.lowerAscii() == 'lit'"});
        assert_eq!(assess(&unknown, &json!({"status": {"phase": "Lit"}})), (HealthStatus::Unknown, message));
        assert_eq!(
            assess(&json!({"current": "status.phase"}), &json!({"status": {"phase": "Lit"}})).0,
            HealthStatus::Unknown
        );
        let guarded = json!({"current": "has(self.status) && status.phase == 'Lit'"});
        let (status, message) = assess(&guarded, &json!({"metadata": {}}));
        assert_eq!(
            (status, message.as_str()),
            (HealthStatus::InProgress, "health.expressions[0].current is false")
        );
    }

    #[test]
    fn expressions_do_not_count_for_deleted_or_unobserved_objects() {
        let lit = |metadata: Value| json!({"metadata": metadata, "status": {"phase": "Lit", "observedGeneration": 1}});
        let none = json!({});
        assert_eq!(assess(&none, &lit(json!({"generation": 1}))).0, HealthStatus::Current);
        assert_eq!(assess(&none, &lit(json!({"generation": 2}))).0, HealthStatus::InProgress);
        let going = lit(json!({"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert_eq!(assess(&none, &going).0, HealthStatus::Terminating);
        let stalled =
            json!({"status": {"phase": "Lit", "conditions": [{"type": "Stalled", "status": "True"}]}});
        assert_eq!(assess(&none, &stalled).0, HealthStatus::Current, "the expression knows better");
    }

    #[test]
    fn expression_that_costs_too_much_makes_the_health_unknown() {
        let nested = "status.parts.all(a, status.parts.all(b, a == b))";
        let parts = json!({"status": {"parts": vec!["a"; 1_000]}});
        let (status, message) = assess(&json!({"current": nested}), &parts);
        assert_eq!(status, HealthStatus::Unknown);
        assert_eq!(message, "health.expressions[0].current would take too long");
        let (status, message) = assess(&json!({"failed": nested, "current": "true"}), &parts);
        assert_eq!(status, HealthStatus::Unknown, "a failure must not count as health");
        assert_eq!(message, "health.expressions[0].failed would take too long");
    }

    #[test]
    fn invalid_cel_is_refused_with_its_field_path() {
        let refused = |expressions: Value| rules(&expressions).map(drop).unwrap_err();
        for field in ["inProgress", "failed", "current"] {
            let failure = refused(
                json!([{"apiVersion": "v1", "kind": "A", "current": "true"}, one(&json!({field: "status.phase =="}))]),
            );
            assert_eq!(failure.reason, Reason::SpecInvalid);
            let place = format!("spec.health.expressions[1].{field} is not valid CEL: ");
            assert!(failure.message.starts_with(&place), "{failure}");
            assert!(failure.message.len() < 300, "{failure}");
        }
        let twice = refused(json!([one(&json!({})), one(&json!({"apiVersion": "example.org/v2"}))]));
        assert_eq!(twice.message, "spec.health.expressions[1] and [0] are both for Lamp.example.org");
    }

    #[test]
    fn rules_differ_where_they_say_something_else() {
        let before = rules(&json!([one(&json!({}))])).unwrap();
        let moved =
            rules(&json!([{"apiVersion": "v1", "kind": "A", "current": "true"}, one(&json!({}))])).unwrap();
        assert_eq!(before.differing(&moved), [GroupKind::new("", "A")].into());
        let other = rules(&json!([one(&json!({"failed": "false"}))])).unwrap();
        assert_eq!(before.differing(&other), [lamp()].into());
        assert_eq!(Rules::default().differing(&before), [lamp()].into());
        assert_eq!(before.differing(&before), BTreeSet::new());
    }
}
