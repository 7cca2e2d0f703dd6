//! Reads the entries of `valuesFrom` as one layer of values. Pure.
//!
//! Later entries of the list override earlier ones, with or without a `targetPath`. A label of the object must allow
//! the component to read it, and a Secret with access to a cluster is refused.
//!
//! An optional entry whose object or key is missing counts as empty, unless the installed revision has its values:
//! missing data never causes a deletion.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kyma_api::values::lay_over;
use kyma_api::{Reason, ValuesFrom, ValuesFromKind};
use kyma_controller::{CopyError, Failure, Revision};
use kyma_helm::values::{MAX_VALUES_BYTES, PathError, set_path};
use kyma_object_set::{Limits, ParseError, parse_map};
use serde_json::{Map, Value};

use crate::reader::Reader;

mod installed;

pub(crate) use installed::{FromLayer, merge_installed};

/// Default key, as in Flux.
const KEY: &str = "values.yaml";

/// Content of one hub object.
#[derive(Clone, PartialEq)]
pub(crate) enum Source {
    ConfigMap(Box<ConfigMap>),
    Secret(Box<Secret>),
}

impl Source {
    /// Returns the revision of the object.
    pub(crate) fn revision(&self) -> Revision {
        Revision::of(self.metadata())
    }

    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::ConfigMap(found) => &found.metadata,
            Self::Secret(found) => &found.metadata,
        }
    }
}

/// Why the values cannot be read. Names objects, keys and lines, never content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FromError {
    #[error("valuesFrom: there is no {object}{allow}, or set optional")]
    Missing { object: String, allow: String },
    #[error("valuesFrom: {object} has no key {key}; add it, or set optional")]
    NoKey { object: String, key: String },
    #[error(
        "valuesFrom: there is no {object}{allow}, or remove the entry from spec.valuesFrom; the installed revision has \
         its values"
    )]
    Vanished { object: String, allow: String },
    #[error(
        "valuesFrom: {object} has no key {key}; add it, or remove the entry from spec.valuesFrom; the installed \
         revision has its values"
    )]
    KeyVanished { object: String, key: String },
    #[error("valuesFrom: key {key} of {object} is not UTF-8")]
    NotText { object: String, key: String },
    #[error("valuesFrom: key {key} of {object}: {source}")]
    NotValues { object: String, key: String, source: Box<ParseError> },
    #[error("valuesFrom: targetPath of {object}: {source}")]
    Path { object: String, source: PathError },
    #[error("valuesFrom: {0}")]
    Copy(#[from] CopyError),
}

impl FromError {
    /// Returns the error for an optional entry whose values the installed revision has; `None` if nothing is missing.
    fn vanished(self) -> Option<Self> {
        match self {
            Self::Missing { object, allow } => Some(Self::Vanished { object, allow }),
            Self::NoKey { object, key } => Some(Self::KeyVanished { object, key }),
            _ => None,
        }
    }
}

impl From<FromError> for Failure {
    fn from(error: FromError) -> Self {
        let message = error.to_string();
        match error {
            FromError::Missing { .. }
            | FromError::NoKey { .. }
            | FromError::Vanished { .. }
            | FromError::KeyVanished { .. } => Self::new(Reason::ValuesMissing, message),
            FromError::NotText { .. } | FromError::NotValues { .. } | FromError::Path { .. } => {
                Self::new(Reason::ValuesInvalid, message)
            }
            FromError::Copy(copy) => Self::new(copy.reason(), message),
        }
    }
}

/// Returns the layer of all entries; `found` has the object of each entry on the hub.
pub(crate) fn layer(
    entries: &[ValuesFrom],
    found: &[Option<Source>],
    reader: &Reader,
) -> Result<FromLayer, FromError> {
    let mut layer = FromLayer::default();
    for (entry, found) in entries.iter().zip(found) {
        lay(&mut layer.values, entry, found.as_ref(), reader)?;
        if is_optional(entry) {
            layer.note_optional(entry, found.as_ref(), reader);
        }
    }
    Ok(layer)
}

/// Merges the values of one entry over those of earlier entries, and returns the values of this entry alone.
pub(super) fn lay(
    layer: &mut Map<String, Value>,
    entry: &ValuesFrom,
    found: Option<&Source>,
    reader: &Reader,
) -> Result<Map<String, Value>, FromError> {
    let mut alone = Map::new();
    let Some(text) = text(entry, found, reader)? else { return Ok(alone) };
    if let Some(at) = &entry.target_path {
        for values in [layer, &mut alone] {
            set_path(values, at, Value::String(text.to_owned()))
                .map_err(|source| FromError::Path { object: told(entry), source })?;
        }
        return Ok(alone);
    }
    let limits = Limits { text_bytes: MAX_VALUES_BYTES, scalar_bytes: MAX_VALUES_BYTES, ..Limits::default() };
    let values = parse_map(text, &limits).map_err(|source| FromError::NotValues {
        object: told(entry),
        key: key(entry.key.as_ref()).to_owned(),
        source: Box::new(source),
    })?;
    lay_over(layer, &values);
    Ok(values)
}

/// Returns the text of an entry; `None` if it is optional and missing.
fn text<'a>(
    entry: &ValuesFrom,
    found: Option<&'a Source>,
    reader: &Reader,
) -> Result<Option<&'a str>, FromError> {
    match find_text(entry, found, reader) {
        Err(FromError::Missing { .. } | FromError::NoKey { .. }) if is_optional(entry) => Ok(None),
        text => text.map(Some),
    }
}

fn is_optional(entry: &ValuesFrom) -> bool {
    entry.optional.unwrap_or_default()
}

/// Returns the text of an entry, optional or not.
fn find_text<'a>(
    entry: &ValuesFrom,
    found: Option<&'a Source>,
    reader: &Reader,
) -> Result<&'a str, FromError> {
    let key = key(entry.key.as_ref());
    let bytes = match found.filter(|found| reader.may_read(found.metadata())) {
        None => {
            return Err(FromError::Missing { object: told(entry), allow: reader.how_to_allow() });
        }
        Some(Source::ConfigMap(found)) => {
            found.data.as_ref().and_then(|data| data.get(key)).map(String::as_bytes)
        }
        Some(Source::Secret(found)) => {
            reader.may_copy(&entry.name, found)?;
            found.data.as_ref().and_then(|data| data.get(key)).map(|content| content.0.as_slice())
        }
    };
    match bytes.map(std::str::from_utf8) {
        Some(Ok(text)) => Ok(text),
        Some(Err(_)) => Err(FromError::NotText { object: told(entry), key: key.to_owned() }),
        None => Err(FromError::NoKey { object: told(entry), key: key.to_owned() }),
    }
}

/// Returns the key of an entry.
fn key(named: Option<&String>) -> &str {
    named.map_or(KEY, String::as_str)
}

pub(super) fn told(entry: &ValuesFrom) -> String {
    match entry.kind {
        ValuesFromKind::ConfigMap => format!("ConfigMap {}", entry.name),
        ValuesFromKind::Secret => format!("Secret {}", entry.name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries(entries: Value) -> Vec<ValuesFrom> {
        serde_json::from_value(entries).unwrap()
    }

    fn config_map(data: &Value) -> Source {
        Source::ConfigMap(Box::new(serde_json::from_value(json!({ "data": data })).unwrap()))
    }

    fn secret(labels: &Value, key: &str, content: &str) -> Source {
        let secret = json!({"metadata": {"labels": labels}});
        let mut secret: Secret = serde_json::from_value(secret).unwrap();
        let content = k8s_openapi::ByteString(content.as_bytes().to_vec());
        secret.data = Some([(key.to_owned(), content)].into());
        Source::Secret(Box::new(secret))
    }

    fn refused(entry: &Value, found: Option<Source>) -> (Reason, String) {
        let failure: Failure =
            layer(&entries(json!([entry])), &[found], &Reader::Standalone).unwrap_err().into();
        (failure.reason, failure.message)
    }

    #[test]
    fn later_entries_win_whether_they_have_a_path_or_not() {
        let of = json!([
            {"kind": "ConfigMap", "name": "base"},
            {"kind": "Secret", "name": "token", "key": "token", "targetPath": "auth.token"},
            {"kind": "ConfigMap", "name": "top", "key": "more"},
            {"kind": "ConfigMap", "name": "absent", "optional": true},
            {"kind": "ConfigMap", "name": "base", "key": "absent", "optional": true},
        ]);
        let allowed = json!({"component.kyma-project.io/copy-to-targets": "true"});
        let found = [
            Some(config_map(&json!({"values.yaml": "a: 1\nauth: {token: none, user: u}\nb: {c: yes}"}))),
            Some(secret(&allowed, "token", "0123")),
            Some(config_map(&json!({"more": "a: 2\nb: {d: null}"}))),
            None,
            Some(config_map(&json!({}))),
        ];
        let layer = layer(&entries(of), &found, &Reader::Standalone).unwrap();
        let expected = json!({"a": 2, "auth": {"token": "0123", "user": "u"}, "b": {"c": true, "d": null}});
        assert_eq!(Value::Object(layer.values), expected);
    }

    #[test]
    fn missing_or_invalid_values_are_reported_without_content() {
        let map = json!({"kind": "ConfigMap", "name": "c"});
        assert_eq!(refused(&map, None).0, Reason::ValuesMissing);
        let (reason, message) = refused(&map, Some(config_map(&json!({"other": "a: 1"}))));
        assert_eq!((reason, message.contains("no key values.yaml")), (Reason::ValuesMissing, true));
        for hush in ["- hush", "a: [hush", "a: 1\n---\nhush: 2", "hush"] {
            let (reason, message) = refused(&map, Some(config_map(&json!({"values.yaml": hush}))));
            assert_eq!(reason, Reason::ValuesInvalid, "{hush}");
            assert!(!message.contains("hush"), "{message}");
        }
        let at = json!({"kind": "ConfigMap", "name": "c", "targetPath": "a..b"});
        assert_eq!(refused(&at, Some(config_map(&json!({"values.yaml": "x"})))).0, Reason::ValuesInvalid);
    }

    #[test]
    fn a_secret_has_to_be_allowed_and_is_never_an_access() {
        let entry = json!({"kind": "Secret", "name": "s"});
        assert_eq!(
            refused(&entry, Some(secret(&json!({}), "values.yaml", "a: 1"))).0,
            Reason::CopyNotAllowed
        );
        let access = json!({"component.kyma-project.io/copy-to-targets": "true",
            "operator.kyma-project.io/kyma-name": "k"});
        assert_eq!(refused(&entry, Some(secret(&access, "values.yaml", "a: 1"))).0, Reason::CopyRefused);
    }

    #[test]
    fn a_module_cannot_tell_a_missing_object_from_a_foreign_one() {
        use kyma_api::labels;
        let reader = Reader::Module("keda".to_owned());
        let told = |entry: &Value, found: Option<Source>| {
            let failure: Failure = layer(&entries(json!([entry])), &[found], &reader).unwrap_err().into();
            (failure.reason, failure.message)
        };
        let mut map = config_map(&json!({"values.yaml": "a: 1"}));
        let (config, hush) =
            (json!({"kind": "ConfigMap", "name": "c"}), json!({"kind": "Secret", "name": "s", "key": "k"}));
        assert_eq!(told(&config, None), told(&config, Some(map.clone())));
        for labels in [
            json!({}),
            json!({labels::COPY_TO_TARGETS: "true"}),
            json!({labels::readable_by("nats"): "true"}),
            json!({labels::KYMA_NAME: "k"}),
        ] {
            for key in ["k", "other"] {
                assert_eq!(told(&hush, None), told(&hush, Some(secret(&labels, key, "x"))), "{labels}");
            }
        }
        let optional = entries(json!([{"kind": "Secret", "name": "s", "optional": true}]));
        let foreign = secret(&json!({}), "values.yaml", "a: 1");
        assert!(layer(&optional, &[Some(foreign)], &reader).unwrap().values.is_empty());
        let own = json!({labels::readable_by("keda"): "true"});
        if let Source::ConfigMap(map) = &mut map {
            map.metadata.labels = serde_json::from_value(own.clone()).unwrap();
        }
        let read = layer(&entries(json!([config])), &[Some(map)], &reader).unwrap();
        assert_eq!(Value::Object(read.values), json!({"a": 1}));
        assert!(
            layer(
                &entries(json!([{"kind": "Secret", "name": "s"}])),
                &[Some(secret(&own, "values.yaml", "a: 1"))],
                &reader
            )
            .is_ok()
        );
        let kubeconfig = secret(&own, "k", "apiVersion: v1\nkind: Config\nclusters: []\n");
        assert_eq!(told(&hush, Some(kubeconfig)).0, Reason::CopyRefused);
    }
}
