//! Kind of the component that installs a module.

use std::fmt;

use kube::Resource;
use kyma_api::{HelmComponent, MandatoryModule, ModuleStatus, klm};

use crate::hub::catalogue::Template;

/// API version and kind of a component.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ComponentKind {
    /// `<group>/<version>`.
    pub(crate) api_version: String,
    /// The kind.
    pub(crate) kind: String,
}

impl ComponentKind {
    /// Creates a kind from `apiVersion` and `kind`.
    pub(crate) fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// Returns the kind in a module's status. A KLM Manifest is not a component.
    pub(crate) fn of_line(line: &ModuleStatus) -> Option<Self> {
        let component = line.manifest.as_ref()?;
        let kind = component.kind.as_deref().filter(|kind| *kind != klm::MANIFEST)?;
        Some(Self::new(component.api_version.clone()?, kind))
    }

    /// Returns the kind that installed a mandatory module.
    pub(crate) fn of_mandatory(known: &MandatoryModule) -> Self {
        Self::new(known.api_version.clone(), known.kind.clone())
    }

    /// Returns the API group; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the API version without its group.
    pub(crate) fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(self.api_version.as_str(), |(_, version)| version)
    }

    /// Returns the base kind HelmComponent, which installs charts and manifests.
    pub(crate) fn helm() -> Self {
        Self::new(HelmComponent::api_version(&()), HelmComponent::kind(&()))
    }

    /// Reports whether it is the base kind, in any version.
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

/// Returns the kind that a template names, by default the base kind.
pub(crate) fn kind_of(template: &Template) -> ComponentKind {
    template
        .spec
        .component
        .as_ref()
        .map_or_else(ComponentKind::helm, |named| ComponentKind::new(&named.api_version, &named.kind))
}
