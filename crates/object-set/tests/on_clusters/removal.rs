//! Prune and uninstall: objects that are deleted, and objects that stay.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use kyma_api::Reason;
use kyma_object_set::sweep::{self, UnlistablePolicy};
use kyma_object_set::{
    CallError, Cluster, Entry, Identity, Inventory, KeepReason, NoObservations, Outcome, Ownership,
    Protection, PruneBlocked, Removal, remove,
};
use serde_json::{Value, json};
use testbed::{Answer, RequestMatcher, ScriptedServer};

use super::story::{EVENT_TIMEOUT, Story, config_map, outcome};

fn namespace(name: &str, labels: &str) -> String {
    format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n")
}

#[tokio::test]
async fn a_prune_requires_a_complete_apply() -> Result<()> {
    let mut story = Story::begin("prune").await?;
    let [a, b, c] = ["a", "b", "c"].map(|name| config_map(name, "1"));
    story.apply(&format!("{a}{b}{c}")).await?;
    let broken = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: broken}\ndata: {'no key': x}\n";
    let applied = story.try_apply(&format!("{a}{b}{broken}"), &NoObservations).await?;
    assert_eq!(story.prune(&applied).await?.unwrap_err(), PruneBlocked::Incomplete);
    let applied = story.apply(&a).await?;
    assert!(matches!(story.prune(&applied).await?, Err(PruneBlocked::Shrunken { .. })));
    let applied = story.apply(&format!("{a}{b}")).await?;
    assert_eq!(story.prune(&applied).await?.unwrap().gone, [story.config_map("c")]);
    assert!(story.config_maps().get_opt("c").await?.is_none());
    assert!(story.prune(&applied).await?.unwrap().gone.is_empty());
    Ok(())
}

/// Returns a Namespace with a workload, its configuration and a claim.
fn shop(namespace: &str) -> String {
    format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n{}", goods(namespace))
}

fn goods(namespace: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: {namespace}}}\nspec:\n  replicas: 0\n  selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    spec: {{containers: [{{name: c, image: none.example.org/c}}]}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, namespace: {namespace}}}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data, namespace: {namespace}}}\nspec:\n  accessModes: [ReadWriteOnce]\n  resources: {{requests: {{storage: 1Mi}}}}\n"
    )
}

pub(super) async fn is_left(story: &Story, identity: &Identity) -> Result<bool> {
    Ok(story.live(identity).await?.is_some_and(|live| live.metadata.deletion_timestamp.is_none()))
}

#[tokio::test]
async fn a_namespace_with_desired_objects_stays_after_it_left_the_set() -> Result<()> {
    let mut story = Story::begin("prunens").await?;
    let place = format!("{}-shop", story.namespace);
    let namespace = Identity::new("", "Namespace", None, &place);
    story.apply(&shop(&place)).await?;
    let applied = story.apply(&goods(&place)).await?;
    let removal = story.prune(&applied).await?.unwrap();
    assert_eq!(removal.kept.keys().collect::<Vec<_>>(), [&namespace], "{removal:?}");
    let why = removal.kept[&namespace];
    assert!(matches!(why, KeepReason::WantedObjects | KeepReason::HoldsData), "{why}");
    let claim = Identity::new("", "PersistentVolumeClaim", Some(&place), "data");
    let deployment = Identity::new("apps", "Deployment", Some(&place), "d");
    for identity in [&namespace, &claim, &deployment] {
        assert!(is_left(&story, identity).await?, "{identity}");
    }
    assert!(!story.inventory.contains(&namespace), "it was given up");
    assert!(story.prune(&applied).await?.unwrap().kept.is_empty());
    Ok(())
}

#[tokio::test]
async fn prune_of_a_whole_namespace_leaves_claims_and_namespace() -> Result<()> {
    let mut story = Story::begin("moves").await?;
    let (old, new) = (format!("{}-old", story.namespace), format!("{}-new", story.namespace));
    story.apply(&shop(&old)).await?;
    let applied = story.apply(&shop(&new)).await?;
    let removal = story.prune(&applied).await?.unwrap();
    let namespace = Identity::new("", "Namespace", None, &old);
    let claim = Identity::new("", "PersistentVolumeClaim", Some(&old), "data");
    let expected = [(claim.clone(), KeepReason::HoldsData), (namespace.clone(), KeepReason::HoldsData)];
    assert_eq!(removal.kept, expected.into());
    assert_eq!(removal.gone.len(), 2, "{removal:?}");
    assert!(is_left(&story, &namespace).await? && is_left(&story, &claim).await?);
    let labels = story.live(&claim).await?.unwrap().metadata.labels.unwrap_or_default();
    assert!(!labels.contains_key(kyma_object_set::OWNER_LABEL), "{labels:?}");
    Ok(())
}

#[tokio::test]
async fn a_prune_deletes_a_namespace_unless_others_own_objects_in_it() -> Result<()> {
    let mut story = Story::begin("emptied").await?;
    let mut neighbour = story.neighbour("1.0.0");
    let places = ["left", "let"].map(|name| format!("{}-{name}", story.namespace));
    let with_map = |place: &String| {
        format!(
            "{}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {place}}}\n",
            namespace(place, "")
        )
    };
    let rest = ["a", "b", "c", "d"].map(|name| config_map(name, "1")).concat();
    story.apply(&format!("{rest}{}", places.each_ref().map(with_map).concat())).await?;
    let theirs = format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: theirs, namespace: {}}}\n",
        places[1]
    );
    neighbour.apply(&theirs).await?;
    let applied = story.apply(&rest).await?;
    let removal = story.prune(&applied).await?.unwrap();
    let [left, held] = places.each_ref().map(|place| Identity::new("", "Namespace", None, place));
    assert_eq!(removal.kept, [(held.clone(), KeepReason::ForeignObjects)].into());
    assert!(!is_left(&story, &left).await?, "{removal:?}");
    let theirs = Identity::new("", "ConfigMap", Some(&places[1]), "theirs");
    assert!(is_left(&story, &held).await? && is_left(&story, &theirs).await?);
    Ok(())
}

#[tokio::test]
async fn objects_that_are_not_provably_ours_stay() -> Result<()> {
    let mut story = Story::begin("notours").await?;
    let names = ["keep", "relabelled", "recreated", "stripped", "plain", "rest"];
    let all: String = names.map(|name| config_map(name, "1")).concat();
    story.apply(&all).await?;
    story.edit("keep", json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}})).await?;
    let label = kyma_object_set::OWNER_LABEL;
    story.edit("relabelled", json!({"metadata": {"labels": {label: "them"}}})).await?;
    story.edit("stripped", json!({"metadata": {"labels": {label: null}}})).await?;
    story.config_maps().delete("recreated", &DeleteParams::default()).await?;
    let again = serde_json::from_value(json!({"metadata": {"name": "recreated"}}))?;
    story.config_maps().create(&PostParams::default(), &again).await?;

    let removal = story.uninstall_all().await?;
    let expected = [
        (story.config_map("keep"), KeepReason::ResourcePolicy),
        (story.config_map("relabelled"), KeepReason::OtherOwner),
        (story.config_map("recreated"), KeepReason::NotTheSame),
        (story.config_map("stripped"), KeepReason::MarkLost),
    ];
    assert_eq!(removal.kept, expected.into());
    assert!(story.config_maps().get_opt("plain").await?.is_none());
    assert!(story.inventory.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_namespace_of_ours_goes_when_nothing_foreign_is_in_it() -> Result<()> {
    let mut story = Story::begin("owns").await?;
    let name = format!("{}-made", story.namespace);
    let id = Identity::new("", "Namespace", None, &name);
    let text = format!(
        "{}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {name}}}\n",
        namespace(&name, "team: one")
    );
    story.apply(&text).await?;
    assert_eq!(story.live(&id).await?.unwrap().metadata.labels.unwrap()["team"], "one");
    assert_eq!(story.apply(&text).await?.changed().count(), 0);
    let removal = story.uninstall_all().await?;
    assert!(removal.kept.is_empty(), "{removal:?}");
    testbed::until("the namespace to be gone", EVENT_TIMEOUT, || async {
        Ok(story.live(&id).await?.is_none().then_some(()))
    })
    .await?;
    Ok(())
}

/// Objects whose owner outside of the Namespace exists belong to others; objects whose owner is gone are deleted
/// with the Namespace.
#[tokio::test]
async fn a_namespace_with_objects_of_an_outside_controller_stays() -> Result<()> {
    let mut story = Story::begin("controlled").await?;
    let client = story.cluster.client.clone();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{}-theirs", story.namespace)},
    });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let places = ["held", "left"].map(|name| format!("{}-{name}", story.namespace));
    let text = places.each_ref().map(|place| namespace(place, "")).join("---\n");
    story.apply(&text).await?;
    let uids = [role.metadata.uid.clone().unwrap(), "of-one-that-went".to_owned()];
    for (place, uid) in places.iter().zip(uids) {
        let owner = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "name": role.name_any(), "uid": uid, "controller": true,
        });
        let made = json!({"metadata": {"name": "made", "ownerReferences": [owner]}});
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), place);
        maps.create(&PostParams::default(), &serde_json::from_value(made)?).await?;
    }
    let removal = story.uninstall_all().await?;
    let held = Identity::new("", "Namespace", None, &places[0]);
    assert_eq!(removal.kept, [(held, KeepReason::ForeignObjects)].into());
    roles.delete(&role.name_any(), &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn preexisting_or_used_namespace_stays_without_owner_labels() -> Result<()> {
    let mut story = Story::begin("foreign").await?;
    let made = format!("{}-made", story.namespace);
    let before = story.namespace.clone();
    story.apply(&format!("{}{}", namespace(&made, "team: one"), namespace(&before, "team: one"))).await?;
    let in_made: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(story.cluster.client.clone(), &made);
    let users = serde_json::from_value(json!({"metadata": {"name": "users"}}))?;
    in_made.create(&PostParams::default(), &users).await?;

    let removal = story.uninstall_all().await?;
    let of = |name: &str| Identity::new("", "Namespace", None, name);
    let expected = [(of(&made), KeepReason::ForeignObjects), (of(&before), KeepReason::NotCreatedByUs)];
    assert_eq!(removal.kept, expected.into());
    for name in [&made, &before] {
        let labels = story.live(&of(name)).await?.unwrap().metadata.labels.unwrap();
        assert_eq!(labels.keys().collect::<Vec<_>>(), ["kubernetes.io/metadata.name"], "{name}");
    }
    assert!(in_made.get_opt("users").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn copies_of_our_label_put_nothing_at_risk() -> Result<()> {
    let mut story = Story::begin("copies").await?;
    let made = format!("{}-made", story.namespace);
    let inside = format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {made}}}\n");
    let text = format!("{}{inside}", namespace(&made, ""));
    story.apply(&text).await?;
    let in_made: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(story.cluster.client.clone(), &made);
    let labels = json!({kyma_object_set::OWNER_LABEL: story.ownership.owner});
    let copy = serde_json::from_value(json!({"metadata": {"name": "child", "labels": labels}}))?;
    in_made.create(&PostParams::default(), &copy).await?;

    let removal = story.uninstall_all().await?;
    assert_eq!(removal.kept.into_values().collect::<Vec<_>>(), [KeepReason::ForeignObjects]);
    assert!(in_made.get_opt("child").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn owners_share_a_namespace_and_users_labels_win() -> Result<()> {
    let mut story = Story::begin("sharedns").await?;
    let mut neighbour = story.neighbour("1.0.0");
    let name = format!("{}-made", story.namespace);
    let id = Identity::new("", "Namespace", None, &name);
    story.apply(&namespace(&name, "team: one, ours: a")).await?;
    neighbour.apply(&namespace(&name, "team: two, theirs: b")).await?;
    let labels = story.live(&id).await?.unwrap().metadata.labels.unwrap();
    assert_eq!(
        (labels["team"].as_str(), labels["ours"].as_str(), labels["theirs"].as_str()),
        ("one", "a", "b")
    );
    assert_eq!(story.apply(&namespace(&name, "team: one, ours: a")).await?.changed().count(), 0);

    let removal = story.uninstall_all().await?;
    assert_eq!(removal.kept, [(id.clone(), KeepReason::OtherOwner)].into());
    let labels = story.live(&id).await?.unwrap().metadata.labels.unwrap();
    assert!(!labels.contains_key("ours") && labels.contains_key("theirs"));
    // One of the owners created it, so the last owner may delete it.
    assert!(neighbour.uninstall_all().await?.kept.is_empty());
    Ok(())
}

#[tokio::test]
async fn one_of_owners_removed_concurrently_deletes_shared_objects() -> Result<()> {
    let mut story = Story::begin("leaving").await?;
    let mut neighbour = story.neighbour("1.0.0");
    let names: Vec<String> = (0..10).map(|number| format!("{}-{number}", story.namespace)).collect();
    let all: String = names.iter().map(|name| namespace(name, "")).collect();
    story.apply(&all).await?;
    neighbour.apply(&all).await?;
    let (one, other) = futures::join!(story.uninstall_all(), neighbour.uninstall_all());
    let kept: Vec<_> = one?.kept.into_keys().collect();
    let twice: Vec<_> = other?.kept.into_keys().filter(|identity| kept.contains(identity)).collect();
    assert!(twice.is_empty(), "each left these to the other: {twice:?}");
    Ok(())
}

#[tokio::test]
async fn an_uninstall_waits_for_finalizers_step_by_step() -> Result<()> {
    let mut story = Story::begin("steps").await?;
    let group = format!("{}.io", story.namespace);
    let text = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  names: {{kind: Thing, plural: things}}\n  versions:\n  - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}\n---\napiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: t, finalizers: [x.io/hold]}}\n{}",
        config_map("a", "1")
    );
    story.apply(&text).await?;
    let thing = Identity::new(&group, "Thing", Some(&story.namespace), "t");
    // API servers list a kind in discovery later than they serve it, and objects of unlisted kinds count as gone.
    testbed::until("the kind is listed", EVENT_TIMEOUT, || async {
        let kinds = story.cluster.discovery.rediscover(&story.cluster.client).await?;
        Ok(kinds.preferred(&thing.group_kind()).is_some().then_some(()))
    })
    .await?;
    let removal = story.uninstall().await?;
    assert_eq!(removal.waiting, std::slice::from_ref(&thing));
    assert_eq!(removal.later.len(), 2);
    assert!(story.config_maps().get_opt("a").await?.is_some());

    let patch = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let things = super::drift::things(&story, &group, "v1");
    things.patch("t", &kube::api::PatchParams::default(), &patch).await?;
    assert!(story.uninstall_all().await?.kept.is_empty());
    Ok(())
}

/// Returns a discovery response with these API groups.
fn groups(items: &Value) -> Answer {
    let list = json!({"apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "metadata": {}, "items": items});
    let type_ = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    Answer::json(&list).header("content-type", type_)
}

/// Returns the discovery of `silent.io` with kind Thing and this freshness: a group whose server is down keeps its
/// kinds and is Stale.
fn silent_group(freshness: &str) -> Value {
    let thing = json!({"resource": "things", "responseKind": {"group": "", "version": "", "kind": "Thing"},
        "scope": "Namespaced", "verbs": ["get", "list", "patch", "delete"]});
    let version = json!({"version": "v1", "freshness": freshness, "resources": [thing]});
    json!([{"metadata": {"name": "silent.io"}, "versions": [version]}])
}

/// Starts a target that answers 503 for objects of `silent.io`, and returns these discovery responses in turn, the
/// last one from then on.
async fn silent_target(told: &[Value]) -> Result<(ScriptedServer, Cluster)> {
    scripted_target(Answer::failure(503, "ServiceUnavailable", "down"), told).await
}

/// Starts a target that gives this answer for objects of `silent.io`, and these discovery responses in turn, the last
/// one from then on.
async fn scripted_target(answer: Answer, told: &[Value]) -> Result<(ScriptedServer, Cluster)> {
    let target = ScriptedServer::start().await?;
    target.always(RequestMatcher::path("/apis/silent.io"), answer);
    if let [first @ .., last] = told {
        for items in first {
            target.next(1, RequestMatcher::path("/apis"), groups(items));
        }
        target.always(RequestMatcher::path("/apis"), groups(last));
    }
    target.always(RequestMatcher::path("/api"), groups(&json!([])));
    let version = json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    target.always(RequestMatcher::path("/version"), Answer::json(&version));
    let cluster = Cluster::new(target.access().client()?);
    Ok((target, cluster))
}

fn thing(group: &str) -> Identity {
    Identity::new(group, "Thing", Some("n"), "t")
}

fn inventory_of(groups: &[&str]) -> Inventory {
    let entry = Entry { version: "v1".into(), uid: "u".into(), ..Entry::default() };
    groups.iter().map(|group| (thing(group), entry.clone())).collect()
}

fn us() -> Ownership {
    Ownership { manager: "m".into(), owner: "o".into(), version: String::new() }
}

/// Uninstalls an inventory, and returns the reasons of failures.
async fn uninstall(cluster: &Cluster, inventory: &Inventory) -> Result<(Removal, Vec<Reason>)> {
    let gated = cluster.clone().deleting_by(std::sync::Arc::new(super::deleter::OpenGate));
    let removal = remove::uninstall(&gated, inventory, &us(), &Protection::of_kubernetes()).await?;
    let failed = removal.failed.iter().map(CallError::reason).collect();
    Ok((removal, failed))
}

#[tokio::test]
async fn of_a_group_that_does_not_answer_nothing_is_given_up() -> Result<()> {
    let never_up =
        json!([{"metadata": {"name": "silent.io"}, "versions": [{"version": "v1", "freshness": "Stale"}]}]);
    for told in [never_up, silent_group("Stale")] {
        let (_target, cluster) = silent_target(&[told]).await?;
        let inventory = inventory_of(&["silent.io", "gone.io"]);
        let (removal, failed) = uninstall(&cluster, &inventory).await?;
        assert_eq!(failed, [Reason::DiscoveryFailed]);
        assert!(!removal.is_done() && removal.kept.is_empty());
        assert_eq!(removal.gone, [thing("gone.io")], "a group that is not there has no objects");
        assert_eq!(removal.unserved, removal.gone, "it is told why it is not there");
        assert!(removal.remaining(&inventory).contains(&thing("silent.io")));
    }
    Ok(())
}

#[tokio::test]
async fn only_a_404_that_names_the_object_shows_that_it_is_gone() -> Result<()> {
    let inventory = inventory_of(&["silent.io"]);
    let of_proxy = [
        Answer::html(404, "no such cluster"),
        Answer::text(404, "404 page not found"),
        Answer::failure(404, "NotFound", "no such cluster"),
        Answer::not_found("silent.io", "things", "other"),
        Answer::not_found("gateway.io", "things", "t"),
        Answer::not_found("", "things", "t"),
    ];
    for answer in of_proxy {
        let (_target, cluster) = scripted_target(answer.clone(), &[silent_group("Current")]).await?;
        let (removal, failed) = uninstall(&cluster, &inventory).await?;
        assert!(removal.gone.is_empty(), "{answer:?}: {removal:?}");
        assert_eq!(failed, [Reason::TargetAnswerInvalid], "{answer:?}: {removal:?}");
        assert!(removal.remaining(&inventory).contains(&thing("silent.io")), "{answer:?}");
    }
    let proof = Answer::not_found("silent.io", "things", "t");
    let (_target, cluster) = scripted_target(proof, &[silent_group("Current")]).await?;
    let (removal, failed) = uninstall(&cluster, &inventory).await?;
    assert_eq!(removal.gone, [thing("silent.io")]);
    assert!(failed.is_empty() && removal.unserved.is_empty(), "{removal:?}");
    Ok(())
}

#[tokio::test]
async fn kind_that_moved_to_another_version_is_a_conflict() -> Result<()> {
    let mut moved = silent_group("Current");
    moved[0]["versions"][0]["version"] = json!("v2");
    let page = Answer::text(404, "404 page not found");
    let (_target, cluster) = scripted_target(page, &[silent_group("Current"), moved]).await?;
    let (removal, failed) = uninstall(&cluster, &inventory_of(&["silent.io"])).await?;
    assert!(removal.gone.is_empty() && removal.unserved.is_empty(), "{removal:?}");
    assert_eq!(failed, [Reason::ApplyConflict]);
    Ok(())
}

#[tokio::test]
async fn a_404_to_a_list_shows_no_kind_as_empty() -> Result<()> {
    let page = Answer::html(404, "no such cluster");
    let (_target, cluster) = scripted_target(page, &[silent_group("Current")]).await?;
    assert!(sweep::owned(&cluster, &us(), UnlistablePolicy::LeaveOut).await.is_err());
    let absent = json!([]);
    let (_target, cluster) =
        scripted_target(Answer::text(404, "404 page not found"), &[silent_group("Current"), absent]).await?;
    let found = sweep::owned(&cluster, &us(), UnlistablePolicy::LeaveOut).await?;
    assert!(found.objects.is_empty(), "discovery shows that the kind is not served");
    Ok(())
}

#[tokio::test]
async fn search_ends_although_the_list_of_a_target_does_not() -> Result<()> {
    let page = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": {"continue": "more"}, "items": []});
    let (target, cluster) = scripted_target(Answer::json(&page), &[silent_group("Current")]).await?;
    let failed =
        sweep::owned(&cluster, &us(), UnlistablePolicy::LeaveOut).await.err().map(|error| error.reason());
    assert_eq!(failed, Some(Reason::TargetAnswerInvalid));
    assert!(target.count(&RequestMatcher::path("/apis/silent.io")) <= 201);
    Ok(())
}

#[tokio::test]
async fn a_search_for_owned_objects_skips_unavailable_groups() -> Result<()> {
    let (target, cluster) = silent_target(&[silent_group("Stale")]).await?;
    assert!(sweep::owned(&cluster, &us(), UnlistablePolicy::LeaveOut).await?.objects.is_empty());
    let refused =
        sweep::owned(&cluster, &us(), UnlistablePolicy::Fail).await.err().map(|error| error.reason());
    assert_eq!(refused, Some(Reason::DiscoveryFailed), "where nothing else tells what there is");
    assert_eq!(target.count(&RequestMatcher::path("/apis/silent.io")), 0);
    Ok(())
}

#[tokio::test]
async fn failing_group_is_unknown_from_its_first_refusal() -> Result<()> {
    let told = [silent_group("Current"), silent_group("Stale")];
    let (_target, cluster) = silent_target(&told).await?;
    let inventory = inventory_of(&["silent.io"]);
    assert_eq!(uninstall(&cluster, &inventory).await?.1, [Reason::TargetServerError]);
    assert_eq!(uninstall(&cluster, &inventory).await?.1, [Reason::DiscoveryFailed]);

    let (_target, cluster) = silent_target(&told).await?;
    let set = "apiVersion: silent.io/v1\nkind: Thing\nmetadata: {name: t}\n";
    let mut story = Story::on(cluster, "n");
    let applied = story.try_apply(set, &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, "t") else { panic!("{applied:?}") };
    assert_eq!(refusal.reason(), Reason::TargetServerError);
    let applied = story.try_apply(set, &NoObservations).await?;
    assert!(matches!(outcome(&applied, "t"), Outcome::Missing(_)), "{applied:?}");
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    assert!(kinds.is_unknown("silent.io"));
    Ok(())
}
