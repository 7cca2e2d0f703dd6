//! Checks whether a CRD of another team satisfies the component contract.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};

/// A violation of the contract. Its text names the problem and the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The kind is cluster-scoped; components live in their Kyma's namespace.
    NotNamespaced,
    /// The version that the ModuleTemplate names isn't served.
    VersionNotServed(String),
    /// The version has no status subresource.
    NoStatusSubresource,
    /// A field of the contract is missing, so its value would be dropped.
    Missing {
        /// Path of the field.
        path: String,
    },
    /// A field of the contract has another type.
    WrongType {
        /// Path of the field.
        path: String,
        /// The type in the contract.
        wanted: &'static str,
        /// The type in the schema.
        found: String,
    },
    /// An enum of the schema lacks a value of the contract.
    MissingValue {
        /// Path of the field.
        path: String,
        /// The missing value.
        value: &'static str,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNamespaced => write!(f, "the kind must be namespaced"),
            Self::VersionNotServed(version) => write!(f, "version {version} is not served"),
            Self::NoStatusSubresource => write!(f, "the status subresource is missing"),
            Self::Missing { path } => write!(f, "{path} is missing"),
            Self::WrongType { path, wanted, found } => {
                write!(f, "{path} must be of type {wanted}, is {found}")
            }
            Self::MissingValue { path, value } => write!(f, "{path} must accept {value:?}"),
        }
    }
}

/// A field that the contract writes or reads.
struct Field {
    path: &'static [&'static str],
    type_: &'static str,
    /// Values that an enum in the schema must have.
    values: &'static [&'static str],
}

const fn field(path: &'static [&'static str], type_: &'static str) -> Field {
    Field { path, type_, values: &[] }
}

const CONTRACT_STATES: &[&str] = &["Processing", "Deleting", "Ready", "Error", "Warning"];

const CONTRACT_FIELDS: &[Field] = &[
    field(&["spec", "target", "kubeconfigSecretRef", "name"], "string"),
    field(&["spec", "target", "kubeconfigSecretRef", "key"], "string"),
    field(&["spec", "module", "name"], "string"),
    field(&["spec", "module", "version"], "string"),
    field(&["spec", "module", "channel"], "string"),
    field(&["spec", "userValues"], "object"),
    field(&["spec", "overrides"], "object"),
    field(&["spec", "dependsOn"], "array"),
    Field { path: &["spec", "resourcePolicy"], type_: "string", values: &["CreateAndDelete", "Ignore"] },
    Field { path: &["spec", "deletionPolicy"], type_: "string", values: &["Orphan", "Delete"] },
    Field { path: &["status", "state"], type_: "string", values: CONTRACT_STATES },
    field(&["status", "conditions"], "array"),
    field(&["status", "observedGeneration"], "integer"),
    field(&["status", "version"], "string"),
];

/// Returns all violations of the contract by one version of a CRD; empty if it can be used.
pub fn check(crd: &CustomResourceDefinition, version: &str) -> Vec<Violation> {
    let mut found = vec![];
    if crd.spec.scope != "Namespaced" {
        found.push(Violation::NotNamespaced);
    }
    let Some(version) = crd.spec.versions.iter().find(|one| one.name == version && one.served) else {
        found.push(Violation::VersionNotServed(version.to_owned()));
        return found;
    };
    found.extend(check_version(version));
    found
}

fn check_version(version: &CustomResourceDefinitionVersion) -> Vec<Violation> {
    let mut found = vec![];
    if version.subresources.as_ref().is_none_or(|sub| sub.status.is_none()) {
        found.push(Violation::NoStatusSubresource);
    }
    let none = JSONSchemaProps::default();
    let root = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap_or(&none);
    for field in CONTRACT_FIELDS {
        let violation = check_field(root, field);
        if violation.as_ref().is_some_and(|violation| !found.contains(violation)) {
            found.extend(violation);
        }
    }
    found
}

/// Checks a field. Below a schema that preserves unknown fields, everything is accepted.
fn check_field(root: &JSONSchemaProps, field: &Field) -> Option<Violation> {
    let mut schema = root;
    for (depth, name) in field.path.iter().enumerate() {
        let path = || field.path[..=depth].join(".");
        match schema.properties.as_ref().and_then(|properties| properties.get(*name)) {
            Some(next) => schema = next,
            None if schema.x_kubernetes_preserve_unknown_fields == Some(true) => return None,
            None => return Some(Violation::Missing { path: path() }),
        }
    }
    let path = || field.path.join(".");
    let type_ = schema.type_.as_deref().unwrap_or_default();
    let keeps_anything = schema.x_kubernetes_preserve_unknown_fields == Some(true) && type_.is_empty();
    if type_ != field.type_ && !keeps_anything {
        return Some(Violation::WrongType { path: path(), wanted: field.type_, found: type_.to_owned() });
    }
    if field.type_ == "object" && !keeps_content(schema) {
        return Some(Violation::Missing {
            path: format!("{}: x-kubernetes-preserve-unknown-fields", path()),
        });
    }
    let words = schema.enum_.as_ref()?;
    let missing = field.values.iter().find(|value| !words.iter().any(|word| word.0 == **value))?;
    Some(Violation::MissingValue { path: path(), value: missing })
}

/// Reports whether this schema preserves free-form content.
fn keeps_content(schema: &JSONSchemaProps) -> bool {
    schema.x_kubernetes_preserve_unknown_fields == Some(true)
        || schema.additional_properties.is_some()
        || schema.properties.as_ref().is_some_and(|properties| !properties.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::crds;

    #[test]
    fn our_own_component_keeps_the_contract() {
        assert_eq!(check(&crds::helm_component(), "v1alpha1"), []);
    }

    #[test]
    fn a_crd_that_keeps_everything_keeps_the_contract() {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let crd = crd(&json!({"type": "object", "properties": {"spec": any, "status": any}}));
        assert_eq!(check(&crd, "v1"), []);
    }

    #[test]
    fn each_missing_field_is_named() {
        let whole = crds::helm_component();
        for field in CONTRACT_FIELDS {
            let mut crd = whole.clone();
            let schema = crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
            let (last, parents) = field.path.split_last().unwrap();
            let mut at = schema;
            for name in parents {
                at = at.properties.as_mut().unwrap().get_mut(*name).unwrap();
            }
            at.properties.as_mut().unwrap().remove(*last);
            let path = field.path.join(".");
            assert_eq!(check(&crd, "v1alpha1"), [Violation::Missing { path }]);
        }
    }

    #[test]
    fn scope_version_and_status_count() {
        let mut crd = crds::helm_component();
        crd.spec.scope = "Cluster".into();
        crd.spec.versions[0].subresources = None;
        assert_eq!(check(&crd, "v1alpha1"), [Violation::NotNamespaced, Violation::NoStatusSubresource]);
        assert_eq!(check(&crds::helm_component(), "v2"), [Violation::VersionNotServed("v2".into())]);
    }

    #[test]
    fn types_and_words_count() {
        let mut schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "deletionPolicy": {"type": "string", "enum": ["Delete"]},
                "userValues": {"type": "object"},
                "dependsOn": {"type": "string"},
            }},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        let texts: Vec<_> = check(&crd(&schema), "v1").iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.userValues: x-kubernetes-preserve-unknown-fields is missing",
                "spec.dependsOn must be of type array, is string",
                "spec.deletionPolicy must accept \"Orphan\"",
            ]
        );
        schema["properties"].as_object_mut().unwrap().remove("status");
        assert!(check(&crd(&schema), "v1").contains(&Violation::Missing { path: "status".into() }));
    }

    fn crd(schema: &serde_json::Value) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things"},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema}}],
            },
        }))
        .unwrap()
    }
}
