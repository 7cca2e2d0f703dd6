//! Failures of requests to a target: condition and reason, one event, number of retries, and what ends the failure.
//! None of them needs a person who requests a retry.

mod table;

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::{AuditEvent, AuditMark, until, until_quiet};

use crate::world::{DEADLINE, HUB_NAMESPACE, World, apply_yaml, condition_of, ready_of, world};

/// Deadline for a retry without an event, which may come after a minute: that of the operator after a refusal, or that
/// of Kubernetes after a failed deletion of a namespace.
const LONG: Duration = Duration::from_mins(4);
/// Number of failing passes without another event.
const PASSES: usize = 5;

/// Checks that one event reported this reason before the event of Ready. Events arrive in order, so with the later
/// one all are there.
pub(crate) async fn told_once(world: &World, component: &str, reason: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let what = format!("{component}: people are told of {reason}, and later that it is Ready");
    let count = until(&what, DEADLINE, || async {
        let all = events.list(&ListParams::default()).await?.items;
        let ((count, last), (_, ready)) = (told(&all, component, reason), told(&all, component, "Ready"));
        Ok((last.is_some() && ready > last).then_some(count))
    })
    .await?;
    assert_eq!(count, 1, "{component}: {reason}");
    Ok(())
}

/// Returns the number of events with this reason, and the time of the last one.
fn told(events: &[Event], component: &str, reason: &str) -> (i32, Option<MicroTime>) {
    let of_it = events.iter().filter(|event| {
        let name = event.regarding.as_ref().and_then(|object| object.name.as_deref());
        name == Some(component) && event.reason.as_deref() == Some(reason)
    });
    let times = of_it.map(|event| match &event.series {
        Some(series) => (series.count, Some(series.last_observed_time.clone())),
        None => (1, event.event_time.clone()),
    });
    times.fold((0, None), |(sum, last), (count, time)| (sum + count, last.max(time)))
}

/// Triggers this many passes, each of which fails for this reason.
async fn passes(world: &World, component: &str, reason: &str, times: usize) -> Result<()> {
    for number in 0..times {
        let failed = lines(world, component, reason)?;
        let touch = json!({"metadata": {"annotations": {"example.org/touched": number.to_string()}}});
        world.components()?.patch(component, &PatchParams::default(), &Patch::Merge(touch)).await?;
        until("there was a pass", DEADLINE, || async {
            Ok((lines(world, component, reason)? > failed).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Returns the number of log lines with the component's failure.
fn lines(world: &World, component: &str, reason: &str) -> Result<usize> {
    let log = std::fs::read_to_string(world.operator.log())?;
    Ok(log.lines().filter(|line| line.contains(component) && line.contains(reason)).count())
}

/// Returns requests to the target for a component since the mark; its uid is in the User-Agent.
fn asked(world: &World, uid: &str, mark: AuditMark) -> Result<Vec<AuditEvent>> {
    let all = world.target.audit()?.since(mark)?.into_iter();
    Ok(all.filter(|event| event.user_agent.contains(uid)).collect())
}

fn manifest(kind: &str, name: &str, rest: &Value) -> String {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    for (field, value) in rest.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    format!("---\n{object}\n")
}

/// Waits until the target refuses a new object with these words. API servers learn of quotas and webhooks by watches,
/// so they admit objects for some time after these exist.
async fn until_refused<K>(api: &Api<K>, object: Value, words: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object)?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    until(&format!("the target refuses it: {words}"), DEADLINE, || async {
        match api.create(&dry_run, &object).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.message.contains(words) => Ok(Some(())),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

async fn wish(world: &World, name: &str, version: &str, content: &str) -> Result<()> {
    let source = world.push(name, version, content).await?;
    world.apply(name, json!({"source": source, "release": {"namespace": name}})).await
}

#[tokio::test]
async fn terminating_namespace_costs_few_requests_in_every_case() -> Result<()> {
    let world = world().await?;
    let (name, reason) = ("ending", "NamespaceTerminating");
    let content =
        ["one", "two", "three", "four"].map(|map| manifest("ConfigMap", map, &json!({"data": {"a": "b"}})));
    wish(world, name, "1.0.0", &content.concat()).await?;
    let component = world.ready(name, "True", "Ready").await?;
    let uid = component.uid().context("a uid")?;
    let target = world.target.client()?;
    let maps: Api<ConfigMap> = Api::namespaced(target.clone(), name);
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.org/held"]}});
    maps.create(&PostParams::default(), &serde_json::from_value(held)?).await?;

    let mark = world.target.audit()?.mark()?;
    let namespaces: Api<Namespace> = Api::all(target);
    namespaces.delete(name, &DeleteParams::default()).await?;
    world.ready(name, "False", reason).await?;
    until("the namespace is empty but for what holds it", DEADLINE, || async {
        Ok((maps.list(&ListParams::default()).await?.items.len() == 1).then_some(()))
    })
    .await?;
    let wakes = 20;
    passes(world, name, reason, wakes).await?;
    until_quiet(&[&world.target], Duration::from_secs(2), DEADLINE, |event| event.user_agent.contains(&uid))
        .await?;
    let mut requests = asked(world, &uid, mark)?;
    // Discovery is repeated when other tests create kinds.
    requests.retain(|event| !event.resource.is_empty());
    assert!(requests.len() <= 6, "{requests:#?}");
    let refused = requests.iter().filter(|event| event.is_write() && event.code == 403).count();
    assert!(refused <= 1, "{requests:#?}");
    // All components that wait for this namespace share one stream.
    let all = world.target.audit()?.since(mark)?.into_iter();
    let shown =
        all.filter(|event| event.resource == "namespaces" && event.uri.contains("metadata.name%3Dending"));
    let shown: Vec<AuditEvent> = shown.collect();
    assert!((1..=3).contains(&shown.len()), "{shown:#?}");
    let lines = lines(world, name, reason)?;
    assert!(lines <= wakes + 10, "{lines} lines in the log");

    maps.patch("held", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await?;
    world.ready_within(LONG, name, "True", "Ready").await?;
    assert_eq!(maps.get("four").await?.data.unwrap_or_default()["a"], "b");
    told_once(world, name, reason).await
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_tried_again_until_it_has_room() -> Result<()> {
    let world = world().await?;
    let name = "cramped";
    let client = world.target.client()?;
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), name);
    let quota = |services: &str| json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": name}, "spec": {"hard": {"services": services}}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    apply_yaml(&client, &namespace.to_string()).await?;
    apply_yaml(&client, &quota("0").to_string()).await?;
    let counts = |services: &'static str| {
        let quotas = quotas.clone();
        async move {
            until("the quota counts", DEADLINE, || async {
                let status = quotas.get("few").await?.status.unwrap_or_default();
                let hard = status.hard.unwrap_or_default();
                Ok(hard.get("services").is_some_and(|hard| hard.0 == services).then_some(()))
            })
            .await
        }
    };
    counts("0").await?;
    let berth = json!({"metadata": {"name": "berth"}, "spec": {"ports": [{"port": 80}]}});
    until_refused(&Api::<Service>::namespaced(client.clone(), name), berth.clone(), "exceeded quota").await?;
    let mark = world.target.audit()?.mark()?;
    wish(world, name, "1.0.0", &manifest("Service", "berth", &json!({"spec": berth["spec"]}))).await?;
    let component = world.ready(name, "False", "QuotaExceeded").await?;
    let (status, reason, message) = condition_of(&component, "Applied").context("Applied")?;
    assert_eq!((status.as_str(), reason.as_str()), ("False", "QuotaExceeded"));
    assert!(message.contains("Service cramped/berth"), "{message}");

    apply_yaml(&client, &quota("1").to_string()).await?;
    counts("1").await?;
    let components = world.components()?;
    until("the Service is there", LONG, || async {
        let ready = ready_of(&components.get(name).await?);
        Ok(ready.is_some_and(|(status, ..)| status == "True").then_some(()))
    })
    .await?;
    let uid = component.uid().context("a uid")?;
    let refused =
        asked(world, &uid, mark)?.into_iter().filter(|event| event.is_write() && event.code == 403).count();
    assert!((1..=3).contains(&refused), "{refused} tries");
    told_once(world, name, "QuotaExceeded").await
}

#[tokio::test]
async fn immutable_field_is_reported_until_user_deletes_the_object() -> Result<()> {
    let world = world().await?;
    let name = "fixed";
    let content = |value: &str| {
        let other = manifest("ConfigMap", "free", &json!({"data": {"a": value}}));
        format!(
            "{}{other}",
            manifest("ConfigMap", "fixed", &json!({"immutable": true, "data": {"a": value}}))
        )
    };
    wish(world, name, "1.0.0", &content("one")).await?;
    world.ready(name, "True", "Ready").await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, name);
    let before = maps.get("fixed").await?.uid();
    wish(world, name, "1.1.0", &content("two")).await?;
    let component = world.ready(name, "False", "ImmutableField").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert!(message.contains("ConfigMap fixed/fixed: cannot be changed: data"), "{message}");
    assert_eq!(maps.get("fixed").await?.uid(), before, "it is never deleted to be made anew");
    assert_eq!(maps.get("free").await?.data.unwrap_or_default()["a"], "two", "the others of its stage go on");
    passes(world, name, "ImmutableField", PASSES).await?;
    maps.delete("fixed", &DeleteParams::default()).await?;
    world.ready(name, "True", "Ready").await?;
    assert_eq!(maps.get("fixed").await?.data.unwrap_or_default()["a"], "two");
    told_once(world, name, "ImmutableField").await
}

#[tokio::test]
async fn a_value_of_a_wrong_type_is_named_by_path_and_never_told() -> Result<()> {
    let world = world().await?;
    let name = "mistyped";
    let content = |value: &Value| manifest("ConfigMap", "mistyped", &json!({"data": {"level": value}}));
    wish(world, name, "1.0.0", &content(&json!(["hush-hush"]))).await?;
    let component = world.ready(name, "False", "ApplyRefused").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert!(message.contains("data.level") && !message.contains("hush"), "{message}");
    passes(world, name, "ApplyRefused", PASSES).await?;
    wish(world, name, "1.0.1", &content(&json!("low"))).await?;
    world.ready(name, "True", "Ready").await?;
    told_once(world, name, "ApplyRefused").await
}

/// Returns a webhook for ConfigMaps of its own namespace, with its workload in the same component.
fn guarded(name: &str) -> String {
    let labels = json!({"app": name});
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "guard"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "guard", "image": "guard"}]}},
    }});
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.org"), "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "guard", "namespace": name}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        }],
    });
    let config = manifest("ConfigMap", "settings", &json!({"data": {"a": "b"}}));
    let service =
        manifest("Service", "guard", &json!({"spec": {"selector": labels, "ports": [{"port": 443}]}}));
    format!("{config}{service}---\n{workload}\n---\n{webhook}\n")
}

#[tokio::test]
async fn dead_webhook_of_component_does_not_block_its_own_workload() -> Result<()> {
    let world = world().await?;
    let name = "webhooked";
    wish(world, name, "1.0.0", &guarded(name)).await?;
    world.ready(name, "True", "Ready").await?;
    let client = world.target.client()?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
    let workloads: Api<Deployment> = Api::namespaced(client.clone(), name);
    let before = workloads.get("guard").await?.uid();
    // The webhook has no server here; now it is called.
    until_refused(&maps, json!({"metadata": {"name": "probe"}}), "failed calling webhook").await?;
    maps.delete("settings", &DeleteParams::default()).await?;
    let component = world.ready(name, "False", "WebhookFailed").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert!(message.contains("webhooked.example.org") && message.contains("settings"), "{message}");
    workloads.delete("guard", &DeleteParams::default()).await?;
    until("the workload is back", DEADLINE, || async {
        let found = workloads.get_opt("guard").await?;
        Ok(found.is_some_and(|found| found.uid() != before).then_some(()))
    })
    .await?;
    assert!(maps.get_opt("settings").await?.is_none());

    // The manifest does not set failurePolicy, so others may set it.
    let webhooks: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        Api::all(client);
    let forgiving = json!({"webhooks": [{"name": format!("{name}.example.org"), "failurePolicy": "Ignore"}]});
    webhooks.patch(name, &PatchParams::default(), &Patch::Strategic(forgiving)).await?;
    until("the ConfigMap is back", LONG, || async { Ok(maps.get_opt("settings").await?) }).await?;
    world.ready(name, "True", "Ready").await?;
    told_once(world, name, "WebhookFailed").await
}
