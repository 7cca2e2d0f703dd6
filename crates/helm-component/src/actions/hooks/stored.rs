//! Serialized hooks of a removal in a Secret of the hub, with the release that they belong to. Pure.

use kyma_api::{Digests, release_store};
use kyma_helm::hooks::{self, Hook};
use kyma_object_set::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::LoadedContent;
use crate::packed::{self, PackError};
use crate::release_store::slot::{Data, Part};

/// Type of the Secret of earlier versions.
pub(crate) const FORMER_TYPE: &str = release_store::HOOKS_TYPE;
/// Key of the packed hooks in the Secret of earlier versions.
const HOOKS: &str = "hooks.json.gz";
/// Key of the hooks' digest in the Secret of earlier versions.
const SHA256: &str = "sha256";

/// Returns the name of the Secret in which earlier versions stored the hooks of the component with this owner hash.
pub(crate) fn former_secret_name(owner: &str) -> String {
    format!("{}{owner}", release_store::HOOKS_PREFIX)
}

/// Returns the hooks in a Secret of an earlier version; `None` if the Secret was emptied.
pub(crate) fn former_part(mut data: Data) -> Option<Part> {
    let (packed, sha256) = (data.remove(HOOKS)?.0, data.remove(SHA256)?.0);
    Some(Part { revision: String::new(), after: None, packed, sha256: String::from_utf8(sha256).ok()? })
}

/// The hooks as they are serialized.
#[derive(Serialize, Deserialize)]
struct SerializedHooks {
    release: String,
    source: String,
    values: String,
    hooks: Vec<Value>,
}

/// Packs the hooks of a release that run at its removal.
pub(crate) fn pack(loaded: &LoadedContent) -> Result<Vec<u8>, PackError> {
    let removal_hooks =
        loaded.prepared.hooks.iter().filter(|hook| hooks::are_of_removal(std::slice::from_ref(*hook)));
    let serialized = SerializedHooks {
        release: loaded.release.clone(),
        source: loaded.source.clone(),
        values: loaded.values.clone(),
        hooks: removal_hooks.map(|hook| Value::Object(hook.object.body().clone())).collect(),
    };
    let text = serde_json::to_vec(&serialized).map_err(|_| PackError::Unpackable)?;
    packed::pack(&text)
}

/// Reads packed hooks; `None` if the data is invalid or incomplete, or if the hooks belong neither to the last begun
/// release (`content` of the record of hooks) nor to the last completely applied one.
pub(crate) fn unpack(packed: &[u8], sha256: &[u8], content: &str, digests: &Digests) -> Option<Vec<Hook>> {
    let text = packed::unpack(packed, sha256)?;
    let serialized: SerializedHooks = serde_json::from_slice(&text).ok()?;
    if serialized.release != content && !is_of(digests, &serialized.source, &serialized.values) {
        return None;
    }
    serialized.hooks.into_iter().map(|value| Hook::of(Object::from_value(value).ok()?)).collect()
}

/// Reports whether the last completely applied content has this artifact and these values.
pub(crate) fn is_of(digests: &Digests, source: &str, values: &str) -> bool {
    (digests.source.as_deref(), digests.values.as_deref()) == (Some(source), Some(values))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use kyma_helm::hooks::HOOK;
    use serde_json::json;

    use super::*;
    use crate::actions::rollback::stored_release::tests::hook;
    use crate::objects::PreparedObjects;

    pub(crate) fn loaded() -> LoadedContent {
        let hooks = ["pre-delete", "pre-install", "post-delete"];
        let hooks = hooks.iter().map(|event| hook(event, &json!({HOOK: event}))).collect();
        LoadedContent {
            inputs: "i".to_owned(),
            kinds: None,
            source: "s".to_owned(),
            values: "v".to_owned(),
            values_from: vec![],
            release: "r".to_owned(),
            rendered: "o".to_owned(),
            prepared: Arc::new(PreparedObjects { objects: vec![], hooks, warnings: vec![] }),
            made_once: BTreeSet::new(),
            raw: false,
            chart: None,
            app_version: String::new(),
            uses_lookup: false,
            store_failure: None,
            tests_vary: false,
            revision: None,
            render: None,
        }
    }

    fn digests(source: &str, values: &str) -> Digests {
        Digests { source: Some(source.to_owned()), values: Some(values.to_owned()), ..Digests::default() }
    }

    #[test]
    fn only_hooks_of_the_installed_release_are_restored() {
        let packed = pack(&loaded()).unwrap();
        let sha256 = packed::digest(&packed);
        let read = |content: &str, digests: &Digests| {
            let hooks = unpack(&packed, sha256.as_bytes(), content, digests)?;
            Some(hooks.iter().map(|hook| hook.object.name().to_owned()).collect::<Vec<_>>())
        };
        let both = Some(vec!["pre-delete".to_owned(), "post-delete".to_owned()]);
        assert_eq!(read("r", &Digests::default()), both, "it was begun last");
        assert_eq!(read("failed before it was sent", &digests("s", "v")), both, "it is there");
        assert_eq!(read("other", &digests("s", "other")), None);
        assert_eq!(read("other", &Digests::default()), None);
        assert!(unpack(&packed, b"", "r", &Digests::default()).is_none(), "somebody changed it");
    }

    #[test]
    fn hooks_stored_by_an_earlier_version_are_read() {
        let packed = pack(&loaded()).unwrap();
        let value = |bytes: &[u8]| k8s_openapi::ByteString(bytes.to_vec());
        let data = Data::from([
            ("hooks.json.gz".to_owned(), value(&packed)),
            ("sha256".to_owned(), value(packed::digest(&packed).as_bytes())),
        ]);
        let part = former_part(data).unwrap();
        let read = unpack(&part.packed, part.sha256.as_bytes(), "r", &Digests::default());
        assert_eq!(read.map(|hooks| hooks.len()), Some(2));
        assert_eq!(former_part(Data::new()), None, "it was emptied");
    }
}
