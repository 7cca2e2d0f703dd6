//! CRDs, their kinds, and CRDs of several owners.

use std::collections::BTreeSet;

use anyhow::Result;
use kyma_object_set::{Gvk, Identity, KeepReason, NothingObserved, OWNER_LABEL, Outcome};

use super::story::{Story, outcome};

/// A CRD of a group of its own, in these versions; the first one is stored.
fn crd(group: &str, versions: &[&str]) -> String {
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

fn thing(group: &str, version: &str, name: &str) -> String {
    format!("---\napiVersion: {group}/{version}\nkind: Thing\nmetadata: {{name: {name}}}\nspec: {{a: 1}}\n")
}

fn crd_id(group: &str) -> Identity {
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
async fn a_kind_that_is_missing_holds_up_only_its_objects_and_heals() -> Result<()> {
    let mut story = Story::begin("missing").await?;
    let group = format!("{}.io", story.namespace);
    let text = format!("{}{}", thing(&group, "v1", "t"), super::story::config_map("a", "1"));
    let applied = story.try_apply(&text, &NothingObserved).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { .. }));
    assert_eq!(applied.missing(), [Gvk::new(&group, "v1", "Thing")].into());
    assert!(!applied.is_complete() && applied.errors().next().is_none());

    let mut neighbour = story.neighbour("1.0.0");
    neighbour.apply(&crd(&group, &["v1"])).await?;
    let applied = story.try_apply(&text, &NothingObserved).await?;
    assert!(applied.is_complete(), "{:?}", applied.outcomes);

    // The CRD goes, and with it the object: the kind is missing again, by name.
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let api = kinds.preferred(&crd_id(&group).group_kind()).unwrap().api(&story.cluster.client, None);
    api.delete(&format!("things.{group}"), &kube::api::DeleteParams::default()).await?;
    testbed::until("the CRD to be gone", super::story::SOON, || async {
        Ok(api.get_opt(&format!("things.{group}")).await?.is_none().then_some(()))
    })
    .await?;
    let applied = story.try_apply(&text, &NothingObserved).await?;
    assert_eq!(applied.missing(), [Gvk::new(&group, "v1", "Thing")].into(), "{:?}", applied.outcomes);
    Ok(())
}

#[tokio::test]
async fn of_two_owners_the_higher_version_writes_a_crd_and_the_last_one_takes_it_away() -> Result<()> {
    let mut story = Story::begin("shared").await?;
    let group = format!("{}.io", story.namespace);
    let mut neighbour = story.neighbour("2.0.0");
    story.apply(&crd(&group, &["v1", "v1beta1"])).await?;

    // The other one has a newer version without v1beta1, which stays since the first one may need it.
    neighbour.apply(&crd(&group, &["v1"])).await?;
    let live = story.live(&crd_id(&group)).await?.unwrap();
    assert_eq!(live.metadata.labels.clone().unwrap()[OWNER_LABEL], neighbour.ownership.owner);
    assert_eq!(live.data["spec"]["versions"].as_array().unwrap().len(), 2);

    // The first one sees that, and leaves it at that.
    story.apply(&crd(&group, &["v1", "v1beta1"])).await?;
    let again = story.live(&crd_id(&group)).await?.unwrap();
    assert_eq!(again.metadata.labels.unwrap()[OWNER_LABEL], neighbour.ownership.owner);
    assert_eq!(story.apply(&crd(&group, &["v1", "v1beta1"])).await?.changed().count(), 0);
    assert_eq!(neighbour.apply(&crd(&group, &["v1"])).await?.changed().count(), 0);

    // The newer one goes: the CRD stays for the first one, which takes it back.
    let removal = neighbour.uninstall_all().await?;
    assert_eq!(removal.kept, [(crd_id(&group), KeepReason::OtherOwner)].into());
    let inherited = story.live(&crd_id(&group)).await?.unwrap();
    assert_eq!(inherited.metadata.labels.unwrap()[OWNER_LABEL], story.ownership.owner);
    story.live_owners.clear();
    story.apply(&crd(&group, &["v1", "v1beta1"])).await?;
    assert!(!story.inventory.get(&crd_id(&group)).unwrap().fingerprint.is_empty());

    // The last one takes it away, as one of the owners created it.
    let removal = story.uninstall_all().await?;
    assert!(removal.kept.is_empty(), "{removal:?}");
    Ok(())
}

#[tokio::test]
async fn of_owners_that_come_at_the_same_time_none_overwrites_the_crd_of_the_other() -> Result<()> {
    let mut story = Story::begin("racing").await?;
    let mut neighbour = story.neighbour("2.0.0");
    let groups: Vec<String> = (0..6).map(|number| format!("g{number}.{}.io", story.namespace)).collect();
    let all = |versions: &[&str]| groups.iter().map(|group| crd(group, versions)).collect::<String>();
    let (lower, higher) = (all(&["v1"]), all(&["v2"]));
    let (one, other) = futures::join!(
        story.try_apply(&lower, &NothingObserved),
        neighbour.try_apply(&higher, &NothingObserved)
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

    // Somebody made one by hand: taken over, and left behind.
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
