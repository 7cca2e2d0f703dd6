//! Applies a set of objects to a cluster. Knows Kubernetes, Helm's and kubectl's conventions, and nothing of Kyma.
//!
//! [`ObjectSet::parse`] parses text as Helm and kubectl do, and [`Patches`] change the objects. [`apply`] sends them
//! in stages, by server-side apply under one field manager, and records them in an [`Inventory`]. Afterwards
//! [`prune`] plans which of them are removed and [`remove`] deletes those, step by step; [`drift`] detects changes
//! from metadata.

// Objects and their sources.
mod normalise;
mod object;
mod parse;
pub mod patch;
mod set;

// The target.
mod cluster;
mod error;

// Changes of the target.
pub mod apply;
pub mod remove;
pub mod sweep;

// Decisions: pure.
pub mod inventory;
mod managed_fields;
pub mod order;
mod ownership;
pub mod prune;

pub use apply::{
    AdoptionPolicy, ApplyOptions, ApplyReport, DEADLINE_REACHED, ForeignObjectPolicy, NoObservations,
    Observations, Outcome, Refusal, System, apply, claim, helm_release, move_fields,
};
pub use cluster::discovery::{self, Discovery, Kinds, Mapping};
pub use cluster::dry_run::{DryRun, NoDryRunReason, ObjectDiff, content};
pub use cluster::{Cluster, Deleter, Deletion, ObjectLocks};
pub use error::{Action, CallError, Failure};
pub use inventory::{Entry, Inventory};
pub use managed_fields::drift::{self, ObservedObject};
pub use managed_fields::ignored_fields::{
    IgnoreRuleError, IgnoredFields, PartOfWhole, PathProblem, is_autoscaler,
};
pub use normalise::normalise;
pub use object::{GroupKind, Gvk, Identity, Object, ObjectError};
pub use ownership::{
    CREATED_BY, Guard, OWNER_LABEL, Ownership, Protection, SET_VERSION, SHARE_PREFIX, SHARED,
};
pub use parse::{Limits, ParseError, parse_map};
pub use patch::{PatchError, Patches};
pub use prune::{KeepReason, PruneBlocked, PrunePlan, PruneRequest};
pub use remove::{Removal, uninstall};
pub use set::{ObjectSet, Warning};
