//! Keeps the ModuleConfigs in their index, and wakes the Kymas that a change concerns.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube_runtime::reflector::{ObjectRef, Store};
use kyma_api::{Kyma, ModuleConfig};
use kyma_sdk::{KymaKey, News, feed};

use super::{Announce, announce};
use crate::config::Config;
use crate::state::State;

mod status;

pub(crate) use status::report;

/// Follows them; for ever.
pub(super) async fn follow(state: Arc<State>, kymas: Store<Kyma>, mut first: Announce) {
    let mut news = pin!(feed::<ModuleConfig>(&state.runtime));
    while let Some(news) = news.next().await {
        match news {
            News::Applied(object) => take(&state, &kymas, Config::from(*object)),
            News::Gone(name) => drop_one(&state, &kymas, &name),
            News::Listed(names) => {
                let held = state.configs().names();
                for name in held.difference(&names) {
                    drop_one(&state, &kymas, name);
                }
                announce(&mut first);
            }
        }
    }
}

fn take(state: &State, kymas: &Store<Kyma>, config: Config) {
    let name = config.name.clone();
    let before = state.configs_mut().apply(config);
    let Some(now) = state.configs().get(&name).cloned() else { return };
    if before.as_ref().is_some_and(|before| before.is(&now)) {
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
