//! The hub's catalogue, reduced to the fields that copies and visibility need. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use kyma_api::visibility::{Audience, Viewer};
use kyma_api::{
    KindRef, ModuleReleaseMeta, ModuleReleaseMetaSpec, ModuleTemplate, ModuleTemplateSpec, labels, names,
};
use serde_json::json;

use crate::copy::{Copy, Key, Kind};

mod deletions;
mod object_origin;
#[cfg(test)]
mod tests;

use deletions::{Deletions, ModuleVersion};
pub(crate) use object_origin::ObjectOrigin;

/// A version of a module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    name: String,
    module: Option<String>,
    version: Option<String>,
    audience: Audience,
    copy: Arc<Copy>,
    origin: ObjectOrigin,
}

/// Versions and visibility of a module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Release {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: ModuleReleaseMetaSpec,
    origin: ObjectOrigin,
}

impl Template {
    /// Reduces a `ModuleTemplate`: KLM's fields and the kinds that block a removal are copied; a component's CRD
    /// stays at the hub.
    pub(crate) fn of(template: ModuleTemplate) -> Self {
        let audience = Audience::of(&template);
        let origin = ObjectOrigin::of(&template.metadata);
        let ModuleTemplate { metadata, spec } = template;
        let labels = metadata.labels.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let is_set = |value: &String| !value.is_empty();
        let label = || labels.get(labels::MODULE_NAME).cloned().filter(is_set);
        let module = spec.module_name.clone().filter(is_set).or_else(label);
        let version = spec.version.clone().filter(is_set);
        let associated_resources = visible_resources(&spec);
        let spec = ModuleTemplateSpec {
            associated_resources,
            component: None,
            chart: None,
            depends_on: None,
            ..spec
        };
        let copy = Arc::new(Copy::new(&labels, &annotations, json!(spec)));
        Self { name: metadata.name.unwrap_or_default(), module, version, audience, copy, origin }
    }

    /// Returns whether a template with the conventional name can be this version: its module and version are unset or
    /// equal.
    fn may_be(&self, module: &str, version: &str) -> bool {
        let same =
            |actual: &Option<String>, desired: &str| actual.as_ref().is_none_or(|actual| actual == desired);
        same(&self.module, module) && same(&self.version, version)
    }

    /// Returns whether only its name assigns it to the module: `<module>-<version>`.
    fn is_named_after(&self, module: &str) -> bool {
        let version = self.name.strip_prefix(module).and_then(|rest| rest.strip_prefix('-'));
        let is_version = |named: &str| match &self.version {
            Some(version) => version == named,
            None => semver::Version::parse(named).is_ok(),
        };
        self.module.is_none() && version.is_some_and(is_version)
    }

    /// Returns its module and version if both are set.
    fn module_version(&self) -> Option<ModuleVersion> {
        Some((self.module.clone()?, self.version.clone()?))
    }
}

/// Returns the kinds whose objects block a removal, for tools on the target: KLM's field and the `managedResources`
/// with a version, which the tools need.
fn visible_resources(spec: &ModuleTemplateSpec) -> Option<Vec<KindRef>> {
    let mut all = spec.associated_resources.clone().unwrap_or_default();
    for managed in spec.managed_resources.iter().flatten() {
        let is_named = all.iter().any(|one| one.group == managed.group && one.kind == managed.kind);
        if let Some(version) = managed.version.clone().filter(|_| !is_named) {
            all.push(KindRef { group: managed.group.clone(), version, kind: managed.kind.clone() });
        }
    }
    Some(all).filter(|all| !all.is_empty() || spec.associated_resources.is_some())
}

/// The versions visible to a viewer, by template name and by module and version.
struct VisibleVersions<'a> {
    by_name: BTreeMap<&'a str, &'a Template>,
    by_version: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> VisibleVersions<'a> {
    fn of(templates: &[&'a Arc<Template>]) -> Self {
        let mut visible = Self { by_name: BTreeMap::new(), by_version: BTreeSet::new() };
        for &template in templates {
            visible.by_name.insert(template.name.as_str(), template.as_ref());
            if let (Some(module), Some(version)) = (&template.module, &template.version) {
                visible.by_version.insert((module, version));
            }
        }
        visible
    }

    fn has(&self, module: &str, version: &str) -> bool {
        let named = || self.by_name.get(names::template_name(module, version).as_str());
        self.by_version.contains(&(module, version))
            || named().is_some_and(|template| template.may_be(module, version))
    }
}

impl Release {
    /// Reduces a `ModuleReleaseMeta`. Its name identifies the module, independent of its spec.
    pub(crate) fn of(release: ModuleReleaseMeta) -> Self {
        let ModuleReleaseMeta { metadata, spec } = release;
        let name = metadata.name.clone().unwrap_or_default();
        let spec = ModuleReleaseMetaSpec { module_name: name.clone(), ..spec };
        Self {
            origin: ObjectOrigin::of(&metadata),
            name,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            spec,
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Returns the versions that it refers to.
    fn versions(&self) -> impl Iterator<Item = &str> {
        let channels = self.spec.channels.iter().flatten().map(|channel| channel.version.as_str());
        channels.chain(self.spec.versions.iter().flatten().map(|version| version.version.as_str()))
    }

    /// Returns the versions that it refers to, and the mandatory one.
    fn all_versions(&self) -> impl Iterator<Item = &str> {
        self.versions().chain(self.spec.mandatory.iter().map(|mandatory| mandatory.version.as_str()))
    }

    fn is_hidden_from(&self, viewer: &Viewer<'_>) -> bool {
        let ModuleReleaseMetaSpec { mandatory, kyma_selector, .. } = &self.spec;
        viewer.module(&self.name, mandatory.is_some(), kyma_selector.as_ref()).is_err()
    }
}

/// The hub's whole catalogue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue {
    templates: BTreeMap<String, Arc<Template>>,
    releases: BTreeMap<String, Arc<Release>>,
    listed: BTreeSet<Kind>,
    deletions: Deletions,
    /// Names of releases that lack templates; computed on demand, reset by every change.
    lost_templates: OnceLock<BTreeSet<String>>,
}

impl Catalogue {
    /// Reports whether both kinds have been listed. Before that, missing objects prove nothing.
    pub(crate) fn is_complete(&self) -> bool {
        Kind::BOTH.iter().all(|kind| self.listed.contains(kind))
    }

    /// Returns whether the catalogue is too incomplete to delete copies of this kind: it has no template, or, for
    /// releases, no release.
    pub(crate) fn is_too_incomplete_to_delete(&self, kind: Kind) -> bool {
        self.templates.is_empty() || (kind == Kind::Release && self.releases.is_empty())
    }

    /// Returns whether the hub has the object, visible or not.
    pub(crate) fn has(&self, key: &Key) -> bool {
        match key.kind {
            Kind::Template => self.templates.contains_key(&key.name),
            Kind::Release => self.releases.contains_key(&key.name),
        }
    }

    /// Returns whether the deletion of the object was requested.
    pub(crate) fn is_deleted(&self, key: &Key) -> bool {
        self.deletions.is_requested(key)
    }

    /// Returns the origin of the object; `None` if the catalogue does not have it.
    pub(crate) fn origin(&self, key: &Key) -> Option<ObjectOrigin> {
        match key.kind {
            Kind::Template => self.templates.get(&key.name).map(|template| template.origin.clone()),
            Kind::Release => self.releases.get(&key.name).map(|release| release.origin.clone()),
        }
    }

    /// Returns whether a version of the release lacks its template on the hub without a requested deletion.
    pub(crate) fn has_lost_templates(&self, key: &Key) -> bool {
        let lost = || self.lost_templates.get_or_init(|| self.find_lost_templates());
        key.kind == Kind::Release && lost().contains(&key.name)
    }

    fn find_lost_templates(&self) -> BTreeSet<String> {
        let templates: Vec<&Arc<Template>> = self.templates.values().collect();
        let existing = VisibleVersions::of(&templates);
        let has_lost = |release: &&Arc<Release>| {
            release.versions().any(|version| {
                let name = names::template_name(&release.name, version);
                !existing.has(&release.name, version)
                    && !self.is_deleted(&Key { kind: Kind::Template, name })
                    && !self.deletions.is_version_requested(&release.name, version)
            })
        };
        self.releases.values().filter(has_lost).map(|release| release.name.clone()).collect()
    }

    /// Adds or replaces a template. Returns whether it changed.
    pub(crate) fn apply_template(&mut self, template: Template) -> bool {
        let key = Key { kind: Kind::Template, name: template.name.clone() };
        self.deletions.forget(&key, template.module_version().as_ref());
        self.lost_templates = OnceLock::new();
        let before = self.templates.get(&template.name).map(AsRef::as_ref);
        let is_news = before != Some(&template);
        if is_news {
            self.templates.insert(template.name.clone(), Arc::new(template));
        }
        is_news
    }

    /// Adds or replaces a release. Returns whether it changed.
    pub(crate) fn apply_release(&mut self, release: Release) -> bool {
        self.deletions.forget(&Key { kind: Kind::Release, name: release.name.clone() }, None);
        self.lost_templates = OnceLock::new();
        let before = self.releases.get(release.name()).map(AsRef::as_ref);
        let is_news = before != Some(&release);
        if is_news {
            self.releases.insert(release.name().to_owned(), Arc::new(release));
        }
        is_news
    }

    /// Removes an object. Returns whether it existed. Copies are deleted only if `is_requested`.
    pub(crate) fn remove(&mut self, key: &Key, is_requested: bool) -> bool {
        let (existed, version) = self.remove_object(key);
        if is_requested {
            self.record_deletion(key, version);
        }
        existed
    }

    /// Removes an object while it is unknown whether its deletion was requested. Returns whether it existed. Copies
    /// are kept until `classify_deletion`.
    pub(crate) fn remove_unclassified(&mut self, key: &Key) -> bool {
        let origin = self.origin(key);
        let (existed, version) = self.remove_object(key);
        if let Some(origin) = origin {
            self.deletions.defer(key, origin, version);
        }
        existed
    }

    /// Returns the removed objects of this kind whose deletion is not classified.
    pub(crate) fn unclassified_deletions(&self, kind: Kind) -> Vec<(Key, ObjectOrigin)> {
        self.deletions.unclassified(kind)
    }

    /// Classifies the deletion of an object that `remove_unclassified` removed. Returns whether copies may now be
    /// deleted; `false` if the object was added again.
    pub(crate) fn classify_deletion(&mut self, key: &Key, is_requested: bool) -> bool {
        let Some(deletion) = self.deletions.take_unclassified(key) else { return false };
        if is_requested {
            self.lost_templates = OnceLock::new();
            self.record_deletion(key, deletion.version);
        }
        is_requested
    }

    fn remove_object(&mut self, key: &Key) -> (bool, Option<ModuleVersion>) {
        self.lost_templates = OnceLock::new();
        match key.kind {
            Kind::Template => {
                let removed = self.templates.remove(&key.name);
                (removed.is_some(), removed.and_then(|template| template.module_version()))
            }
            Kind::Release => (self.releases.remove(&key.name).is_some(), None),
        }
    }

    fn record_deletion(&mut self, key: &Key, version: Option<ModuleVersion>) {
        // The version still exists if another template has it.
        let exists = |version: &ModuleVersion| {
            self.templates.values().any(|template| template.module_version().as_ref() == Some(version))
        };
        let version = version.filter(|version| !exists(version));
        self.deletions.record(key, version);
    }

    /// Removes objects of this kind that a complete list lacks. Returns whether the catalogue changed.
    pub(crate) fn retain_listed(&mut self, kind: Kind, names: &BTreeSet<String>) -> bool {
        self.lost_templates = OnceLock::new();
        let before = self.templates.len() + self.releases.len();
        match kind {
            Kind::Template => self.templates.retain(|name, _| names.contains(name)),
            Kind::Release => self.releases.retain(|name, _| names.contains(name)),
        }
        self.listed.insert(kind) || self.templates.len() + self.releases.len() != before
    }

    /// Returns the copies for the target of a Kyma.
    pub(crate) fn visible_to(&self, viewer: &Viewer<'_>) -> BTreeMap<Key, Arc<Copy>> {
        let (hidden, shown): (Vec<&Arc<Release>>, Vec<&Arc<Release>>) =
            self.releases.values().partition(|release| release.is_hidden_from(viewer));
        let templates = self.visible_templates(viewer, &hidden);
        let visible = VisibleVersions::of(&templates);
        let releases = shown.into_iter().filter_map(|release| {
            let copy = release_copy(release, &visible)?;
            Some((Key { kind: Kind::Release, name: release.name().to_owned() }, Arc::new(copy)))
        });
        let mut copies: BTreeMap<Key, Arc<Copy>> = releases.collect();
        copies.extend(templates.iter().map(|template| {
            let key = Key { kind: Kind::Template, name: template.name.clone() };
            (key, Arc::clone(&template.copy))
        }));
        copies
    }

    /// Returns the templates that the viewer sees. A hidden release hides the templates of its module, those that only
    /// their name assigns to it, and those with the name of one of its versions unless their spec contradicts.
    fn visible_templates(&self, viewer: &Viewer<'_>, hidden: &[&Arc<Release>]) -> Vec<&Arc<Template>> {
        let hidden_modules: BTreeSet<&str> = hidden.iter().map(|release| release.name()).collect();
        // Several pairs of module and version may have the same conventional name.
        let mut hidden_names: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
        for release in hidden {
            for version in release.all_versions() {
                let name = names::template_name(release.name(), version);
                hidden_names.entry(name).or_default().push((release.name(), version));
            }
        }
        let is_hidden_by_name = |template: &Template| {
            let versions = hidden_names.get(&template.name);
            versions.is_some_and(|all| all.iter().any(|(module, version)| template.may_be(module, version)))
        };
        let is_shown = |template: &&Arc<Template>| {
            viewer.version(template.audience).is_ok()
                && !template.module.as_deref().is_some_and(|module| hidden_modules.contains(module))
                && !is_hidden_by_name(template)
                && !hidden_modules.iter().any(|module| template.is_named_after(module))
        };
        self.templates.values().filter(is_shown).collect()
    }
}

/// Returns the release with only the versions that the viewer sees; `None` if there is none.
fn release_copy(release: &Release, visible: &VisibleVersions<'_>) -> Option<Copy> {
    let has = |version: &str| visible.has(&release.name, version);
    // kymaSelector may name other customers.
    let mut spec = ModuleReleaseMetaSpec { rollout: None, kyma_selector: None, ..release.spec.clone() };
    if let Some(channels) = &mut spec.channels {
        channels.retain(|channel| has(&channel.version));
    }
    if let Some(versions) = &mut spec.versions {
        versions.retain(|version| has(&version.version));
    }
    spec.channels = spec.channels.filter(|channels| !channels.is_empty());
    spec.versions = spec.versions.filter(|versions| !versions.is_empty());
    if spec.channels.is_none() && spec.versions.is_none() {
        return None;
    }
    // Busola and the Kyma CLI require the list.
    spec.channels.get_or_insert_default();
    Some(Copy::new(&release.labels, &release.annotations, json!(spec)))
}
