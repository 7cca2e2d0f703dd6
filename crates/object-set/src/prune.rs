//! Plans the removal of objects that left a set; [`remove`](crate::remove) carries the plan out. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kyma_api::{ErrorClass, Reason};
use thiserror::Error;

use crate::inventory::Inventory;
use crate::object::Identity;
use crate::order;
use crate::ownership::{Guard, Protection};

/// Inputs of a prune.
pub struct PruneRequest<'a> {
    /// Owned objects on the target.
    pub inventory: &'a Inventory,
    /// Identities of the new set, with defaulted namespaces ([`crate::ApplyReport::identities`]).
    pub desired: &'a BTreeSet<Identity>,
    /// Number of objects before the new set was applied.
    pub previous: usize,
    /// Whether all of the new set was applied ([`crate::ApplyReport::is_complete`]).
    pub complete: bool,
    /// Whether the set differs only because the target no longer serves an API version: then nothing is deleted.
    pub api_version_gone: bool,
    /// Whether the user confirmed a much smaller set.
    pub allow_shrink: bool,
    /// Returns the owner to which an object is handed over, since its set contains the object too.
    pub new_owner: &'a dyn Fn(&Identity) -> Option<String>,
    /// Whether an object is a hook of the new set: a Namespace or CRD that became one stays.
    pub is_hook: &'a dyn Fn(&Identity) -> bool,
    /// Objects that must never be deleted.
    pub protection: &'a Protection,
}

/// Reason to keep an object that left the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeepReason {
    /// The object carries `helm.sh/resource-policy: keep`.
    ResourcePolicy,
    /// A Namespace, CRD, volume or claim that existed before.
    NotCreatedByUs,
    /// The object is protected from deletion.
    Protected,
    /// A volume or claim, which a prune never deletes, or a Namespace that contains one.
    HoldsData,
    /// Another owner uses it, or took it over.
    OtherOwner,
    /// The live object has another uid than the applied one.
    NotTheSame,
    /// The owner label or the operator's entry in `managedFields` was removed.
    MarkLost,
    /// A CRD of which objects exist.
    InUse,
    /// A Namespace that contains objects that this owner does not own.
    ForeignObjects,
    /// A Namespace that contains objects of this owner that stay.
    WantedObjects,
    /// Its content is unknown, because a kind cannot be listed.
    CannotTell,
    /// The object became a hook of the set.
    Hook,
    /// The set lacks it only because the target no longer serves an API version.
    ApiVersionGone,
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ResourcePolicy => "it is annotated to be kept",
            Self::NotCreatedByUs => "it was there before",
            Self::Protected => "it is protected",
            Self::HoldsData => "it holds data",
            Self::OtherOwner => "another owner uses it",
            Self::NotTheSame => "it is not the object that was applied",
            Self::MarkLost => "it lost the mark that it is ours",
            Self::InUse => "objects of its kind exist",
            Self::ForeignObjects => "it holds objects of others",
            Self::WantedObjects => "it holds objects that stay",
            Self::CannotTell => "not every kind can be listed",
            Self::Hook => "it is a hook now",
            Self::ApiVersionGone => "only an API version that the chart asks for is gone",
        })
    }
}

/// Why nothing is pruned.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PruneBlocked {
    /// Not all of the new set is on the target.
    #[error("nothing is removed before all of the new set is applied")]
    Incomplete,
    /// The new set is empty.
    #[error("the new set is empty; {of} objects would be deleted")]
    Empty {
        /// Number of existing objects.
        of: usize,
    },
    /// The new set is less than half as large.
    #[error("the new set has {now} objects, the previous one had {of}")]
    Shrunken {
        /// Number of objects in the new set.
        now: usize,
        /// Number of objects in the previous set.
        of: usize,
    },
}

impl PruneBlocked {
    /// Returns the reason to report.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Incomplete => Reason::Progressing,
            Self::Empty { .. } | Self::Shrunken { .. } => Reason::PruneGuard,
        }
    }

    /// Returns the error class.
    pub fn class(&self) -> ErrorClass {
        ErrorClass::Blocked
    }
}

/// Decision of a prune.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// Objects to delete, in order, if the target shows them as owned.
    pub delete: Vec<Identity>,
    /// Objects to release: only this owner's marks are removed.
    pub release: BTreeMap<Identity, KeepReason>,
    /// Released objects that pass to another owner, with its hash. They get its mark, by which it finds them even if
    /// it is being removed too.
    pub new_owners: BTreeMap<Identity, String>,
}

impl PrunePlan {
    /// Reports whether no object left the set.
    pub fn is_empty(&self) -> bool {
        self.delete.is_empty() && self.release.is_empty()
    }
}

/// Decides which objects of the inventory are deleted or released.
///
/// # Errors
/// If the set is incomplete, empty, or smaller than half of the previous one without the user's confirmation.
pub fn plan(request: &PruneRequest<'_>) -> Result<PrunePlan, PruneBlocked> {
    let gone = request.inventory.missing_from(request.desired);
    if gone.is_empty() {
        return Ok(PrunePlan::default());
    }
    if !request.complete {
        return Err(PruneBlocked::Incomplete);
    }
    if !request.allow_shrink && !request.api_version_gone {
        let (of, now) = (request.previous, request.desired.len());
        if now == 0 {
            return Err(PruneBlocked::Empty { of });
        }
        if now * 2 < of {
            return Err(PruneBlocked::Shrunken { now, of });
        }
    }
    let mut plan = PrunePlan::default();
    for identity in gone {
        match must_stay(&identity, request) {
            Some(reason) => {
                if let Some(new_owner) =
                    (request.new_owner)(&identity).filter(|_| reason == KeepReason::OtherOwner)
                {
                    plan.new_owners.insert(identity.clone(), new_owner);
                }
                plan.release.insert(identity, reason);
            }
            None => plan.delete.push(identity),
        }
    }
    order::sort_for_deletion(&mut plan.delete);
    Ok(plan)
}

fn must_stay(identity: &Identity, request: &PruneRequest<'_>) -> Option<KeepReason> {
    let created = request.inventory.get(identity).is_some_and(|entry| entry.created);
    match request.protection.guard(identity) {
        Some(Guard::Always) => return Some(KeepReason::Protected),
        Some(Guard::UnlessCreated) if !created => return Some(KeepReason::Protected),
        _ => {}
    }
    if (request.new_owner)(identity).is_some() {
        return Some(KeepReason::OtherOwner);
    }
    if request.api_version_gone {
        return Some(KeepReason::ApiVersionGone);
    }
    if holds_data(identity) {
        return Some(KeepReason::HoldsData);
    }
    if (identity.is_namespace() || identity.is_crd()) && (request.is_hook)(identity) {
        return Some(KeepReason::Hook);
    }
    if (identity.is_namespace() || identity.is_crd()) && !created {
        return Some(KeepReason::NotCreatedByUs);
    }
    None
}

/// Reports whether an object is a volume or a claim.
pub(crate) fn holds_data(identity: &Identity) -> bool {
    identity.is("", "PersistentVolumeClaim") || identity.is("", "PersistentVolume")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Entry;

    fn cm(name: &str) -> Identity {
        Identity::new("", "ConfigMap", Some("n"), name)
    }

    fn inventory(identities: &[Identity]) -> Inventory {
        identities.iter().map(|id| (id.clone(), Entry { created: true, ..Entry::default() })).collect()
    }

    fn decide(
        all: &Inventory,
        desired: &[Identity],
        change: impl Fn(&mut PruneRequest<'_>),
    ) -> Result<PrunePlan, PruneBlocked> {
        let desired: BTreeSet<Identity> = desired.iter().cloned().collect();
        let protection = Protection::of_kubernetes();
        let mut request = PruneRequest {
            inventory: all,
            desired: &desired,
            previous: all.len(),
            complete: true,
            api_version_gone: false,
            allow_shrink: false,
            new_owner: &|identity| (identity.name == "claimed").then(|| "another".to_owned()),
            is_hook: &|identity| identity.name == "hook",
            protection: &protection,
        };
        change(&mut request);
        plan(&request)
    }

    #[test]
    fn a_prune_deletes_only_objects_that_left_the_set() {
        let all = inventory(&[cm("a"), cm("b"), cm("c")]);
        let plan = decide(&all, &[cm("a"), cm("c")], |_| {}).unwrap();
        assert_eq!(plan, PrunePlan { delete: vec![cm("b")], ..PrunePlan::default() });
        assert!(
            decide(&all, &[cm("a"), cm("b"), cm("c"), cm("d")], |r| r.complete = false).unwrap().is_empty()
        );
    }

    #[test]
    fn nothing_is_deleted_because_an_api_version_is_gone() {
        let all = inventory(&[cm("a"), cm("b"), cm("c"), cm("claimed")]);
        let plan = decide(&all, &[], |request| request.api_version_gone = true).unwrap();
        assert!(plan.delete.is_empty());
        let gone = KeepReason::ApiVersionGone;
        let kept =
            [(cm("a"), gone), (cm("b"), gone), (cm("c"), gone), (cm("claimed"), KeepReason::OtherOwner)];
        assert_eq!(plan.release, kept.into());
    }

    #[test]
    fn nothing_goes_before_all_was_applied() {
        let all = inventory(&[cm("a"), cm("b")]);
        assert_eq!(decide(&all, &[cm("a")], |r| r.complete = false), Err(PruneBlocked::Incomplete));
    }

    #[test]
    fn an_empty_or_shrunken_set_needs_a_word() {
        let all = inventory(&[cm("a"), cm("b"), cm("c")]);
        assert_eq!(decide(&all, &[], |_| {}), Err(PruneBlocked::Empty { of: 3 }));
        assert_eq!(decide(&all, &[cm("a")], |_| {}), Err(PruneBlocked::Shrunken { now: 1, of: 3 }));
        assert_eq!(decide(&all, &[cm("a")], |r| r.allow_shrink = true).unwrap().delete.len(), 2);
        assert_eq!(decide(&all, &[], |r| r.allow_shrink = true).unwrap().delete.len(), 3);
    }

    #[test]
    fn a_set_of_new_names_is_not_a_smaller_one() {
        let all = inventory(&[cm("a"), cm("b"), cm("x"), cm("y")]);
        let plan = decide(&all, &[cm("x"), cm("y")], |r| r.previous = 2).unwrap();
        assert_eq!(plan.delete.len(), 2);
    }

    #[test]
    fn some_objects_are_only_given_up() {
        let namespace = Identity::new("", "Namespace", None, "mine");
        let crd = Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, "a.x.io");
        let claim = Identity::new("", "PersistentVolumeClaim", Some("n"), "c");
        let role = Identity::new("rbac.authorization.k8s.io", "ClusterRole", None, "system:mine");
        let hook = Identity::new("", "Namespace", None, "hook");
        let mut all = inventory(&[
            namespace.clone(),
            hook.clone(),
            claim.clone(),
            cm("claimed"),
            cm("a"),
            cm("b"),
            cm("c"),
            cm("d"),
        ]);
        for adopted in [&crd, &role] {
            all.insert(adopted.clone(), Entry::default());
        }
        let plan = decide(&all, &[cm("a"), cm("b"), cm("c"), cm("d"), cm("e")], |_| {}).unwrap();
        assert_eq!(plan.delete, [namespace]);
        let expected = [
            (crd, KeepReason::NotCreatedByUs),
            (claim, KeepReason::HoldsData),
            (hook, KeepReason::Hook),
            (role, KeepReason::Protected),
            (cm("claimed"), KeepReason::OtherOwner),
        ];
        assert_eq!(plan.release, expected.into());
        assert_eq!(plan.new_owners, [(cm("claimed"), "another".to_owned())].into());
    }
}
