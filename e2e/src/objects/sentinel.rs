//! Regular objects among generated ones, which show whether operators still work.

use std::time::{Duration, Instant};

use anyhow::Result;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma};
use serde_json::{Value, json};
use testbed::until_or_why;

use crate::landscape::HUB_NAMESPACE;

/// Deadline for operators to report on them.
const DEADLINE: Duration = Duration::from_mins(1);

/// Creates a Kyma and a component without access. Returns the time until all operators reported on them.
pub(super) async fn measure_reaction(hub: &Client, number: usize) -> Result<Duration> {
    let name = format!("sentinel-{number}");
    let kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": name},
        "spec": {"channel": "regular"},
    });
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "metadata": {"name": name},
        "spec": {
            "target": {"kubeconfigSecretRef": {"name": "nobody-has-it", "key": "config"}},
            "release": {"name": "sentinel", "namespace": "sentinel"},
            "source": {"manifests": {"url": "http://127.0.0.1:1/nothing.yaml"}},
        },
    });
    let kymas: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let components: Api<HelmComponent> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let start = Instant::now();
    kymas.create(&PostParams::default(), &serde_json::from_value(kyma)?).await?;
    components.create(&PostParams::default(), &serde_json::from_value(component)?).await?;
    until_or_why("operators hear of new objects", DEADLINE, || async {
        let kyma = serde_json::to_value(kymas.get(&name).await?)?;
        let component = serde_json::to_value(components.get(&name).await?)?;
        let all = [(&kyma, "Ready"), (&kyma, "ModuleCatalog"), (&component, "Ready")];
        let pending: Vec<&str> = all
            .into_iter()
            .filter(|(object, type_)| !awaits(object, type_))
            .map(|(_, type_)| type_)
            .collect();
        Ok(if pending.is_empty() {
            Ok(start.elapsed())
        } else {
            Err(format!("{pending:?} of {} {}", kyma["status"], component["status"]))
        })
    })
    .await
}

fn awaits(object: &Value, type_: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == type_ && condition["reason"] == "AwaitingAccess")
}

/// Deletes objects and their finalizers.
pub(super) async fn sweep(api: &Api<DynamicObject>, objects: &[DynamicObject]) -> Result<()> {
    for object in objects {
        let name = object.name_any();
        gone_is_fine(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
        if !object.finalizers().is_empty() {
            let none = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
            gone_is_fine(
                api.patch_metadata(&name, &kube::api::PatchParams::default(), &none).await.map(drop),
            )?;
        }
    }
    Ok(())
}

fn gone_is_fine(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}
