use super::*;

fn shown(stderr: &str, chart: &str) -> String {
    reduce(stderr, &of(chart)).to_string()
}

fn of(template: &str) -> TemplateText {
    TemplateText::from_files(&[
        ("Chart.yaml", "name: t\nversion: 1.0.0\ndependencies: [{name: db}]\n"),
        ("templates/a.yaml", template),
    ])
}

#[test]
fn words_that_stand_in_the_chart_are_kept() {
    let stderr = "Error: execution error at (t/templates/a.yaml:67:28): Chart needs \"clusterName\"!\n\nUse --debug flag to render out invalid YAML\n";
    let shown = shown(stderr, r#"{{ required "Chart needs \"clusterName\"!" .Values.clusterName }}"#);
    assert_eq!(shown, "the chart does not render: t/templates/a.yaml:67:28: Chart needs \"clusterName\"!");
}

#[test]
fn words_that_values_brought_in_are_dropped() {
    let stderr = "Error: execution error at (t/templates/a.yaml:1:3): bad se(cret\n\nUse --debug flag\n";
    let shown = shown(stderr, r#"{{ fail (printf "bad %s" .Values.pw) }}"#);
    assert!(shown.contains("t/templates/a.yaml:1:3"), "{shown}");
    assert!(!shown.contains("cret"), "{shown}");
}

#[test]
fn a_nil_pointer_is_named_with_its_place_and_expression() {
    let stderr = "Error: t/templates/a.yaml:1:10\n  executing \"t/templates/a.yaml\" at <.Values.a.b.c>:\n    nil pointer evaluating interface {}.b\n";
    assert_eq!(
        shown(stderr, "{{ .Values.a.b.c }}"),
        "the chart does not render: t/templates/a.yaml:1:10 at <.Values.a.b.c>: nil pointer evaluating interface {}.b"
    );
}

#[test]
fn a_function_that_repeats_its_argument_is_only_named() {
    let stderr = "Error: template: t/templates/a.yaml:1:3: executing \"t/templates/a.yaml\" at <mustRegexMatch .Values.pw \"a\">: error calling mustRegexMatch: error parsing regexp: missing closing ): `se(cret`\n";
    let shown = shown(stderr, "{{ mustRegexMatch .Values.pw \"a\" }}");
    assert!(shown.ends_with("error calling mustRegexMatch"), "{shown}");
}

#[test]
fn broken_yaml_is_named_without_the_text_met() {
    let stderr = "Error: YAML parse error on t/templates/a.yaml: error converting YAML to JSON: yaml: line 4: found \"secret\" here\n";
    assert_eq!(
        shown(stderr, ""),
        "the chart does not render: t/templates/a.yaml: it gives broken YAML: line 4: found"
    );
}

#[test]
fn schema_violations_name_key_paths_and_never_values() {
    let stderr = "Error: values don't meet the specifications of the schema(s) in the following chart(s):\nt:\n- at '': validation failed\n  - at '': missing property 'd'\n- at '/a': got string, want integer\n- at '/b': 'secretvalue' does not match pattern '^x'\n";
    let RenderError::Schema { violations } = reduce(stderr, &of("")) else { panic!("a schema error") };
    assert_eq!(
        violations,
        ["/: missing property 'd'", "/a: got string, want integer", "/b: not allowed by the schema"]
    );
}

#[test]
fn violations_in_a_subchart_name_it() {
    let stderr = "Error: values don't meet the specifications of the schema(s) in the following chart(s):\nt:\n- at '/a': got string, want integer\ndb:\n- at '': missing property 'd'\ndb:\ninvalid type for values: expected object (map), got string\n";
    let RenderError::Schema { violations } = reduce(stderr, &of("")) else { panic!("a schema error") };
    assert_eq!(
        violations,
        ["/a: got string, want integer", "db: /: missing property 'd'", "db: /: want object"]
    );
}

#[test]
fn a_schema_that_cannot_be_used_is_not_the_fault_of_the_values() {
    let head = "Error: values don't meet the specifications of the schema(s) in the following chart(s):\n";
    for (problem, expected) in [
        (
            "db:\n\"file:///values.schema.json#\" is not valid against metaschema: jsonschema validation failed with 'https://json-schema.org/draft/2020-12/schema#'\n- at '/type': got string, want array\n",
            "values.schema.json of chart db is not a valid JSON schema (/type)",
        ),
        (
            "t:\njson-pointer in \"file:///values.schema.json#/nope\" not found\n",
            "values.schema.json of chart t is not a valid JSON schema",
        ),
    ] {
        let error = reduce(&format!("{head}{problem}"), &of(""));
        assert_eq!(error.to_string(), format!("the chart does not render: {expected}"));
    }
}

#[test]
fn an_error_in_the_charts_own_files_is_shown() {
    for (stderr, expected) in [
        ("validation: chart.metadata.version \"x.y\" is invalid", None),
        ("error unpacking subchart db in t: Chart.yaml file is missing", None),
        ("error unpacking subchart db.tgz in t: unexpected EOF", None),
        (
            "error unpacking subchart db in t: cannot load values.yaml: cannot unmarshal yaml document: error converting YAML to JSON: yaml: line 2: unknown anchor 'x' referenced",
            Some(
                "error unpacking subchart db in t: cannot load values.yaml: cannot unmarshal yaml document: error converting YAML to JSON: yaml: line 2: unknown anchor",
            ),
        ),
    ] {
        let expected = expected.unwrap_or(stderr);
        let shown = shown(&format!("Error: {stderr}\n"), "");
        assert_eq!(shown, format!("the chart does not render: {expected}"));
    }
}

#[test]
fn the_reason_behind_a_failed_call_is_named() {
    let place = "t/templates/a.yaml:1:3";
    for (told, expected) in [
        (
            format!(
                "{place}\n  executing \"t/templates/a.yaml\" at <include \"t.labels\" .>:\n    error calling include:\ntemplate: no template \"t.labels\" associated with template \"gotpl\"\n"
            ),
            "at <include \"t.labels\" .>: no template \"t.labels\" associated with template",
        ),
        (
            format!(
                "{place}\n  executing \"t/templates/a.yaml\" at <{{{{template \"t.labels\" .}}}}>:\n    template \"t.labels\" not defined\n"
            ),
            ": template \"t.labels\" not defined",
        ),
        (
            format!(
                "template: {place}: executing \"t/templates/a.yaml\" at <mod 0>: error calling mod: runtime error: integer divide by zero\n"
            ),
            "at <mod 0>: integer divide by zero",
        ),
        (
            format!(
                "template: {place}: executing \"t/templates/a.yaml\" at <index .Values.x 3>: error calling index: index of untyped nil\n"
            ),
            "at <index .Values.x 3>: index of untyped nil",
        ),
    ] {
        let template = "{{ include \"t.labels\" . }}{{ mod 0 }}{{ index .Values.x 3 }}";
        let shown = shown(&format!("Error: {told}"), &template.replace(" }}", "}}").replace("{{ ", "{{"));
        assert!(shown.contains(place) && shown.ends_with(expected), "{shown}");
    }
    let foreign = format!(
        "Error: {place}\n  executing \"t/templates/a.yaml\" at <tpl .Values.pw .>:\n    template \"hunter2\" not defined\n"
    );
    let shown = shown(&foreign, "{{ tpl .Values.pw . }}");
    assert!(shown.contains(place) && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn an_unknown_error_text_is_not_shown() {
    let shown = shown("Error: se(cret\n", "");
    assert!(!shown.contains("cret"), "{shown}");
}

#[test]
fn a_value_that_is_run_as_a_template_is_not_repeated() {
    let executing = "Error: template: t/templates/a.yaml:1:3: executing \"t/templates/a.yaml\" at <tpl .Values.pw .>: error calling tpl:";
    for told in [
        "cannot parse template \"{{hunter2}}\": template: t/templates/a.yaml:1: function \"hunter2\" not defined",
        "error during tpl function execution for \"{{.hunter2}}\": template: t/templates/a.yaml:1:2: executing \"t/templates/a.yaml\" at <.hunter2>: can't evaluate field hunter2 in type string",
        "error during tpl function execution for \"{{.a.hunter2}}\": t/templates/a.yaml:1:2: nil pointer evaluating interface {}.hunter2",
        "cannot parse template \"https://user@hunter2/templates/a:80\": unexpected",
    ] {
        let shown = shown(&format!("{executing} {told}\n"), "{{ tpl .Values.pw . }}");
        assert!(shown.contains("t/templates/a.yaml:1") && !shown.contains("hunter2"), "{shown}");
    }
}
