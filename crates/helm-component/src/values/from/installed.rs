//! Compares the optional entries of `valuesFrom` with those whose values the installed revision has. Pure.

use std::fmt;

use kyma_api::{InstalledValues, ValuesFrom};
use serde_json::{Map, Value};

use super::{FromError, Source, find_text, key};
use crate::reader::Reader;

/// The layer of all entries, with the state of the optional ones.
#[derive(Clone, Default)]
pub(crate) struct FromLayer {
    /// The merged values.
    pub(crate) values: Map<String, Value>,
    /// Optional entries whose object and key exist.
    pub(crate) optional: Vec<InstalledValues>,
    /// Optional entries whose object or key is missing, with the error to report if their values are installed.
    missing: Vec<(InstalledValues, FromError)>,
}

impl fmt::Debug for FromLayer {
    // Values are never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromLayer").field("optional", &self.optional).finish_non_exhaustive()
    }
}

impl FromLayer {
    /// Checks that no values of the installed revision are missing. Values of removed entries are not missed.
    ///
    /// # Errors
    /// If the object or key of an entry is missing and the installed revision has its values.
    pub(crate) fn check(&self, installed: &[InstalledValues]) -> Result<(), FromError> {
        let vanished = self.missing.iter().find(|(entry, _)| contains(installed, entry));
        vanished.map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// Notes whether the object and key of an optional entry exist.
    pub(super) fn note_optional(&mut self, entry: &ValuesFrom, found: Option<&Source>, reader: &Reader) {
        let noted = installed_values(entry);
        match find_text(entry, found, reader).err().and_then(FromError::vanished) {
            Some(error) => self.missing.push((noted, error)),
            None if contains(&self.optional, &noted) => {}
            None => self.optional.push(noted),
        }
    }
}

/// Returns the record of installed values while other content is applied: until all of it is applied, the target may
/// have objects of both revisions. Entries that are no longer in the spec and not applied are dropped.
pub(crate) fn merge_installed(
    recorded: &[InstalledValues],
    applied: &[InstalledValues],
    entries: &[ValuesFrom],
) -> Vec<InstalledValues> {
    let named: Vec<InstalledValues> = entries.iter().map(installed_values).collect();
    let kept = recorded.iter().filter(|one| contains(&named, one) && !contains(applied, one));
    kept.chain(applied).cloned().collect()
}

fn installed_values(entry: &ValuesFrom) -> InstalledValues {
    InstalledValues { kind: entry.kind, name: entry.name.clone(), key: entry.key.clone() }
}

/// Reports whether an entry is in the list. An absent key is the default one.
fn contains(all: &[InstalledValues], entry: &InstalledValues) -> bool {
    let is_same = |one: &InstalledValues| {
        one.kind == entry.kind && one.name == entry.name && key(one.key.as_ref()) == key(entry.key.as_ref())
    };
    all.iter().any(is_same)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kyma_api::Reason;
    use kyma_controller::Failure;
    use serde_json::json;

    use super::super::layer;
    use super::*;

    fn entries(names: &[&str]) -> Vec<ValuesFrom> {
        let entry = |name: &&str| json!({"kind": "ConfigMap", "name": name, "optional": true});
        serde_json::from_value(names.iter().map(entry).collect()).unwrap()
    }

    fn installed(names: &[&str]) -> Vec<InstalledValues> {
        entries(names).iter().map(installed_values).collect()
    }

    fn config_map(data: &Value) -> Source {
        let config_map: ConfigMap = serde_json::from_value(json!({ "data": data })).unwrap();
        Source::ConfigMap(Box::new(config_map))
    }

    fn message(layer: &FromLayer, installed: &[InstalledValues]) -> String {
        let failure: Failure = layer.check(installed).unwrap_err().into();
        assert_eq!(failure.reason, Reason::ValuesMissing);
        failure.message
    }

    #[test]
    fn missing_optional_values_count_as_empty_unless_installed() {
        let layer = layer(&entries(&["gone"]), &[None], &Reader::Standalone).unwrap();
        assert!(layer.values.is_empty() && layer.optional.is_empty());
        assert_eq!(layer.check(&[]), Ok(()), "never installed");
        assert_eq!(layer.check(&installed(&["other"])), Ok(()));
        assert_eq!(
            message(&layer, &installed(&["gone"])),
            "valuesFrom: there is no ConfigMap gone; create it in the component's namespace, or remove the entry from \
             spec.valuesFrom; the installed revision has its values"
        );
    }

    #[test]
    fn missing_key_of_installed_values_is_named() {
        let found = Some(config_map(&json!({"other": "a: 1"})));
        let layer = layer(&entries(&["c"]), &[found], &Reader::Standalone).unwrap();
        assert!(layer.optional.is_empty());
        let named = InstalledValues { key: Some("values.yaml".to_owned()), ..installed(&["c"]).remove(0) };
        assert_eq!(
            message(&layer, &[named]),
            "valuesFrom: ConfigMap c has no key values.yaml; add it, or remove the entry from spec.valuesFrom; the \
             installed revision has its values"
        );
        let other = InstalledValues { key: Some("other".to_owned()), ..installed(&["c"]).remove(0) };
        assert_eq!(layer.check(&[other]), Ok(()), "values of another key");
    }

    #[test]
    fn only_optional_entries_that_exist_are_noted_once() {
        let mut all = entries(&["found", "found", "gone", "required"]);
        all[3].optional = None;
        let found = || Some(config_map(&json!({"values.yaml": "a: 1"})));
        let layer = layer(&all, &[found(), found(), None, found()], &Reader::Standalone).unwrap();
        assert_eq!(layer.optional, installed(&["found"]));
    }

    #[test]
    fn unreadable_object_of_a_module_is_reported_like_a_missing_one() {
        let reader = Reader::Module("keda".to_owned());
        let told = |found: Option<Source>| {
            let layer = layer(&entries(&["c"]), &[found], &reader).unwrap();
            assert!(layer.optional.is_empty());
            message(&layer, &installed(&["c"]))
        };
        assert_eq!(told(None), told(Some(config_map(&json!({"values.yaml": "a: 1"})))));
    }

    #[test]
    fn record_during_an_apply_has_the_values_of_both_revisions() {
        let merged = merge_installed(
            &installed(&["both", "removed", "vanished"]),
            &installed(&["both", "new"]),
            &entries(&["both", "new", "vanished"]),
        );
        assert_eq!(merged, installed(&["vanished", "both", "new"]));
        assert_eq!(merge_installed(&merged, &installed(&["kept"]), &[]), installed(&["kept"]), "a rollback");
    }
}
