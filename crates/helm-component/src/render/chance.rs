//! Whether the text of a chart calls what gives another result each time: chance, a clock, or an order by chance.
//!
//! Text that a chart puts together from pieces, and only then takes for a template, is not seen through.

use serde_json::{Map, Value};

/// Functions of Helm whose result differs from call to call.
const CHANCE: &[&str] = &[
    "ago",
    "bcrypt",
    // These take what is no time for now.
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
/// Functions that give the parts of a map in an order by chance, and those beside which that does not show.
const UNORDERED: &[&str] = &["keys", "values"];
const ORDERING: &[&str] = &["sortAlpha", "has", "len"];
/// Templates in strings in templates that are looked into; deeper ones count as chance.
const DEPTH: usize = 8;

/// What the text of a chart tells.
#[derive(Debug, Default)]
pub(super) struct Chance {
    templates: Calls,
    /// Whether a file that is no template would call chance, if it was one.
    files: bool,
}

impl Chance {
    /// Reads one more file.
    pub(super) fn see(&mut self, is_template: bool, text: &str) {
        let found = Calls::of(text);
        if is_template {
            self.templates.chance |= found.chance;
            self.templates.tpl |= found.tpl;
        } else {
            self.files |= found.chance;
        }
    }

    /// Whether renders with these values may differ.
    pub(super) fn is_there(&self, values: &Map<String, Value>) -> bool {
        let Calls { chance, tpl } = self.templates;
        let told = || Calls::of(&unescaped(&Value::Object(values.clone()).to_string())).chance;
        chance || (tpl && (self.files || told()))
    }
}

/// What templates call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Calls {
    /// Something whose result differs from call to call.
    chance: bool,
    /// `tpl`, which takes other text for a template.
    tpl: bool,
}

impl Calls {
    /// Reads the actions in a text. Whatever stands around them says nothing.
    fn of(text: &str) -> Self {
        let mut calls = Self::default();
        calls.read(text, DEPTH);
        calls
    }

    fn read(&mut self, text: &str, depth: usize) {
        if depth == 0 {
            self.chance = true;
            return;
        }
        let mut rest = text;
        while let Some(start) = rest.find("{{") {
            rest = self.action(&rest[start + 2..], depth);
        }
    }

    /// Reads one action, and gives what follows it.
    fn action<'a>(&mut self, text: &'a str, depth: usize) -> &'a str {
        let bytes = text.as_bytes();
        let (mut unordered, mut ordered) = (false, false);
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
                    at = end + 1;
                }
                byte if is_word(byte) => {
                    let start = at;
                    at = (at..bytes.len()).find(|at| !is_word(bytes[*at])).unwrap_or(bytes.len());
                    let is_name = start > 0 && matches!(bytes[start - 1], b'.' | b'$');
                    let word = &text[start..at];
                    if !is_name {
                        self.chance |= CHANCE.contains(&word);
                        self.tpl |= word == "tpl";
                        unordered |= UNORDERED.contains(&word);
                        ordered |= ORDERING.contains(&word);
                    }
                }
                _ => at += 1,
            }
        }
        self.chance |= unordered && !ordered;
        text.get(at + 2..).unwrap_or_default()
    }
}

/// Where a literal ends that begins before `from`; the end of the text where it does not.
fn literal_end(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' && quote != b'`' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// The text that a quoted literal stands for, as far as quotes go.
fn unescaped(text: &str) -> String {
    text.replace("\\\"", "\"")
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance(text: &str) -> bool {
        Calls::of(text).chance
    }

    #[test]
    fn calls_of_chance_and_clock_are_found_wherever_they_stand() {
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
            assert!(chance(text), "{text}");
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
            assert!(!chance(text), "{text}");
        }
    }

    #[test]
    fn other_text_counts_where_it_may_be_taken_for_a_template() {
        let values = |text: &str| Map::from_iter([("text".to_owned(), Value::from(text))]);
        let certain = values("{{ .Release.Name }}, now");
        let by_chance = values("{{ randAlpha 5 | printf \"%s\" }}");
        let mut plain = Chance::default();
        plain.see(true, "{{ .Values.text }} {{ .Values.tpl }}");
        plain.see(false, "{{ now }}");
        assert!(!plain.is_there(&by_chance), "nothing is taken for a template");
        let mut taking = Chance::default();
        taking.see(true, "{{ tpl .Values.text . }}");
        assert!(!taking.is_there(&certain) && taking.is_there(&by_chance));
        taking.see(false, "text: \"{{ now }}\"");
        assert!(taking.is_there(&certain), "a default value or a file");
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
