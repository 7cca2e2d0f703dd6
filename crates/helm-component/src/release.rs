//! Names that a release has on its target.

use kyma_api::{HelmComponent, HelmComponentSpec, HelmComponentStatus};
use sha2::{Digest as _, Sha256};

/// Longest release name (Helm's rule).
const MAX_NAME_LENGTH: usize = 53;
/// Hex digits of the hash at the end of a shortened name.
const HASH_DIGITS: usize = 8;

/// Name and namespace of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// `.Release.Name`.
    pub name: String,
    /// `.Release.Namespace`, and the namespace of objects that name none.
    pub namespace: String,
    /// Whether the namespace is created if it is missing.
    pub create_namespace: bool,
    /// Namespace of Helm's record, for a release that is taken over.
    pub storage_namespace: String,
}

/// Returns the release of a component: as in its spec, else named after the module, else after the component. If that
/// name is too long, `status` decides which shortened name is in use.
pub fn of(
    component: &str,
    spec: &HelmComponentSpec,
    status: Option<&HelmComponentStatus>,
    default_namespace: &str,
) -> Release {
    let wanted = spec.release.as_ref();
    let name = Release::full_name(component, spec);
    let namespace = wanted.and_then(|release| release.namespace.as_deref()).unwrap_or(default_namespace);
    let storage = wanted.and_then(|release| release.storage_namespace.as_deref());
    Release {
        name: match Release::dotted_name(spec) {
            Some(name) if !has_earlier_name(status) => name.to_owned(),
            _ => label(name, status),
        },
        namespace: namespace.to_owned(),
        storage_namespace: storage.unwrap_or(namespace).to_owned(),
        create_namespace: wanted.and_then(|release| release.create_namespace).unwrap_or(true),
    }
}

/// Returns the release name of a component that neither its spec nor a module names.
pub(crate) fn default_name(component: &HelmComponent) -> Option<String> {
    let spec = &component.spec;
    let is_named =
        spec.module.is_some() || spec.release.as_ref().is_some_and(|release| release.name.is_some());
    let name = component.metadata.name.as_deref().filter(|_| !is_named)?;
    Some(label(name, component.status.as_ref()))
}

/// Returns a name that Helm accepts: module and component names may be longer, and their dots are replaced. A name that
/// is too long is shortened and ends with a hash of the full name, so that names with the same beginning stay different.
/// A release that an earlier version installed under a shortened name without a hash keeps that name.
fn label(name: &str, status: Option<&HelmComponentStatus>) -> String {
    let text = characters(name);
    let whole = text.trim_matches('-');
    if whole.len() <= MAX_NAME_LENGTH {
        return whole.to_owned();
    }
    if has_earlier_name(status) {
        return text.chars().take(MAX_NAME_LENGTH).collect::<String>().trim_matches('-').to_owned();
    }
    let hash: String = hex::encode(Sha256::digest(name.as_bytes())).chars().take(HASH_DIGITS).collect();
    let cut: String = whole.chars().take(MAX_NAME_LENGTH - HASH_DIGITS - 1).collect();
    format!("{}-{hash}", cut.trim_end_matches('-'))
}

fn characters(name: &str) -> String {
    name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Reports whether Helm accepts a name. Source: `ValidName` in `pkg/chart/common/util/validate_name.go` of Helm 4.
fn is_name(name: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(is_allowed)
    };
    name.len() <= MAX_NAME_LENGTH && name.split('.').all(is_part)
}

/// Reports whether an earlier version of helm-component, which changed more names, installed the release.
fn has_earlier_name(status: Option<&HelmComponentStatus>) -> bool {
    status.is_some_and(|status| status.release_name.is_none() && is_installed(status))
}

/// Returns whether a release of the component was sent.
pub(crate) fn is_installed(status: &HelmComponentStatus) -> bool {
    let has_source = status.digests.as_ref().is_some_and(|digests| digests.source.is_some());
    let has_objects =
        status.objects.is_some() || status.packed_objects.is_some() || status.inventory.is_some();
    has_source || has_objects
}

impl Release {
    /// Returns the name if it was shortened or keeps its dots, which earlier versions replaced. The status must have it
    /// before objects are sent.
    pub(crate) fn name_to_record(&self, component: &str, spec: &HelmComponentSpec) -> Option<&str> {
        let release = Self::full_name(component, spec);
        let is_shortened = characters(release).trim_matches('-').len() > MAX_NAME_LENGTH;
        (is_shortened || Self::dotted_name(spec).is_some()).then_some(self.name.as_str())
    }

    /// Returns the name in the spec if it has dots and Helm accepts it: a release of this name may exist.
    fn dotted_name(spec: &HelmComponentSpec) -> Option<&str> {
        let name = spec.release.as_ref()?.name.as_deref()?;
        (name.contains('.') && is_name(name)).then_some(name)
    }

    fn full_name<'a>(component: &'a str, spec: &'a HelmComponentSpec) -> &'a str {
        let module = spec.module.as_ref().map(|module| module.name.as_str());
        let wanted = spec.release.as_ref().and_then(|release| release.name.as_deref());
        wanted.or(module).unwrap_or(component)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(spec: serde_json::Value) -> Release {
        let mut spec = spec;
        spec["source"] = json!({});
        of("comp", &serde_json::from_value(spec).unwrap(), None, "kyma-system")
    }

    #[test]
    fn the_specs_name_wins_over_the_modules_and_the_components() {
        let module = json!({"name": "keda", "version": "1.0.0"});
        assert_eq!(named(json!({})).name, "comp");
        assert_eq!(named(json!({"module": module})).name, "keda");
        assert_eq!(named(json!({"module": module, "release": {"name": "mine"}})).name, "mine");
    }

    #[test]
    fn release_namespace_is_default_and_created_unless_spec_differs() {
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
        assert_eq!(label("Some.Module", None), "some-module");
        assert_eq!(label(&"x".repeat(60), None).len(), MAX_NAME_LENGTH);
        let cut = label(&format!("{}-tail", "x".repeat(52)), None);
        assert!(cut.starts_with(&"x".repeat(44)) && cut.len() == MAX_NAME_LENGTH, "{cut}");
        assert_eq!(label(&"x".repeat(53), None), "x".repeat(53));
    }

    #[test]
    fn a_name_with_dots_in_the_spec_is_the_name_of_the_release() {
        let spec = |name: &str| -> HelmComponentSpec {
            serde_json::from_value(json!({"source": {}, "release": {"name": name}})).unwrap()
        };
        let name = |wanted: &str, status: Option<&HelmComponentStatus>| {
            let release = of("comp", &spec(wanted), status, "n");
            (release.name.clone(), release.name_to_record("comp", &spec(wanted)).map(str::to_owned))
        };
        let recorded = |name: &str| (name.to_owned(), Some(name.to_owned()));
        assert_eq!(name("shop.v1", None), recorded("shop.v1"));
        for refused in ["Shop.v1", "shop..v1", "shop.-v1", ".shop"] {
            assert!(!name(refused, None).0.contains('.'), "{refused}");
        }
        assert_eq!(name("shop", None), ("shop".to_owned(), None));
        assert_eq!(of("comp.v1", &spec("x"), None, "n").name, "x");
        assert_eq!(label("comp.v1", None), "comp-v1", "the name of a component or module");

        let status = |release: Option<&str>| -> HelmComponentStatus {
            let status = json!({"digests": {"source": "sha256:1"}, "releaseName": release});
            serde_json::from_value(status).unwrap()
        };
        assert_eq!(name("shop.v1", Some(&status(Some("shop.v1")))), recorded("shop.v1"));
        assert_eq!(name("shop.v1", Some(&status(None))).0, "shop-v1", "of an earlier version");
    }

    #[test]
    fn names_that_differ_after_53_characters_stay_different() {
        let stem = "observability-team-application-with-a-long-name-in-the-environment";
        let (first, second) = (label(&format!("{stem}-dev"), None), label(&format!("{stem}-prod"), None));
        assert_ne!(first, second);
        for name in [first, second, label(&format!("{}.{}", "a".repeat(43), "b".repeat(20)), None)] {
            assert!(name.len() <= MAX_NAME_LENGTH && !name.ends_with('-') && !name.contains("--"), "{name}");
        }
    }

    #[test]
    fn an_installed_release_keeps_its_name_without_hash() {
        let long = "x".repeat(60);
        let status =
            |value: serde_json::Value| -> HelmComponentStatus { serde_json::from_value(value).unwrap() };
        let installed = status(json!({"digests": {"source": "sha256:1"}}));
        assert_eq!(label(&long, Some(&installed)), "x".repeat(53));
        let hashed = label(&long, None);
        let named = status(json!({"digests": {"source": "sha256:1"}, "releaseName": hashed}));
        assert_eq!(label(&long, Some(&named)), hashed);
        assert_eq!(label(&long, Some(&status(json!({})))), hashed);
        assert_eq!(label("short", Some(&installed)), "short");
    }
}
