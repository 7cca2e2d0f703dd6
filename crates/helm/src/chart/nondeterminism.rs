//! Detects calls in the text of a chart whose result differs between renders: random values, the current time, the
//! order of maps.
//!
//! Does not detect calls in a template that a chart concatenates from several strings and then passes to `tpl`.

use serde_json::{Map, Value};

/// Functions of Helm whose result differs from call to call.
const NONDETERMINISTIC_FUNCTIONS: &[&str] = &[
    "ago",
    "bcrypt",
    // The following use the current time if their argument is not a time.
    "date",
    "dateInZone",
    "date_in_zone",
    "htmlDate",
    "htmlDateInZone",
    "encryptAES",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "htpasswd",
    "now",
    "randAlpha",
    "randAlphaNum",
    "randAscii",
    "randBytes",
    "randInt",
    "randNumeric",
    "shuffle",
    "uuidv4",
];
/// Functions that return the keys or values of a map in random order.
const UNORDERED_FUNCTIONS: &[&str] = &["keys", "values"];
/// Functions that make this order irrelevant in the same action.
const ORDERING_FUNCTIONS: &[&str] = &["sortAlpha", "has", "len"];
/// Functions that convert text: they pass a nondeterministic result on only to the output.
const CONVERTING_FUNCTIONS: &[&str] =
    &["b64enc", "lower", "print", "printf", "quote", "sha256sum", "squote", "trunc", "upper"];
/// Directory of a chart's tests by Helm's documentation (<https://helm.sh/docs/topics/chart_tests/>).
const TESTS_DIRECTORY: &str = "templates/tests/";
/// Maximum nesting of templates in string literals. A template nested deeper counts as nondeterministic.
const MAX_TEMPLATE_DEPTH: usize = 8;

/// Parts of a chart's renders that may differ between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nondeterminism {
    /// No part.
    None,
    /// Only the output of the files in `templates/tests/`.
    Tests,
    /// Any part.
    All,
}

/// The nondeterministic calls in the text of a chart.
#[derive(Debug, Default)]
pub(super) struct NondeterministicCalls {
    templates: Calls,
    /// Whether tests call nondeterministic functions whose results stay in the output of the tests.
    tests: bool,
    /// Whether files other than templates would call nondeterministic functions if they were evaluated as templates.
    files: bool,
}

impl NondeterministicCalls {
    /// Adds the calls in a file.
    pub(super) fn add_file(&mut self, file: &str, text: &str) {
        let found = Calls::of(text);
        if !file.contains("templates/") {
            self.files |= found.nondeterministic;
            return;
        }
        let is_confined_to_test =
            file.starts_with(TESTS_DIRECTORY) && !found.passes_result_on && !found.defines;
        self.tests |= is_confined_to_test && found.nondeterministic;
        self.templates.nondeterministic |= found.nondeterministic && !is_confined_to_test;
        self.templates.tpl |= found.tpl;
        self.templates.includes_by_path |= found.includes_by_path;
    }

    /// Returns the parts that may differ between renders with these values.
    pub(super) fn nondeterminism(&self, values: &Map<String, Value>) -> Nondeterminism {
        let Calls { nondeterministic, tpl, includes_by_path, .. } = self.templates;
        let is_in_values =
            || Calls::of(&unescaped(&Value::Object(values.clone()).to_string())).nondeterministic;
        if nondeterministic || (tpl && (self.files || is_in_values())) {
            return Nondeterminism::All;
        }
        match self.tests {
            false => Nondeterminism::None,
            // Another file may include the output of a test.
            true if tpl || includes_by_path => Nondeterminism::All,
            true => Nondeterminism::Tests,
        }
    }
}

/// Facts about the functions that a text calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one text")]
struct Calls {
    /// Whether the text calls a function whose result differs from call to call.
    nondeterministic: bool,
    /// Whether a variable or another template may pass on the result of such a function.
    passes_result_on: bool,
    /// Whether the text defines templates that other files may use.
    defines: bool,
    /// Whether the text calls `tpl`, which evaluates other text as a template.
    tpl: bool,
    /// Whether the text includes templates by path, possibly those of tests.
    includes_by_path: bool,
}

/// Facts about one action, `{{ … }}`.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one action")]
struct TemplateAction<'a> {
    nondeterministic: bool,
    unordered: bool,
    ordered: bool,
    /// Whether the action has an assignment, a keyword, or a function that is neither nondeterministic nor converting.
    other: bool,
    /// Whether the action uses `.Template` or `.BasePath`, which give the paths of files.
    base_path: bool,
    /// Whether the action uses another field or variable.
    has_other_fields: bool,
    literals: Vec<&'a str>,
}

impl TemplateAction<'_> {
    fn read_word(&mut self, word: &str) {
        self.nondeterministic |= NONDETERMINISTIC_FUNCTIONS.contains(&word);
        self.unordered |= UNORDERED_FUNCTIONS.contains(&word);
        self.ordered |= ORDERING_FUNCTIONS.contains(&word);
        let is_number = word.starts_with(|first: char| first.is_ascii_digit());
        self.other |= !(is_number
            || NONDETERMINISTIC_FUNCTIONS.contains(&word)
            || CONVERTING_FUNCTIONS.contains(&word));
    }

    fn read_name(&mut self, name: &str) {
        // `.Template.Name` is a path too: a template may derive the path of another file from it.
        self.base_path |= matches!(name, "BasePath" | "Template");
        self.has_other_fields |= !matches!(name, "BasePath" | "Template");
    }

    fn is_nondeterministic(&self) -> bool {
        self.nondeterministic || (self.unordered && !self.ordered)
    }

    /// Reports whether the action may include the file of a test: it includes a template by path, and the path may be
    /// that of a test.
    fn includes_by_path(&self) -> bool {
        let is_other = |file: &str| file.contains('.') && !file.contains("test") && !file.contains('%');
        let names_only_another_file =
            !self.has_other_fields && matches!(self.literals[..], [file] if is_other(file));
        (self.base_path && !names_only_another_file)
            || self.literals.iter().any(|literal| literal.contains("templates"))
    }
}

impl Calls {
    /// Reads the actions in a text. The text around them has no effect.
    fn of(text: &str) -> Self {
        let mut calls = Self::default();
        calls.read(text, MAX_TEMPLATE_DEPTH);
        calls
    }

    fn read(&mut self, text: &str, depth: usize) {
        if depth == 0 {
            self.nondeterministic = true;
            self.passes_result_on = true;
            return;
        }
        let mut rest = text;
        while let Some(start) = rest.find("{{") {
            rest = self.action(&rest[start + 2..], depth);
        }
    }

    /// Reads one action, and returns the text after it.
    fn action<'a>(&mut self, text: &'a str, depth: usize) -> &'a str {
        let bytes = text.as_bytes();
        let mut action = TemplateAction::default();
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'}' if bytes.get(at + 1) == Some(&b'}') => break,
                b'/' if bytes.get(at + 1) == Some(&b'*') => {
                    at = text[at..].find("*/").map_or(bytes.len(), |end| at + end + 2);
                }
                quote @ (b'"' | b'`' | b'\'') => {
                    let end = literal_end(bytes, at + 1, quote);
                    let inner = &text[at + 1..end];
                    if inner.contains("{{") {
                        self.read(&unescaped(inner), depth - 1);
                    }
                    action.literals.push(inner);
                    at = end + 1;
                }
                byte if is_word(byte) => {
                    let start = at;
                    at = (at..bytes.len()).find(|at| !is_word(bytes[*at])).unwrap_or(bytes.len());
                    let word = &text[start..at];
                    if start > 0 && matches!(bytes[start - 1], b'.' | b'$') {
                        action.read_name(word);
                    } else {
                        self.tpl |= word == "tpl";
                        self.defines |= matches!(word, "define" | "block");
                        action.read_word(word);
                    }
                }
                byte => {
                    action.other |= byte == b'=';
                    at += 1;
                }
            }
        }
        self.nondeterministic |= action.is_nondeterministic();
        self.passes_result_on |= action.is_nondeterministic() && action.other;
        self.includes_by_path |= action.includes_by_path();
        text.get(at + 2..).unwrap_or_default()
    }
}

/// Returns the end of the literal whose content begins at `from`, or the end of the text if the literal is not
/// closed.
fn literal_end(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' && quote != b'`' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// Returns the value of a quoted literal; only escaped quotes are decoded.
fn unescaped(text: &str) -> String {
    text.replace("\\\"", "\"")
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_nondeterministic(text: &str) -> bool {
        Calls::of(text).nondeterministic
    }

    #[test]
    fn nondeterministic_calls_are_found_in_every_position() {
        for text in [
            "password: {{ randAlphaNum 16 | b64enc }}",
            "{{- $cert := genSelfSignedCert .Values.host nil nil 365 -}}",
            "at: {{ now | date \"2006\" }}",
            "{{ printf \"}}\" }}{{ uuidv4 }}",
            "{{ printf \"}} %s\" (uuidv4) }}",
            "{{/* a }} comment */}}{{ uuidv4 }}",
            "{{ tpl \"{{ randAlpha 5 }}\" . }}",
            "{{ tpl \"{{ printf \\\"%s\\\" now }}\" . }}",
            "{{ tpl `{{ shuffle \"abc\" }}` . }}",
            "{{ range keys .Values.map }}{{ . }}{{ end }}",
            "{{ if eq 1 (randInt 0 2) }}x{{ end }}",
        ] {
            assert!(is_nondeterministic(text), "{text}");
        }
    }

    #[test]
    fn function_names_outside_calls_are_ignored() {
        for text in [
            "# You can now log in {{ .Release.Name }}",
            "{{ .Values.now }} {{ $now }} {{ $.Values.shuffle }}",
            "{{/* rendered now */}}",
            "{{ include \"now\" . }}{{ printf \"randAlpha\" }}",
            "{{ derivePassword 1 \"long\" .a .b .c }} {{ sha256sum \"x\" }} {{ nowhere }}",
            "{{ range keys .Values.map | sortAlpha }}{{ . }}{{ end }}",
            "{{ if has \"a\" (keys .Values.map) }}x{{ end }}",
            "{{ 'x' }} {{ unfinished",
            "",
        ] {
            assert!(!is_nondeterministic(text), "{text}");
        }
    }

    #[test]
    fn values_and_files_count_if_tpl_may_evaluate_them() {
        let values = |text: &str| Map::from_iter([("text".to_owned(), Value::from(text))]);
        let deterministic = values("{{ .Release.Name }}, now");
        let nondeterministic = values("{{ randAlpha 5 | printf \"%s\" }}");
        let mut without_tpl = NondeterministicCalls::default();
        without_tpl.add_file("templates/a.yaml", "{{ .Values.text }} {{ .Values.tpl }}");
        without_tpl.add_file("README.md", "{{ now }}");
        assert_eq!(
            without_tpl.nondeterminism(&nondeterministic),
            Nondeterminism::None,
            "no template calls tpl"
        );
        let mut with_tpl = NondeterministicCalls::default();
        with_tpl.add_file("templates/a.yaml", "{{ tpl .Values.text . }}");
        assert_eq!(
            (with_tpl.nondeterminism(&deterministic), with_tpl.nondeterminism(&nondeterministic)),
            (Nondeterminism::None, Nondeterminism::All)
        );
        with_tpl.add_file("values.yaml", "text: \"{{ now }}\"");
        assert_eq!(
            with_tpl.nondeterminism(&deterministic),
            Nondeterminism::All,
            "tpl may evaluate a default value or a file"
        );
    }

    #[test]
    fn test_nondeterminism_counts_if_other_files_use_the_output() {
        let varies = |test: &str, other: &str| {
            let mut calls = NondeterministicCalls::default();
            calls.add_file("templates/tests/a.yaml", test);
            calls.add_file("templates/b.yaml", other);
            calls.nondeterminism(&Map::new())
        };
        let name = "name: {{ include \"x\" . }}-{{ randAlphaNum 5 | lower }}";
        for other in [
            "{{ include (print $.Template.BasePath \"/config.yaml\") . | sha256sum }}",
            "{{ .Values.tests }} {{ include \"x\" . }}",
            "# tpl, as in templates/tests/a.yaml",
        ] {
            assert_eq!(varies(name, other), Nondeterminism::Tests, "{other}");
        }
        for other in [
            "{{ uuidv4 }}",
            "{{ tpl .Values.text . }}",
            "{{ include (print $.Template.BasePath \"/tests/a.yaml\") . }}",
            "{{ include (printf \"%s/%s\" $.Template.BasePath .Values.file) . }}",
            "{{ include (print $.Template.BasePath \"/\" $file) . }}",
            "{{ $base := .Template.BasePath }}",
            "{{ include (.Template.Name | replace \"b.yaml\" \"tests/a.yaml\") . }}",
            "{{ include \"demo/templates/tests/a.yaml\" . }}",
        ] {
            assert_eq!(varies(name, other), Nondeterminism::All, "{other}");
        }
        for test in [
            "{{ $_ := set .Values \"x\" (randAlpha 5) }}",
            "{{ $x := randAlpha 5 }}{{ include \"sets\" $x }}",
            "{{ with randAlpha 5 }}{{ include \"sets\" . }}{{ end }}",
            "{{ randAlpha 5 | include \"sets\" }}",
            "{{ define \"x\" }}{{ randAlpha 5 }}{{ end }}",
        ] {
            assert_eq!(varies(test, ""), Nondeterminism::All, "{test}");
        }
        let mut elsewhere = NondeterministicCalls::default();
        elsewhere.add_file("charts/sub/templates/tests/a.yaml", name);
        assert_eq!(elsewhere.nondeterminism(&Map::new()), Nondeterminism::All);
    }

    #[test]
    fn reading_of_malformed_templates_terminates() {
        for text in ["{{\"", "{{`", "{{'\\", "{{\"\\", "{{/*", "{{ é }}", "{{ \"é\\\"", "{{{{{{", "{{}"] {
            let _ = Calls::of(text);
        }
        let nested = (0..40).fold("x".to_owned(), |inner, _| format!("{{{{ tpl `{inner}` . }}}}"));
        let _ = Calls::of(&nested);
    }
}
