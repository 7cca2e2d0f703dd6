//! Reads objects from files and directories.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{error::Error, file::read_text};

/// Extensions of files in directories, as kubectl selects them.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// Returns files, and the YAML and JSON files in directories sorted by name.
pub(super) fn files(places: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for place in places {
        if !place.is_dir() {
            files.push(place.clone());
            continue;
        }
        let unreadable = |source| Error::Read { path: place.clone(), source };
        let entries = std::fs::read_dir(place).map_err(unreadable)?;
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(unreadable)?;
        found.retain(|path| {
            let extension = path.extension().and_then(OsStr::to_str);
            extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) && !path.is_dir()
        });
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

/// Returns the objects in a file; those of a list one by one.
pub(super) fn objects(file: &Path) -> Result<Vec<Value>, Error> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&read_text(file)?)
        .map_err(|error| Error::input(file.display().to_string(), format!("not YAML: {error}")))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).flat_map(items).collect())
}

/// Returns the items of a `kubectl get` list, or the object itself.
fn items(mut document: Value) -> Vec<Value> {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    let Some(Value::Array(listed)) = document.get_mut("items").filter(|_| is_list).map(Value::take) else {
        return vec![document];
    };
    // Items of a typed list may omit apiVersion and kind.
    let api_version = document["apiVersion"].clone();
    let kind = document["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).unwrap_or_default();
    let is_typed = !kind.is_empty();
    let whole = |mut item: Value| {
        if let Some(item) = item.as_object_mut().filter(|_| is_typed) {
            item.entry("apiVersion").or_insert_with(|| api_version.clone());
            item.entry("kind").or_insert_with(|| kind.into());
        }
        item
    };
    listed.into_iter().map(whole).flat_map(items).collect()
}

/// Metadata that an API server sets and exported files contain.
const SERVER_SET: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];
/// Metadata that refers to objects of another cluster or its operators.
const OF_OTHER_CLUSTER: [&str; 2] = ["ownerReferences", "finalizers"];
/// Annotation in which `kubectl apply` stores the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Removes metadata that belongs to the cluster from which an object was exported.
fn remove_server_set(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    for field in SERVER_SET.iter().chain(&OF_OTHER_CLUSTER) {
        metadata.remove(*field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
}

/// Returns an object of a file as type `K`, in `namespace` if it names none.
pub(super) fn typed<K>(file: &Path, kind: &str, mut object: Value, namespace: &str) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let wrong = |problem: String| Error::input(file.display().to_string(), problem);
    let version = K::api_version(&());
    if object["kind"] != kind || object["apiVersion"] != version.as_ref() {
        return Err(wrong(format!("expected a {kind} of {version}")));
    }
    remove_server_set(&mut object);
    if let Some(metadata) = object["metadata"].as_object_mut()
        && metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().is_empty()
    {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    let object: K =
        serde_json::from_value(object).map_err(|error| wrong(format!("not a {kind}: {error}")))?;
    if object.meta().name.as_deref().unwrap_or_default().is_empty() {
        return Err(wrong(format!("the {kind} has no name")));
    }
    // The operators serve one namespace. kubectl refuses another one than that of its flag, too.
    if let Some(own) = object.meta().namespace.as_deref().filter(|own| *own != namespace) {
        let name = object.name_any();
        return Err(wrong(format!("{kind} {name} is in namespace {own}; repeat with --namespace={own}")));
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_files_of_a_directory_are_read() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a.yaml")).unwrap();
        for name in ["b.json", "c.yml", "notes.txt"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let found = files(&[directory.path().to_owned()]).unwrap();
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["b.json", "c.yml"]);
    }
}
