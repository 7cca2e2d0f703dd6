//! Runtime of this project's operators: connection to the hub, access to targets, watches, reconciles, deletions, Pauses,
//! metrics and the program around them.
//!
//! An operator implements [`Program`], and its `main` is one call of [`run_program`]. Its [`Reconciler`] calls it for each
//! object, with a [`ReconcileContext`], after events of the hub, of access Secrets ([`Access`]) and of targets
//! ([`Watches`]). [`Runtime`] has the state that its reconciles share.
//!
//! A component of another team needs the crate `kyma-sdk` alone.

#![warn(missing_docs)]

// Clusters.
mod access;
mod calls;
mod hub;
mod informer;
mod kyma;
mod watches;

// From events to reconciles.
pub mod default_resource;
mod deletion;
mod expression;
mod failure;
mod pauses;
mod reconciler;

// Processes.
mod process;
pub mod rbac;
pub mod testing;

pub use access::copied_secret::{CopyError, check_no_access, may_be_copied};
pub use access::{Access, AccessChange, Revision, is_object_name, object_name};
pub use calls::apply_status::apply_status;
pub use calls::finalizer::{add_finalizer, patch_finalizers, remove_finalizer};
pub use calls::objects::{
    create_new, find_metadata, find_object, is_absent, is_conflict, live_metadata, none_if_absent,
};
pub use calls::served::{is_crd_absent, none_if_unserved};
pub use calls::unreadable::unreadable_fields;
pub use deletion::blocking::{Blocker, Blockers, Blocking, find_blockers, served_kind, served_kinds};
pub use deletion::brake::{Brake, BrakeLimit, record_names};
pub use deletion::cause::{is_deleted_alone, namespace_and_crds_since};
pub use deletion::gate::{Authorship, DeleteError, DeleteGate, DeleteOutcome, DeleteRequest};
pub use deletion::request::{DELETION_CONFIRMATION_TIMEOUT, DeletionRequest, may_be_garbage};
pub use expression::evaluation::{contain_panic, evaluate_on_thread, run_on_thread, target_group};
pub use expression::{EvaluationCost, Expression, ExpressionError, ExpressionResult};
pub use failure::cause::{describe_cause, describe_watch_cause};
pub use failure::{Failure, verdict_failure};
pub use hub::crd_check::{CrdError, await_crds, missing_fields};
pub use hub::feed::{FeedEvent, feed};
pub use hub::resource::{HubResource, decode_or_log};
pub use hub::watch::hub_watch;
pub use hub::{
    HubError, client_config, environment_proxy, hub_addresses, hub_apply, hub_config, hub_uid, kubeconfig,
    read_kubeconfig, set_user_agent, with_hub_limits,
};
pub use informer::{OwnWrite, ResourceVersion, WriteThrough};
pub use kyma::local::{LocalTarget, is_local, local_access_failure};
pub use kyma::{KymaAccess, KymaKey, KymaLedger, LongNames, claim_of, fence_of, record_stop, target_record};
pub use pauses::{PauseChanges, PausedOperations, Pauses, is_in_force, read_paused_operations};
pub use process::admin::{AdminError, AdminServer};
pub use process::args::{AccessArgs, Args, LogFormat, Mode, TokenExchangeArgs};
pub use process::diagnosis::{Diagnoses, Diagnosis, TargetDiagnosis};
pub use process::events::Events;
pub use process::health::Health;
pub use process::metrics::{MetricDescription, Metrics, MetricsError};
pub use process::program::{NoFlags, Program, RunError, StartError, run_program, serve};
pub use process::runtime::{Operator, Process, Runtime};
pub use process::settings::{Settings, SettingsError};
pub use process::telemetry::{TelemetryError, init_telemetry};
pub use rbac::{Guard, Rule};
pub use reconciler::backoff::{delay_after, longest_delay};
pub use reconciler::context::ReconcileContext;
pub use reconciler::index::Index;
pub use reconciler::jitter::{jitter, shorten_randomly};
pub use reconciler::trigger::Trigger;
pub use reconciler::wait::Wait;
pub use reconciler::{Change, Reconciler};
pub use watches::{
    Content, Implausible, Listener, ObjectEvent, WatchLimit, WatchSpec, WatchTimes, Watches, is_plausible,
};
