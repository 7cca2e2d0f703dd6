//! Conformance tests of the component contract, for the tests of every team's component. Not used in production.
//!
//! [`check_tables`] needs no cluster. [`check_behaviour`] runs the component on two real control planes as the users of
//! its [`ConformanceSetup`]. If these have exactly the roles of the component's table, a missing rule is a violation.
//! [`TestOperator`] runs a component for tests of its own behaviour.
//!
//! [`Context::unconnected`](crate::Context::unconnected) is for unit tests of the steps: it needs neither a cluster nor a
//! network.

mod behaviour;
mod tables;
mod test_operator;
mod unconnected;

pub use behaviour::{ConformanceSetup, check_behaviour};
pub use tables::check_tables;
pub use test_operator::TestOperator;
