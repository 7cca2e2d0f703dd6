//! Choices of users on the target: unmanaged modules, Ignore, a module that is selected again, a lost Kyma.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use http::Response;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use kyma_api::{DeletionPolicy, HelmComponent, Kyma, ResourcePolicy, annotations};
use serde_json::json;

use testbed::{Body, Cluster, EventDelivery, InterceptedRequest, ScriptedServer, disorder_events, rounds};

use crate::landscape::{Landscape, is_ready, modules, remote, until_remote};
use crate::lifecycle::choose;

/// Delay of watches, longer than any answer to a write.
const LATE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn e10_e13_module_in_removal_is_upgraded_and_selected_again() -> Result<()> {
    rounds(other_choices).await
}

async fn other_choices() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("choices").await?;
    for module in ["keda", "nats", "serverless"] {
        landscape.module(module, &[("regular", "1.0.0"), ("fast", "1.1.0")]).await?;
    }
    landscape.secret("sample", &kubeconfig).await?;
    landscape
        .kyma(
            "sample",
            "[{name: keda}, {name: nats, customResourcePolicy: Ignore}, {name: serverless, values: {a: 1}}]",
        )
        .await?;
    for module in ["keda", "nats", "serverless"] {
        landscape.report_ready(module).await?;
    }
    until_remote(&target, "the target's Kyma is born", |kyma| modules(kyma).len() == 3).await?;

    let stays = json!({ "name": "serverless", "values": { "a": 1 } });
    choose(&target, json!([{ "name": "keda", "managed": false }, stays])).await?;
    for module in ["keda", "nats"] {
        let gone = landscape
            .until_component("it is let go", module, |component| {
                component.metadata.deletion_timestamp.is_some()
            })
            .await?;
        assert_eq!(
            gone.spec.deletion_policy,
            DeletionPolicy::Orphan,
            "{module}: the target keeps everything"
        );
        landscape.let_component_go(&gone.name_any()).await?;
    }
    landscape
        .until_kyma("one unmanaged, one gone, one untouched", "sample", |kyma| {
            modules(kyma) == ["keda Unmanaged 1.0.0 regular", "serverless Ready 1.0.0 regular"]
        })
        .await?;

    let ordered = is_upgraded_until_it_can_go(&landscape, &target).await?;
    choose(&target, json!([{ "name": "serverless", "channel": "fast" }])).await?;
    let recalled = landscape
        .until_component("the removal is taken back", "serverless", |component| {
            component.spec.deletion_policy == DeletionPolicy::Orphan
        })
        .await?;
    assert_eq!(recalled.uid(), ordered.uid());
    assert!(!recalled.annotations().contains_key(annotations::DELETION_REASON));
    landscape.let_component_go(&recalled.name_any()).await?;
    let again = landscape
        .until_component("a new component takes over", "serverless", |component| {
            component.metadata.deletion_timestamp.is_none()
        })
        .await?;
    assert_ne!(again.uid(), ordered.uid());
    assert_eq!(again.spec.module.map(|module| module.version).as_deref(), Some("1.3.0"));
    landscape.stop().await
}

/// The user disables the module; it follows its channel while its component exists.
async fn is_upgraded_until_it_can_go(landscape: &Landscape, target: &Cluster) -> Result<HelmComponent> {
    choose(target, json!([])).await?;
    let ordered = landscape
        .until_component("the removal is ordered", "serverless", |component| {
            component.spec.deletion_policy == DeletionPolicy::Delete
        })
        .await?;
    landscape.module("serverless", &[("regular", "1.2.0"), ("fast", "1.3.0")]).await?;
    let upgraded = landscape
        .until_component("it follows its channel until it can go", "serverless", |component| {
            component.spec.module.as_ref().is_some_and(|module| module.version == "1.2.0")
        })
        .await?;
    assert_eq!(upgraded.uid(), ordered.uid());
    assert_eq!(upgraded.spec.deletion_policy, DeletionPolicy::Delete, "the order stands");
    assert_eq!(serde_json::to_value(&upgraded.spec)?["userValues"], json!({ "a": 1 }));
    landscape
        .until_kyma("the status says so", "sample", |kyma| {
            modules(kyma).contains(&"serverless Deleting 1.2.0 regular".to_owned())
        })
        .await?;
    Ok(ordered)
}

#[tokio::test(flavor = "multi_thread")]
async fn e16_module_is_orphaned_adopted_and_disabled_while_unmanaged() -> Result<()> {
    rounds(managed_and_not).await
}

async fn managed_and_not() -> Result<()> {
    let mut landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("it is Ready", "sample", is_ready).await?;

    is_unmanaged(&landscape).await?;
    let metrics = landscape.metrics()?;
    let gauge = r#"kyma_name="sample",module_name="keda",shoot="",state="Unmanaged"} 1"#;
    assert!(metrics.contains(gauge), "{metrics}");
    landscape.choose("sample", json!([{ "name": "keda", "managed": true }])).await?;
    landscape.report_ready("keda").await?;
    landscape
        .until_kyma("it is managed again", "sample", |kyma| modules(kyma) == ["keda Ready 1.0.0 regular"])
        .await?;

    is_unmanaged(&landscape).await?;
    landscape.choose("sample", json!([])).await?;
    landscape.until_kyma("the entry is gone", "sample", |kyma| modules(kyma).is_empty()).await?;
    let left = landscape.components()?.list(&ListParams::default()).await?;
    assert!(left.items.is_empty(), "nothing is removed: {:?}", left.items);

    let ignored = json!([{ "name": "keda", "customResourcePolicy": "Ignore" }]);
    landscape.choose("sample", ignored).await?;
    let component = landscape.until_component("it is enabled with Ignore", "keda", |_| true).await?;
    assert_eq!(component.spec.resource_policy, ResourcePolicy::Ignore);
    is_unmanaged(&landscape).await?;
    landscape.stop().await
}

/// The user sets the module to unmanaged; its component is deleted and everything stays on the target.
async fn is_unmanaged(landscape: &Landscape) -> Result<()> {
    landscape.choose("sample", json!([{ "name": "keda", "managed": false }])).await?;
    let gone = landscape
        .until_component("it is let go", "keda", |component| component.metadata.deletion_timestamp.is_some())
        .await?;
    assert_eq!(gone.spec.deletion_policy, DeletionPolicy::Orphan);
    landscape.let_component_go(&gone.name_any()).await?;
    let unmanaged = landscape
        .until_kyma("it is Unmanaged", "sample", |kyma| modules(kyma) == ["keda Unmanaged 1.0.0 regular"])
        .await?;
    assert!(is_ready(&unmanaged), "that is no trouble");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i29_i34_deleted_target_kyma_is_recreated_with_last_selection() -> Result<()> {
    rounds(born_again).await
}

async fn born_again() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("reborn").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.module("nats", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    until_remote(&target, "the target's Kyma is born", |_| true).await?;
    choose(&target, json!([{ "name": "nats", "values": { "replicas": 3 } }])).await?;
    landscape.until_component("the user's choice", "nats", |_| true).await?;
    let (before, after) = is_lost_once_chosen(&landscape, &target, "nats").await?;
    let chosen = after.spec.modules.clone().unwrap_or_default();
    assert_eq!(chosen.iter().map(|module| module.name.as_str()).collect::<Vec<_>>(), ["nats"]);
    assert_eq!(after.spec.modules, before.spec.modules);
    let component = landscape.until_component("the component is as before", "nats", |_| true).await?;
    assert!(component.metadata.deletion_timestamp.is_none());
    assert_eq!(serde_json::to_value(&component.spec)?["userValues"], json!({ "replicas": 3 }));
    landscape.stop().await
}

/// Deletes the target's Kyma once the hub has recorded the module. Returns the deleted and the recreated Kyma.
async fn is_lost_once_chosen(landscape: &Landscape, target: &Cluster, module: &str) -> Result<(Kyma, Kyma)> {
    let is_chosen = |kyma: &Kyma| {
        let selection = kyma.status.as_ref().and_then(|status| status.selection.as_ref());
        selection.is_some_and(|selection| selection.modules.iter().any(|chosen| chosen.name == module))
    };
    landscape.until_kyma("the choice is remembered", "sample", is_chosen).await?;
    let before = remote(target)?.get("default").await?;
    remote(target)?.delete("default", &DeleteParams::default()).await?;
    let after = until_remote(target, "it is born again", |kyma| kyma.uid() != before.uid()).await?;
    Ok((before, after))
}

#[tokio::test(flavor = "multi_thread")]
async fn target_kyma_deleted_just_after_a_choice_is_recreated_with_it() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let between = |passing: InterceptedRequest| {
        let (path, query) = (passing.received().path.clone(), passing.received().query.clone());
        let answer = async move {
            let answer: Response<Body> = passing.onward().await?;
            let is_watch = path.ends_with("/kymas") && query.contains("watch=true");
            let fate = |event: &serde_json::Value| match event["type"].as_str() {
                Some("MODIFIED") => EventDelivery::Late(LATE),
                _ => EventDelivery::OnTime,
            };
            Ok(if is_watch { disorder_events(answer, fate) } else { answer })
        };
        Box::pin(answer) as futures::future::BoxFuture<'static, io::Result<Response<Body>>>
    };
    let proxy = ScriptedServer::with(Arc::new(between), &landscape.hub).await?;
    landscape.run_behind(&proxy).await?;
    let (target, kubeconfig) = landscape.target("hasty").await?;
    for module in ["keda", "nats"] {
        landscape.module(module, &[("regular", "1.0.0")]).await?;
    }
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    until_remote(&target, "the target's Kyma is born", |_| true).await?;
    choose(&target, json!([{ "name": "nats" }])).await?;
    let (before, after) = is_lost_once_chosen(&landscape, &target, "nats").await?;
    assert_eq!(after.spec.modules, before.spec.modules);
    landscape.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_made_while_a_status_is_written_counts() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, user) = landscape.target_and_user("meanwhile").await?;
    let is_armed = Arc::new(AtomicBool::new(false));
    let (armed, chosen) = (Arc::clone(&is_armed), target.clone());
    let between = move |passing: InterceptedRequest| {
        let (armed, chosen) = (Arc::clone(&armed), chosen.clone());
        let answer = async move {
            let seen = passing.received().clone();
            let writes_status = seen.method == "PATCH" && seen.path.ends_with("/kymas/default/status");
            if writes_status && armed.swap(false, Ordering::Relaxed) {
                let choice = json!([{ "name": "keda" }, { "name": "nats" }]);
                choose(&chosen, choice).await.map_err(io::Error::other)?;
            }
            let answer: Response<Body> = passing.onward().await?;
            let is_watch = seen.query.contains("watch=true");
            Ok(if is_watch { disorder_events(answer, |_| EventDelivery::Late(LATE)) } else { answer })
        };
        Box::pin(answer) as futures::future::BoxFuture<'static, io::Result<Response<Body>>>
    };
    let proxy = ScriptedServer::with(Arc::new(between), &target).await?;
    for module in ["keda", "nats"] {
        landscape.module(module, &[("regular", "1.0.0")]).await?;
    }
    landscape.secret("sample", &proxy.access_of(&user).kubeconfig()).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    until_remote(&target, "the status shows the module", |kyma| modules(kyma).len() == 1).await?;
    is_armed.store(true, Ordering::Relaxed);
    landscape.report_ready("keda").await?;
    landscape.until_component("what was chosen meanwhile", "nats", |_| true).await?;
    assert!(!is_armed.load(Ordering::Relaxed), "the choice was made during a write");
    Ok(())
}
