//! Whether the text of a chart looks at the version of Kubernetes.
//!
//! A template that prints all that it was given, without a name, is not seen through; neither is a name that is put
//! together from pieces.

use std::sync::LazyLock;

use regex::bytes::Regex;
use serde_json::{Map, Value};

use super::pattern::pattern;

/// What the text of a chart tells.
#[derive(Debug, Default)]
pub(super) struct VersionUse {
    /// Whether it names the version.
    named: bool,
    /// Whether it hands on what has the version, or a chart is refused on some versions.
    possible: bool,
}

impl VersionUse {
    /// Reads one more file.
    pub(super) fn see(&mut self, file: &str, text: &[u8]) {
        self.named |= NAMED.is_match(text);
        let is_metadata = file.rsplit('/').next() == Some("Chart.yaml");
        self.possible |= HANDED_ON.is_match(text) || (is_metadata && CONSTRAINED.is_match(text));
    }

    /// Whether text that may be taken for a template names the version: only then can another one make another text by
    /// somebody's wish.
    pub(super) fn is_named(&self, values: &Map<String, Value>) -> bool {
        self.named || NAMED.is_match(text(values).as_bytes())
    }

    /// Whether another version could change what comes of the chart, or whether anything does.
    pub(super) fn counts(&self, values: &Map<String, Value>) -> bool {
        self.possible || self.is_named(values) || HANDED_ON.is_match(text(values).as_bytes())
    }
}

/// The values as text, since `tpl` takes any of them for a template.
pub(super) fn text(values: &Map<String, Value>) -> String {
    serde_json::to_string(values).unwrap_or_default()
}

static NAMED: LazyLock<Regex> = LazyLock::new(|| pattern("KubeVersion"));
/// `.Capabilities`, or its name in quotes, without a field of it right after it.
pub(super) static HANDED_ON: LazyLock<Regex> = LazyLock::new(|| pattern(r#"[."`]Capabilities(?:[^.\w]|\z)"#));
/// Helm reads keys whatever their case, and YAML may write letters as escapes.
static CONSTRAINED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)kubeversion|\\"));

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(file: &str, text: &str) -> VersionUse {
        let mut seen = VersionUse::default();
        seen.see(file, text.as_bytes());
        seen
    }

    fn values(text: &str) -> Map<String, Value> {
        Map::from_iter([("text".to_owned(), json!(text))])
    }

    #[test]
    fn a_version_counts_where_it_is_named_or_may_be_among_what_is_handed_on() {
        let nothing = Map::new();
        for text in
            ["{{ .Capabilities.KubeVersion.Minor }}", "{{ with .Capabilities }}{{ .KubeVersion }}{{ end }}"]
        {
            let seen = seen("templates/a.yaml", text);
            assert!(seen.is_named(&nothing) && seen.counts(&nothing), "{text}");
        }
        for text in [
            "{{ toYaml .Capabilities }}",
            "{{ toYaml $.Capabilities}}",
            "{{ (.Capabilities) | toJson }}",
            "{{ get . \"Capabilities\" }}",
            "{{ get . `Capabilities` }}",
            "{{ .Capabilities",
        ] {
            let seen = seen("templates/a.yaml", text);
            assert!(!seen.is_named(&nothing) && seen.counts(&nothing), "{text}");
        }
    }

    #[test]
    fn what_cannot_tell_the_version_does_not_make_it_count() {
        for text in [
            "{{ .Capabilities.APIVersions.Has \"v1\" }} {{ .Capabilities.HelmVersion }}",
            "capabilities: {drop: [ALL]}",
            "# Capabilities of this chart",
            "{{ .Values.kubeVersion }}",
        ] {
            let seen = seen("templates/a.yaml", text);
            assert!(!seen.counts(&values(text)), "{text}");
        }
    }

    #[test]
    fn a_chart_that_some_versions_refuse_depends_on_the_version_without_naming_it() {
        for text in ["kubeVersion: '>=1.30'", "kubeversion: '>=1.30'", "\"kube\\u0056ersion\": '>=1.30'"] {
            for file in ["Chart.yaml", "charts/inner/Chart.yaml"] {
                let seen = seen(file, text);
                assert!(!seen.is_named(&Map::new()) && seen.counts(&Map::new()), "{file}: {text}");
            }
        }
        assert!(!seen("Chart.yaml", "name: demo").counts(&Map::new()));
        assert!(!seen("values.yaml", "kubeVersion: '1.30'").counts(&Map::new()));
    }

    #[test]
    fn values_count_as_templates() {
        let plain = seen("templates/a.yaml", "{{ tpl .Values.text . }}");
        assert!(plain.is_named(&values("{{ .Capabilities.KubeVersion }}")));
        assert!(plain.counts(&values("{{ get . \"Capabilities\" }}")));
        assert!(plain.counts(&values("{{ toYaml .Capabilities }}")));
    }
}
