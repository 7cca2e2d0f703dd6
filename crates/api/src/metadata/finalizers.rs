//! Finalizers.

/// On Kymas of hub and target, set by kyma-operator. KLM uses the same name.
pub const KYMA: &str = "operator.kyma-project.io/Kyma";
/// On every component: the contract's finalizer, set when the component is created, removed by its reconciler.
pub const COMPONENT: &str = "component.kyma-project.io/finalizer";
/// On a hub Kyma whose target holds a copy of the catalogue, set by release-meta-syncer.
pub const CATALOG: &str = "component.kyma-project.io/module-catalog";
/// On ModuleReleaseMetas of mandatory modules, as KLM sets it.
pub const MANDATORY_MODULE: &str = "operator.kyma-project.io/mandatory-module";
/// On Watchers, as KLM sets it.
pub const WATCHER: &str = "operator.kyma-project.io/watcher";
/// Left on Kymas by KLM before 1.21. Neither a later KLM nor an operator removes it.
pub const LEGACY_PURGE: &str = "operator.kyma-project.io/purge-finalizer";
