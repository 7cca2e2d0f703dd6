//! Stamp on a target, and the `ConfigMap` that holds it. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::fencing::fencing_generation::FencingGeneration;

/// Name of the `ConfigMap` on the target that holds the [`Stamp`].
pub const STAMP_NAME: &str = "kyma-target-stamp";
/// Field managers that write the stamp: the operators and kymactl, by the name in their User-Agent.
pub const STAMP_MANAGERS: [&str; 4] = ["kyma-operator", "release-meta-syncer", "helm-component", "kymactl"];
/// Namespace of the stamp.
pub const STAMP_NAMESPACE: &str = "kyma-system";

const HUB_UID: &str = "hubUid";
const KYMA_NAMESPACE: &str = "kymaNamespace";
const KYMA_NAME: &str = "kymaName";
const KYMA_UID: &str = "kymaUid";
const EPOCH: &str = "epoch";
/// The key keeps its former name: another one would have to be written to every target.
const FENCING_GENERATION: &str = "turn";
const VERSION_PREFIX: &str = "version.";

/// A Kyma on the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KymaId {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid.
    pub uid: String,
}

/// Stamp on a target, which names its hub and Kyma.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// uid of the managing hub.
    pub hub_uid: String,
    /// The Kyma on that hub.
    pub kyma: KymaId,
    /// Epoch of the hub's claim.
    pub epoch: u64,
    /// The last change that the hub ordered for the target.
    pub fencing_generation: Option<FencingGeneration>,
    /// `major.minor` of each operator that wrote to the target.
    pub versions: BTreeMap<String, String>,
}

impl Stamp {
    /// Returns the `ConfigMap` that carries this stamp.
    pub fn to_config_map(&self) -> ConfigMap {
        let mut data = BTreeMap::from([
            (HUB_UID.to_owned(), self.hub_uid.clone()),
            (KYMA_NAMESPACE.to_owned(), self.kyma.namespace.clone()),
            (KYMA_NAME.to_owned(), self.kyma.name.clone()),
            (KYMA_UID.to_owned(), self.kyma.uid.clone()),
            (EPOCH.to_owned(), self.epoch.to_string()),
        ]);
        data.extend(
            self.fencing_generation
                .iter()
                .map(|generation| (FENCING_GENERATION.to_owned(), generation.to_string())),
        );
        let versions = self.versions.iter();
        data.extend(
            versions.map(|(operator, version)| (format!("{VERSION_PREFIX}{operator}"), version.clone())),
        );
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(STAMP_NAME.to_owned()),
                namespace: Some(STAMP_NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        }
    }

    /// Returns the stamp in its `ConfigMap`. Missing or unreadable fields become empty or 0, which match nothing: a
    /// damaged stamp never counts as this hub's.
    pub fn from_config_map(map: &ConfigMap) -> Self {
        let data = map.data.clone().unwrap_or_default();
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        let version = |(key, version): (&String, &String)| {
            key.strip_prefix(VERSION_PREFIX).map(|operator| (operator.to_owned(), version.clone()))
        };
        Self {
            hub_uid: text(HUB_UID),
            kyma: KymaId { namespace: text(KYMA_NAMESPACE), name: text(KYMA_NAME), uid: text(KYMA_UID) },
            epoch: text(EPOCH).parse().unwrap_or(0),
            fencing_generation: data
                .get(FENCING_GENERATION)
                .map(|generation| generation.parse().unwrap_or_else(|_| FencingGeneration::unreadable())),
            versions: data.iter().filter_map(version).collect(),
        }
    }
}
