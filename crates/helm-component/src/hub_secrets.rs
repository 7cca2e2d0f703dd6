//! Secrets of the hub that components use, and the components to requeue when one changes.

use std::collections::{BTreeMap, BTreeSet};

use kyma_api::{HelmComponent, labels};
use kyma_controller::{Access, Index, Revision};
use parking_lot::Mutex;

use crate::args::HubArgs;
use crate::component_key::ComponentKey;
use crate::injection;
use crate::verify;

/// Content of the hub that a component's objects receive, and the Secrets of required signers. Both determine the
/// objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Additions {
    /// Name of the image-pull Secret for its workloads.
    pub pull_secret: Option<String>,
    /// Secrets of the hub that are meant for the module; `None` if the module's Secrets receive no content of the
    /// hub.
    pub injectable: Option<BTreeMap<String, Revision>>,
    /// Secrets with required signers; `None` for one that does not exist.
    pub verified_by: BTreeMap<String, Option<Revision>>,
}

/// The hub's Secrets as this operator sees them.
pub(crate) struct HubSecrets {
    access: Access,
    pull_secret: Option<String>,
    registry_secret: Option<String>,
    restricted: BTreeSet<String>,
    subscribers: Mutex<Index<String, ComponentKey>>,
}

impl HubSecrets {
    /// Creates the state by the flags; `access` watches the Secrets.
    pub(crate) fn new(flags: &HubArgs, registry_secret: &str, access: Access) -> Self {
        let pull_secret = flags.skr_image_pull_secret.clone();
        Self {
            access,
            pull_secret: Some(pull_secret).filter(|name| !name.is_empty()),
            registry_secret: Some(registry_secret.to_owned()).filter(|name| !name.is_empty()),
            restricted: flags.restricted_default_modules.iter().map(|name| name.trim().to_owned()).collect(),
            subscribers: Mutex::default(),
        }
    }

    /// Returns the names and revisions of the hub Secrets that determine a component's objects.
    pub(crate) fn additions(&self, component: &HelmComponent) -> Additions {
        let labels = component.metadata.labels.as_ref();
        // kyma-operator copies it to targets of Kymas.
        let is_kymas = labels.is_some_and(|all| all.contains_key(labels::KYMA_NAME));
        let injects = injection::is_for(&component.spec, &self.restricted);
        Additions {
            pull_secret: self.pull_secret.clone().filter(|_| is_kymas),
            injectable: injects.then(|| self.access.revisions(injection::is_meant)),
            verified_by: verify::secrets(&component.spec)
                .map(|name| (name.to_owned(), self.access.revision(name)))
                .collect(),
        }
    }

    /// Returns the name of the Secret with registry credentials for modules that name none.
    pub(crate) fn registry_secret(&self) -> Option<&str> {
        self.registry_secret.as_deref()
    }

    /// Returns the revision of the Secret of this name that the watch has reported last.
    pub(crate) fn revision(&self, name: &str) -> Option<Revision> {
        self.access.revision(name)
    }

    /// Requeues the component when one of these objects changes. Replaces its earlier subscription.
    pub(crate) fn subscribe(&self, component_key: &ComponentKey, names: impl IntoIterator<Item = String>) {
        self.subscribers.lock().set(component_key.clone(), names);
    }

    /// Returns the components to requeue after a change of this Secret.
    pub(crate) fn subscribers_of(&self, name: &str) -> Vec<ComponentKey> {
        self.subscribers.lock().dependents(&name.to_owned()).cloned().collect()
    }

    /// Removes a component that is gone.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.subscribers.lock().remove(component_key);
    }
}

#[cfg(test)]
impl HubSecrets {
    /// Reports whether no component uses a Secret.
    pub(crate) fn is_empty(&self) -> bool {
        self.subscribers.lock().dependencies() == 0
    }
}
