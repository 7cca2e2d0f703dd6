//! Inputs of an apply.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kyma_api::ObjectSelector;

use crate::managed_fields::drift::ObservedObject;
use crate::managed_fields::ignored_fields::IgnoredFields;
use crate::object::Identity;
use crate::ownership::{Ownership, Protection};

/// Policy for the adoption of an object that exists and that this owner has not applied before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AdoptionPolicy {
    /// Adopt only objects that already carry this owner's label.
    Never,
    /// Adopt every object, whichever manager wrote it, unless an owner holds it that is not proven to be gone.
    #[default]
    Unowned,
    /// Adopt every object.
    Always,
}

/// How to treat adoptable objects that another system applied. Namespaces and CRDs, which may have several owners,
/// are always applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ForeignObjectPolicy {
    /// Apply them as the set defines them.
    #[default]
    Apply,
    /// Leave them unchanged and report them ([`crate::Outcome::Foreign`]).
    Report,
    /// Adopt them; those that differ from the set keep their content ([`crate::Outcome::AsIs`]).
    KeepContent,
}

/// Options of an apply.
#[derive(Clone, Copy)]
pub struct ApplyOptions<'a> {
    /// Owner and field manager.
    pub ownership: &'a Ownership,
    /// Whether to adopt existing objects.
    pub adopt: AdoptionPolicy,
    /// Reports whether the owner with that hash still exists, as far as this operator serves it. [`AdoptionPolicy::Unowned`]
    /// adopts objects of owners that do not exist if this operator's field manager marked them, and leaves those that
    /// other operators marked.
    pub owner_is_live: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether unknown and duplicate fields are errors (`fieldValidation=Strict`) or ignored.
    pub strict: bool,
    /// Whether the same set was applied before. It then differs only in random values, and values on the target that
    /// no other manager changed stay.
    pub repair: bool,
    /// Namespace of namespaced objects that name none.
    pub namespace: &'a str,
    /// Maximum number of concurrent requests; 8 is a good value.
    pub parallel: usize,
    /// Objects that no set may change.
    pub protection: &'a Protection,
    /// Field managers whose fields move to the operator's when an object is adopted, besides those of kubectl, Helm,
    /// Flux and Argo CD.
    pub take_over: &'a [&'a str],
    /// How to treat objects of other systems.
    pub foreign: ForeignObjectPolicy,
    /// Fields that other managers may change once the object exists.
    pub ignored_fields: &'a IgnoredFields,
    /// CRDs that are created if missing and never updated.
    pub made_once: &'a BTreeSet<Identity>,
    /// Objects that are deleted and created again if an immutable field changes. A selector without kind never
    /// matches a Namespace, CRD, volume or claim.
    pub recreate: &'a [ObjectSelector],
    /// Whether objects without an inventory entry most likely do not exist, as in a first apply. They are then sent
    /// without a GET, by one request that can only create. If the name is taken, the object is read and handled as
    /// usual. Dry runs, Namespaces and CRDs always read first.
    pub are_new: bool,
    /// Deadline: objects that were not sent by then are [`crate::Outcome::Waiting`] for
    /// [`crate::DEADLINE_REACHED`]. `None`: no
    /// deadline.
    pub until: Option<Instant>,
}

/// Objects on the target as a watch shows them.
pub trait Observations: Sync {
    /// Returns the object as the watch last showed it. `None` does not prove that it is absent.
    fn get(&self, object: &Identity) -> Option<ObservedObject>;
}

/// Observations without a watch: each object is read from the target.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObservations;

impl Observations for NoObservations {
    fn get(&self, _: &Identity) -> Option<ObservedObject> {
        None
    }
}

impl Observations for BTreeMap<Identity, ObservedObject> {
    fn get(&self, object: &Identity) -> Option<ObservedObject> {
        BTreeMap::get(self, object).cloned()
    }
}
