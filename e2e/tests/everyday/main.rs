//! Common failures, one per row, on real control planes with the deployed operators: the right object reports a
//! helpful reason, other objects are not affected, work continues after the cause is removed, nothing is lost on the
//! target, and no secret is shown.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod access;
mod catalogue;
mod clients;
mod kinds;
mod kymas;
mod objects;
mod row;
mod sources;
mod target;
mod world;
