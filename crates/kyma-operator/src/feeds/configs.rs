//! Keeps the ModuleConfigs in their index, and wakes the Kymas that a change concerns.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube_runtime::reflector::{ObjectRef, Store};
use kyma_api::{Kyma, ModuleConfig};
use kyma_sdk::{KymaKey, News, feed};

use super::{Announce, announce};
use crate::config::Config;
use crate::error::Error;
use crate::state::State;

mod deletion;
mod status;

pub(crate) use deletion::explain;
pub(crate) use status::report;

/// How long until the deletion of one that vanished is judged again, where the hub did not answer.
const JUDGE_AGAIN: Duration = Duration::from_secs(10);

/// Follows them; for ever.
pub(super) async fn follow(state: Arc<State>, kymas: Store<Kyma>, mut first: Announce) {
    let mut news = pin!(feed::<ModuleConfig>(&state.runtime));
    let mut unjudged = BTreeSet::new();
    loop {
        let next = tokio::select! {
            next = news.next() => next,
            () = tokio::time::sleep(JUDGE_AGAIN), if !unjudged.is_empty() => {
                unjudged = vanished(&state, &kymas, std::mem::take(&mut unjudged)).await;
                continue;
            }
        };
        match next {
            None => return,
            Some(News::Applied(object)) => take(&state, &kymas, Config::from(*object)),
            Some(News::Gone(name)) => {
                if ended(&state, &kymas, &name).await.is_err() {
                    unjudged.insert(name);
                }
            }
            Some(News::Listed(names)) => {
                let lacked = state.configs().names().difference(&names).cloned().collect();
                if state.configs_mut().listed(!names.is_empty()) {
                    state.wake_all(
                        kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect::<Vec<_>>().iter(),
                    );
                }
                unjudged = vanished(&state, &kymas, lacked).await;
                announce(&mut first);
            }
        }
    }
}

/// These are in no list any more. Returns those about which the hub gave no answer.
async fn vanished(state: &State, kymas: &Store<Kyma>, names: BTreeSet<String>) -> BTreeSet<String> {
    let mut unjudged = BTreeSet::new();
    for name in names {
        match deletion::is_shown(state, &name).await {
            Ok(true) => drop_one(state, kymas, &name),
            Ok(false) => miss(state, kymas, &name),
            Err(_) => {
                miss(state, kymas, &name);
                unjudged.insert(name);
            }
        }
    }
    unjudged
}

/// The watch told of its end.
async fn ended(state: &State, kymas: &Store<Kyma>, name: &str) -> Result<(), Error> {
    let Some(config) = state.configs().get(name).cloned() else { return Ok(()) };
    let is_meant = deletion::is_meant(state, &config).await;
    match is_meant {
        Ok(true) => drop_one(state, kymas, name),
        Ok(false) | Err(_) => miss(state, kymas, name),
    }
    is_meant.map(drop)
}

/// It stays in force, and the Kymas that it holds for say so.
fn miss(state: &State, kymas: &Store<Kyma>, name: &str) {
    let Some(config) = state.configs().get(name).cloned() else { return };
    if state.configs().is_missing(name) {
        return;
    }
    tracing::warn!(config = name, uid = config.uid(), "ModuleConfig is missing and stays in force");
    state.configs_mut().miss(name);
    wake(state, kymas, &config);
}

fn take(state: &State, kymas: &Store<Kyma>, config: Config) {
    let name = config.name.clone();
    let was_missing = state.configs().is_missing(&name);
    let before = state.configs_mut().apply(config);
    let Some(now) = state.configs().get(&name).cloned() else { return };
    if !was_missing && before.as_ref().is_some_and(|before| before.is(&now)) {
        return;
    }
    state.report_on_config(&name);
    for one in before.iter().chain([&now]) {
        wake(state, kymas, one);
    }
}

fn drop_one(state: &State, kymas: &Store<Kyma>, name: &str) {
    let gone = state.configs_mut().delete(name);
    if let Some(gone) = gone {
        wake(state, kymas, &gone);
    }
}

/// Those that have the module and whose labels it selects. A Kyma whose labels change looks again by itself.
fn wake(state: &State, kymas: &Store<Kyma>, config: &Config) {
    let having = if config.is_for_all() {
        kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect()
    } else {
        state.catalogue().having(&config.module)
    };
    let none = std::collections::BTreeMap::new();
    let concerned = having.iter().filter(|key| {
        let kyma = kymas.get(&ObjectRef::new(&key.name).within(&key.namespace));
        kyma.is_some_and(|kyma| config.holds_for(kyma.metadata.labels.as_ref().unwrap_or(&none)))
    });
    state.wake_all(concerned);
}
