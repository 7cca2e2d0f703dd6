use serde_json::json;

use super::*;
use crate::hub::component::ComponentKind;

const START: &str = "2026-01-01T00:00:00Z";
static NONE: BTreeSet<String> = BTreeSet::new();

fn at(minutes: i64) -> Timestamp {
    START.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
}

fn component(name: &str, policy: &str, resource_policy: &str, terminating: bool) -> ComponentView {
    let mut object = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {
            "name": name, "namespace": "kcp-system", "uid": name, "resourceVersion": "1",
            "ownerReferences": [{
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "k", "uid": "u",
            }],
        },
        "spec": {
            "module": {"name": name, "version": "1.0.0"},
            "deletionPolicy": policy, "resourcePolicy": resource_policy,
        },
    });
    if terminating {
        object["metadata"]["deletionTimestamp"] = json!(START);
    }
    ComponentView::of(&ComponentKind::helm(), &serde_json::from_value(object).unwrap()).unwrap()
}

fn inputs(components: &[ComponentView], target: TargetReachability) -> DeletionInputs<'_> {
    DeletionInputs {
        nothing_requested: false,
        components,
        unindexed: &NONE,
        has_missing_components: false,
        target,
        declared_gone: false,
        now: at(0),
        gone_after: SignedDuration::from_mins(10),
        ignore: IgnorePolicy::Leave,
    }
}

fn policies(step: DeletionStep) -> Vec<(String, DeletionPolicy)> {
    let DeletionStep::DeleteComponents(deletions) = step else { panic!("no deletions: {step:?}") };
    deletions.into_iter().map(|deletion| (deletion.component.name, deletion.policy)).collect()
}

#[test]
fn components_get_the_order_first_and_ignore_leaves_everything() {
    let components =
        [component("a", "Orphan", "CreateAndDelete", false), component("b", "Orphan", "Ignore", false)];
    let ordered = policies(next_step(&inputs(&components, TargetReachability::Reachable)));
    assert_eq!(ordered, [("a".into(), DeletionPolicy::Delete), ("b".into(), DeletionPolicy::Orphan)]);
}

#[test]
fn ignore_means_block_then_remove_where_that_is_asked_for() {
    let components = [component("b", "Orphan", "Ignore", false)];
    let inputs = DeletionInputs {
        ignore: IgnorePolicy::BlockThenRemove,
        ..inputs(&components, TargetReachability::Reachable)
    };
    assert_eq!(policies(next_step(&inputs)), [("b".into(), DeletionPolicy::Delete)]);
}

#[test]
fn manually_deleted_component_still_gets_deletion_request() {
    let components = [component("a", "Orphan", "CreateAndDelete", true)];
    assert_eq!(
        policies(next_step(&inputs(&components, TargetReachability::Reachable))),
        [("a".into(), DeletionPolicy::Delete)]
    );
}

#[test]
fn component_without_finalizer_gets_no_deletion_request() {
    let mut components = [component("a", "Orphan", "CreateAndDelete", true)];
    components[0].held_by = vec!["foregroundDeletion".into()];
    assert_eq!(
        next_step(&inputs(&components, TargetReachability::Reachable)),
        DeletionStep::AwaitComponents { left: vec!["a".into()] }
    );
}

#[test]
fn then_components_are_awaited_then_the_target_is_cleaned() {
    let components = [component("a", "Delete", "CreateAndDelete", true)];
    assert_eq!(
        next_step(&inputs(&components, TargetReachability::Reachable)),
        DeletionStep::AwaitComponents { left: vec!["a".into()] }
    );
    assert_eq!(next_step(&inputs(&[], TargetReachability::Reachable)), DeletionStep::CleanTarget);
}

#[test]
fn nothing_is_let_go_while_the_index_lacks_a_component() {
    let unindexed = BTreeSet::from(["a".to_owned()]);
    let gone = TargetReachability::NoSecret { since: at(-10) };
    for target in
        [TargetReachability::Reachable, TargetReachability::Local, TargetReachability::NeverContacted, gone]
    {
        let inputs = DeletionInputs { unindexed: &unindexed, ..inputs(&[], target) };
        assert_eq!(next_step(&inputs), DeletionStep::AwaitUnwatched, "{target:?}");
    }
    let components = [component("b", "Delete", "CreateAndDelete", true)];
    let inputs =
        DeletionInputs { unindexed: &unindexed, ..inputs(&components, TargetReachability::Reachable) };
    assert_eq!(next_step(&inputs), DeletionStep::AwaitComponents { left: vec!["b".into()] });
    assert_eq!(inputs.installed(), BTreeSet::from(["a", "b"]));
}

#[test]
fn module_without_component_is_removed_unless_cluster_is_gone() {
    let missing =
        DeletionInputs { has_missing_components: true, ..inputs(&[], TargetReachability::Reachable) };
    assert_eq!(next_step(&missing), DeletionStep::FinishRemovals);
    assert_eq!(
        next_step(&DeletionInputs { target: TargetReachability::Unreachable, ..missing }),
        DeletionStep::FinishRemovals
    );
    let components = [component("a", "Orphan", "CreateAndDelete", false)];
    let others =
        DeletionInputs { has_missing_components: true, ..inputs(&components, TargetReachability::Reachable) };
    assert_eq!(policies(next_step(&others)), [("a".into(), DeletionPolicy::Delete)], "others first");
    let gone = TargetReachability::NoSecret { since: at(0) };
    assert_eq!(
        next_step(&DeletionInputs { has_missing_components: true, now: at(10), ..inputs(&[], gone) }),
        DeletionStep::Release
    );
    assert_eq!(
        next_step(&DeletionInputs {
            has_missing_components: true,
            nothing_requested: true,
            ..inputs(&[], gone)
        }),
        DeletionStep::Release
    );
}

#[test]
fn a_target_is_cleaned_unless_it_was_never_seen() {
    assert_eq!(next_step(&inputs(&[], TargetReachability::Local)), DeletionStep::CleanTarget);
    assert_eq!(next_step(&inputs(&[], TargetReachability::NeverContacted)), DeletionStep::Release);
}

#[test]
fn a_terminating_namespace_or_crd_is_no_order() {
    let components = [component("a", "Orphan", "CreateAndDelete", false)];
    let inputs =
        DeletionInputs { nothing_requested: true, ..inputs(&components, TargetReachability::Reachable) };
    assert_eq!(next_step(&inputs), DeletionStep::Release);
}

#[test]
fn unreachable_target_is_awaited_even_if_declared_gone() {
    let inputs =
        DeletionInputs { declared_gone: true, now: at(600), ..inputs(&[], TargetReachability::Unreachable) };
    assert_eq!(next_step(&inputs), DeletionStep::AwaitTarget { gone_at: None });
}

#[test]
fn a_missing_secret_is_waited_for_ten_minutes() {
    let components = [component("a", "Delete", "CreateAndDelete", true)];
    let inputs =
        DeletionInputs { now: at(9), ..inputs(&components, TargetReachability::NoSecret { since: at(0) }) };
    assert_eq!(next_step(&inputs), DeletionStep::AwaitTarget { gone_at: Some(at(10)) });
    let finishing = DeletionInputs { has_missing_components: true, ..inputs };
    assert_eq!(
        (next_step(&finishing), finishing.gone_at()),
        (DeletionStep::FinishRemovals, Some(at(10))),
        "no longer than that"
    );
}

#[test]
fn a_cluster_that_is_gone_turns_orders_into_orphans() {
    let components = [component("a", "Delete", "CreateAndDelete", true)];
    let after =
        DeletionInputs { now: at(10), ..inputs(&components, TargetReachability::NoSecret { since: at(0) }) };
    assert_eq!(policies(next_step(&after)), [("a".into(), DeletionPolicy::Orphan)]);
    let declared = DeletionInputs {
        declared_gone: true,
        ..inputs(&components, TargetReachability::NoSecret { since: at(0) })
    };
    assert_eq!(policies(next_step(&declared)), [("a".into(), DeletionPolicy::Orphan)]);
    let orphaned = [component("a", "Orphan", "CreateAndDelete", true)];
    let waiting = DeletionInputs { components: &orphaned, ..declared };
    assert_eq!(next_step(&waiting), DeletionStep::AwaitComponents { left: vec!["a".into()] });
    assert_eq!(next_step(&DeletionInputs { components: &[], ..waiting }), DeletionStep::Release);
}
