//! helm-component as a process of its own, under its generated roles, on real control planes.

mod account;
mod blocking;
mod chart;
mod daily;
mod depends;
mod drift;
mod fields;
mod health;
mod failures;
mod hooks;
mod images;
mod injection;
mod module;
mod patches;
mod pull_secret;
mod ranges;
mod removal;
mod request;
mod restart;
mod shelf;
mod source;
mod umbrella;
mod values;
mod verify;
mod workloads;
mod world;
