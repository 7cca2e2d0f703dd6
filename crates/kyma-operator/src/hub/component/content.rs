//! The ModuleTemplate that a component was made from, as an annotation of the component records it. Pure.

use std::collections::HashMap;

use kube::api::ObjectMeta;
use kyma_api::annotations;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::hub::catalogue::Template;

/// The ModuleTemplate that a component was made from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct TemplateRecord {
    /// The module's version.
    pub(crate) version: String,
    /// The object's uid.
    pub(crate) uid: String,
    /// Digest of its spec.
    pub(crate) digest: String,
}

impl TemplateRecord {
    /// Returns the record of a template for a version.
    pub(crate) fn of(version: &str, template: &Template) -> Self {
        Self { version: version.to_owned(), uid: template.uid.clone(), digest: template.digest.clone() }
    }

    /// Reads the record of a component.
    pub(crate) fn read(meta: &ObjectMeta) -> Option<Self> {
        let record = meta.annotations.as_ref()?.get(annotations::MODULE_TEMPLATE)?;
        serde_json::from_str(record).ok()
    }

    /// Returns the annotation that holds it.
    pub(crate) fn annotation(&self) -> (&'static str, String) {
        (annotations::MODULE_TEMPLATE, json!(self).to_string())
    }

    /// Returns whether a different object with different content replaced the template. The same object keeps its
    /// content, because a newer operator version may read more of its fields and so compute another digest.
    pub(crate) fn is_replaced_by(&self, template: &Template) -> bool {
        self.uid != template.uid && self.digest != template.digest
    }
}

/// The records of all components, by module and version.
#[derive(Debug, Default)]
pub(crate) struct TemplateRecords(HashMap<(String, String), HashMap<TemplateRecord, usize>>);

impl TemplateRecords {
    /// Adds the record of a component.
    pub(crate) fn add(&mut self, module: &str, record: Option<&TemplateRecord>) {
        let Some(record) = record else { return };
        let key = (module.to_owned(), record.version.clone());
        *self.0.entry(key).or_default().entry(record.clone()).or_default() += 1;
    }

    /// Removes the record of a component.
    pub(crate) fn remove(&mut self, module: &str, record: Option<&TemplateRecord>) {
        let Some(record) = record else { return };
        let key = (module.to_owned(), record.version.clone());
        let Some(records) = self.0.get_mut(&key) else { return };
        if let Some(count) = records.get_mut(record) {
            *count -= 1;
            if *count == 0 {
                records.remove(record);
            }
        }
        if records.is_empty() {
            self.0.remove(&key);
        }
    }

    /// Returns whether all components of this version were made from another object with other content.
    pub(crate) fn is_replaced(&self, module: &str, version: &str, template: &Template) -> bool {
        let records = self.0.get(&(module.to_owned(), version.to_owned()));
        records.is_some_and(|records| {
            !records.is_empty() && records.keys().all(|record| record.is_replaced_by(template))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str, digest: &str) -> TemplateRecord {
        TemplateRecord { version: "1.0.0".into(), uid: uid.into(), digest: digest.into() }
    }

    fn template(uid: &str, digest: &str) -> Template {
        Template { uid: uid.into(), digest: digest.into(), ..Template::default() }
    }

    #[test]
    fn only_another_object_with_other_content_replaces_a_template() {
        let rows = [("u", "d", false), ("u", "e", false), ("v", "d", false), ("v", "e", true)];
        for (uid, digest, is_replaced) in rows {
            assert_eq!(
                record("u", "d").is_replaced_by(&template(uid, digest)),
                is_replaced,
                "{uid} {digest}"
            );
        }
    }

    #[test]
    fn the_content_of_a_version_is_known_while_any_component_has_it() {
        let mut contents = TemplateRecords::default();
        let is_replaced =
            |contents: &TemplateRecords| contents.is_replaced("keda", "1.0.0", &template("v", "e"));
        assert!(!is_replaced(&contents));
        for _ in 0..2 {
            contents.add("keda", Some(&record("u", "d")));
        }
        assert!(is_replaced(&contents));
        contents.remove("keda", Some(&record("u", "d")));
        assert!(is_replaced(&contents));
        contents.remove("keda", Some(&record("u", "d")));
        assert!(!is_replaced(&contents) && contents.0.is_empty());
    }
}
