use super::*;

fn part(revision: &str, bytes: usize) -> Part {
    Part::new(revision, revision.bytes().cycle().take(bytes).collect())
}

fn slot(parts: &[(PartKind, Part)]) -> Slot {
    let mut slot = Slot::default();
    for (kind, part) in parts {
        slot.set(*kind, part.clone());
    }
    slot
}

fn stored(slot: &Slot) -> Slot {
    Slot::decode(slot.clone().encode())
}

fn target(objects: &Part) -> RollbackTarget {
    RollbackTarget { secret_digest: Some(objects.sha256.clone()), ..RollbackTarget::default() }
}

fn begun(release: &str) -> Hooks {
    Hooks { digest: release.to_owned(), ..Hooks::default() }
}

#[test]
fn small_parts_share_one_secret() {
    let render = Part { after: Some("before".to_owned()), ..part("request", 9) };
    let whole = slot(&[
        (PartKind::Render, render),
        (PartKind::Hooks, part("r", 7)),
        (PartKind::Objects, part("r", 8)),
    ]);
    let secrets = whole.clone().encode();
    assert!(secrets[1].is_empty() && secrets[2].is_empty());
    let read = stored(&whole);
    assert_eq!(read.parts, whole.parts);
    assert!(read.had_data(0) && !read.had_data(1));
}

#[test]
fn three_parts_of_the_largest_size_fit_into_a_slot() {
    let largest = |revision: &str| part(revision, MAX_PACKED_BYTES);
    let whole = slot(&[
        (PartKind::Render, largest("request")),
        (PartKind::Hooks, largest("r")),
        (PartKind::Objects, largest("s")),
    ]);
    let secrets = whole.clone().encode();
    for data in &secrets {
        let size: usize = data.iter().map(|(key, value)| key.len() + value.0.len()).sum();
        assert!(size > MAX_PACKED_BYTES && size < 1 << 20, "{size}");
    }
    assert_eq!(Slot::further_secrets(&secrets[0]), [1, 2]);
    assert_eq!(stored(&whole).parts, whole.parts);
}

#[test]
fn an_added_part_moves_no_earlier_one() {
    let mut whole = slot(&[(PartKind::Hooks, part("r", 1 << 10))]);
    let before = whole.clone().encode();
    whole.set(PartKind::Objects, part("r", MAX_PACKED_BYTES));
    let after = whole.encode();
    assert_eq!(after[0].get("hooks.json.gz"), before[0].get("hooks.json.gz"));
    assert!(after[2].contains_key("objects.json.gz"));
}

#[test]
fn a_part_without_its_content_is_absent() {
    let whole = slot(&[(PartKind::Hooks, part("r", 7)), (PartKind::Objects, part("r", MAX_PACKED_BYTES))]);
    let mut secrets = whole.encode();
    secrets[2].clear();
    let read = Slot::decode(secrets);
    assert!(read.part(PartKind::Hooks).is_some() && read.part(PartKind::Objects).is_none());
    assert_eq!(Slot::decode(std::array::from_fn(|_| Data::new())), Slot::default());
}

#[test]
fn objects_do_not_replace_those_of_the_rollback_target() {
    let objects = part("a", 9);
    let criteria = RevisionCriteria::of(&Digests::default(), Some(&target(&objects)), None);
    for at in 0..MAX_REVISIONS {
        let mut slots: [Slot; MAX_REVISIONS] = std::array::from_fn(|_| Slot::default());
        slots[at].set(PartKind::Objects, objects.clone());
        for release in ["a", "b"] {
            assert_ne!(criteria.slot_for(&slots, PartKind::Objects, release, None), at, "{release}");
        }
    }
}

#[test]
fn parts_of_a_revision_share_a_slot() {
    let render = part("request", 9);
    let digests = Digests { stored_render: Some("installed".to_owned()), ..Digests::default() };
    let criteria = RevisionCriteria::of(&digests, None, Some(&begun("b")));
    let slots = [
        slot(&[]),
        slot(&[(PartKind::Render, Part { after: Some("installed".to_owned()), ..render.clone() })]),
        slot(&[(PartKind::Hooks, part("b", 9))]),
    ];
    let slot_for = |kind, release, render| criteria.slot_for(&slots, kind, release, render);
    assert_eq!(slot_for(PartKind::Hooks, "c", Some(&*render.sha256)), 1);
    assert_eq!(slot_for(PartKind::Objects, "b", None), 2);
    assert_eq!(slot_for(PartKind::Hooks, "b", None), 2, "hooks of the same release are equal");
    assert_eq!(slot_for(PartKind::Hooks, "d", None), 0, "an unused slot");
}

#[test]
fn hooks_of_the_begun_release_stay_until_the_next_is_begun() {
    let slots =
        [slot(&[(PartKind::Hooks, part("a", 9))]), slot(&[(PartKind::Hooks, part("b", 9))]), slot(&[])];
    let criteria = |release: &str| RevisionCriteria::of(&Digests::default(), None, Some(&begun(release)));
    assert_eq!(criteria("a").slot_for(&slots, PartKind::Hooks, "c", None), 1);
    assert!(criteria("a").reduced(&slots, &slots[0]).part(PartKind::Hooks).is_some());
    assert!(criteria("a").reduced(&slots, &slots[1]).part(PartKind::Hooks).is_none());
    assert!(criteria("c").reduced(&slots, &slots[1]).part(PartKind::Hooks).is_some(), "c is not stored");
}

#[test]
fn a_write_drops_parts_of_former_revisions_only() {
    let (objects, former) = (part("a", 9), part("before", 9));
    let render = part("request", 9);
    let digests = Digests { stored_render: Some(render.sha256.clone()), ..Digests::default() };
    let criteria = RevisionCriteria::of(&digests, Some(&target(&objects)), None);
    let whole = slot(&[(PartKind::Render, render.clone()), (PartKind::Objects, former)]);
    let reduced = criteria.reduced(std::slice::from_ref(&whole), &whole);
    assert_eq!(reduced.part(PartKind::Render), Some(&render));
    assert_eq!(reduced.part(PartKind::Objects), None);
    let whole = slot(&[(PartKind::Render, part("other", 9)), (PartKind::Objects, objects.clone())]);
    let reduced = criteria.reduced(std::slice::from_ref(&whole), &whole);
    assert_eq!(reduced.part(PartKind::Render), None, "that release was replaced");
    assert_eq!(reduced.part(PartKind::Objects), Some(&objects));
}

#[test]
fn names_of_all_secrets_are_those_of_the_release_store() {
    assert_eq!(
        secret_names("0a", 0),
        ["helm-component-release-0a-1", "helm-component-release-0a-1-2", "helm-component-release-0a-1-3"]
    );
    assert_eq!(secret_names("0a", 2)[0], "helm-component-release-0a-3");
}
