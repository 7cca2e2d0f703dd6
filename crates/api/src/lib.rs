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

// Custom resources, one per module; `catalogue` has the kinds of the catalogue of modules.
mod catalogue;
mod helm_component;
mod kyma;
mod pause;
mod watcher;

// Parts of custom resources, their schemas and statuses.
pub mod address;
mod backoff;
pub mod component;
mod delete_proof;
pub mod hand_over;
mod schema;
mod status;
pub mod values;

// Names on hub and targets.
pub mod klm;
mod metadata;

pub use catalogue::visibility;
pub use metadata::{annotations, finalizers, labels, names, release_store};
pub use schema::{crds, limits, patterns};
pub use status::{condition, refusal};

pub use address::{AddressRefusal, AddressRules};
pub use backoff::Backoff;
pub use catalogue::module_config::{
    ConfigOverrides, ConfigRule, FleetCount, ModuleConfig, ModuleConfigSpec, ModuleConfigStatus,
    ModuleOverride, ResourceRule,
};
pub use catalogue::module_release_meta::{
    ChannelVersion, Mandatory, ModuleReleaseMeta, ModuleReleaseMetaSpec, ReleasedVersion, Rollout,
};
pub use catalogue::module_template::{
    CustomStateCheck, Icon, ModuleInfo, ModuleTemplate, ModuleTemplateSpec, Resource, TemplateComponent,
};
pub use component::{
    ComponentDependency, ComponentView, DeletionPolicy, Dependency, FreeForm, GroupKind, KindRef, Manager,
    ModuleRef, ObjectRef, ReadyView, ResourcePolicy, SecretKeyRef, TargetRef,
};
pub use delete_proof::{DeleteProof, needs_delete_proof};
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
pub use metadata::groups::{COMPONENT_GROUP, OPERATOR_GROUP};
pub use metadata::owner::{is_kyma, kyma_owner};
pub use pause::{Pause, PauseScope, PauseSpec, PauseStatus};
pub use schema::yaml_safe::yaml_safe;
pub use status::reason::{ErrorClass, OwnReason, Reason};
pub use status::refusal::Refusal;
pub use status::state::State;
pub use watcher::{Gateway, ResourceToWatch, ServiceInfo, WatchedField, Watcher, WatcherSpec, WatcherStatus};
