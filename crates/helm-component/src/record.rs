//! The record of what a component has on its target, and the form in which its status holds it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use kyma_api::{
    FreeForm, HelmComponent, HelmComponentStatus, InventoryEntry, InventoryGroup, PackedError, Reason,
};
use kyma_object_set::{Entry, Identity, Inventory, Object};
use kyma_sdk::Failure;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Bytes that the record may take in its status, plain or packed: the rest of the status has its place in the 512 KiB
/// that it may take as a whole.
const RECORD: usize = 480 << 10;
/// No object takes more of it, in bytes.
const LONGEST_ITEM: usize = 2 << 10;

const INVENTORY: &str = "inventory";
const OBJECTS: &str = "objects";
const PACKED: &str = "packedObjects";

/// How the status holds the record, as far as that decides how it is written next.
#[derive(Debug, Clone, Default)]
pub(crate) enum Form {
    /// As it is, or not at all yet.
    #[default]
    Plain,
    /// Packed.
    Packed(Arc<Packed>),
    /// Packed, and it cannot be read.
    Unread(PackedError),
}

/// A packed record, and what it says.
#[derive(Debug)]
pub(crate) struct Packed {
    inventory: Inventory,
    text: String,
}

impl Form {
    /// Whether what the record says is not known.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self, Self::Unread(_))
    }

    /// A failed search for what a record does not tell, with the reason of the search.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        let Self::Unread(error) = self else { return failure };
        let message = format!("{error}, so the target has to be searched: {}", failure.message);
        Failure { message, ..failure }
    }
}

/// Reads the record of a status.
pub(crate) fn read(status: &HelmComponentStatus) -> (Inventory, Form) {
    let entries = match status.entries() {
        Ok(entries) => entries,
        Err(error) => return (Inventory::new(), Form::Unread(error)),
    };
    let inventory: Inventory = entries.iter().map(of_entry).collect();
    let is_alone = status.objects.is_none() && status.inventory.is_none();
    let form = match status.packed_objects.as_ref().filter(|_| is_alone) {
        Some(text) => Form::Packed(Arc::new(Packed { inventory: inventory.clone(), text: text.clone() })),
        None => Form::Plain,
    };
    (inventory, form)
}

/// What a component's status says that is on its target in its name.
///
/// # Errors
/// The record in the status cannot be read.
pub fn inventory(component: &HelmComponent) -> Result<Inventory, PackedError> {
    let entries = component.status.as_ref().map(HelmComponentStatus::entries).transpose()?;
    Ok(entries.iter().flatten().map(of_entry).collect())
}

impl Form {
    /// The record as fields of the status, one of which has it. One that still says the same stays as `status` has it,
    /// be it in the form of earlier versions, so that an upgrade of the operator alone rewrites nothing. One that cannot
    /// be read is left alone.
    pub(crate) fn report(&mut self, inventory: &Inventory, status: Option<&HelmComponentStatus>) -> FreeForm {
        if self.is_unread() {
            return FreeForm::new();
        }
        let (field, value) = self.written(inventory, status);
        let absent = [INVENTORY, OBJECTS, PACKED].map(|field| (field.to_owned(), Value::Null));
        absent.into_iter().chain([(field.to_owned(), value)]).collect()
    }

    /// The groups that the next report would have to pack, which takes its time: whoever shares a thread with others
    /// has it done elsewhere before, and gives the text to [`Form::packed`].
    pub(crate) fn to_pack(
        &self,
        inventory: &Inventory,
        status: Option<&HelmComponentStatus>,
    ) -> Option<Vec<InventoryGroup>> {
        let is_small = inventory.len() < RECORD / LONGEST_ITEM;
        if is_small || self.is_unread() || self.held(inventory, status).is_some() {
            return None;
        }
        Some(grouped(inventory)).filter(|groups| size(groups) > RECORD)
    }

    /// That of an inventory whose groups were packed as this text.
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
        if size(&groups) > RECORD
            && let Ok(text) = InventoryGroup::pack(&groups)
        {
            let value = json!(text);
            *self = Self::packed(inventory.clone(), text);
            return (PACKED, value);
        }
        (OBJECTS, json!(groups))
    }

    /// The record where nobody has to write it anew.
    fn held(
        &self,
        inventory: &Inventory,
        status: Option<&HelmComponentStatus>,
    ) -> Option<(&'static str, Value)> {
        let held = status.and_then(|status| status.inventory.as_ref());
        if let Some(held) = held.filter(|held| *inventory == held.iter().map(of_entry).collect::<Inventory>())
        {
            return Some((INVENTORY, json!(held)));
        }
        match self {
            Self::Packed(packed) if packed.inventory == *inventory => Some((PACKED, json!(packed.text))),
            _ => None,
        }
    }
}

fn grouped(inventory: &Inventory) -> Vec<InventoryGroup> {
    InventoryGroup::of(inventory.iter().map(|(identity, entry)| to_entry(identity, entry)))
}

/// What the record would be of the objects at hand and those already recorded, where it would have to be packed.
pub(crate) fn large_record(recorded: &Inventory, objects: &[Object]) -> Option<Vec<InventoryGroup>> {
    let wanted = objects.iter().map(|object| (object.identity(), object.version()));
    let recorded = recorded.iter().map(|(identity, entry)| (identity.clone(), &*entry.version));
    let all: BTreeMap<Identity, &str> = wanted.chain(recorded).collect();
    let groups = InventoryGroup::of(all.iter().map(|(identity, version)| stand_in(identity, version)));
    Some(groups).filter(|groups| size(groups) > RECORD)
}

/// Refuses content of which the status could not say what is on the target: nothing of it is sent then. Takes as long
/// as packing does.
///
/// # Errors
/// The record would take more than 480 KiB, packed too.
pub(crate) fn check_packed(groups: &[InventoryGroup]) -> Result<(), Failure> {
    let bytes = InventoryGroup::pack(groups).map_or(usize::MAX, |packed| packed.len());
    if bytes <= RECORD {
        return Ok(());
    }
    let objects: usize = groups.iter().map(|group| group.items.len()).sum();
    let message =
        format!("the record of {objects} objects would take {bytes} bytes packed, more than {RECORD}");
    Err(Failure::new(Reason::InventoryTooLarge, message))
}

/// What is recorded of an object once it is applied: uid and hashes are as long as they ever are, and as hard to pack.
fn stand_in(identity: &Identity, version: &str) -> InventoryEntry {
    let chance = hex::encode(Sha256::digest(identity.to_string()));
    let (uid, hashes) = chance.split_at(32);
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

/// Bytes of groups as a status holds them.
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
