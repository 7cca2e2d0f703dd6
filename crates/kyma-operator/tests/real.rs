//! kyma-operator on real control planes, with exactly the roles that its table renders.

#[path = "real/access.rs"]
mod access;
#[path = "real/choices.rs"]
mod choices;
#[path = "real/configs.rs"]
mod configs;
#[path = "real/faults.rs"]
mod faults;
#[path = "real/itself.rs"]
mod itself;
#[path = "real/kinds.rs"]
mod kinds;
#[path = "real/labels.rs"]
mod labels;
#[path = "real/landscape.rs"]
mod landscape;
#[path = "real/leftovers.rs"]
mod leftovers;
#[path = "real/lifecycle.rs"]
mod lifecycle;
#[path = "real/mandatory.rs"]
mod mandatory;
#[path = "real/mirror.rs"]
mod mirror;
#[path = "real/pull_secret.rs"]
mod pull_secret;
#[path = "real/resource_rules.rs"]
mod resource_rules;
#[path = "real/restart.rs"]
mod restart;
#[path = "real/sequences.rs"]
mod sequences;
#[path = "real/sequences_on_targets.rs"]
mod sequences_on_targets;
#[path = "real/stories.rs"]
mod stories;
#[path = "real/versions.rs"]
mod versions;
#[path = "real/way.rs"]
mod way;
#[path = "real/windows.rs"]
mod windows;
