//! Resolves the reference in a custom resource to its target, and requeues objects when an access Secret changes.

pub(crate) mod copied_secret;
mod grants;
mod reads;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    pin::pin,
    sync::Arc,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PartialObjectMeta},
};
use kube_runtime::watcher;
use kyma_api::{Reason, SecretKeyRef, labels, names};
use kyma_targets::{SecretKey, Target, TargetEvent, Targets};
use parking_lot::{Mutex, MutexGuard, RwLock};
use serde::Serialize;
use tokio::sync::{broadcast::error::RecvError, watch};
use tokio_util::sync::CancellationToken;

use crate::calls::objects::{find_metadata, find_object};
use crate::expression::evaluation::contain_panic;
use crate::failure::Failure;
use crate::hub::watch::hub_watch;
use crate::process::health::Health;
use crate::reconciler::index::Index;

use grants::Grants;
use reads::Reads;

/// Name under which the watch of access Secrets appears in /readyz.
pub(crate) const READYZ_PART: &str = "access secrets";

/// One state of a Secret, without anything of its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Revision {
    /// uid of the Secret.
    pub uid: String,
    /// resourceVersion of the Secret.
    pub resource_version: String,
}

impl Revision {
    /// Returns the revision that this metadata belongs to.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.uid, self.resource_version)
    }
}

/// Access to targets through access Secrets. Cheap to clone; each process has one.
#[derive(Clone)]
pub struct Access {
    inner: Arc<AccessInner>,
}

struct AccessInner {
    secrets: Api<Secret>,
    namespace: String,
    targets: Targets,
    local: Target,
    known: Mutex<Secrets>,
    /// Whether `known` is complete.
    listed: watch::Sender<bool>,
    /// Grants of the current content of each access Secret.
    grants: Grants,
    /// Reads under way.
    reads: Reads<SecretKey, Result<Target, Failure>>,
    listeners: RwLock<Vec<Listener>>,
}

/// The Secrets that the watch has seen.
#[derive(Default)]
struct Secrets {
    by_name: HashMap<String, ObjectMeta>,
    /// Names of Secrets by their label `kyma-name`.
    by_kyma: Index<String, String>,
}

impl Secrets {
    fn insert(&mut self, name: String, meta: ObjectMeta) -> Option<ObjectMeta> {
        let kyma = meta.labels.as_ref().and_then(|all| all.get(labels::KYMA_NAME)).cloned();
        self.by_kyma.set(name.clone(), kyma);
        self.by_name.insert(name, meta)
    }

    fn remove(&mut self, name: &str) -> Option<ObjectMeta> {
        self.by_kyma.remove(&name.to_owned());
        self.by_name.remove(name)
    }
}

type Listener = Box<dyn Fn(&AccessChange) + Send + Sync>;

/// A change of the access to targets. Objects that use this access should be reconciled.
#[derive(Clone, Debug)]
pub enum AccessChange {
    /// A Secret in the hub namespace was added or changed. Metadata only.
    Applied(Box<ObjectMeta>),
    /// A Secret in the hub namespace was deleted. This never requests a deletion.
    Deleted(Box<ObjectMeta>),
    /// The target behind the Secret of this name answers again.
    Recovered(String),
    /// Recovery notices were lost: any target may have recovered.
    AnyRecovered,
}

impl AccessChange {
    /// Returns the name of the Secret, or `None` if the change may concern any Secret.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::Applied(meta) | Self::Deleted(meta) => meta.name.as_deref(),
            Self::Recovered(name) => Some(name),
            Self::AnyRecovered => None,
        }
    }

    /// Returns the value of the Secret's label `kyma-name`, if the change has it. [`LongNames`](crate::LongNames)
    /// maps it to the name of the Kyma.
    pub fn kyma(&self) -> Option<&str> {
        match self {
            Self::Applied(meta) | Self::Deleted(meta) => {
                meta.labels.as_ref()?.get(labels::KYMA_NAME).map(String::as_str)
            }
            Self::Recovered(_) | Self::AnyRecovered => None,
        }
    }
}

impl Access {
    /// Returns the access through the Secrets of `namespace`. Changes are noticed while [`Access::run`] runs.
    pub fn new(hub: Client, namespace: &str, targets: Targets) -> Self {
        let inner = AccessInner {
            secrets: Api::namespaced(hub.clone(), namespace),
            namespace: namespace.to_owned(),
            local: targets.local(hub),
            targets,
            known: Mutex::default(),
            listed: watch::Sender::new(false),
            grants: Grants::default(),
            reads: Reads::default(),
            listeners: RwLock::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Calls `listener` on every later change. The listener runs inside of the watch, so it must not block.
    pub fn on_change(&self, listener: impl Fn(&AccessChange) + Send + Sync + 'static) {
        let mut listeners = self.inner.listeners.write();
        listeners.push(Box::new(listener));
    }

    /// Returns the target behind a Secret in the hub namespace: the cached one while the watch shows the Secret
    /// unchanged, otherwise one from a live read, which concurrent callers share. The next change of the Secret
    /// withdraws the target before the listeners of [`Access::on_change`] are called.
    ///
    /// # Errors
    /// `AwaitingAccess` until the Secret exists; `AccessInvalid` or the like for its content; `HubUnavailable`.
    pub async fn target(&self, reference: &SecretKeyRef) -> Result<Target, Failure> {
        let SecretKeyRef { name, key } = reference;
        if !is_object_name(name) {
            let message = "the reference to the access Secret contains no valid name of a Secret";
            return Err(Failure::new(Reason::AccessInvalid, message));
        }
        // Taken before the read, so that a change during the read withdraws the new target.
        let grant = self.inner.grants.grant_for(name);
        let target = match self.cached_target(reference) {
            Some(target) => target,
            None => self.inner.reads.share(self.place(name, key), || self.read(reference)).await?,
        };
        Ok(target.granted(grant))
    }

    async fn read(&self, SecretKeyRef { name, key }: &SecretKeyRef) -> Result<Target, Failure> {
        let namespace = &self.inner.namespace;
        let read = find_object(&self.inner.secrets, name).await;
        let secret =
            read.map_err(|error| Failure::hub(&format!("read secret {namespace}/{name}"), &error))?;
        let Some(secret) = secret else {
            self.inner.targets.forget(&self.place(name, key));
            let message = format!("no access secret {namespace}/{name}");
            return Err(Failure::new(Reason::AwaitingAccess, message));
        };
        Ok(self.inner.targets.from_secret(&secret, key)?)
    }

    /// Returns the cached target for this reference while the watch shows the Secret unchanged.
    pub(crate) fn cached_target(&self, SecretKeyRef { name, key }: &SecretKeyRef) -> Option<Target> {
        let known = self.known();
        let ObjectMeta { uid, resource_version, .. } = known.by_name.get(name)?;
        self.inner.targets.cached_target(
            &self.place(name, key),
            uid.as_deref()?,
            resource_version.as_deref()?,
        )
    }

    /// Returns the hub itself as a target.
    pub fn local(&self) -> Target {
        self.inner.local.clone()
    }

    /// Reports whether a live read, not the watch, returns `NotFound` for the Secret.
    ///
    /// # Errors
    /// `HubUnavailable` and similar: a failed read does not prove that the Secret is gone, nor does a 404 that does not
    /// name it.
    pub async fn is_gone(&self, name: &str) -> Result<bool, Failure> {
        if !is_object_name(name) {
            return Ok(true);
        }
        let read = find_metadata(&self.inner.secrets, name).await;
        let read = read.map_err(|error| Failure::hub(&format!("read secret {name}"), &error))?;
        Ok(read.is_none())
    }

    /// Returns the sorted names of the Secrets whose label `kyma-name` names this Kyma, as the watch shows them.
    pub fn labelled(&self, kyma: &str) -> Vec<String> {
        let known = self.known();
        let mut names: Vec<String> = known.by_kyma.dependents(&names::label_value(kyma)).cloned().collect();
        names.sort_unstable();
        names
    }

    /// Returns the last watched revision of the Secret of this name, with or without the label `kyma-name`.
    pub fn revision(&self, name: &str) -> Option<Revision> {
        self.known().by_name.get(name).map(Revision::of)
    }

    /// Returns the names and revisions of the watched Secrets with matching labels.
    pub fn revisions(
        &self,
        select: impl Fn(Option<&BTreeMap<String, String>>) -> bool,
    ) -> BTreeMap<String, Revision> {
        let known = self.known();
        let selected = known.by_name.iter().filter(|(_, meta)| select(meta.labels.as_ref()));
        selected.map(|(name, meta)| (name.clone(), Revision::of(meta))).collect()
    }

    /// Waits until all Secrets of the hub namespace are listed. Before that, a search by label finds none.
    pub async fn listed(&self) {
        // The sender lives as long as `self`, so the wait ends only when the list is complete.
        self.inner.listed.subscribe().wait_for(|listed| *listed).await.ok();
    }

    /// Watches the Secrets of the hub namespace (metadata only) and the health of targets, until `shutdown`.
    pub async fn run(&self, health: &Health, shutdown: CancellationToken) {
        let work = async { tokio::join!(self.watch_secrets(health), self.watch_recoveries()) };
        tokio::select! {
            _ = work => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn watch_secrets(&self, health: &Health) {
        let api: Api<PartialObjectMeta<Secret>> =
            Api::namespaced(self.inner.secrets.clone().into_client(), &self.inner.namespace);
        let mut events = pin!(hub_watch(api, watcher::Config::default()));
        let mut listed: Vec<PartialObjectMeta<Secret>> = vec![];
        while let Some(event) = events.next().await {
            let Ok(event) = event else { continue };
            match event {
                watcher::Event::Apply(secret) => self.applied(secret),
                watcher::Event::Delete(secret) => self.gone(&secret.name_any()),
                watcher::Event::Init => listed.clear(),
                watcher::Event::InitApply(secret) => listed.push(secret),
                watcher::Event::InitDone => {
                    self.relisted(std::mem::take(&mut listed));
                    self.inner.listed.send_replace(true);
                    health.ready(READYZ_PART);
                }
            }
        }
    }

    fn applied(&self, secret: PartialObjectMeta<Secret>) {
        let mut meta = secret.metadata;
        meta.managed_fields = None;
        let name = meta.name.clone().unwrap_or_default();
        let before = self.known().insert(name, meta.clone());
        let version = |meta: &ObjectMeta| (meta.uid.clone(), meta.resource_version.clone());
        if before.as_ref().map(version) != Some(version(&meta)) {
            self.notify(&AccessChange::Applied(Box::new(meta)));
        }
    }

    fn gone(&self, name: &str) {
        let before = self.known().remove(name);
        // Otherwise its connections, TLS state and tasks would stay until the cache is full.
        self.inner.targets.forget_secret(&self.inner.namespace, name);
        if let Some(meta) = before {
            self.notify(&AccessChange::Deleted(Box::new(meta)));
        }
    }

    fn relisted(&self, listed: Vec<PartialObjectMeta<Secret>>) {
        let names: HashSet<String> = listed.iter().map(ResourceExt::name_any).collect();
        let missing: Vec<String> =
            self.known().by_name.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in missing {
            self.gone(&name);
        }
        for secret in listed {
            self.applied(secret);
        }
    }

    async fn watch_recoveries(&self) {
        let mut events = self.inner.targets.events();
        loop {
            match events.recv().await {
                Ok(TargetEvent::Recovered(place)) => self.notify(&AccessChange::Recovered(place.name)),
                Ok(TargetEvent::Suspended(_)) => {}
                Err(RecvError::Lagged(_)) => self.notify(&AccessChange::AnyRecovered),
                // The sender lives in `targets`, so the channel is not closed while a target can still recover.
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn notify(&self, change: &AccessChange) {
        if let AccessChange::Applied(meta) | AccessChange::Deleted(meta) = change {
            self.inner.grants.withdraw(meta.name.as_deref().unwrap_or_default());
        }
        for listener in &*self.inner.listeners.read() {
            contain_panic("listener of access Secrets", || listener(change));
        }
    }

    fn place(&self, name: &str, key: &str) -> SecretKey {
        SecretKey { namespace: self.inner.namespace.clone(), name: name.to_owned(), key: key.to_owned() }
    }

    fn known(&self) -> MutexGuard<'_, Secrets> {
        self.inner.known.lock()
    }
}

/// Reports whether Kubernetes allows this object name. Any other text could change the path of the request.
pub fn is_object_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let ends = [name.bytes().next(), name.bytes().next_back()];
    name.len() <= 253
        && name.bytes().all(inner)
        && ends.into_iter().all(|byte| byte.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

/// Parses the value of a flag that names an object, or is empty.
///
/// # Errors
/// Kubernetes allows no object of this name.
pub fn object_name(text: &str) -> Result<String, String> {
    if text.is_empty() || is_object_name(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not a name that an object can have"))
    }
}

#[cfg(test)]
mod tests;
