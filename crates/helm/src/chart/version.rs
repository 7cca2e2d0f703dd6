//! Detects whether the text of a chart reads the version of Kubernetes.
//!
//! Not detected: a template that prints its whole input without a name, and a name that is assembled from pieces.

use std::sync::LazyLock;

use regex::bytes::Regex;
use serde_json::{Map, Value};

use super::pattern::pattern;

/// Findings in the text of a chart.
#[derive(Debug, Default)]
pub(super) struct VersionUse {
    /// Whether it names the version.
    named: bool,
    /// Whether it passes on an object that contains the version, or a chart refuses some versions.
    possible: bool,
}

impl VersionUse {
    /// Reads one more file.
    pub(super) fn see(&mut self, file: &str, text: &[u8]) {
        self.named |= KUBE_VERSION.is_match(text);
        let is_metadata = file.rsplit('/').next() == Some("Chart.yaml");
        self.possible |= HANDED_ON.is_match(text) || (is_metadata && CONSTRAINED.is_match(text));
    }

    /// Reports whether text that may be evaluated as a template names the version: only then does another version
    /// intentionally give another result.
    pub(super) fn is_named(&self, values: &Map<String, Value>) -> bool {
        self.named || KUBE_VERSION.is_match(text(values).as_bytes())
    }

    /// Reports whether another version could change the result of the chart, or make the chart refuse to render.
    pub(super) fn counts(&self, values: &Map<String, Value>) -> bool {
        self.possible || self.is_named(values) || HANDED_ON.is_match(text(values).as_bytes())
    }
}

/// Returns the values as text, since `tpl` may evaluate any of them as a template.
pub(super) fn text(values: &Map<String, Value>) -> String {
    serde_json::to_string(values).unwrap_or_default()
}

static KUBE_VERSION: LazyLock<Regex> = LazyLock::new(|| pattern("KubeVersion"));
/// `.Capabilities`, or its quoted name, without a field after it.
pub(super) static HANDED_ON: LazyLock<Regex> = LazyLock::new(|| pattern(r#"[."`]Capabilities(?:[^.\w]|\z)"#));
/// Helm ignores the case of keys, and YAML may escape letters.
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
    fn version_counts_if_named_or_in_capabilities_passed_as_a_whole() {
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
    fn text_without_kube_version_does_not_depend_on_it() {
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
    fn kube_version_constraint_depends_on_version_without_naming_it() {
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
