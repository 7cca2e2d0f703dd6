//! Errors of `helm template` with a user's value wherever Helm repeats one: the reported error does not contain the
//! value.
#![no_main]

use arbitrary::Arbitrary;
use kyma_helm::render::fuzzing::reduce;
use libfuzzer_sys::fuzz_target;

const PLANTED: &str = "Hush4Hush";
/// The failing chart. Its text and the names of its files may be shown.
const FILE: &str = "demo/templates/a.yaml";
const FILES: [(&str, &str); 2] =
    [("Chart.yaml", "apiVersion: v2\nname: demo\nversion: 1.0.0\n"), ("templates/a.yaml", TEMPLATE)];
const TEMPLATE: &str = "{{ tpl .Values.a . }}{{ required \"a is needed\" .Values.b }}{{ .Values.c.d }}\n";
/// Maximum number of characters of a summary, from the documentation of `RenderError`, and of the words around it.
const LONGEST: usize = 700;

/// Errors of Helm 4. `{}` stands for a value.
const FORMS: [&str; 11] = [
    "Error: execution error at (FILE:1:3): {}\n\nUse --debug flag to render out invalid YAML\n",
    "Error: execution error at (FILE:1:3): a is needed {}\n",
    "Error: template: FILE:1:3: executing \"FILE\" at <tpl .Values.a .>: error calling tpl: cannot parse template \"{}\": template: FILE:1: {}\n",
    "Error: template: FILE:1:3: executing \"FILE\" at <tpl .Values.a .>: error calling tpl: error during tpl function execution for \"{}\": template: FILE:1:2: executing \"FILE\" at <{}>: nil pointer evaluating interface {}.{}\n",
    "Error: template: FILE:1:3: executing \"FILE\" at <tpl .Values.a .>: error calling tpl: cannot parse template \"x\": template: FILE:1: function \"{}\" not defined\n",
    "Error: template: FILE:1:3: executing \"FILE\" at <tpl .Values.a .>: error calling tpl: error during tpl function execution for \"x\": template: FILE:1:2: executing \"FILE\" at <{}>: can't evaluate field {} in type interface {}\n",
    "Error: template: FILE:1:3: executing \"FILE\" at <mustRegexMatch .Values.a>: error calling mustRegexMatch: error parsing regexp: missing closing ): `{}`\n",
    "Error: template: FILE:1:3: executing \"FILE\" at <.Values.c.d>: range can't iterate over {}\n",
    "Error: YAML parse error on FILE: error converting YAML to JSON: yaml: line 2: found \"{}\"\n",
    "Error: values don't meet the specifications of the schema(s) in the following chart(s):\ndemo:\n- at '/a': '{}' does not match pattern '^x'\n",
    "Error: values don't meet the specifications of the schema(s) in the following chart(s):\ndemo:\n- at '/a': value must be one of 'x', {}\n",
];

#[derive(Arbitrary, Debug)]
struct Failed<'a> {
    form: u8,
    before: &'a str,
    after: &'a str,
}

fuzz_target!(|failed: Failed<'_>| {
    let value = format!("{}{PLANTED}{}", failed.before, failed.after);
    let form = FORMS[usize::from(failed.form) % FORMS.len()];
    // Messages about the schema are quoted as in Go, line by line.
    let value = if form.contains("schema") { format!("{value:?}").replace('\'', "\\'") } else { value };
    let stderr = form.replace("FILE", FILE).replace("{}", &value);
    let shown = reduce(&stderr, &FILES).to_string();
    assert!(!shown.contains(PLANTED), "{stderr:?} became {shown:?}");
    assert!(shown.chars().count() <= LONGEST, "{} characters", shown.chars().count());
});
