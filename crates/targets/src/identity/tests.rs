use k8s_openapi::api::core::v1::ConfigMap;
use kyma_api::TargetIdentity;

use super::*;

fn claim() -> Claim {
    Claim {
        hub_uid: "hub".into(),
        kyma: Some(kyma("a", "uid-a")),
        operator: "kyma-operator".into(),
        version: "1.4.2".into(),
    }
}

fn kyma(name: &str, uid: &str) -> KymaId {
    KymaId { namespace: "kcp-system".into(), name: name.into(), uid: uid.into() }
}

fn recorded_at(epoch: u64) -> TargetRecord {
    TargetRecord { target_uid: Some("target".into()), epoch, fencing_generation: None }
}

fn found(stamp: Option<Stamp>) -> LiveIdentity {
    LiveIdentity { target_uid: "target".into(), stamp, stamp_version: None }
}

fn ours(epoch: u64) -> Stamp {
    Stamp {
        hub_uid: "hub".into(),
        kyma: kyma("a", "uid-a"),
        epoch,
        fencing_generation: None,
        versions: BTreeMap::from([("kyma-operator".into(), "1.4".into())]),
    }
}

#[test]
fn an_unknown_unstamped_target_is_a_first_contact() {
    let expected = Verdict::FirstContact { record: recorded_at(1), write: Some(ours(1)) };
    assert_eq!(compare(&claim(), &TargetRecord::default(), &found(None)), expected);
}

#[test]
fn the_known_target_with_our_stamp_matches_without_a_write() {
    let verdict = compare(&claim(), &recorded_at(1), &found(Some(ours(1))));
    assert_eq!(verdict, Verdict::Match { write: None });
}

#[test]
fn killed_between_record_and_stamp_goes_on_with_the_stamp() {
    let verdict = compare(&claim(), &recorded_at(1), &found(None));
    assert_eq!(verdict, Verdict::Match { write: Some(ours(1)) });
}

#[test]
fn killed_between_stamp_and_record_goes_on_with_the_record() {
    let verdict = compare(&claim(), &TargetRecord::default(), &found(Some(ours(1))));
    assert_eq!(verdict, Verdict::FirstContact { record: recorded_at(1), write: None });
}

#[test]
fn another_cluster_behind_the_same_access_is_refused() {
    let swapped = LiveIdentity { target_uid: "other".into(), ..found(Some(ours(1))) };
    let expected = Verdict::TargetChanged { recorded: "target".into(), found: "other".into() };
    assert_eq!(compare(&claim(), &recorded_at(1), &swapped), expected);
}

#[test]
fn the_hub_is_never_its_own_target() {
    let hub = LiveIdentity { target_uid: "hub".into(), ..found(None) };
    assert_eq!(compare(&claim(), &TargetRecord::default(), &hub), Verdict::TargetIsHub);
    assert_eq!(compare(&claim(), &recorded_at(1), &hub), Verdict::TargetIsHub);
}

#[test]
fn second_kyma_on_a_target_is_refused_and_names_the_first() {
    let second = Claim { kyma: Some(kyma("b", "uid-b")), ..claim() };
    let expected = Verdict::TargetInUse { kyma: "kcp-system/a".into(), other_hub: false };
    assert_eq!(compare(&second, &TargetRecord::default(), &found(Some(ours(1)))), expected);
}

#[test]
fn a_target_of_another_hub_is_in_use() {
    let stamp = Stamp { hub_uid: "other-hub".into(), ..ours(1) };
    let expected = Verdict::TargetInUse { kyma: "kcp-system/a".into(), other_hub: true };
    assert_eq!(compare(&claim(), &TargetRecord::default(), &found(Some(stamp))), expected);
}

#[test]
fn a_target_that_another_hub_took_over_is_left_alone() {
    let stamp = Stamp { hub_uid: "other-hub".into(), ..ours(2) };
    let verdict = compare(&claim(), &recorded_at(1), &found(Some(stamp)));
    assert_eq!(verdict, Verdict::StampMismatch(Mismatch::TakenOver));
}

#[test]
fn an_old_copy_of_the_hub_is_stopped_by_the_epoch() {
    let verdict = compare(&claim(), &recorded_at(1), &found(Some(ours(2))));
    assert_eq!(verdict, Verdict::StampMismatch(Mismatch::LaterState));
}

#[test]
fn a_raised_epoch_is_written_to_the_target() {
    let verdict = compare(&claim(), &recorded_at(3), &found(Some(ours(1))));
    assert_eq!(verdict, Verdict::Match { write: Some(ours(3)) });
}

#[test]
fn older_operator_minor_is_blocked_and_newer_one_writes_stamp() {
    let at = |version: &str| Claim { version: version.into(), ..claim() };
    let present = found(Some(ours(1)));
    let older = Verdict::StampMismatch(Mismatch::NewerOperator);
    assert_eq!(compare(&at("1.3.9"), &recorded_at(1), &present), older);
    assert_eq!(compare(&at("1.4.0"), &recorded_at(1), &present), Verdict::Match { write: None });
    let mut signed = ours(1);
    signed.versions.insert("kyma-operator".into(), "1.10".into());
    let verdict = compare(&at("1.10.0"), &recorded_at(1), &present);
    assert_eq!(verdict, Verdict::Match { write: Some(signed.clone()) });
    assert_eq!(compare(&at("1.9.0"), &recorded_at(1), &found(Some(signed))), older, "numbers, not text");
}

#[test]
fn another_operator_adds_its_version_beside_ours() {
    let syncer = Claim { operator: "release-meta-syncer".into(), ..claim() };
    let Verdict::Match { write: Some(stamp) } = compare(&syncer, &recorded_at(1), &found(Some(ours(1))))
    else {
        panic!("a match with a write is expected");
    };
    assert_eq!(stamp.versions.keys().collect::<Vec<_>>(), ["kyma-operator", "release-meta-syncer"]);
}

#[test]
fn a_recreated_kyma_of_the_same_name_succeeds_its_predecessor() {
    let successor = Claim { kyma: Some(kyma("a", "uid-new")), ..claim() };
    let Verdict::FirstContact { record, write } =
        compare(&successor, &TargetRecord::default(), &found(Some(ours(4))))
    else {
        panic!("a first contact is expected");
    };
    assert_eq!(record.epoch, 4, "the epoch never falls");
    assert_eq!(write.map(|stamp| stamp.kyma.uid), Some("uid-new".to_owned()));
}

#[test]
fn a_component_without_a_kyma_checks_but_never_stamps() {
    let standalone = Claim { kyma: None, ..claim() };
    let first = Verdict::FirstContact { record: recorded_at(1), write: None };
    assert_eq!(compare(&standalone, &TargetRecord::default(), &found(None)), first);
    assert_eq!(compare(&standalone, &recorded_at(1), &found(Some(ours(1)))), Verdict::Match { write: None });
    let foreign = Stamp { hub_uid: "other-hub".into(), ..ours(1) };
    let verdict = compare(&standalone, &TargetRecord::default(), &found(Some(foreign)));
    assert!(matches!(verdict, Verdict::TargetInUse { other_hub: true, .. }));
}

#[test]
fn a_damaged_stamp_is_never_taken_for_ours() {
    let damaged = Stamp::from_config_map(&ConfigMap::default());
    let verdict = compare(&claim(), &recorded_at(1), &found(Some(damaged)));
    assert_eq!(verdict, Verdict::StampMismatch(Mismatch::TakenOver));
}

#[test]
fn stamp_and_record_survive_their_storage() {
    assert_eq!(Stamp::from_config_map(&ours(7).to_config_map()), ours(7));
    assert_eq!(recorded(Some(&record(&recorded_at(7)))), recorded_at(7));
    assert_eq!(recorded(Some(&record(&TargetRecord::default()))), TargetRecord::default());
    assert_eq!(recorded(None), TargetRecord::default());
}

#[test]
fn an_adopted_target_matches_and_its_former_owners_fall_behind() {
    let theirs = Stamp { hub_uid: "other-hub".into(), ..ours(7) };
    let newer = Stamp { versions: BTreeMap::from([("kyma-operator".into(), "2.0".into())]), ..ours(1) };
    let recreated = |stamp| LiveIdentity { target_uid: "new".into(), ..found(stamp) };
    let rows = [
        ("another cluster", recorded_at(3), recreated(None), 4),
        ("taken over by another hub", recorded_at(3), found(Some(theirs.clone())), 8),
        ("unknown and of another hub", TargetRecord::default(), found(Some(theirs)), 8),
        ("a later epoch", recorded_at(3), found(Some(ours(9))), 10),
        ("a newer operator", recorded_at(1), found(Some(newer)), 2),
    ];
    for (what, recorded, found, epoch) in rows {
        let (record, stamp) = adopt(&claim(), &recorded, &found).unwrap_or_else(|| panic!("{what}"));
        assert_eq!((record.epoch, stamp.epoch), (epoch, epoch), "{what}");
        let after = LiveIdentity { stamp: Some(stamp.clone()), ..found.clone() };
        assert!(matches!(compare(&claim(), &record, &after), Verdict::Match { .. }), "{what}");
        let old_copy = compare(&claim(), &TargetRecord { epoch: recorded.epoch.max(1), ..record }, &after);
        assert_eq!(old_copy, Verdict::StampMismatch(Mismatch::LaterState), "{what}");
        let elsewhere = Claim { hub_uid: "other-hub".into(), ..claim() };
        let theirs =
            TargetRecord { target_uid: Some(found.target_uid.clone()), epoch: 7, fencing_generation: None };
        let verdict = compare(&elsewhere, &theirs, &after);
        assert_eq!(verdict, Verdict::StampMismatch(Mismatch::TakenOver), "{what}");
    }
}

#[test]
fn what_is_fine_the_hub_and_a_neighbours_target_are_not_adopted() {
    let neighbour = Stamp { kyma: kyma("b", "uid-b"), ..ours(1) };
    let swapped = LiveIdentity { target_uid: "other".into(), ..found(Some(neighbour.clone())) };
    let rows = [
        (recorded_at(1), found(Some(ours(1)))),
        (TargetRecord::default(), found(None)),
        (TargetRecord::default(), found(Some(neighbour))),
        (recorded_at(1), swapped),
        (recorded_at(1), LiveIdentity { target_uid: "hub".into(), ..found(None) }),
    ];
    for (recorded, found) in rows {
        assert_eq!(adopt(&claim(), &recorded, &found), None, "{found:?}");
    }
    let nobodys = Claim { kyma: None, ..claim() };
    assert_eq!(adopt(&nobodys, &recorded_at(1), &found(Some(ours(9)))), None);
}

/// The hub's record, and the stamp, at these fencing generations.
fn at_generations(recorded: &str, stamped: &str) -> (TargetRecord, LiveIdentity) {
    let generation = |text: &str| text.parse().ok();
    let stamp = Stamp { fencing_generation: generation(stamped), ..ours(3) };
    (TargetRecord { fencing_generation: generation(recorded), ..recorded_at(3) }, found(Some(stamp)))
}

#[test]
fn a_hub_that_did_not_order_the_last_change_is_behind() {
    for (recorded, stamped) in [("6-a", "7-a"), ("7-b", "7-a"), ("", "1-a")] {
        let (recorded, found) = at_generations(recorded, stamped);
        let verdict = compare(&claim(), &recorded, &found);
        assert_eq!(verdict, Verdict::StampMismatch(Mismatch::LaterState), "{recorded:?} {stamped}");
    }
    for (recorded, stamped) in [("7-a", "7-a"), ("8-a", "7-b"), ("7-a", "")] {
        let (recorded, found) = at_generations(recorded, stamped);
        assert_eq!(
            compare(&claim(), &recorded, &found),
            Verdict::Match { write: None },
            "{recorded:?} {stamped}"
        );
    }
}

#[test]
fn a_record_with_the_deprecated_field_counts_as_before() {
    let record = |target: serde_json::Value| -> TargetRecord {
        let identity: TargetIdentity = serde_json::from_value(target).unwrap();
        TargetRecord::from(&identity)
    };
    let old = record(serde_json::json!({ "clusterUid": "target", "epoch": 3, "turn": "7-a" }));
    let both = serde_json::json!({
        "clusterUid": "target", "epoch": 3, "turn": "6-a", "fencingGeneration": "7-a",
    });
    for recorded in [old, record(both)] {
        assert_eq!(recorded, at_generations("7-a", "").0);
        for (stamped, is_behind) in [("7-a", false), ("6-b", false), ("7-b", true), ("8-a", true)] {
            let (_, found) = at_generations("", stamped);
            let verdict = compare(&claim(), &recorded, &found);
            let expected = Verdict::StampMismatch(Mismatch::LaterState);
            assert_eq!(verdict == expected, is_behind, "{stamped}: {verdict:?}");
        }
    }
}

#[test]
fn a_damaged_fencing_generation_is_nobodys() {
    let mut map = Stamp { fencing_generation: "7-a".parse().ok(), ..ours(3) }.to_config_map();
    assert_eq!(
        Stamp::from_config_map(&map).fencing_generation.map(|generation| generation.to_string()).as_deref(),
        Some("7-a")
    );
    map.data.as_mut().unwrap().insert("turn".into(), "x".into());
    let (recorded, _) = at_generations("9-a", "");
    let verdict = compare(&claim(), &recorded, &found(Some(Stamp::from_config_map(&map))));
    assert_eq!(verdict, Verdict::StampMismatch(Mismatch::LaterState));
}

#[test]
fn a_damaged_fencing_generation_does_not_become_the_hubs() {
    let mut map = ours(3).to_config_map();
    map.data.as_mut().unwrap().insert("turn".into(), "1-what the target likes to say".into());
    let found = found(Some(Stamp::from_config_map(&map)));
    let verdict = compare(&claim(), &TargetRecord::default(), &found);
    assert_eq!(verdict, Verdict::StampMismatch(Mismatch::LaterState));
}

#[test]
fn first_contact_takes_fencing_generation_of_its_own_stamp() {
    let (_, found) = at_generations("", "7-a");
    let Verdict::FirstContact { record, .. } = compare(&claim(), &TargetRecord::default(), &found) else {
        panic!()
    };
    assert_eq!(compare(&claim(), &record, &found), Verdict::Match { write: None });
}

#[test]
fn who_adopts_begins_to_count_anew_and_the_others_fall_behind() {
    let (behind, found) = at_generations("6-a", "7-a");
    let (record, stamp) = adopt(&claim(), &behind, &found).unwrap();
    let after = self::found(Some(stamp));
    assert_eq!(compare(&claim(), &record, &after), Verdict::Match { write: Some(ours(4)) });
    let (live, _) = at_generations("7-a", "");
    assert_eq!(compare(&claim(), &live, &after), Verdict::StampMismatch(Mismatch::LaterState));
}
