//! Index of the catalogue: every `ModuleTemplate` and `ModuleReleaseMeta` of the hub's namespace, with the Kymas that
//! depend on its channels and versions.
//!
//! Each change returns the Kymas to requeue, in time proportional to their number: for a channel those that follow
//! it, for an entry of `versions[]` those that run or select the version. A Kyma with a pinned version is not
//! requeued for a channel.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kyma_api::names;
use kyma_controller::KymaKey;

pub(crate) mod release;
mod subscriptions;
mod template;

pub(crate) use release::Release;
pub(crate) use subscriptions::{Subscription, Subscriptions};
pub(crate) use template::Template;

/// Kymas to requeue after a change of the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum AffectedKymas {
    /// No Kyma.
    #[default]
    None,
    /// These Kymas.
    Some(BTreeSet<KymaKey>),
    /// Every Kyma: a mandatory module was added or removed, or its version changed.
    All,
}

/// All ModuleTemplates and ModuleReleaseMetas, indexed by module, version and name.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    templates: HashMap<String, Arc<Template>>,
    /// module -> version -> names of templates with both in their spec.
    versions: HashMap<String, BTreeMap<String, BTreeSet<String>>>,
    releases: BTreeMap<String, Arc<Release>>,
    mandatory: BTreeSet<String>,
    /// Mandatory modules whose release meta was deleted, with its uid. Kept after the object is gone, so that a
    /// component created meanwhile is removed too.
    withdrawn: BTreeMap<String, String>,
    subscriptions: Subscriptions,
}

impl Catalogue {
    /// Returns the release meta of a module.
    pub(crate) fn release(&self, module: &str) -> Option<&Arc<Release>> {
        self.releases.get(module)
    }

    /// Returns the template of a version: the object named `<module>-<version>`, as in KLM, or else one whose spec
    /// has both. Older catalogues use other names.
    pub(crate) fn template(&self, module: &str, version: &str) -> Option<&Arc<Template>> {
        let by_name = self
            .templates
            .get(&names::template_name(module, version))
            .filter(|template| template.may_be(module, version));
        by_name.or_else(|| {
            let names = self.versions.get(module)?.get(version)?;
            names.iter().find_map(|name| self.templates.get(name))
        })
    }

    /// Returns the release metas of mandatory modules.
    pub(crate) fn mandatory(&self) -> impl Iterator<Item = &Arc<Release>> {
        self.mandatory.iter().filter_map(|module| self.releases.get(module))
    }

    /// Records that the deletion of a mandatory module's release meta is confirmed. Returns the Kymas to requeue.
    pub(crate) fn withdraw(&mut self, module: &str, uid: &str) -> AffectedKymas {
        let before = self.withdrawn.insert(module.to_owned(), uid.to_owned());
        if before.as_deref() == Some(uid) { AffectedKymas::None } else { AffectedKymas::All }
    }

    /// Reports whether the module has to be removed from every Kyma.
    pub(crate) fn is_withdrawn(&self, module: &str) -> bool {
        self.withdrawn.contains_key(module)
    }

    /// Returns the mandatory modules to remove from every Kyma.
    pub(crate) fn withdrawn(&self) -> impl Iterator<Item = &str> {
        self.withdrawn.keys().map(String::as_str)
    }

    /// Replaces the subscriptions of one Kyma.
    pub(crate) fn subscribe(&mut self, kyma: &KymaKey, subscriptions: &[Subscription]) {
        self.subscriptions.set(kyma, subscriptions);
    }

    /// Returns Kymas that depend on the module.
    pub(crate) fn kymas_with(&self, module: &str) -> BTreeSet<KymaKey> {
        self.subscriptions.of_module(module)
    }

    /// Removes a deleted Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.subscriptions.set(kyma, &[]);
    }

    /// Adds or replaces a template.
    pub(crate) fn apply_template(&mut self, template: Template) -> AffectedKymas {
        let name = template.name.clone();
        let old = self.templates.get(&name).cloned();
        if old.as_deref() == Some(&template) {
            return AffectedKymas::None;
        }
        if let Some(old) = &old {
            self.unlist(old);
        }
        if let (Some(module), Some(version)) = (&template.module, &template.version) {
            let names = self.versions.entry(module.clone()).or_default().entry(version.clone()).or_default();
            names.insert(name.clone());
        }
        let mut affected = self.users_of(&template);
        if let Some(old) = &old {
            affected.extend(self.users_of(old));
        }
        let mandatory = self.is_mandatory(&template);
        self.templates.insert(name, Arc::new(template));
        if mandatory { AffectedKymas::All } else { AffectedKymas::from(affected) }
    }

    /// Removes a template.
    pub(crate) fn delete_template(&mut self, name: &str) -> AffectedKymas {
        let Some(old) = self.templates.remove(name) else {
            return AffectedKymas::None;
        };
        self.unlist(&old);
        if self.is_mandatory(&old) {
            return AffectedKymas::All;
        }
        AffectedKymas::from(self.users_of(&old))
    }

    /// Adds or replaces a release meta.
    pub(crate) fn apply_release(&mut self, release: Release) -> AffectedKymas {
        let module = release.module.clone();
        let old = self.releases.get(&module).cloned();
        if old.as_deref() == Some(&release) {
            return AffectedKymas::None;
        }
        // A recreated release meta is offered again, but not an older state of the deleted one.
        if self.withdrawn.get(&module).is_some_and(|uid| *uid != release.uid) {
            self.withdrawn.remove(&module);
        }
        let was_mandatory = old.as_ref().is_some_and(|old| old.mandatory.is_some());
        if release.mandatory.is_some() {
            self.mandatory.insert(module.clone());
        } else {
            self.mandatory.remove(&module);
        }
        let affected = match old.as_deref() {
            _ if was_mandatory || release.mandatory.is_some() => AffectedKymas::All,
            Some(old) => AffectedKymas::from(self.changed(old, &release)),
            None => AffectedKymas::from(self.subscriptions.of_module(&module)),
        };
        self.releases.insert(module, Arc::new(release));
        affected
    }

    /// Removes a release meta.
    pub(crate) fn delete_release(&mut self, module: &str) -> AffectedKymas {
        self.mandatory.remove(module);
        match self.releases.remove(module) {
            None => AffectedKymas::None,
            Some(old) if old.mandatory.is_some() => AffectedKymas::All,
            Some(_) => AffectedKymas::from(self.subscriptions.of_module(module)),
        }
    }

    /// Returns the names of all templates. A relist deletes those that it does not contain.
    pub(crate) fn template_names(&self) -> BTreeSet<String> {
        self.templates.keys().cloned().collect()
    }

    /// Returns the names of all modules with a release meta. A relist deletes those that it does not contain.
    pub(crate) fn release_names(&self) -> BTreeSet<String> {
        self.releases.keys().cloned().collect()
    }

    fn unlist(&mut self, old: &Template) {
        let (Some(module), Some(version)) = (&old.module, &old.version) else {
            return;
        };
        let Some(versions) = self.versions.get_mut(module) else {
            return;
        };
        if let Some(names) = versions.get_mut(version) {
            names.remove(&old.name);
            if names.is_empty() {
                versions.remove(version);
            }
        }
        if versions.is_empty() {
            self.versions.remove(module);
        }
    }

    fn is_mandatory(&self, template: &Template) -> bool {
        self.mandatory().any(|release| {
            release.mandatory.as_deref().is_some_and(|version| template.serves(&release.module, version))
        })
    }

    /// Returns Kymas that run or select this version, by the spec or the name of the template.
    fn users_of(&self, template: &Template) -> BTreeSet<KymaKey> {
        let mut users = self.subscriptions.of_template_name(&template.name);
        if let (Some(module), Some(version)) = (&template.module, &template.version) {
            users.extend(self.subscriptions.of_version(module, version));
        }
        users
    }

    fn changed(&self, old: &Release, new: &Release) -> BTreeSet<KymaKey> {
        if old.concerns_all_users(new) {
            return self.subscriptions.of_module(&new.module);
        }
        let channels = new.changed_channels(old).into_iter();
        let versions = new.changed_versions(old).into_iter();
        channels
            .flat_map(|channel| self.subscriptions.of_channel(&new.module, channel))
            .chain(versions.flat_map(|version| self.subscriptions.of_version(&new.module, version)))
            .collect()
    }
}

impl From<BTreeSet<KymaKey>> for AffectedKymas {
    fn from(kymas: BTreeSet<KymaKey>) -> Self {
        if kymas.is_empty() { Self::None } else { Self::Some(kymas) }
    }
}

#[cfg(test)]
impl Catalogue {
    /// Reports whether a Kyma depends on the catalogue.
    pub(crate) fn has_subscriptions(&self) -> bool {
        !self.subscriptions.is_empty()
    }
}

#[cfg(test)]
mod tests;
