//! The watches of kinds that components name, beside the own one.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::StreamExt;
use kube::api::ApiResource;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::pinned_kind;
use kube::{Client, ResourceExt};
use kube_runtime::watcher::{self, DefaultBackoff, Event};
use kyma_api::HelmComponent;
use tokio_util::sync::CancellationToken;

use super::graph::Standing;
use super::view::{Kind, Node};
use super::{Dependencies, KINDS, lock};
use crate::{ComponentResource, Contract, hub_watch};

/// The kind as the hub serves it.
pub(super) async fn resource(hub: &Client, kind: &Kind, version: &str) -> kube::Result<ApiResource> {
    if *kind == Kind::helm() {
        return Ok(ApiResource::erase::<HelmComponent>(&()));
    }
    let version = version.rsplit_once('/').map_or(version, |(_, version)| version);
    let gvk = GroupVersionKind::gvk(&kind.group, version, &kind.kind);
    Ok(pinned_kind(hub, &gvk).await?.0)
}

impl<R: ComponentResource> Dependencies<R> {
    /// Follows exactly these kinds from now on, beside the own one; nothing to do where they are as they were. Under the
    /// turn.
    pub(super) fn follow_all(&self, kinds: Option<BTreeMap<Kind, String>>) {
        let Some(mut kinds) = kinds else { return };
        kinds.remove(&Kind::of::<R>());
        let own = Kind::of::<R>();
        let mut dropped = vec![];
        lock(&self.inner.followed).retain(|kind, stop| {
            let stays = *kind == own || kinds.contains_key(kind);
            if !stays {
                stop.cancel();
                dropped.push(kind.clone());
            }
            stays
        });
        for kind in dropped {
            let affected = lock(&self.inner.graph).drop_kind(&kind);
            self.wake(affected);
        }
        for (kind, version) in kinds {
            let followed = lock(&self.inner.followed).len();
            if followed < KINDS {
                self.follow(kind, version);
            } else if !lock(&self.inner.followed).contains_key(&kind) {
                self.refuse(&kind, "too many kinds are depended on");
            }
        }
    }

    pub(super) fn follow(&self, kind: Kind, version: String) {
        let stop = self.inner.runtime.process.shutdown.child_token();
        let mut followed = lock(&self.inner.followed);
        if followed.contains_key(&kind) {
            return;
        }
        followed.insert(kind.clone(), stop.clone());
        drop(followed);
        lock(&self.inner.graph).stands(&kind, Standing::Listing);
        let dependencies = self.clone();
        tokio::spawn(async move {
            let following = dependencies.run(&kind, &version, &stop);
            stop.run_until_cancelled(following).await;
        });
    }

    async fn run(&self, kind: &Kind, version: &str, stop: &CancellationToken) {
        if !kind.can_be(version) {
            self.refuse(kind, "no kind can have this name or API version");
            return;
        }
        let mut backoff = DefaultBackoff::default();
        let resource = loop {
            match self.resource(kind, version).await {
                Ok(resource) => break resource,
                Err(error) => self.failed(kind, &error),
            }
            match backoff.next() {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return,
            }
        };
        let mut listed = BTreeSet::new();
        let mut events = pin!(hub_watch(self.api(&resource), watcher::Config::default()));
        while let Some(event) = events.next().await {
            let _turn = lock(&self.inner.turn);
            // One that is not followed any more tells nothing: its kind may be followed anew by now.
            if stop.is_cancelled() {
                return;
            }
            self.told(kind, event, &mut listed);
        }
    }

    /// The watch of a kind tells something. Under the turn.
    fn told(&self, kind: &Kind, event: watcher::Result<Event<DynamicObject>>, listed: &mut BTreeSet<String>) {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.name_any());
                self.learn_of(kind, &object);
            }
            Ok(Event::InitDone) => {
                let affected = lock(&self.inner.graph).listed(kind, listed);
                self.wake(affected);
            }
            Ok(Event::Apply(object)) => self.learn_of(kind, &object),
            Ok(Event::Delete(object)) => {
                self.lose(&Node { kind: kind.clone(), name: object.name_any() });
            }
            Err(
                watcher::Error::InitialListFailed(error)
                | watcher::Error::WatchStartFailed(error)
                | watcher::Error::WatchFailed(error),
            ) => self.failed(kind, &error),
            Err(_) => {}
        }
    }

    fn learn_of(&self, kind: &Kind, object: &DynamicObject) {
        let node = Node { kind: kind.clone(), name: object.name_any() };
        let contract = Contract::of_value(object.data.clone()).unwrap_or_default();
        self.learn(&node, &object.metadata, &contract, || serde_json::to_value(object).unwrap_or_default());
    }

    /// What cannot be read as long as nobody changes the hub or a role is told; the rest passes by itself.
    fn failed(&self, kind: &Kind, error: &kube::Error) {
        match error {
            kube::Error::Api(status) if status.code == 403 => {
                self.refuse(kind, "this operator may not list and watch it");
            }
            kube::Error::Api(status) if status.code == 404 => self.refuse(kind, "the hub does not serve it"),
            kube::Error::Discovery(_) => self.refuse(kind, "the hub does not serve it"),
            // Such as a kind that can only be written.
            kube::Error::Api(status) if status.code == 405 => self.refuse(kind, "the hub does not list it"),
            error => tracing::warn!(%error, kind = kind.kind, "a kind that components depend on"),
        }
    }

    fn refuse(&self, kind: &Kind, why: &str) {
        let affected = lock(&self.inner.graph).stands(kind, Standing::Refused(why.to_owned()));
        self.wake(affected);
    }
}
