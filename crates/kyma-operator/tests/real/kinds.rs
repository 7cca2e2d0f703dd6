//! Components of a kind whose CRD a module brings.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kyma_api::component::DeletionReason;
use kyma_api::{annotations, labels};
use serde_json::json;
use testbed::until;

use crate::landscape::{Landscape, SOON, dynamic, modules};

const CRD: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.widgets.example.com}, \
  spec: {group: widgets.example.com, scope: Namespaced, names: {kind: Widget, plural: widgets, singular: widget}, \
  versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: \
  {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}]}}";

fn release(module: &str, version: &str) -> String {
    format!(
        "{{apiVersion: operator.kyma-project.io/v1beta2, kind: ModuleReleaseMeta, metadata: {{name: {module}}}, \
         spec: {{moduleName: {module}, channels: [{{channel: regular, version: {version}}}]}}}}"
    )
}

fn template(module: &str, component: &str) -> String {
    format!(
        "{{apiVersion: operator.kyma-project.io/v1beta2, kind: ModuleTemplate, metadata: {{name: {module}-1.0.0}}, \
         spec: {{moduleName: {module}, version: 1.0.0, descriptor: {{}}, component: {component}}}}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn module_installs_its_component_kind_if_its_group_is_allowed() -> Result<()> {
    let landscape =
        Landscape::start(&["--component-groups=widgets.example.com", "--mode=single-cluster"]).await?;
    // The chart of the component's reconciler contains a role that aggregates into kyma-operator's.
    landscape.allow("widgets.example.com", "widgets").await?;
    let whole = format!(
        "{{apiVersion: widgets.example.com/v1, kind: Widget, spec: {{colour: red, target: mine}}, crd: {CRD}}}"
    );
    landscape.apply(&template("own", &whole)).await?;
    landscape.apply(&release("own", "1.0.0")).await?;
    landscape.apply(&template("foreign", "{apiVersion: gadgets.example.com/v1, kind: Gadget}")).await?;
    landscape.apply(&release("foreign", "1.0.0")).await?;
    landscape.apply(&template("missing", "{apiVersion: widgets.example.com/v1, kind: Missing}")).await?;
    landscape.apply(&release("missing", "1.0.0")).await?;
    landscape.kyma("local", "[{name: own}, {name: foreign}, {name: missing}]").await?;

    let api: Api<DynamicObject> = dynamic(
        landscape.hub.client()?,
        &json!({ "apiVersion": "widgets.example.com/v1", "kind": "Widget" }),
        &landscape.namespace,
    )?;
    let one = until("the widget is created", SOON, || async {
        Ok(api.list(&ListParams::default()).await.ok().and_then(|list| list.items.into_iter().next()))
    })
    .await?;
    assert_eq!(one.data["spec"]["colour"], "red");
    assert_eq!(
        one.data["spec"].get("target"),
        None,
        "the target is kyma-operator's to say, and here it is the hub"
    );
    assert_eq!(one.labels().get(labels::MODULE_NAME).map(String::as_str), Some("own"));
    let status = json!({ "status": { "state": "Ready", "observedGeneration": 1, "version": "1.0.0" } });
    api.patch_status(&one.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    let kyma = landscape
        .until_kyma("each module says what it is", "local", |kyma| {
            modules(kyma)
                == ["own Ready 1.0.0 regular", "foreign Error 1.0.0 regular", "missing Error 1.0.0 regular"]
        })
        .await?;
    let messages: Vec<String> =
        kyma.status.unwrap().modules.unwrap().into_iter().filter_map(|module| module.message).collect();
    assert!(messages[0].contains("--component-groups"), "{messages:?}");
    assert!(messages[1].contains("no CRD"), "{messages:?}");

    // Deleting the Kyma requests the removal; deleting a component by hand does not.
    landscape.kymas()?.delete("local", &DeleteParams::default()).await?;
    let ordered = until("the removal is requested", SOON, || async {
        Ok(api.get_opt(&one.name_any()).await?.filter(|widget| widget.metadata.deletion_timestamp.is_some()))
    })
    .await?;
    assert_eq!(ordered.data["spec"]["deletionPolicy"], "Delete");
    let reason = ordered.annotations().get(annotations::DELETION_REASON).cloned();
    assert_eq!(reason.as_deref(), Some(DeletionReason::KymaDeleted.as_str()));
    api.patch(
        &one.name_any(),
        &PatchParams::default(),
        &Patch::Merge(json!({ "metadata": { "finalizers": null } })),
    )
    .await?;
    landscape.until_kyma_is_gone("local").await
}

/// The index omits a CRD whose names another CRD has.
#[tokio::test(flavor = "multi_thread")]
async fn a_crd_of_others_that_is_not_established_is_left_alone() -> Result<()> {
    let landscape =
        Landscape::start(&["--component-groups=clash.example.com", "--mode=single-cluster"]).await?;
    landscape.allow("clash.example.com", "widgets").await?;
    let widgets = CRD
        .replace("widgets.widgets.example.com", "widgets.clash.example.com")
        .replace("widgets.example.com", "clash.example.com");
    // Its singular is taken, so the other CRD is never established.
    let gadgets = widgets
        .replace("widgets.clash.example.com", "gadgets.clash.example.com")
        .replace("plural: widgets", "plural: gadgets")
        .replace("kind: Widget,", "kind: Gadget,");
    landscape.apply(&gadgets).await?;
    until("the first CRD is established", SOON, || async {
        let crd: Api<CustomResourceDefinition> = Api::all(landscape.hub.client()?);
        let crd = crd.get("gadgets.clash.example.com").await?;
        let mut conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
        Ok(conditions.any(|one| one.type_ == "Established" && one.status == "True").then_some(()))
    })
    .await?;
    landscape.apply(&widgets).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(landscape.hub.client()?);
    let before = until("the names of the second CRD are refused", SOON, || async {
        let crd = crds.get("widgets.clash.example.com").await?;
        let mut conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let refused = conditions.any(|one| one.type_ == "NamesAccepted" && one.status == "False");
        Ok(refused.then_some(crd))
    })
    .await?;
    let whole = format!("{{apiVersion: clash.example.com/v1, kind: Widget, spec: {{}}, crd: {widgets}}}");
    landscape.apply(&template("clash", &whole)).await?;
    landscape.apply(&release("clash", "1.0.0")).await?;
    landscape.kyma("clashing", "[{name: clash}]").await?;
    landscape
        .until_kyma("the conflict is reported", "clashing", |kyma| {
            let mut modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
            modules.any(|module| module.reason.as_deref() == Some("CrdConflict"))
        })
        .await?;
    let after = crds.get("widgets.clash.example.com").await?;
    assert_eq!((after.spec, after.metadata.labels), (before.spec, before.metadata.labels));
    landscape.kymas()?.delete("clashing", &DeleteParams::default()).await?;
    landscape.until_kyma_is_gone("clashing").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_says_whether_it_holds() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let pauses: Api<kyma_api::Pause> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    let mut object = json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Pause", "metadata": { "name": "all" },
        "spec": {},
    });
    landscape.apply(&object.to_string()).await?;
    until_pause_reports(&pauses, ("True", "Paused")).await?;
    // No event reports that this time has passed.
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3);
    object["spec"] = json!({ "until": soon.to_string() });
    landscape.apply(&object.to_string()).await?;
    until_pause_reports(&pauses, ("False", "Succeeded")).await
}

/// Waits until the Pause `all` has a condition with this status and reason.
async fn until_pause_reports(pauses: &Api<kyma_api::Pause>, expected: (&str, &str)) -> Result<()> {
    until(&format!("the Pause says {expected:?}"), SOON, || async {
        let conditions =
            pauses.get("all").await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_expected = |held: &&Condition| (held.status.as_str(), held.reason.as_str()) == expected;
        Ok(conditions.iter().find(is_expected).map(drop))
    })
    .await
}

/// API servers accept an empty list, but then refuse every apply to that object.
#[tokio::test(flavor = "multi_thread")]
async fn pause_ending_after_the_last_known_date_reports_that_it_holds() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let object = json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Pause", "metadata": {"name": "endless"},
        "spec": {"until": "9999-12-31T23:59:59Z"},
    });
    let pauses = dynamic(landscape.hub.client()?, &object, &landscape.namespace)?;
    pauses.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    until("the Pause reports that it is in force", SOON, || async {
        let pause = pauses.get("endless").await?;
        Ok((pause.data["status"]["conditions"][0]["reason"] == "Paused").then_some(()))
    })
    .await
}
