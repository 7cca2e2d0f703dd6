//! Read-only copies of components as `Manifest`s of Kyma Lifecycle Manager (KLM), for dashboards and runbooks that
//! read those (`--manifest-mirror`).
//!
//! A Manifest that KLM handed over keeps its spec, with which KLM would continue; only its status is written. Other
//! Manifests are left unchanged. The component owns its copy, so the garbage collector deletes the copy with it.

use std::collections::{BTreeMap, HashMap};

use kube::api::DynamicObject;
use kyma_api::{klm, labels};
use kyma_connection::owned_fields;
use kyma_sdk::{KymaKey, ResourceVersion};

use crate::FIELD_MANAGER;
use crate::component::ComponentId;

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
pub(crate) struct ObservedManifest {
    uid: String,
    resource_version: ResourceVersion,
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

impl ObservedManifest {
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
        let observed = Self {
            uid: meta.uid.clone()?,
            resource_version: ResourceVersion::of(meta)?,
            module: label(labels::MODULE_NAME).map(str::to_owned),
            owner: controller.map(|owner| owner.uid.clone()),
            origin,
            body: owned_fields::fingerprint(object, FIELD_MANAGER),
            status: owned_fields::status_fingerprint(object, FIELD_MANAGER),
            terminating: meta.deletion_timestamp.is_some(),
        };
        Some((meta.name.clone()?, observed))
    }
}

/// A component with an up-to-date Manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SyncedManifest {
    /// resourceVersion of the component.
    component: ResourceVersion,
    /// Name of its Manifest.
    manifest: String,
    /// resourceVersion of the Manifest.
    version: ResourceVersion,
}

/// The hub's Manifests, and the components whose Manifest is up to date.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    observed: HashMap<String, ObservedManifest>,
    synced: HashMap<KymaKey, BTreeMap<ComponentId, SyncedManifest>>,
    /// Kyma whose component a Manifest shows, by name of the Manifest.
    kyma_by_manifest: HashMap<String, KymaKey>,
    is_listed: bool,
}

impl Manifests {
    /// Reports whether the Manifests were listed.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Records that the Manifests cannot be listed.
    pub(crate) fn mark_unlisted(&mut self) {
        *self = Self::default();
    }

    /// Records a complete list, by name. Returns the Kymas whose components have to be compared, or `None` for all
    /// Kymas if nothing was listed before.
    pub(crate) fn listed(&mut self, all: HashMap<String, ObservedManifest>) -> Option<Vec<KymaKey>> {
        let was_listed = std::mem::replace(&mut self.is_listed, true);
        self.observed = all;
        if !was_listed {
            return None;
        }
        // The hub may have been restored: only Manifests in exactly the recorded state are up to date.
        let (observed, kyma_by_manifest) = (&self.observed, &self.kyma_by_manifest);
        let differs = |synced: &SyncedManifest| {
            observed.get(&synced.manifest).is_none_or(|observed| observed.resource_version != synced.version)
        };
        for synced in self.synced.values_mut() {
            synced.retain(|_, synced| !differs(synced));
        }
        let is_synced = |name: &String, kyma: &KymaKey| {
            let mut of = self.synced.get(kyma).into_iter().flat_map(BTreeMap::values);
            of.any(|synced| synced.manifest == *name)
        };
        let open = kyma_by_manifest.iter().filter(|(name, kyma)| !is_synced(name, kyma));
        Some(open.map(|(_, kyma)| kyma.clone()).collect())
    }

    /// Records a new or changed Manifest. Returns the Kyma of its component, unless the Manifest is as it was last
    /// written.
    pub(crate) fn apply(&mut self, name: String, observed: ObservedManifest) -> Option<KymaKey> {
        let kyma = self.kyma_by_manifest.get(&name).cloned();
        let synced = kyma.iter().filter_map(|kyma| self.synced.get(kyma)).flat_map(BTreeMap::values);
        let is_ours =
            synced.into_iter().any(|one| one.manifest == name && one.version >= observed.resource_version);
        self.observed.insert(name, observed);
        kyma.filter(|_| !is_ours)
    }

    /// Records a deleted Manifest. Returns the Kyma of its component.
    pub(crate) fn delete(&mut self, name: &str) -> Option<KymaKey> {
        self.observed.remove(name);
        self.kyma_by_manifest.get(name).cloned()
    }

    /// Removes all records of a deleted Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        for synced in self.synced.remove(kyma).into_iter().flatten() {
            self.kyma_by_manifest.remove(&synced.1.manifest);
        }
    }

    /// Reports whether the Manifest of this component is up to date, for both resourceVersions.
    fn is_synced(&self, kyma: &KymaKey, component: &ComponentId, version: ResourceVersion) -> bool {
        let synced = self.synced.get(kyma).and_then(|of| of.get(component));
        synced.is_some_and(|synced| {
            let observed = self.observed.get(&synced.manifest);
            synced.component == version
                && observed.is_some_and(|observed| observed.resource_version <= synced.version)
        })
    }

    fn set_synced(&mut self, kyma: &KymaKey, component: ComponentId, synced: SyncedManifest) {
        self.kyma_by_manifest.insert(synced.manifest.clone(), kyma.clone());
        self.synced.entry(kyma.clone()).or_default().insert(component, synced);
    }

    /// Removes the records of deleted components.
    fn retain(&mut self, kyma: &KymaKey, is_there: impl Fn(&ComponentId) -> bool) {
        let Some(synced) = self.synced.get_mut(kyma) else { return };
        for (_, gone) in synced.extract_if(.., |component, _| !is_there(component)) {
            self.kyma_by_manifest.remove(&gone.manifest);
        }
        if synced.is_empty() {
            self.synced.remove(kyma);
        }
    }
}

#[cfg(test)]
impl Manifests {
    /// Reports whether no Manifest and no component is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.observed.is_empty() && self.synced.is_empty() && self.kyma_by_manifest.is_empty()
    }
}

#[cfg(test)]
mod tests;
