//! Cost of the paths whose work exceeds their number of nodes.

use super::super::value::{self, MAP_NODE_BYTES};
use super::*;

/// Memory that a list takes beside its elements.
const LIST_BYTES: usize = 40;

fn cost(text: &str, object: &Value) -> EvaluationCost {
    let expression = Expression::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    expression.evaluate_with_cost(&[("self", object)]).1
}

/// Cost of searching a text with a pattern.
fn cost_of_match(pattern: &str, text: &str) -> EvaluationCost {
    cost("self.text.matches(self.pattern)", &json!({"text": text, "pattern": pattern}))
}

#[test]
fn small_maps_take_the_node_of_their_tree() {
    let maps = cost("[0,0,0,0,0,0,0,0].map(x, {1: {2: {3: x}}}).size() == 8", &json!(null));
    assert!(maps.allocated_bytes >= 8 * 3 * MAP_NODE_BYTES, "{maps:?}");
    let growing = ".map(x, {1: {1: {1: {1: {1: {1: x}}}}}})";
    let text = format!("self{growing} == self{growing}");
    assert_eq!(
        Expression::compile(&text).unwrap().evaluate(&[("self", &json!(vec![0; 1_000]))]),
        ExpressionResult::TooLarge
    );
}

#[test]
fn empty_maps_and_empty_results_take_memory() {
    for empty in ["{}", "[].map(y, y)", "[].filter(y, y)"] {
        let empties = cost(&format!("[{}].size() == 100", vec![empty; 100].join(",")), &json!(null));
        assert!(empties.allocated_bytes >= 100 * (size_of::<value::Value<'_>>() + LIST_BYTES), "{empties:?}");
    }
}

#[test]
fn name_is_sought_in_all_loops_around_it() {
    let nested = |body: &str| {
        let open: String = (10..30).map(|at| format!("[1].all(v{at},")).collect();
        cost(&format!("{open}{body}{}", ")".repeat(20)), &json!(null)).steps
    };
    assert!(nested("v10 == v11") >= nested("1 == 1") + 10);
}

#[test]
fn long_number_takes_the_steps_of_its_digits() {
    let double = |text: String| cost("double(self) > 0.0", &json!(text)).steps;
    let long = double("1".repeat(20) + "e-300");
    assert!(long >= 1_000 && double("1.5e-300".to_owned()) < 100, "{long}");
    assert!(double("0".repeat(80_000) + "1") >= 10_000);
    assert!(cost("int(self) == 1", &json!("0".repeat(80_000) + "1")).steps >= 10_000);
}

#[test]
fn pattern_takes_the_steps_of_all_that_it_compares() {
    let words = "a ".repeat(200);
    let boundaries = cost_of_match(&format!("{}y", "\\b".repeat(100)), &words);
    assert!(boundaries.steps >= 400 * 100, "{boundaries:?}");
    // The compiler keeps alternatives that are equal.
    let empty = cost_of_match(&format!("(?:{}a){{8}}y", "|".repeat(300)), &words[..100]);
    assert!(empty.steps >= 100 * 8 * 300 / 16, "{empty:?}");
    let ranges = |set: &str| {
        let pattern = format!("(?:[{set}]?){{20}}!");
        cost_of_match(&pattern, &"z".repeat(1_000)).steps - cost_of_match(&pattern, "").steps
    };
    let (one, many) = (ranges("a-z"), ranges("acegikmoqsuwyACEGIKMOQSUWYz"));
    assert!(many >= one + 1_000 * 20 * 2 / 4, "{one} {many}");
    for pattern in [".", "[^x]", "ü|é", "\\D", "(?i)k"] {
        assert!(cost_of_match(pattern, "x").steps >= 2_000, "{pattern}");
    }
    assert!(cost_of_match("ab", "x").steps < 1_000);
}

#[test]
fn errors_of_a_text_stay_short() {
    let text = "has(1)+".repeat(2_000) + "1";
    let ExpressionError::Syntax(error) = Expression::compile(&text).unwrap_err() else { panic!("{text}") };
    assert!(error.starts_with("ERROR: <input>:1:") && error.len() <= 1_024, "{error}");
    let ExpressionError::Syntax(error) = Expression::compile(&"(".repeat(4_000)).unwrap_err() else {
        panic!("no syntax error");
    };
    assert!(error.len() <= 1_024, "{error}");
}

#[test]
fn fields_are_looked_up_by_the_names_of_the_expression() {
    let mut object = object();
    object["self"] = json!({"metadata": {"name": "b"}});
    for number in 0..100_000 {
        object[format!("field{number}")] = json!(number);
    }
    assert_eq!(evaluate("self.metadata.name == 'a' && field7 == 7", &object), ExpressionResult::Holds);
}
