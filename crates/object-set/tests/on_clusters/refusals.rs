//! Objects that the target or the owner's rules refuse.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kyma_api::{ErrorClass, Reason};
use kyma_object_set::{
    Cluster, Failure, Identity, NoObservations, OWNER_LABEL, ObservedObject, Outcome, Refusal,
};
use serde_json::json;
use testbed::{Answer, RequestMatcher, ScriptedServer};

use super::story::{MANAGER, Story, TEST_ENV, config_map, outcome};

#[tokio::test]
async fn immutable_fields_are_named() -> Result<()> {
    let mut story = Story::begin("immutable").await?;
    let deployment = |label: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  selector: {{matchLabels: {{a: {label}}}}}\n  template: {{metadata: {{labels: {{a: {label}}}}}, spec: {{containers: [{{name: c, image: x}}]}}}}\n"
        )
    };
    story.apply(&deployment("one")).await?;
    let applied = story.try_apply(&deployment("two"), &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "d") else { panic!("{applied:?}") };
    assert_eq!(error.failure, Failure::Immutable(vec!["spec.selector".into()]));

    let stateful = |service: &str| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: s}}\nspec:\n  serviceName: {service}\n  selector: {{matchLabels: {{a: b}}}}\n  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: x}}]}}}}\n"
        )
    };
    story.apply(&stateful("one")).await?;
    let applied = story.try_apply(&stateful("two"), &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "s") else { panic!("{applied:?}") };
    assert_eq!(error.failure, Failure::Immutable(vec!["spec".into()]));

    let secret = |kind: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\ntype: {kind}\nstringData: {{k: hush}}\n"
        )
    };
    story.apply(&secret("one")).await?;
    let applied = story.try_apply(&secret("two"), &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, "x") else { panic!("{applied:?}") };
    assert_eq!(refusal.reason(), kyma_api::Reason::ImmutableField);
    assert!(!format!("{applied:?}").contains("hush"));
    Ok(())
}

#[tokio::test]
async fn invalid_objects_are_refused_by_path_and_hold_up_later_stages() -> Result<()> {
    let mut story = Story::begin("invalid").await?;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {'not a key': hunter2}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: later}\nspec: {ports: [{port: 1}]}\n";
    let applied = story.try_apply(text, &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "c") else { panic!("{applied:?}") };
    assert!(matches!(error.failure, Failure::Refused(_)), "{error:?}");
    assert_eq!(error.reason(), kyma_api::Reason::ApplyRefused);
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert!(matches!(outcome(&applied, "later"), Outcome::Skipped));
    assert!(!applied.is_complete());

    let unknown =
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 1}], prots: 1}\n";
    let applied = story.try_apply(unknown, &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "s") else { panic!("{applied:?}") };
    assert!(error.to_string().contains("prots"), "{error}");
    Ok(())
}

#[tokio::test]
async fn item_kept_by_another_manager_is_named_and_removed_with_it() -> Result<()> {
    let mut story = Story::begin("kept-port").await?;
    let service = |port: u16| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{selector: {{a: b}}, ports: [{{name: http, port: {port}}}]}}\n"
        )
    };
    story.apply(&service(80)).await?;
    let services: Api<Service> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
    let nothing = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
    let mut theirs = nothing.clone();
    theirs["spec"] = json!({"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]});
    let params = PatchParams::apply("them");
    services.patch("s", &params, &Patch::Apply(&theirs)).await?;

    // This results in two ports of one name.
    let applied = story.try_apply(&service(8080), &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "s") else { panic!("{applied:?}") };
    let Failure::Refused(paths) = &error.failure else { panic!("{error:?}") };
    assert!(paths.iter().any(|path| path.starts_with("spec.ports[")), "{paths:?}");
    let ports = async || -> Result<Vec<i32>> {
        let ports = services.get("s").await?.spec.context("spec")?.ports;
        Ok(ports.into_iter().flatten().map(|port| port.port).collect())
    };
    assert_eq!(ports().await?, [80]);

    services.patch("s", &params, &Patch::Apply(&nothing)).await?;
    story.apply(&service(8080)).await?;
    assert_eq!(ports().await?, [8080]);
    assert_eq!(story.apply(&service(8080)).await?.changed().count(), 0);
    Ok(())
}

#[tokio::test]
async fn objects_are_sent_up_to_the_limit_of_api_servers() -> Result<()> {
    let mut story = Story::begin("large").await?;
    let reason = |applied: &kyma_object_set::ApplyReport, name: &str| match outcome(applied, name) {
        Outcome::Refused(refusal) => refusal.reason(),
        other => panic!("{other:?}"),
    };
    let applied = story.try_apply(&config_map("data", &"x".repeat((1 << 20) + 1)), &NoObservations).await?;
    assert_eq!(reason(&applied, "data"), Reason::ObjectTooLarge, "of a ConfigMap's data");
    let applied = story.try_apply(&config_map("request", &"x".repeat(3 << 20)), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "request"), Outcome::Refused(Refusal::TooLarge { .. })));
    let group = format!("{}.io", story.namespace);
    let thing = |size: usize| {
        let text = "x".repeat(size);
        format!(
            "{}---\napiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: t{size}}}\nspec: {{text: {text}}}\n",
            super::crds::crd(&group, &["v1"])
        )
    };
    story.apply(&thing(1_200_000)).await?;
    for size in [1_800_000, 2_500_000] {
        let applied = story.try_apply(&thing(size), &NoObservations).await?;
        assert_eq!(reason(&applied, &format!("t{size}")), Reason::ObjectTooLarge, "{size}");
    }
    Ok(())
}

#[tokio::test]
async fn protected_objects_are_refused_but_namespace_content_is_not() -> Result<()> {
    let mut story = Story::begin("protected").await?;
    let role = |name: &str| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: '{name}'}}\nrules: []\n"
        )
    };
    let applied = story.try_apply(&role("system:node"), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "system:node"), Outcome::Refused(Refusal::Protected { .. })));
    let own = format!("system:{}", story.namespace);
    story.apply(&role(&own)).await?;
    story.apply(&role(&own)).await?;

    let namespace =
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: kube-system, labels: {evil: 'yes'}}\n";
    story.apply(namespace).await?;
    let live =
        story.live(&kyma_object_set::Identity::new("", "Namespace", None, "kube-system")).await?.unwrap();
    assert!(!live.metadata.labels.unwrap().contains_key("evil"));
    let absent = namespace.replace("kube-system", "kube-mine");
    let applied = story.try_apply(&absent, &NoObservations).await?;
    assert!(matches!(outcome(&applied, "kube-mine"), Outcome::Refused(Refusal::Protected { .. })));

    let inside = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}, namespace: kube-system}}\n",
        story.namespace
    );
    story.apply(&inside).await?;
    assert!(story.uninstall_all().await?.kept.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_not_there_is_no_missing_kind() -> Result<()> {
    let mut story = Story::begin("nons").await?;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: not-there}\n";
    let applied = story.try_apply(text, &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "a") else { panic!("{applied:?}") };
    assert_eq!(error.failure, Failure::NamespaceMissing("not-there".into()));
    Ok(())
}

#[tokio::test]
async fn objects_unsent_at_the_deadline_are_sent_by_the_next_run() -> Result<()> {
    let mut story = Story::begin("late").await?;
    let text = format!("{}{}", config_map("a", "1"), config_map("b", "1"));
    story.until = Some(std::time::Instant::now());
    let late = story.try_apply(&text, &NoObservations).await?;
    anyhow::ensure!(late.ran_out_of_time() && !late.is_complete(), "{:?}", late.outcomes);
    anyhow::ensure!(story.inventory.is_empty() && story.config_maps().get_opt("a").await?.is_none());
    story.until = None;
    let next = story.apply(&text).await?;
    anyhow::ensure!(!next.ran_out_of_time() && next.changed().count() == 2, "{:?}", next.outcomes);
    Ok(())
}

#[tokio::test]
async fn a_conflict_causes_a_read_and_one_retry() -> Result<()> {
    let target = TEST_ENV.cluster("target", testbed::ClusterBuilder::with_controllers).await?;
    let proxy = ScriptedServer::in_front_of(&target).await?;
    let mut story = Story::begin("race").await?;
    story.cluster = Cluster::new(proxy.access().client()?);
    let patches = RequestMatcher::any().method("PATCH");
    let conflict = || Answer::failure(409, "Conflict", "the object has been modified");
    proxy.next(1, patches.clone(), conflict());
    let applied = story.try_apply(&config_map("a", "1"), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: true, .. }), "{applied:?}");
    assert_eq!(proxy.count(&patches), 2);

    proxy.always(patches.clone(), conflict());
    let applied = story.try_apply(&config_map("a", "2"), &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "a") else { panic!("{applied:?}") };
    assert_eq!((&error.failure, error.class()), (&Failure::Conflict, ErrorClass::Transient));
    assert_eq!(proxy.count(&patches), 4, "once more, and then it is the next pass's");
    proxy.clear();

    // The watch does not show yet that it was deleted.
    let seen = seen_by_watch(&story, "a").await?;
    story.config_maps().delete("a", &DeleteParams::default()).await?;
    let applied = story.try_apply(&config_map("a", "3"), &seen).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: true, .. }), "{applied:?}");

    // The watch does not show yet that another object has the name.
    let seen = seen_by_watch(&story, "a").await?;
    story.config_maps().delete("a", &DeleteParams::default()).await?;
    let theirs = serde_json::from_value(json!({"metadata": {"name": "a"}}))?;
    story.config_maps().create(&PostParams::default(), &theirs).await?;
    let applied = story.try_apply(&config_map("a", "4"), &seen).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: false, .. }), "{applied:?}");
    Ok(())
}

async fn seen_by_watch(story: &Story, name: &str) -> Result<BTreeMap<Identity, ObservedObject>> {
    let id = story.config_map(name);
    let live = story.live(&id).await?.context("it is there")?;
    Ok(BTreeMap::from([(id, ObservedObject::from_metadata(&live.metadata, MANAGER, OWNER_LABEL))]))
}
