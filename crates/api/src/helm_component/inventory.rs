//! The inventory of a HelmComponent as its status stores it.

use std::collections::BTreeSet;

use super::inventory_group::InventoryGroup;
use super::packed::PackedError;
use super::status::HelmComponentStatus;
use super::status_records::InventoryEntry;

impl HelmComponentStatus {
    /// Returns every object on the target that belongs to the component, from any form in the status. If both plain
    /// forms exist, `objects` takes precedence over the older `inventory`. A plain form beside a packed one comes
    /// from a version that cannot read packed ones: it takes precedence for the objects that it names.
    ///
    /// # Errors
    /// If the packed inventory cannot be read. The objects are then unknown, not absent.
    pub fn entries(&self) -> Result<Vec<InventoryEntry>, PackedError> {
        let plain: Vec<InventoryEntry> = match &self.objects {
            Some(groups) => groups.iter().flat_map(InventoryGroup::entries).collect(),
            None => self.inventory.clone().unwrap_or_default(),
        };
        let Some(packed) = &self.packed_objects else { return Ok(plain) };
        let groups = InventoryGroup::unpack(packed)?;
        let known: BTreeSet<_> = plain.iter().map(place).collect();
        let mut entries: Vec<InventoryEntry> = groups.iter().flat_map(InventoryGroup::entries).collect();
        entries.retain(|entry| !known.contains(&place(entry)));
        entries.extend(plain.iter().cloned());
        Ok(entries)
    }

    /// Reports whether the status has an inventory, even an empty one.
    pub fn has_entries(&self) -> bool {
        self.inventory.is_some() || self.objects.is_some() || self.packed_objects.is_some()
    }
}

/// Returns the identity of an object, independent of its API version.
fn place(entry: &InventoryEntry) -> (&str, &str, Option<&str>, &str) {
    (&entry.group, &entry.kind, entry.namespace.as_deref(), &entry.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(kind: &str, namespace: Option<&str>, name: &str, created: bool) -> InventoryEntry {
        InventoryEntry {
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            hash: "h".to_owned(),
            fingerprint: "f".to_owned(),
            created,
            ..InventoryEntry::default()
        }
    }

    #[test]
    fn grouping_loses_nothing() {
        let all = vec![
            entry("ConfigMap", Some("a"), "one", true),
            entry("ConfigMap", Some("a"), "two", false),
            entry("ConfigMap", Some("b"), "one", true),
            InventoryEntry { version: "v2".to_owned(), ..entry("ConfigMap", Some("b"), "two", true) },
            entry("Namespace", None, "a", false),
        ];
        let groups = InventoryGroup::of(all.clone());
        let sizes: Vec<usize> = groups.iter().map(|group| group.items.len()).collect();
        assert_eq!(sizes, [2, 1, 1, 1]);
        let written = json!({"objects": groups});
        let status: HelmComponentStatus = serde_json::from_value(written).unwrap();
        assert_eq!(status.entries(), Ok(all));
        assert!(status.has_entries());
    }

    #[test]
    fn the_form_of_earlier_versions_is_read_and_kept() {
        let written = json!({"inventory": [
            {"kind": "Namespace", "version": "v1", "name": "a", "uid": "u"},
            {"group": "apps", "kind": "Deployment", "version": "v1", "namespace": "a", "name": "d", "uid": "v",
                "hash": "h", "fingerprint": "f", "created": true},
        ]});
        let status: HelmComponentStatus = serde_json::from_value(written.clone()).unwrap();
        let entries = status.entries().unwrap();
        let created: Vec<bool> = entries.iter().map(|entry| entry.created).collect();
        assert_eq!(created, [false, true]);
        assert_eq!(serde_json::to_value(status).unwrap(), written);
        assert!(!HelmComponentStatus::default().has_entries());
    }

    #[test]
    fn a_plain_record_beside_a_packed_one_counts_for_what_it_names() {
        let packed =
            vec![entry("ConfigMap", Some("a"), "one", true), entry("ConfigMap", Some("a"), "two", true)];
        let newer = InventoryEntry { uid: "newer".to_owned(), ..entry("ConfigMap", Some("a"), "two", true) };
        let other = entry("ConfigMap", Some("b"), "two", true);
        let status = |plain: Option<Vec<InventoryEntry>>| HelmComponentStatus {
            packed_objects: Some(InventoryGroup::pack(&InventoryGroup::of(packed.clone())).unwrap()),
            objects: plain.map(InventoryGroup::of),
            ..HelmComponentStatus::default()
        };
        assert_eq!(status(None).entries(), Ok(packed.clone()));
        assert_eq!(status(Some(vec![])).entries(), Ok(packed.clone()), "an earlier version lost it");
        let expected = vec![packed[0].clone(), newer.clone(), other.clone()];
        assert_eq!(status(Some(vec![newer, other])).entries(), Ok(expected));
    }

    #[test]
    fn a_packed_record_that_cannot_be_read_is_not_an_empty_one() {
        for objects in [None, Some(vec![])] {
            let packed_objects = Some("edited".to_owned());
            let status = HelmComponentStatus { objects, packed_objects, ..HelmComponentStatus::default() };
            assert!(status.has_entries());
            assert!(status.entries().is_err());
        }
    }
}
