//! The inventory of a component in its status, and the encoding in which the status stores it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use kyma_api::{
    FreeForm, HelmComponent, HelmComponentStatus, InventoryEntry, InventoryGroup, PackedError, Reason,
};
use kyma_controller::Failure;
use kyma_object_set::{Entry, Identity, Inventory, Object};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Maximum size of the inventory in the status in bytes, plain or packed: the whole status is limited to 512 KiB.
const MAX_INVENTORY_BYTES: usize = 480 << 10;
/// Maximum size of one object's entry, in bytes.
const MAX_ENTRY_BYTES: usize = 2 << 10;

const INVENTORY_FIELD: &str = "inventory";
const OBJECTS_FIELD: &str = "objects";
const PACKED_FIELD: &str = "packedObjects";

/// Encoding of the inventory in the status, as far as it affects the next write.
#[derive(Debug, Clone, Default)]
pub(crate) enum InventoryEncoding {
    /// Plain, or not written yet.
    #[default]
    Plain,
    /// Packed.
    Packed(Arc<Packed>),
    /// Packed and unreadable.
    Unread(PackedError),
}

/// A packed inventory and its content.
#[derive(Debug)]
pub(crate) struct Packed {
    inventory: Inventory,
    text: String,
}

impl InventoryEncoding {
    /// Reports whether the inventory cannot be read.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self, Self::Unread(_))
    }

    /// Adds the reason of a search for an unreadable inventory to the failure of that search.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        let Self::Unread(error) = self else { return failure };
        let message = format!("{error}, so the target must be searched: {}", failure.message);
        Failure { message, ..failure }
    }
}

/// Reads the inventory of a status.
pub(crate) fn read(status: &HelmComponentStatus) -> (Inventory, InventoryEncoding) {
    let entries = match status.entries() {
        Ok(entries) => entries,
        Err(error) => return (Inventory::new(), InventoryEncoding::Unread(error)),
    };
    let inventory: Inventory = entries.iter().map(of_entry).collect();
    let is_alone = status.objects.is_none() && status.inventory.is_none();
    let encoding = match status.packed_objects.as_ref().filter(|_| is_alone) {
        Some(text) => {
            InventoryEncoding::Packed(Arc::new(Packed { inventory: inventory.clone(), text: text.clone() }))
        }
        None => InventoryEncoding::Plain,
    };
    (inventory, encoding)
}

/// Returns the inventory of a component from its status.
///
/// # Errors
/// If the inventory in the status cannot be read.
pub fn inventory(component: &HelmComponent) -> Result<Inventory, PackedError> {
    let entries = component.status.as_ref().map(HelmComponentStatus::entries).transpose()?;
    Ok(entries.iter().flatten().map(of_entry).collect())
}

impl InventoryEncoding {
    /// Returns the inventory as fields of the status, one of which is set. An unchanged inventory stays as `status`
    /// has it, even in the form of earlier versions, so that an upgrade of the operator alone rewrites nothing. An
    /// unreadable one is left alone.
    pub(crate) fn report(&mut self, inventory: &Inventory, status: Option<&HelmComponentStatus>) -> FreeForm {
        if self.is_unread() {
            return FreeForm::new();
        }
        let (field, value) = self.written(inventory, status);
        let absent =
            [INVENTORY_FIELD, OBJECTS_FIELD, PACKED_FIELD].map(|field| (field.to_owned(), Value::Null));
        absent.into_iter().chain([(field.to_owned(), value)]).collect()
    }

    /// Returns the groups that the next report would have to pack. That takes time, so the caller packs them on
    /// another thread and passes the text to [`InventoryEncoding::packed`].
    pub(crate) fn to_pack(
        &self,
        inventory: &Inventory,
        status: Option<&HelmComponentStatus>,
    ) -> Option<Vec<InventoryGroup>> {
        let is_small = inventory.len() < MAX_INVENTORY_BYTES / MAX_ENTRY_BYTES;
        if is_small || self.is_unread() || self.held(inventory, status).is_some() {
            return None;
        }
        Some(grouped(inventory)).filter(|groups| size(groups) > MAX_INVENTORY_BYTES)
    }

    /// Returns the encoding of an inventory whose groups were packed as this text.
    pub(crate) fn packed(inventory: Inventory, text: String) -> Self {
        Self::Packed(Arc::new(Packed { inventory, text }))
    }

    fn written(
        &mut self,
        inventory: &Inventory,
        status: Option<&HelmComponentStatus>,
    ) -> (&'static str, Value) {
        if let Some(held) = self.held(inventory, status) {
            return held;
        }
        *self = Self::Plain;
        let groups = grouped(inventory);
        if size(&groups) > MAX_INVENTORY_BYTES
            && let Ok(text) = InventoryGroup::pack(&groups)
        {
            let value = json!(text);
            *self = Self::packed(inventory.clone(), text);
            return (PACKED_FIELD, value);
        }
        (OBJECTS_FIELD, json!(groups))
    }

    /// Returns the stored inventory, if it is unchanged.
    fn held(
        &self,
        inventory: &Inventory,
        status: Option<&HelmComponentStatus>,
    ) -> Option<(&'static str, Value)> {
        let held = status.and_then(|status| status.inventory.as_ref());
        if let Some(held) = held.filter(|held| *inventory == held.iter().map(of_entry).collect::<Inventory>())
        {
            return Some((INVENTORY_FIELD, json!(held)));
        }
        match self {
            Self::Packed(packed) if packed.inventory == *inventory => {
                Some((PACKED_FIELD, json!(packed.text)))
            }
            _ => None,
        }
    }
}

fn grouped(inventory: &Inventory) -> Vec<InventoryGroup> {
    InventoryGroup::of(inventory.iter().map(|(identity, entry)| to_entry(identity, entry)))
}

/// Returns the inventory of loaded and recorded objects, if it would have to be packed.
pub(crate) fn large_record(recorded: &Inventory, objects: &[Object]) -> Option<Vec<InventoryGroup>> {
    let desired = objects.iter().map(|object| (object.identity(), object.version()));
    let recorded = recorded.iter().map(|(identity, entry)| (identity.clone(), &*entry.version));
    let all: BTreeMap<Identity, &str> = desired.chain(recorded).collect();
    let groups = InventoryGroup::of(all.iter().map(|(identity, version)| stand_in(identity, version)));
    Some(groups).filter(|groups| size(groups) > MAX_INVENTORY_BYTES)
}

/// Refuses content whose inventory would not fit into the status, so that none of it is applied. Takes as long as the
/// packing.
///
/// # Errors
/// If the inventory would take more than 480 KiB even when packed.
pub(crate) fn check_packed(groups: &[InventoryGroup]) -> Result<(), Failure> {
    let bytes = InventoryGroup::pack(groups).map_or(usize::MAX, |packed| packed.len());
    if bytes <= MAX_INVENTORY_BYTES {
        return Ok(());
    }
    let objects: usize = groups.iter().map(|group| group.items.len()).sum();
    let message = format!(
        "the record of {objects} objects would take {bytes} bytes packed, more than {MAX_INVENTORY_BYTES}"
    );
    Err(Failure::new(Reason::InventoryTooLarge, message))
}

/// Returns a stand-in for the entry of an object that is not applied yet: uid and hashes have their maximum length
/// and are as hard to pack.
fn stand_in(identity: &Identity, version: &str) -> InventoryEntry {
    let digest = hex::encode(Sha256::digest(identity.to_string()));
    let (uid, hashes) = digest.split_at(32);
    let (hash, fingerprint) = hashes.split_at(16);
    let entry = Entry {
        version: version.to_owned(),
        uid: format!("{}-{}-{}-{}-{}", &uid[..8], &uid[8..12], &uid[12..16], &uid[16..20], &uid[20..]),
        hash: hash.to_owned(),
        fingerprint: fingerprint.to_owned(),
        created: false,
        finished: false,
    };
    to_entry(identity, &entry)
}

/// Returns the size of groups in a status, in bytes.
fn size(groups: &[InventoryGroup]) -> usize {
    serde_json::to_vec(groups).map_or(0, |json| json.len())
}

fn of_entry(entry: &InventoryEntry) -> (Identity, Entry) {
    let identity = Identity::new(&entry.group, &entry.kind, entry.namespace.as_deref(), &entry.name);
    let InventoryEntry { version, uid, hash, fingerprint, created, finished, .. } = entry.clone();
    (identity, Entry { version, uid, hash, fingerprint, created, finished })
}

fn to_entry(identity: &Identity, entry: &Entry) -> InventoryEntry {
    let Identity { group, kind, namespace, name } = identity.clone();
    let Entry { version, uid, hash, fingerprint, created, finished } = entry.clone();
    InventoryEntry { group, version, kind, namespace, name, uid, hash, fingerprint, created, finished }
}

#[cfg(test)]
mod tests;
