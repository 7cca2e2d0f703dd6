//! Hooks of a chart: when they are due, how they run, and how their results are observed.

pub(crate) mod stored;
mod watches;

pub(crate) use watches::HookWatches;
