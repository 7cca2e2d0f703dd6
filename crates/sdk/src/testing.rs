//! Contract conformance: whether a component behaves as kyma-operator and people count on. For the tests of any
//! team's component; nothing in here runs in production.
//!
//! [`check_tables`] needs no cluster. [`check_behaviour`] runs the component on two real control planes, under the
//! users that it is given: with exactly the roles of its table, a rule that is missing shows as a violation.
//!
//! [`unconnected_runtime`] is for unit tests of an operator: it needs neither a cluster nor a network.

mod behaviour;
mod tables;
mod unconnected;

pub use behaviour::{ConformanceSetup, check_behaviour};
pub use tables::check_tables;
pub use unconnected::unconnected_runtime;

/// One way in which a component falls short, for people.
pub type Violation = String;
