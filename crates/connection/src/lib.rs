//! Connection of an operator to the target of one Kyma, for the operators that reconcile Kymas.
//!
//! - [`access_of`] chooses the access Secret.
//! - [`open()`] verifies the identity of the target, writes the stamp if necessary, and returns a [`Connection`] whose
//!   writes are fenced by the stamp. [`open_for_cleanup`] verifies the target and writes nothing.
//! - [`verify_target`] is the verification alone; [`record_local`] records the hub as the target of a Kyma.
//! - [`ensure_namespace`] and [`ensure_crd`] install what the objects of an operator need on a target.
//! - [`advance_fencing_generation`] excludes restored copies of the hub before a change is requested.
//! - [`Sessions`] keeps the sessions of an operator with its targets.
//! - [`owned_fields`] shows whether another apply of an object would change anything.
//! - [`testing`] has a connection for unit tests of an operator.
//!
//! Operators differ only in the methods of [`Connector`].

mod connection;
mod connector;
mod crd;
mod error;
mod fencing_generation;
mod namespace;
mod open;
pub mod owned_fields;
mod sessions;
pub mod testing;
mod verification;

pub use connection::{Connection, session_lifetime};
pub use connector::{Connector, NamespaceLabels};
pub use crd::{InstalledCrd, ensure_crd};
pub use fencing_generation::advance_fencing_generation;
pub use namespace::ensure_namespace;
pub use open::{access_of, open, open_for_cleanup};
pub use sessions::{PendingSession, Sessions};
pub use verification::{TargetVerification, record_local, verify_target};
