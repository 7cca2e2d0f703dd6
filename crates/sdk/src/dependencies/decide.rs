//! Decides on the effect of dependencies that are not ready. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::{Reason, State, condition};
use kyma_controller::Failure;

use super::graph::{UnmetDependency, UnmetReason};
use super::view::Node;

/// Maximum number of names in a message.
const MAX_LISTED_NAMES: usize = 10;

/// Effect of dependencies on a component.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DependencyEffect {
    /// The component depends on no other component.
    None,
    /// All dependencies are ready.
    Ready,
    /// The component is installed and stays unchanged; this dependency is no longer ready.
    Lost(String),
    /// The component is neither installed nor changed.
    Blocked {
        /// Failure for the condition Ready.
        failure: Failure,
        /// The state of the module meanwhile.
        state: State,
    },
    /// Not known yet; an event requeues the component. A component whose spec was released before continues.
    Unknown {
        /// Whether its spec was released before.
        passed: bool,
    },
}

/// Decides from the dependencies that are not ready and the cycle that contains the component; `passed`: its spec was
/// released before.
pub(crate) fn decide(unmet: &[UnmetDependency], cycle: Option<&[Node]>, passed: bool) -> DependencyEffect {
    if let Some(cycle) = cycle {
        let path = path(cycle);
        let back = Failure::new(Reason::DependencyCycle, path.clone());
        return if passed {
            DependencyEffect::Lost(path)
        } else {
            DependencyEffect::Blocked { failure: back, state: State::Error }
        };
    }
    if unmet.iter().any(|one| one.why == UnmetReason::Listing) {
        return DependencyEffect::Unknown { passed };
    }
    if unmet.is_empty() {
        return DependencyEffect::Ready;
    }
    let message = message(unmet);
    if passed {
        return DependencyEffect::Lost(message);
    }
    // These causes can pass without action of a user.
    let comes = unmet
        .iter()
        .all(|one| matches!(one.why, UnmetReason::NotReady | UnmetReason::Denied | UnmetReason::Deleting));
    let state = if comes { State::Processing } else { State::Warning };
    DependencyEffect::Blocked { failure: Failure::new(Reason::DependencyNotReady, message), state }
}

/// Reports whether the spec of this generation was released. The status is the record that survives a restart.
pub(crate) fn has_passed(conditions: &[Condition], generation: Option<i64>) -> bool {
    let Some(held) = condition::get(conditions, condition::types::DEPENDENCIES_READY) else { return false };
    let stopped = [Reason::DependencyNotReady, Reason::DependencyCycle];
    held.observed_generation == generation && !stopped.iter().any(|reason| reason.as_str() == held.reason)
}

/// Reports whether a condition is outdated because the component has no dependencies any more.
pub(crate) fn is_stale(conditions: &[Condition]) -> bool {
    let ours = [Reason::DependencyNotReady, Reason::DependencyLost, Reason::DependencyCycle];
    condition::get(conditions, condition::types::DEPENDENCIES_READY)
        .is_some_and(|held| ours.iter().any(|reason| reason.as_str() == held.reason))
}

/// Formats a cycle as `a -> b -> a`, with kinds if they differ.
fn path(cycle: &[Node]) -> String {
    let one_kind = cycle.iter().all(|node| cycle.first().is_some_and(|first| first.kind == node.kind));
    let named = |node: &Node| if one_kind { node.name.clone() } else { node.to_string() };
    cycle.iter().map(named).collect::<Vec<_>>().join(" -> ")
}

fn message(unmet: &[UnmetDependency]) -> String {
    let named: Vec<String> = unmet.iter().take(MAX_LISTED_NAMES).map(describe).collect();
    let more = match unmet.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("{}{more}", named.join("; "))
}

fn describe(unmet: &UnmetDependency) -> String {
    let UnmetDependency { name, why } = unmet;
    match why {
        UnmetReason::Absent if name.starts_with("module ") => format!("{name} is not enabled in this Kyma"),
        UnmetReason::Absent => format!("{name} does not exist"),
        UnmetReason::Deleting => format!("{name} is being deleted"),
        UnmetReason::NotReady | UnmetReason::Listing | UnmetReason::NotEvaluated(..) => {
            format!("{name} is not Ready")
        }
        UnmetReason::Denied => format!("{name} is not ready: its expression is false"),
        UnmetReason::Unclear => {
            format!(
                "{name}: the expression is not valid CEL, reads a field that the component lacks, or calls an unknown \
                 function"
            )
        }
        UnmetReason::NoKyma => {
            format!("{name}: this component belongs to no Kyma, so it must name a component")
        }
        UnmetReason::OfAnotherKyma => format!("{name} belongs to another Kyma"),
        UnmetReason::Refused(why) => format!("{name}: its kind cannot be read: {why}"),
    }
}

/// Describes the components that a removal waits for, by name and whether each is being deleted. A user has to remove
/// those that are not.
pub(crate) fn describe_holders<'a>(
    holders: impl Iterator<Item = (&'a Node, bool)>,
) -> Option<DeletionBlockers> {
    let (going, staying): (Vec<_>, Vec<_>) = holders.partition(|(_, deleting)| *deleting);
    let list = |nodes: &[(&Node, bool)]| {
        let named: Vec<String> =
            nodes.iter().take(MAX_LISTED_NAMES).map(|(node, _)| node.to_string()).collect();
        let more = nodes.len().saturating_sub(MAX_LISTED_NAMES);
        if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) }
    };
    match (staying.as_slice(), going.as_slice()) {
        ([], []) => None,
        ([], going) => {
            Some(DeletionBlockers::Going(format!("waiting until these are deleted: {}", list(going))))
        }
        (staying, _) => Some(DeletionBlockers::Staying(format!("these depend on it: {}", list(staying)))),
    }
}

/// Message for the components that block a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeletionBlockers {
    /// All components that block are being deleted.
    Going(String),
    /// Some components that block are not being deleted.
    Staying(String),
}

#[cfg(test)]
mod tests {
    use kyma_api::ErrorClass;
    use serde_json::json;

    use super::super::view::Kind;
    use super::*;

    fn node(name: &str) -> Node {
        Node { kind: Kind::helm(), name: name.to_owned() }
    }

    fn unmet(why: UnmetReason) -> UnmetDependency {
        UnmetDependency { name: "HelmComponent a".to_owned(), why }
    }

    #[test]
    fn unevaluable_expression_names_the_possible_causes() {
        let text = describe(&unmet(UnmetReason::Unclear));
        for cause in ["not valid CEL", "reads a field", "unknown function"] {
            assert!(text.contains(cause), "{text}");
        }
    }

    #[test]
    fn missing_dependency_blocks_first_install_then_only_changes() {
        let missing = [unmet(UnmetReason::Absent)];
        let DependencyEffect::Blocked { failure, state } = decide(&missing, None, false) else {
            panic!("held back")
        };
        assert_eq!((failure.reason, failure.class), (Reason::DependencyNotReady, ErrorClass::Blocked));
        assert_eq!((failure.message.as_str(), state), ("HelmComponent a does not exist", State::Warning));
        assert_eq!(
            decide(&missing, None, true),
            DependencyEffect::Lost("HelmComponent a does not exist".to_owned())
        );
        assert_eq!(decide(&[], None, false), DependencyEffect::Ready);
        let DependencyEffect::Blocked { state, .. } = decide(&[unmet(UnmetReason::NotReady)], None, false)
        else {
            panic!("held back")
        };
        assert_eq!(state, State::Processing, "it comes by itself");
    }

    #[test]
    fn what_is_not_listed_yet_decides_nothing() {
        let both = [unmet(UnmetReason::NotReady), unmet(UnmetReason::Listing)];
        assert_eq!(decide(&both, None, false), DependencyEffect::Unknown { passed: false });
        assert_eq!(decide(&both, None, true), DependencyEffect::Unknown { passed: true });
    }

    #[test]
    fn a_circle_is_told_by_its_path() {
        let circle = [node("a"), node("b"), node("a")];
        let DependencyEffect::Blocked { failure, state } =
            decide(&[unmet(UnmetReason::NotReady)], Some(&circle), false)
        else {
            panic!("held back")
        };
        assert_eq!((failure.reason, state), (Reason::DependencyCycle, State::Error));
        assert_eq!(failure.message, "a -> b -> a");
        assert_eq!(decide(&[], Some(&circle), true), DependencyEffect::Lost("a -> b -> a".to_owned()));
        let other = Node { kind: Kind { group: "x".into(), kind: "Greeting".into() }, name: "b".into() };
        assert_eq!(path(&[node("a"), other, node("a")]), "HelmComponent a -> Greeting b -> HelmComponent a");
    }

    #[test]
    fn a_spec_has_passed_where_its_own_generation_was_not_held_back() {
        let passed = |status: &str, reason: Reason, generation: i64| {
            let condition = json!({"type": "DependenciesReady", "status": status, "reason": reason.as_str(),
                "message": "", "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            has_passed(&[serde_json::from_value(condition).unwrap()], Some(2))
        };
        assert!(passed("True", Reason::Succeeded, 2));
        assert!(passed("False", Reason::DependencyLost, 2) && passed("False", Reason::DependencyMissing, 2));
        assert!(!passed("True", Reason::Succeeded, 1), "the spec before");
        assert!(
            !passed("False", Reason::DependencyNotReady, 2) && !passed("False", Reason::DependencyCycle, 2)
        );
        assert!(!has_passed(&[], Some(2)));
    }

    #[test]
    fn a_removal_names_who_stays_before_who_goes_too() {
        let (a, b) = (node("a"), node("b"));
        assert_eq!(describe_holders([].into_iter()), None);
        let going = describe_holders([(&a, true)].into_iter());
        assert_eq!(
            going,
            Some(DeletionBlockers::Going("waiting until these are deleted: HelmComponent a".to_owned()))
        );
        let staying = describe_holders([(&a, true), (&b, false)].into_iter());
        assert_eq!(
            staying,
            Some(DeletionBlockers::Staying("these depend on it: HelmComponent b".to_owned()))
        );
    }

    #[test]
    fn a_long_list_is_cut() {
        let many: Vec<UnmetDependency> = (0..12).map(|_| unmet(UnmetReason::Deleting)).collect();
        assert!(message(&many).ends_with("; and 2 more"));
    }
}
