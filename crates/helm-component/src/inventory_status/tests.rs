use kyma_api::{Digests, HelmComponentSpec};

use super::*;
use crate::memory::RecordedStatus;

/// Returns the entry of a ConfigMap after its apply.
fn map(number: usize) -> (Identity, Entry) {
    let identity = Identity::new("", "ConfigMap", Some("somewhere"), &format!("a-config-map-{number:05}"));
    let entry = Entry { created: true, ..of_entry(&stand_in(&identity, "v1")).1 };
    (identity, entry)
}

fn maps(objects: usize) -> RecordedStatus {
    RecordedStatus { inventory: (0..objects).map(map).collect(), ..RecordedStatus::default() }
}

/// Returns the status that the hub stores for these fields.
fn written(fields: FreeForm) -> HelmComponentStatus {
    let fields: FreeForm = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
    assert_eq!(fields.len(), 1, "one form only");
    serde_json::from_value(Value::Object(fields)).unwrap()
}

fn component(status: HelmComponentStatus) -> HelmComponent {
    let mut component = HelmComponent::new("c", HelmComponentSpec::default());
    component.status = Some(status);
    component
}

fn packed(text: &str) -> HelmComponentStatus {
    HelmComponentStatus { packed_objects: Some(text.to_owned()), ..HelmComponentStatus::default() }
}

#[test]
fn an_inventory_survives_the_status_in_either_form() {
    let identity = Identity::new("apps", "Deployment", Some("n"), "d");
    let entry = Entry {
        version: "v1".to_owned(),
        uid: "u".to_owned(),
        hash: "h".to_owned(),
        fingerprint: "f".to_owned(),
        created: true,
        finished: true,
    };
    let inventory_of = |status: &HelmComponentStatus| inventory(&component(status.clone())).unwrap();
    let mut recorded = RecordedStatus {
        inventory: [(identity.clone(), entry.clone())].into_iter().collect(),
        ..RecordedStatus::default()
    };
    let grouped = written(recorded.report(None));
    assert!(grouped.objects.is_some());
    assert_eq!(inventory_of(&grouped), recorded.inventory);
    let old = HelmComponentStatus {
        inventory: Some(vec![to_entry(&identity, &entry)]),
        ..HelmComponentStatus::default()
    };
    assert_eq!(inventory_of(&old), recorded.inventory);
    assert_eq!(written(recorded.report(Some(&old))), old, "nothing is rewritten");
    let mut changed = RecordedStatus::default();
    assert!(written(changed.report(Some(&old))).inventory.is_none());
    let mut many = maps(5_000);
    let status = written(many.report(None));
    assert!(status.packed_objects.is_some());
    assert_eq!(inventory_of(&status), many.inventory);
}

#[test]
fn a_record_is_packed_as_long_as_it_does_not_fit_otherwise() {
    let mut recorded = maps(3_000);
    let plain = written(recorded.report(None));
    assert!(plain.objects.is_some());
    recorded.inventory = maps(5_000).inventory;
    let packed = written(recorded.report(Some(&plain)));
    let bytes = packed.packed_objects.as_ref().unwrap().len();
    assert!(bytes < MAX_INVENTORY_BYTES, "{bytes}");
    recorded.inventory.remove(&map(0).0);
    let smaller = written(recorded.report(Some(&packed)));
    assert!(smaller.packed_objects.is_some() && smaller != packed);
    recorded.inventory = maps(3_000).inventory;
    assert_eq!(written(recorded.report(Some(&smaller))), plain, "the same bytes as before");
}

#[test]
fn a_packed_record_that_still_says_the_same_stays_byte_for_byte() {
    let mut recorded = maps(5_000);
    let status = written(recorded.report(None));
    assert_eq!(written(recorded.report(Some(&status))), status);
    assert_eq!(written(maps(5_000).report(None)), status, "packed by another process");
    // Another version may pack in this form: the inventory is small, and its objects are in another order.
    let entries = [2, 0, 1].map(map).map(|(identity, entry)| to_entry(&identity, &entry));
    let other = packed(&InventoryGroup::pack(&InventoryGroup::of(entries)).unwrap());
    let mut read = RecordedStatus::of(&component(other.clone()));
    assert_eq!(read.inventory, maps(3).inventory);
    assert_eq!(written(read.report(Some(&other))), other);
    read.inventory.remove(&map(0).0);
    assert!(written(read.report(Some(&other))).objects.is_some(), "plain once it changes");
}

#[test]
fn an_unchanged_packed_inventory_is_not_packed_again() {
    let mut recorded = maps(5_000);
    let status = written(recorded.report(None));
    let InventoryEncoding::Packed(before) = recorded.encoding.clone() else {
        panic!("{:?}", recorded.encoding)
    };
    recorded.report(Some(&status));
    let InventoryEncoding::Packed(after) = &recorded.encoding else { panic!("{:?}", recorded.encoding) };
    assert!(Arc::ptr_eq(&before, after));
}

#[test]
fn an_inventory_packed_in_advance_is_reported_unchanged() {
    let mut recorded = maps(5_000);
    let groups = recorded.encoding.to_pack(&recorded.inventory, None).unwrap();
    let text = InventoryGroup::pack(&groups).unwrap();
    recorded.encoding = InventoryEncoding::packed(recorded.inventory.clone(), text.clone());
    assert_eq!(recorded.encoding.to_pack(&recorded.inventory, None), None, "once is enough");
    assert_eq!(written(recorded.report(None)), packed(&text));
    assert_eq!(maps(5_000).report(None), recorded.report(None), "as a report packs it");
    recorded.inventory.remove(&map(0).0);
    assert!(recorded.encoding.to_pack(&recorded.inventory, None).is_some(), "it says something else now");
    assert_eq!(InventoryEncoding::Plain.to_pack(&maps(3_000).inventory, None), None, "it fits as it is");
    let unread = InventoryEncoding::Unread(PackedError::Base64);
    assert_eq!(unread.to_pack(&maps(5_000).inventory, None), None, "it is left alone");
}

#[test]
fn unreadable_inventory_is_kept_and_its_content_applied_again() {
    let digests = Digests {
        inputs: Some("i".to_owned()),
        source: Some("s".to_owned()),
        values: Some("v".to_owned()),
        ..Digests::default()
    };
    let edited = HelmComponentStatus { digests: Some(digests), ..packed("edited") };
    let mut recorded = RecordedStatus::of(&component(edited.clone()));
    assert!(recorded.encoding.is_unread() && recorded.inventory.is_empty());
    assert!(recorded.report(Some(&edited)).is_empty(), "no field of it is reported");
    assert_eq!(recorded.digests.inputs, None);
    assert_eq!(recorded.digests.source.as_deref(), Some("s"), "no hook runs for it");
    assert_eq!(inventory(&component(edited)), Err(PackedError::Base64));
    let failure = recorded.encoding.explain(Failure::new(Reason::TargetForbidden, "listing Secrets: no"));
    assert_eq!(failure.reason, Reason::TargetForbidden);
    let expected = "status.packedObjects is not base64, so the target must be searched: listing Secrets: no";
    assert_eq!(failure.message, expected);
    recorded.encoding = InventoryEncoding::Plain;
    recorded.inventory = maps(1).inventory;
    assert!(written(recorded.report(None)).objects.is_some(), "once it was found otherwise");
}

#[test]
fn a_record_beside_a_packed_one_is_written_as_one() {
    let mut both = written(maps(5_000).report(None));
    both.objects = Some(vec![]);
    let mut read = RecordedStatus::of(&component(both.clone()));
    assert_eq!(read.inventory, maps(5_000).inventory, "an earlier version lost it");
    assert!(written(read.report(Some(&both))).packed_objects.is_some());
}

#[test]
fn recorded_and_new_objects_over_packed_status_size_are_refused() {
    let object = |number: usize| {
        let metadata = json!({"name": map(number).0.name, "namespace": "somewhere"});
        Object::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap()
    };
    let objects: Vec<Object> = (0..5_000).map(object).collect();
    let check_record = |recorded: &Inventory, objects: &[Object]| {
        large_record(recorded, objects).map_or(Ok(()), |groups| check_packed(&groups))
    };
    assert_eq!(large_record(&Inventory::default(), &objects[..1_000]), None);
    assert_eq!(check_record(&Inventory::default(), &objects), Ok(()));
    let recorded = |from: usize| -> Inventory { (from..from + 5_000).map(map).collect() };
    assert_eq!(check_record(&recorded(0), &objects), Ok(()), "the same objects");
    assert_eq!(check_record(&recorded(2_000), &objects), Ok(()), "7,000 of them");
    let refused = check_record(&recorded(5_000), &objects).unwrap_err();
    assert_eq!(refused.reason, Reason::InventoryTooLarge);
    assert!(refused.message.starts_with("the record of 10000 objects would take "), "{refused}");
}

#[test]
fn an_accepted_inventory_fits_into_the_status_once_applied() {
    let mut recorded = maps(7_000);
    let text = written(recorded.report(None)).packed_objects.unwrap();
    assert!(text.len() <= MAX_INVENTORY_BYTES, "{}", text.len());
}
