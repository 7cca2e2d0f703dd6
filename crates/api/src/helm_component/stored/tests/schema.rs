//! The schema keeps each field of a stored status.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::{Value, json};

use super::{
    HelmComponentStatus, HookPhase, Hooks, adoption, digests, failed_revision, former_adoption,
    former_baseline, former_digests, former_failure, former_hooks, former_record, former_target,
    former_version, hooks, prune_baseline, release_record, resolved_version, rollback_target,
};
use crate::schema::crds;

/// Returns the schema of the status.
fn schema() -> JSONSchemaProps {
    let crd = crds::helm_component();
    let served = crd.spec.versions.into_iter().find(|version| version.served).unwrap();
    let mut root = served.schema.and_then(|schema| schema.open_api_v3_schema).unwrap();
    root.properties.as_mut().and_then(|properties| properties.remove("status")).unwrap()
}

/// Returns the description of a field of the status.
fn description(schema: &JSONSchemaProps, path: &str) -> String {
    let field = path.split('.').fold(schema, |schema, name| &schema.properties.as_ref().unwrap()[name]);
    field.description.clone().unwrap_or_default()
}

/// Returns the value as an API server with this schema returns it: without the fields that the schema lacks. Fails if
/// a value has another type than its field.
fn pruned(value: &Value, schema: &JSONSchemaProps) -> Value {
    let type_ = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert_eq!(schema.type_.as_deref(), Some(type_), "{value}");
    match (value, &schema.properties, &schema.items) {
        (Value::Object(fields), Some(properties), _) => {
            let known = fields.iter().filter_map(|(name, field)| {
                properties.get(name).map(|schema| (name.clone(), pruned(field, schema)))
            });
            Value::Object(known.collect())
        }
        (Value::Array(items), _, Some(JSONSchemaPropsOrArray::Schema(schema))) => {
            items.iter().map(|item| pruned(item, schema)).collect()
        }
        _ => value.clone(),
    }
}

#[test]
fn schema_drops_no_field_of_an_earlier_version() {
    let mut running = former_hooks();
    running["running"] = json!("Job.batch shop/b");
    running["runningUid"] = json!("u");
    let stored = json!({
        "digests": former_digests(), "resolved": former_version(), "hooks": running, "tests": running,
        "replaces": former_baseline(), "takenOver": former_adoption(), "history": former_record(),
        "rollback": former_failure(), "kept": former_target(),
    });
    assert_eq!(pruned(&stored, &schema()), stored);
    let unknown = json!({"hooks": {"event": "test", "unknown": 1}, "unknown": {}});
    assert_eq!(pruned(&unknown, &schema()), json!({"hooks": {"event": "test"}}));
}

#[test]
fn schema_drops_no_field_of_this_version() {
    let hooks = Hooks {
        phase: HookPhase::Running,
        running: Some("Job.batch shop/b".to_owned()),
        running_uid: Some("u".to_owned()),
        ..hooks()
    };
    let status = json!(HelmComponentStatus {
        digests: Some(digests()),
        resolved: Some(resolved_version()),
        hooks: Some(hooks.clone()),
        tests: Some(hooks),
        prune_baseline: Some(prune_baseline()),
        adopted: Some(adoption()),
        release_record: Some(release_record()),
        failed_revision: Some(failed_revision()),
        rollback_target: Some(rollback_target()),
        ..HelmComponentStatus::default()
    });
    assert_eq!(pruned(&status, &schema()), status);
}

#[test]
fn schema_keeps_deprecated_fields() {
    let schema = schema();
    let hooks = [
        ("content", "digest"),
        ("attempt", "attempts"),
        ("begunAt", "startTime"),
        ("failedAt", "lastFailureTime"),
        ("failure", "message"),
        ("done", "succeeded"),
        ("onDelete", "hasDeleteHooks"),
    ];
    for (former, current) in hooks {
        for record in ["hooks", "tests"] {
            let told = description(&schema, &format!("{record}.{former}"));
            assert_eq!(told, format!("Deprecated: use {current}."), "{record}.{former}");
            assert!(!description(&schema, &format!("{record}.{current}")).is_empty(), "{record}.{current}");
        }
    }
    for (former, current) in [("kinds", "apiVersions"), ("render", "storedRender"), ("rendered", "objects")] {
        let told = description(&schema, &format!("digests.{former}"));
        assert_eq!(told, format!("Deprecated: use {current}."), "digests.{former}");
        assert!(!description(&schema, &format!("digests.{current}")).is_empty(), "digests.{current}");
    }
    let renamed = [
        ("replaces", "pruneBaseline"),
        ("takenOver", "adopted"),
        ("history", "releaseRecord"),
        ("rollback", "failedRevision"),
        ("kept", "rollbackTarget"),
    ];
    for (former, current) in renamed {
        assert_eq!(description(&schema, former), format!("Deprecated: use {current}."));
        let fields = schema.properties.as_ref().unwrap()[former].properties.clone().unwrap();
        for (name, field) in fields {
            let told = field.description.unwrap_or_default();
            assert!(told.starts_with(&format!("Deprecated: use {current}.")), "{former}.{name}: {told}");
        }
    }
    for (former, current) in [("of", "requestDigest"), ("held", "message")] {
        let told = description(&schema, &format!("resolved.{former}"));
        assert_eq!(told, format!("Deprecated: use {current}."), "resolved.{former}");
    }
    let required = schema.properties.as_ref().unwrap()["hooks"].required.clone();
    assert_eq!(required, Some(vec!["event".to_owned(), "phase".to_owned()]));
}
