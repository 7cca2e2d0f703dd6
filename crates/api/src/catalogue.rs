//! Modules: their versions, channels, configuration, and the Kymas that may select them.

pub(crate) mod module_config;
pub(crate) mod module_release_meta;
pub(crate) mod module_template;
pub mod visibility;
