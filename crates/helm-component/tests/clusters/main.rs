//! helm-component as a process of its own, under its generated roles, on real control planes.

mod account;
mod blocking;
mod chart;
mod daily;
mod depends;
mod drift;
mod history;
mod hooks;
mod images;
mod injection;
mod module;
mod patches;
mod removal;
mod request;
mod restart;
mod shelf;
mod source;
mod take_over;
mod values;
mod workloads;
mod world;
