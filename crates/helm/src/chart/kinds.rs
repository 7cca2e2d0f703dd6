//! Detects whether the text of a chart reads the kinds that a target serves. The limits are those of the detection of
//! versions.

use std::sync::LazyLock;

use regex::bytes::Regex;
use serde_json::{Map, Value};

use super::pattern::pattern;
use super::version::{HANDED_ON, text};

/// Findings in the text of a chart.
#[derive(Debug, Default)]
pub(super) struct KindsUse {
    /// Whether it names the list.
    named: bool,
    /// Whether it passes on an object that contains the list.
    handed_on: bool,
}

impl KindsUse {
    /// Reads one more file.
    pub(super) fn see(&mut self, text: &[u8]) {
        self.named |= API_VERSIONS.is_match(text);
        self.handed_on |= HANDED_ON.is_match(text);
    }

    /// Reports whether text that may be evaluated as a template names the list: only then does another list
    /// intentionally give another result.
    pub(super) fn is_named(&self, values: &Map<String, Value>) -> bool {
        self.named || API_VERSIONS.is_match(text(values).as_bytes())
    }

    /// Reports whether another list could change the result of the chart.
    pub(super) fn counts(&self, values: &Map<String, Value>) -> bool {
        self.handed_on || self.is_named(values) || HANDED_ON.is_match(text(values).as_bytes())
    }
}

static API_VERSIONS: LazyLock<Regex> = LazyLock::new(|| pattern("APIVersions"));

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(text: &str) -> KindsUse {
        let mut seen = KindsUse::default();
        seen.see(text.as_bytes());
        seen
    }

    fn values(text: &str) -> Map<String, Value> {
        Map::from_iter([("text".to_owned(), json!(text))])
    }

    #[test]
    fn kinds_count_where_they_are_named_or_among_what_is_handed_on() {
        let nothing = Map::new();
        let plain = seen("{{ tpl .Values.text . }}");
        for (text, is_named) in [
            ("{{ .Capabilities.APIVersions.Has \"v1\" }}", true),
            ("{{ with .Capabilities }}{{ .APIVersions }}{{ end }}", true),
            ("{{ toYaml .Capabilities }}", false),
            ("{{ get . \"Capabilities\" | toJson }}", false),
        ] {
            assert_eq!(
                (seen(text).is_named(&nothing), seen(text).counts(&nothing)),
                (is_named, true),
                "{text}"
            );
            let values = values(text);
            assert_eq!((plain.is_named(&values), plain.counts(&values)), (is_named, true), "{text}");
        }
    }

    #[test]
    fn text_without_api_versions_does_not_depend_on_kinds() {
        for text in
            ["{{ .Capabilities.KubeVersion }}", "capabilities: {drop: [ALL]}", "{{ .Values.apiVersions }}"]
        {
            assert!(!seen(text).counts(&values(text)), "{text}");
        }
    }
}
