use serde_json::json;

use super::*;

fn one(text: &str) -> Value {
    let mut budget = Budget { nodes: 10_000, bytes: 1_000_000 };
    let mut documents = parse(text, &mut budget).unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

fn fails(text: &str) -> YamlError {
    parse(text, &mut Budget { nodes: 10_000, bytes: 1_000_000 }).unwrap_err()
}

// The expected values are what sigs.k8s.io/yaml 1.6.0 prints for the same text.
#[test]
fn scalars_mean_what_go_says() {
    let cases = [
        ("yes", json!(true)),
        ("On", json!(true)),
        ("y", json!(true)),
        ("NO", json!(false)),
        ("oFF", json!("oFF")),
        ("~", json!(null)),
        ("", json!(null)),
        ("null", json!(null)),
        ("nUll", json!("nUll")),
        ("010", json!(8)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("-0b11", json!(-3)),
        ("08", json!(8)),
        ("1_000", json!(1000)),
        ("+7", json!(7)),
        ("0", json!(0)),
        ("-0x10", json!(-16)),
        ("1:30", json!("1:30")),
        ("2024-01-01", json!("2024-01-01")),
        ("2024-01-01T10:00:00Z", json!("2024-01-01T10:00:00Z")),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1.", json!(1)),
        ("1e400", json!("1e400")),
        ("9223372036854775807", json!(i64::MAX)),
        ("18446744073709551615", json!(u64::MAX)),
        ("'yes'", json!("yes")),
        ("\"010\"", json!("010")),
        ("!!str 010", json!("010")),
        ("! 010", json!("010")),
        ("!!float 3", json!(3)),
        ("!!int \"3\"", json!(3)),
        ("!!binary aGk=", json!("hi")),
        ("!mine 3", json!("3")),
        ("1e", json!("1e")),
        ("0x", json!("0x")),
        ("--", json!("--")),
        ("._5", json!("._5")),
        ("1.2.3", json!("1.2.3")),
        ("12e03", json!(12000)),
        ("<<", json!("<<")),
        ("=", json!("=")),
    ];
    for (text, expected) in cases {
        assert_eq!(one(&format!("--- {text}\n")), expected, "{text}");
    }
}

#[test]
fn keys_become_strings() {
    assert_eq!(
        one("y: 1\nno: 2\n3: x\n010: z\n1.5: f\n"),
        json!({"true": 1, "false": 2, "3": "x", "8": "z", "1.5": "f"})
    );
    assert!(matches!(fails("~: 1\n"), YamlError::Value { .. }));
    assert!(matches!(fails("? [a]\n: 1\n"), YamlError::Value { .. }));
}

#[test]
fn the_last_of_equal_keys_wins() {
    assert_eq!(one("a: 1\nb: 2\na: 3\n"), json!({"a": 3, "b": 2}));
}

#[test]
fn merge_keys_follow_go_yaml_2() {
    let base = "x: &x {a: 1, b: 1}\ny: &y {a: 2, c: 2}\n";
    assert_eq!(one(&format!("{base}z:\n  <<: *x\n  a: 9\n"))["z"], json!({"a": 9, "b": 1}));
    assert_eq!(one(&format!("{base}z:\n  a: 9\n  <<: *x\n"))["z"], json!({"a": 1, "b": 1}));
    assert_eq!(one(&format!("{base}z:\n  <<: [*x, *y]\n"))["z"], json!({"a": 1, "b": 1, "c": 2}));
    assert_eq!(one(&format!("{base}z:\n  '<<': *x\n"))["z"], json!({"<<": {"a": 1, "b": 1}}));
    assert!(matches!(fails("a:\n  <<: 1\n"), YamlError::Value { .. }));
}

#[test]
fn numbers_without_a_json_form_are_errors() {
    for text in [".nan", "-.inf", "+.Inf", ".INF"] {
        assert!(matches!(fails(&format!("a: {text}\n")), YamlError::Value { .. }), "{text}");
    }
}

#[test]
fn an_alias_bomb_exhausts_the_budget_before_memory() {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(",");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert_eq!(fails(&text), YamlError::Budget);
}

#[test]
fn an_anchor_inside_itself_is_an_error() {
    assert!(matches!(fails("a: &a\n  b: *a\n"), YamlError::Value { .. }));
}

#[test]
fn deep_nesting_is_an_error() {
    assert!(matches!(fails(&"[".repeat(100_000)), YamlError::Syntax { .. }));
    assert!(matches!(fails(&"- ".repeat(100_000)), YamlError::Syntax { .. }));
}

#[test]
fn syntax_errors_name_the_line_and_quote_nothing() {
    let error = fails("a: 1\nhush: [secret\nb: 2\n");
    let YamlError::Syntax { problem, .. } = &error else { panic!("{error:?}") };
    assert!(!problem.contains("hush") && !problem.contains("secret") && !problem.is_empty());
}

#[test]
fn an_anchor_counts_as_the_copy_that_it_is() {
    let items = "x, ".repeat(100);
    let text = format!("a: &a [&b [&c [&d [{items}]]]]\n");
    assert_eq!(parse(&text, &mut Budget { nodes: 400, bytes: 10_000 }), Err(YamlError::Budget));
    assert!(parse(&text, &mut Budget { nodes: 600, bytes: 10_000 }).is_ok());
}

#[test]
fn aliases_do_not_nest_deeper_than_json_may() {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..300 {
        text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert!(matches!(
        parse(&text, &mut Budget { nodes: 1_000_000, bytes: 1_000_000 }),
        Err(YamlError::Value { problem: "nested too deeply", .. })
    ));
}

// The expected values are what sigs.k8s.io/yaml 1.6.0 prints for the same text.
#[test]
fn quoted_text_goes_on_at_any_column() {
    let cases = [
        ("data:\n  text: \"one\ntwo\"\n", json!({"data": {"text": "one two"}})),
        (
            "data:\n  text: 'it''s\n\n two\n# no comment'\n  b: c\n",
            json!({"data": {"text": "it's\ntwo # no comment", "b": "c"}}),
        ),
        ("a:\n  - k: \"x \\\ny: z\"\n    l: \"\\\"\nm\"\n", json!({"a": [{"k": "x y: z", "l": "\" m"}]})),
        ("a:\n  b: &x !!str \"one\ntwo\"\n", json!({"a": {"b": "one two"}})),
        ("a:\n  \"k\": \"one\ntwo\" # note\n", json!({"a": {"k": "one two"}})),
        ("a:\n  - \"one\ntwo\"\n", json!({"a": ["one two"]})),
        (
            "a:\n  b: |\n    \"not\n    quoted\n  c: \"d\ne\"\n",
            json!({"a": {"b": "\"not\nquoted\n", "c": "d e"}}),
        ),
        (
            "a: {\"x\": \"y\n}\",\n\"z\": 1}\nb:\n  c: \"d\ne\"\n",
            json!({"a": {"x": "y }", "z": 1}, "b": {"c": "d e"}}),
        ),
        ("a: \"x\"#c\nb: [1]#d\nc: 'y'#e\n", json!({"a": "x", "b": [1], "c": "y"})),
        (
            "a: {\n\"limits\": {\n\"cpu\": \"1\"\n}\n}\nb: \"x\ny\"\n",
            json!({"a": {"limits": {"cpu": "1"}}, "b": "x y"}),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(one(text), expected, "{text}");
    }
}

// The expected values are what `fromYaml` of Helm 4.3.1 gives for the same text.
#[test]
fn tabs_comments_and_apostrophes_are_read_as_in_go_yaml() {
    let cases = [
        ("a: {\n\t\"b\": [\n\t1,\n\t2]\n}\n", json!({"a": {"b": [1, 2]}})),
        ("x:\n  a: {\n\tb: \"c\n\td\"\n}\n  e: f\n", json!({"x": {"a": {"b": "c d"}, "e": "f"}})),
        ("a:\n  b: \"c\n\td\n\t\n \te\"\n  f: g\n", json!({"a": {"b": "c d\ne", "f": "g"}})),
        ("a:\n  b: 'c\n\t\nd'\n", json!({"a": {"b": "c\nd"}})),
        ("a:\n  b:\t\"c\nd\"\n", json!({"a": {"b": "c d"}})),
        ("a: [b,# c\n  d]\n", json!({"a": ["b", "d"]})),
        ("a: [\"b\"#c\n  , d#e]\n", json!({"a": ["b", "d#e"]})),
        ("a: [{b: c}#d\n ]\ne: {#f\n g: h}\n", json!({"a": [{"b": "c"}], "e": {"g": "h"}})),
        ("a: \"it\\'s \\\\' x\"\nb: [\"\\'\"]\n", json!({"a": "it's \\' x", "b": ["'"]})),
        (
            "a:\n- {b: c, d: \"e\n#f\"}#g\n- h # i: \"j\nk: \"l\nm\"\n",
            json!({"a": [{"b": "c", "d": "e #f"}, "h"], "k": "l m"}),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(one(text), expected, "{text}");
    }
}

#[test]
fn dashes_in_flow_lists_and_header_comments_match_go_yaml() {
    let cases = [
        ("a: [kubectl, apply, -f, -]\n", json!({"a": ["kubectl", "apply", "-f", "-"]})),
        ("a: [-, b]\nc: {d: -, e: [-]}\n", json!({"a": ["-", "b"], "c": {"d": "-", "e": ["-"]}})),
        ("a: [b -, -1, \"-]\", c-]\nd: [-]\n", json!({"a": ["b -", -1, "-]", "c-"], "d": ["-"]})),
        ("a: |#b\n  c\nd: >-# e\n  f\n  g\n", json!({"a": "c\n", "d": "f g"})),
    ];
    for (text, expected) in cases {
        assert_eq!(one(text), expected, "{text}");
    }
    assert!(matches!(fails("a: [- ]\n"), YamlError::Syntax { .. }), "an entry of a block list");
}

#[test]
fn other_errors_keep_their_text() {
    assert!(matches!(fails("a:\n  b: \"c\nd\"\n  e: [\n"), YamlError::Syntax { .. }));
    assert!(matches!(fails("a:\n  b: \"c\nd\n"), YamlError::Syntax { .. }));
    let deep = format!("a:\n{}b: \"c\n{}d\"\n", " ".repeat(10_000), "x\n".repeat(10_000));
    assert!(matches!(fails(&deep), YamlError::Syntax { .. }));
}
