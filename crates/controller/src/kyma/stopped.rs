//! Notes on a Kyma that this operator has stopped work on it, for its handover.

use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, Reason, annotations, labels};
use serde_json::json;

use crate::calls::objects::is_absent;
use crate::failure::Failure;
use crate::process::runtime::Runtime;

/// Notes on a Kyma that is being handed over that this operator no longer works on it. An object has one reconcile at
/// a time, so no earlier one is still running.
///
/// # Errors
/// The hub refuses the write; or the Kyma, which had no annotations, changed meanwhile.
pub async fn record_stop(runtime: &Runtime, kyma: &Kyma) -> Result<(), Failure> {
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
        // No event may follow: another client may have written only the status.
        Err(kube::Error::Api(status)) if status.code == 422 && kyma.annotations().is_empty() => {
            Err(Failure::new(
                Reason::ApplyConflict,
                "the Kyma changed while the operator recorded that it stopped",
            ))
        }
        // The handover continued or the Kyma is gone; its event requeues it.
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(()),
        Err(error) if is_absent(&api, &name, &error) => Ok(()),
        noted => noted
            .map(drop)
            .map_err(|error| Failure::hub("record on a Kyma that the operator stopped", &error)),
    }
}

/// Returns a patch that adds the note if the label is unchanged. Where it adds the map of annotations, it requires that
/// nothing changed since `kyma` was read: it would replace annotations that other clients added meanwhile.
fn patch(kyma: &Kyma, note: &str) -> json_patch::Patch {
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let label = escaped(labels::HAND_OVER);
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": kyma.uid()}),
        json!({"op": "test", "path": format!("/metadata/labels/{label}"), "value": kyma.labels().get(labels::HAND_OVER)}),
    ];
    if kyma.annotations().is_empty() {
        operations.extend([
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": kyma.resource_version()}),
            json!({"op": "add", "path": "/metadata/annotations", "value": {note: "true"}}),
        ]);
    } else {
        let path = format!("/metadata/annotations/{}", escaped(note));
        operations.push(json!({"op": "add", "path": path, "value": "true"}));
    }
    // The operations above always form a valid patch.
    serde_json::from_value(operations.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_note_replaces_no_annotation_that_was_added_meanwhile() {
        let kyma = |annotations: Value| -> Kyma {
            let metadata = json!({
                "name": "k", "uid": "u", "resourceVersion": "1", "annotations": annotations,
                "labels": {labels::HAND_OVER: labels::HAND_OVER_PENDING},
            });
            serde_json::from_value(json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": metadata, "spec": {"channel": "regular"},
            }))
            .unwrap()
        };
        let note = annotations::stopped("kyma-operator");
        for (read, passes) in [(json!({}), false), (json!({"owner": "1"}), true)] {
            let read = kyma(read);
            let patch = patch(&read, &note);
            let mut live = json!(read);
            json_patch::patch(&mut live, &patch).unwrap();
            assert_eq!(live["metadata"]["annotations"][&note], "true");

            let mut live = json!(read);
            live["metadata"]["annotations"]["meanwhile"] = "1".into();
            live["metadata"]["resourceVersion"] = "2".into();
            assert_eq!(json_patch::patch(&mut live, &patch).is_ok(), passes);
            assert_eq!(live["metadata"]["annotations"]["meanwhile"], "1");
        }
    }
}
