//! Serialized release in a Secret of the hub: its rendered objects and hooks. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use kyma_api::{InstalledValues, release_store};
use kyma_helm::hooks::Hook;
use kyma_object_set::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::content::LoadedContent;
use crate::objects::PreparedObjects;
use crate::packed::{self, PackError};
use crate::release_store::slot::{Data, Part};

/// Type of the Secret of earlier versions.
pub(crate) const FORMER_TYPE: &str = release_store::RELEASE_TYPE;
/// Key of the packed release in the Secret of earlier versions.
const RELEASE: &str = "release.json.gz";
/// Key of the release's digest in the Secret of earlier versions.
const SHA256: &str = "sha256";

/// Reason for which a stored release cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum StoredReleaseError {
    #[error("Secret {secret} no longer exists; the next Ready release is stored again")]
    Gone { secret: String },
    #[error("Secret {secret} does not contain the stored release; the next Ready release is stored again")]
    Altered { secret: String },
}

/// Returns the name of the Secret in which earlier versions stored the release of the component with this owner hash.
pub(crate) fn former_secret_name(owner: &str) -> String {
    format!("{}{owner}", release_store::RELEASE_PREFIX)
}

/// Returns the release in a Secret of an earlier version; `None` if the Secret was emptied.
pub(crate) fn former_part(mut data: Data) -> Option<Part> {
    let (packed, sha256) = (data.remove(RELEASE)?.0, data.remove(SHA256)?.0);
    Some(Part { revision: String::new(), after: None, packed, sha256: String::from_utf8(sha256).ok()? })
}

/// A release as it is serialized.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SerializedRelease {
    inputs: String,
    kinds: Option<String>,
    source: String,
    values: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values_from: Vec<InstalledValues>,
    release: String,
    rendered: String,
    raw: bool,
    chart: Option<(String, String)>,
    app_version: String,
    uses_lookup: bool,
    objects: Vec<Value>,
    hooks: Vec<Value>,
    warnings: Vec<String>,
}

/// Packs a release whose objects have this digest on the target. Equal releases give equal bytes.
pub(crate) fn pack(loaded: &LoadedContent, rendered: &str) -> Result<Vec<u8>, PackError> {
    let LoadedContent {
        inputs,
        kinds,
        source,
        values: digest,
        values_from,
        release,
        prepared,
        raw,
        chart,
        app_version,
        uses_lookup,
        ..
    } = loaded;
    let serialized = SerializedRelease {
        inputs: inputs.clone(),
        kinds: kinds.clone(),
        source: source.clone(),
        values: digest.clone(),
        values_from: values_from.clone(),
        release: release.clone(),
        rendered: rendered.to_owned(),
        raw: *raw,
        chart: chart.clone(),
        app_version: app_version.clone(),
        uses_lookup: *uses_lookup,
        objects: bodies(prepared.objects.iter()),
        hooks: bodies(prepared.hook_objects()),
        warnings: prepared.warnings.clone(),
    };
    let text = serde_json::to_vec(&serialized).map_err(|_| PackError::Unpackable)?;
    packed::pack(&text)
}

fn bodies<'a>(objects: impl Iterator<Item = &'a Object>) -> Vec<Value> {
    objects.map(|object| Value::Object(object.body().clone())).collect()
}

/// Reads a packed release; `None` if the bytes are not a complete one.
pub(crate) fn unpack(packed: &[u8], sha256: &[u8]) -> Option<LoadedContent> {
    let text = packed::unpack(packed, sha256)?;
    let serialized: SerializedRelease = serde_json::from_slice(&text).ok()?;
    let object = |value: Value| Object::from_value(value).ok();
    let objects: Vec<Object> = serialized.objects.into_iter().map(object).collect::<Option<_>>()?;
    let hooks = serialized.hooks.into_iter().map(|value| Hook::of(object(value)?)).collect::<Option<_>>()?;
    Some(LoadedContent {
        inputs: serialized.inputs,
        kinds: serialized.kinds,
        source: serialized.source,
        values: serialized.values,
        values_from: serialized.values_from,
        release: serialized.release,
        // The status records the digest of a stored release's render.
        render: None,
        rendered: serialized.rendered,
        prepared: Arc::new(PreparedObjects { objects, hooks, warnings: serialized.warnings }),
        // A rollback does not change existing CRDs.
        made_once: BTreeSet::new(),
        raw: serialized.raw,
        chart: serialized.chart,
        app_version: serialized.app_version,
        uses_lookup: serialized.uses_lookup,
        store_failure: None,
        tests_vary: false,
        revision: None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use kyma_helm::hooks::HOOK;
    use serde_json::json;

    use super::*;
    use crate::packed::digest;

    pub(crate) fn object(kind: &str, name: &str, annotations: &Value) -> Object {
        let api_version = if kind == "Job" { "batch/v1" } else { "v1" };
        let metadata = json!({"name": name, "namespace": "n", "annotations": annotations});
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        Object::from_value(body).unwrap()
    }

    pub(crate) fn hook(name: &str, annotations: &Value) -> Hook {
        Hook::of(object("Job", name, annotations)).unwrap()
    }

    fn loaded(objects: Vec<Object>) -> LoadedContent {
        let hooks = vec![hook("j", &json!({HOOK: "pre-rollback", "helm.sh/hook-weight": "3"}))];
        LoadedContent {
            inputs: "i".to_owned(),
            kinds: Some("k".to_owned()),
            source: "sha256:s".to_owned(),
            values: "sha256:v".to_owned(),
            values_from: vec![InstalledValues { name: "optional".to_owned(), ..InstalledValues::default() }],
            release: "sha256:r".to_owned(),
            render: Some("x".to_owned()),
            rendered: "sha256:o".to_owned(),
            prepared: Arc::new(PreparedObjects { objects, hooks, warnings: vec!["w".to_owned()] }),
            made_once: BTreeSet::new(),
            raw: false,
            chart: Some(("c".to_owned(), "1.0.0".to_owned())),
            app_version: "7".to_owned(),
            uses_lookup: true,
            store_failure: None,
            tests_vary: false,
            revision: None,
        }
    }

    #[test]
    fn a_stored_release_is_read_unchanged() {
        let before = loaded(vec![object("Secret", "s", &json!({"a": "b"})), object("Job", "j", &json!({}))]);
        let packed = pack(&before, "sha256:there").unwrap();
        assert_eq!(pack(&before, "sha256:there").unwrap(), packed, "the same bytes");
        let after = unpack(&packed, digest(&packed).as_bytes()).unwrap();
        assert_eq!(after.prepared.objects, before.prepared.objects);
        assert_eq!(after.prepared.hooks, before.prepared.hooks);
        assert_eq!(after.prepared.warnings, before.prepared.warnings);
        assert_eq!((&*after.rendered, &after.kinds), ("sha256:there", &before.kinds));
        assert_eq!((after.inputs, after.source), (before.inputs, before.source));
        assert_eq!((after.values, after.release), (before.values, before.release));
        assert_eq!(after.values_from, before.values_from);
        assert_eq!((after.raw, after.uses_lookup), (false, true));
    }

    #[test]
    fn a_changed_release_is_not_read() {
        let packed = pack(&loaded(vec![]), "").unwrap();
        let sha256 = digest(&packed);
        let cut = &packed[..packed.len() - 1];
        assert!(unpack(cut, sha256.as_bytes()).is_none());
        assert!(unpack(cut, digest(cut).as_bytes()).is_none());
        assert!(unpack(&packed, b"").is_none());
    }

    #[test]
    fn a_release_larger_than_a_secret_is_refused_with_its_size() {
        // Digests do not shrink.
        let noise: String = (0..32_000_u32).map(|number| digest(&number.to_le_bytes())).collect();
        let mut large = object("Secret", "s", &json!({}));
        large.body_mut().insert("data".to_owned(), json!({ "noise": noise }));
        let error = pack(&loaded(vec![large]), "").unwrap_err();
        let PackError::TooLarge { size } = error else { panic!("{error}") };
        assert!(size > packed::MAX_PACKED_BYTES && !error.to_string().contains(&noise[..8]));
    }

    #[test]
    fn a_release_stored_by_an_earlier_version_is_read() {
        let packed = pack(&loaded(vec![object("Job", "j", &json!({}))]), "sha256:there").unwrap();
        let sha256 = digest(&packed);
        let value = |bytes: &[u8]| k8s_openapi::ByteString(bytes.to_vec());
        let mut data = Data::from([("release.json.gz".to_owned(), value(&packed))]);
        assert_eq!(former_part(data.clone()), None);
        data.insert("sha256".to_owned(), value(sha256.as_bytes()));
        let part = former_part(data).unwrap();
        assert!(unpack(&part.packed, part.sha256.as_bytes()).is_some());
        assert_eq!(former_part(Data::new()), None, "it was emptied");
    }
}
