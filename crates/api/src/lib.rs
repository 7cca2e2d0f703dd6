//! The Kubernetes API of the Kyma micro-operators.
//!
//! Definitions that all crates share: custom resources, names on clusters (labels, annotations, finalizers, object
//! names), condition types, reasons with their error classes, and the contract between kyma-operator and component
//! reconcilers. No IO, no client, no async.

#![warn(missing_docs)]
#![allow(
    clippy::doc_markdown,
    reason = "fields' docs are what kubectl explain prints, where backticks are noise"
)]
#![allow(clippy::duplicated_attributes, reason = "printer columns of one type are no duplicates")]

// Custom resources, one per module.
mod helm_component;
mod kyma;
mod module_config;
mod module_release_meta;
mod module_template;
mod owner;
mod pause;
mod watcher;

// Parts of custom resources and their statuses.
pub mod address;
mod backoff;
pub mod component;
pub mod condition;
pub mod crds;
mod delete_proof;
pub mod hand_over;
pub mod limits;
pub mod patterns;
mod reason;
pub mod refusal;
mod schemas;
mod state;
pub mod values;
pub mod visibility;
mod yaml_safe;

// Names on hub and targets.
pub mod annotations;
pub mod finalizers;
mod groups;
pub mod klm;
pub mod labels;
pub mod names;
pub mod release_store;

pub use address::{AddressRefusal, AddressRules};
pub use backoff::Backoff;
pub use component::{
    ComponentDependency, ComponentView, DeletionPolicy, Dependency, FreeForm, GroupKind, KindRef, Manager,
    ModuleRef, ObjectRef, ReadyView, ResourcePolicy, SecretKeyRef, TargetRef,
};
pub use delete_proof::{DeleteProof, needs_delete_proof};
pub use groups::{COMPONENT_GROUP, OPERATOR_GROUP};
pub use helm_component::{
    Adopt, Adoption, ChartSource, CommonMetadata, CrdPolicy, CreatedResource, Digests, Drift, DriftIgnore,
    DriftMode, FailedRevision, Health, HealthExpression, HelmComponent, HelmComponentSpec,
    HelmComponentStatus, History, HookPhase, HookPolicy, Hooks, InstalledValues, InventoryEntry,
    InventoryGroup, InventoryItem, ManifestSource, ObjectSelector, OcmSource, PackedError, Patch,
    PruneBaseline, Release, ReleaseRecord, ReleaseRevision, ResolvedVersion, Rollback, RollbackMode,
    RollbackTarget, SecretRef, SignerIdentity, Source, Timeouts, ValuesFrom, ValuesFromKind, Verify,
};
pub use kyma::{
    Kyma, KymaModule, KymaSpec, KymaStatus, LastOperation, MandatoryModule, ModuleStatus, PartialMeta,
    PendingUpgrade, Selection, TargetIdentity, TrackedObject, Upgrade, UpgradeMode,
};
pub use module_config::{
    ConfigOverrides, ConfigRule, FleetCount, ModuleConfig, ModuleConfigSpec, ModuleConfigStatus,
    ModuleOverride, ResourceRule,
};
pub use module_release_meta::{
    ChannelVersion, Mandatory, ModuleReleaseMeta, ModuleReleaseMetaSpec, ReleasedVersion, Rollout,
};
pub use module_template::{
    CustomStateCheck, Icon, ModuleInfo, ModuleTemplate, ModuleTemplateSpec, Resource, TemplateComponent,
};
pub use owner::{is_kyma, kyma_owner};
pub use pause::{Pause, PauseScope, PauseSpec, PauseStatus};
pub use reason::{ErrorClass, OwnReason, Reason};
pub use refusal::Refusal;
pub use state::State;
pub use watcher::{Gateway, ResourceToWatch, ServiceInfo, WatchedField, Watcher, WatcherSpec, WatcherStatus};
pub use yaml_safe::yaml_safe;
