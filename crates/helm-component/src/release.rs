//! Names that a release has on its target.

use kyma_api::HelmComponentSpec;

/// Longest release name (Helm's rule).
const NAME: usize = 53;

/// Name and namespace of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `.Release.Name`.
    pub name: String,
    /// `.Release.Namespace`, and the namespace of objects that name none.
    pub namespace: String,
    /// Whether the namespace is made where it is missing.
    pub create_namespace: bool,
    /// Namespace of Helm's record, where a release is taken over.
    pub storage_namespace: String,
}

/// The release of a component: as its spec says, else named after the module, else after the component.
pub fn of(component: &str, spec: &HelmComponentSpec, default_namespace: &str) -> Release {
    let wanted = spec.release.as_ref();
    let module = spec.module.as_ref().map(|module| module.name.as_str());
    let name = wanted.and_then(|release| release.name.as_deref()).or(module).unwrap_or(component);
    let namespace = wanted.and_then(|release| release.namespace.as_deref()).unwrap_or(default_namespace);
    let storage = wanted.and_then(|release| release.storage_namespace.as_deref());
    Release {
        name: label(name),
        namespace: namespace.to_owned(),
        storage_namespace: storage.unwrap_or(namespace).to_owned(),
        create_namespace: wanted.and_then(|release| release.create_namespace).unwrap_or(true),
    }
}

/// A name that Helm accepts: module names may hold dots and be longer.
fn label(name: &str) -> String {
    let text: String = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(NAME)
        .collect();
    text.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(spec: serde_json::Value) -> Release {
        let mut spec = spec;
        spec["source"] = json!({});
        of("comp", &serde_json::from_value(spec).unwrap(), "kyma-system")
    }

    #[test]
    fn the_specs_name_wins_over_the_modules_and_the_components() {
        let module = json!({"name": "keda", "version": "1.0.0"});
        assert_eq!(named(json!({})).name, "comp");
        assert_eq!(named(json!({"module": module})).name, "keda");
        assert_eq!(named(json!({"module": module, "release": {"name": "mine"}})).name, "mine");
    }

    #[test]
    fn the_namespace_is_the_operators_default_and_made_unless_the_spec_says_otherwise() {
        let release = named(json!({}));
        assert_eq!((release.namespace.as_str(), release.create_namespace), ("kyma-system", true));
        let release = named(json!({"release": {"namespace": "there", "createNamespace": false}}));
        assert_eq!((release.namespace.as_str(), release.create_namespace), ("there", false));
        assert_eq!(release.storage_namespace, "there");
        let release = named(json!({"release": {"namespace": "there", "storageNamespace": "flux"}}));
        assert_eq!((release.namespace.as_str(), release.storage_namespace.as_str()), ("there", "flux"));
    }

    #[test]
    fn names_that_helm_would_refuse_are_made_acceptable() {
        assert_eq!(label("Some.Module"), "some-module");
        assert_eq!(label(&"x".repeat(60)).len(), NAME);
        assert_eq!(label(&format!("{}-tail", "x".repeat(52))), "x".repeat(52));
    }
}
