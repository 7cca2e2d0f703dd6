//! Components shown as Manifests of Kyma Lifecycle Manager (KLM).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use http::Response;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, klm, labels};
use serde_json::{Value, json};
use testbed::{Body, InterceptedRequest, ScriptedServer, crd_is_served, until, until_or_why};

use crate::landscape::{Landscape, SOON, is_ready, modules};

const CRD: &str = "manifests.operator.kyma-project.io";

#[tokio::test(flavor = "multi_thread")]
async fn components_are_shown_as_manifests_that_nobody_can_change() -> Result<()> {
    let Some(inputs) = testbed::inputs("KLM's CRD of Manifests")? else { return Ok(()) };
    let mut landscape = Landscape::start(&["--mode=single-cluster", "--manifest-mirror"]).await?;
    landscape.module("keda", &[("regular", "1.0.0"), ("fast", "1.1.0")]).await?;
    landscape.module("nats", &[("regular", "1.0.0")]).await?;
    let kyma = landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("a hub without the kind keeps nobody from work", "sample", is_ready).await?;

    install_crd(&landscape, &inputs).await?;
    let keda = name("sample", "keda");
    let shown =
        until_shown(&landscape, "the Manifest is created once its kind exists", &keda, "Ready").await?;
    assert_eq!(shown.labels()[labels::SKIP_RECONCILIATION], "true");
    assert_eq!(shown.data["spec"]["version"], "1.0.0");
    let component = landscape.until_component("its component", "keda", |_| true).await?;
    assert_eq!(Some(&shown.owner_references()[0].uid), component.uid().as_ref());

    edits_are_undone(&landscape, &keda).await?;
    let proxy = late_edit(&landscape, &keda).await?;
    landscape.run_behind(&proxy).await?;
    an_edit_that_was_not_seen_is_undone(&landscape, &keda).await?;
    klms_own_are_left_alone(&landscape, kyma.uid().unwrap_or_default()).await?;
    an_upgrade_shows(&landscape, &keda).await?;
    nobody_else_may_write(&landscape, &keda).await?;
    a_restart_writes_only_what_differs(&mut landscape).await?;

    landscape.choose("sample", json!([{ "name": "nats" }])).await?;
    // Until then, the operator would add a finalizer that was removed.
    landscape
        .until_component("its removal is ordered", "keda", |component| {
            component.metadata.deletion_timestamp.is_some()
        })
        .await?;
    landscape.let_component_go(&component.name_any()).await?;
    let manifests = manifests(&landscape)?;
    until("the Manifest is deleted with its component", SOON, || async {
        Ok(manifests.get_opt(&keda).await?.is_none().then_some(()))
    })
    .await
}

fn name(kyma: &str, module: &str) -> String {
    klm::manifest_name(kyma, &format!("example.com/module/{module}"), module)
}

fn manifests(landscape: &Landscape) -> Result<Api<DynamicObject>> {
    Ok(Api::namespaced_with(landscape.hub.client()?, &landscape.namespace, &klm::manifest_resource()))
}

async fn install_crd(landscape: &Landscape, inputs: &Path) -> Result<()> {
    let path = inputs.join(format!("klm-crds/operator.kyma-project.io_{}.yaml", klm::MANIFESTS));
    let crd: CustomResourceDefinition = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let client = landscape.hub.client()?;
    Api::all(client.clone()).create(&PostParams::default(), &crd).await?;
    crd_is_served(&client, CRD).await
}

/// Waits until a Manifest shows this state of its module.
async fn until_shown(landscape: &Landscape, what: &str, name: &str, state: &str) -> Result<DynamicObject> {
    let api = manifests(landscape)?;
    until_or_why(what, SOON, || async {
        let Some(found) = api.get_opt(name).await? else { return Ok(Err("there is none".to_owned())) };
        let is = found.data["status"]["state"] == state;
        Ok(if is { Ok(found) } else { Err(found.data.to_string()) })
    })
    .await
}

/// Also a deletion is reverted.
async fn edits_are_undone(landscape: &Landscape, name: &str) -> Result<()> {
    let api = manifests(landscape)?;
    let before = api.get(name).await?;
    let by_hand = PatchParams::default();
    let skipped =
        json!({"metadata": {"labels": {labels::SKIP_RECONCILIATION: null}}, "spec": {"version": "9.9.9"}});
    api.patch(name, &by_hand, &Patch::Merge(&skipped)).await?;
    api.patch_status(name, &by_hand, &Patch::Merge(&json!({"status": {"state": "Error"}}))).await?;
    until("edits are reverted", SOON, || async {
        let now = api.get(name).await?;
        Ok((now.data == before.data && now.labels() == before.labels()).then_some(()))
    })
    .await?;
    api.delete(name, &DeleteParams::default()).await?;
    let again = until_shown(landscape, "the Manifest is created again", name, "Ready").await?;
    assert_ne!(again.uid(), before.uid());
    Ok(())
}

/// Returns a proxy to the hub that edits the status of a Manifest just before the operator's first write to it.
async fn late_edit(landscape: &Landscape, name: &str) -> Result<ScriptedServer> {
    let (manifests, is_first) = (manifests(landscape)?, Arc::new(AtomicBool::new(true)));
    let (path, name) = (format!("/{}/{name}", klm::MANIFESTS), name.to_owned());
    let between = move |passing: InterceptedRequest| {
        let (manifests, is_first) = (manifests.clone(), Arc::clone(&is_first));
        let (path, name) = (path.clone(), name.clone());
        let answer = async move {
            let writes = passing.received().method == "PATCH" && passing.received().path.ends_with(&path);
            if writes && is_first.swap(false, Ordering::Relaxed) {
                let edit = Patch::Merge(json!({"status": {"state": "Error"}}));
                let edited = manifests.patch_status(&name, &PatchParams::default(), &edit).await;
                edited.map_err(io::Error::other)?;
            }
            passing.onward().await
        };
        Box::pin(answer) as futures::future::BoxFuture<'static, io::Result<Response<Body>>>
    };
    ScriptedServer::with(Arc::new(between), &landscape.hub).await
}

async fn an_edit_that_was_not_seen_is_undone(landscape: &Landscape, name: &str) -> Result<()> {
    let api = manifests(landscape)?;
    let before = api.get(name).await?;
    let edit = Patch::Merge(json!({"spec": {"version": "9.9.9"}}));
    api.patch(name, &PatchParams::default(), &edit).await?;
    until_or_why("both edits are undone", SOON, || async {
        let now = api.get(name).await?;
        let is_undone = now.data == before.data && now.metadata.generation > before.metadata.generation;
        Ok(if is_undone { Ok(()) } else { Err(now.data.to_string()) })
    })
    .await
}

/// One Manifest of KLM, and one that KLM handed over, of which only the status is written.
async fn klms_own_are_left_alone(landscape: &Landscape, kyma: String) -> Result<()> {
    let api = manifests(landscape)?;
    let (held, over) = (name("sample", "nats"), "sample-other-1");
    for (name, module, state, finalizers) in [
        (held.as_str(), "nats", None, klm::MANIFEST_FINALIZERS.as_slice()),
        (over, "other", Some(labels::HAND_OVER_DONE), &[]),
    ] {
        let manifest = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": klm::MANIFEST,
            "metadata": {
                "name": name, "finalizers": finalizers,
                "labels": {labels::KYMA_NAME: "sample", labels::MODULE_NAME: module, labels::HAND_OVER: state},
                "ownerReferences": [{
                    "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "sample", "uid": kyma,
                    "controller": true,
                }],
            },
            "spec": {"remote": false, "version": "0.9.0", "install": {"name": "raw-manifest", "source": {}}},
        });
        api.create(&PostParams::default(), &serde_json::from_value(without_nulls(manifest))?).await?;
    }
    let before = api.get(&held).await?;
    landscape.choose("sample", json!([{ "name": "keda" }, { "name": "nats" }])).await?;
    landscape.report_ready("nats").await?;
    let are_ready = |kyma: &Kyma| modules(kyma) == ["keda Ready 1.0.0 regular", "nats Ready 1.0.0 regular"];
    landscape.until_kyma("both are Ready", "sample", are_ready).await?;
    assert_eq!(api.get(&held).await?, before, "KLM's own");
    let over =
        json!({"metadata": {"finalizers": null, "labels": {labels::HAND_OVER: labels::HAND_OVER_DONE}}});
    api.patch(&held, &PatchParams::default(), &Patch::Merge(&over)).await?;
    let shown = until_shown(landscape, "the handed-over Manifest has a status", &held, "Ready").await?;
    assert_eq!(
        (shown.uid(), &shown.data["spec"]),
        (before.uid(), &before.data["spec"]),
        "its spec stays KLM's"
    );
    let other = api.get("sample-other-1").await?;
    assert!(other.data.get("status").is_none(), "it has no component: {}", other.data);
    Ok(())
}

fn without_nulls(mut object: Value) -> Value {
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.retain(|_, value| !value.is_null());
    }
    object
}

async fn an_upgrade_shows(landscape: &Landscape, name: &str) -> Result<()> {
    let modules = json!([{ "name": "keda", "channel": "fast" }, { "name": "nats" }]);
    landscape.choose("sample", modules).await?;
    landscape
        .until_component("it is upgraded", "keda", |component| {
            component.spec.module.as_ref().is_some_and(|module| module.version == "1.1.0")
        })
        .await?;
    landscape.report_ready("keda").await?;
    let api = manifests(landscape)?;
    until("the Manifest reports the state", SOON, || async {
        let shown = api.get(name).await?;
        let is = shown.data["spec"]["version"] == "1.1.0" && shown.labels()[labels::CHANNEL] == "fast";
        Ok(is.then_some(()))
    })
    .await
}

/// The shipped policy refuses edits by other users, but not by the operator.
async fn nobody_else_may_write(landscape: &Landscape, name: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/policies/manifest-mirror.yaml");
    for object in serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(path)?)? {
        landscape.apply(&object.to_string()).await?;
    }
    let (api, by_hand) = (manifests(landscape)?, PatchParams::default());
    let refused = |result: kube::Result<DynamicObject>| match result {
        Err(kube::Error::Api(status)) => status.message.contains("read-only copy"),
        _ => false,
    };
    let edit = json!({"status": {"lastOperation": {"operation": "by hand"}}});
    until("edits are refused", SOON, || async {
        Ok(refused(api.patch_status(name, &by_hand, &Patch::Merge(&edit)).await).then_some(()))
    })
    .await?;
    for edit in [
        json!({"spec": {"version": "9.9.9"}}),
        json!({"metadata": {"labels": {labels::MIRROR: null}}}),
        json!({"metadata": {"labels": {labels::SKIP_RECONCILIATION: "false"}}}),
    ] {
        assert!(refused(api.patch(name, &by_hand, &Patch::Merge(&edit)).await), "{edit}");
    }
    let note = json!({"metadata": {"annotations": {"team": "ours"}}});
    api.patch(name, &by_hand, &Patch::Merge(&note)).await.context("notes of people pass")?;
    let foreign = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"version": "0.9.1"}});
    api.patch(&self::name("sample", "nats"), &by_hand, &Patch::Merge(&foreign))
        .await
        .context("KLM's own pass")?;
    let component = landscape.until_component("its component", "keda", |_| true).await?;
    let status = json!({"status": {"state": "Warning"}});
    landscape.components()?.patch_status(&component.name_any(), &by_hand, &Patch::Merge(&status)).await?;
    until_shown(landscape, "the operator still writes", name, "Warning").await.map(drop)
}

/// Everything is compared again, up-to-date Manifests first: keda's.
async fn a_restart_writes_only_what_differs(landscape: &mut Landscape) -> Result<()> {
    landscape.stop().await?;
    let audit = landscape.hub.audit()?;
    let mark = audit.mark()?;
    let component = landscape.until_component("a component", "nats", |_| true).await?;
    let status = json!({"status": {"state": "Warning"}});
    let by_hand = PatchParams::default();
    landscape.components()?.patch_status(&component.name_any(), &by_hand, &Patch::Merge(&status)).await?;
    landscape.run().await?;
    until_shown(landscape, "the changed component is shown", &name("sample", "nats"), "Warning").await?;
    // Requests are logged after the answer, so the log may lag behind their effect.
    let written = until("the audit log contains the write", SOON, || async {
        let events = audit.since(mark)?.into_iter();
        let writes = events
            .filter(|event| event.user == landscape.user() && event.resource.starts_with(klm::MANIFESTS))
            .filter(testbed::AuditEvent::is_write);
        let written: Vec<String> =
            writes.map(|event| format!("{} {} {}", event.verb, event.resource, event.name)).collect();
        Ok((!written.is_empty()).then_some(written))
    })
    .await?;
    assert_eq!(written, [format!("patch manifests/status {}", name("sample", "nats"))]);
    Ok(())
}
