//! The catalogue on real control planes: hub and target with their audit logs, each side under exactly the roles
//! that the RBAC table gives.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, ModuleReleaseMeta, ModuleTemplate, annotations, condition, finalizers, labels};
use serde_json::json;
use testbed::{
    Access, Answer, AuditEvent, Credentials, ReceivedRequest, RequestMatcher, ScriptedServer, until,
    until_quiet,
};

mod stage;

use stage::{ON_TARGET, OPERATOR, SOON, Stage, kyma, publish, template};

/// Path of the CRD of templates.
const CRD_OF_TEMPLATES: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/moduletemplates.operator.kyma-project.io";

const ALL: [&str; 5] = ["btp", "btp-2.0.0", "keda", "keda-1.0.0", "keda-1.1.0"];

#[tokio::test]
async fn e10_e23_i25_i26_i31_i32_catalogue_is_synced_until_kyma_goes() -> Result<()> {
    let mut stage = Stage::start().await?;
    publish(&stage).await?;
    let kymas = stage.on_hub::<Kyma>()?;
    kymas.create(&PostParams::default(), &kyma("a")?).await?;
    stage.condition("a", "AwaitingAccess").await?;

    stage.give_access("a").await?;
    stage.target_has(&ALL).await?;
    stage.condition("a", "CatalogSynced").await?;
    let templates = stage.on_target::<ModuleTemplate>()?;
    let copy = templates.get("keda-1.0.0").await?;
    assert_eq!(copy.labels().get(labels::MANAGED_BY).map(String::as_str), Some("kyma"));
    assert!(copy.spec.component.is_none(), "what is for the hub only was copied");
    assert!(kymas.get("a").await?.finalizers().iter().any(|held| held == finalizers::CATALOG));

    edits_and_deletions_are_put_right(&stage).await?;
    what_does_not_concern_the_catalogue_costs_nothing(&mut stage).await?;
    what_users_made_is_theirs(&stage).await?;
    changes_of_the_hub_arrive(&stage).await?;
    the_end(&stage).await?;
    drop(stage.test_env);
    Ok(())
}

async fn edits_and_deletions_are_put_right(stage: &Stage) -> Result<()> {
    let (templates, releases) =
        (stage.on_target::<ModuleTemplate>()?, stage.on_target::<ModuleReleaseMeta>()?);
    let edit = json!({"spec": {"info": {"repository": "https://evil.example.org"}}});
    templates.patch("keda-1.0.0", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    until("the edit to be put right", SOON, || async {
        let info = templates.get("keda-1.0.0").await?.spec.info;
        Ok((info.map(|info| info.repository).as_deref() == Some("https://example.org/r")).then_some(()))
    })
    .await?;
    let unlabel = json!({"metadata": {"labels": {labels::OWNER: null, labels::MANAGED_BY: null}}});
    templates.patch("keda-1.1.0", &PatchParams::default(), &Patch::Merge(&unlabel)).await?;
    until("the labels to come back", SOON, || async {
        Ok(templates.get("keda-1.1.0").await?.labels().contains_key(labels::OWNER).then_some(()))
    })
    .await?;
    releases.delete("btp", &DeleteParams::default()).await?;
    templates.delete("btp-2.0.0", &DeleteParams::default()).await?;
    stage.target_has(&ALL).await?;
    let crds = Api::<CustomResourceDefinition>::all(stage.target.client()?);
    let gone = "moduletemplates.operator.kyma-project.io";
    let uid = crds.get(gone).await?.uid();
    crds.delete(gone, &DeleteParams::default()).await?;
    until("the deleted CRD to come back", SOON, || async {
        let live = crds.get_opt(gone).await?;
        Ok(live.filter(|live| live.uid() != uid).map(drop))
    })
    .await?;
    stage.target_has(&ALL).await?;
    stage.condition("a", "CatalogSynced").await.map(drop)
}

async fn what_does_not_concern_the_catalogue_costs_nothing(stage: &mut Stage) -> Result<()> {
    let kymas = stage.on_hub::<Kyma>()?;
    // The event of a condition is written after the condition.
    let writes = |event: &AuditEvent| event.is_write() && [OPERATOR, ON_TARGET].contains(&&*event.user);
    until_quiet(&[&stage.hub, &stage.target], Duration::from_secs(1), SOON, writes).await?;
    // Effects of the last reads are over once a restarted operator has nothing to do.
    let marks = stage.marks()?;
    stage.restart(&[]).await?;
    until("the new process to watch all kinds on the target", SOON, || async {
        let events = stage.target.audit()?.since(marks.1)?;
        let watches = events.iter().filter(|event| event.user == ON_TARGET && event.verb == "watch");
        let kinds: BTreeSet<&str> = watches.map(|event| event.resource.as_str()).collect();
        Ok((kinds.len() == 3).then_some(()))
    })
    .await?;
    // A CRD that was just recreated may still end a watch, which then lists again.
    let reads = |event: &AuditEvent| event.user == ON_TARGET && event.verb != "watch";
    until_quiet(&[&stage.target], Duration::from_secs(2), SOON, reads).await?;
    let settled = stage.marks()?;
    let touch = json!({"metadata": {"annotations": {"example.org/note": "x"}}});
    kymas.patch("a", &PatchParams::default(), &Patch::Merge(&touch)).await?;
    let mine = template("other-namespace-only", "1.0.0")?;
    let elsewhere = Api::<ModuleTemplate>::namespaced(stage.hub.client()?, "default");
    elsewhere.create(&PostParams::default(), &mine).await?;
    stage.reconciled(2.0).await?;
    assert_eq!(stage.writes(marks)?, Vec::<String>::new(), "a restart wrote something");
    let read: Vec<AuditEvent> = stage.target.audit()?.since(settled.1)?.into_iter().filter(reads).collect();
    assert!(read.is_empty(), "a touched Kyma made calls to the target: {read:?}");
    Ok(())
}

async fn what_users_made_is_theirs(stage: &Stage) -> Result<()> {
    let templates = stage.on_target::<ModuleTemplate>()?;
    for (module, version) in [("community", "1.0.0"), ("soon", "1.0.0")] {
        templates.create(&PostParams::default(), &template(module, version)?).await?;
    }
    // The hub publishes a template under a name that the user has already used.
    let wanted = stage.on_hub::<ModuleTemplate>()?;
    wanted.create(&PostParams::default(), &template("soon", "1.0.0")?).await?;
    let kymas = stage.on_hub::<Kyma>()?;
    until("the condition to name what is left alone", SOON, || async {
        let conditions =
            kymas.get("a").await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let held = condition::get(&conditions, condition::types::MODULE_CATALOG);
        Ok(held.filter(|held| held.message.contains("ModuleTemplate soon-1.0.0")).map(drop))
    })
    .await?;
    for name in ["community-1.0.0", "soon-1.0.0"] {
        let theirs = templates.get(name).await?;
        assert!(!theirs.labels().contains_key(labels::OWNER), "{name} was taken over");
        assert!(theirs.spec.component.is_some(), "{name} was changed");
    }
    wanted.delete("soon-1.0.0", &DeleteParams::default()).await?;
    Ok(())
}

async fn changes_of_the_hub_arrive(stage: &Stage) -> Result<()> {
    let (templates, releases) = (stage.on_hub::<ModuleTemplate>()?, stage.on_hub::<ModuleReleaseMeta>()?);
    releases.delete("btp", &DeleteParams::default()).await?;
    templates.delete("btp-2.0.0", &DeleteParams::default()).await?;
    let beta = json!({"metadata": {"labels": {labels::BETA: "true"}}});
    templates.patch("keda-1.1.0", &PatchParams::default(), &Patch::Merge(&beta)).await?;
    stage.target_has(&["community-1.0.0", "keda", "keda-1.0.0", "soon-1.0.0"]).await?;
    let copies = stage.on_target::<ModuleReleaseMeta>()?;
    until("the hidden channel to go", SOON, || async {
        let channels = copies.get("keda").await?.spec.channels.unwrap_or_default();
        Ok((channels.len() == 1 && channels[0].channel == "regular").then_some(()))
    })
    .await?;
    stage.on_hub::<Kyma>()?.patch("a", &PatchParams::default(), &Patch::Merge(&beta)).await?;
    stage.target_has(&["community-1.0.0", "keda", "keda-1.0.0", "keda-1.1.0", "soon-1.0.0"]).await
}

async fn the_end(stage: &Stage) -> Result<()> {
    let kymas = stage.on_hub::<Kyma>()?;
    kymas.delete("a", &DeleteParams::default()).await?;
    until("the Kyma to go", SOON, || async { Ok(kymas.get_opt("a").await?.is_none().then_some(())) }).await?;
    stage.target_has(&["community-1.0.0", "soon-1.0.0"]).await?;
    let crds = Api::<CustomResourceDefinition>::all(stage.target.client()?);
    assert!(
        crds.get_opt("moduletemplates.operator.kyma-project.io").await?.is_some(),
        "users have objects of it"
    );
    until("the CRD that nobody uses to go", SOON, || async {
        Ok(crds.get_opt("modulereleasemetas.operator.kyma-project.io").await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn what_is_missing_is_no_order_to_delete() -> Result<()> {
    let mut stage = Stage::start().await?;
    publish(&stage).await?;
    let kymas = stage.on_hub::<Kyma>()?;
    kymas.create(&PostParams::default(), &kyma("a")?).await?;
    stage.give_access("a").await?;
    stage.target_has(&ALL).await?;
    let before = stage.marks()?;

    // Deletes all templates with their CRD.
    let crds = Api::<CustomResourceDefinition>::all(stage.hub.client()?);
    let crd = "moduletemplates.operator.kyma-project.io";
    crds.delete(crd, &DeleteParams::default()).await?;
    stage.condition("a", "PruneGuard").await?;
    until("the CRD to go", SOON, || async { Ok(crds.get_opt(crd).await?.is_none().then_some(())) }).await?;

    // The access Secret is deleted while the Kyma is being deleted, and a person reports that the cluster is gone.
    let secrets = stage.on_hub::<k8s_openapi::api::core::v1::Secret>()?;
    secrets.delete("a-access", &DeleteParams::default()).await?;
    stage.condition("a", "AwaitingAccess").await?;
    kymas.delete("a", &DeleteParams::default()).await?;
    // A new process does not take the missing access for an order to delete either.
    crds.create(&PostParams::default(), &kyma_api::crds::module_template()).await?;
    stage.restart(&[]).await?;
    stage.reconciled(1.0).await?;
    let deleting = kymas.get("a").await?;
    assert!(deleting.finalizers().iter().any(|held| held == finalizers::CATALOG), "released too early");
    let gone = json!({"metadata": {"annotations": {annotations::CLUSTER_GONE: "true"}}});
    kymas.patch("a", &PatchParams::default(), &Patch::Merge(&gone)).await?;
    until("the Kyma to go", SOON, || async { Ok(kymas.get_opt("a").await?.is_none().then_some(())) }).await?;

    let events = stage.target.audit()?.since(before.1)?;
    let deletes: Vec<_> =
        events.iter().filter(|event| event.user == ON_TARGET && event.verb.starts_with("delete")).collect();
    assert!(deletes.is_empty(), "{deletes:?}");
    stage.target_has(&ALL).await?;
    drop(stage.test_env);
    Ok(())
}

#[tokio::test]
async fn deletion_is_classified_once_the_hub_answers_again() -> Result<()> {
    let mut stage = Stage::start().await?;
    publish(&stage).await?;
    stage.on_hub::<Kyma>()?.create(&PostParams::default(), &kyma("a")?).await?;
    stage.give_access("a").await?;
    stage.target_has(&ALL).await?;
    let hub = ScriptedServer::in_front_of(&stage.hub).await?;
    stage.restart_behind(&hub).await?;
    // Its copy shows that the new process has listed the templates: a list that lacks a template is no deletion.
    let templates = stage.on_hub::<ModuleTemplate>()?;
    templates.create(&PostParams::default(), &template("keda", "1.2.0")?).await?;
    let all = ["btp", "btp-2.0.0", "keda", "keda-1.0.0", "keda-1.1.0", "keda-1.2.0"];
    stage.target_has(&all).await?;

    // Only the classification of a failure reads just the metadata.
    let crd = RequestMatcher::path(CRD_OF_TEMPLATES).method("GET");
    let is_attempt = |seen: &ReceivedRequest| crd.fits(seen) && seen.accept.contains("PartialObjectMetadata");
    let attempts = || hub.requests().iter().filter(|seen| is_attempt(seen)).count();
    let before = attempts();
    hub.always(crd.clone(), Answer::failure(500, "InternalError", "the hub cannot answer"));
    templates.delete("keda-1.1.0", &DeleteParams::default()).await?;
    until("the deletion and its retry to be refused", SOON, || async {
        Ok((attempts() >= before + 2).then_some(()))
    })
    .await?;
    stage.condition("a", "PruneGuard").await?;
    stage.target_has(&all).await?;

    hub.clear();
    stage.target_has(&["btp", "btp-2.0.0", "keda", "keda-1.0.0", "keda-1.2.0"]).await?;
    stage.condition("a", "CatalogSynced").await?;
    drop(stage.test_env);
    Ok(())
}

#[tokio::test]
async fn broken_access_is_reported_and_repaired_without_a_restart() -> Result<()> {
    let stage = Stage::start().await?;
    publish(&stage).await?;
    stage.on_hub::<Kyma>()?.create(&PostParams::default(), &kyma("a")?).await?;
    let stranger = Access { credentials: Credentials::Token("stranger".into()), ..stage.access.clone() };
    let elsewhere =
        stage.access.at(&stage.access.url, stage.test_env.cluster("other").with_own_authority().await?.ca());
    let closed = stage.access.at("https://127.0.0.1:1", &stage.access.ca);
    let rows = [
        ("no kubeconfig".to_owned(), "AccessInvalid"),
        (stage.access.kubeconfig().replace("https:", "http:"), "AccessInvalid"),
        (stage.hub.kubeconfig(), "TargetIsHub"),
        (stranger.kubeconfig(), "TargetUnauthorized"),
        (elsewhere.kubeconfig(), "TargetUntrusted"),
        (closed.kubeconfig(), "TargetUnreachable"),
    ];
    for (kubeconfig, reason) in rows {
        stage.give("a", &kubeconfig).await?;
        let message = stage.condition("a", reason).await.with_context(|| reason.to_owned())?;
        assert!(!message.contains("stranger"), "{message}");
    }
    stage.give_access("a").await?;
    stage.condition("a", "CatalogSynced").await?;
    stage.target_has(&ALL).await?;
    drop(stage.test_env);
    Ok(())
}

#[tokio::test]
async fn in_single_cluster_mode_nothing_is_copied_onto_itself() -> Result<()> {
    let mut stage = Stage::start().await?;
    let records: Api<ConfigMap> = stage.on_hub()?;
    until("the first start has written the brake's record", SOON, || async {
        Ok(records.get_opt("brake-release-meta-syncer").await?.map(drop))
    })
    .await?;
    stage.restart(&["--mode=single-cluster"]).await?;
    publish(&stage).await?;
    let marks = stage.marks()?;
    stage.on_hub::<Kyma>()?.create(&PostParams::default(), &kyma("a")?).await?;
    stage.reconciled(1.0).await?;
    assert_eq!(stage.writes(marks)?, Vec::<String>::new());

    // An access Secret contradicts the mode: the Kyma says so, and the cluster that it names is left alone.
    stage.give_access("a").await?;
    stage.condition("a", "AccessInvalid").await?;
    stage.on_hub::<Secret>()?.delete("a-access", &DeleteParams::default()).await?;
    stage.condition("a", "CatalogSynced").await?;
    let writes = stage.writes(marks)?;
    let is_report = |write: &String| {
        ["kymas/status", "events"].iter().any(|resource| write.contains(&format!("resource: \"{resource}\"")))
    };
    assert!(writes.iter().all(is_report), "{writes:?}");
    drop(stage.test_env);
    Ok(())
}
