use serde_json::json;

use super::*;

#[test]
fn an_object_needs_api_version_kind_and_name() {
    let cases = [
        (json!([]), ObjectError::NotAMap),
        (json!({"kind": "A", "metadata": {"name": "a"}}), ObjectError::ApiVersion),
        (json!({"apiVersion": "a/b/c", "kind": "A", "metadata": {"name": "a"}}), ObjectError::ApiVersion),
        (json!({"apiVersion": "v1", "metadata": {"name": "a"}}), ObjectError::Kind),
        (json!({"apiVersion": "v1", "kind": "A"}), ObjectError::Name),
        (
            json!({"apiVersion": "v1", "kind": "A", "metadata": {"generateName": "a"}}),
            ObjectError::GeneratedName,
        ),
        (
            json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "namespace": 1}}),
            ObjectError::Namespace,
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(Object::from_value(value).unwrap_err(), expected);
    }
}

#[test]
fn a_field_that_would_be_replaced_by_a_map_is_refused_by_path() {
    let object = |kind: &str, metadata: Value, (field, value): (&str, Value)| {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        object["metadata"]["name"] = "a".into();
        object[field] = value;
        Object::from_value(object)
    };
    let nothing = || ("spec", json!({}));
    let cases = [
        (object("Pod", json!({"labels": ["a=b"]}), nothing()), "metadata.labels"),
        (object("Pod", json!({"labels": "a=b"}), nothing()), "metadata.labels"),
        (object("Pod", json!({"annotations": 1}), nothing()), "metadata.annotations"),
        (object("Secret", json!({}), ("stringData", json!("hush"))), "stringData"),
        (object("Secret", json!({}), ("data", json!(["hush"]))), "data"),
    ];
    for (found, field) in cases {
        assert_eq!(found.unwrap_err(), ObjectError::FieldNotAMap(field));
    }
    assert!(object("Pod", json!({"labels": null, "annotations": {}}), nothing()).is_ok());
    assert!(object("Secret", json!({}), ("stringData", json!(null))).is_ok());
    assert!(object("Widget", json!({}), ("data", json!("theirs"))).is_ok());
}

#[test]
fn identity_has_no_version() {
    let object = |api_version: &str| {
        let value =
            json!({"apiVersion": api_version, "kind": "Widget", "metadata": {"name": "w", "namespace": "n"}});
        Object::from_value(value).unwrap()
    };
    assert_eq!(object("x.io/v1").identity(), object("x.io/v2").identity());
    assert_eq!(object("x.io/v1").identity().to_string(), "Widget.x.io n/w");
    assert_ne!(object("x.io/v1").intent_hash(), object("x.io/v2").intent_hash());
}

#[test]
fn the_hash_distinguishes_types_and_borders() {
    let values = [json!({"a": "1"}), json!({"a": 1}), json!({"a": true}), json!({"a": null}), json!({})];
    let hashes: std::collections::BTreeSet<_> = values.iter().map(hash_value).collect();
    assert_eq!(hashes.len(), values.len());
    assert_ne!(hash_value(&json!(["ab", "c"])), hash_value(&json!(["a", "bc"])));
    assert_ne!(hash_value(&json!([["a"], "b"])), hash_value(&json!([["a", "b"]])));
}

#[test]
fn debug_output_holds_no_content() {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "hush"}});
    assert!(!format!("{:?}", Object::from_value(secret).unwrap()).contains("hush"));
}

#[test]
fn data_that_is_left_out_of_hashes_changes_none() {
    let object = |data: &str, label: &str| {
        let metadata = json!({"name": "s", "labels": {"revision": label}});
        let mut object = Object::from_value(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"k": data}}),
        )
        .unwrap();
        object.leave_data_out_of_hashes();
        object
    };
    assert_eq!(object("YQ==", "1").intent_hash(), object("Yg==", "1").intent_hash());
    assert_ne!(object("YQ==", "1").intent_hash(), object("YQ==", "2").intent_hash());
    assert_eq!(object("YQ==", "1").clone().intent_hash(), object("Yg==", "1").intent_hash());
}

#[test]
fn clones_share_the_body_until_one_of_them_changes() {
    let value =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let object = Object::from_value(value).unwrap();
    let mut clone = object.clone();
    assert!(std::ptr::eq(object.body(), clone.body()));
    clone.set_label("app", "b");
    assert!(!std::ptr::eq(object.body(), clone.body()));
    assert_eq!((object.label("app"), clone.label("app")), (None, Some("b")));
    // The changed clone has its own body from here on.
    let before: *const Map<String, Value> = clone.body();
    clone.set_label("app", "c");
    assert!(std::ptr::eq(before, clone.body()));
}
