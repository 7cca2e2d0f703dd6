use std::thread;

use proptest::prelude::*;
use serde_json::json;

use super::parse::{MAX_DEPTH, MAX_TEXT_BYTES};
use super::*;

mod costs;

/// Stack of a tokio worker.
const WORKER_STACK_BYTES: usize = 2 << 20;

fn evaluate(text: &str, object: &Value) -> ExpressionResult {
    Expression::compile(text).unwrap_or_else(|error| panic!("{text}: {error}")).evaluate_object(object)
}

/// The judgement of the evaluator of the crate `cel`, which has no bounds.
fn evaluate_by_cel(text: &str, object: &Value) -> ExpressionResult {
    let program = cel::Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut context = cel::Context::default();
    context.add_variable("self", JsonWithInts(object)).unwrap();
    match program.execute(&context) {
        Ok(cel::Value::Bool(true)) => ExpressionResult::Holds,
        Ok(cel::Value::Bool(false)) => ExpressionResult::Fails,
        _ => ExpressionResult::Unclear,
    }
}

/// JSON whose whole numbers are `int`.
struct JsonWithInts<'a>(&'a Value);

impl serde::Serialize for JsonWithInts<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => match number.as_i64() {
                Some(whole) => serializer.serialize_i64(whole),
                None => number.serialize(serializer),
            },
            Value::Array(list) => serializer.collect_seq(list.iter().map(JsonWithInts)),
            Value::Object(map) => {
                serializer.collect_map(map.iter().map(|(key, value)| (key, JsonWithInts(value))))
            }
            simple => simple.serialize(serializer),
        }
    }
}

fn object() -> Value {
    json!({
        "metadata": {"name": "a", "labels": {"app": "web", "tier": "front"}},
        "spec": {"replicas": 3, "share": 0.5, "large": 18_446_744_073_709_551_615_u64, "none": null, "on": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Stalled"}], "parts": [1, 2, 3, 2]},
    })
}

#[test]
fn object_is_judged_by_itself_or_by_its_fields() {
    for text in [
        "status.conditions.exists(one, one.type == 'Ready' && one.status == 'True')",
        "self.status.conditions[0].status == 'True' && metadata.name == 'a'",
        "!has(self.missing)",
    ] {
        assert_eq!(evaluate(text, &object()), ExpressionResult::Holds, "{text}");
    }
    assert_eq!(evaluate("metadata.name == 'b'", &object()), ExpressionResult::Fails);
    assert_eq!(evaluate("status.version == '1'", &object()), ExpressionResult::Unclear);
    assert_eq!(evaluate("missing.version == '1'", &object()), ExpressionResult::Unclear);
}

/// Conditions over all operators, functions and macros, with errors of each kind.
const CONDITIONS: &[&str] = &[
    "self.spec.replicas == 3 && self.spec.replicas * 2 - 1 == 5 && self.spec.replicas % 2 == 1",
    "self.spec.replicas / 2 == 1 && -self.spec.replicas < 0 && self.spec.replicas != 4",
    "self.spec.replicas / 0 == 1",
    "self.spec.replicas % 0 == 1",
    "9223372036854775807 + 1 > 0",
    "-9223372036854775807 - 2 < 0",
    "9223372036854775807 * 2 > 0",
    "(-9223372036854775807 - 1) / -1 > 0",
    "-(-9223372036854775807 - 1) > 0",
    "1u - 2u == 0u",
    "self.spec.large == 18446744073709551615u && self.spec.large > 1",
    "self.spec.share * 2.0 == 1.0 && self.spec.share / 0.0 > 1.0",
    "self.spec.share + 1 > 1.0",
    "1.0 % 2.0 == 1.0",
    "1 == 1.0 && 1u == 1 && 1.5 > 1 && 2 <= 2u && 3u >= 2.5",
    "'1' == 1 || null == self.spec.none",
    "self.spec.none == null && !(self.spec.none == false)",
    "'b' > 'a' && 'a' <= 'a' && b'b' > b'a' && true > false",
    "'a' < 1",
    "[1] < [2]",
    "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2]",
    "'a' + 1 == 'a1'",
    "true + true",
    "2 in self.status.parts && !(9 in self.status.parts) && 'app' in self.metadata.labels",
    "2.0 in [1, 2] && 1 in {1: 'a'} && 1.0 in {1: 'a'} && !(1.5 in {1: 'a'})",
    "'a' in 'abc'",
    "null in {'a': 1}",
    "{'a': 1}['a'] == 1 && {'a': 1}.a == 1 && {1: 2}[1u] == 2 && {true: 1}[true] == 1",
    "{'a': 1}['b'] == 1",
    "{'a': 1, 'a': 2}.a == 1",
    "{1.5: 1}[1.5] == 1",
    "{'a': [1, {'b': 2}]} == {'a': [1, {'b': 2}]} && {'a': 1} != {'a': 2}",
    "self.status.parts[1] == 2 && self.status.parts[1u] == 2 && self.status.parts[1.0] == 2",
    "self.status.parts[4] == 2",
    "self.status.parts[-1] == 2",
    "self.status.parts['a'] == 2",
    "size(self.status.parts) == 4 && self.metadata.labels.size() == 2 && 'πέ'.size() == 2 && size(b'abc') == 3",
    "size(1) == 1",
    "self.status.parts.all(p, p > 0) && self.status.parts.exists(p, p == 3)",
    "self.status.parts.exists_one(p, p == 3) && !self.status.parts.exists_one(p, p == 2)",
    "self.status.parts.map(p, p * 2) == [2, 4, 6, 4] && self.status.parts.filter(p, p == 2) == [2, 2]",
    "self.status.parts.map(p, p > 1, p + 1) == [3, 4, 3]",
    "self.status.parts.map(p, self.status.parts.filter(q, q > p).size()) == [3, 1, 0, 1]",
    "self.metadata.labels.all(k, k.size() > 2) && self.metadata.labels.exists(k, k == 'app')",
    "self.metadata.labels.map(k, k).size() == 2",
    "self.status.conditions.all(c, c.status == 'True')",
    "self.status.conditions.exists(c, c.status == 'True')",
    "self.status.conditions.all(c, c.type == 'x' && c.status == 'True')",
    "self.status.conditions.filter(c, c.status == 'True').size() == 1",
    "self.status.conditions.filter(c, has(c.status)).size() == 1",
    "self.spec.on.all(p, true)",
    "[1, 2].all(p, 'a')",
    "[true, false].exists_one(p, p)",
    "self.missing || true",
    "true || self.missing",
    "self.missing && false",
    "false && self.missing",
    "self.missing && true",
    "self.missing || false",
    "1 && false",
    "1 || true",
    "true && 1",
    "!1",
    "-'a' == 'a'",
    "-1u == 1",
    "self.spec.on ? self.metadata.name == 'a' : self.missing",
    "self.missing ? true : true",
    "1 ? true : false",
    "has(self.metadata.name) && !has(self.metadata.uid)",
    "has(self.metadata.name.first)",
    "has(self.missing.name)",
    "self.metadata.name.contains('a') && 'abc'.startsWith('ab') && 'abc'.endsWith('bc')",
    "'abc'.contains(1)",
    "contains('abc', 'a')",
    "'web-1'.matches('^[a-z]+-[0-9]$') && matches('über', '^\\\\w+$') && !'a'.matches('^b')",
    "'a'.matches('(')",
    "int('12') == 12 && int(3.9) == 3 && int(5u) == 5 && int(-3.9) == -3",
    "int('a') == 1",
    "int(1e30) == 1",
    "int(18446744073709551615u) == 1",
    "uint(3) == 3u && uint('4') == 4u && uint(2.5) == 2u",
    "uint(-1) == 1u",
    "uint(-1.0) == 1u",
    "double(3) == 3.0 && double('0.5') == 0.5 && double(2u) == 2.0 && double('NaN') != double('NaN')",
    "double('x') == 1.0",
    "double('NaN') < 1.0",
    "string(3) == '3' && string(3u) == '3' && string(true) == 'true' && string(b'ab') == 'ab'",
    "string(1.5) == '1.5' && string(1.0) == '1' && string('a') == 'a'",
    "string(b'\\xff') == 'a'",
    "string(null) == 'null'",
    "string([1]) == '1'",
    "bytes('ab') == b'ab' && bytes(b'ab') == b'ab'",
    "bool('true') && !bool('False') && bool(true)",
    "bool('yes')",
    "type(1) == int && type('a') == string && type(1u) == uint && type(null) == null_type && type([]) == list",
    "type({}) == map && type(1.0) == double && type(b'') == bytes && type(true) == bool && type(int) == type",
    "dyn(3.0) == 3",
    "dyn(1, 2) == 3",
    "optional.of(1).value() == 1 && optional.of(1).hasValue() && !optional.none().hasValue()",
    "optional.none().orValue(2) == 2 && optional.of(1).or(optional.of(2)).value() == 1",
    "optional.none().value() == 1",
    "optional.ofNonZeroValue(0).hasValue() || optional.ofNonZeroValue('').hasValue()",
    "optional.of({'a': 1}).a.value() == 1 && !optional.of({'a': 1}).b.hasValue()",
    "optional.of([1])[0].value() == 1 && !optional.of([1])[1].hasValue()",
    "unknown(1) == 1",
    "'a'.unknown() == 1",
    "unknown.path.x == 1",
    "Message{field: 1} == 1",
    "[1, 2, 3].map(x, [x]).map(x, x[0]) == [1, 2, 3]",
    "[[1, 2], [3]].all(list, list.all(x, x > 0))",
    "[1].all(x, [2].all(x, x == 2) && x == 1)",
    "self.status.parts",
    "'text'",
];

#[test]
fn only_functions_that_no_condition_can_call_are_unknown() {
    for text in CONDITIONS {
        let expected: &[&str] = if text.contains("unknown(") { &["unknown"] } else { &[] };
        assert_eq!(Expression::compile(text).unwrap().unknown_functions(), expected, "{text}");
    }
    let expression = Expression::compile("timestamp(self.at) < timestamp(self.end) || split(',')").unwrap();
    assert_eq!(expression.unknown_functions(), ["split", "timestamp"]);
}

#[test]
fn conditions_give_what_the_evaluator_of_the_crate_gives() {
    for text in CONDITIONS {
        assert_eq!(evaluate(text, &object()), evaluate_by_cel(text, &object()), "{text}");
    }
}

/// The crate `cel` gives an empty optional here; `optional.of('a').b` is an error in both.
#[test]
fn index_of_a_wrong_type_into_an_optional_is_an_error() {
    for wrong in ["'text')[0]", "1)['a']", "[1])['a']", "{'a': 1})[[1]]"] {
        assert_eq!(
            evaluate(&format!("optional.of({wrong}.hasValue()"), &object()),
            ExpressionResult::Unclear,
            "{wrong}"
        );
    }
    assert_eq!(evaluate("!optional.of({'a': 1})['b'].hasValue()", &object()), ExpressionResult::Holds);
}

#[test]
fn each_kind_of_growth_ends_at_the_limit() {
    let all = |depth: usize| {
        let open: String = (0..depth).map(|at| format!("[0,0,0,0,0,0,0,0].all(v{at},")).collect();
        format!("{open}true{}", ")".repeat(depth))
    };
    let chain = |start: &str, step: &str, times: usize| format!("{start}{} == 0", step.repeat(times));
    let list = format!("[{}]", vec!["0"; 500].join(","));
    let texts = [
        all(20),
        all(8),
        chain("['x']", ".map(s,s+s)", 30),
        chain("[b'x']", ".map(s,s+s)", 30),
        chain("[[0]]", ".map(s,s+s)", 30),
        format!("{0} == {0}", ["[[0]]", &".map(s,[s,s])".repeat(20)].concat()),
        format!("[1].all(v, {list}.all(a, {list}.all(b, {list}.all(c, a == b))))"),
        format!("{list}.map(a, {list}).map(a, {list} + a).size() == 1"),
        format!("{list}.all(a, {{'k': 'v', 'l': {list}}}.size() == 2 && {list}.all(b, {list} == {list}))"),
        format!("{list}.all(a, {list}.all(b, string(b).size() > 0 && 'x'.matches('(a|b|c)*x')))"),
        "[1].all(a, ['x'].map(s, s + '0123456789').exists(s, s.matches('(\\\\w{40}){40}')))".to_owned(),
        format!("'{}'.matches('{}')", "x".repeat(300), "(?i)\\\\PN".repeat(100)),
        format!("'{}'.matches('(x*)*{}y')", "x".repeat(2_000), "x?".repeat(400)),
    ];
    for text in texts {
        let expression = Expression::compile(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let (judgement, cost) = expression.evaluate_with_cost(&[]);
        assert_eq!(judgement, ExpressionResult::TooLarge, "{text}: {cost:?}");
        assert!(cost.steps <= MAX_STEPS && cost.allocated_bytes <= MAX_ALLOCATED_BYTES, "{text}: {cost:?}");
    }
}

#[test]
fn steps_count_content_of_variables_and_of_the_expression_alike() {
    let cost = |text: &str, object: &Value| {
        let expression = Expression::compile(text).unwrap();
        expression.evaluate_with_cost(&[("self", object)]).1
    };
    let zeros = |count: usize| json!(vec![0; count]);
    let of_variable = cost("self.all(v, v == 0)", &zeros(1_000)).steps;
    assert!(of_variable > 1_000 && of_variable < 20_000, "{of_variable}");
    let of_text = cost(&format!("[{}].all(v, v == 0)", vec!["0"; 1_000].join(",")), &json!(null)).steps;
    assert!(of_text > of_variable, "{of_text}");
    let copies = |length: usize| cost("self + self + self == ''", &json!("x".repeat(length))).allocated_bytes;
    assert!(copies(10_000) > 20_000 && copies(100) < 2_000);
}

#[test]
fn exhaustion_is_not_absorbed_by_operators() {
    let endless = "[0,0,0,0,0,0,0,0].all(a,".repeat(15) + "true" + &")".repeat(15);
    for text in
        [format!("{endless} || true"), format!("true && {endless}"), format!("[1].exists(x, {endless})")]
    {
        assert_eq!(evaluate(&text, &json!({})), ExpressionResult::TooLarge, "{text}");
    }
    assert_eq!(evaluate(&format!("true || {endless}"), &json!({})), ExpressionResult::Holds);
}

#[test]
fn loop_over_a_large_variable_is_evaluated_once_but_not_nested() {
    let object = json!({"parts": vec!["a"; 30_000]});
    assert_eq!(evaluate("self.parts.all(a, a == 'a')", &object), ExpressionResult::Holds);
    assert_eq!(evaluate("self.parts.all(a, self.parts.all(b, a == b))", &object), ExpressionResult::TooLarge);
    let object = json!({"parts": vec!["a"; 100]});
    assert_eq!(evaluate("self.parts.all(a, self.parts.all(b, a == b))", &object), ExpressionResult::Holds);
    assert_eq!(
        evaluate("self.parts.map(a, a + 'b').filter(a, a == 'ab').size() == 100", &object),
        ExpressionResult::Holds
    );
}

/// Texts that nest as deep as their length allows, each in another way.
fn deep_texts() -> Vec<String> {
    let wrap = |open: &str, inner: &str, close: &str| {
        let times = 4_000 / (open.len() + close.len());
        format!("{}{inner}{}", open.repeat(times), close.repeat(times))
    };
    vec![
        format!("{}1 > 0", "1+".repeat(2_047)),
        format!("true{}", "&&true".repeat(680)),
        format!("1{} == 0", "*1".repeat(2_045)),
        format!("1{}", "<1".repeat(2_045)),
        format!("true{}", "?1:2".repeat(1_000)),
        wrap("a?b:", "c", ""),
        wrap("a?", "b", ":c"),
        wrap("{1:", "1", "}"),
        wrap("{", "1", ":1}"),
        wrap("[", "1", "]"),
        wrap("(", "true", ")"),
        wrap("(1+", "1", ")"),
        wrap("!", "true", ""),
        wrap("-", "1", ""),
        wrap("!-", "1", ""),
        wrap("-a.", "b", ""),
        wrap("f(", "1", ")"),
        wrap("a.f(", "1", ")"),
        wrap("a[", "1", "]"),
        wrap("A{a:", "1", "}"),
        wrap("has(", "a.b", ")"),
        wrap("[1].all(x,", "true", ")"),
        wrap("[1].map(x,", "x", ")"),
        format!("a{}", ".b".repeat(2_000)),
        format!("a{}", ".f()".repeat(1_000)),
        format!("[1]{}", ".map(x,x)".repeat(440)),
        format!("a{}", "[0]".repeat(1_300)),
        format!("a{}", "{}".repeat(2_000)),
        format!("{}{}", "(".repeat(4_000), "["),
        "{".repeat(4_000),
        "'".repeat(4_000),
        "\\".repeat(4_000),
        "?:".repeat(2_000),
        "\u{1F600}".repeat(1_000),
        "`".repeat(4_000),
        "/".repeat(4_000),
    ]
}

#[test]
fn deep_texts_are_refused_within_the_stack_of_a_worker() {
    let compile = || {
        for text in deep_texts() {
            let compiled = Expression::compile(&text);
            let refused = matches!(compiled, Err(ExpressionError::TooDeep | ExpressionError::Syntax(_)));
            // Unary operators cancel each other out, and parentheses leave nothing.
            assert!(
                refused || compiled.is_ok_and(|one| one.evaluate(&[]) != ExpressionResult::TooLarge),
                "{text}"
            );
        }
    };
    thread::Builder::new().stack_size(WORKER_STACK_BYTES / 2).spawn(compile).unwrap().join().unwrap();
}

#[test]
fn longest_text_has_a_bound() {
    let text = format!("'{}' == 'a'", "x".repeat(MAX_TEXT_BYTES));
    assert_eq!(Expression::compile(&text).unwrap_err(), ExpressionError::TooLong);
    let sum = |terms: usize| format!("{}1 > 0", "1 + ".repeat(terms));
    assert_eq!(Expression::compile(&sum(1_000)).unwrap_err(), ExpressionError::TooDeep);
    assert!(Expression::compile(&sum(MAX_DEPTH - 3)).is_ok());
}

/// Conditions of bounded depth from all that the grammar has.
fn generated() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("self".to_owned()),
        Just("x".to_owned()),
        Just("true".to_owned()),
        Just("null".to_owned()),
        Just("'ab'".to_owned()),
        Just("b'ab'".to_owned()),
        Just("[0,0,0,0,0,0,0,0]".to_owned()),
        Just("['x']".to_owned()),
        Just("self.status.parts".to_owned()),
        (-3_i64..20).prop_map(|number| number.to_string()),
        (0_u64..4).prop_map(|number| format!("{number}u")),
        Just("0.5".to_owned()),
    ];
    leaf.prop_recursive(7, 60, 4, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            (
                two.clone(),
                prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "in", "&&", "||"])
            )
                .prop_map(|((a, b), operator)| format!("({a} {operator} {b})")),
            (two.clone(), prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter"]))
                .prop_map(|((range, body), each)| format!("{range}.{each}(x, {body})")),
            (two.clone(), prop::sample::select(vec!["contains", "startsWith", "matches", "orValue"]))
                .prop_map(|((a, b), function)| format!("{a}.{function}({b})")),
            (
                inner.clone(),
                prop::sample::select(vec!["size", "string", "int", "type", "bytes", "double", "!", "-"])
            )
                .prop_map(|(a, function)| format!("{function}({a})")),
            two.clone().prop_map(|(a, b)| format!("[{a}, {b}]")),
            two.clone().prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            two.clone().prop_map(|(a, b)| format!("{a}[{b}]")),
            (inner.clone(), two).prop_map(|(a, (b, c))| format!("({a} ? {b} : {c})")),
            inner.clone().prop_map(|a| format!("{a}.map(x, [x, x]).map(x, x + x)")),
            inner.prop_map(|a| format!("[0,0,0,0,0,0,0,0].map(x, {a}).map(x, [x, x, x, x])")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn generated_conditions_end_within_steps_and_bytes(text in generated()) {
        let object = object();
        if let Ok(expression) = Expression::compile(&text) {
            let (judgement, cost) = expression.evaluate_with_cost(&[("self", &object)]);
            prop_assert!(cost.steps <= MAX_STEPS && cost.allocated_bytes <= MAX_ALLOCATED_BYTES, "{cost:?}");
            // Cheap expressions have the same result as in the evaluator without bounds.
            if cost.steps < 3_000 && cost.allocated_bytes < 30_000 {
                prop_assert_eq!(judgement, evaluate_by_cel(&text, &object));
            }
        }
    }
}
