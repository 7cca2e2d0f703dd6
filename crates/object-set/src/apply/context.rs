//! Inputs of one apply, and of each of its objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::options::{ApplyOptions, Observations};
use super::outcome::Refusal;
use super::target_object::TargetObject;
use crate::cluster::Cluster;
use crate::cluster::discovery::{Kinds, Mapping};
use crate::inventory::{Entry, Inventory};
use crate::managed_fields::drift;
use crate::object::{Gvk, Identity, Object};
use crate::ownership::Guard;

/// Maximum size of a sent object, in bytes of JSON: API servers read no more of a request. Smaller limits, such as
/// those of etcd or of a Secret's data, are reported by the API server.
const MAX_OBJECT_BYTES: usize = 3 << 20;

/// Inputs that all objects of one apply share.
pub(super) struct ApplyContext<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) kinds: Arc<Kinds>,
    /// Kinds that CRDs of this set define.
    pub(super) own_kinds: BTreeSet<Gvk>,
    pub(super) recorded: &'a Inventory,
    pub(super) observed: &'a dyn Observations,
    pub(super) options: &'a ApplyOptions<'a>,
}

impl<'a> ApplyContext<'a> {
    pub(super) fn desired(
        &'a self,
        object: &'a Object,
        identity: &'a Identity,
        mapping: &'a Mapping,
    ) -> DesiredObject<'a> {
        let target = TargetObject { cluster: self.cluster, identity, mapping, own_kinds: &self.own_kinds };
        DesiredObject { object, target, recorded: self.recorded.get(identity), options: self.options }
    }
}

/// An object of the set, ready to be sent, and the same object on the target.
#[derive(Clone, Copy)]
pub(super) struct DesiredObject<'a> {
    pub(super) object: &'a Object,
    pub(super) target: TargetObject<'a>,
    /// The inventory entry of the last apply.
    pub(super) recorded: Option<&'a Entry>,
    pub(super) options: &'a ApplyOptions<'a>,
}

impl DesiredObject<'_> {
    /// Returns the guard of the object.
    ///
    /// # Errors
    /// If the object is protected completely.
    pub(super) fn guard(&self) -> Result<Option<Guard>, Refusal> {
        match self.options.protection.guard(self.target.identity) {
            Some(Guard::Always) => Err(Refusal::Protected { object: self.target.identity.clone() }),
            guard => Ok(guard),
        }
    }

    /// Refuses a form of the object that the API server would refuse for its size.
    pub(super) fn check_size(&self, object: &Object) -> Result<(), Refusal> {
        let bytes = serde_json::to_vec(object.body()).map_or(0, |json| json.len());
        if bytes > MAX_OBJECT_BYTES {
            let object = self.target.identity.clone();
            return Err(Refusal::TooLarge { object, bytes, limit: MAX_OBJECT_BYTES });
        }
        Ok(())
    }

    /// Returns the inventory entry of the object after an apply.
    pub(super) fn entry(&self, metadata: &ObjectMeta, hash: String, created: bool) -> Entry {
        Entry {
            version: self.target.mapping.resource.version.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
            hash,
            fingerprint: drift::fingerprint(metadata, &self.options.ownership.manager),
            created,
            finished: false,
        }
    }
}
