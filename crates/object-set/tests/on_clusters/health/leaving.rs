//! Objects that are being deleted.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kyma_health::HealthStatus::{Current, Failed, Terminating};
use serde_json::json;

use super::workloads::workload;
use super::{Bare, assess, conditions};

#[tokio::test]
async fn a_namespace_on_its_way_out_says_what_is_left_in_it() -> Result<()> {
    let bare = Bare::start().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "row-"}});
    let name = bare.create(&namespace).await?.name_any();
    let namespaces = bare.api(&namespace).await?;
    let live = |object: DynamicObject| serde_json::to_value(object).map(|object| assess(&object));
    assert_eq!(live(namespaces.get(&name).await?)?.status, Current);
    namespaces.delete(&name, &DeleteParams::default()).await?;
    let status = json!({"status": {"conditions": conditions(&[("NamespaceContentRemaining", "True", "SomeResourcesRemain")])}});
    namespaces.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    let going = live(namespaces.get(&name).await?)?;
    assert_eq!(going.status, Terminating);
    assert_eq!(going.message, "it is being deleted; NamespaceContentRemaining is True: SomeResourcesRemain");
    Ok(())
}

#[tokio::test]
async fn an_object_that_waits_for_a_finalizer_is_terminating() -> Result<()> {
    let bare = Bare::start().await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let late = json!({"observedGeneration": 1, "conditions": conditions(&[("Progressing", "False", "ProgressDeadlineExceeded")])});
    for (mut object, status, before) in
        [(map, json!(null), Current), (workload("Deployment", &json!({})), late, Failed)]
    {
        object["metadata"] = json!({"generateName": "row-", "finalizers": ["example.org/held"]});
        let live = bare.with_status(&object, &status).await?;
        assert_eq!(assess(&live).status, before);
        let name = serde_json::from_value::<DynamicObject>(live)?.name_any();
        let api = bare.api(&object).await?;
        api.delete(&name, &DeleteParams::default()).await?;
        let going = assess(&serde_json::to_value(api.get(&name).await?)?);
        assert_eq!(going.status, Terminating);
        assert_eq!(going.message, "it is being deleted, held by example.org/held");
        let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch(&name, &PatchParams::default(), &released).await?;
    }
    Ok(())
}
