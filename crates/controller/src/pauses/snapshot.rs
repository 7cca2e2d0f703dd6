//! Effect of the hub's Pauses on one object. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Resource, ResourceExt,
    core::{Selector, SelectorExt as _},
};
use kyma_api::{Kyma, Pause, PauseScope, labels, names};

use super::kyma_labels::KymaLabels;
use super::names::braked_operator;

/// Operations that Pauses forbid for one object, each with a message. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PausedOperations {
    writes: Option<String>,
    deletes: Option<String>,
    upgrades: Option<String>,
}

impl PausedOperations {
    /// Returns the message of a Pause that forbids all writes except to the status of the object itself; `None` if
    /// writes are allowed.
    pub fn writes(&self) -> Option<&str> {
        self.writes.as_deref()
    }

    /// Returns the message of a Pause that forbids removals from the target, and requests for them; `None` if
    /// deletions are allowed.
    pub fn deletes(&self) -> Option<&str> {
        self.writes().or(self.deletes.as_deref())
    }

    /// Returns the message of a Pause that forbids changes of the installed version; `None` if upgrades are allowed.
    pub fn upgrades(&self) -> Option<&str> {
        self.writes().or(self.upgrades.as_deref())
    }

    /// Reports whether this forbids an operation that `before` allowed.
    pub(crate) fn is_tighter_than(&self, before: &Self) -> bool {
        let tighter = |now: Option<&str>, before: Option<&str>| now.is_some() && before.is_none();
        tighter(self.writes(), before.writes())
            || tighter(self.deletes(), before.deletes())
            || tighter(self.upgrades(), before.upgrades())
    }

    fn add(&mut self, pause: &Pause, is_missing: bool) {
        let why = pause.spec.reason.as_deref().filter(|reason| !reason.is_empty());
        let why = why.map_or_else(String::new, |reason| format!(": {reason}"));
        let missing = if is_missing {
            " (the hub lacks it: create it again under its name, then delete it to end it)"
        } else {
            ""
        };
        let message = || format!("Pause {} is in force{why}{missing}", pause.name_any());
        match pause.spec.scope {
            PauseScope::All => &mut self.writes,
            PauseScope::Deletes => &mut self.deletes,
            PauseScope::Upgrades => &mut self.upgrades,
        }
        .get_or_insert_with(message);
    }
}

/// Relation of an object to a Kyma. The selector of a Pause is matched against the labels of that Kyma.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PauseSubject<'a> {
    /// A Kyma itself, with these labels.
    Kyma(&'a BTreeMap<String, String>),
    /// An object of the Kyma with this value of the label `kyma-name`.
    OfKyma(&'a str),
    /// An object of no Kyma.
    NoKyma,
}

impl<'a> PauseSubject<'a> {
    pub(crate) fn of<K: Resource<DynamicType = ()>>(object: &'a K) -> Self {
        if K::kind(&()) == Kyma::kind(&()) && K::group(&()) == Kyma::group(&()) {
            return Self::Kyma(object.labels());
        }
        object.labels().get(labels::KYMA_NAME).map_or(Self::NoKyma, |kyma| Self::OfKyma(kyma))
    }
}

/// All Pauses, and, if a Pause has a selector, the labels of all Kymas.
#[derive(Clone, Debug, Default)]
pub(crate) struct PauseSnapshot {
    pub(crate) pauses: BTreeMap<String, Arc<Pause>>,
    /// Names of Pauses that the last list lacked. They stay in force.
    pub(crate) missing: BTreeSet<String>,
    /// Labels of all Kymas. `None` until Kymas are listed, or while no Pause has a selector.
    pub(crate) kymas: Option<KymaLabels>,
    /// How often a user deleted a Pause of an operator's brake.
    pub(crate) released: u64,
    /// Uids of all Pauses of brakes that existed at the last confirmation. A confirmation applies to the Pauses of all
    /// brakes, so these are no longer in force.
    pub(crate) confirmed: BTreeSet<String>,
    /// How often the Pause of the brake was missing from a list although no DELETE event was received.
    pub(crate) lost: u64,
}

impl PauseSnapshot {
    /// Returns the operations that Pauses forbid `operator` to perform for the object `subject` at the time `now`. If
    /// several Pauses have the same scope, the message is that of the first Pause by name.
    pub(crate) fn paused_operations(
        &self,
        operator: &str,
        subject: PauseSubject<'_>,
        now: Timestamp,
    ) -> PausedOperations {
        let mut paused_operations = PausedOperations::default();
        let is_named = |pause: &Pause| {
            let named = &pause.spec.operators;
            named.is_empty() || named.iter().any(|named| named == operator)
        };
        let holding = self.holding(now).filter(|pause| is_named(pause));
        let concerned = holding.filter(|pause| self.concerns(pause, subject));
        concerned.for_each(|pause| paused_operations.add(pause, self.missing.contains(&pause.name_any())));
        paused_operations
    }

    /// Returns the time at which the next Pause expires.
    pub(crate) fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.pauses.values().filter_map(|pause| end(pause)).filter(|end| *end > now).min()
    }

    /// Returns the scope of each Pause in force.
    pub(crate) fn in_force(&self, now: Timestamp) -> Vec<PauseScope> {
        self.holding(now).map(|pause| pause.spec.scope).collect()
    }

    fn holding(&self, now: Timestamp) -> impl Iterator<Item = &Pause> {
        let is_confirmed = |pause: &Pause| pause.uid().is_some_and(|uid| self.confirmed.contains(&uid));
        let pauses = self.pauses.values().map(|pause| &**pause);
        pauses.filter(move |pause| is_in_force(pause, now) && !is_confirmed(pause))
    }

    /// Records that a user deleted the Pause of a brake. The user thereby confirms the blocked deletions of every
    /// operator.
    pub(crate) fn confirm_brakes(&mut self) {
        self.released += 1;
        let of_brakes =
            self.pauses.iter().filter(|(name, pause)| braked_operator(name, &pause.spec).is_some());
        // The set has at most one uid for each existing Pause.
        self.confirmed = of_brakes.filter_map(|(_, pause)| pause.uid()).collect();
    }

    /// Returns the revision of the Kymas' labels.
    pub(crate) fn labels_revision(&self) -> u64 {
        self.kymas.as_ref().map(KymaLabels::revision).unwrap_or_default()
    }

    /// Reports whether a Pause has a selector, so that labels of Kymas are needed.
    pub(crate) fn selects(&self) -> bool {
        self.pauses
            .values()
            .any(|pause| pause.spec.selector.as_ref().is_some_and(|selector| !is_empty(selector)))
    }

    /// Reports whether a Pause applies to an object. Unknown labels count as matching: a Pause that applies by mistake
    /// only delays work, but a Pause that is ignored by mistake can lose data.
    fn concerns(&self, pause: &Pause, subject: PauseSubject<'_>) -> bool {
        let Some(selector) = pause.spec.selector.as_ref().filter(|selector| !is_empty(selector)) else {
            return true;
        };
        let Ok(selector) = Selector::try_from(selector.clone()) else { return true };
        match subject {
            PauseSubject::Kyma(labels) => selector.matches(labels),
            PauseSubject::OfKyma(kyma) => {
                let labels = self.kymas.as_ref().and_then(|kymas| kymas.get(kyma));
                labels.is_none_or(|labels| selector.matches(&*labels))
            }
            PauseSubject::NoKyma => false,
        }
    }
}

/// Reports whether a Pause has not expired.
pub fn is_in_force(pause: &Pause, now: Timestamp) -> bool {
    end(pause).is_none_or(|end| end > now)
}

fn end(pause: &Pause) -> Option<Timestamp> {
    pause.spec.until.as_ref().map(|until| until.0)
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Returns the value of the label `kyma-name` for a Kyma.
pub(crate) fn kyma_label(name: &str) -> String {
    names::label_value(name)
}

#[cfg(test)]
mod tests {
    use kyma_api::HelmComponent;
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn snapshot(pauses: &[(&str, Value)]) -> PauseSnapshot {
        let pause = |(name, spec): &(&str, Value)| {
            let kind = json!({"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "Pause"});
            let mut whole = json!({"metadata": {"name": name}, "spec": spec});
            whole.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
            ((*name).to_owned(), Arc::new(serde_json::from_value(whole).unwrap()))
        };
        PauseSnapshot { pauses: pauses.iter().map(pause).collect(), ..PauseSnapshot::default() }
    }

    fn labels(region: &str) -> BTreeMap<String, String> {
        [("region".to_owned(), region.to_owned())].into()
    }

    #[test]
    fn each_scope_forbids_its_operation_and_all_forbids_every_one() {
        let stopped = |scope: &str| {
            let paused_operations = snapshot(&[("p", json!({"scope": scope}))]).paused_operations(
                "x",
                PauseSubject::NoKyma,
                at(0),
            );
            [
                paused_operations.writes().is_some(),
                paused_operations.deletes().is_some(),
                paused_operations.upgrades().is_some(),
            ]
        };
        assert_eq!(stopped("All"), [true, true, true]);
        assert_eq!(stopped("Deletes"), [false, true, false]);
        assert_eq!(stopped("Upgrades"), [false, false, true]);
        assert_eq!(
            snapshot(&[]).paused_operations("x", PauseSubject::NoKyma, at(0)),
            PausedOperations::default()
        );
    }

    #[test]
    fn selector_matches_kyma_labels_and_unknown_labels_match() {
        let mut snapshot = snapshot(&[("p", json!({"selector": {"matchLabels": {"region": "eu"}}}))]);
        let held = |snapshot: &PauseSnapshot, subject| {
            snapshot.paused_operations("x", subject, at(0)).writes().is_some()
        };
        let (eu, us) = (labels("eu"), labels("us"));
        assert!(held(&snapshot, PauseSubject::Kyma(&eu)) && !held(&snapshot, PauseSubject::Kyma(&us)));
        assert!(!held(&snapshot, PauseSubject::NoKyma));
        assert!(held(&snapshot, PauseSubject::OfKyma("b")), "the labels of its Kyma are not known yet");
        snapshot.kymas =
            Some([("a".to_owned(), eu.clone()), ("b".to_owned(), us.clone())].into_iter().collect());
        assert!(held(&snapshot, PauseSubject::OfKyma("a")) && !held(&snapshot, PauseSubject::OfKyma("b")));
        assert!(held(&snapshot, PauseSubject::OfKyma("gone")));
    }

    #[test]
    fn empty_or_invalid_selector_matches_every_object() {
        let broken = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
        for selector in [broken, json!({})] {
            let snapshot = snapshot(&[("p", json!({ "selector": selector }))]);
            assert!(
                snapshot.paused_operations("x", PauseSubject::Kyma(&labels("us")), at(0)).writes().is_some()
            );
            assert!(snapshot.paused_operations("x", PauseSubject::NoKyma, at(0)).writes().is_some());
        }
    }

    #[test]
    fn a_pause_expires_at_until() {
        let snapshot =
            snapshot(&[("p", json!({"until": at(100).to_string()})), ("q", json!({"scope": "Deletes"}))]);
        assert_eq!(snapshot.next_end(at(0)), Some(at(100)));
        assert!(snapshot.paused_operations("x", PauseSubject::NoKyma, at(99)).writes().is_some());
        let after = snapshot.paused_operations("x", PauseSubject::NoKyma, at(100));
        assert!(after.writes().is_none() && after.deletes().is_some());
        assert_eq!(snapshot.next_end(at(100)), None);
    }

    #[test]
    fn the_message_names_the_pause_and_its_reason() {
        let snapshot = snapshot(&[
            ("b", json!({"reason": "incident 7"})),
            ("c", json!({})),
            ("a", json!({"scope": "Deletes"})),
        ]);
        let paused_operations = snapshot.paused_operations("x", PauseSubject::NoKyma, at(0));
        assert_eq!(paused_operations.writes(), Some("Pause b is in force: incident 7"));
        assert_eq!(paused_operations.deletes(), paused_operations.writes());
    }

    #[test]
    fn a_pause_does_not_affect_operators_that_it_does_not_name() {
        let snapshot = snapshot(&[("p", json!({"operators": ["x", "y"]}))]);
        let held =
            |operator| snapshot.paused_operations(operator, PauseSubject::NoKyma, at(0)).writes().is_some();
        assert!(held("x") && held("y") && !held("z"));
    }

    #[test]
    fn is_tighter_only_if_a_new_operation_is_forbidden() {
        let paused_operations =
            |spec: Value| snapshot(&[("p", spec)]).paused_operations("x", PauseSubject::NoKyma, at(0));
        let (all, deletes) = (paused_operations(json!({})), paused_operations(json!({"scope": "Deletes"})));
        assert!(all.is_tighter_than(&deletes) && deletes.is_tighter_than(&PausedOperations::default()));
        assert!(!deletes.is_tighter_than(&all) && !all.is_tighter_than(&all));
    }

    #[test]
    fn pause_subject_is_a_kyma_an_object_of_a_kyma_or_neither() {
        let kyma: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "k", "labels": {"region": "eu"}}, "spec": {"channel": "regular"}}))
        .unwrap();
        assert!(
            matches!(PauseSubject::of(&kyma), PauseSubject::Kyma(labels) if labels.contains_key("region"))
        );
        let mut component = HelmComponent::new("c", kyma_api::HelmComponentSpec::default());
        assert!(matches!(PauseSubject::of(&component), PauseSubject::NoKyma));
        component.labels_mut().insert(labels::KYMA_NAME.to_owned(), "k".to_owned());
        assert!(matches!(PauseSubject::of(&component), PauseSubject::OfKyma("k")));
    }
}
