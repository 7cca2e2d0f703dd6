//! Watches of the kinds that components depend on, besides the operator's own kind.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::StreamExt;
use kube::ResourceExt;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kube_runtime::watcher::{self, DefaultBackoff, Event};
use kyma_controller::{describe_cause, hub_watch};
use tokio_util::sync::CancellationToken;

use super::graph::ListState;
use super::index::{Dependencies, MAX_WATCHED_KINDS};
use super::kind_watch::{KindWatch, is_missing};
use super::view::{Kind, Node};
use crate::contract::{ComponentResource, Contract};

fn is_unserved(event: &watcher::Result<Event<DynamicObject>>) -> bool {
    let Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = event
    else {
        return false;
    };
    is_missing(error)
}

impl<R: ComponentResource> Dependencies<R> {
    /// Watches exactly these kinds from now on, besides the operator's own; `None` changes nothing. The caller holds
    /// `DependenciesInner::update_lock`.
    pub(super) fn follow_all(&self, kinds: Option<BTreeMap<Kind, BTreeSet<String>>>) {
        let Some(mut kinds) = kinds else { return };
        kinds.remove(&Kind::of::<R>());
        let own = Kind::of::<R>();
        let mut dropped = vec![];
        self.inner.followed.lock().retain(|kind, followed| {
            let stays = *kind == own || kinds.contains_key(kind);
            if !stays {
                followed.stop.cancel();
                dropped.push(kind.clone());
            }
            stays
        });
        for kind in dropped {
            let affected = self.inner.graph.lock().drop_kind(&kind);
            self.requeue(affected);
        }
        for (kind, versions) in kinds {
            let followed = self.inner.followed.lock();
            let (is_known, has_place) = (followed.contains_key(&kind), followed.len() < MAX_WATCHED_KINDS);
            drop(followed);
            if is_known || has_place {
                self.follow(kind, versions);
            } else {
                self.refuse(&kind, "too many kinds are depended on");
            }
        }
    }

    /// Watches a kind that components name in these API versions. Restarts the watch if the versions changed, since
    /// the watched version may no longer be among them.
    pub(super) fn follow(&self, kind: Kind, versions: BTreeSet<String>) {
        let stop = self.inner.runtime.process.shutdown.child_token();
        let mut followed = self.inner.followed.lock();
        if let Some(before) = followed.get(&kind) {
            if before.versions == versions {
                return;
            }
            before.stop.cancel();
        }
        followed.insert(kind.clone(), KindWatch { versions: versions.clone(), stop: stop.clone() });
        drop(followed);
        self.inner.graph.lock().set_list_state(&kind, ListState::Listing);
        let dependencies = self.clone();
        tokio::spawn(async move {
            let following = dependencies.run(&kind, &versions, &stop);
            stop.run_until_cancelled(following).await;
        });
    }

    async fn run(&self, kind: &Kind, versions: &BTreeSet<String>, stop: &CancellationToken) {
        if !versions.iter().any(|version| kind.can_be(version)) {
            self.refuse(kind, "no kind can have this name or API version");
            return;
        }
        let mut backoff = DefaultBackoff::default();
        loop {
            match self.resource(kind, versions).await {
                Ok(resource) => self.watch(kind, &resource, stop).await,
                Err(error) => self.record_failure(kind, &error),
            }
            // Back-off of the watch: a refused or failed list must not be repeated in a tight loop.
            match backoff.next() {
                Some(delay) if !stop.is_cancelled() => tokio::time::sleep(delay).await,
                _ => return,
            }
        }
    }

    /// Watches the kind until the hub no longer serves it in this version.
    async fn watch(&self, kind: &Kind, resource: &ApiResource, stop: &CancellationToken) {
        let mut listed = BTreeSet::new();
        let mut events = pin!(hub_watch(self.api(resource), watcher::Config::default()));
        while let Some(event) = events.next().await {
            let _guard = self.inner.update_lock.lock();
            // Events of a stopped watch are ignored: a new watch of the same kind may run already.
            if stop.is_cancelled() {
                return;
            }
            let is_over = is_unserved(&event);
            self.process_event(kind, event, &mut listed);
            if is_over {
                return;
            }
        }
    }

    /// Processes an event of the watch of a kind. The caller holds `DependenciesInner::update_lock`.
    fn process_event(
        &self,
        kind: &Kind,
        event: watcher::Result<Event<DynamicObject>>,
        listed: &mut BTreeSet<String>,
    ) {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.name_any());
                self.update_object(kind, &object);
            }
            Ok(Event::InitDone) => {
                let affected = self.inner.graph.lock().listed(kind, listed);
                self.requeue(affected);
            }
            Ok(Event::Apply(object)) => self.update_object(kind, &object),
            Ok(Event::Delete(object)) => {
                self.remove_component(&Node { kind: kind.clone(), name: object.name_any() });
            }
            Err(
                watcher::Error::InitialListFailed(error)
                | watcher::Error::WatchStartFailed(error)
                | watcher::Error::WatchFailed(error),
            ) => self.record_failure(kind, &error),
            Err(_) => {}
        }
    }

    fn update_object(&self, kind: &Kind, object: &DynamicObject) {
        let node = Node { kind: kind.clone(), name: object.name_any() };
        let contract = Contract::of_value(&object.data).unwrap_or_default();
        self.update_component(&node, &object.metadata, &contract, || {
            serde_json::to_value(object).unwrap_or_default()
        });
    }

    /// Records a kind that stays unreadable until a CRD or role on the hub changes; other errors are transient.
    fn record_failure(&self, kind: &Kind, error: &kube::Error) {
        match error {
            kube::Error::Api(status) if status.code == 403 => {
                self.refuse(kind, "this operator may not list and watch it");
            }
            kube::Error::Api(status) if status.code == 404 => self.refuse(kind, "the hub does not serve it"),
            kube::Error::Discovery(_) => self.refuse(kind, "the hub does not serve it"),
            // Some kinds, such as SubjectAccessReview, allow only writes.
            kube::Error::Api(status) if status.code == 405 => self.refuse(kind, "the hub does not list it"),
            error => {
                let error = describe_cause(error);
                tracing::warn!(error, kind = kind.kind, "a kind that components depend on cannot be watched");
            }
        }
    }

    fn refuse(&self, kind: &Kind, why: &str) {
        let affected = self.inner.graph.lock().set_list_state(kind, ListState::Refused(why.to_owned()));
        self.requeue(affected);
    }
}
