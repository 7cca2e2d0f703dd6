//! Lists with duplicate keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kyma_api::Reason;
use kyma_object_set::{DryRun, Identity, NoObservations, Outcome, Refusal};
use serde_json::{Value, json};

use super::story::{MANAGER, Story, outcome};

fn deployment(image: &str, env: &str, ports: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  replicas: 0\n  selector: {{matchLabels: {{a: b}}}}\n  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: {image}, env: {env}, ports: {ports}}}]}}}}\n"
    )
}

async fn pod_spec(story: &Story) -> Result<PodSpec> {
    let api: Api<Deployment> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
    api.get("d").await?.spec.context("spec")?.template.spec.context("the Pod's")
}

async fn variables(story: &Story) -> Result<Vec<String>> {
    Ok(variables_of(pod_spec(story).await?))
}

fn variables_of(mut pod: PodSpec) -> Vec<String> {
    let env = pod.containers.remove(0).env.unwrap_or_default();
    env.into_iter().map(|one| format!("{}={}", one.name, one.value.unwrap_or_default())).collect()
}

const ENV_WITH_DUPLICATES: &str =
    "[{name: FOO, value: foo}, {name: BAR, value: $(FOO)}, {name: FOO, value: foo-$(FOO)}]";

#[tokio::test]
async fn list_that_changes_meaning_without_duplicates_is_as_written() -> Result<()> {
    let mut story = Story::begin("as-written").await?;
    let ports = "[{containerPort: 80, name: http}, {containerPort: 80, name: metrics}]";
    let applied = story.apply(&deployment("x:1", ENV_WITH_DUPLICATES, ports)).await?;
    assert!(applied.warnings.is_empty(), "{:?}", applied.warnings);
    assert_eq!(variables(&story).await?, ["FOO=foo", "BAR=$(FOO)", "FOO=foo-$(FOO)"]);
    let names = async || -> Result<Vec<String>> {
        let ports = pod_spec(&story).await?.containers.remove(0).ports.unwrap_or_default();
        Ok(ports.into_iter().filter_map(|port| port.name).collect())
    };
    assert_eq!(names().await?, ["http", "metrics"]);
    assert_eq!(
        story.apply(&deployment("x:1", ENV_WITH_DUPLICATES, ports)).await?.changed().count(),
        0,
        "nothing is sent again"
    );

    story.apply(&deployment("x:2", ENV_WITH_DUPLICATES, ports)).await?;
    assert_eq!(variables(&story).await?, ["FOO=foo", "BAR=$(FOO)", "FOO=foo-$(FOO)"]);

    // A removed variable disappears with both of its values.
    story.apply(&deployment("x:2", "[{name: BAR, value: bar}]", "[{containerPort: 80, name: http}]")).await?;
    assert_eq!(variables(&story).await?, ["BAR=bar"]);
    let api: Api<Deployment> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
    let managers = api.get("d").await?.metadata.managed_fields.unwrap_or_default();
    let managers: Vec<_> = managers.iter().filter(|entry| entry.subresource.is_none()).collect();
    let own = managers
        .iter()
        .filter(|entry| entry.manager.as_deref().is_some_and(|name| name.starts_with(MANAGER)));
    assert_eq!(own.count(), 1, "{managers:?}");
    Ok(())
}

#[tokio::test]
async fn duplicates_that_change_nothing_leave_the_last_with_a_warning() -> Result<()> {
    let mut story = Story::begin("harmless").await?;
    let env = "[{name: A, value: a}, {name: B, value: b}, {name: A, value: c}]";
    let applied =
        story.apply(&deployment("x", env, "[{containerPort: 80}, {containerPort: 80, name: http}]")).await?;
    assert_eq!(applied.warnings.len(), 2, "{:?}", applied.warnings);
    assert_eq!(variables(&story).await?, ["B=b", "A=c"]);
    Ok(())
}

#[tokio::test]
async fn duplicates_that_the_api_server_never_takes_are_named() -> Result<()> {
    let mut story = Story::begin("never").await?;
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{name: a, port: 80}, {name: b, port: 80}]}\n";
    let applied = story.try_apply(service, &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "s") else { panic!("{applied:?}") };
    assert!(error.to_string().contains("port=80"), "{error}");

    let env = "[{name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, value: $(A)}, {name: A, value: b}]";
    let applied = story.try_apply(&deployment("x", env, "[]"), &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "d") else { panic!("{applied:?}") };
    assert!(error.to_string().contains("env has name=A more than once"), "{error}");
    Ok(())
}

#[tokio::test]
async fn drift_in_a_list_as_written_is_repaired() -> Result<()> {
    let mut story = Story::begin("written-drift").await?;
    story.apply(&deployment("x", ENV_WITH_DUPLICATES, "[]")).await?;
    let api: Api<Deployment> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/env", "value": [{"name": "FOO", "value": "x"}]}]);
    let patch: json_patch::Patch = serde_json::from_value(patch)?;
    let params = PatchParams { field_manager: Some("person".into()), ..Default::default() };
    api.patch("d", &params, &Patch::<()>::Json(patch)).await?;
    story.apply(&deployment("x", ENV_WITH_DUPLICATES, "[]")).await?;
    assert_eq!(variables(&story).await?, ["FOO=foo", "BAR=$(FOO)", "FOO=foo-$(FOO)"]);
    Ok(())
}

/// A kind that no controller writes to.
fn template() -> String {
    format!(
        "apiVersion: v1\nkind: PodTemplate\nmetadata: {{name: p}}\ntemplate: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: x, env: {ENV_WITH_DUPLICATES}}}]}}}}\n"
    )
}

fn template_of(story: &Story) -> Identity {
    Identity::new("", "PodTemplate", Some(&story.namespace), "p")
}

async fn live_template(story: &Story) -> Result<(PodTemplate, Vec<String>)> {
    let templates: Api<PodTemplate> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
    let live = templates.get("p").await?;
    let pod = live.template.clone().and_then(|template| template.spec).context("the Pod's")?;
    Ok((live, variables_of(pod)))
}

/// Adds a variable to the PodTemplate, as an injector does.
async fn inject(api: Api<DynamicObject>, name: String, number: usize) -> kube::Result<()> {
    let env = json!([{"name": format!("INJECTED{number}"), "value": "i"}]);
    let container = json!({"name": "c", "env": env});
    let patch = Patch::Strategic(json!({"template": {"spec": {"containers": [container]}}}));
    api.patch(&name, &PatchParams::default(), &patch).await.map(drop)
}

/// Deletes the PodTemplate and creates another one like it.
async fn replace(api: Api<DynamicObject>, name: String, _: usize) -> kube::Result<()> {
    let mut same = api.get(&name).await?;
    api.delete(&name, &DeleteParams::default()).await?;
    same.metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
    api.create(&PostParams::default(), &same).await.map(drop)
}

#[tokio::test]
async fn list_is_restored_with_items_that_are_added_meanwhile() -> Result<()> {
    let mut story = Story::begin("written-injected").await?;
    let (_proxy, left) = story.write_meanwhile(&template_of(&story), 3, inject).await?;
    let applied = story.try_apply(&template(), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "p"), Outcome::Applied { created: true, .. }), "{applied:?}");
    assert_eq!(left.load(Ordering::Relaxed), 0);
    let (_, variables) = live_template(&story).await?;
    let (injected, written): (Vec<_>, Vec<_>) =
        variables.into_iter().partition(|variable| variable.starts_with("INJECTED"));
    assert_eq!(written, ["FOO=foo", "BAR=$(FOO)", "FOO=foo-$(FOO)"]);
    assert_eq!(injected.len(), 3, "{injected:?}");
    Ok(())
}

#[tokio::test]
async fn object_that_is_replaced_meanwhile_keeps_its_lists() -> Result<()> {
    let mut story = Story::begin("written-replaced").await?;
    let (_proxy, left) = story.write_meanwhile(&template_of(&story), 1, replace).await?;
    let applied = story.try_apply(&template(), &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "p") else { panic!("{applied:?}") };
    assert_eq!(error.reason(), Reason::ApplyConflict, "{error}");
    assert_eq!(left.load(Ordering::Relaxed), 0);
    let (_, variables) = live_template(&story).await?;
    assert_eq!(variables, ["BAR=$(FOO)", "FOO=foo-$(FOO)"], "the new object has one item for each key");
    Ok(())
}

#[tokio::test]
async fn fields_of_a_list_move_although_other_clients_write_meanwhile() -> Result<()> {
    let mut story = Story::begin("written-meanwhile").await?;
    let (_proxy, left) = story.annotate_meanwhile(&template_of(&story), 6).await?;
    let applied = story.try_apply(&template(), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "p"), Outcome::Applied { created: true, .. }), "{applied:?}");
    assert_eq!(left.load(Ordering::Relaxed), 0);
    let (live, variables) = live_template(&story).await?;
    assert_eq!(live.annotations()["left"], "1", "the annotation of the other client stays");
    assert_eq!(variables, ["FOO=foo", "BAR=$(FOO)", "FOO=foo-$(FOO)"]);
    Ok(())
}

#[tokio::test]
async fn constant_writes_of_another_client_are_reported_as_conflict() -> Result<()> {
    let mut story = Story::begin("written-always").await?;
    let (_proxy, _) = story.annotate_meanwhile(&template_of(&story), usize::MAX).await?;
    let applied = story.try_apply(&template(), &NoObservations).await?;
    let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "p") else { panic!("{applied:?}") };
    assert_eq!(error.reason(), Reason::ApplyConflict, "{error}");
    Ok(())
}

fn job(label: &str, env: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: d, labels: {{l: {label}}}}}\nspec:\n  suspend: true\n  template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: x, env: {env}}}]}}}}\n"
    )
}

#[tokio::test]
async fn a_job_is_created_with_the_list_as_written_and_never_changed() -> Result<()> {
    for are_new in [false, true] {
        let mut story = Story::begin("written-job").await?;
        story.are_new = are_new;
        let api: Api<Job> = Api::namespaced(story.cluster.client.clone(), &story.namespace);
        let live = async || -> Result<(Job, Vec<String>)> {
            let job = api.get("d").await?;
            let pod = job.spec.clone().context("spec")?.template.spec.context("the Pod's")?;
            Ok((job, variables_of(pod)))
        };
        let written = ["FOO=foo", "BAR=$(FOO)", "FOO=foo-$(FOO)"];

        story.apply(&job("one", ENV_WITH_DUPLICATES)).await?;
        let (before, variables) = live().await?;
        assert_eq!(variables, written);
        assert_eq!(before.metadata.generation, Some(1), "it had no other list before");
        assert_eq!(story.apply(&job("one", ENV_WITH_DUPLICATES)).await?.changed().count(), 0);

        story.apply(&job("two", ENV_WITH_DUPLICATES)).await?;
        let (after, variables) = live().await?;
        assert_eq!((after.uid(), after.labels()["l"].as_str()), (before.uid(), "two"));
        assert_eq!(variables, written);

        let other = ENV_WITH_DUPLICATES.replace("foo-", "bar-");
        let applied = story.try_apply(&job("two", &other), &NoObservations).await?;
        let Outcome::Refused(Refusal::Call(error)) = outcome(&applied, "d") else { panic!("{applied:?}") };
        assert_eq!(error.reason(), Reason::ImmutableField, "{error}");
        story.uninstall_all().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_dry_run_accepts_a_job_with_the_list_as_written() -> Result<()> {
    let mut story = Story::begin("written-dry-run").await?;
    story.apply(&job("one", ENV_WITH_DUPLICATES)).await?;
    let dry_run = Arc::new(DryRun::default());
    story.cluster.dry_run = Some(Arc::clone(&dry_run));
    let applied = story.try_apply(&job("two", ENV_WITH_DUPLICATES), &NoObservations).await?;
    assert!(matches!(outcome(&applied, "d"), Outcome::Applied { created: false, .. }), "{applied:?}");
    let diffs = dry_run.diffs();
    let (_, diff) = diffs.first().context("the change")?;
    assert_eq!(diff.after["metadata"]["labels"]["l"], "two");
    let env = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let before = env(diff.before.as_ref().context("the Job")?);
    assert_eq!(before.as_array().map(Vec::len), Some(3));
    assert_eq!(env(&diff.after), before);
    Ok(())
}
