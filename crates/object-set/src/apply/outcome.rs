//! Outcomes of the objects of a set.

use std::collections::BTreeSet;
use std::fmt;

use kyma_api::{ErrorClass, Reason};
use thiserror::Error;

use super::adoption::system::System;
use crate::error::{CallError, Failure};
use crate::inventory::{Entry, Inventory};
use crate::managed_fields::ignored_fields::PartOfWhole;
use crate::object::{Gvk, Identity};
use crate::set::Warning;

/// Outcome of one object.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The object already had the desired state; nothing was sent.
    Unchanged,
    /// The object was sent and accepted.
    Applied {
        /// Whether it did not exist before.
        created: bool,
        /// New resourceVersion of the object, as the server returned it; `None` if nothing was sent.
        resource_version: Option<String>,
    },
    /// The object was adopted with its own content, which differs from the set.
    AsIs {
        /// New resourceVersion of the object, as the server returned it.
        resource_version: Option<String>,
    },
    /// Another system applied it, and it was left unchanged.
    Foreign(System),
    /// The target does not serve its kind; it is applied once the kind is served.
    Missing(Gvk),
    /// The object cannot be applied yet; the text names the cause. A watch event of the object ends the wait, or the
    /// next run after `DEADLINE_REACHED`.
    Waiting(&'static str),
    /// The object was not tried, since an object of an earlier stage was refused.
    Skipped,
    /// The target or a rule of this crate refuses it.
    Refused(Refusal),
}

/// Reason of [`Outcome::Waiting`] for objects that were not sent before the deadline; the next run sends them.
pub const DEADLINE_REACHED: &str = "the deadline passed before it was sent";

/// Outcome of an object and its inventory entry, or a refusal.
pub(super) type ObjectResult = Result<(Outcome, Option<Entry>), Refusal>;

/// Reason for the refusal of an object.
#[derive(Clone, Debug, Error)]
pub enum Refusal {
    /// The call failed.
    #[error(transparent)]
    Call(Box<CallError>),
    /// Another owner owns the object.
    #[error("{object} belongs to {owner}")]
    OwnedByOther {
        /// The refused object.
        object: Identity,
        /// Hash of the owner, or a general text if the object has no owner label.
        owner: String,
    },
    /// No set may change the object.
    #[error("{object} is protected")]
    Protected {
        /// The refused object.
        object: Identity,
    },
    /// The object exceeds the size limit.
    #[error("{object} is {bytes} bytes large, more than {limit}")]
    TooLarge {
        /// The refused object.
        object: Identity,
        /// Size of the object as JSON.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
    /// An ignored field of the object cannot have its own owner.
    #[error("{object}: {part}")]
    PartOfWhole {
        /// The refused object.
        object: Identity,
        /// The field, and the whole that it is part of.
        part: Box<PartOfWhole>,
    },
    /// Objects are stored in API versions of a CRD that the new one does not serve.
    #[error(
        "{object}: objects are stored in {}, which the new one does not serve; rewrite them in another \
         version, then remove it from the CRD's status.storedVersions",
        .versions.join(", ")
    )]
    VersionInUse {
        /// The refused CRD.
        object: Identity,
        /// The API versions.
        versions: Vec<String>,
    },
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        Self::Call(Box::new(error))
    }
}

impl Refusal {
    /// Returns the error class.
    pub fn class(&self) -> ErrorClass {
        self.reason().class().unwrap_or(ErrorClass::Transient)
    }

    /// Reports whether the target may have accepted the object although the call failed, so that its live state is
    /// unknown.
    fn may_be_sent(&self) -> bool {
        let is_no_answer = |failure: &Failure| {
            matches!(failure, Failure::NoAnswer | Failure::Unreadable | Failure::Server(_))
        };
        matches!(self, Self::Call(error) if is_no_answer(&error.failure))
    }

    fn is_failed_webhook(&self) -> bool {
        matches!(self, Self::Call(error) if matches!(error.failure, Failure::WebhookFailed(_)))
    }

    /// Returns the stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Call(error) => error.reason(),
            Self::OwnedByOther { .. } => Reason::OwnedByOther,
            Self::Protected { .. } => Reason::Protected,
            Self::TooLarge { .. } => Reason::ObjectTooLarge,
            Self::PartOfWhole { .. } => Reason::SpecInvalid,
            Self::VersionInUse { .. } => Reason::CrdVersionInUse,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchanged => f.write_str("unchanged"),
            Self::Applied { created: true, .. } => f.write_str("created"),
            Self::Applied { created: false, .. } => f.write_str("applied"),
            Self::AsIs { .. } => f.write_str("adopted unchanged"),
            Self::Foreign(system) => write!(f, "{system} applied it"),
            Self::Missing(gvk) => write!(f, "the target does not serve {gvk}"),
            Self::Waiting(what) => write!(f, "waits: {what}"),
            Self::Skipped => f.write_str("skipped after an earlier failure"),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

/// Result of applying a set.
#[derive(Clone, Debug)]
pub struct ApplyReport {
    /// Each object of the set, in the order in which they were tried.
    pub outcomes: Vec<(Identity, Outcome)>,
    /// The owned objects on the target: those recorded before and those applied now. Objects that left the set stay
    /// in it until they are pruned.
    pub inventory: Inventory,
    /// Warnings about corrections before sending.
    pub warnings: Vec<Warning>,
}

impl ApplyReport {
    pub(super) fn starting_from(recorded: &Inventory) -> Self {
        Self { outcomes: Vec::new(), inventory: recorded.clone(), warnings: Vec::new() }
    }

    /// Adds the results of a stage. Returns whether a CRD among them was sent.
    pub(super) fn add(&mut self, found: Vec<(Identity, Outcome, Option<Entry>)>) -> bool {
        let mut crds_changed = false;
        for (identity, outcome, entry) in found {
            crds_changed |= identity.is_crd() && matches!(outcome, Outcome::Applied { .. });
            if let Some(entry) = entry {
                self.inventory.insert(identity.clone(), entry);
            }
            if matches!(outcome, Outcome::Refused(Refusal::OwnedByOther { .. })) {
                self.inventory.remove(&identity);
            }
            if matches!(&outcome, Outcome::Refused(refusal) if refusal.may_be_sent())
                && let Some(entry) = self.inventory.get(&identity)
            {
                self.inventory.insert(identity.clone(), Entry { hash: String::new(), ..entry.clone() });
            }
            self.outcomes.push((identity, outcome));
        }
        crds_changed
    }

    pub(super) fn skip(&mut self, objects: impl Iterator<Item = Identity>) {
        self.outcomes.extend(objects.map(|object| (object, Outcome::Skipped)));
    }

    /// Reports whether an object was refused, so that later stages are not sent. An unreachable webhook does not
    /// count: its server may be a workload of the same set.
    pub(super) fn is_held_up(&self) -> bool {
        self.errors().any(|(_, refusal)| !refusal.is_failed_webhook())
    }

    /// Marks CRDs that are not established in time as waiting. The outcome of CRDs that were not sent stays.
    pub(super) fn wait_for_crds(&mut self, late: impl Iterator<Item = Identity>) {
        let late: BTreeSet<Identity> = late.collect();
        let is_there = |outcome: &Outcome| {
            matches!(outcome, Outcome::Unchanged | Outcome::Applied { .. } | Outcome::AsIs { .. })
        };
        for (identity, outcome) in &mut self.outcomes {
            if late.contains(identity) && is_there(outcome) {
                *outcome = Outcome::Waiting("the CRD is not established yet");
            }
        }
    }

    /// Reports whether every object has its desired state on the target: the condition for pruning.
    pub fn is_complete(&self) -> bool {
        self.outcomes
            .iter()
            .all(|(_, o)| matches!(o, Outcome::Unchanged | Outcome::Applied { .. } | Outcome::AsIs { .. }))
    }

    /// Returns the systems whose objects were left unchanged.
    pub fn foreign(&self) -> BTreeSet<System> {
        let system = |outcome: &Outcome| match outcome {
            Outcome::Foreign(system) => Some(*system),
            _ => None,
        };
        self.outcomes.iter().filter_map(|(_, outcome)| system(outcome)).collect()
    }

    /// Returns the objects that were sent and accepted.
    pub fn changed(&self) -> impl Iterator<Item = &Identity> {
        self.outcomes
            .iter()
            .filter(|(_, o)| matches!(o, Outcome::Applied { .. }))
            .map(|(identity, _)| identity)
    }

    /// Returns the kinds that objects wait for and the target lacks.
    pub fn missing(&self) -> BTreeSet<Gvk> {
        let missing = |outcome: &Outcome| match outcome {
            Outcome::Missing(gvk) => Some(gvk.clone()),
            _ => None,
        };
        self.outcomes.iter().filter_map(|(_, outcome)| missing(outcome)).collect()
    }

    /// Returns the objects that cannot be applied yet, each with the cause.
    pub fn waiting(&self) -> impl Iterator<Item = (&Identity, &'static str)> {
        self.outcomes.iter().filter_map(|(identity, outcome)| match outcome {
            Outcome::Waiting(what) => Some((identity, *what)),
            _ => None,
        })
    }

    /// Reports whether objects were not sent before the deadline.
    pub fn ran_out_of_time(&self) -> bool {
        self.waiting().any(|(_, what)| what == DEADLINE_REACHED)
    }

    /// Returns the refused objects.
    pub fn errors(&self) -> impl Iterator<Item = (&Identity, &Refusal)> {
        self.outcomes.iter().filter_map(|(identity, outcome)| match outcome {
            Outcome::Refused(refusal) => Some((identity, refusal)),
            _ => None,
        })
    }

    /// Returns the identities of the set with defaulted namespaces.
    pub fn identities(&self) -> BTreeSet<Identity> {
        self.outcomes.iter().map(|(identity, _)| identity.clone()).collect()
    }
}
