//! Cache of one target: its subscriptions and watched objects.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use kyma_object_set::{Discovery, GroupKind, Identity, Inventory, Observed, Turns};
use kyma_sdk::{Content, Interest, Sighting};

use super::objects::{Changed, Objects};
use super::verdict::{RulesByOwner, Verdict};
use super::{Dependent, Seen};
use crate::expressions::Rules;

/// One target. Bounded by what components own: streams are scoped by our label, and objects are reduced before they come
/// in here.
#[derive(Default)]
pub(super) struct Place {
    pub(super) discovery: Arc<Discovery>,
    pub(super) turns: Arc<Turns>,
    /// When CRDs or aggregated APIs changed last.
    pub(super) kinds_changed: Option<Instant>,
    pub(super) objects: HashMap<GroupKind, Objects>,
    pub(super) wishes: HashMap<Dependent, Wish>,
    /// Replaced as a whole, so that who judges can tell whether they are still these.
    pub(super) rules: Arc<RulesByOwner>,
    /// What is wanted, and by how many.
    wanted: HashMap<Interest, usize>,
    listed: HashSet<Interest>,
}

/// Subscriptions of a component on a target.
#[derive(Default)]
pub(super) struct Wish {
    pub(super) interests: Vec<Interest>,
    /// Rules for the health of its objects.
    pub(super) rules: Arc<Rules>,
    /// Kinds of which objects were seen before it had these rules.
    pub(super) stale: HashSet<GroupKind>,
}

impl Wish {
    pub(super) fn new(interests: Vec<Interest>, rules: Arc<Rules>) -> Self {
        Self { interests, rules, stale: HashSet::new() }
    }
}

impl Place {
    /// The objects of an owner, and those in `also`.
    pub(super) fn objects(&self, owner: &str, also: &Inventory) -> BTreeMap<Identity, Seen> {
        let own = self.objects.values().flat_map(|objects| objects.seen.of(owner));
        let also = also.iter().filter_map(|(identity, _)| {
            let objects = self.objects.get(&identity.group_kind())?;
            Some((identity, objects.seen.get(identity)?))
        });
        own.chain(also).map(|(identity, seen)| (identity.clone(), seen.clone())).collect()
    }

    /// Those of these objects that our own applies changed, and of which the streams that tell health are not so far.
    pub(super) fn untold(&self, objects: &BTreeMap<Identity, Seen>) -> BTreeSet<Identity> {
        let untold = |identity: &&Identity| {
            let kind = self.objects.get(&identity.group_kind());
            kind.is_some_and(|kind| kind.is_untold(identity))
        };
        objects.keys().filter(untold).cloned().collect()
    }

    /// Whether all of these streams have given their list.
    pub(super) fn all_listed(&self, interests: &[Interest]) -> bool {
        interests.iter().all(|interest| self.listed.contains(interest))
    }

    /// Takes what an apply of our own gave.
    pub(super) fn note(
        &mut self,
        identity: &Identity,
        sight: (Observed, Option<String>),
        revision: Option<u64>,
    ) {
        if identity.is_crd() {
            self.kinds_changed = Some(Instant::now());
        }
        self.objects.entry(identity.group_kind()).or_default().note(identity, sight, revision);
    }

    /// Takes what a stream brought, with what that says of health.
    pub(super) fn take(
        &mut self,
        manager: &str,
        interest: &Interest,
        sighting: &Sighting,
        verdicts: Vec<Option<Verdict>>,
    ) -> Changed {
        let is_list = matches!(sighting, Sighting::Listed { .. });
        let first_list = is_list && self.listed.insert(interest.clone());
        let of_kinds = matches!(interest.group.as_str(), "apiextensions.k8s.io" | "apiregistration.k8s.io");
        if of_kinds && !first_list {
            self.kinds_changed = Some(Instant::now());
        }
        // The unscoped stream of CRDs only tells that kinds come and go.
        let is_of_kinds_alone = interest.labels.is_none();
        if !is_of_kinds_alone {
            let kind = GroupKind::new(&interest.group, &interest.kind);
            let objects = self.objects.entry(kind.clone()).or_default();
            if !is_list {
                let verdict = verdicts.into_iter().next().unwrap_or_default();
                return objects.take_one(manager, interest, sighting, verdict);
            }
            objects.take_list(manager, interest, sighting, verdicts);
            if interest.content == Content::Whole {
                for wish in self.wishes.values_mut() {
                    wish.stale.remove(&kind);
                }
            }
        }
        if first_list { self.completed() } else { Changed { everybody: true, ..Changed::default() } }
    }

    /// Those whose every stream has given its list by now.
    fn completed(&self) -> Changed {
        let dependents = self.wishes.iter().filter(|(_, wish)| self.all_listed(&wish.interests));
        let dependents = dependents.map(|(dependent, _)| dependent.clone()).collect();
        Changed { dependents, ..Changed::default() }
    }

    /// Counts who wants what; what nobody wants any more is forgotten, with what it showed.
    pub(super) fn count(&mut self, before: &[Interest], after: &[Interest]) {
        for interest in after {
            *self.wanted.entry(interest.clone()).or_default() += 1;
        }
        for interest in before {
            if let Some(count) = self.wanted.get_mut(interest) {
                *count = count.saturating_sub(1);
            }
        }
        self.wanted.retain(|_, count| *count > 0);
        let wanted = &self.wanted;
        self.listed.retain(|interest| wanted.contains_key(interest));
        let kind = |interest: &Interest| GroupKind::new(&interest.group, &interest.kind);
        let kinds: HashSet<GroupKind> = wanted.keys().map(kind).collect();
        self.objects.retain(|kind, _| kinds.contains(kind));
        let whole = self.listed.iter().filter(|interest| interest.content == Content::Whole);
        let whole: HashSet<GroupKind> = whole.map(kind).collect();
        for (_, objects) in self.objects.iter_mut().filter(|(kind, _)| !whole.contains(*kind)) {
            objects.tell_metadata_alone();
        }
    }
}
