//! The driver of components: the steps of a reconcile around install and remove, in order.

mod account;
mod default_resource;
mod depends;
mod end;
mod failure_times;
mod joined_reads;
mod kinds;
mod manager_health;
mod outcome;
mod rbac;
mod reconcile;
mod state;
mod target;
mod uid_set;
mod wiring;

pub(crate) use rbac::component_table;
pub(crate) use target::{owner, target_of};
pub use wiring::{ComponentProgram, drive, run_component};
