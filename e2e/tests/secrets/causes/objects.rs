//! Objects that the target refuses because of a secret in them.

use kyma_api::Reason;
use serde_json::{Value, json};

use super::sources::manifests;
use crate::planted::{HARMLESS_WORD, secret};
use crate::world::{Row, World};

pub(crate) fn rows(world: &World) -> Vec<Row> {
    let mut rows: Vec<Row> = refused()
        .into_iter()
        .map(|(name, object)| Row {
            name,
            access: None,
            specs: vec![manifests(world, name, object.to_string())],
            reason: Reason::ApplyRefused,
        })
        .collect();
    let steps = |name: &str, object: &dyn Fn(&str) -> Value| -> Vec<Value> {
        let versions = ["one", "two"].map(|word| object(&secret(&format!("{name}-{word}"))));
        let texts = versions.into_iter().enumerate();
        texts
            .map(|(number, object)| manifests(world, &format!("{name}-{number}"), object.to_string()))
            .collect()
    };
    rows.push(Row {
        name: "immutable-secret",
        access: None,
        specs: steps("immutable-secret", &immutable_secret),
        reason: Reason::ImmutableField,
    });
    rows.push(Row { name: "job", access: None, specs: steps("job", &job), reason: Reason::ImmutableField });
    rows
}

fn refused() -> Vec<(&'static str, Value)> {
    let object = |api_version: &str, kind: &str, field: &str, value: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        object[field] = value;
        object
    };
    let port = |port: Value| object("v1", "Service", "spec", json!({"ports": [port]}));
    let env = |env: Value| {
        let pod = json!({"containers": [{"name": "a", "image": "a", "env": [env]}]});
        object("v1", "Pod", "spec", pod)
    };
    vec![
        ("port-name", port(json!({"name": secret("port-name"), "port": 80}))),
        ("port-type", port(json!({"name": "a", "port": secret("port-type")}))),
        ("enum", object("v1", "Service", "spec", json!({"type": secret("enum"), "ports": [{"port": 80}]}))),
        (
            "address",
            object("v1", "Service", "spec", json!({"clusterIP": secret("address"), "ports": [{"port": 80}]})),
        ),
        ("no-base64", object("v1", "Secret", "data", json!({"password": secret("no-base64")}))),
        ("data-list", object("v1", "ConfigMap", "data", json!({"password": [secret("data-list")]}))),
        ("secret-type", {
            let mut object =
                object("v1", "Secret", "stringData", json!({".dockerconfigjson": secret("secret-type")}));
            object["type"] = "kubernetes.io/dockerconfigjson".into();
            object
        }),
        ("env-number", env(json!({"name": "PASSWORD", "value": {"plain": secret("env-number")}}))),
        ("env-name", env(json!({"name": format!("{} =", secret("env-name")), "value": "a"}))),
        (
            "env-both",
            env(json!({
                "name": "A", "value": secret("env-both"), "valueFrom": {"fieldRef": {"fieldPath": secret("env-both")}},
            })),
        ),
        ("label", {
            let mut object = object("v1", "ConfigMap", "data", json!({"a": "b"}));
            object["metadata"]["labels"] = json!({"token": secret("label")});
            object
        }),
    ]
}

fn immutable_secret(password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
        "immutable": true, "stringData": {"password": password, HARMLESS_WORD: HARMLESS_WORD},
    })
}

/// Returns a Job. When its template changes, the apiserver quotes the whole template in the error.
fn job(password: &str) -> Value {
    let container = json!({"name": "a", "image": "a", "env": [{"name": "PASSWORD", "value": password}]});
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    })
}
