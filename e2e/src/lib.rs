//! End-to-end tests and benchmarks of the deployed operators on real control planes.

pub mod bench;
pub mod catalogue;
pub mod demo;
pub mod fleet;
pub mod helm;
pub mod inputs;
pub mod landscape;
pub mod neighbourhood;
pub mod net;
pub mod objects;
pub mod outputs;
pub mod permissions;
pub mod remains;
pub mod resident;
pub mod snapshot;
pub mod wait;
