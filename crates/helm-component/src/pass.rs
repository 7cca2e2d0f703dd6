//! State of one reconcile of a component, and state that all reconciles share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kyma_api::HelmComponent;
use kyma_object_set::drift::FlapLimit;
use kyma_object_set::{Cluster, Entry, Identity, Kinds, Ownership};
use kyma_sdk::{Context, Failure};

use crate::claims::Claims;
use crate::content::{Inputs, Sources};
use crate::expressions::Rules;
use crate::hand_overs::HandOvers;
use crate::hub_config_maps::HubConfigMaps;
use crate::hub_secrets::HubSecrets;
use crate::memory::{Memory, Session};
use crate::namespaces::Namespaces;
use crate::outcomes::Outcomes;
use crate::owner_waits::OwnerWaits;
use crate::plan::{Order, Predecessor, Rest};
use crate::release::{self, Release};
use crate::release_records::ReleaseRecords;
use crate::searches::Searches;
use crate::sight::{Dependent, Sights};

/// State that all reconciles share.
pub(crate) struct Shared {
    /// Where content comes from.
    pub sources: Sources,
    /// Objects on targets as watches show them.
    pub sights: Sights,
    /// Namespaces of targets whose end components wait for.
    pub namespaces: Namespaces,
    /// Helm's records of releases in namespaces of targets.
    pub release_records: Arc<ReleaseRecords>,
    /// Results of hooks on targets.
    pub outcomes: Outcomes,
    /// Secrets of the hub that components use.
    pub hub_secrets: Arc<HubSecrets>,
    /// The hub's ConfigMaps, for those who take values from them.
    pub hub_config_maps: Arc<HubConfigMaps>,
    /// Objects that components want and others have.
    pub claims: Claims,
    /// Searches for objects of components, shared by concurrent reconciles.
    pub searches: Searches,
    /// Components that wait until others release an object.
    pub owner_waits: OwnerWaits,
    /// Objects that components got from others and have not dealt with.
    pub hand_overs: HandOvers,
    /// State that is kept between reconciles.
    pub memory: Memory,
    /// When putting drift right counts as a fight.
    pub flap_limit: FlapLimit,
    /// How long an object has to say that it failed before its component is unhealthy.
    pub unhealthy_after: Duration,
}

/// One reconcile of a component.
pub(crate) struct Pass<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) context: &'a Context<HelmComponent>,
    pub(crate) dependent: Dependent,
    pub(crate) cluster: Cluster,
    pub(crate) ownership: Ownership,
    /// Kinds that the target serves.
    pub(crate) kinds: Arc<Kinds>,
    /// The same and the kinds of the content's own CRDs, which it serves a moment after they are applied.
    pub(crate) served: Arc<Kinds>,
    pub(crate) inputs: Result<Inputs, Failure>,
    /// The component's own rules of health.
    pub(crate) rules: Result<Arc<Rules>, Failure>,
    pub(crate) order: Order,
    pub(crate) session: Session,
    /// Objects that other components handed over to this one and that it has not processed.
    pub(crate) handed: BTreeMap<Identity, Entry>,
    pub(crate) done: Done,
    /// When it began.
    pub(crate) begun: Instant,
    /// Whether what failed is tried again in this pass.
    pub(crate) retried: bool,
}

impl Pass<'_> {
    /// Name and namespace of the release, which need no values.
    pub(crate) fn release(&self) -> Release {
        release::of(
            &self.dependent.name,
            &self.context.resource.spec,
            self.context.resource.status.as_ref(),
            &self.context.settings.target_namespace,
        )
    }

    /// Returns the release name for the status, if it was shortened with a hash.
    pub(crate) fn recorded_release_name(&self) -> Option<String> {
        let release = self.release();
        let name = release.shortened_name(&self.dependent.name, &self.context.resource.spec)?;
        let without_hash = self.context.resource.status.as_ref().is_some_and(|status| {
            release::of(&self.dependent.name, &self.context.resource.spec, None, "").name != name
                && status.release_name.is_none()
        });
        (!without_hash).then(|| name.to_owned())
    }
}

/// Steps that this reconcile completed.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each with its own source")]
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) watching: bool,
    pub(crate) applied: bool,
    /// Whether CRDs were sent ahead of hooks.
    pub(crate) crds_applied: bool,
    /// Cause of the wait for hooks, or their failure.
    pub(crate) hooks: Option<Rest>,
    /// How long the hook that is waited for may take from now on.
    pub(crate) hook_left: Option<Duration>,
    /// Previous installation of the module, once observed.
    pub(crate) predecessor: Option<Predecessor>,
    /// Why the release could not be recorded.
    pub(crate) history: Option<Failure>,
    /// Whether that was tried.
    pub(crate) history_tried: bool,
    /// Whether Helm's record of a release was looked for.
    pub(crate) release_seen: bool,
    pub(crate) faults: BTreeMap<Identity, Failure>,
    pub(crate) waiting: BTreeMap<Identity, String>,
    pub(crate) kept: BTreeSet<Identity>,
    pub(crate) pruned: Option<Result<(), Failure>>,
    /// Whether something of what was to go is still on its way, or waits for that.
    pub(crate) pruning: bool,
    pub(crate) default_resource: Option<Failure>,
    /// Whether the record of the default custom resource was compared with the target.
    pub(crate) default_confirmed: bool,
    pub(crate) removal: Option<Result<Vec<String>, Failure>>,
    pub(crate) load: Option<Failure>,
    /// Whether objects were read that others' rules were the last to judge.
    pub(crate) judged: bool,
    /// Whether it was looked at what holds objects up.
    pub(crate) explained: bool,
    /// Namespaces of the target of which it told whether they are being deleted.
    pub(crate) looked_at: BTreeSet<String>,
    /// Whether keeping what is Ready succeeded, once it was tried.
    pub(crate) keep: Option<Result<(), Failure>>,
    /// What the chart's tests wait for, or why they could not go on, once they were looked at.
    pub(crate) tests: Option<Result<Option<String>, Failure>>,
}
