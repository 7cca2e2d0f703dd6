//! Read-only copies of components as `Manifest`s of Kyma Lifecycle Manager (KLM), for dashboards and runbooks that
//! read those (`--manifest-mirror`).
//!
//! A Manifest that KLM handed over keeps its spec, with which KLM would continue; only its status is written. Other
//! Manifests are left unchanged. The component owns its copy, so the garbage collector deletes the copy with it.

use std::collections::{BTreeMap, HashMap};

use kube::api::DynamicObject;
use kyma_api::{klm, labels};
use kyma_sdk::KymaKey;

use crate::FIELD_MANAGER;
use crate::component::ComponentId;
use crate::owned;

mod plan;
mod sync;

pub(crate) use sync::sync;

/// Origin of a Manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Created by this operator as a copy.
    Mirror,
    /// Created by KLM and handed over: it can be given back.
    HandedOver,
    /// Created by KLM or another actor.
    Foreign,
}

/// A Manifest on the hub, reduced to the fields that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    uid: String,
    /// resourceVersion as a number; only compared between states of one object.
    resource_version: u64,
    /// Module, by the label.
    module: Option<String>,
    /// uid of the controller.
    owner: Option<String>,
    origin: Origin,
    /// Fingerprint of the fields that kyma-operator owns, without the status.
    body: Option<String>,
    /// Fingerprint of the status fields that kyma-operator owns.
    status: Option<String>,
    terminating: bool,
}

impl Seen {
    /// Reduces a Manifest. Returns `None` if it cannot be read.
    pub(crate) fn of(object: &DynamicObject) -> Option<(String, Self)> {
        let meta = &object.metadata;
        let label = |name: &str| meta.labels.as_ref()?.get(name).map(String::as_str);
        let origin = match label(labels::HAND_OVER) {
            None if klm::is_mirror(meta) => Origin::Mirror,
            Some(labels::HAND_OVER_DONE) if label(labels::MIRROR).is_none() => Origin::HandedOver,
            _ => Origin::Foreign,
        };
        let mut owners = meta.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let seen = Self {
            uid: meta.uid.clone()?,
            resource_version: meta.resource_version.as_deref()?.parse().ok()?,
            module: label(labels::MODULE_NAME).map(str::to_owned),
            owner: controller.map(|owner| owner.uid.clone()),
            origin,
            body: owned::fingerprint(object, FIELD_MANAGER),
            status: owned::status_fingerprint(object, FIELD_MANAGER),
            terminating: meta.deletion_timestamp.is_some(),
        };
        Some((meta.name.clone()?, seen))
    }
}

/// A component with an up-to-date Manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Settled {
    /// resourceVersion of the component.
    component: u64,
    /// Name of its Manifest.
    manifest: String,
    /// resourceVersion of the Manifest.
    version: u64,
}

/// The hub's Manifests, and the components whose Manifest is up to date.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    seen: HashMap<String, Seen>,
    settled: HashMap<KymaKey, BTreeMap<ComponentId, Settled>>,
    /// Kyma whose component a Manifest shows, by name of the Manifest.
    shown: HashMap<String, KymaKey>,
    is_listed: bool,
}

impl Manifests {
    /// Reports whether the Manifests were listed.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Records that the Manifests cannot be listed.
    pub(crate) fn lost(&mut self) {
        *self = Self::default();
    }

    /// Records a complete list, by name. Returns the Kymas whose components have to be compared, or `None` for all
    /// Kymas if nothing was listed before.
    pub(crate) fn listed(&mut self, all: HashMap<String, Seen>) -> Option<Vec<KymaKey>> {
        let was_listed = std::mem::replace(&mut self.is_listed, true);
        self.seen = all;
        if !was_listed {
            return None;
        }
        // The hub may have been restored: only Manifests in exactly the recorded state are up to date.
        let (seen, shown) = (&self.seen, &self.shown);
        let differs = |settled: &Settled| {
            seen.get(&settled.manifest).is_none_or(|seen| seen.resource_version != settled.version)
        };
        for settled in self.settled.values_mut() {
            settled.retain(|_, settled| !differs(settled));
        }
        let is_settled = |name: &String, kyma: &KymaKey| {
            let mut of = self.settled.get(kyma).into_iter().flat_map(BTreeMap::values);
            of.any(|settled| settled.manifest == *name)
        };
        let open = shown.iter().filter(|(name, kyma)| !is_settled(name, kyma));
        Some(open.map(|(_, kyma)| kyma.clone()).collect())
    }

    /// Records a new or changed Manifest. Returns the Kyma of its component, unless the Manifest is as it was last
    /// written.
    pub(crate) fn apply(&mut self, name: String, seen: Seen) -> Option<KymaKey> {
        let kyma = self.shown.get(&name).cloned();
        let settled = kyma.iter().filter_map(|kyma| self.settled.get(kyma)).flat_map(BTreeMap::values);
        let is_ours =
            settled.into_iter().any(|one| one.manifest == name && one.version >= seen.resource_version);
        self.seen.insert(name, seen);
        kyma.filter(|_| !is_ours)
    }

    /// Records a deleted Manifest. Returns the Kyma of its component.
    pub(crate) fn delete(&mut self, name: &str) -> Option<KymaKey> {
        self.seen.remove(name);
        self.shown.get(name).cloned()
    }

    /// Removes all records of a deleted Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        for settled in self.settled.remove(kyma).into_iter().flatten() {
            self.shown.remove(&settled.1.manifest);
        }
    }

    /// Reports whether the Manifest of this component is up to date, for both resourceVersions.
    fn is_settled(&self, kyma: &KymaKey, component: &ComponentId, version: u64) -> bool {
        let settled = self.settled.get(kyma).and_then(|of| of.get(component));
        settled.is_some_and(|settled| {
            let seen = self.seen.get(&settled.manifest);
            settled.component == version && seen.is_some_and(|seen| seen.resource_version <= settled.version)
        })
    }

    fn settle(&mut self, kyma: &KymaKey, component: ComponentId, settled: Settled) {
        self.shown.insert(settled.manifest.clone(), kyma.clone());
        self.settled.entry(kyma.clone()).or_default().insert(component, settled);
    }

    /// Removes the records of deleted components.
    fn retain(&mut self, kyma: &KymaKey, is_there: impl Fn(&ComponentId) -> bool) {
        let Some(settled) = self.settled.get_mut(kyma) else { return };
        for (_, gone) in settled.extract_if(.., |component, _| !is_there(component)) {
            self.shown.remove(&gone.manifest);
        }
        if settled.is_empty() {
            self.settled.remove(kyma);
        }
    }
}

#[cfg(test)]
mod tests;
