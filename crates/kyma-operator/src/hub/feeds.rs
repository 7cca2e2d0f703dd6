//! Watches that fill the indexes: catalogue, ModuleConfigs, component CRDs, components and the maintenance policy.

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt};
use kube_runtime::reflector::Store;
use kube_runtime::watcher;
use kyma_api::{Kyma, ModuleReleaseMeta, ModuleTemplate};
use kyma_controller::{FeedEvent, HubResource, KymaKey, contain_panic, feed, hub_watch};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::hub::catalogue::{AffectedKymas, Catalogue, Release, Template};
use crate::hub::component::ComponentKind;
use crate::hub::kinds::GroupKind;
use crate::state::State;

mod components;
mod configs;
mod maintenance;
mod manifests;
mod pauses;

pub(crate) use configs::{accept_proven_deletions, report as report_on_configs};

/// Sender that signals the first complete list of a feed.
type FirstListSender = Option<oneshot::Sender<()>>;

/// Starts all feeds; each runs until the process shuts down. Returns once every index holds a complete list.
pub(crate) async fn start(state: &Arc<State>, kymas: &Store<Kyma>) {
    let (first_templates, templates_listed) = oneshot::channel();
    let (first_releases, releases_listed) = oneshot::channel();
    let (first_configs, configs_listed) = oneshot::channel();
    let (first_crds, crds_listed) = oneshot::channel();
    spawn(state, follow_catalogue::<ModuleTemplate>(Arc::clone(state), kymas.clone(), Some(first_templates)));
    spawn(
        state,
        follow_catalogue::<ModuleReleaseMeta>(Arc::clone(state), kymas.clone(), Some(first_releases)),
    );
    spawn(state, configs::follow(Arc::clone(state), kymas.clone(), Some(first_configs)));
    spawn(state, follow_crds(Arc::clone(state), Some(first_crds)));
    spawn(state, pauses::report(Arc::clone(state)));
    spawn(state, maintenance::PolicyFile::read(Arc::clone(state)).await.follow());
    if state.args.manifest_mirror {
        spawn(state, manifests::follow(Arc::clone(state), kymas.clone()));
    }
    // An error means that the process is shutting down.
    _ = tokio::join!(templates_listed, releases_listed, configs_listed, crds_listed);
}

/// Runs a feed until the process shuts down.
pub(crate) fn spawn(state: &State, feed: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    state.runtime.process.spawn_part("a feed from the hub", feed)
}

/// A kind of the catalogue and its operations on the index.
trait CatalogueKind: HubResource {
    fn apply(self, catalogue: &mut Catalogue) -> AffectedKymas;
    fn delete(catalogue: &mut Catalogue, name: &str) -> AffectedKymas;
    fn names(catalogue: &Catalogue) -> BTreeSet<String>;
}

impl CatalogueKind for ModuleTemplate {
    fn apply(self, catalogue: &mut Catalogue) -> AffectedKymas {
        catalogue.apply_template(Template::from(self))
    }

    fn delete(catalogue: &mut Catalogue, name: &str) -> AffectedKymas {
        catalogue.delete_template(name)
    }

    fn names(catalogue: &Catalogue) -> BTreeSet<String> {
        catalogue.template_names()
    }
}

impl CatalogueKind for ModuleReleaseMeta {
    fn apply(self, catalogue: &mut Catalogue) -> AffectedKymas {
        catalogue.apply_release(Release::from(self))
    }

    fn delete(catalogue: &mut Catalogue, name: &str) -> AffectedKymas {
        catalogue.delete_release(name)
    }

    fn names(catalogue: &Catalogue) -> BTreeSet<String> {
        catalogue.release_names()
    }
}

/// Keeps one kind of the catalogue in the index and requeues affected Kymas.
async fn follow_catalogue<K: CatalogueKind>(
    state: Arc<State>,
    kymas: Store<Kyma>,
    mut first: FirstListSender,
) {
    let mut events = pin!(feed::<K>(&state.runtime));
    while let Some(event) = events.next().await {
        match event {
            FeedEvent::Applied(object) => {
                let what = format!("{} {}", K::kind(&()), object.name_any());
                contain_panic(&what, || {
                    let affected = object.apply(&mut state.catalogue_mut());
                    requeue(&state, &kymas, affected);
                });
            }
            FeedEvent::Deleted(name) => {
                let affected = K::delete(&mut state.catalogue_mut(), &name);
                requeue(&state, &kymas, affected);
            }
            FeedEvent::Listed(names) => {
                let indexed = K::names(&state.catalogue());
                for name in indexed.difference(&names) {
                    let affected = K::delete(&mut state.catalogue_mut(), name);
                    requeue(&state, &kymas, affected);
                }
                signal_first_list(&mut first);
            }
        }
    }
}

/// Watches CRDs in the groups of component kinds. Starts a watch for each kind that satisfies the contract.
async fn follow_crds(state: Arc<State>, mut first: FirstListSender) {
    let api: Api<CustomResourceDefinition> = Api::all(state.runtime.hub.clone());
    let mut events = pin!(hub_watch(api, watcher::Config::default()).filter_map(|event| ready(event.ok())));
    let mut watched: HashMap<GroupKind, JoinHandle<()>> = HashMap::new();
    let mut starting: Vec<oneshot::Receiver<()>> = Vec::new();
    let mut listed: BTreeSet<GroupKind> = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(crd) => {
                listed.insert(kind_of(&crd));
                starting.extend(apply_crd(&state, crd, &mut watched));
            }
            watcher::Event::Apply(crd) => drop(apply_crd(&state, crd, &mut watched)),
            watcher::Event::Delete(crd) => remove_crd(&state, &kind_of(&crd), &mut watched),
            watcher::Event::InitDone => {
                let gone: Vec<GroupKind> =
                    watched.keys().filter(|kind| !listed.contains(*kind)).cloned().collect();
                for kind in &gone {
                    remove_crd(&state, kind, &mut watched);
                }
                // A later list, after a break of the watch, must not wait for a kind that cannot be listed.
                if first.is_some() {
                    futures::future::join_all(starting.drain(..)).await;
                    signal_first_list(&mut first);
                }
                starting.clear();
            }
        }
    }
}

fn kind_of(crd: &CustomResourceDefinition) -> GroupKind {
    (crd.spec.group.clone(), crd.spec.names.kind.clone())
}

/// Handles a new or changed CRD. If this starts a watch, the returned receiver signals its first complete list.
fn apply_crd(
    state: &Arc<State>,
    crd: CustomResourceDefinition,
    watched: &mut HashMap<GroupKind, JoinHandle<()>>,
) -> Option<oneshot::Receiver<()>> {
    let key = kind_of(&crd);
    let served = crd.spec.versions.iter().find(|version| version.storage && version.served);
    let kind = ComponentKind::new(format!("{}/{}", key.0, served?.name), &key.1);
    crate::hub::component_crd::check_group(&kind, &state.policy.component_groups).ok()?;
    if crd.metadata.deletion_timestamp.is_some() {
        remove_crd(state, &key, watched);
        return None;
    }
    if !is_established(&crd) {
        return None;
    }
    let keeps_contract = crate::hub::component_crd::violations(&crd, &kind).is_empty();
    let plural = crd.spec.names.plural.clone();
    state.kinds_mut().apply(crd);
    state.requeue_waiting_for(&key);
    if !keeps_contract || watched.contains_key(&key) {
        return None;
    }
    let (first, known) = oneshot::channel();
    let feed = components::feed(Arc::clone(state), kind, plural, Some(first));
    watched.insert(key, spawn(state, feed));
    Some(known)
}

/// Handles a deleted or terminating CRD. Its components become unknown, so nothing is decided from their absence.
fn remove_crd(state: &State, kind: &GroupKind, watched: &mut HashMap<GroupKind, JoinHandle<()>>) {
    if let Some(feed) = watched.remove(kind) {
        feed.abort();
    }
    if state.kinds_mut().remove(&kind.0, &kind.1) {
        let orphaned = state.components_mut().retain(&kind.0, &kind.1, &BTreeSet::new());
        state.requeue_all(&orphaned);
    }
    state.requeue_waiting_for(kind);
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

fn signal_first_list(first: &mut FirstListSender) {
    if let Some(first) = first.take() {
        // The receiver is gone during shutdown.
        first.send(()).ok();
    }
}

fn requeue(state: &State, kymas: &Store<Kyma>, affected: AffectedKymas) {
    state.metrics.mandatory(state.catalogue().mandatory().count());
    state.requeue_affected(affected, || kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use testbed::{Answer, RequestMatcher, ScriptedServer, until};

    use super::*;
    use crate::state::tests::unconnected;

    const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const COMPONENTS: &str = "/apis/component.kyma-project.io/";

    #[tokio::test]
    async fn kind_that_cannot_be_listed_delays_crds_only_at_the_start() {
        let hub = ScriptedServer::start().await.unwrap();
        let mut crd = serde_json::to_value(kyma_api::crds::helm_component()).unwrap();
        crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        let listed = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList",
            "metadata": {"resourceVersion": "1"}, "items": [crd],
        });
        hub.always(RequestMatcher::path(COMPONENTS), Answer::failure(503, "ServiceUnavailable", "down"));
        hub.always(RequestMatcher::path(CRDS), Answer::json(&listed));
        let (mut state, _trigger) = unconnected();
        state.runtime.hub = hub.access().client().unwrap();
        let watched = until("the CRDs are watched", Duration::from_secs(30), || async {
            Ok((hub.count(&RequestMatcher::watch(CRDS)) > 0).then_some(()))
        });
        // Without a sender for the first list, as after the start.
        tokio::select! {
            () = follow_crds(Arc::new(state), None) => unreachable!("the feed ends only with the process"),
            watched = watched => watched.unwrap(),
        }
    }
}
