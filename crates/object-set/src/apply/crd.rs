//! CRDs, which several owners may ship: the highest version wins, nothing is taken away from what others use.

use std::cmp::Ordering;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::wait::{await_condition, conditions};
use serde_json::Value;

use super::one::{Done, Place, check_size, revision};
use super::share::Share;
use super::{Outcome, Run, Wanted, owner};
use crate::cluster::{CREATED_BY, Cluster, OWNER_LABEL, Ownership, SET_VERSION, sharers};
use crate::discovery::Mapping;
use crate::error::{Action, CallError};
use crate::inventory::Entry;
use crate::object::{Gvk, Object};

/// How long one run waits for its CRDs. Nearly all are established within it, and the run that waits saves its
/// caller another one; the others are an event for the caller to wait for.
const ESTABLISH: Duration = Duration::from_millis(1500);

/// What to do with a CRD that is there already.
#[derive(Debug, PartialEq)]
enum Step {
    /// Send it (with what must not go missing), after marking the shares of these owners.
    Send { object: Box<Object>, shares: Vec<String> },
    /// Leave it as it is; mark our own share.
    ShareOnly,
}

/// A CRD as it is on the target.
struct Live {
    metadata: ObjectMeta,
    spec: Value,
    /// API versions in which objects may be stored.
    stored: Vec<String>,
}

impl Live {
    fn of(found: DynamicObject) -> Self {
        let stored = found.data["status"]["storedVersions"].as_array().into_iter().flatten();
        let stored = stored.filter_map(|version| version.as_str().map(str::to_owned)).collect();
        Self { spec: found.data.get("spec").cloned().unwrap_or_default(), stored, metadata: found.metadata }
    }
}

impl Run<'_> {
    pub(super) async fn crd(&self, wanted: &Wanted, mapping: &Mapping) -> Done {
        let ownership = self.options.ownership;
        let mut object = wanted.object.clone();
        object.set_label(OWNER_LABEL, &ownership.owner);
        object.set_annotation(SET_VERSION, &ownership.version);
        let hash = object.intent_hash();
        check_size(&object, &wanted.identity)?;
        self.guard(&wanted.identity)?;
        let place = self.look(&wanted.identity, mapping).await?;
        let recorded = self.recorded.get(&wanted.identity);
        match place {
            Place::Deleting => return Ok((Outcome::Waiting("the old CRD is being deleted"), None)),
            Place::Ours(seen) => {
                // Without a fingerprint it was another owner's; it is ours to write once the label says so.
                let inherited = recorded.is_some_and(|entry| entry.fingerprint.is_empty())
                    && seen.owner.as_deref() == Some(ownership.owner.as_str());
                if !inherited && recorded.is_some_and(|entry| entry.hash == hash) {
                    return Ok((Outcome::Unchanged, None));
                }
            }
            Place::Changed(_) | Place::Found(_) => {}
            Place::Empty => {
                object.set_annotation(CREATED_BY, &ownership.owner);
                let metadata = self.send(&object, &wanted.identity, mapping, None).await?;
                let entry = self.entry(mapping, &metadata, hash, true);
                return Ok((Outcome::Applied { created: true, revision: revision(&metadata) }, Some(entry)));
            }
        }
        self.crd_over(wanted, mapping, object, hash).await
    }

    /// A CRD over one that is there.
    async fn crd_over(&self, wanted: &Wanted, mapping: &Mapping, object: Object, hash: String) -> Done {
        let ownership = self.options.ownership;
        let api = mapping.api(&self.cluster.client, None);
        let live = api
            .get(&wanted.identity.name)
            .await
            .map_err(|error| CallError::new(Action::Get, Some(&wanted.identity), error))?;
        let live = Live::of(live);
        let step = decide(object, &live, ownership, self.options.owner_is_live);
        let metadata = live.metadata;
        let uid = metadata.uid.clone().unwrap_or_default();
        let was_ours = self.recorded.get(&wanted.identity).is_some_and(Entry::was_sent);
        let Step::Send { object, shares } = step else {
            let manager = ownership.share_manager(&ownership.owner);
            let owner = &ownership.owner;
            let shared =
                self.share(&wanted.identity, mapping, &uid, owner, &manager, Share::default()).await?;
            let created = metadata.annotations.is_some_and(|all| all.contains_key(CREATED_BY));
            let entry =
                Entry { version: mapping.resource.version.clone(), uid, hash, created, ..Entry::default() };
            return Ok((Outcome::Applied { created: false, revision: revision(&shared) }, Some(entry)));
        };
        if shares.is_empty() && !was_ours {
            self.may_adopt(&wanted.identity, &metadata, None)?;
        }
        for owner in &shares {
            let manager = share_manager(owner, &metadata, ownership);
            self.share(&wanted.identity, mapping, &uid, owner, &manager, Share::default()).await?;
        }
        if !was_ours {
            self.take_over(&wanted.identity, mapping, &metadata).await?;
        }
        let created = object.annotation(CREATED_BY).is_some();
        let sent = self.send(&object, &wanted.identity, mapping, Some(&uid)).await?;
        let outcome = Outcome::Applied { created: false, revision: revision(&sent) };
        Ok((outcome, Some(self.entry(mapping, &sent, hash, created))))
    }

    /// Whether a kind comes from a CRD of this very set.
    pub(super) fn is_new(&self, mapping: &Mapping) -> bool {
        self.own_kinds.contains(&mapping.gvk())
    }
}

/// Who writes a CRD that is there: we, unless another live owner has a version that is not lower. Nothing goes back:
/// what a higher version wrote stays as it is, whoever is left of its owners, and objects keep all their fields.
fn decide(mut ours: Object, live: &Live, us: &Ownership, is_live: &(dyn Fn(&str) -> bool + Sync)) -> Step {
    let owner = us.owner.as_str();
    let is_live = |other: &str| !owner::is_dead(other, &live.metadata, us, is_live);
    let labels = live.metadata.labels.clone().unwrap_or_default();
    let annotations = live.metadata.annotations.clone().unwrap_or_default();
    let holder =
        labels.get(OWNER_LABEL).filter(|holder| holder.as_str() != owner && is_live(holder)).cloned();
    let others = sharers(labels.keys()).into_iter().filter(|other| other != owner && is_live(other));
    let others: Vec<String> = others.chain(holder.clone()).collect();
    if let Some(by) = annotations.get(CREATED_BY) {
        ours.set_annotation(CREATED_BY, by);
    }
    let order = compare(&ours, live);
    if holder.is_some() && order != Ordering::Greater {
        return Step::ShareOnly;
    }
    if order == Ordering::Less {
        ours.body_mut().insert("spec".to_owned(), live.spec.clone());
        if let Some(version) = annotations.get(SET_VERSION) {
            ours.set_annotation(SET_VERSION, version);
        }
    }
    if others.is_empty() {
        keep_versions(&mut ours, &live.spec, |version| live.stored.iter().any(|stored| stored == version));
        return Step::Send { object: Box::new(ours), shares: Vec::new() };
    }
    keep_versions(&mut ours, &live.spec, |_| true);
    let mut shares: Vec<String> = holder.into_iter().collect();
    shares.push(owner.to_owned());
    Step::Send { object: Box::new(ours), shares }
}

/// Our CRD against the one that is there: by their highest API versions, then by the versions of their sets.
fn compare(ours: &Object, live: &Live) -> Ordering {
    let spec = ours.body().get("spec").cloned().unwrap_or_default();
    let theirs = live.metadata.annotations.as_ref().and_then(|all| all.get(SET_VERSION));
    let version = ours.annotation(SET_VERSION).unwrap_or_default();
    highest_api_version(&spec)
        .cmp(&highest_api_version(&live.spec))
        .then_with(|| compare_versions(version, theirs.map_or("", String::as_str)))
}

/// The field manager under which an owner's share is marked: one of the operator that serves the owner, so that
/// this operator can end the share again.
fn share_manager(owner: &str, live: &ObjectMeta, us: &Ownership) -> String {
    if owner != us.owner
        && let Some(manager) = owner::writers(live, OWNER_LABEL).next()
        && manager != us.creator()
    {
        return Ownership { manager: manager.to_owned(), ..us.clone() }.share_manager(owner);
    }
    us.share_manager(owner)
}

/// Versions that are there, needed, and not in ours stay, or objects could not be read any more.
fn keep_versions(ours: &mut Object, live_spec: &Value, needed: impl Fn(&str) -> bool) {
    let Some(live) = live_spec.get("versions").and_then(Value::as_array) else { return };
    let spec = ours.body_mut().get_mut("spec");
    let Some(versions) = spec.and_then(|spec| spec.get_mut("versions")).and_then(Value::as_array_mut) else {
        return;
    };
    for version in live {
        let known = versions.iter().any(|own| own["name"] == version["name"]);
        if !known && version["name"].as_str().is_some_and(&needed) {
            let mut version = version.clone();
            version["storage"] = false.into();
            versions.push(version);
        }
    }
}

/// Kubernetes' priority of API versions: `v2` over `v1` over `v1beta2` over `v1beta1` over `v1alpha1` over
/// anything else.
fn priority(version: &str) -> (u8, u32, u32) {
    let parse = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let major = rest[..digits].parse().ok()?;
        let (level, minor) = match &rest[digits..] {
            "" => (3, "0"),
            rest if rest.starts_with("beta") => (2, &rest["beta".len()..]),
            rest => (1, rest.strip_prefix("alpha")?),
        };
        Some((level, major, minor.parse().ok()?))
    };
    parse().unwrap_or_default()
}

fn highest_api_version(spec: &Value) -> (u8, u32, u32) {
    let versions = spec.get("versions").and_then(Value::as_array);
    let names = versions.into_iter().flatten().filter_map(|version| version["name"].as_str());
    names.map(priority).max().unwrap_or_default()
}

/// Semantic versions by their precedence; a version that is none is lower than one that is.
fn compare_versions(ours: &str, theirs: &str) -> Ordering {
    let parse = |text: &str| semver::Version::parse(text.trim_start_matches('v')).ok();
    parse(ours).cmp(&parse(theirs)).then_with(|| ours.cmp(theirs))
}

/// The kinds that a CRD serves.
pub(super) fn defined_kinds(crd: &Object) -> Vec<Gvk> {
    crate::discovery::crd_mappings(crd).iter().map(Mapping::gvk).collect()
}

/// The CRDs among these objects that do not become established in time.
pub(super) async fn not_established<'a>(cluster: &Cluster, objects: &'a [Object]) -> Vec<&'a Object> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let crds = objects.iter().filter(|object| object.identity().is_crd());
    let wait = |crd: &'a Object| {
        let established = await_condition(api.clone(), crd.name(), conditions::is_crd_established());
        async move { (crd, matches!(tokio::time::timeout(ESTABLISH, established).await, Ok(Ok(_)))) }.boxed()
    };
    let results: Vec<(&Object, bool)> =
        futures::stream::iter(crds.map(wait).collect::<Vec<_>>()).buffer_unordered(8).collect().await;
    results.into_iter().filter(|(_, established)| !established).map(|(crd, _)| crd).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ours(version: &str, api_versions: &[&str]) -> Object {
        let versions: Vec<Value> =
            api_versions.iter().map(|name| json!({"name": name, "storage": true})).collect();
        Object::from_value(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "a.x.io", "annotations": {SET_VERSION: version}}, "spec": {"versions": versions}}))
        .unwrap()
    }

    fn live(owner: &str, version: &str) -> ObjectMeta {
        let marks = json!({"f:metadata": {"f:labels": {format!("f:{OWNER_LABEL}"): {}}}});
        serde_json::from_value(json!({
            "labels": {OWNER_LABEL: owner},
            "annotations": {SET_VERSION: version, CREATED_BY: "first"},
            "managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": marks}],
        }))
        .unwrap()
    }

    fn us() -> Ownership {
        Ownership { manager: "m".to_owned(), owner: "us".to_owned(), version: String::new() }
    }

    fn step(ours: Object, live: &ObjectMeta, api_versions: &[&str]) -> Step {
        step_over(ours, live, api_versions, &[])
    }

    fn step_over(ours: Object, live: &ObjectMeta, api_versions: &[&str], stored: &[&str]) -> Step {
        let versions: Vec<Value> =
            api_versions.iter().map(|name| json!({"name": name, "storage": true})).collect();
        let stored = stored.iter().map(|version| (*version).to_owned()).collect();
        let live = Live { metadata: live.clone(), spec: json!({ "versions": versions }), stored };
        decide(ours, &live, &us(), &|owner| owner != "dead")
    }

    fn sent(step: Step) -> (Object, Vec<String>) {
        let Step::Send { object, shares } = step else { panic!("{step:?}") };
        let versions = object.body()["spec"]["versions"].as_array().unwrap();
        let names = versions.iter().map(|version| version["name"].as_str().unwrap().to_owned()).collect();
        assert!(shares.is_empty());
        (*object, names)
    }

    #[test]
    fn a_crd_of_nobody_else_is_sent_as_it_is() {
        for holder in ["us", "dead"] {
            let step = step(ours("2.0.0", &["v1"]), &live(holder, "1.0.0"), &["v1", "v1beta1"]);
            let (object, versions) = sent(step);
            assert_eq!(versions, ["v1"]);
            assert_eq!(object.annotation(CREATED_BY), Some("first"));
        }
    }

    #[test]
    fn a_crd_never_goes_back_to_a_lower_version() {
        for holder in ["us", "dead"] {
            let (object, versions) =
                sent(step(ours("1.0.0", &["v1"]), &live(holder, "2.0.0"), &["v1", "v2"]));
            assert_eq!(versions, ["v1", "v2"], "a higher API version");
            assert_eq!(object.annotation(SET_VERSION), Some("2.0.0"));
            let mut narrower = ours("1.0.0", &["v1"]);
            narrower.body_mut()["spec"]["versions"][0]["schema"] = "narrow".into();
            let (object, _) = sent(step(narrower, &live(holder, "2.0.0"), &["v1"]));
            assert_eq!(object.body()["spec"]["versions"][0]["schema"], Value::Null, "a higher set");
        }
        let mut by_hand = live("us", "");
        by_hand.labels = None;
        by_hand.annotations = None;
        let (object, versions) = sent(step(ours("9.0.0", &["v1"]), &by_hand, &["v1", "v2"]));
        assert_eq!(versions, ["v1", "v2"], "somebody installed a newer one by hand");
        assert_eq!(object.annotation(SET_VERSION), Some("9.0.0"));
    }

    #[test]
    fn versions_in_which_objects_are_stored_stay() {
        let step =
            step_over(ours("2.0.0", &["v1"]), &live("us", "1.0.0"), &["v1beta1", "v1alpha1"], &["v1beta1"]);
        assert_eq!(sent(step).1, ["v1", "v1beta1"]);
    }

    #[test]
    fn a_crd_that_another_operator_holds_is_not_of_nobody_and_shared_in_its_name() {
        let mut theirs = live("dead", "2.0.0");
        for entry in theirs.managed_fields.iter_mut().flatten() {
            entry.manager = Some("greeting".to_owned());
        }
        assert_eq!(step(ours("1.0.0", &["v1"]), &theirs, &["v1"]), Step::ShareOnly);
        assert_eq!(share_manager("dead", &theirs, &us()), "greeting-dead");
        assert_eq!(share_manager("us", &theirs, &us()), "m-us");
    }

    #[test]
    fn a_lower_or_equal_version_only_shares() {
        assert_eq!(step(ours("1.0.0", &["v1"]), &live("them", "1.0.0"), &["v1"]), Step::ShareOnly);
        assert_eq!(step(ours("1.0.0", &["v1"]), &live("them", "1.10.0"), &["v1"]), Step::ShareOnly);
        assert_eq!(step(ours("9.0.0", &["v1beta1"]), &live("them", "1.0.0"), &["v1"]), Step::ShareOnly);
    }

    #[test]
    fn a_higher_version_wins_and_takes_nothing_away() {
        let step = step(ours("1.10.0", &["v1"]), &live("them", "1.9.0"), &["v1", "v1beta1"]);
        let Step::Send { object, shares } = step else { panic!("{step:?}") };
        assert_eq!(shares, ["them", "us"]);
        let versions = object.body()["spec"]["versions"].as_array().unwrap();
        assert_eq!(versions[1], json!({"name": "v1beta1", "storage": false}));
        assert_eq!(versions[0]["storage"], true);
    }

    #[test]
    fn the_holder_keeps_versions_that_sharers_use() {
        let mut found = live("us", "1.0.0");
        found.labels.as_mut().unwrap().insert(crate::cluster::Ownership::share_label("them"), String::new());
        let step = step(ours("2.0.0", &["v2"]), &found, &["v1"]);
        let Step::Send { object, .. } = step else { panic!("{step:?}") };
        assert_eq!(object.body()["spec"]["versions"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn waits_within_a_run_are_short() {
        assert!(
            ESTABLISH < Duration::from_secs(2)
                && super::super::one::serving_pauses().sum::<Duration>() < Duration::from_secs(2)
        );
    }

    #[test]
    fn api_versions_have_kubernetes_order() {
        let sorted = ["x", "v1alpha1", "v1alpha2", "v2alpha1", "v1beta1", "v1beta10", "v1", "v2", "v10"];
        for pair in sorted.windows(2) {
            assert!(priority(pair[0]) < priority(pair[1]), "{pair:?}");
        }
    }
}
