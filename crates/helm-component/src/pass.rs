//! What is at hand in one pass over one component, and what all passes share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kyma_api::HelmComponent;
use kyma_object_set::drift::FlapLimit;
use kyma_object_set::{Cluster, Identity, Kinds, Ownership};
use kyma_sdk::{Context, Failure};

use crate::content::{Inputs, Sources};
use crate::hub_config_maps::HubConfigMaps;
use crate::hub_secrets::HubSecrets;
use crate::memory::{Memory, Session};
use crate::plan::{Order, Predecessor, Rest};
use crate::sight::{Dependent, Sights};

/// What all passes share.
pub(crate) struct Shared {
    /// Where content comes from.
    pub sources: Sources,
    /// What the targets' watches have shown.
    pub sights: Sights,
    /// What components get of the hub's Secrets.
    pub hub_secrets: Arc<HubSecrets>,
    /// The hub's ConfigMaps, for those who take values from them.
    pub hub_config_maps: Arc<HubConfigMaps>,
    /// What is kept between passes.
    pub memory: Memory,
    /// When putting drift right counts as a fight.
    pub flap_limit: FlapLimit,
}

/// One pass.
pub(crate) struct Pass<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) context: &'a Context<HelmComponent>,
    pub(crate) dependent: Dependent,
    pub(crate) cluster: Cluster,
    pub(crate) ownership: Ownership,
    /// What the target says it serves.
    pub(crate) kinds: Arc<Kinds>,
    /// The same and the kinds of the content's own CRDs, which it serves a moment after they are applied.
    pub(crate) served: Arc<Kinds>,
    pub(crate) inputs: Result<Inputs, Failure>,
    pub(crate) order: Order,
    pub(crate) session: Session,
    pub(crate) done: Done,
}

/// What this pass did already.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) watching: bool,
    pub(crate) applied: bool,
    /// Whether CRDs were sent ahead of hooks.
    pub(crate) crds_applied: bool,
    /// What hooks wait for, or how they failed.
    pub(crate) hooks: Option<Rest>,
    /// How long the hook that is waited for may take from now on.
    pub(crate) hook_left: Option<Duration>,
    /// How many objects there were before this pass applied.
    pub(crate) before: Option<usize>,
    /// What was found in the module's place, once somebody looked.
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
    pub(crate) default_resource: Option<Failure>,
    pub(crate) removal: Option<Result<Vec<String>, Failure>>,
    pub(crate) load: Option<Failure>,
}
