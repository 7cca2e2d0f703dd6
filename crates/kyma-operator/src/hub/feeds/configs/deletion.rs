//! Decides whether the deletion of a ModuleConfig was requested.
//!
//! A ModuleConfig forces values and policies on targets. It stays in force if an incomplete list, a deleted CRD or
//! namespace, or the garbage collector removed it.

use jiff::Timestamp;
use kube::Api;
use kube::CustomResourceExt;
use kube::api::PartialObjectMeta;
use kyma_api::ModuleConfig;
use kyma_controller::{find_object, is_deleted_alone};

use crate::error::Error;
use crate::hub::config::{Config, ConfigRecords, ConfigUids, is_unreadable_record};
use crate::hub::scope;
use crate::state::State;

/// The verdict on a ModuleConfig that a list of the hub lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The ModuleConfig exists by now.
    Exists,
    /// The hub proves that its deletion was requested.
    Deleted,
    /// The ModuleConfig does not exist, and the hub does not prove that its deletion was requested.
    Unproven,
}

/// The state of the hub from which a deletion is judged.
#[derive(Debug, Clone, Copy)]
struct Evidence {
    /// Whether a live read finds a ModuleConfig of this name.
    exists: bool,
    /// Whether the last list had other ModuleConfigs.
    has_listed: bool,
    /// Whether the garbage collector may have deleted it.
    is_dependent: bool,
    /// When the ModuleConfig, or else the oldest object that records it, was created.
    created: Option<Timestamp>,
    /// Since when CRD and namespace both exist.
    intact_since: Option<Timestamp>,
}

/// Returns whether a deletion that the watch reported was requested, not caused by the CRD, the namespace or the
/// garbage collector.
pub(super) async fn is_deletion_requested(state: &State, config: &Config) -> Result<bool, Error> {
    if config.is_dependent {
        return Ok(false);
    }
    Ok(is_deleted_alone(config.created, intact_since(state).await?))
}

/// Judges a deletion by live reads of the hub. The deletion is proven if the last list had other ModuleConfigs, the
/// hub has none of this name, and CRD and namespace are older than the ModuleConfig. A ModuleConfig that the operator
/// never read counts as created at `recorded_since`.
pub(super) async fn judge_deletion(
    state: &State,
    name: &str,
    recorded_since: Option<Timestamp>,
) -> Result<Verdict, Error> {
    let known = state.configs().get(name).cloned();
    let has_listed = state.configs().has_listed();
    let namespace = &state.runtime.settings.hub_namespace;
    let api: Api<PartialObjectMeta<ModuleConfig>> = Api::namespaced(state.runtime.hub.clone(), namespace);
    let live = find_object(&api, name).await;
    let live = live.map_err(|source| Error::ReadConfig { name: name.to_owned(), source })?;
    // Read after the ModuleConfig, so that a CRD recreated in between is newer than the ModuleConfig.
    let intact_since = if live.is_some() { None } else { intact_since(state).await? };
    Ok(judge(Evidence {
        exists: live.is_some(),
        has_listed,
        is_dependent: known.as_ref().is_some_and(|config| config.is_dependent),
        created: known.map_or(recorded_since, |config| config.created),
        intact_since,
    }))
}

/// Accepts proven deletions of recorded ModuleConfigs and returns the ModuleConfigs that are missing. `created` is the
/// creation time of the Kyma whose status or components record them.
///
/// # Errors
/// If the hub does not answer.
pub(crate) async fn accept_proven_deletions(
    state: &State,
    recorded: &ConfigRecords,
    created: Option<Timestamp>,
) -> Result<ConfigUids, Error> {
    let missing = state.configs().missing_configs(recorded.iter().map(|(name, uid)| (name, uid)));
    let mut missing_configs = ConfigUids::new();
    for (name, uid) in missing {
        if is_unreadable_record(&name) {
            missing_configs.insert(name, uid);
            continue;
        }
        let is_judged = state.configs().is_unexplained(&name, &uid);
        if !is_judged && is_recorded_deletion_proven(state, &name, &uid, created).await? {
            state.configs_mut().accept(&name, &uid);
            continue;
        }
        if state.configs_mut().leave_unexplained(&name, &uid) {
            tracing::warn!(config = name, uid, "a recorded ModuleConfig is missing and stays in force");
        }
        missing_configs.insert(name, uid);
    }
    Ok(missing_configs)
}

/// Returns whether the hub proves the deletion of a ModuleConfig that the operator knows only from records. Records
/// have no creation time: the ModuleConfig counts as created with the oldest component that records it, or with the
/// Kyma. If the CRD or the namespace is newer, their earlier deletion may have removed the ModuleConfig.
async fn is_recorded_deletion_proven(
    state: &State,
    name: &str,
    uid: &str,
    kyma_created: Option<Timestamp>,
) -> Result<bool, Error> {
    let oldest_component = state.components().oldest_with_config(name, uid);
    let verdict = judge_deletion(state, name, oldest_component.or(kyma_created)).await?;
    Ok(verdict == Verdict::Deleted)
}

fn judge(evidence: Evidence) -> Verdict {
    let Evidence { exists, has_listed, is_dependent, created, intact_since } = evidence;
    if exists {
        return Verdict::Exists;
    }
    let is_proven = has_listed && !is_dependent && is_deleted_alone(created, intact_since);
    if is_proven { Verdict::Deleted } else { Verdict::Unproven }
}

async fn intact_since(state: &State) -> Result<Option<Timestamp>, Error> {
    scope::intact_since(state, &state.runtime.settings.hub_namespace, ModuleConfig::crd_name()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    /// Returns the evidence of a ModuleConfig that was deleted on request while CRD and namespace stayed.
    fn deleted() -> Evidence {
        Evidence {
            exists: false,
            has_listed: true,
            is_dependent: false,
            created: at(20),
            intact_since: at(10),
        }
    }

    #[test]
    fn a_deletion_on_request_is_proven() {
        assert_eq!(judge(deleted()), Verdict::Deleted);
        assert_eq!(judge(Evidence { created: at(10), ..deleted() }), Verdict::Deleted);
    }

    #[test]
    fn a_recreated_crd_or_namespace_proves_no_deletion() {
        let recreated = Evidence { intact_since: at(21), ..deleted() };
        assert_eq!(
            judge(recreated),
            Verdict::Unproven,
            "also while the list has a ModuleConfig created since"
        );
        assert_eq!(judge(Evidence { intact_since: None, ..deleted() }), Verdict::Unproven, "terminating");
        assert_eq!(judge(Evidence { created: None, ..deleted() }), Verdict::Unproven, "unknown age");
    }

    #[test]
    fn an_empty_list_or_the_garbage_collector_proves_no_deletion() {
        assert_eq!(judge(Evidence { has_listed: false, ..deleted() }), Verdict::Unproven);
        assert_eq!(judge(Evidence { is_dependent: true, ..deleted() }), Verdict::Unproven);
    }

    #[test]
    fn a_config_that_was_created_again_is_not_missing() {
        for has_listed in [true, false] {
            let found = Evidence { exists: true, has_listed, intact_since: None, ..deleted() };
            assert_eq!(judge(found), Verdict::Exists);
        }
    }
}
