//! Notes on a Kyma that this operator has stopped work on it, for its handover.

use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, annotations, labels};
use serde_json::json;

use crate::{Failure, Runtime, is_absent};

/// Notes on a Kyma that is being handed over that this operator no longer works on it. An object has one reconcile at
/// a time, so no earlier one is still running.
///
/// # Errors
/// The hub refuses the write.
pub async fn note_stop(runtime: &Runtime, kyma: &Kyma) -> Result<(), Failure> {
    let note = annotations::stopped(runtime.operator.name);
    if kyma.annotations().contains_key(&note) {
        return Ok(());
    }
    let api: Api<PartialObjectMeta<Kyma>> =
        Api::namespaced(runtime.hub.clone(), &kyma.namespace().unwrap_or_default());
    let params =
        PatchParams { field_manager: Some(runtime.operator.name.to_owned()), ..PatchParams::default() };
    let name = kyma.name_any();
    let noted = api.patch_metadata(&name, &params, &Patch::Json::<()>(patch(kyma, &note))).await;
    match noted {
        // The handover continued or the Kyma is gone; its event requeues it.
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(()),
        Err(error) if is_absent(&api, &name, &error) => Ok(()),
        noted => noted.map(drop).map_err(|error| Failure::hub("note on a Kyma that we stopped", &error)),
    }
}

/// Returns a patch that adds the note if the label is unchanged.
fn patch(kyma: &Kyma, note: &str) -> json_patch::Patch {
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let label = escaped(labels::HAND_OVER);
    let add = if kyma.annotations().is_empty() {
        json!({"op": "add", "path": "/metadata/annotations", "value": {note: "true"}})
    } else {
        json!({"op": "add", "path": format!("/metadata/annotations/{}", escaped(note)), "value": "true"})
    };
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": kyma.uid()},
        {"op": "test", "path": format!("/metadata/labels/{label}"), "value": kyma.labels().get(labels::HAND_OVER)},
        add,
    ]);
    // The operations above always form a valid patch.
    serde_json::from_value(operations).unwrap_or_default()
}
