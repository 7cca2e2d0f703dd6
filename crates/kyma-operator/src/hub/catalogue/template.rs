//! A `ModuleTemplate`, reduced to the fields that decisions read.

use std::sync::Arc;

use kyma_api::visibility::Audience;
use kyma_api::{ModuleTemplate, ModuleTemplateSpec, annotations, names};
use serde_json::json;
use sha2::{Digest, Sha256};

/// One version of one module.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Template {
    /// The object's name.
    pub(crate) name: String,
    /// The object's namespace.
    pub(crate) namespace: String,
    /// The object's generation, if known.
    pub(crate) generation: Option<i64>,
    /// The object's uid.
    pub(crate) uid: String,
    /// Digest of the spec.
    pub(crate) digest: String,
    /// `spec.moduleName`; older objects have none.
    pub(crate) module: Option<String>,
    /// `spec.version`; older objects have none.
    pub(crate) version: Option<String>,
    /// Kymas that may select it.
    pub(crate) audience: Audience,
    /// Whether the default CR is cluster-scoped.
    pub(crate) cluster_scoped: bool,
    /// The whole spec.
    pub(crate) spec: Arc<ModuleTemplateSpec>,
}

impl From<ModuleTemplate> for Template {
    fn from(object: ModuleTemplate) -> Self {
        let audience = Audience::of(&object);
        let meta = object.metadata;
        let annotated = |name: &str| {
            meta.annotations.as_ref().and_then(|set| set.get(name)).is_some_and(|value| value == "true")
        };
        let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Self {
            audience,
            cluster_scoped: annotated(annotations::IS_CLUSTER_SCOPED),
            name: meta.name.unwrap_or_default(),
            namespace: meta.namespace.unwrap_or_default(),
            generation: meta.generation,
            uid: meta.uid.unwrap_or_default(),
            digest: digest(&object.spec),
            module: said(&object.spec.module_name),
            version: said(&object.spec.version),
            spec: Arc::new(object.spec),
        }
    }
}

fn digest(spec: &ModuleTemplateSpec) -> String {
    hex::encode(&Sha256::digest(json!(spec).to_string())[..16])
}

impl Template {
    /// Reports whether the spec does not contradict this module and version.
    pub(crate) fn may_be(&self, module: &str, version: &str) -> bool {
        self.module.as_deref().is_none_or(|named| named == module)
            && self.version.as_deref().is_none_or(|named| named == version)
    }

    /// Reports whether a look-up of this module and version may return the template.
    pub(crate) fn serves(&self, module: &str, version: &str) -> bool {
        let named = self.name == names::template_name(module, version) && self.may_be(module, version);
        named || (self.module.as_deref() == Some(module) && self.version.as_deref() == Some(version))
    }
}
