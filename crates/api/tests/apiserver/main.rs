//! The CRDs and admission policies of this project on real apiservers, beside KLM's CRDs.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "all of this is test code")]

mod additions;
mod clusters;
mod compatibility;
mod definitions;
mod inputs;
mod kubectl_lines;
mod policies;
mod rules;
mod typed;
