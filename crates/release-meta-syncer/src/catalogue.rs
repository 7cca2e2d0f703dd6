//! The hub's catalogue, reduced on arrival to what copies and visibility need. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::api::ObjectMeta;
use kyma_api::visibility::{Audience, Viewer};
use kyma_api::{
    KindRef, ModuleReleaseMeta, ModuleReleaseMetaSpec, ModuleTemplate, ModuleTemplateSpec, labels, names,
};
use kyma_sdk::may_be_garbage;
use serde_json::json;

use crate::copy::{Copy, Key, Kind};

#[cfg(test)]
mod tests;

/// Maximum number of requested deletions that are remembered.
const MAX_DELETED: usize = 10_000;

/// One version of one module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    name: String,
    module: Option<String>,
    version: Option<String>,
    audience: Audience,
    copy: Arc<Copy>,
    origin: Origin,
}

/// What tells whether the end of a catalogue object is a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Origin {
    /// When it was created.
    pub(crate) created: Option<Timestamp>,
    /// Whether the garbage collector may delete it.
    pub(crate) is_dependent: bool,
}

impl Origin {
    fn of(meta: &ObjectMeta) -> Self {
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        Self { created, is_dependent: may_be_garbage(meta) }
    }
}

/// How a module is offered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Release {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: ModuleReleaseMetaSpec,
    origin: Origin,
}

impl Template {
    /// Reduces a `ModuleTemplate`: KLM's fields and the kinds that block a removal are copied; a component's CRD stays at
    /// the hub.
    pub(crate) fn of(template: ModuleTemplate) -> Self {
        let audience = Audience::of(&template);
        let origin = Origin::of(&template.metadata);
        let ModuleTemplate { metadata, spec } = template;
        let labels = metadata.labels.unwrap_or_default();
        let mut reduced = Self {
            name: metadata.name.unwrap_or_default(),
            module: spec.module_name.clone().filter(|name| !name.is_empty()),
            version: spec.version.clone().filter(|version| !version.is_empty()),
            audience,
            copy: Arc::new(Copy::new(&BTreeMap::new(), &BTreeMap::new(), json!(null))),
            origin,
        };
        reduced.module = reduced.module.or_else(|| labels.get(labels::MODULE_NAME).cloned());
        let associated_resources = visible_resources(&spec);
        let spec = ModuleTemplateSpec {
            associated_resources,
            component: None,
            chart: None,
            depends_on: None,
            ..spec
        };
        let annotations = metadata.annotations.unwrap_or_default();
        reduced.copy = Arc::new(Copy::new(&labels, &annotations, json!(spec)));
        reduced
    }

    /// Whether a template that is named for this version may be it: its spec does not say otherwise.
    fn may_be(&self, module: &str, version: &str) -> bool {
        let same = |held: &Option<String>, wanted: &str| held.as_ref().is_none_or(|held| held == wanted);
        same(&self.module, module) && same(&self.version, version)
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

/// The versions that a viewer sees, by the ways in which a release refers to them.
struct Visible<'a> {
    by_name: BTreeMap<&'a str, &'a Template>,
    by_version: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Visible<'a> {
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
    /// Reduces a `ModuleReleaseMeta`. Its name identifies the module, whatever its spec says.
    pub(crate) fn of(release: ModuleReleaseMeta) -> Self {
        let ModuleReleaseMeta { metadata, spec } = release;
        let name = metadata.name.clone().unwrap_or_default();
        let spec = ModuleReleaseMetaSpec { module_name: name.clone(), ..spec };
        Self {
            origin: Origin::of(&metadata),
            name,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            spec,
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// The versions that it refers to.
    fn versions(&self) -> impl Iterator<Item = &str> {
        let channels = self.spec.channels.iter().flatten().map(|channel| channel.version.as_str());
        channels.chain(self.spec.versions.iter().flatten().map(|version| version.version.as_str()))
    }

    fn is_hidden_from(&self, viewer: &Viewer<'_>) -> bool {
        let ModuleReleaseMetaSpec { mandatory, kyma_selector, .. } = &self.spec;
        viewer.module(&self.name, mandatory.is_some(), kyma_selector.as_ref()).is_err()
    }
}

/// All of the hub's catalogue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue {
    templates: BTreeMap<String, Arc<Template>>,
    releases: BTreeMap<String, Arc<Release>>,
    listed: BTreeSet<Kind>,
    /// Objects whose deletion was requested; only their copies are removed.
    deleted: BTreeSet<Key>,
}

impl Catalogue {
    /// Whether both kinds have been listed once; before that nothing may be concluded from what is missing.
    pub(crate) fn is_complete(&self) -> bool {
        Kind::BOTH.iter().all(|kind| self.listed.contains(kind))
    }

    /// Whether so much is missing that nothing of this kind may be removed on its word: a release shows what
    /// templates there are, so without any template both kinds are in doubt.
    pub(crate) fn is_doubtful(&self, kind: Kind) -> bool {
        self.templates.is_empty() || (kind == Kind::Release && self.releases.is_empty())
    }

    /// Whether the hub has this object, for whomever.
    pub(crate) fn has(&self, key: &Key) -> bool {
        match key.kind {
            Kind::Template => self.templates.contains_key(&key.name),
            Kind::Release => self.releases.contains_key(&key.name),
        }
    }

    /// Whether the deletion of the object was requested.
    pub(crate) fn is_deleted(&self, key: &Key) -> bool {
        self.deleted.contains(key)
    }

    /// What tells whether the end of the object is a request.
    pub(crate) fn origin(&self, key: &Key) -> Option<Origin> {
        match key.kind {
            Kind::Template => self.templates.get(&key.name).map(|template| template.origin.clone()),
            Kind::Release => self.releases.get(&key.name).map(|release| release.origin.clone()),
        }
    }

    /// Releases of which no version can be shown because the hub lost their templates: nothing follows from that.
    pub(crate) fn lacks_templates_of(&self, key: &Key) -> bool {
        let Some(release) = self.releases.get(&key.name).filter(|_| key.kind == Kind::Release) else {
            return false;
        };
        let all: Vec<&Arc<Template>> = self.templates.values().collect();
        let known = Visible::of(&all);
        release.versions().any(|version| {
            let template = Key { kind: Kind::Template, name: names::template_name(&release.name, version) };
            !known.has(&release.name, version) && !self.is_deleted(&template)
        })
    }

    /// Takes in a new or changed template. False if that is no news.
    pub(crate) fn apply_template(&mut self, template: Template) -> bool {
        self.deleted.remove(&Key { kind: Kind::Template, name: template.name.clone() });
        let before = self.templates.get(&template.name).map(AsRef::as_ref);
        let is_news = before != Some(&template);
        if is_news {
            self.templates.insert(template.name.clone(), Arc::new(template));
        }
        is_news
    }

    /// Takes in a new or changed release. False if that is no news.
    pub(crate) fn apply_release(&mut self, release: Release) -> bool {
        self.deleted.remove(&Key { kind: Kind::Release, name: release.name.clone() });
        let before = self.releases.get(release.name()).map(AsRef::as_ref);
        let is_news = before != Some(&release);
        if is_news {
            self.releases.insert(release.name().to_owned(), Arc::new(release));
        }
        is_news
    }

    /// Takes an object out; its copies are removed only if the deletion was requested. False if it was not there.
    pub(crate) fn remove(&mut self, key: &Key, is_requested: bool) -> bool {
        if is_requested && self.deleted.len() < MAX_DELETED {
            self.deleted.insert(key.clone());
        }
        match key.kind {
            Kind::Template => self.templates.remove(&key.name).is_some(),
            Kind::Release => self.releases.remove(&key.name).is_some(),
        }
    }

    /// A list of this kind is complete: what is not in it is gone. False if that is no news.
    pub(crate) fn listed(&mut self, kind: Kind, names: &BTreeSet<String>) -> bool {
        let before = self.templates.len() + self.releases.len();
        match kind {
            Kind::Template => self.templates.retain(|name, _| names.contains(name)),
            Kind::Release => self.releases.retain(|name, _| names.contains(name)),
        }
        self.listed.insert(kind) || self.templates.len() + self.releases.len() != before
    }

    /// The copies that a Kyma's target is to hold.
    pub(crate) fn visible_to(&self, viewer: &Viewer<'_>) -> BTreeMap<Key, Arc<Copy>> {
        let templates = self.visible_templates(viewer);
        let visible = Visible::of(&templates);
        let releases = self.releases.values().filter(|release| !release.is_hidden_from(viewer));
        let releases = releases.filter_map(|release| {
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

    fn visible_templates(&self, viewer: &Viewer<'_>) -> Vec<&Arc<Template>> {
        let hidden = self.releases.values().filter(|release| release.is_hidden_from(viewer));
        let hidden: BTreeSet<&str> = hidden.map(|release| release.name.as_str()).collect();
        let is_shown = |template: &&Arc<Template>| {
            viewer.version(template.audience).is_ok()
                && !template.module.as_deref().is_some_and(|module| hidden.contains(module))
        };
        self.templates.values().filter(is_shown).collect()
    }
}

/// The release without what its viewer cannot have; none if nothing is left to choose.
fn release_copy(release: &Release, visible: &Visible<'_>) -> Option<Copy> {
    let has = |version: &str| visible.has(&release.name, version);
    // The selector may name other customers.
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
