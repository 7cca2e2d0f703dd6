//! Third-party objects, read from outside the repository.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

/// A document of a file.
pub(crate) struct Document {
    /// File and position, for messages.
    pub(crate) origin: String,
    pub(crate) object: Value,
}

/// Returns all documents of a YAML file; lists are split into their items.
pub(crate) fn documents(path: &Path) -> Result<Vec<Document>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let parsed: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| path.display().to_string())?;
    let mut objects = vec![];
    for value in parsed {
        match value.get("items").and_then(Value::as_array) {
            Some(items) => objects.extend(items.iter().cloned()),
            None if value.is_null() => {}
            None => objects.push(value),
        }
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parent = path.parent().and_then(Path::parent).and_then(Path::file_name).unwrap_or_default();
    let origin = |index| format!("{}/{name}[{index}]", parent.to_string_lossy());
    Ok(objects
        .into_iter()
        .enumerate()
        .map(|(index, object)| Document { origin: origin(index), object })
        .collect())
}

/// Returns the YAML files of a directory, sorted.
pub(crate) fn yaml_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![];
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns objects of KLM's users, except those that the index of the inputs excludes from an apply.
pub(crate) fn klm_yaml(inputs: &Path) -> Result<Vec<Document>> {
    const NOT_APPLICABLE: [&str; 3] = [
        "kyma-v1beta1-sample.yaml",
        "kyma-klm-docs-status-fragment.yaml",
        "watcher-runtime-watcher-docs.yaml",
    ];
    let mut found = vec![];
    for file in yaml_files(&inputs.join("klm-yaml"))? {
        if !NOT_APPLICABLE.iter().any(|name| file.ends_with(name)) {
            found.extend(documents(&file)?);
        }
    }
    Ok(found)
}

/// Returns objects of this API's kinds from recordings of a real KLM on hub and target.
pub(crate) fn recorded(inputs: &Path) -> Result<Vec<Document>> {
    let mut found = vec![];
    for situation in fs::read_dir(inputs.join("klm-recorded"))? {
        let situation = situation?.path();
        for cluster in ["hub", "target"] {
            for kind in ["kymas", "moduletemplates", "modulereleasemetas", "watchers"] {
                let file = situation.join(cluster).join(format!("{kind}.yaml"));
                if file.is_file() {
                    // Without the CRD, the recording contains "none".
                    found.extend(documents(&file)?.into_iter().filter(|one| one.object.is_object()));
                }
            }
        }
    }
    Ok(found)
}
