//! API groups of the custom resources.

/// Group of the kinds for Kyma's users: Kyma, ModuleTemplate, ModuleReleaseMeta, Watcher, ModuleConfig, Pause.
pub const OPERATOR_GROUP: &str = "operator.kyma-project.io";

/// Group of this project's components: HelmComponent.
pub const COMPONENT_GROUP: &str = "component.kyma-project.io";
