//! Reduced values of ConfigMaps and Secrets. The values themselves are not kept.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::ByteString;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A reduced value.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Content {
    digest: [u8; 32],
    /// Whether Flux sets it at a `targetPath` as unchanged text, `literal` or not.
    pub(super) is_text: bool,
}

impl fmt::Debug for Content {
    // Never printed: a short secret could be guessed from its digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content")
    }
}

impl Content {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let is_text = std::str::from_utf8(bytes).is_ok_and(stays_text);
        Self { digest: Sha256::digest(bytes).into(), is_text }
    }
}

/// Returns the values of an object by key; `None` is an unreadable value.
pub(super) fn contents(object: &Value, is_secret: bool) -> BTreeMap<String, Option<Content>> {
    let fields: &[(&str, bool)] =
        if is_secret { &[("data", true), ("stringData", false)] } else { &[("data", false)] };
    let mut all = BTreeMap::new();
    for (field, is_encoded) in fields {
        for (key, value) in object[*field].as_object().into_iter().flatten() {
            let content = if *is_encoded {
                serde_json::from_value::<ByteString>(value.clone()).ok().map(|bytes| Content::of(&bytes.0))
            } else {
                value.as_str().map(|text| Content::of(text.as_bytes()))
            };
            all.insert(key.clone(), content);
        }
    }
    all
}

/// Reports whether Helm's `--set`, which Flux uses, keeps the text unchanged: it is no number, boolean or list, and
/// has no separator, quote or escape.
fn stays_text(text: &str) -> bool {
    let is_typed = ["true", "false", "null", "0"].iter().any(|word| text.eq_ignore_ascii_case(word))
        || (!text.starts_with('0') && text.parse::<i64>().is_ok());
    let is_quoted = ['\'', '"'].iter().any(|quote| text.starts_with(*quote) && text.ends_with(*quote));
    !is_typed && !is_quoted && !text.starts_with('{') && !text.contains([',', '\\'])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_that_helm_parses_as_another_type_is_detected() {
        for text in
            ["", "hush", "007", "1.5", "3\n", "yes", "a{b}", "it's", "9223372036854775808", "0x10", "a b=c"]
        {
            assert!(stays_text(text), "{text}");
        }
        for text in
            ["true", "FALSE", "null", "0", "3", "-3", "+3", "{a,b}", "a,b=c", "a\\,b", "'3'", "\"", "{"]
        {
            assert!(!stays_text(text), "{text}");
        }
    }

    #[test]
    fn contents_are_known_by_key_and_never_printed() {
        let secret = contents(
            &json!({"data": {"a": "aHVzaA==", "b": "no base64"}, "stringData": {"c": "hush"}}),
            true,
        );
        assert_eq!(secret["a"], secret["c"]);
        assert_eq!(secret["b"], None);
        let map = contents(&json!({"data": {"a": "hush"}, "binaryData": {"b": "aHVzaA=="}}), false);
        assert_eq!(map.get("a"), secret.get("a"));
        assert_eq!(map.len(), 1);
        assert_eq!(format!("{map:?}"), r#"{"a": Some(Content)}"#);
    }
}
