//! Stored objects survive the Rust types.

use anyhow::{Context, Result, ensure};
use kyma_api::{HelmComponent, Kyma, ModuleConfig, ModuleReleaseMeta, ModuleTemplate, Pause, Watcher};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::inputs;

/// Returns the object after deserialization and serialization.
pub(crate) fn round_trip(object: &Value) -> Result<Value> {
    fn through<K: Serialize + DeserializeOwned>(object: &Value) -> Result<Value> {
        let typed: K = serde_json::from_value(object.clone())?;
        Ok(serde_json::to_value(typed)?)
    }
    match object["kind"].as_str().context("no kind")? {
        "Kyma" => through::<Kyma>(object),
        "ModuleTemplate" => through::<ModuleTemplate>(object),
        "ModuleReleaseMeta" => through::<ModuleReleaseMeta>(object),
        "Watcher" => through::<Watcher>(object),
        "ModuleConfig" => through::<ModuleConfig>(object),
        "Pause" => through::<Pause>(object),
        "HelmComponent" => through::<HelmComponent>(object),
        other => anyhow::bail!("{other} is none of our kinds"),
    }
}

#[test]
fn objects_written_by_klm_survive_the_types() -> Result<()> {
    let Some(inputs) = testbed::inputs("recorded objects through our types")? else {
        return Ok(());
    };
    let documents = inputs::recorded(&inputs)?;
    ensure!(documents.len() > 60, "only {} recorded objects", documents.len());
    let with_status = documents.iter().filter(|one| one.object.get("status").is_some()).count();
    let with_managers =
        documents.iter().filter(|one| one.object["metadata"]["managedFields"].is_array()).count();
    ensure!(
        with_status > 10 && with_managers == documents.len(),
        "status {with_status}, managedFields {with_managers}"
    );
    for document in documents {
        let back = round_trip(&document.object).with_context(|| document.origin.clone())?;
        assert_eq!(back, document.object, "{}", document.origin);
    }
    Ok(())
}

#[test]
fn objects_of_users_load_with_their_whole_status() -> Result<()> {
    let Some(inputs) = testbed::inputs("users' files through our types")? else {
        return Ok(());
    };
    let mut loaded = 0;
    for mut document in inputs::klm_yaml(&inputs)? {
        if crate::clusters::collection(&document.object).is_none() {
            continue;
        }
        // A field of v1beta1 that the environment broker still writes and every apiserver drops.
        if let Some(spec) = document.object["spec"].as_object_mut() {
            spec.remove("sync");
        }
        let back = round_trip(&document.object).with_context(|| document.origin.clone())?;
        add_defaults(&mut document.object, &back);
        assert_eq!(back, document.object, "{}", document.origin);
        loaded += 1;
    }
    ensure!(loaded >= 30, "only {loaded} objects");
    Ok(())
}

/// Sets the defaults of the apiserver, which files lack.
fn add_defaults(file: &mut Value, typed: &Value) {
    for (list, fields) in [
        ("/spec/modules", &["managed", "customResourcePolicy"][..]),
        ("/status/modules", &["maintenance"]),
        ("/spec", &["beta", "internal"]),
    ] {
        let (Some(into), Some(from)) = (file.pointer_mut(list), typed.pointer(list)) else {
            continue;
        };
        let pairs: Vec<_> = match (into, from) {
            (Value::Array(into), Value::Array(from)) => into.iter_mut().zip(from).collect(),
            (into, from) => vec![(into, from)],
        };
        for (into, from) in pairs {
            for field in fields {
                if let (Some(into), Some(value)) = (into.as_object_mut(), from.get(field)) {
                    into.entry(*field).or_insert_with(|| value.clone());
                }
            }
        }
    }
}
