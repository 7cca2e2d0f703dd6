//! Keeps ModuleConfigs in the index and requeues the Kymas that a change affects.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube_runtime::reflector::{ObjectRef, Store};
use kyma_api::{Kyma, ModuleConfig};
use kyma_controller::{FeedEvent, KymaKey, feed};
use tokio::time::{Instant, sleep_until};

use super::{FirstListSender, signal_first_list};
use crate::error::Error;
use crate::hub::config::Config;
use crate::state::State;

mod deletion;
mod status;

use deletion::Verdict;
pub(crate) use deletion::accept_proven_deletions;
pub(crate) use status::report;

/// Delay before unproven deletions are checked again after the hub did not answer.
const JUDGE_RETRY_DELAY: Duration = Duration::from_secs(10);

/// ModuleConfigs whose deletion could not be judged, because the hub did not answer.
#[derive(Debug, Default)]
struct PendingJudgements {
    names: BTreeSet<String>,
    /// When the deletions are checked again: `JUDGE_RETRY_DELAY` after the first of them, regardless of further events.
    retry_at: Option<Instant>,
}

impl PendingJudgements {
    fn add(&mut self, names: impl IntoIterator<Item = String>, now: Instant) {
        self.names.extend(names);
        if !self.names.is_empty() {
            self.retry_at.get_or_insert(now + JUDGE_RETRY_DELAY);
        }
    }

    fn remove(&mut self, name: &str) {
        self.names.remove(name);
        if self.names.is_empty() {
            self.retry_at = None;
        }
    }

    fn take_names(&mut self) -> BTreeSet<String> {
        self.retry_at = None;
        std::mem::take(&mut self.names)
    }
}

/// Follows the ModuleConfigs until the process shuts down.
pub(super) async fn follow(state: Arc<State>, kymas: Store<Kyma>, mut first: FirstListSender) {
    let mut events = pin!(feed::<ModuleConfig>(&state.runtime));
    let mut pending = PendingJudgements::default();
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = sleep_until(pending.retry_at.unwrap_or_else(Instant::now)), if pending.retry_at.is_some() => {
                let left = handle_missing_in_list(&state, &kymas, pending.take_names()).await;
                pending.add(left, Instant::now());
                continue;
            }
        };
        match next {
            None => return,
            Some(FeedEvent::Applied(object)) => {
                let config = Config::from(*object);
                pending.remove(&config.name);
                apply_config(&state, &kymas, config);
            }
            Some(FeedEvent::Deleted(name)) => {
                if handle_delete_event(&state, &kymas, &name).await.is_err() {
                    pending.add([name], Instant::now());
                }
            }
            Some(FeedEvent::Listed(names)) => {
                let lacked = state.configs().names().difference(&names).cloned().collect();
                if state.configs_mut().listed(!names.is_empty()) {
                    state.requeue_all(
                        kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect::<Vec<_>>().iter(),
                    );
                }
                // The list lacks every name that is still to be judged.
                pending.take_names();
                let left = handle_missing_in_list(&state, &kymas, lacked).await;
                pending.add(left, Instant::now());
                signal_first_list(&mut first);
            }
        }
    }
}

/// Handles ModuleConfigs that a list no longer contains. Returns those that the hub gave no answer for.
async fn handle_missing_in_list(
    state: &State,
    kymas: &Store<Kyma>,
    names: BTreeSet<String>,
) -> BTreeSet<String> {
    let mut pending = BTreeSet::new();
    for name in names {
        match deletion::judge_deletion(state, &name, None).await {
            // The watch reports it next.
            Ok(Verdict::Exists) => {}
            Ok(Verdict::Deleted) => delete_config(state, kymas, &name),
            Ok(Verdict::Unproven) => mark_missing(state, kymas, &name),
            Err(_) => {
                mark_missing(state, kymas, &name);
                pending.insert(name);
            }
        }
    }
    pending
}

/// Handles a DELETE event.
async fn handle_delete_event(state: &State, kymas: &Store<Kyma>, name: &str) -> Result<(), Error> {
    let Some(config) = state.configs().get(name).cloned() else { return Ok(()) };
    let is_requested = deletion::is_deletion_requested(state, &config).await;
    match is_requested {
        Ok(true) => delete_config(state, kymas, name),
        Ok(false) | Err(_) => mark_missing(state, kymas, name),
    }
    is_requested.map(drop)
}

/// Marks the ModuleConfig as missing. It stays in force, and its Kymas report that.
fn mark_missing(state: &State, kymas: &Store<Kyma>, name: &str) {
    let Some(config) = state.configs().get(name).cloned() else { return };
    if state.configs().is_missing(name) {
        return;
    }
    tracing::warn!(config = name, uid = config.uid(), "ModuleConfig is missing and stays in force");
    state.configs_mut().mark_missing(name);
    requeue(state, kymas, &config);
}

fn apply_config(state: &State, kymas: &Store<Kyma>, config: Config) {
    let name = config.name.clone();
    let was_missing = state.configs().is_missing(&name);
    let before = state.configs_mut().apply(config);
    let Some(now) = state.configs().get(&name).cloned() else { return };
    if !was_missing && before.as_ref().is_some_and(|before| before.is(&now)) {
        return;
    }
    state.report_on_config(&name);
    for one in before.iter().chain([&now]) {
        requeue(state, kymas, one);
    }
}

fn delete_config(state: &State, kymas: &Store<Kyma>, name: &str) {
    let gone = state.configs_mut().delete(name);
    if let Some(gone) = gone {
        requeue(state, kymas, &gone);
    }
}

/// Requeues Kymas that have the module and that it selects. A change of a Kyma's labels requeues that Kyma itself.
fn requeue(state: &State, kymas: &Store<Kyma>, config: &Config) {
    let having = if config.is_for_all() {
        kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect()
    } else {
        state.catalogue().kymas_with(&config.module)
    };
    let none = std::collections::BTreeMap::new();
    let concerned = having.iter().filter(|key| {
        let kyma = kymas.get(&ObjectRef::new(&key.name).within(&key.namespace));
        kyma.is_some_and(|kyma| config.selects(kyma.metadata.labels.as_ref().unwrap_or(&none)))
    });
    state.requeue_all(concerned);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_do_not_defer_the_retry_of_a_judgement() {
        let (mut pending, start) = (PendingJudgements::default(), Instant::now());
        pending.add([], start);
        assert_eq!(pending.retry_at, None);
        pending.add(["a".to_owned()], start);
        pending.add(["b".to_owned()], start + Duration::from_secs(9));
        assert_eq!(pending.retry_at, Some(start + JUDGE_RETRY_DELAY));
        assert_eq!(pending.take_names().len(), 2);
        assert_eq!(pending.retry_at, None);
    }

    #[test]
    fn a_config_that_was_created_again_is_not_judged_again() {
        let mut pending = PendingJudgements::default();
        pending.add(["a".to_owned(), "b".to_owned()], Instant::now());
        pending.remove("a");
        assert!(pending.retry_at.is_some());
        pending.remove("b");
        assert!(pending.names.is_empty() && pending.retry_at.is_none());
    }
}
