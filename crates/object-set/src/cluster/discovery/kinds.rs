//! Kinds that a target serves, with their resources and scopes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery};
use kube::{Api, api::PartialObjectMeta};
use serde_json::Value;

use crate::object::{GroupKind, Gvk, Identity, Object};

/// REST mapping of a kind in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Verbs as the API server names them (`list`, `watch`, `delete` ...).
    pub verbs: Vec<String>,
}

impl Mapping {
    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk::new(&self.resource.group, &self.resource.version, &self.resource.kind)
    }

    /// Reports whether the API server offers a verb for this kind.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|offered| offered == verb)
    }

    /// Access to whole objects; the namespace counts only for namespaced kinds.
    pub fn api(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// Access to metadata only; the namespace counts only for namespaced kinds.
    pub fn metadata_api(
        &self,
        client: &Client,
        namespace: Option<&str>,
    ) -> Api<PartialObjectMeta<DynamicObject>> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }
}

/// Immutable result of one discovery of a target.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Served versions of each kind, in the server's order of preference.
    by_kind: BTreeMap<GroupKind, Vec<Mapping>>,
    /// Every `group/version`, also of those that do not answer, and of these every `group/version/Kind` that is
    /// known.
    named: BTreeSet<String>,
    /// Kinds of aggregated APIs that do not answer, as of their last answer.
    silent: Vec<Mapping>,
    /// Group versions whose kinds are unknown, since their aggregated API does not answer.
    unknown: BTreeSet<String>,
    kube_version: String,
    /// Identifies the discovery. Clones share it, also those to which kinds of CRDs were added.
    pub(super) discovery: Arc<()>,
}

impl Kinds {
    /// Returns the kinds of a target of this version, of which none is read yet.
    pub(super) fn of_version(kube_version: String) -> Self {
        Self { kube_version, ..Self::default() }
    }

    /// The mapping of a kind in exactly this version.
    pub fn get(&self, gvk: &Gvk) -> Option<&Mapping> {
        self.versions(&gvk.group_kind()).iter().find(|mapping| mapping.resource.version == gvk.version)
    }

    /// The mapping of a kind in the version that the server prefers.
    pub fn preferred(&self, kind: &GroupKind) -> Option<&Mapping> {
        self.versions(kind).first()
    }

    /// The mapping in this version if it is still served, else in the preferred one.
    pub fn any(&self, gvk: &Gvk) -> Option<&Mapping> {
        self.get(gvk).or_else(|| self.preferred(&gvk.group_kind()))
    }

    /// Returns all served versions of a kind, in the server's order of preference.
    pub fn versions(&self, kind: &GroupKind) -> &[Mapping] {
        self.by_kind.get(kind).map_or(&[], Vec::as_slice)
    }

    /// Returns each kind once, in its preferred version.
    pub fn all(&self) -> impl Iterator<Item = &Mapping> {
        self.by_kind.values().filter_map(|versions| versions.first())
    }

    /// Reports whether the kinds of this group are unknown, because an aggregated API of it does not answer. An
    /// absent kind of such a group is not proof that it is gone.
    pub fn is_unknown(&self, group: &str) -> bool {
        self.unknown.iter().any(|gv| gv.rsplit_once('/').map_or("", |(g, _)| g) == group)
    }

    /// Returns the kinds of aggregated APIs that answered once and do not answer now: their objects are unknown.
    pub(crate) fn silent(&self) -> impl Iterator<Item = &Mapping> {
        self.silent.iter()
    }

    /// Group versions whose aggregated API does not answer, as in `metrics.k8s.io/v1beta1`.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(String::as_str)
    }

    /// Returns the values for `helm template --api-versions`: every `group/version` and `group/version/Kind`, sorted.
    pub fn api_versions(&self) -> Vec<String> {
        let kinds = self.by_kind.values().flatten().map(|mapping| mapping.gvk().to_string());
        let mut all: BTreeSet<String> = self.named.clone();
        all.extend(kinds);
        all.into_iter().collect()
    }

    /// Returns the server's version for `helm template --kube-version`, for example `v1.33.2`.
    pub fn kube_version(&self) -> &str {
        &self.kube_version
    }

    pub(super) fn add(&mut self, list: APIGroupDiscoveryList) {
        for group in list.items {
            let group_name = group.metadata.and_then(|m| m.name).unwrap_or_default();
            for version in group.versions {
                let Some(version_name) = version.version else { continue };
                let api_version = Gvk::new(&group_name, &version_name, "").api_version();
                let is_silent = version.freshness.as_deref() == Some("Stale");
                self.named.insert(api_version.clone());
                if is_silent {
                    self.unknown.insert(api_version);
                }
                for resource in version.resources {
                    let Some(mapping) = mapping_of(&group_name, &version_name, resource) else { continue };
                    if is_silent {
                        // Kept as of the API's last answer, so that charts see no change; its objects are not read.
                        self.named.insert(mapping.gvk().to_string());
                        self.silent.push(mapping);
                    } else {
                        self.by_kind.entry(mapping.gvk().group_kind()).or_default().push(mapping);
                    }
                }
            }
        }
    }

    /// Returns these kinds and the kinds of these CRDs in the versions that they serve: valid as soon as a CRD is
    /// established, before discovery shows it. Without CRDs nothing is copied.
    pub fn with_crds<'a>(self: &Arc<Self>, crds: impl IntoIterator<Item = &'a Object>) -> Arc<Self> {
        let mut kinds = Arc::clone(self);
        for crd in crds {
            let kinds = Arc::make_mut(&mut kinds);
            for mapping in crd.defined_mappings() {
                let versions = kinds.by_kind.entry(mapping.gvk().group_kind()).or_default();
                if !versions.iter().any(|known| known.resource.version == mapping.resource.version) {
                    versions.push(mapping);
                }
            }
        }
        kinds
    }

    /// Reports whether these mappings of one CRD's kind add versions to the known kinds, or change nothing.
    pub(super) fn is_extended_by(&self, crd: &[Mapping]) -> bool {
        let Some(first) = crd.first() else { return false };
        let is_of_crd = |known: &&Mapping| {
            known.resource.group == first.resource.group && known.resource.plural == first.resource.plural
        };
        let of_crd = self.by_kind.values().flatten().filter(is_of_crd);
        let of_kind = self.versions(&first.gvk().group_kind());
        let has = |known: &Mapping| {
            crd.iter().any(|one| one.resource == known.resource && one.namespaced == known.namespaced)
        };
        !self.is_unknown(&first.resource.group) && of_crd.chain(of_kind).all(has)
    }

    pub(super) fn has_all(&self, mappings: &[Mapping]) -> bool {
        mappings.iter().all(|mapping| self.get(&mapping.gvk()).is_some())
    }

    /// Adds the mappings of one CRD's kind, which include all known ones.
    pub(super) fn extend_by(&mut self, crd: &[Mapping]) {
        let Some(first) = crd.first() else { return };
        self.named.extend(crd.iter().map(|mapping| mapping.resource.api_version.clone()));
        self.by_kind.insert(first.gvk().group_kind(), crd.to_vec());
    }

    /// Removes these kinds, since the target does not serve them.
    pub(crate) fn forget(&mut self, gone: &BTreeSet<Gvk>) {
        for versions in self.by_kind.values_mut() {
            versions.retain(|mapping| !gone.contains(&mapping.gvk()));
        }
        self.by_kind.retain(|_, versions| !versions.is_empty());
    }

    /// The identity under which the target holds an object that names no namespace or a superfluous one.
    pub fn scoped(&self, identity: &Identity, default_namespace: &str) -> Identity {
        let Some(mapping) = self.preferred(&identity.group_kind()) else { return identity.clone() };
        let namespace = match (&identity.namespace, mapping.namespaced) {
            (_, false) => None,
            (Some(namespace), true) => Some(namespace.clone()),
            (None, true) => Some(default_namespace.to_owned()),
        };
        Identity { namespace, ..identity.clone() }
    }
}

impl Object {
    /// Returns the kinds that a target serves once it has this CRD, in each version; none if the object is not a CRD.
    pub fn defined_kinds(&self) -> Vec<Gvk> {
        if self.identity().is_crd() {
            self.defined_mappings().iter().map(Mapping::gvk).collect()
        } else {
            Vec::new()
        }
    }

    /// Returns the mappings of the kind that a CRD defines.
    fn defined_mappings(&self) -> Vec<Mapping> {
        self.body().get("spec").map(crd_mappings).unwrap_or_default()
    }
}

/// Returns the mapping of a resource in the discovery answer.
pub(super) fn mapping_of(group: &str, version: &str, found: APIResourceDiscovery) -> Option<Mapping> {
    let plural = found.resource?;
    let kind = found.response_kind?.kind.filter(|kind| !kind.is_empty())?;
    let gvk = Gvk::new(group, version, kind);
    let resource = ApiResource {
        api_version: gvk.api_version(),
        group: gvk.group,
        version: gvk.version,
        kind: gvk.kind,
        plural,
    };
    let namespaced = found.scope.as_deref() == Some("Namespaced");
    Some(Mapping { resource, namespaced, verbs: found.verbs })
}

/// Verbs that API servers offer for the kind of a CRD.
pub(crate) const CRD_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Returns the mappings of the kind that the spec of a CRD defines, in each served version.
pub(crate) fn crd_mappings(spec: &Value) -> Vec<Mapping> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = |field: &str| text(spec.get("names").and_then(|names| names.get(field)));
    let (group, kind, plural) = (text(spec.get("group")), name("kind"), name("plural"));
    let namespaced = spec.get("scope").and_then(Value::as_str) == Some("Namespaced");
    let versions = spec.get("versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().filter(|version| version["served"] == true);
    served
        .map(|version| {
            let gvk = Gvk::new(&group, text(version.get("name")), &kind);
            let resource = ApiResource {
                api_version: gvk.api_version(),
                group: gvk.group,
                version: gvk.version,
                kind: gvk.kind,
                plural: plural.clone(),
            };
            Mapping { resource, namespaced, verbs: CRD_VERBS.map(ToOwned::to_owned).to_vec() }
        })
        .collect()
}
