use super::*;

fn shown(stderr: &str, chart: &str) -> String {
    reduce(stderr, &of(chart)).to_string()
}

fn of(template: &str) -> TemplateText {
    TemplateText::from_files(&[("Chart.yaml", "name: t\n"), ("templates/a.yaml", template)])
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
fn what_is_not_understood_is_not_shown() {
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
