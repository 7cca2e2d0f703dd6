//! Detects charts that read the revision of their release, or whether it is an installation or an upgrade.

use std::sync::LazyLock;

use regex::bytes::Regex;
use serde_json::{Map, Value};

use super::pattern::pattern;
use super::version::text;

/// Whether the text of a chart reads `.Release.Revision`, `.IsInstall` or `.IsUpgrade`.
#[derive(Debug, Default)]
pub(super) struct ReleaseUse {
    named: bool,
}

impl ReleaseUse {
    /// Reads one more file.
    pub(super) fn see(&mut self, text: &[u8]) {
        self.named |= USED.is_match(text);
    }

    /// Returns whether another revision could change the result of the chart.
    pub(super) fn counts(&self, values: &Map<String, Value>) -> bool {
        self.named || USED.is_match(text(values).as_bytes())
    }
}

/// The name of such a field, or `.Release` without a field after it, which passes on all fields.
static USED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"\b(?:Revision|IsUpgrade|IsInstall)\b|[."`]Release(?:[^.\w]|\z)"#));

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_revision_counts_if_it_is_read_or_passed_on() {
        let counts = |text: &str| {
            let mut seen = ReleaseUse::default();
            seen.see(text.as_bytes());
            seen.counts(&Map::new())
        };
        for text in [
            "{{ .Release.Revision }}",
            "{{ if $.Release.IsUpgrade }}",
            "{{ with .Release }}{{ .IsInstall }}{{ end }}",
            "{{ toYaml .Release }}",
            "{{ get . \"Release\" }}",
        ] {
            assert!(counts(text), "{text}");
        }
        for text in [
            "{{ .Release.Name }}-{{ .Release.Namespace }}",
            "# Releases",
            "{{ .Values.revisionHistoryLimit }}",
        ] {
            assert!(!counts(text), "{text}");
        }
        let values = Map::from_iter([("text".to_owned(), json!("{{ .Release.Revision }}"))]);
        assert!(ReleaseUse::default().counts(&values));
    }
}
