//! CRDs, their kinds, and CRDs of several owners.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use kube::api::{ListParams, Patch, PatchParams};
use kyma_api::Reason;
use kyma_object_set::remove::{CrdContents, block_creation};
use kyma_object_set::{
    Discovery, GroupKind, Gvk, Identity, KeepReason, NoObservations, OWNER_LABEL, Outcome,
};
use serde_json::json;

use super::story::{EVENT_TIMEOUT, Story, outcome};

/// Returns a CRD of its own group with these versions; the first one is stored.
pub(super) fn crd(group: &str, versions: &[&str]) -> String {
    let mut text = format!(
        "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  names: {{kind: Thing, plural: things, singular: thing, listKind: ThingList}}\n  versions:\n"
    );
    for (index, version) in versions.iter().enumerate() {
        let storage = index == 0;
        text += &format!(
            "  - {{name: {version}, served: true, storage: {storage}, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}\n"
        );
    }
    text
}

pub(super) fn thing(group: &str, version: &str, name: &str) -> String {
    format!("---\napiVersion: {group}/{version}\nkind: Thing\nmetadata: {{name: {name}}}\nspec: {{a: 1}}\n")
}

pub(super) fn crd_id(group: &str) -> Identity {
    Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, &format!("things.{group}"))
}

#[tokio::test]
async fn a_crd_and_its_objects_come_in_one_apply_and_go_in_order() -> Result<()> {
    let mut story = Story::begin("crd").await?;
    let group = format!("{}.io", story.namespace);
    let text = format!("{}{}", thing(&group, "v1", "t"), crd(&group, &["v1"]));
    let applied = story.apply(&text).await?;
    assert_eq!(applied.outcomes[0].0, crd_id(&group));
    assert_eq!(story.apply(&text).await?.changed().count(), 0);
    let removal = story.uninstall_all().await?;
    assert!(removal.kept.is_empty(), "{removal:?}");
    assert!(story.inventory.is_empty());
    assert!(story.live(&crd_id(&group)).await?.is_none_or(|crd| crd.metadata.deletion_timestamp.is_some()));
    Ok(())
}

#[tokio::test]
async fn refused_crd_beside_a_good_one_delays_later_objects() -> Result<()> {
    let mut story = Story::begin("refused").await?;
    let groups = ["good", "odd"].map(|name| format!("{}-{name}.io", story.namespace));
    let odd = crd(&groups[1], &["v1"]).replace("scope: Namespaced", "scope: Nowhere");
    let text = format!("{}{odd}{}", crd(&groups[0], &["v1"]), super::story::config_map("after", "1"));
    let applied = story.try_apply(&text, &NoObservations).await?;
    let of = |group: &str| applied.outcomes.iter().find(|(identity, _)| *identity == crd_id(group));
    // On a busy machine it may be established later.
    let good = &of(&groups[0]).unwrap().1;
    assert!(matches!(good, Outcome::Applied { .. } | Outcome::Waiting(_)), "{:?}", applied.outcomes);
    assert!(story.live(&crd_id(&groups[0])).await?.is_some());
    assert!(matches!(of(&groups[1]).unwrap().1, Outcome::Refused(_)), "{:?}", applied.outcomes);
    assert!(matches!(outcome(&applied, "after"), Outcome::Skipped), "{:?}", applied.outcomes);
    Ok(())
}

#[tokio::test]
async fn a_kind_that_is_missing_holds_up_only_its_objects_and_heals() -> Result<()> {
    let mut story = Story::begin("missing").await?;
    let group = format!("{}.io", story.namespace);
    let text = format!("{}{}", thing(&group, "v1", "t"), super::story::config_map("a", "1"));
    let applied = story.try_apply(&text, &NoObservations).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { .. }));
    assert_eq!(applied.missing(), [Gvk::new(&group, "v1", "Thing")].into());
    assert!(!applied.is_complete() && applied.errors().next().is_none());

    let mut neighbour = story.neighbour("1.0.0");
    neighbour.apply(&crd(&group, &["v1"])).await?;
    // The API server may serve the kind some time after its CRD is established.
    story.apply(&text).await?;

    // The CRD is deleted, and with it the object: the kind is reported as missing again.
    let api = of_crds(&story).await?;
    api.delete(&format!("things.{group}"), &kube::api::DeleteParams::default()).await?;
    let things = super::drift::things(&story, &group, "v1");
    let kind = GroupKind::new(&group, "Thing");
    // The API server serves and lists the kind for some time after its CRD is gone.
    testbed::until("the kind is not served any more", EVENT_TIMEOUT, || async {
        match things.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let kinds = Discovery::new().kinds(&story.cluster.client).await?;
                Ok(kinds.preferred(&kind).is_none().then_some(()))
            }
            Ok(_) | Err(kube::Error::Api(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    let applied = story.try_apply(&text, &NoObservations).await?;
    assert_eq!(applied.missing(), [Gvk::new(&group, "v1", "Thing")].into(), "{:?}", applied.outcomes);
    Ok(())
}

#[tokio::test]
async fn higher_of_two_owners_writes_a_crd_and_last_owner_deletes_it() -> Result<()> {
    let mut story = Story::begin("shared").await?;
    let group = format!("{}.io", story.namespace);
    let mut neighbour = story.neighbour("2.0.0");
    story.apply(&crd(&group, &["v1", "v1beta1"])).await?;

    // The other owner has a newer version without v1beta1, which stays since the first owner may need it.
    neighbour.apply(&crd(&group, &["v1"])).await?;
    let live = story.live(&crd_id(&group)).await?.unwrap();
    assert_eq!(live.metadata.labels.clone().unwrap()[OWNER_LABEL], neighbour.ownership.owner);
    assert_eq!(live.data["spec"]["versions"].as_array().unwrap().len(), 2);

    // The first owner notices that, and leaves the CRD as it is.
    story.apply(&crd(&group, &["v1", "v1beta1"])).await?;
    let again = story.live(&crd_id(&group)).await?.unwrap();
    assert_eq!(again.metadata.labels.unwrap()[OWNER_LABEL], neighbour.ownership.owner);
    assert_eq!(story.apply(&crd(&group, &["v1", "v1beta1"])).await?.changed().count(), 0);
    assert_eq!(neighbour.apply(&crd(&group, &["v1"])).await?.changed().count(), 0);

    // The newer owner is removed: the CRD stays for the first one, which takes it back.
    let removal = neighbour.uninstall_all().await?;
    assert_eq!(removal.kept, [(crd_id(&group), KeepReason::OtherOwner)].into());
    let inherited = story.live(&crd_id(&group)).await?.unwrap();
    assert_eq!(inherited.metadata.labels.unwrap()[OWNER_LABEL], story.ownership.owner);
    story.live_owners.clear();
    story.apply(&crd(&group, &["v1", "v1beta1"])).await?;
    assert!(!story.inventory.get(&crd_id(&group)).unwrap().fingerprint.is_empty());

    // The last owner deletes it, as one of the owners created it.
    let removal = story.uninstall_all().await?;
    assert!(removal.kept.is_empty(), "{removal:?}");
    Ok(())
}

#[tokio::test]
async fn concurrent_owners_do_not_overwrite_the_crd_of_the_other() -> Result<()> {
    let mut story = Story::begin("racing").await?;
    let mut neighbour = story.neighbour("2.0.0");
    let groups: Vec<String> = (0..6).map(|number| format!("g{number}.{}.io", story.namespace)).collect();
    let all = |versions: &[&str]| groups.iter().map(|group| crd(group, versions)).collect::<String>();
    let (lower, higher) = (all(&["v1"]), all(&["v2"]));
    let (one, other) = futures::join!(
        story.try_apply(&lower, &NoObservations),
        neighbour.try_apply(&higher, &NoObservations)
    );
    let (one, other) = (one?, other?);
    for (_, outcome) in one.outcomes.iter().chain(&other.outcomes) {
        assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    }
    for (group, id) in groups.iter().map(|group| (group, crd_id(group))) {
        let live = story.live(&id).await?.unwrap();
        let versions = live.data["spec"]["versions"].as_array().unwrap();
        let names: BTreeSet<_> = versions.iter().filter_map(|version| version["name"].as_str()).collect();
        assert!(names.contains("v2"), "{group}: {names:?}");
        assert_eq!(live.metadata.labels.unwrap()[OWNER_LABEL], neighbour.ownership.owner, "{group}");
    }
    Ok(())
}

#[tokio::test]
async fn a_crd_stays_while_objects_exist_or_when_it_was_there_before() -> Result<()> {
    let mut story = Story::begin("inuse").await?;
    let group = format!("{}.io", story.namespace);
    story.apply(&crd(&group, &["v1"])).await?;
    let mut user = story.neighbour("1.0.0");
    user.apply(&thing(&group, "v1", "theirs")).await?;
    let removal = story.uninstall_all().await?;
    assert_eq!(removal.kept, [(crd_id(&group), KeepReason::InUse)].into());
    assert!(story.live(&crd_id(&group)).await?.is_some());
    user.uninstall_all().await?;

    // A CRD that was created by hand is taken over, and stays after the removal.
    let other = format!("other-{group}");
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let api = kinds.preferred(&crd_id(&other).group_kind()).unwrap().api(&story.cluster.client, None);
    let set = kyma_object_set::ObjectSet::parse(&crd(&other, &["v1"]), &kyma_object_set::Limits::default())?;
    let by_hand: kube::api::DynamicObject =
        serde_json::from_value(set.into_objects().remove(0).into_value())?;
    api.create(&kube::api::PostParams::default(), &by_hand).await?;
    story.apply(&crd(&other, &["v1"])).await?;
    let removal = story.uninstall_all().await?;
    assert_eq!(removal.kept, [(crd_id(&other), KeepReason::NotCreatedByUs)].into());
    Ok(())
}

#[tokio::test]
async fn crd_kept_by_an_interrupted_removal_accepts_objects() -> Result<()> {
    let mut story = Story::begin("interrupted").await?;
    let group = format!("{}.io", story.namespace);
    story.apply(&crd(&group, &["v1"])).await?;
    let (crds, name) = (of_crds(&story).await?, format!("things.{group}"));
    testbed::until("creation is refused", EVENT_TIMEOUT, || async {
        let contents = block_creation(&story.cluster.client, &crds.get(&name).await?, "removal").await;
        Ok(matches!(contents, Ok(CrdContents::Empty { .. })).then_some(()))
    })
    .await?;
    let keep = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    crds.patch(&name, &PatchParams::default(), &Patch::Merge(keep)).await?;
    let removal = story.uninstall_all().await?;
    assert_eq!(removal.kept, [(crd_id(&group), KeepReason::ResourcePolicy)].into());
    let live = serde_json::to_string(&crds.get(&name).await?.data)?;
    assert!(!live.contains("thisKindIsBeingRemoved"), "{live}");
    Ok(())
}

pub(super) async fn of_crds(story: &Story) -> Result<kube::Api<kube::api::DynamicObject>> {
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let mapping = kinds.preferred(&crd_id("any").group_kind()).context("CRDs")?;
    Ok(mapping.api(&story.cluster.client, None))
}

/// Returns the API versions of the CRD that the cluster serves.
async fn served(story: &Story, group: &str) -> Result<Vec<String>> {
    let live = story.live(&crd_id(group)).await?.context("the CRD")?;
    let versions = live.data["spec"]["versions"].as_array().context("versions")?;
    let served = versions.iter().filter(|version| version["served"] == true);
    Ok(served.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn a_stored_version_is_not_removed_before_objects_are_rewritten() -> Result<()> {
    let mut story = Story::begin("stored").await?;
    let group = format!("{}.io", story.namespace);
    story.apply(&crd(&group, &["v1beta1", "v1"])).await?;
    let mut user = story.neighbour("1.0.0");
    user.apply(&thing(&group, "v1beta1", "theirs")).await?;
    story.ownership.version = "2.0.0".to_owned();
    let unserved = crd(&group, &["v1", "v1beta1"]).replace("v1beta1, served: true", "v1beta1, served: false");
    for (set, what) in [(crd(&group, &["v1"]), "dropped"), (unserved, "not served any more")] {
        let applied = story.try_apply(&set, &NoObservations).await?;
        let Outcome::Refused(refusal) = outcome(&applied, &format!("things.{group}")) else {
            panic!("{applied:?}")
        };
        assert_eq!(refusal.reason(), Reason::CrdVersionInUse, "{what}");
        assert!(
            refusal.to_string().contains("stored in v1beta1")
                && refusal.to_string().contains("storedVersions")
        );
        assert_eq!(served(&story, &group).await?, ["v1beta1", "v1"], "{what}: nothing changed");
    }
    // Stores another version, rewrites the objects, and updates the CRD's status.
    story.apply(&crd(&group, &["v1", "v1beta1"])).await?;
    assert!(matches!(
        outcome(&story.try_apply(&crd(&group, &["v1"]), &NoObservations).await?, &format!("things.{group}")),
        Outcome::Refused(_)
    ));
    let params = kube::api::PatchParams::default();
    let rewritten = kube::api::Patch::Merge(serde_json::json!({"spec": {"a": 2}}));
    super::drift::things(&story, &group, "v1").patch("theirs", &params, &rewritten).await?;
    let migrated = kube::api::Patch::Merge(serde_json::json!({"status": {"storedVersions": ["v1"]}}));
    of_crds(&story).await?.patch_status(&format!("things.{group}"), &params, &migrated).await?;
    story.apply(&crd(&group, &["v1"])).await?;
    assert_eq!(served(&story, &group).await?, ["v1"]);
    Ok(())
}

#[tokio::test]
async fn create_only_crd_is_created_if_missing_and_never_changed() -> Result<()> {
    let mut story = Story::begin("once").await?;
    let group = format!("{}.io", story.namespace);
    story.made_once = [crd_id(&group)].into();
    story.apply(&format!("{}{}", crd(&group, &["v1"]), thing(&group, "v1", "t"))).await?;
    let version = async |story: &Story| -> Result<Option<String>> {
        Ok(story.live(&crd_id(&group)).await?.context("the CRD")?.metadata.resource_version)
    };
    let before = version(&story).await?;
    let newer = format!("{}{}", crd(&group, &["v1", "v2"]), thing(&group, "v1", "t"));
    let applied = story.apply(&newer).await?;
    assert_eq!(applied.changed().count(), 0, "{:?}", applied.outcomes);
    assert_eq!((served(&story, &group).await?, version(&story).await?), (vec!["v1".to_owned()], before));
    // Later edits of it belong to others.
    let edit = kube::api::Patch::Merge(serde_json::json!({"spec": {"names": {"shortNames": ["th"]}}}));
    of_crds(&story)
        .await?
        .patch(&format!("things.{group}"), &kube::api::PatchParams::default(), &edit)
        .await?;
    assert_eq!(story.apply(&newer).await?.changed().count(), 0);

    // From now on it is kept up to date.
    story.made_once.clear();
    story.apply(&newer).await?;
    assert_eq!(served(&story, &group).await?, ["v1", "v2"]);
    let removal = story.uninstall_all().await?;
    assert!(removal.kept.is_empty(), "we made it: {removal:?}");
    Ok(())
}

#[tokio::test]
async fn a_crd_created_by_hand_stays_if_crds_are_only_created() -> Result<()> {
    let mut story = Story::begin("oncetheirs").await?;
    let group = format!("{}.io", story.namespace);
    let set = kyma_object_set::ObjectSet::parse(&crd(&group, &["v1"]), &kyma_object_set::Limits::default())?;
    let by_hand: kube::api::DynamicObject =
        serde_json::from_value(set.into_objects().remove(0).into_value())?;
    of_crds(&story).await?.create(&kube::api::PostParams::default(), &by_hand).await?;
    story.made_once = [crd_id(&group)].into();
    story.apply(&crd(&group, &["v1", "v2"])).await?;
    assert_eq!(served(&story, &group).await?, ["v1"]);
    assert_eq!(story.apply(&crd(&group, &["v1", "v2"])).await?.changed().count(), 0);
    let removal = story.uninstall_all().await?;
    assert_eq!(removal.kept, [(crd_id(&group), KeepReason::NotCreatedByUs)].into());
    Ok(())
}
