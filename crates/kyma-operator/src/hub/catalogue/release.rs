//! A `ModuleReleaseMeta`, reduced to the fields that decisions read.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kyma_api::{ModuleReleaseMeta, ReleasedVersion};

/// An entry of `spec.versions[]`, which can be installed without a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedVersion {
    /// The version.
    pub(crate) version: String,
    /// The moment after which it is no longer supported.
    pub(crate) deprecation_date: Option<Timestamp>,
    /// The suggested alternative.
    pub(crate) deprecation_message: Option<String>,
}

/// Versions of a module and the Kymas that they are offered to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Release {
    /// The module: the object's name (KLM looks it up by name).
    pub(crate) module: String,
    /// The object's uid.
    pub(crate) uid: String,
    /// The OCM component that holds the content.
    pub(crate) ocm_component: Option<String>,
    /// Versions by channel.
    pub(crate) channels: BTreeMap<String, String>,
    /// Versions that may be pinned; absent: any version with a template.
    pub(crate) versions: Option<Vec<ListedVersion>>,
    /// Version that every Kyma gets.
    pub(crate) mandatory: Option<String>,
    /// Selects the Kymas that may have a restricted module, by their labels.
    pub(crate) selector: Option<LabelSelector>,
    /// Whether `spec.rollout` requests a staged rollout.
    pub(crate) rollout: bool,
    /// Whether the object has a deletionTimestamp.
    pub(crate) deleting: bool,
}

impl From<ModuleReleaseMeta> for Release {
    fn from(object: ModuleReleaseMeta) -> Self {
        let spec = object.spec;
        let listed = |version: ReleasedVersion| ListedVersion {
            version: version.version,
            deprecation_date: version.deprecation_date.map(|date| date.0),
            deprecation_message: version.deprecation_message,
        };
        Self {
            module: object.metadata.name.unwrap_or_default(),
            uid: object.metadata.uid.unwrap_or_default(),
            ocm_component: spec.ocm_component_name.filter(|name| !name.is_empty()),
            channels: spec.channels.into_iter().flatten().map(|one| (one.channel, one.version)).collect(),
            versions: spec.versions.map(|versions| versions.into_iter().map(listed).collect()),
            mandatory: spec.mandatory.map(|mandatory| mandatory.version),
            selector: spec.kyma_selector,
            rollout: spec.rollout.is_some(),
            deleting: object.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl Release {
    /// Reports whether the change affects all users of the module, not only single channels or versions.
    pub(crate) fn concerns_all_users(&self, new: &Self) -> bool {
        let same = |release: &Self| Self {
            channels: BTreeMap::new(),
            versions: release.versions.as_ref().map(|_| Vec::new()),
            ..release.clone()
        };
        same(self) != same(new)
    }

    /// Returns the channels whose version differs.
    pub(crate) fn changed_channels<'a>(&'a self, old: &'a Self) -> BTreeSet<&'a str> {
        let names = self.channels.keys().chain(old.channels.keys());
        names.filter(|name| self.channels.get(*name) != old.channels.get(*name)).map(String::as_str).collect()
    }

    /// Returns the versions whose entry in `versions[]` was added, removed or changed.
    pub(crate) fn changed_versions<'a>(&'a self, old: &'a Self) -> BTreeSet<&'a str> {
        let names = self.listed().chain(old.listed()).map(|listed| listed.version.as_str());
        names.filter(|version| self.find(version) != old.find(version)).collect()
    }

    /// Returns the entry of `versions[]` for a version.
    pub(crate) fn find(&self, version: &str) -> Option<&ListedVersion> {
        self.listed().find(|listed| listed.version == version)
    }

    fn listed(&self) -> impl Iterator<Item = &ListedVersion> {
        self.versions.iter().flatten()
    }
}
