use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod(container: &Value) -> Map<String, Value> {
    let Value::Object(pod) = json!({"spec": {"containers": [container]}}) else { unreachable!() };
    pod
}

#[test]
fn variables_whose_earlier_value_is_read_stay() {
    let env = |variables: &[(&str, &str)]| -> Vec<Value> {
        variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    };
    let left = |variables: &[(&str, &str)]| {
        let mut pod = pod(&json!({"name": "c", "env": env(variables)}));
        let told = remove_harmless_duplicates(&mut pod, "", "Pod").len();
        (pod["spec"]["containers"][0]["env"].as_array().unwrap().len(), told)
    };
    assert_eq!(left(&[("A", "a"), ("B", "$(A)"), ("A", "b")]), (3, 0), "read in between");
    assert_eq!(left(&[("A", "a"), ("A", "b-$(A)")]), (2, 0), "reads itself");
    assert_eq!(left(&[("A", "a"), ("B", "$(A)"), ("A", "a")]), (3, 0), "equal, and read before the last");
    assert_eq!(left(&[("B", "$(A)"), ("A", "a"), ("A", "b"), ("C", "$(A)")]), (3, 1), "read outside");
    assert_eq!(left(&[("A", "a"), ("B", "$$(A) $A (A) $(AB)"), ("A", "b")]), (2, 1), "no reference");
    assert_eq!(left(&[("A", "a"), ("A", "a")]), (1, 1));
    assert_eq!(left(&[("A", "a"), ("B", "$$$(A)"), ("A", "b")]), (3, 0), "an escape and a reference");
}

#[test]
fn ports_stay_if_an_earlier_one_has_other_fields() {
    let left = |ports: Value| {
        let mut pod = pod(&json!({"name": "c", "ports": ports}));
        let told = remove_harmless_duplicates(&mut pod, "", "Pod").len();
        (pod["spec"]["containers"][0]["ports"].as_array().unwrap().len(), told)
    };
    let port = |name: &str| json!({"containerPort": 80, "name": name});
    assert_eq!(left(json!([port("http"), port("metrics")])), (2, 0));
    assert_eq!(left(json!([port("http"), port("http")])), (1, 1));
    assert_eq!(left(json!([{"containerPort": 80, "protocol": "TCP"}, port("http")])), (1, 1));
    assert_eq!(
        left(json!([{"containerPort": 80, "hostPort": 1}, {"containerPort": 80, "hostPort": 2}])),
        (2, 0)
    );
}

#[test]
fn empty_key_fields_get_the_default_of_the_api_server() {
    let mut service = pod(&json!({}));
    service.insert("spec".into(), json!({"ports": [{"port": 53, "protocol": ""}, {"port": 54}]}));
    assert!(remove_harmless_duplicates(&mut service, "", "Service").is_empty());
    let expected = json!([{"port": 53, "protocol": "TCP"}, {"port": 54, "protocol": "TCP"}]);
    assert_eq!(service["spec"]["ports"], expected);

    let ports = json!([{"containerPort": 53, "protocol": ""}, {"containerPort": 53, "protocol": "TCP"}]);
    let mut pod = pod(&json!({"name": "c", "ports": ports}));
    let secrets = json!([{}, {"name": null}, {"name": ""}, {"name": "a"}]);
    pod.insert("spec".into(), json!({"containers": pod["spec"]["containers"], "imagePullSecrets": secrets}));
    assert_eq!(remove_harmless_duplicates(&mut pod, "", "Pod").len(), 2);
    let spec = &pod["spec"];
    assert_eq!(spec["containers"][0]["ports"], json!([{"containerPort": 53, "protocol": "TCP"}]));
    assert_eq!(spec["imagePullSecrets"], json!([{"name": ""}, {"name": "a"}]));
}

#[test]
fn lists_are_kept_as_written_and_last_item_of_each_key_stays() {
    let ports = json!([{"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}]);
    let mut pod = pod(&json!({"name": "c", "ports": ports}));
    let taken = take_lists_as_written(&mut pod, "", "Pod");
    assert_eq!(pod["spec"]["containers"][0]["ports"].as_array().unwrap().len(), 1);
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].items.len(), 2);
    let segments = [
        PathSegment::Field("spec"),
        PathSegment::Field("containers"),
        PathSegment::Item("c".into()),
        PathSegment::Field("ports"),
    ];
    assert_eq!(taken[0].segments, segments);
    assert_eq!(taken[0].text, "spec.containers[0].ports has containerPort=80,protocol=TCP more than once");
    assert!(take_lists_as_written(&mut pod, "", "Pod").is_empty());
}

/// The specification of [`unique`], one item at a time.
fn unique_by_definition(list: &[Value], keys: &[&str]) -> (Vec<Value>, Vec<String>) {
    let key_of =
        |item: &Value| -> Option<Vec<Value>> { keys.iter().map(|key| item.get(*key).cloned()).collect() };
    let text = |key: &Vec<Value>| {
        let parts = keys.iter().zip(key).map(|(key, value)| match value {
            Value::String(text) => format!("{key}={text}"),
            other => format!("{key}={other}"),
        });
        parts.collect::<Vec<_>>().join(",")
    };
    let (mut stays, mut told) = (Vec::new(), Vec::new());
    for (index, item) in list.iter().enumerate() {
        let again =
            |key: &Vec<Value>| list[index + 1..].iter().any(|later| key_of(later).as_ref() == Some(key));
        match key_of(item).filter(again) {
            None => stays.push(item.clone()),
            Some(key) if told.contains(&key) => {}
            Some(key) => told.push(key),
        }
    }
    (stays, told.iter().map(text).collect())
}

fn any_item() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just(json!("a")),
        Just(json!("b")),
        Just(json!(1)),
        Just(json!(1.5)),
        Just(json!(null)),
        Just(json!({"a": [0.0]})),
        Just(json!({"a": [-0.0]})),
    ];
    (proptest::option::of(key.clone()), proptest::option::of(key), 0..3_u8).prop_map(|(one, other, rest)| {
        let with = |key: &str, value: Option<Value>| value.map(|value| (key.to_owned(), value));
        let fields = [with("one", one), with("other", other), with("rest", Some(rest.into()))];
        Value::Object(fields.into_iter().flatten().collect())
    })
}

proptest! {
    #[test]
    fn of_equal_keys_the_last_stays(list in proptest::collection::vec(any_item(), 0..12), both: bool) {
        let keys: &[&str] = if both { &["one", "other"] } else { &["one"] };
        let (stays, told) = unique_by_definition(&list, keys);
        let mut list = list;
        let found = unique(&mut list, keys, "p", |_, _| true);
        prop_assert_eq!(list, stays);
        prop_assert_eq!(found, told.into_iter().map(|key| ("p".to_owned(), key)).collect::<Vec<_>>());
    }
}

#[test]
fn long_lists_take_no_longer_for_being_long() {
    const ITEM_COUNT: usize = 300_000;
    let distinct: Vec<Value> = (0..ITEM_COUNT).map(|number| json!({"name": format!("V{number}")})).collect();
    let same = vec![json!({"name": "V", "value": "$(W)"}); ITEM_COUNT];
    for (env, left, told) in [(distinct, ITEM_COUNT, 0), (same, 1, 1)] {
        let started = Instant::now();
        let pod = json!({"spec": {"containers": [{"name": "c", "env": env}]}});
        let Value::Object(mut pod) = pod else { unreachable!() };
        let found = remove_harmless_duplicates(&mut pod, "", "Pod");
        let env = &pod["spec"]["containers"][0]["env"];
        // Pairs of them would be tens of billions, which take minutes.
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        assert_eq!((env.as_array().unwrap().len(), found.len()), (left, told));
    }
}
