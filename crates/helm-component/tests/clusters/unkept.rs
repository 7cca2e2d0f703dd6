//! A take-over stores on the hub what it finds before it sends any object.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kyma_api::annotations;
use serde_json::{Value, json};
use testbed::until;

use crate::hooks::USER;
use crate::take_over::{adoption, content, installed, level, spec};
use crate::world::{DEADLINE, World, apply_yaml, world};

const NAME: &str = "unkept";

/// Reports whether one of the policies below refused the request.
pub(crate) fn is_denied<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.message.contains("not now"))
}

/// Returns the patch that requests a reconcile, so that no retry has to be awaited.
fn asked_for(when: &str) -> Value {
    json!({"metadata": {"annotations": {annotations::RECONCILE_REQUESTED_AT: when}}})
}

/// Makes the hub refuse every status of the component with `adopted`.
async fn refuse(world: &World) -> Result<()> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["component.kyma-project.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
                "resources": ["helmcomponents/status"],
            }]},
            "matchConditions": [{"name": "it", "expression": format!("object.metadata.name == '{NAME}'")}],
            "validations": [{"expression": "!has(object.status.adopted)", "message": "not now"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME}, "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    });
    let client = world.hub.client()?;
    apply_yaml(&client, &policy.to_string()).await?;
    apply_yaml(&client, &binding.to_string()).await?;
    let components = world.components()?;
    let adopted = json!({"status": {"adopted": {"from": ["nobody"]}}});
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    until("the hub refuses it", DEADLINE, || async {
        let patched = components.patch_status(NAME, &dry_run, &Patch::Merge(&adopted)).await;
        Ok(is_denied(&patched).then_some(()))
    })
    .await
}

/// Makes the target refuse changes of the release's ConfigMaps by the operator.
async fn refuse_on_target(world: &World, name: &str) -> Result<()> {
    let allowed = format!(
        "request.userInfo.username != '{USER}' && (!has(object.metadata.annotations) || !('probe' in object.metadata.annotations))"
    );
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["configmaps"],
                }],
            },
            "validations": [{"expression": allowed, "message": "not now"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let client = world.target.client()?;
    apply_yaml(&client, &policy.to_string()).await?;
    apply_yaml(&client, &binding.to_string()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, name);
    let edit = json!({"metadata": {"annotations": {"probe": "x"}}});
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    until("the target refuses it", DEADLINE, || async {
        let patched = maps.patch("settings", &dry_run, &Patch::Merge(&edit)).await;
        Ok(is_denied(&patched).then_some(()))
    })
    .await
}

/// Returns the number of failed passes over the component in the operator's log.
fn passes(world: &World) -> Result<usize> {
    let log = std::fs::read_to_string(world.operator.log())?;
    Ok(log.lines().filter(|line| line.contains(NAME) && line.contains("HubRefused")).count())
}

#[tokio::test]
async fn what_the_hub_does_not_keep_of_a_take_over_is_not_acted_on() -> Result<()> {
    let world = world().await?;
    let source = installed(world, NAME, "level=low,extra=true").await?;
    let before = content(world, NAME).await?;
    let mut unheard = source.clone();
    unheard["chart"]["version"] = json!("9.9.9");
    world.apply(NAME, spec(&unheard, NAME, &json!({}))).await?;
    world.ready(NAME, "False", "SourceNotFound").await?;
    refuse(world).await?;

    world.apply(NAME, spec(&source, NAME, &json!({"values": {"level": "high"}}))).await?;
    let refused = world.ready(NAME, "False", "HubRefused").await?;
    assert_eq!(adoption(&refused), None);
    let components = world.components()?;
    for number in 0..3 {
        let seen = passes(world)?;
        let again = asked_for(&number.to_string());
        components.patch(NAME, &PatchParams::default(), &Patch::Merge(again)).await?;
        until("there was another pass", DEADLINE, || async { Ok((passes(world)? > seen).then_some(())) })
            .await?;
        assert_eq!(content(world, NAME).await?, before, "nothing was sent or deleted");
    }

    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.hub.client()?);
    bindings.delete(NAME, &DeleteParams::default()).await?;
    until("it is taken over", DEADLINE, || async {
        // The deletion of a policy takes effect after a moment.
        let again = asked_for(&jiff::Timestamp::now().to_string());
        components.patch(NAME, &PatchParams::default(), &Patch::Merge(again)).await?;
        Ok((level(world, NAME, "settings").await?.as_deref() == Some("high")).then_some(()))
    })
    .await?;
    world.ready(NAME, "True", "Ready").await?;
    let extra = level(world, NAME, "extra").await?;
    assert_eq!(extra, None, "the record names it, and the values bring it no more");
    content(world, NAME).await?.remove("Job upgrades").context("hooks of an upgrade ran")?;
    Ok(())
}

/// The operator is killed after the result of its search is on the hub, and before it sends any object.
#[tokio::test]
async fn new_process_resumes_adoption_as_an_upgrade() -> Result<()> {
    let mut world = World::start().await?;
    let name = "outlived";
    let source = installed(&world, name, "level=low,extra=true").await?;
    let installs = content(&world, name).await?.remove("Job installs");
    refuse_on_target(&world, name).await?;
    world.apply(name, spec(&source, name, &json!({"values": {"level": "high"}}))).await?;
    let denied = world.ready(name, "False", "WebhookDenied").await?;
    assert_eq!(adoption(&denied).context("adopted")?.revision, Some(1));
    assert_eq!(level(&world, name, "settings").await?.as_deref(), Some("low"));

    world.restart_operator().await?;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.target.client()?);
    bindings.delete(name, &DeleteParams::default()).await?;
    let components = world.components()?;
    until("the upgrade is there", DEADLINE, || async {
        let again = asked_for(&jiff::Timestamp::now().to_string());
        components.patch(name, &PatchParams::default(), &Patch::Merge(again)).await?;
        Ok((level(&world, name, "settings").await?.as_deref() == Some("high")).then_some(()))
    })
    .await?;
    world.ready(name, "True", "Ready").await?;
    let after = content(&world, name).await?;
    assert_eq!(after.get("Job installs"), installs.as_ref(), "hooks of an installation do not run");
    assert!(after.contains_key("Job upgrades"), "{:?}", after.keys());
    assert!(!after.contains_key("ConfigMap extra"), "the record named it, and the values bring it no more");
    Ok(())
}
