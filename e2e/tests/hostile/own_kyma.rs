//! Changes of a hostile target to its own Kyma: it may select modules and their values, and nothing else.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::landscape::{HUB_NAMESPACE, TARGET_NAMESPACE};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kyma_api::{HelmComponent, Kyma, annotations, labels, names};
use serde_json::{Value, json};
use testbed::{Answer, RequestMatcher, until_or_why};

use crate::faults::PLANTED;
use crate::world::{ANCHOR, CALM, HOSTILE, World};

const KYMAS: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system/kymas";
const DEADLINE: Duration = Duration::from_mins(2);

pub(crate) async fn scenario(world: &World) -> Result<()> {
    let view = OwnerView { world, resource: ApiResource::erase::<Kyma>(&()) };
    lying_versions(&view).await.context("lying resourceVersions")?;
    far_too_many(&view).await.context("50,000 modules")?;
    fields_of_others(&view).await.context("fields that it may not set")?;
    tampered_crd(&view).await.context("a tampered CRD")
}

/// The hostile target from its owner's view.
struct OwnerView<'a> {
    world: &'a World,
    resource: ApiResource,
}

impl OwnerView<'_> {
    fn kymas(&self) -> Result<Api<DynamicObject>> {
        Ok(Api::namespaced_with(self.world.behind.client()?, TARGET_NAMESPACE, &self.resource))
    }

    async fn edit(&self, change: Value) -> Result<()> {
        self.kymas()?.patch("default", &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    async fn stored(&self) -> Result<Value> {
        Ok(serde_json::to_value(self.kymas()?.get("default").await?)?)
    }

    /// Returns the component of the module that is installed there.
    async fn component(&self) -> Result<Value> {
        let components: Api<HelmComponent> = Api::namespaced(self.world.hub.clone(), HUB_NAMESPACE);
        Ok(serde_json::to_value(components.get(&names::component_name(HOSTILE, ANCHOR)).await?)?)
    }

    /// Waits until the component has the values from the target's Kyma.
    async fn reaches(&self, values: &Value) -> Result<()> {
        until_or_why(&format!("the component has {values}"), DEADLINE, || async {
            let found = self.component().await?["spec"]["userValues"].clone();
            Ok(if found == *values { Ok(()) } else { Err(found.to_string()) })
        })
        .await
    }
}

/// Sends resourceVersions that are no numbers, too large, or decreasing. Once the target is honest again, its edits
/// must arrive.
async fn lying_versions(view: &OwnerView<'_>) -> Result<()> {
    let hostile = &view.world.hostile;
    let lie = |number: u32, version: &str, stored: &Value| {
        let mut lie = stored.clone();
        lie["metadata"]["resourceVersion"] = json!(version);
        lie["spec"]["modules"] = json!([{"name": ANCHOR, "values": {"lie": number}}]);
        lie
    };
    let stored = view.stored().await?;
    let highest = u64::MAX.to_string();
    let list = json!({
        "kind": "KymaList", "apiVersion": "operator.kyma-project.io/v1beta2",
        "metadata": {"resourceVersion": PLANTED}, "items": [lie(0, &highest, &stored)],
    });
    let versions = ["7", PLANTED, "-1", &highest, "0"];
    let event = |(number, version): (u32, &&str)| json!({"type": "MODIFIED", "object": lie(number, version, &stored)});
    let mut events: Vec<Value> = (1..).zip(&versions).map(event).collect();
    events.push(json!({"type": "BOOKMARK", "object": {"kind": "Kyma", "apiVersion": "operator.kyma-project.io/v1beta2", "metadata": {"resourceVersion": highest}}}));
    // Makes the operator list again, and so receive false versions again.
    events.push(json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired", "message": PLANTED, "status": "Failure", "metadata": {}}}));
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    hostile.always(RequestMatcher::watch(KYMAS), Answer::raw(lines));
    hostile.always(RequestMatcher::path(KYMAS).query("limit="), Answer::json(&list));
    view.world.grant(HOSTILE, &view.world.access, 1001).await?;
    view.reaches(&json!({"lie": 0})).await?;
    hostile.clear();
    for number in 0..2 {
        let values = json!({"truth": number});
        view.edit(json!({"spec": {"modules": [{"name": ANCHOR, "values": values}]}})).await?;
        view.reaches(&values).await?;
    }
    view.world.is_ready(HOSTILE).await
}

async fn far_too_many(view: &OwnerView<'_>) -> Result<()> {
    let before = view.component().await?["metadata"]["uid"].clone();
    let mut many = view.stored().await?;
    many["spec"]["modules"] =
        (0..50_000).map(|number| json!({"name": format!("{PLANTED}-{number}")})).collect();
    let list = json!({
        "kind": "KymaList", "apiVersion": "operator.kyma-project.io/v1beta2",
        "metadata": {"resourceVersion": many["metadata"]["resourceVersion"]}, "items": [many],
    });
    view.world.hostile.always(RequestMatcher::path(KYMAS).query("limit="), Answer::json(&list));
    view.world.grant(HOSTILE, &view.world.access, 1002).await?;
    view.world.says(HOSTILE, "Ready", &["TooManyModules"]).await?;
    ensure!(view.component().await?["metadata"]["uid"] == before, "what is installed must stay");
    view.world.hostile.clear();
    view.world.grant(HOSTILE, &view.world.access, 1003).await?;
    view.world.is_ready(HOSTILE).await
}

/// Name of a controller that the user sets for the module.
const CONTROLLER: &str = "of-the-user";

/// Checks that the target cannot change what only the hub decides: access, visibility of modules, and how the Kyma
/// is managed.
async fn fields_of_others(view: &OwnerView<'_>) -> Result<()> {
    let world = view.world;
    world.publish_as("vault", "1.0.0", &json!({labels::INTERNAL: "true"})).await?;
    let hub_before = serde_json::to_value(world.kymas().get(HOSTILE).await?)?;
    view.edit(json!({
        "metadata": {
            "labels": {labels::INTERNAL: "true", labels::BETA: "true", labels::SKIP_RECONCILIATION: "true", labels::KYMA_NAME: CALM},
            "annotations": {annotations::OWNED_BY: format!("{HUB_NAMESPACE}/{CALM}")},
        },
        "spec": {
            "kubeconfigSecretRef": {"name": format!("kubeconfig-{CALM}"), "key": "config"},
            "skipMaintenanceWindows": true,
            "modules": [
                {"name": ANCHOR, "controller": CONTROLLER, "remoteModuleTemplateRef": PLANTED, "values": {"mine": true}},
                {"name": "vault"},
            ],
        },
    }))
    .await?;
    let forged = json!({"status": {"state": "Ready", "activeChannel": PLANTED, "modules": [{"name": ANCHOR, "state": "Ready", "message": PLANTED}]}});
    view.kymas()?.patch_status("default", &PatchParams::default(), &Patch::Merge(forged)).await?;
    view.reaches(&json!({"mine": true})).await?;
    world.says(HOSTILE, "Ready", &["NotVisible"]).await?;
    let component = view.component().await?;
    let way = &component["spec"]["target"]["kubeconfigSecretRef"]["name"];
    ensure!(*way == format!("kubeconfig-{HOSTILE}"), "its component leads to {way}");
    let controller = &component["metadata"]["labels"][labels::CONTROLLER_NAME];
    ensure!(*controller == CONTROLLER, "the component is for controller {controller}");
    ensure!(!component.to_string().contains(PLANTED), "its component holds what it may not set: {component}");
    let hub_after = serde_json::to_value(world.kymas().get(HOSTILE).await?)?;
    let unmoved = [
        "/spec",
        "/metadata/labels",
        "/metadata/annotations",
        "/status/target/clusterUid",
        "/status/target/epoch",
    ];
    for field in unmoved {
        let (before, after) = (hub_before.pointer(field), hub_after.pointer(field));
        ensure!(before == after, "{field} of the hub's Kyma: {before:?} became {after:?}");
    }
    until_or_why("the forged status is gone, and the mark names this Kyma", DEADLINE, || async {
        let stored = view.stored().await?;
        let owner = &stored["metadata"]["annotations"][annotations::OWNED_BY];
        let is_marked = *owner == format!("{HUB_NAMESPACE}/{HOSTILE}");
        let is_clean = !stored["status"].to_string().contains(PLANTED);
        Ok(if is_marked && is_clean { Ok(()) } else { Err(format!("{owner} {}", stored["status"])) })
    })
    .await?;
    view.edit(json!({
        "metadata": {"labels": {labels::INTERNAL: null, labels::BETA: null, labels::SKIP_RECONCILIATION: null, labels::KYMA_NAME: null}},
        "spec": {"kubeconfigSecretRef": null, "skipMaintenanceWindows": null, "modules": [{"name": ANCHOR}]},
    }))
    .await?;
    world.is_ready(HOSTILE).await
}

/// Replaces the schema of Kymas on the target by one that admits everything. The operator must refuse invalid
/// values all the same, and restore the schema.
async fn tampered_crd(view: &OwnerView<'_>) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(view.world.behind.client()?);
    let name = "kymas.operator.kyma-project.io";
    let anything =
        json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let mut crd = crds.get(name).await?;
    for version in &mut crd.spec.versions {
        version.schema = Some(serde_json::from_value(anything.clone())?);
    }
    crds.replace(name, &PostParams::default(), &crd).await?;
    let before = view.component().await?["metadata"]["uid"].clone();
    until_or_why("the schema admits everything", DEADLINE, || async {
        let planted = json!({"spec": {"channel": [PLANTED], "modules": PLANTED}});
        Ok(view.edit(planted).await.map_err(|error| format!("{error:#}")))
    })
    .await?;
    view.world.says(HOSTILE, "Ready", &["SelectionInvalid"]).await?;
    let wild = json!([{"name": ANCHOR, "managed": PLANTED}, {"name": "vault", "values": [PLANTED]}]);
    view.edit(json!({"spec": {"channel": "regular", "modules": wild}})).await?;
    view.world.says(HOSTILE, "Ready", &["SelectionInvalid"]).await?;
    ensure!(view.component().await?["metadata"]["uid"] == before, "what is installed must stay");
    view.edit(json!({"spec": {"modules": [{"name": ANCHOR}]}})).await?;
    view.world.grant(HOSTILE, &view.world.access, 1004).await?;
    view.world.is_ready(HOSTILE).await?;
    // Values that are stored already are admitted by any schema, so each try sends a new one.
    let tries = AtomicU32::new(0);
    until_or_why("the schema is restored", DEADLINE, || async {
        let another = format!("{PLANTED}-{}", tries.fetch_add(1, Ordering::Relaxed));
        let refused = view.edit(json!({"spec": {"channel": [another]}})).await.is_err();
        Ok(if refused { Ok(()) } else { Err("it admits everything".to_owned()) })
    })
    .await?;
    // Tries that were admitted are still stored, as if the user had written them.
    view.edit(json!({"spec": {"channel": "regular"}})).await?;
    view.world.is_ready(HOSTILE).await
}
