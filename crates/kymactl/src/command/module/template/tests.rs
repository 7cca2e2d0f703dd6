use serde_json::json;

use super::*;

fn parts(config: &ModuleConfig) -> Parts<'_> {
    Parts {
        module: "lantern",
        version: "1.0.0",
        config,
        default_cr: None,
        objects: &[],
        manifest_link: None,
        chart: None,
        component: None,
    }
}

fn printed(parts: Parts<'_>) -> Value {
    serde_saphyr::from_str(&yaml(&template(parts)).unwrap()).unwrap()
}

#[test]
fn a_minimal_module_has_modulectls_shape() {
    let expected = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "ModuleTemplate",
        "metadata": {
            "name": "lantern-1.0.0",
            "labels": {"operator.kyma-project.io/module-name": "lantern"},
            "annotations": {"operator.kyma-project.io/is-cluster-scoped": "false"},
        },
        "spec": {"moduleName": "lantern", "version": "1.0.0", "requiresDowntime": false, "descriptor": {}},
    });
    assert_eq!(printed(parts(&ModuleConfig::default())), expected);
}

#[test]
fn marks_become_labels_and_links_are_kept() {
    let config = ModuleConfig {
        beta: Some(true),
        internal: Some(false),
        mandatory: Some(true),
        resources: Some(vec![Resource { name: "docs".into(), link: "https://example.com/d".into() }]),
        labels: Some([("team".to_owned(), "yes".to_owned())].into()),
        ..ModuleConfig::default()
    };
    let link = Some("https://example.com/m.yaml".to_owned());
    let printed = printed(Parts { manifest_link: link, ..parts(&config) });
    let labels = json!({
        "operator.kyma-project.io/module-name": "lantern",
        "operator.kyma-project.io/beta": "true",
        "operator.kyma-project.io/mandatory-module": "true",
        "team": "yes",
    });
    assert_eq!(printed["metadata"]["labels"], labels);
    assert_eq!(
        printed["spec"]["resources"][1],
        json!({"name": "rawManifest", "link": "https://example.com/m.yaml"})
    );
}

#[test]
fn a_default_cr_is_cluster_scoped_if_its_crd_is() {
    let cr = json!({"apiVersion": "lantern.io/v1", "kind": "Lantern", "metadata": {"name": "default"}});
    let crd = |scope: &str, kind: &str| json!({"kind": "CustomResourceDefinition", "spec": {"group": "lantern.io", "scope": scope, "names": {"kind": kind}}});
    let config = ModuleConfig::default();
    for (crd, expected) in [
        (crd("Cluster", "Lantern"), "true"),
        (crd("Namespaced", "Lantern"), "false"),
        (crd("Cluster", "Other"), "false"),
    ] {
        let default_cr = cr.as_object().cloned();
        let printed = printed(Parts { default_cr, objects: &[crd], ..parts(&config) });
        assert_eq!(
            printed["metadata"]["annotations"]["operator.kyma-project.io/is-cluster-scoped"],
            expected
        );
        assert_eq!(printed["spec"]["data"], cr);
    }
}

#[test]
fn texts_that_yaml_1_1_reads_as_something_else_stay_text() {
    let words = ["yes", "on", "0x1f", "1.10", "2024-01-01", "1:30", "null", "~", "a: b", "- x", "#", ""];
    let cr: FreeForm =
        words.iter().enumerate().map(|(number, word)| (format!("k{number}"), json!(word))).collect();
    let config = ModuleConfig::default();
    let text = yaml(&template(Parts { default_cr: Some(cr), ..parts(&config) })).unwrap();
    for word in words {
        let plain = format!(": {word}\n");
        assert!(word == "a: b" || !text.contains(&plain), "{word} stands unquoted in\n{text}");
    }
}

#[test]
fn the_longest_module_name_fits_its_label() {
    let config = ModuleConfig::default();
    let longest = "m".repeat(64);
    let printed = printed(Parts { module: &longest, ..parts(&config) });
    let label = printed["metadata"]["labels"]["operator.kyma-project.io/module-name"].as_str().unwrap();
    assert!(label.len() <= 63 && label.starts_with("mmm"), "{label}");
}
