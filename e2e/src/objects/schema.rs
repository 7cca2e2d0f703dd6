//! All kinds with their schemas.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::Value;

/// One kind, in the version that is stored.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The resource of its objects.
    pub resource: ApiResource,
    /// Schema of `spec`.
    pub spec: Value,
    /// The condition that an operator sets on each object, if one does.
    pub condition: Option<&'static str>,
}

/// Returns every kind that a CRD of the repository defines.
///
/// # Errors
/// A file in `crds` is no CRD.
pub fn kinds() -> Result<Vec<Kind>> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&place).with_context(|| place.display().to_string())? {
        let path = entry?.path();
        let read = std::fs::read_to_string(&path).map_err(anyhow::Error::from);
        let crd = read.and_then(|text| Ok(serde_saphyr::from_str::<Value>(&text)?));
        found.push(crd.and_then(|crd| kind(&crd)).with_context(|| path.display().to_string())?);
    }
    found.sort_by(|one, other| one.resource.kind.cmp(&other.resource.kind));
    ensure!(!found.is_empty(), "{} is empty", place.display());
    Ok(found)
}

fn kind(crd: &Value) -> Result<Kind> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a text is missing");
    let versions = spec["versions"].as_array().context("it has no versions")?;
    let stored =
        versions.iter().find(|version| version["storage"] == true).context("no version is stored")?;
    let kind = text(&spec["names"]["kind"])?;
    let gvk = GroupVersionKind::gvk(&text(&spec["group"])?, &text(&stored["name"])?, &kind);
    let schema = &stored["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let has_conditions = matches!(kind.as_str(), "Kyma" | "HelmComponent" | "Pause");
    Ok(Kind {
        resource: ApiResource::from_gvk_with_plural(&gvk, &text(&spec["names"]["plural"])?),
        spec: schema.clone(),
        condition: has_conditions.then_some("Ready"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_found_with_their_schemas() {
        let kinds = kinds().unwrap();
        let names: Vec<&str> = kinds.iter().map(|kind| kind.resource.kind.as_str()).collect();
        for name in [
            "HelmComponent",
            "Kyma",
            "ModuleConfig",
            "ModuleReleaseMeta",
            "ModuleTemplate",
            "Pause",
            "Watcher",
        ] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(kinds.iter().all(|kind| kind.spec["properties"].is_object()));
    }
}
