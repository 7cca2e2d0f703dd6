//! Which kind of component installs a module.

use std::fmt;

use kube::Resource;
use kyma_api::{HelmComponent, MandatoryModule, ModuleStatus, klm};

use crate::catalogue::Template;

/// API version and kind of a component.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ComponentKind {
    /// `<group>/<version>`.
    pub(crate) api_version: String,
    /// The kind.
    pub(crate) kind: String,
}

impl ComponentKind {
    /// The kind `kind` of `api_version`.
    pub(crate) fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// What installed a module, as its line tells; a Manifest of KLM is no component.
    pub(crate) fn of_line(line: &ModuleStatus) -> Option<Self> {
        let component = line.manifest.as_ref()?;
        let kind = component.kind.as_deref().filter(|kind| *kind != klm::MANIFEST)?;
        Some(Self::new(component.api_version.clone()?, kind))
    }

    /// What installed a mandatory module.
    pub(crate) fn of_mandatory(known: &MandatoryModule) -> Self {
        Self::new(known.api_version.clone(), known.kind.clone())
    }

    /// The API group; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The API version without its group.
    pub(crate) fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(self.api_version.as_str(), |(_, version)| version)
    }

    /// The base kind, which installs charts and manifests.
    pub(crate) fn helm() -> Self {
        Self::new(HelmComponent::api_version(&()), HelmComponent::kind(&()))
    }

    /// Whether it is the base kind, of whatever version.
    pub(crate) fn is_helm(&self) -> bool {
        let helm = Self::helm();
        self.group() == helm.group() && self.kind == helm.kind
    }
}

impl fmt::Display for ComponentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.group())
    }
}

/// The kind that a template names; the base kind if it names none.
pub(crate) fn kind_of(template: &Template) -> ComponentKind {
    template
        .spec
        .component
        .as_ref()
        .map_or_else(ComponentKind::helm, |named| ComponentKind::new(&named.api_version, &named.kind))
}
