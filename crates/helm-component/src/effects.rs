//! Finds fields of a HelmComponent without effect on its content. Pure.

use kyma_api::{CrdPolicy, HelmComponentSpec, HookPolicy};

/// Prefix of the note in the condition `Rendered`.
const NOTE: &str = "without effect, since the content is no chart: ";

/// A field that only charts use, and a predicate for a value other than its default.
type ChartField = (&'static str, fn(&HelmComponentSpec) -> bool);

/// All fields that only charts use.
const OF_CHARTS: [ChartField; 10] = [
    ("release.name", |spec| spec.release.as_ref().is_some_and(|release| release.name.is_some())),
    ("release.history", |spec| spec.release.as_ref().is_some_and(|release| release.history.is_some())),
    ("values", |spec| spec.values.as_ref().is_some_and(|values| !values.is_empty())),
    ("valuesFrom", |spec| spec.values_from.as_ref().is_some_and(|list| !list.is_empty())),
    ("userValues", |spec| spec.user_values.as_ref().is_some_and(|values| !values.is_empty())),
    ("overrides", |spec| spec.overrides.as_ref().is_some_and(|values| !values.is_empty())),
    ("crds", |spec| spec.crds != CrdPolicy::default()),
    ("hooks", |spec| spec.hooks != HookPolicy::default()),
    ("timeouts.renderSeconds", |spec| {
        spec.timeouts.as_ref().is_some_and(|timeouts| timeouts.render_seconds.is_some())
    }),
    ("timeouts.hookSeconds", |spec| {
        spec.timeouts.as_ref().is_some_and(|timeouts| timeouts.hook_seconds.is_some())
    }),
];

/// Returns whether the content is a chart. OCM components and manifests contain plain objects.
pub(crate) fn is_chart(spec: &HelmComponentSpec) -> bool {
    spec.source.chart.is_some()
}

/// Returns a note with the fields of the spec that have no effect on its content; `None` if all have one.
pub(crate) fn note(spec: &HelmComponentSpec) -> Option<String> {
    if is_chart(spec) {
        return None;
    }
    let set: Vec<&str> =
        OF_CHARTS.into_iter().filter(|(_, is_set)| is_set(spec)).map(|(field, _)| field).collect();
    (!set.is_empty()).then(|| format!("{NOTE}{}", set.join(", ")))
}

/// Replaces the note in a message of the condition `Rendered` with the note of this spec.
pub(crate) fn with_note(message: &str, spec: &HelmComponentSpec) -> String {
    let parts = message.split("; ").filter(|part| !part.is_empty() && !part.starts_with(NOTE));
    parts.map(str::to_owned).chain(note(spec)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::CustomResourceExt;
    use kyma_api::HelmComponent;
    use serde_json::{Value, json};

    use super::*;

    /// Fields that have an effect for every kind of content.
    const OF_ALL: [&str; 50] = [
        "adopt",
        "commonMetadata.annotations",
        "commonMetadata.labels",
        "deletionPolicy",
        "dependsOn",
        "drift.ignore",
        "drift.mode",
        "health.expressions",
        "health.ignore",
        "managedResources",
        "manager.group",
        "manager.kind",
        "manager.name",
        "manager.namespace",
        "manager.version",
        "module.channel",
        "module.name",
        "module.version",
        "patches",
        "recreate",
        "release.createNamespace",
        "release.namespace",
        "release.storageNamespace",
        "resource",
        "resourcePolicy",
        "rollback.mode",
        "serviceAccountName",
        "source.chart.checkEverySeconds",
        "source.chart.digest",
        "source.chart.name",
        "source.chart.url",
        "source.chart.version",
        "source.manifests.digest",
        "source.manifests.url",
        "source.manifests.version",
        "source.ocm.component",
        "source.ocm.digest",
        "source.ocm.repository",
        "source.ocm.version",
        "source.pullSecretRef.name",
        "source.verify.identities",
        "source.verify.keyringSecretRef.key",
        "source.verify.keyringSecretRef.name",
        "source.verify.keysSecretRef.key",
        "source.verify.keysSecretRef.name",
        "suspend",
        "target.kubeconfigSecretRef.key",
        "target.kubeconfigSecretRef.name",
        "timeouts.deleteSeconds",
        "timeouts.healthSeconds",
    ];

    fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        let Some(properties) = schema["properties"].as_object() else {
            found.insert(path.to_owned());
            return;
        };
        for (name, schema) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            leaves(schema, &path, found);
        }
    }

    #[test]
    fn every_field_of_the_crd_is_known_to_count_or_to_be_of_charts() {
        let crd = json!(HelmComponent::crd());
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut found = BTreeSet::new();
        leaves(spec, "", &mut found);
        let of_charts = OF_CHARTS.map(|(field, _)| field);
        let known = |field: &str| {
            OF_ALL.contains(&field)
                || of_charts.iter().any(|of| field == *of || field.starts_with(&format!("{of}.")))
        };
        let unknown: Vec<&String> = found.iter().filter(|field| !known(field)).collect();
        assert!(unknown.is_empty(), "add a row for each: {unknown:?}");
        let gone: Vec<&&str> = OF_ALL.iter().filter(|field| !found.contains(**field)).collect();
        assert!(gone.is_empty(), "the CRD has no such field: {gone:?}");
    }

    fn spec(source: &Value) -> HelmComponentSpec {
        serde_json::from_value(json!({
            "source": source, "values": {"a": 1}, "valuesFrom": [{"kind": "ConfigMap", "name": "c"}],
            "userValues": {"b": 1}, "overrides": {"c": 1}, "crds": "Skip", "hooks": "Skip",
            "release": {"name": "r", "history": {"max": 3}},
            "timeouts": {"renderSeconds": 1, "hookSeconds": 1, "healthSeconds": 1},
        }))
        .unwrap()
    }

    #[test]
    fn fields_of_charts_are_named_where_the_content_is_none() {
        let manifests = spec(&json!({"manifests": {"url": "https://a.example/a.yaml"}}));
        let told = note(&manifests).unwrap();
        for (field, _) in OF_CHARTS {
            assert!(told.contains(field), "{field} is missing: {told}");
        }
        assert!(note(&spec(&json!({"ocm": {"component": "c", "version": "1"}}))).is_some());
        assert_eq!(note(&spec(&json!({"chart": {"url": "oci://a", "version": "1.0.0"}}))), None);
        let plain: HelmComponentSpec =
            serde_json::from_value(json!({"source": {"ocm": {"component": "c", "version": "1"}}})).unwrap();
        assert_eq!(note(&plain), None);
    }

    #[test]
    fn a_note_takes_the_place_of_an_earlier_one() {
        let before = with_note("a warning", &spec(&json!({"manifests": {"url": "u"}})));
        assert!(before.starts_with("a warning; without effect"), "{before}");
        let plain: HelmComponentSpec = serde_json::from_value(json!({"source": {}})).unwrap();
        assert_eq!(with_note(&before, &plain), "a warning");
    }
}
