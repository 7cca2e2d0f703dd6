//! Kinds and API versions that the target no longer serves.

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testbed::{crd_is_served, until};

use crate::chart::push;
use crate::depends::says;
use crate::world::{DEADLINE, HUB_NAMESPACE, World, api, apply_yaml, ready_of, world};

const CONFIG: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: {level: \"{{ .Values.level }}\"}\n";

fn crd(plural: &str, kind: &str) -> String {
    let schema = "schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: \
         {plural}.kinds.example.org}}\nspec:\n  group: kinds.example.org\n  names: {{kind: {kind}, plural: {plural}}}\n  \
         scope: Namespaced\n  versions:\n  - {{name: v1, served: true, storage: true, {schema}}}\n  - {{name: v1beta1, \
         served: true, storage: false, {schema}}}\n"
    )
}

fn object(kind: &str, version: &str) -> String {
    format!(
        "apiVersion: kinds.example.org/{version}\nkind: {kind}\nmetadata: {{name: one}}\nspec: {{level: \"{{{{ \
         .Values.level }}}}\"}}\n"
    )
}

fn spec(name: &str, source: &Value, level: &str) -> Value {
    json!({"source": source, "release": {"namespace": name}, "values": {"level": level}})
}

async fn is_there(world: &World, kind: &str, namespace: &str) -> Result<bool> {
    Ok(world.on_target("kinds.example.org/v1", kind, namespace, "one").await?.is_some())
}

#[tokio::test]
async fn object_of_removed_api_version_is_recorded_until_removal() -> Result<()> {
    let world = world().await?;
    let target = world.target.client()?;
    let lanterns = "lanterns.kinds.example.org";
    apply_yaml(&target, &crd("lanterns", "Lantern")).await?;
    crd_is_served(&target, lanterns).await?;
    let lantern = object("Lantern", "v1beta1");
    let files = [("templates/config.yaml", CONFIG), ("templates/lantern.yaml", &*lantern)];
    let old = push(world, "dated", "1.0.0", &files).await?;
    world.apply("dated", spec("dated", &old, "low")).await?;
    world.ready("dated", "True", "Ready").await?;

    let crds: Api<CustomResourceDefinition> = Api::all(target.clone());
    let gone = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    let gone: Patch<()> = Patch::Json(serde_json::from_value(gone)?);
    crds.patch(lanterns, &PatchParams::default(), &gone).await?;
    until("the version is no longer served", DEADLINE, || async {
        Ok((!world.is_discovered("kinds.example.org/v1beta1", "Lantern").await?).then_some(()))
    })
    .await?;
    world.apply("dated", spec("dated", &old, "high")).await?;
    let message = says(world, "dated", "DependenciesReady", "DependencyMissing").await?;
    assert_eq!(message, "the target does not serve Lantern.kinds.example.org in version v1beta1");
    world.ready("dated", "False", "DependencyMissing").await?;
    assert!(is_there(world, "Lantern", "dated").await?);
    let component = world.components()?.get("dated").await?;
    let record = component.status.context("a status")?.entries()?;
    assert!(record.iter().any(|entry| entry.kind == "Lantern"), "it is still there");

    let without = push(world, "dated", "2.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    world.apply("dated", spec("dated", &without, "high")).await?;
    world.ready("dated", "True", "Ready").await?;
    until("the object is gone", DEADLINE, || async {
        Ok((!is_there(world, "Lantern", "dated").await?).then_some(()))
    })
    .await
}

/// The kind is deleted while no operator runs, so only the record tells that it is missing and that its return must
/// be noticed.
#[tokio::test]
async fn kind_deleted_during_downtime_is_missing_then_noticed_again() -> Result<()> {
    let mut world = World::start().await?;
    let target = world.target.client()?;
    let beacons = "beacons.kinds.example.org";
    apply_yaml(&target, &crd("beacons", "Beacon")).await?;
    crd_is_served(&target, beacons).await?;
    let beacon = object("Beacon", "v1");
    let files = [("templates/config.yaml", CONFIG), ("templates/beacon.yaml", &*beacon)];
    let source = push(&world, "unseen", "1.0.0", &files).await?;
    world.apply("unseen", spec("unseen", &source, "low")).await?;
    world.ready("unseen", "True", "Ready").await?;

    world.operator.kill();
    let crds: Api<CustomResourceDefinition> = Api::all(target.clone());
    crds.delete(beacons, &DeleteParams::default()).await?;
    until("the kind is gone", DEADLINE, || async {
        let served = world.is_discovered("kinds.example.org/v1", "Beacon").await?;
        Ok((!served && crds.get_opt(beacons).await?.is_none()).then_some(()))
    })
    .await?;
    world.restart_operator().await?;
    let missing = says(&world, "unseen", "DependenciesReady", "DependencyMissing").await?;
    assert_eq!(missing, "the target does not serve Beacon.kinds.example.org");
    let component = world.ready("unseen", "False", "DependencyMissing").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert_eq!(message, missing);

    apply_yaml(&target, &crd("beacons", "Beacon")).await?;
    crd_is_served(&target, beacons).await?;
    until("the object is there again", DEADLINE, || async {
        Ok(is_there(&world, "Beacon", "unseen").await?.then_some(()))
    })
    .await?;
    world.ready("unseen", "True", "Ready").await?;
    says(&world, "unseen", "DependenciesReady", "Succeeded").await?;
    Ok(())
}

const SILENT: &str = "silent.example.org";
const THINGS: &str = "things.silent.example.org";

/// Creates an aggregated API without a server on the target.
async fn go_silent(target: &Client) -> Result<()> {
    let service = format!(
        "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: v1.{SILENT}}}\nspec:\n  group: \
         {SILENT}\n  version: v1\n  groupPriorityMinimum: 100\n  versionPriority: 100\n  insecureSkipTLSVerify: true\n  \
         service: {{name: none, namespace: default, port: 443}}\n"
    );
    apply_yaml(target, &service).await?;
    until("discovery tells that nobody answers", DEADLINE, || async {
        Ok(told_of(target).await?.contains(&Some("Stale".to_owned())).then_some(()))
    })
    .await
}

/// Returns the freshness that discovery reports for the versions of the group; empty if it does not know the group.
async fn told_of(target: &Client) -> Result<Vec<Option<String>>> {
    let groups = target.list_api_groups_aggregated().await?.items.into_iter();
    let named = |metadata: &ObjectMeta| metadata.name.as_deref() == Some(SILENT);
    let named = groups.filter(|group| group.metadata.as_ref().is_some_and(named));
    Ok(named.flat_map(|group| group.versions).map(|version| version.freshness).collect())
}

/// Replaces the aggregated API by a CRD of the same group.
async fn answer(target: &Client) -> Result<()> {
    let (services, _) = api(target, "apiregistration.k8s.io/v1", "APIService", None).await?;
    services.delete(&format!("v1.{SILENT}"), &DeleteParams::default()).await?;
    // An APIService that is created earlier under the same name would be taken for the deleted one.
    until("discovery forgets the API", DEADLINE, || async {
        Ok(told_of(target).await?.is_empty().then_some(()))
    })
    .await?;
    apply_yaml(target, &crd("things", "Thing").replace("kinds.example.org", SILENT)).await?;
    crd_is_served(target, THINGS).await
}

async fn thing_comes(world: &World) -> Result<()> {
    until("the object is there", DEADLINE, || async {
        let found = world.on_target("silent.example.org/v1", "Thing", "silenced", "one").await;
        Ok(found.ok().flatten().map(drop))
    })
    .await
}

/// Installs, upgrades with a prune, and removes a chart that does not use the API.
async fn a_bystander_comes_and_goes(world: &World) -> Result<()> {
    let [a, b, c] = ["a", "b", "c"].map(|name| CONFIG.replace("name: config", &format!("name: {name}")));
    let files = [("templates/a.yaml", &*a), ("templates/b.yaml", &*b), ("templates/c.yaml", &*c)];
    let first = push(world, "bystander", "1.0.0", &files).await?;
    world.apply("bystander", spec("bystander", &first, "low")).await?;
    world.ready("bystander", "True", "Ready").await?;
    let second = push(world, "bystander", "2.0.0", &files[..2]).await?;
    world.apply("bystander", spec("bystander", &second, "high")).await?;
    world.ready("bystander", "True", "Ready").await?;
    until("what left the chart is gone", DEADLINE, || async {
        Ok(world.on_target("v1", "ConfigMap", "bystander", "c").await?.is_none().then_some(()))
    })
    .await?;
    let live = world.on_target("v1", "ConfigMap", "bystander", "a").await?.context("a")?;
    assert_eq!(live.data["data"]["level"], "high");
    world.delete("bystander", "Delete").await?;
    world.gone("bystander").await?;
    assert!(world.on_target("v1", "ConfigMap", "bystander", "a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn an_api_without_backend_holds_up_only_its_own_objects() -> Result<()> {
    let mut world = World::start().await?;
    let target = world.target.client()?;
    go_silent(&target).await?;
    a_bystander_comes_and_goes(&world).await?;

    let thing = object("Thing", "v1").replace("kinds.example.org", SILENT);
    let files = [("templates/config.yaml", CONFIG), ("templates/thing.yaml", &*thing)];
    let source = push(&world, "silenced", "1.0.0", &files).await?;
    world.apply("silenced", spec("silenced", &source, "low")).await?;
    let component = world.ready("silenced", "False", "DiscoveryFailed").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert!(message.contains(SILENT), "{message}");
    assert!(world.on_target("v1", "ConfigMap", "silenced", "config").await?.is_some());
    answer(&target).await?;
    thing_comes(&world).await?;
    world.ready("silenced", "True", "Ready").await?;

    // The API stops while no operator runs, so only the record makes the next one notice its return.
    world.operator.kill();
    let crds: Api<CustomResourceDefinition> = Api::all(target.clone());
    crds.delete(THINGS, &DeleteParams::default()).await?;
    let (services, _) = api(&target, "apiregistration.k8s.io/v1", "APIService", None).await?;
    until("the API is gone", DEADLINE, || async {
        let service = services.get_opt(&format!("v1.{SILENT}")).await?;
        Ok((crds.get_opt(THINGS).await?.is_none() && service.is_none()).then_some(()))
    })
    .await?;
    go_silent(&target).await?;
    world.restart_operator().await?;
    let mut patient = spec("silenced", &source, "low");
    patient["timeouts"] = json!({"healthSeconds": 300});
    world.apply("silenced", patient).await?;
    world.ready("silenced", "True", "Ready").await?;
    answer(&target).await?;
    thing_comes(&world).await?;
    world.ready("silenced", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn object_lost_with_its_kind_is_forgotten_with_an_event() -> Result<()> {
    let world = world().await?;
    let (crd, candle) = (crd("candles", "Candle"), object("Candle", "v1"));
    let other = CONFIG.replace("name: config", "name: other");
    let maps = [("templates/config.yaml", CONFIG), ("templates/other.yaml", &*other)];
    let all = [&maps[..], &[("templates/crd.yaml", &*crd), ("templates/candle.yaml", &*candle)]].concat();
    // Otherwise the CRD would be restored at once.
    let spec = |source: &Value| {
        let mut spec = spec("burnt", source, "low");
        spec["drift"] = json!({"mode": "Off"});
        spec
    };
    world.apply("burnt", spec(&push(world, "burnt", "1.0.0", &all).await?)).await?;
    world.ready("burnt", "True", "Ready").await?;
    assert!(is_there(world, "Candle", "burnt").await?);
    let crds: Api<CustomResourceDefinition> = Api::all(world.target.client()?);
    crds.delete("candles.kinds.example.org", &DeleteParams::default()).await?;
    until("the kind is gone", DEADLINE, || async {
        let served = world.is_discovered("kinds.example.org/v1", "Candle").await?;
        Ok((!served && crds.get_opt("candles.kinds.example.org").await?.is_none()).then_some(()))
    })
    .await?;

    world.apply("burnt", spec(&push(world, "burnt", "2.0.0", &maps).await?)).await?;
    let component = world.ready("burnt", "True", "Ready").await?;
    let left: Vec<String> =
        component.status.context("a status")?.entries()?.into_iter().map(|entry| entry.name).collect();
    assert_eq!(left, ["config", "other"]);
    let events: Api<Event> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let told = until("people are told", DEADLINE, || async {
        let all = events.list(&ListParams::default()).await?.items.into_iter();
        let of_it = all.filter(|event| {
            let name = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            name == Some("burnt") && event.reason.as_deref() == Some("Orphaned")
        });
        let times = |event: &Event| event.series.as_ref().map_or(1, |series| series.count);
        let notes: Vec<_> = of_it.map(|event| (times(&event), event.note.unwrap_or_default())).collect();
        Ok((!notes.is_empty()).then_some(notes))
    })
    .await?;
    assert_eq!(
        told,
        [(
            1,
            "no longer served, and removed from the inventory: Candle.kinds.example.org burnt/one".to_owned()
        )]
    );
    Ok(())
}
