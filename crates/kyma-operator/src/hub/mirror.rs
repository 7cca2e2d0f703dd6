//! Read-only copies of components as `Manifest`s of Kyma Lifecycle Manager (KLM), for dashboards and runbooks that
//! read those (`--manifest-mirror`).
//!
//! A Manifest that KLM handed over keeps its spec, with which KLM would continue; only its status is written. Other
//! Manifests are left unchanged. The component owns its copy, so the garbage collector deletes the copy with it.

use std::collections::{BTreeMap, HashMap};

use kube::api::DynamicObject;
use kyma_api::{klm, labels};
use kyma_connection::owned_fields;
use kyma_controller::{KymaKey, OwnWrite, ResourceVersion, WriteThrough};

use crate::FIELD_MANAGER;
use crate::hub::component::ComponentId;

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
}

/// The hub's Manifests, and the components whose Manifest is up to date.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    observed: HashMap<String, ObservedManifest>,
    synced: HashMap<KymaKey, BTreeMap<ComponentId, SyncedManifest>>,
    /// Written or confirmed Manifests by name, with the Kyma whose component a Manifest shows.
    written: WriteThrough<String, KymaKey>,
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
        let listed = |name: &String| Some(self.observed.get(name)?.resource_version);
        self.written.end_list_at(ResourceVersion::default(), listed);
        let differing = self.written.writes().filter(|(_, write)| write.is_superseded());
        Some(differing.map(|(_, write)| write.value().clone()).collect())
    }

    /// Records a new or changed Manifest. Returns the Kyma of its component, unless the Manifest is as it was last
    /// written.
    pub(crate) fn apply(&mut self, name: String, observed: ObservedManifest) -> Option<KymaKey> {
        let kyma = self.written.last(&name).map(OwnWrite::value).cloned();
        let is_ours = self.written.at_or_after(&name, observed.resource_version).is_some();
        self.observed.insert(name, observed);
        kyma.filter(|_| !is_ours)
    }

    /// Records a deleted Manifest. Returns the Kyma of its component.
    pub(crate) fn delete(&mut self, name: &str) -> Option<KymaKey> {
        self.observed.remove(name);
        self.written.last(&name.to_owned()).map(OwnWrite::value).cloned()
    }

    /// Removes all records of a deleted Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        for synced in self.synced.remove(kyma).into_iter().flatten() {
            self.written.forget(&synced.1.manifest);
        }
    }

    /// Reports whether the Manifest of this component is up to date, for both resourceVersions.
    fn is_synced(&self, kyma: &KymaKey, component: &ComponentId, version: ResourceVersion) -> bool {
        let synced = self.synced.get(kyma).and_then(|of| of.get(component));
        synced.is_some_and(|synced| {
            let observed = self.observed.get(&synced.manifest);
            let written = observed
                .and_then(|observed| self.written.at_or_after(&synced.manifest, observed.resource_version));
            synced.component == version && written.is_some()
        })
    }

    /// Records that the Manifest of a component is up to date in this version.
    fn set_synced(
        &mut self,
        kyma: &KymaKey,
        component: ComponentId,
        synced: SyncedManifest,
        version: ResourceVersion,
    ) {
        self.written.record_write(synced.manifest.clone(), version, kyma.clone());
        self.synced.entry(kyma.clone()).or_default().insert(component, synced);
    }

    /// Removes the records of deleted components.
    fn retain(&mut self, kyma: &KymaKey, is_there: impl Fn(&ComponentId) -> bool) {
        let Some(synced) = self.synced.get_mut(kyma) else { return };
        for (_, gone) in synced.extract_if(.., |component, _| !is_there(component)) {
            self.written.forget(&gone.manifest);
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
        self.observed.is_empty() && self.synced.is_empty() && self.written.is_empty()
    }
}

#[cfg(test)]
mod tests;
