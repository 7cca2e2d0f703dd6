//! Cache of parsed manifests and renders, shared by components with the same text.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use kyma_api::Reason;
use kyma_artifacts::BoundedCache;
use kyma_controller::Failure;
use kyma_object_set::{Limits, ObjectSet};
use serde_json::{Map, Value};

use super::digest;

/// Maximum number of parsed texts.
const MAX_TEXTS: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// Maximum size of all parsed texts in memory, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// Memory of a field besides its key and value, in bytes: nodes of a map are two thirds full on average.
const FIELD_OVERHEAD: usize = size_of::<String>() + size_of::<Value>() / 2;

/// Manifests as they come from the source or the renderer.
pub(super) enum Text {
    Plain(Bytes),
    Rendered(Arc<str>),
}

impl Text {
    pub(super) fn parse(&self) -> Result<ObjectSet, Failure> {
        let parsed = ObjectSet::parse_bytes(self.bytes(), &Limits::default());
        parsed.map_err(|error| Failure::new(Reason::ManifestInvalid, error.to_string()))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Rendered(text) => text.as_bytes(),
        }
    }
}

/// Parsed texts by digest: at most 256 texts and an estimated 32 MiB in memory; the least recently used are evicted
/// first. Failures are not kept.
pub(crate) struct ParsedTexts(BoundedCache<String, ParsedText>);

#[derive(Clone)]
struct ParsedText {
    objects: Arc<ObjectSet>,
    /// Estimated size in memory.
    bytes: usize,
}

impl Default for ParsedTexts {
    fn default() -> Self {
        Self::new(MAX_BYTES)
    }
}

impl ParsedTexts {
    fn new(max_bytes: usize) -> Self {
        Self(BoundedCache::new(MAX_TEXTS, max_bytes, |text: &ParsedText| text.bytes))
    }

    /// Returns the objects of a text.
    ///
    /// # Errors
    /// If the text is not a valid manifest.
    pub(super) fn objects(&self, text: &Text) -> Result<Arc<ObjectSet>, Failure> {
        let key = digest(&[text.bytes()]);
        if let Some(parsed) = self.0.get(&key) {
            return Ok(parsed.objects);
        }
        let objects = Arc::new(text.parse()?);
        let bytes = memory_of(&objects);
        self.0.put(key, ParsedText { objects: Arc::clone(&objects), bytes });
        Ok(objects)
    }
}

/// Estimates the memory of parsed objects, in bytes. It may be a large multiple of the text, which may have aliases.
fn memory_of(set: &ObjectSet) -> usize {
    set.objects().iter().map(|object| memory_of_fields(object.body())).sum()
}

fn memory_of_fields(fields: &Map<String, Value>) -> usize {
    let field = |(key, value): (&String, &Value)| FIELD_OVERHEAD + key.len() + memory_of_value(value);
    fields.iter().map(field).sum()
}

fn memory_of_value(value: &Value) -> usize {
    let content = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory_of_value).sum(),
        Value::Object(fields) => memory_of_fields(fields),
    };
    size_of::<Value>() + content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
    }

    fn plain(name: &str) -> Text {
        Text::Plain(text(name).into())
    }

    #[test]
    fn a_second_component_with_the_same_text_parses_nothing() {
        let texts = ParsedTexts::default();
        let first = texts.objects(&plain("a")).unwrap();
        assert_eq!(first.objects().len(), 1);
        assert!(Arc::ptr_eq(&first, &texts.objects(&plain("a")).unwrap()));
        assert!(Arc::ptr_eq(&first, &texts.objects(&Text::Rendered(text("a").into())).unwrap()));
        assert!(!Arc::ptr_eq(&first, &texts.objects(&plain("b")).unwrap()));
    }

    #[test]
    fn objects_that_exceed_the_bound_are_parsed_again() {
        let size = memory_of(&plain("a").parse().unwrap());
        assert!(size > text("a").len(), "{size}");
        for (max_bytes, is_kept) in [(size, true), (size - 1, false)] {
            let texts = ParsedTexts::new(max_bytes);
            let first = texts.objects(&plain("a")).unwrap();
            assert_eq!(Arc::ptr_eq(&first, &texts.objects(&plain("a")).unwrap()), is_kept);
        }
    }

    #[test]
    fn invalid_texts_fail_each_time() {
        let texts = ParsedTexts::default();
        for _ in 0..2 {
            let failure = texts.objects(&Text::Plain("kind: [".into())).unwrap_err();
            assert_eq!(failure.reason, Reason::ManifestInvalid);
        }
    }
}
