//! Reads all inputs of the decisions about one Kyma.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use kyma_api::{DeletionPolicy, Kyma, KymaStatus, Selection as Choice, names};
use kyma_controller::{Failure, KymaKey, PausedOperations};
use serde_json::json;

use crate::apply::Authority;
use crate::decision::maintenance::SkipSource;
use crate::decision::resolve::InstalledModule;
use crate::decision::selection::{self, Selection, SelectionError};
use crate::hub::component::ComponentView;
use crate::hub::config::{self, ConfigUids};
use crate::hub::feeds::accept_proven_deletions;
use crate::prepare::{Preparation, RemoteSide};
use crate::state::State;

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

/// Reads the inputs of the decisions about a prepared Kyma.
pub(crate) async fn observe(state: &State, preparation: Preparation) -> Result<Observation, Failure> {
    let Preparation { kyma, remote } = preparation;
    let key = KymaKey::of(&kyma);
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
    Ok(Observation {
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
    })
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
