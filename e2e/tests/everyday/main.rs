//! What goes wrong every day, one row each, on real control planes with the operators as they are deployed: the
//! right object says why, in words that help; nobody else is disturbed; work goes on by itself once the cause is
//! gone; nothing is lost on the target; no secret is told.

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
