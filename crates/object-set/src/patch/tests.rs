use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::parse::yaml;

const TARGET_NAMESPACE: &str = "here";

fn set(objects: &[Value]) -> ObjectSet {
    ObjectSet::new(objects.iter().map(|one| Object::from_value(one.clone()).unwrap()).collect())
}

fn patch(target: &Value, text: &str) -> kyma_api::Patch {
    serde_json::from_value(json!({"target": target, "patch": text})).unwrap()
}

/// Returns the objects after one patch, and the number of warnings.
fn patched(target: &Value, text: &str, objects: &[Value]) -> Result<(Vec<Value>, usize), String> {
    let patches = Patches::parse(&[patch(target, text)]).map_err(|error| error.to_string())?;
    let set = patches
        .apply(set(objects), &Kinds::default(), TARGET_NAMESPACE)
        .map_err(|error| error.to_string())?;
    let warnings = set.warnings().len();
    Ok((set.into_objects().into_iter().map(Object::into_value).collect(), warnings))
}

/// Returns the object after one patch.
fn one(target: &Value, text: &str, object: &Value) -> Value {
    patched(target, text, std::slice::from_ref(object)).unwrap().0.remove(0)
}

fn error(target: &Value, text: &str, object: &Value) -> String {
    patched(target, text, std::slice::from_ref(object)).unwrap_err()
}

fn config_map(name: &str, namespace: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"a": "x"}})
}

fn deployment() -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "c:1"}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {"spec": pod}}})
}

fn custom() -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Lamp", "metadata": {"name": "l"}, "spec": {"list": [1], "a": {"b": 1}}})
}

#[test]
fn strategic_patches_do_what_api_servers_do() {
    let mut budget = Budget { nodes: 10_000, bytes: 100_000 };
    let cases = yaml::parse(include_str!("cases.yaml"), &mut budget).unwrap().remove(0);
    for case in cases.as_array().unwrap() {
        let result = one(&json!({}), case["patch"].as_str().unwrap(), &case["object"]);
        assert_eq!(result, case["expected"], "{}", case["name"]);
    }
}

#[test]
fn added_maps_have_no_directives() {
    let rows = [
        ("spec: {strategy: {$patch: replace, type: Recreate}}", json!({"type": "Recreate"})),
        ("spec: {strategy: {$patch: merge, type: Recreate}}", json!({"type": "Recreate"})),
        ("spec: {strategy: {$patch: delete, type: Recreate}}", Value::Null),
        (
            "spec: {strategy: {$retainKeys: [type], type: Recreate, rollingUpdate: null}}",
            json!({"type": "Recreate"}),
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(one(&json!({}), text, &deployment())["spec"]["strategy"], expected, "{text}");
    }
}

#[test]
fn kinds_of_others_are_merged_as_json() {
    let result = one(&json!({}), "spec: {list: [2], a: {b: null, c: 1}}", &custom());
    assert_eq!(result["spec"], json!({"list": [2], "a": {"c": 1}}));
}

#[test]
fn json_patches_do_one_operation_after_the_other() {
    let text = "
- {op: test, path: /spec/a/b, value: 1}
- {op: add, path: /spec/list/-, value: 2}
- {op: copy, from: /spec/list, path: /spec/a/c}
- {op: replace, path: /spec/list/0, value: 3}
- {op: move, from: /spec/a/b, path: /spec/b}
- {op: add, path: /metadata/labels, value: {}}
- {op: add, path: /metadata/labels/example.org~1a, value: b}
";
    let result = one(&json!({"kind": "Lamp"}), text, &custom());
    assert_eq!(result["spec"], json!({"list": [3, 2], "a": {"c": [1, 2]}, "b": 1}));
    assert_eq!(result["metadata"]["labels"], json!({"example.org/a": "b"}));
}

#[test]
fn objects_are_selected_exactly() {
    let objects = [
        config_map("a", None),
        config_map("a", Some(TARGET_NAMESPACE)),
        config_map("a", Some("there")),
        config_map("b", None),
        custom(),
    ];
    let named = |more: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{more}}}\ndata: {{a: new}}")
    };
    let rows = [
        (Value::Null, named(""), vec![0, 1]),
        (Value::Null, named(", namespace: here"), vec![0, 1]),
        (Value::Null, named(", namespace: there"), vec![2]),
        (Value::Null, named(", namespace: nowhere"), vec![]),
        (json!({"kind": "ConfigMap"}), named(", namespace: ignored"), vec![0, 1, 2, 3]),
        (json!({"group": "", "name": "b"}), "data: {a: new}".to_owned(), vec![3]),
        (json!({"namespace": "there"}), "data: {a: new}".to_owned(), vec![2]),
        (json!({"version": "v2"}), "data: {a: new}".to_owned(), vec![]),
        (json!({"kind": "Config"}), "data: {a: new}".to_owned(), vec![]),
    ];
    for (target, text, expected) in rows {
        // As in a manifest in which only some objects name a namespace.
        let whole = objects.iter().map(|one| Object::from_value(one.clone()).unwrap()).collect();
        let patches = Patches::parse(&[patch(&target, &text)]).unwrap();
        let set = patches
            .apply(ObjectSet::default().with_objects(whole, vec![]), &Kinds::default(), TARGET_NAMESPACE)
            .unwrap();
        let changed =
            |(index, object): (usize, &Object)| (object.body().get("data")?["a"] == "new").then_some(index);
        let found: Vec<usize> = set.objects().iter().enumerate().filter_map(changed).collect();
        assert_eq!(found, expected, "{target} {text}");
        assert_eq!(set.warnings().len(), usize::from(expected.is_empty()), "{target} {text}");
    }
}

#[test]
fn cluster_scoped_objects_have_no_namespace() {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "lamps.example.org"},
        "spec": {
            "group": "example.org", "names": {"kind": "Lamp", "plural": "lamps"}, "scope": "Cluster",
            "versions": [{"name": "v1", "served": true}],
        },
    });
    let kinds = Arc::new(Kinds::default()).with_crds(&[Object::from_value(crd).unwrap()]);
    let named = "{apiVersion: example.org/v1, kind: Lamp, metadata: {name: l}, x: 1}";
    let rows = [
        (json!({"namespace": TARGET_NAMESPACE}), named, false),
        (json!({"namespace": ""}), named, true),
        (json!({"name": "l"}), named, true),
        (Value::Null, named, true),
    ];
    for (target, text, expected) in rows {
        let patches = Patches::parse(&[patch(&target, text)]).unwrap();
        let set = patches.apply(set(&[custom()]), &kinds, TARGET_NAMESPACE).unwrap();
        assert_eq!(set.objects()[0].body().contains_key("x"), expected, "{target}");
    }
}

#[test]
fn an_object_can_be_taken_out_or_replaced_as_a_whole() {
    for object in [deployment(), custom()] {
        assert_eq!(
            patched(&json!({}), "$patch: delete", std::slice::from_ref(&object)).unwrap(),
            (vec![], 0)
        );
        let replaced =
            one(&json!({}), "{$patch: replace, metadata: {labels: {a: b}}, spec: {x: 1}}", &object);
        let mut expected = object.clone();
        expected["metadata"]["labels"] = json!({"a": "b"});
        expected["spec"] = json!({"x": 1});
        assert_eq!(replaced, expected);
        assert_eq!(one(&json!({}), "{$patch: merge, x: 1}", &object)["x"], 1);
        assert_eq!(one(&json!({}), "{$patch: merge, x: 1}", &object).get("$patch"), None);
    }
    let others = [deployment(), config_map("a", None)];
    let text = "{$patch: delete, apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}";
    assert_eq!(patched(&Value::Null, text, &others).unwrap().0, [config_map("a", None)]);
}

#[test]
fn later_patches_see_what_earlier_ones_left() {
    let all = [
        patch(&json!({}), "data: {a: new}"),
        patch(&json!({}), "- {op: test, path: /data/a, value: new}\n- {op: remove, path: /data/a}"),
        patch(&json!({}), "$patch: delete"),
        patch(&json!({}), "data: {a: other}"),
    ];
    let patches = Patches::parse(&all).unwrap();
    let set = patches.apply(set(&[config_map("a", None)]), &Kinds::default(), TARGET_NAMESPACE).unwrap();
    assert!(set.is_empty());
    assert_eq!(set.warnings(), [Warning::PatchWithoutObject { patch: 3 }]);
    assert_eq!(format!("{patches:?}"), "Patches(4)");
}

#[test]
fn errors_name_patch_object_and_path_and_no_values() {
    let any = json!({});
    let rows = [
        (&any, "hush: [", "patches[0]: document 1, line 1 of the text: not valid YAML: "),
        (&any, "hush", "patches[0]: write a map"),
        (&any, "", "patches[0]: write a map"),
        (&any, "a: hush\n---\nb: hush\n", "patches[0]: the text is more than one document"),
        (&any, "- {op: hush, path: /a}", "patches[0]: operation 0 is invalid"),
        (&any, "- {op: add, path: hush, value: hush}", "patches[0]: operation 0 is invalid"),
        (&Value::Null, "- {op: remove, path: /a}", "patches[0]: a JSON patch needs a target"),
        (&Value::Null, "{kind: Deployment, metadata: {name: d}}", "patches[0]: name the object"),
        (&any, "{$patch: hush}", "patches[0], Deployment.apps d: $patch must be"),
        (
            &any,
            "spec: {strategy: {$patch: hush}}",
            "patches[0], Deployment.apps d: spec.strategy: $patch must",
        ),
        (
            &any,
            "spec: {template: {spec: {containers: [hush]}}}",
            "patches[0], Deployment.apps d: spec.template.spec.containers: the list contains maps",
        ),
        (
            &any,
            "spec: {template: {spec: {containers: [{image: hush}]}}}",
            "patches[0], Deployment.apps d: spec.template.spec.containers: an item lacks name,",
        ),
        (
            &any,
            "spec: {template: {spec: {$setElementOrder/containers: hush}}}",
            "patches[0], Deployment.apps d: spec.template.spec.containers: the value of the directive",
        ),
        (&any, "spec: {$retainKeys: [a], b: hush}", "patches[0], Deployment.apps d: spec: $retainKeys must"),
        (
            &any,
            "- {op: test, path: /kind, value: hush}",
            "patches[0], Deployment.apps d: operation 0 at /kind: the value differs from the tested one",
        ),
        (
            &any,
            "- {op: replace, path: /spec/a/b, value: hush}",
            "patches[0], Deployment.apps d: operation 0 at /spec/a/b: the object has no such path",
        ),
        (
            &any,
            "- {op: copy, from: /x, path: /y}",
            "patches[0], Deployment.apps d: operation 0 at /y: the object has no value",
        ),
        (
            &any,
            "metadata: {labels: hush}",
            "patches[0], Deployment.apps d: the patched object has a metadata.labels that is not a map",
        ),
    ];
    for (target, text, expected) in rows {
        let said = error(target, text, &deployment());
        assert!(said.starts_with(expected), "{text}\n{said}");
        assert!(!said.contains("hush"), "{said}");
    }
}

#[test]
fn an_object_stays_the_one_it_is() {
    let texts = [
        "- {op: replace, path: /metadata/name, value: other}",
        "- {op: add, path: /metadata/namespace, value: other}",
        "- {op: replace, path: /kind, value: Other}",
        "- {op: replace, path: /apiVersion, value: apps/v2}",
        "- {op: remove, path: /metadata}",
        "- {op: replace, path: '', value: {}}",
        "- {op: replace, path: '', value: 1}",
        "metadata: null",
        "metadata: {$patch: delete}",
        "metadata: []",
    ];
    for text in texts {
        assert!(
            error(&json!({}), text, &deployment()).ends_with(&Problem::OtherObject.to_string()),
            "{text}"
        );
    }
    for text in [
        "{kind: Other, metadata: {name: other, namespace: other}}",
        "{apiVersion: null, metadata: {name: null}}",
    ] {
        assert_eq!(one(&json!({}), text, &deployment()), deployment(), "{text}");
    }
}

#[test]
fn patches_cannot_grow_without_bound() {
    let doubled = |path: fn(usize) -> String| -> String {
        (0..40).map(|n| format!("- {{op: copy, from: /data, path: {}}}\n", path(n))).collect()
    };
    let wide = error(&json!({}), &doubled(|n| format!("/data/x{n}")), &config_map("a", None));
    assert!(wide.ends_with(&Problem::TooLarge.to_string()), "{wide}");
    let deep: String = (0..200)
        .map(|n| format!("- {{op: add, path: /data{}, value: {{}}}}\n", "/a".repeat(n + 1)))
        .collect();
    let deep = error(&json!({}), &deep, &config_map("a", None));
    assert!(deep.ends_with(&Problem::TooDeep.to_string()), "{deep}");
    let aliases = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned()
        + &('b'..'h')
            .map(|c| {
                let before = (c as u8 - 1) as char;
                format!("{c}: &{c} [{}]\n", vec![format!("*{before}"); 9].join(", "))
            })
            .collect::<String>();
    assert!(error(&json!({}), &aliases, &deployment()).contains("YAML nodes"));
}
