//! Decides which Secrets and ConfigMaps of the hub a component may read. Pure.
//!
//! The author of a module chooses the references of its component, and their content is copied to targets. A module
//! therefore reads an object only if a label of the object names the module. A standalone component is written by
//! users with access to the namespace; only a Secret whose content is copied to the target needs a label.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kyma_api::{HelmComponent, kyma_owner, labels};
use kyma_controller::{CopyError, check_no_access, may_be_copied};

/// The identity for which a component reads objects of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A module of a Kyma, by its name.
    Module(String),
    /// A component without a Kyma.
    Standalone,
}

impl Reader {
    /// Returns the reader of a component.
    pub(crate) fn of(component: &HelmComponent) -> Self {
        let meta = &component.metadata;
        let label = |name: &str| meta.labels.as_ref().and_then(|all| all.get(name));
        let owned = kyma_owner(meta.owner_references.as_deref().unwrap_or_default()).is_some();
        if !owned && label(labels::KYMA_NAME).is_none() {
            return Self::Standalone;
        }
        let named = component.spec.module.as_ref().map(|module| &module.name);
        Self::Module(named.or_else(|| label(labels::MODULE_NAME)).cloned().unwrap_or_default())
    }

    /// Returns whether the reader may read the object with this metadata.
    pub(crate) fn may_read(&self, meta: &ObjectMeta) -> bool {
        let Self::Module(module) = self else { return true };
        let has =
            |name: &str| meta.labels.iter().flatten().any(|(key, value)| key == name && value == "true");
        has(labels::READABLE_BY_ALL_MODULES) || has(&labels::readable_by(module))
    }

    /// Returns whether the reader may send the credentials in the Secret with this metadata to its source.
    pub(crate) fn may_pull_with(&self, meta: &ObjectMeta) -> bool {
        let Self::Module(module) = self else { return true };
        let value = meta.labels.as_ref().and_then(|all| all.get(labels::PULL_SECRET));
        value.is_some_and(|value| value == "true" || *value == kyma_api::names::label_value(module))
    }

    /// Checks whether content of the Secret may be copied to a target.
    ///
    /// # Errors
    /// The reason for which the Secret must not be copied.
    pub(crate) fn may_copy(&self, name: &str, found: &Secret) -> Result<(), CopyError> {
        match self {
            Self::Module(_) => check_no_access(name, found),
            Self::Standalone => may_be_copied(name, Some(found)).map(drop),
        }
    }

    /// Returns the end of a message such as "there is no Secret a": the label to add. An unreadable object is
    /// reported like a missing one, so that a module cannot probe for names.
    pub(crate) fn how_to_allow(&self) -> String {
        match self {
            Self::Module(module) => format!(
                " that the component may read; create it in the component's namespace with the label {}=true",
                labels::readable_by(module)
            ),
            Self::Standalone => "; create it in the component's namespace".to_owned(),
        }
    }

    /// Returns the label to add to a pull secret that the reader may not use.
    pub(crate) fn how_to_allow_pulls(&self) -> String {
        match self {
            Self::Module(module) => format!(
                "create it in the component's namespace with the label {}={}, or =true for all modules",
                labels::PULL_SECRET,
                kyma_api::names::label_value(module)
            ),
            Self::Standalone => "create it in the component's namespace".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn component(metadata: &Value) -> HelmComponent {
        let whole = json!({"metadata": metadata, "spec": {"source": {}, "module": {"name": "keda", "version": "1.0.0"}}});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_component_of_a_kyma_reads_as_its_module() {
        let owner = |group: &str| json!({"apiVersion": format!("{group}/v1beta2"), "kind": "Kyma", "name": "k", "uid": "u"});
        let keda = Reader::Module("keda".to_owned());
        let rows = [
            (json!({"labels": {labels::KYMA_NAME: "k"}}), keda.clone()),
            (json!({"ownerReferences": [owner("operator.kyma-project.io")]}), keda),
            (json!({"ownerReferences": [owner("other.example")]}), Reader::Standalone),
            (json!({}), Reader::Standalone),
        ];
        for (metadata, expected) in rows {
            assert_eq!(Reader::of(&component(&metadata)), expected, "{metadata}");
        }
    }

    #[test]
    fn a_module_reads_only_what_names_it() {
        let long = "m".repeat(64);
        let rows = [
            ("keda", json!({}), false),
            ("keda", json!({labels::COPY_TO_TARGETS: "true"}), false),
            ("keda", json!({labels::PULL_SECRET: "true"}), false),
            ("keda", json!({labels::MODULE_NAME: "keda"}), false),
            ("keda", json!({labels::readable_by("keda"): "true"}), true),
            ("keda", json!({labels::readable_by("keda"): "false"}), false),
            ("keda", json!({labels::readable_by("nats"): "true"}), false),
            ("keda", json!({labels::readable_by("nats"): "true", labels::readable_by("keda"): "true"}), true),
            ("keda", json!({labels::READABLE_BY_ALL_MODULES: "true"}), true),
            ("", json!({labels::readable_by("keda"): "true"}), false),
            (long.as_str(), json!({labels::readable_by(&long): "true"}), true),
        ];
        for (module, labels, expected) in rows {
            let meta: ObjectMeta = serde_json::from_value(json!({ "labels": labels })).unwrap();
            assert_eq!(Reader::Module(module.to_owned()).may_read(&meta), expected, "{module} {labels}");
            assert!(Reader::Standalone.may_read(&meta));
        }
    }

    #[test]
    fn pull_secrets_have_a_label_of_their_own() {
        let rows = [
            (json!({}), false),
            (json!({labels::readable_by("keda"): "true"}), false),
            (json!({labels::PULL_SECRET: "true"}), true),
            (json!({labels::PULL_SECRET: "keda"}), true),
            (json!({labels::PULL_SECRET: "nats"}), false),
        ];
        for (labels, expected) in rows {
            let meta: ObjectMeta = serde_json::from_value(json!({ "labels": labels })).unwrap();
            assert_eq!(Reader::Module("keda".to_owned()).may_pull_with(&meta), expected, "{labels}");
            assert!(Reader::Standalone.may_pull_with(&meta));
        }
    }
}
