//! Detects calls in the text of a chart that return another result each time: random values, the time, or unordered
//! maps.
//!
//! Templates that a chart assembles from pieces before it evaluates them are not detected.

use serde_json::{Map, Value};

/// Functions of Helm whose result differs from call to call.
const NONDETERMINISTIC_FUNCTIONS: &[&str] = &[
    "ago",
    "bcrypt",
    // These use the current time for an argument that is no time.
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
/// Functions that return the parts of a map in random order, and functions beside which the order has no effect.
const UNORDERED_FUNCTIONS: &[&str] = &["keys", "values"];
const ORDERING_FUNCTIONS: &[&str] = &["sortAlpha", "has", "len"];
/// Functions that only convert the text of a varying result.
const CONVERTING_FUNCTIONS: &[&str] =
    &["b64enc", "lower", "print", "printf", "quote", "sha256sum", "squote", "trunc", "upper"];
/// Directory of a chart's tests by Helm's documentation (<https://helm.sh/docs/topics/chart_tests/>).
const TESTS_DIRECTORY: &str = "templates/tests/";
/// Maximum depth of templates in strings of templates; deeper ones count as varying.
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
    /// Whether tests call varying functions and use the results only themselves.
    tests: bool,
    /// Whether files other than templates would call varying functions if they were evaluated as templates.
    files: bool,
}

impl NondeterministicCalls {
    /// Reads one more file.
    pub(super) fn see(&mut self, file: &str, text: &str) {
        let found = Calls::of(text);
        if !file.contains("templates/") {
            self.files |= found.nondeterministic;
            return;
        }
        let is_own = file.starts_with(TESTS_DIRECTORY) && !found.spreads && !found.defines;
        self.tests |= is_own && found.nondeterministic;
        self.templates.nondeterministic |= found.nondeterministic && !is_own;
        self.templates.tpl |= found.tpl;
        self.templates.borrows |= found.borrows;
    }

    /// Returns the parts that may differ between renders with these values.
    pub(super) fn of(&self, values: &Map<String, Value>) -> Nondeterminism {
        let Calls { nondeterministic, tpl, borrows, .. } = self.templates;
        let told = || Calls::of(&unescaped(&Value::Object(values.clone()).to_string())).nondeterministic;
        if nondeterministic || (tpl && (self.files || told())) {
            return Nondeterminism::All;
        }
        match self.tests {
            false => Nondeterminism::None,
            // Another file may include the output of a test.
            true if tpl || borrows => Nondeterminism::All,
            true => Nondeterminism::Tests,
        }
    }
}

/// Functions that templates call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one text")]
struct Calls {
    /// A function whose result differs from call to call.
    nondeterministic: bool,
    /// A function whose result differs, if a variable or another template may pass the result on.
    spreads: bool,
    /// Definitions of templates that other files may use.
    defines: bool,
    /// `tpl`, which evaluates other text as a template.
    tpl: bool,
    /// Templates by path, which may be those of tests.
    borrows: bool,
}

/// Content of one action.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one action")]
struct TemplateAction<'a> {
    nondeterministic: bool,
    unordered: bool,
    ordered: bool,
    /// Anything other than varying functions and functions that only convert text.
    other: bool,
    /// `.Template`, whose paths name files.
    base_path: bool,
    /// A field or variable other than these.
    names: bool,
    literals: Vec<&'a str>,
}

impl TemplateAction<'_> {
    fn word(&mut self, word: &str) {
        self.nondeterministic |= NONDETERMINISTIC_FUNCTIONS.contains(&word);
        self.unordered |= UNORDERED_FUNCTIONS.contains(&word);
        self.ordered |= ORDERING_FUNCTIONS.contains(&word);
        let is_number = word.starts_with(|first: char| first.is_ascii_digit());
        self.other |= !(is_number
            || NONDETERMINISTIC_FUNCTIONS.contains(&word)
            || CONVERTING_FUNCTIONS.contains(&word));
    }

    fn name(&mut self, name: &str) {
        // `.Template.Name` is a path too, from which another one can be derived.
        self.base_path |= matches!(name, "BasePath" | "Template");
        self.names |= !matches!(name, "BasePath" | "Template");
    }

    fn is_nondeterministic(&self) -> bool {
        self.nondeterministic || (self.unordered && !self.ordered)
    }

    /// Reports whether the action may name the file of a test: it names templates by path, and not just one that is
    /// certainly another file.
    fn borrows(&self) -> bool {
        let is_other = |file: &str| file.contains('.') && !file.contains("test") && !file.contains('%');
        let is_one = !self.names && matches!(self.literals[..], [file] if is_other(file));
        (self.base_path && !is_one) || self.literals.iter().any(|literal| literal.contains("templates"))
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
            self.spreads = true;
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
                        action.name(word);
                    } else {
                        self.tpl |= word == "tpl";
                        self.defines |= matches!(word, "define" | "block");
                        action.word(word);
                    }
                }
                byte => {
                    action.other |= byte == b'=';
                    at += 1;
                }
            }
        }
        self.nondeterministic |= action.is_nondeterministic();
        self.spreads |= action.is_nondeterministic() && action.other;
        self.borrows |= action.borrows();
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
    fn nondeterministic_calls_are_found_wherever_they_stand() {
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
    fn words_that_call_nothing_are_not_taken_for_calls() {
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
    fn other_text_counts_where_it_may_be_taken_for_a_template() {
        let values = |text: &str| Map::from_iter([("text".to_owned(), Value::from(text))]);
        let certain = values("{{ .Release.Name }}, now");
        let nondeterministic = values("{{ randAlpha 5 | printf \"%s\" }}");
        let mut plain = NondeterministicCalls::default();
        plain.see("templates/a.yaml", "{{ .Values.text }} {{ .Values.tpl }}");
        plain.see("README.md", "{{ now }}");
        assert_eq!(plain.of(&nondeterministic), Nondeterminism::None, "nothing is taken for a template");
        let mut taking = NondeterministicCalls::default();
        taking.see("templates/a.yaml", "{{ tpl .Values.text . }}");
        assert_eq!(
            (taking.of(&certain), taking.of(&nondeterministic)),
            (Nondeterminism::None, Nondeterminism::All)
        );
        taking.see("values.yaml", "text: \"{{ now }}\"");
        assert_eq!(taking.of(&certain), Nondeterminism::All, "a default value or a file");
    }

    #[test]
    fn nondeterminism_of_tests_stays_there_unless_used_elsewhere() {
        let varies = |test: &str, other: &str| {
            let mut calls = NondeterministicCalls::default();
            calls.see("templates/tests/a.yaml", test);
            calls.see("templates/b.yaml", other);
            calls.of(&Map::new())
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
        elsewhere.see("charts/sub/templates/tests/a.yaml", name);
        assert_eq!(elsewhere.of(&Map::new()), Nondeterminism::All);
    }

    #[test]
    fn odd_text_ends() {
        for text in ["{{\"", "{{`", "{{'\\", "{{\"\\", "{{/*", "{{ é }}", "{{ \"é\\\"", "{{{{{{", "{{}"] {
            let _ = Calls::of(text);
        }
        let nested = (0..40).fold("x".to_owned(), |inner, _| format!("{{{{ tpl `{inner}` . }}}}"));
        let _ = Calls::of(&nested);
    }
}
