use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::json;

use super::*;

fn rules(value: &Value) -> Result<IgnoredFields, IgnoreRuleError> {
    IgnoredFields::parse(&serde_json::from_value::<Vec<DriftIgnore>>(value.clone()).unwrap())
}

fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

fn deployment() -> Object {
    object(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n",
        "annotations": {"a/b~c": "x"}, "labels": {"l": "v"}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "one", "image": "1"}, {"name": "two", "image": "2"}, {"name": "three", "image": "3"}]}}}}))
}

#[test]
fn only_existing_fields_are_left_out() {
    let rules = rules(
        &json!([{"paths": ["/spec/replicas", "/spec/nothing", "/spec/template/spec/containers/2", "/spec/template/spec/containers/3"]}]),
    );
    let rules = rules.unwrap();
    let mut object = deployment();
    let left_out = leave_out(&mut object, &rules.fields_of(&deployment()));
    assert_eq!(
        left_out.into_iter().collect::<Vec<_>>(),
        ["/spec/replicas", "/spec/template/spec/containers/2"]
    );
}

fn left_out(paths: &Value) -> Value {
    let rules = rules(&json!([{ "paths": paths }])).unwrap();
    let mut object = deployment();
    let fields: Vec<Field> = rules.fields_of(&object).into_iter().cloned().collect();
    leave_out(&mut object, &fields.iter().collect::<Vec<_>>());
    object.into_value()
}

#[test]
fn invalid_paths_are_reported_with_their_index() {
    let rows = [
        ("spec/replicas", PathProblem::Syntax),
        ("/a~2", PathProblem::Syntax),
        ("/a~", PathProblem::Syntax),
        ("", PathProblem::Whole),
        ("/kind", PathProblem::Identity),
        ("/metadata/name", PathProblem::Identity),
        ("/metadata", PathProblem::Marks),
        ("/metadata/labels", PathProblem::Marks),
        ("/metadata/annotations", PathProblem::Marks),
        ("/metadata/labels/component.kyma-project.io~1owner", PathProblem::Marks),
    ];
    for (path, problem) in rows {
        let error = rules(&json!([{"paths": ["/spec"]}, {"paths": ["/spec/a~0b~1c", path]}])).unwrap_err();
        assert_eq!(error, IgnoreRuleError { rule: 1, path: 1, problem }, "{path}");
        assert!(error.to_string().starts_with("drift.ignore[1].paths[1]: "), "{error}");
    }
    assert!(rules(&json!([{"paths": ["/metadata/labels/team", "/data/tls.crt", "/spec"]}])).is_ok());
}

#[test]
fn rules_hold_for_the_objects_that_they_select() {
    let rules = rules(&json!([
        {"paths": ["/spec/a"], "target": {"kind": "Deployment", "namespace": "n"}},
        {"paths": ["/spec/b"], "target": {"group": "apps", "version": "v1beta1"}},
        {"paths": ["/spec/c"]},
    ]))
    .unwrap();
    let told: Vec<String> = rules.fields_of(&deployment()).into_iter().map(ToString::to_string).collect();
    assert_eq!(told, ["/spec/a", "/spec/c"]);
}

#[test]
fn only_the_named_fields_are_left_out() {
    let value = left_out(&json!([
        "/spec/replicas",
        "/metadata/annotations/a~1b~0c",
        "/spec/nothing",
        "/spec/replicas/x"
    ]));
    assert!(value["spec"].get("replicas").is_none());
    assert!(value["metadata"].get("annotations").is_none(), "an empty map would be owned whole");
    assert_eq!(value["metadata"]["labels"], json!({"l": "v"}));
    let value = left_out(&json!(["/spec"]));
    assert!(value.get("spec").is_none() && value["kind"] == "Deployment");
}

#[test]
fn indices_are_those_of_the_whole_object() {
    let all = "/spec/template/spec/containers";
    let value = left_out(&json!([
        format!("{all}/0"),
        format!("{all}/2/image"),
        format!("{all}/1"),
        format!("{all}/7")
    ]));
    assert_eq!(value["spec"]["template"]["spec"]["containers"], json!([{"name": "three"}]));
}

#[test]
fn an_autoscaler_has_the_replicas_of_what_it_scales() {
    let autoscaler = object(&json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "namespace": "n"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}));
    let ignored_fields = IgnoredFields::default().with_autoscalers([&deployment(), &autoscaler]);
    let told: Vec<String> =
        ignored_fields.fields_of(&deployment()).into_iter().map(ToString::to_string).collect();
    assert_eq!(told, ["/spec/replicas"]);
    let mut elsewhere = deployment();
    elsewhere.set_namespace(Some("m"));
    assert!(
        ignored_fields.fields_of(&elsewhere).is_empty() && ignored_fields.fields_of(&autoscaler).is_empty()
    );
}

fn held(entries: &Value) -> ObjectMeta {
    let entry = |(manager, fields): (&String, &Value)| {
        json!({"manager": manager, "operation": "Apply",
        "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let entries: Vec<Value> = entries.as_object().unwrap().iter().map(entry).collect();
    serde_json::from_value(json!({"resourceVersion": "7", "managedFields": entries})).unwrap()
}

/// Returns the fields that each manager owns afterwards.
fn moved(
    before: &Value,
    whole: &Object,
    rules: &IgnoredFields,
) -> Result<Option<(Value, bool)>, PartOfWhole> {
    let body = Value::Object(whole.body().clone());
    let moved = split(&held(before), &body, &rules.fields_of(whole), "us", "keeper")?;
    Ok(moved.map(|moved| {
        let operations = serde_json::to_value(&moved.patch).unwrap();
        assert_eq!(operations[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
        let entries: Vec<ManagedFieldsEntry> =
            serde_json::from_value(operations[1]["value"].clone()).unwrap();
        let entry = |entry: ManagedFieldsEntry| (entry.manager.unwrap(), entry.fields_v1.unwrap().0);
        (Value::Object(entries.into_iter().map(entry).collect()), moved.returns)
    }))
}

const CONTAINER_KEY: &str = r#"k:{"name":"one"}"#;

#[test]
fn owned_ignored_fields_move_to_their_manager() {
    let containers = |fields: Value| json!({"f:template": {"f:spec": {"f:containers": fields}}});
    let mut spec = containers(json!({CONTAINER_KEY: {".": {}, "f:name": {}, "f:image": {}}}));
    spec["f:replicas"] = json!({});
    let before = json!({"them": {"f:data": {}}, "us": {"f:spec": spec}});
    let rules = rules(
        &json!([{"paths": ["/spec/replicas", "/spec/template/spec/containers/0/image", "/spec/paused"]}]),
    )
    .unwrap();
    let (after, returns) = moved(&before, &deployment(), &rules).unwrap().unwrap();
    let mut keeps = containers(json!({CONTAINER_KEY: {"f:image": {}}}));
    keeps["f:replicas"] = json!({});
    assert_eq!(
        after,
        json!({
            "them": {"f:data": {}},
            "us": {"f:spec": containers(json!({CONTAINER_KEY: {".": {}, "f:name": {}}}))},
            "keeper": {"f:spec": keeps},
        })
    );
    assert!(!returns);
    assert_eq!(moved(&after, &deployment(), &rules).unwrap(), None, "once");
}

#[test]
fn fields_that_are_no_longer_ignored_return_to_the_manager() {
    let before = json!({"us": {"f:spec": {"f:paused": {}}}, "keeper": {"f:spec": {"f:replicas": {}}}});
    let back = json!({"us": {"f:spec": {"f:paused": {}, "f:replicas": {}}}});
    assert_eq!(moved(&before, &deployment(), &IgnoredFields::default()).unwrap(), Some((back.clone(), true)));
    // The chart no longer has the field: an apply removes it if no other manager took it.
    let mut without = deployment();
    without.body_mut()["spec"].as_object_mut().unwrap().remove("replicas");
    let rules = rules(&json!([{"paths": ["/spec/replicas"]}])).unwrap();
    assert_eq!(moved(&before, &without, &rules).unwrap(), Some((back, true)));
    let theirs = json!({"us": {"f:spec": {"f:paused": {}}}, "them": {"f:spec": {"f:replicas": {}}}});
    assert_eq!(moved(&theirs, &deployment(), &rules).unwrap(), None);
}

#[test]
fn a_part_of_what_changes_as_a_whole_is_refused() {
    let role = object(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "r"}, "rules": [{"verbs": ["get"]}]}));
    let one = rules(&json!([{"paths": ["/rules/0/verbs"]}])).unwrap();
    let before = json!({"us": {"f:rules": {}}});
    let error = moved(&before, &role, &one).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.drift.ignore[0].paths[0]: /rules/0/verbs is part of /rules, which changes as a whole; name that instead"
    );
    let all = rules(&json!([{"paths": ["/rules"]}])).unwrap();
    assert_eq!(moved(&before, &role, &all).unwrap(), Some((json!({"keeper": {"f:rules": {}}}), false)));
}

#[test]
fn items_are_found_by_keys_that_have_defaults_too_and_by_value() {
    let port = |protocol: &str| format!(r#"k:{{"port":53,"protocol":"{protocol}"}}"#);
    let service = object(&json!({"apiVersion": "x.io/v1", "kind": "S", "metadata": {"name": "s"},
        "ports": [{"port": 53}], "set": ["a", "b"]}));
    let rules = rules(&json!([{"paths": ["/ports/0", "/set/1"]}])).unwrap();
    let before =
        json!({"us": {"f:ports": {port("TCP"): {"f:port": {}}}, "f:set": {"v:\"a\"": {}, "v:\"b\"": {}}}});
    let (after, _) = moved(&before, &service, &rules).unwrap().unwrap();
    assert_eq!(
        after,
        json!({
            "us": {"f:set": {"v:\"a\"": {}}},
            "keeper": {"f:ports": {port("TCP"): {"f:port": {}}}, "f:set": {"v:\"b\"": {}}},
        })
    );
    let before = json!({"us": {"f:ports": {port("TCP"): {"f:port": {}}, port("UDP"): {"f:port": {}}}}});
    assert!(moved(&before, &service, &rules).is_err(), "either may be meant");
}
