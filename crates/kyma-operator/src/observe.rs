//! Reads all inputs of the decisions about one Kyma.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::ListParams;
use kyma_api::{DeletionPolicy, Kyma, KymaStatus, Selection as Choice, TargetRef, names};
use kyma_connection::{Connection, access_of};
use kyma_sdk::{Failure, KymaKey, PausedOperations, ReconcileContext};
use serde_json::{Value, json};

use crate::apply::{self, Authority};
use crate::component::ComponentView;
use crate::config::{self, ConfigUids};
use crate::error::Error;
use crate::feeds::accept_proven_deletions;
use crate::local;
use crate::maintenance::SkipSource;
use crate::resolve::InstalledModule;
use crate::selection::{self, Selection, SelectionError};
use crate::session;
use crate::state::State;
use crate::target_kyma::{self, Remote, TargetKyma};

/// Inputs of the decisions.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) kyma: Arc<Kyma>,
    pub(crate) key: KymaKey,
    pub(crate) uid: String,
    /// The session with the target; `None` if the target is the hub.
    pub(crate) remote: Option<RemoteSide>,
    /// The user's choice as stored on the hub; `None` if no valid one was ever read.
    pub(crate) choice: Option<Choice>,
    /// The selection in force. If the present one is invalid, this is the last valid one, with the reason.
    pub(crate) selection: Option<Selection>,
    /// Source of the setting to skip maintenance windows.
    pub(crate) skips_windows: Option<SkipSource>,
    pub(crate) refused: Option<SelectionError>,
    /// Components by module.
    pub(crate) views: BTreeMap<String, ComponentView>,
    /// Recorded ModuleConfigs that are missing and stay in force, by module.
    pub(crate) missing_configs: BTreeMap<String, ConfigUids>,
}

/// State of the target for a Kyma.
#[derive(Debug)]
pub(crate) struct RemoteSide {
    pub(crate) session: Arc<Connection>,
    pub(crate) kyma: TargetKyma,
    pub(crate) reference: TargetRef,
}

impl Observation {
    /// Returns the shard that handles the target; 0 for the hub itself.
    pub(crate) fn shard(&self) -> u8 {
        self.remote
            .as_ref()
            .map_or(0, |remote| names::shard(&self.key.namespace, &remote.session.access.name))
    }

    /// Returns the authority for deletion requests.
    pub(crate) fn authority<'a>(&'a self, paused_operations: &'a PausedOperations) -> Authority<'a> {
        let generation = self.kyma.metadata.generation.unwrap_or(0);
        Authority { kyma: &self.key, uid: &self.uid, generation, paused_operations }
    }

    /// Returns the installed modules in the form that decisions use.
    pub(crate) fn installed(&self) -> BTreeMap<String, InstalledModule> {
        self.views.iter().map(|(module, view)| (module.clone(), installed(view))).collect()
    }
}

fn installed(view: &ComponentView) -> InstalledModule {
    InstalledModule {
        group: view.kind.group().to_owned(),
        kind: view.kind.kind.clone(),
        desired_version: view.desired_version.clone(),
        running: view.running.clone(),
        channel: view.channel.clone(),
        mandatory: view.mandatory,
        template: view.template.clone(),
        is_manual: view.is_manual,
        leaving: view.terminating && view.deletion_policy == DeletionPolicy::Delete,
    }
}

/// Reads the inputs. Returns `None` while the target's first list is pending; its arrival requeues the Kyma.
pub(crate) async fn observe(
    state: &State,
    kyma: &Arc<Kyma>,
    context: &ReconcileContext,
) -> Result<Option<Observation>, Failure> {
    let key = KymaKey::of(kyma);
    let (kyma, remote) = if local::is_local(state, kyma)? {
        let recorded = kyma_connection::record_local(&state.runtime, kyma).await?;
        (recorded.map_or_else(|| Arc::clone(kyma), |recorded| state.record_write(recorded)), None)
    } else {
        let Some(remote) = remote_side(state, kyma, context).await? else { return Ok(None) };
        (state.own_writes().latest(Arc::clone(kyma)), Some(remote))
    };
    let spec = match &remote {
        Some(remote) => remote.kyma.spec.clone(),
        None => json!(kyma.spec),
    };
    let recorded_selection = kyma.status.as_ref().and_then(|status| status.selection.clone());
    let (selection, refused, choice) = match Selection::read(&spec) {
        Ok(read) => (Some(read), None, Some(selection::choice(&spec, recorded_selection.as_ref()))),
        Err(error) => {
            let last = recorded_selection.as_ref().and_then(|last| Selection::read(&json!(last)).ok());
            (last, Some(error), recorded_selection)
        }
    };
    let skips_windows = match kyma.spec.skip_maintenance_windows {
        Some(true) => Some(SkipSource::OnHub),
        _ => selection::skips_windows(&spec).then_some(SkipSource::OnTarget),
    };
    let views = views(state, &key, kyma.status.as_ref());
    Ok(Some(Observation {
        skips_windows,
        uid: kyma.uid().unwrap_or_default(),
        missing_configs: missing_configs(state, &kyma, &views).await?,
        views,
        key,
        kyma,
        remote,
        choice,
        selection,
        refused,
    }))
}

async fn missing_configs(
    state: &State,
    kyma: &Kyma,
    views: &BTreeMap<String, ComponentView>,
) -> Result<BTreeMap<String, ConfigUids>, Failure> {
    let created = kyma.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let mut missing = BTreeMap::new();
    for (module, recorded) in config::records_of_kyma(kyma.status.as_ref(), views) {
        let left = accept_proven_deletions(state, &recorded, created).await?;
        if !left.is_empty() {
            missing.insert(module, left);
        }
    }
    Ok(missing)
}

/// Returns the components of a Kyma by module. Of two for one module, the one that is not being removed counts. A
/// component without its mandatory label is mandatory if the Kyma's status records it.
pub(crate) fn views(
    state: &State,
    key: &KymaKey,
    status: Option<&KymaStatus>,
) -> BTreeMap<String, ComponentView> {
    let is_recorded = |module: &str| {
        let mut known = status.iter().flat_map(|status| status.mandatory_modules.iter().flatten());
        known.any(|known| known.name == module)
    };
    let mut found: BTreeMap<String, ComponentView> = BTreeMap::new();
    for mut view in state.components().of(key) {
        view.mandatory |= is_recorded(&view.module);
        match found.get(&view.module) {
            Some(other) if !other.terminating => {}
            _ => drop(found.insert(view.module.clone(), view)),
        }
    }
    found
}

async fn remote_side(
    state: &State,
    kyma: &Arc<Kyma>,
    context: &ReconcileContext,
) -> Result<Option<RemoteSide>, Failure> {
    let access = access_of(state, kyma)?;
    let session = session::of(state, kyma, access, context).await?;
    state.set_blocked(&KymaKey::of(kyma), false);
    let known = state.target_kyma(&KymaKey::of(kyma));
    let remote = match known {
        None => return Ok(None),
        Some(Remote::Present(remote)) => *remote,
        Some(Remote::Absent) => {
            let recorded_selection = kyma.status.as_ref().and_then(|status| status.selection.clone());
            let choice = match recorded_selection {
                Some(recorded_selection) => recorded_selection,
                None => recover_choice(state, kyma).await?,
            };
            target_kyma::create_target_kyma(state, kyma, &session, &choice).await?
        }
    };
    let reference = TargetRef { kubeconfig_secret_ref: Some(session.access.clone()) };
    Ok(Some(RemoteSide { session, kyma: remote, reference }))
}

/// Returns the choice of a Kyma when hub and target have none on record: the hub's initial set, or the installed
/// modules if there are any.
async fn recover_choice(state: &State, kyma: &Kyma) -> Result<Choice, Failure> {
    let initial = selection::choice(&json!(kyma.spec), None);
    let components = state.components().of(&KymaKey::of(kyma));
    let is_chosen = |view: &ComponentView| !view.mandatory && view.deletion_policy == DeletionPolicy::Orphan;
    let mut specs: Vec<Value> = Vec::new();
    for view in components.into_iter().filter(is_chosen) {
        // The role need not permit `get` on components.
        let only = ListParams::default().fields(&format!("metadata.name={}", view.name));
        let live = apply::api_of(state, &view)?.list(&only).await;
        let failed = |source| Error::ReadComponent { component: apply::named(&view), source };
        let live = live.map_err(failed)?.items.into_iter();
        specs.extend(live.filter_map(|component| component.data.get("spec").cloned()));
    }
    if specs.is_empty() {
        return Ok(initial);
    }
    tracing::warn!(kyma = %KymaKey::of(kyma), modules = specs.len(), "no selection is recorded: every module with a component is selected");
    Ok(selection::recover_selection(&initial, &specs))
}
