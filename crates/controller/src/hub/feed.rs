//! Watches of hub kinds that are not reconciled and only feed an index.

use std::{collections::BTreeSet, future::ready};

use futures::{Stream, StreamExt};
use kube::{Api, ResourceExt, core::DeserializeGuard};
use kube_runtime::watcher;

use crate::hub::resource::{HubResource, decode_or_log};
use crate::hub::watch::hub_watch;
use crate::process::runtime::Runtime;

/// Event of the watch of a kind that only feeds an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedEvent<K> {
    /// An object was added or changed.
    Applied(Box<K>),
    /// The object of this name was deleted.
    Deleted(String),
    /// A list is complete, at the start and after every gap: the names of all objects, including unreadable ones. An
    /// `Applied` for each readable object came before.
    Listed(BTreeSet<String>),
}

/// Watches all objects of `K` in the hub namespace without end. Reopens a broken watch. Logs and skips an unreadable
/// object, so its last readable state stays in the index.
pub fn feed<K: HubResource>(runtime: &Runtime) -> impl Stream<Item = FeedEvent<K>> + Send + use<K> {
    let api: Api<DeserializeGuard<K>> = Api::namespaced(runtime.hub.clone(), &runtime.settings.hub_namespace);
    let events = hub_watch(api, watcher::Config::default());
    let targets = runtime.targets.clone();
    events
        .inspect(move |event| {
            // The hub may have been restored from a backup.
            if matches!(event, Ok(watcher::Event::Init)) {
                targets.invalidate_hub_records();
            }
        })
        .scan(BTreeSet::new(), |listed, event| {
            ready(Some(event.ok().and_then(|event| convert_event(listed, event))))
        })
        .filter_map(ready)
}

fn convert_event<K: HubResource>(
    listed: &mut BTreeSet<String>,
    event: watcher::Event<DeserializeGuard<K>>,
) -> Option<FeedEvent<K>> {
    let applied = |object| decode_or_log(object).map(|object| FeedEvent::Applied(Box::new(object)));
    match event {
        watcher::Event::Init => {
            listed.clear();
            None
        }
        watcher::Event::InitApply(object) => {
            listed.insert(object.name_any());
            applied(object)
        }
        watcher::Event::Apply(object) => applied(object),
        watcher::Event::Delete(object) => Some(FeedEvent::Deleted(object.name_any())),
        watcher::Event::InitDone => Some(FeedEvent::Listed(std::mem::take(listed))),
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::ModuleReleaseMeta;
    use serde_json::{Value, json};

    use super::*;

    type Guard = DeserializeGuard<ModuleReleaseMeta>;

    fn object(name: &str, spec: &Value) -> Guard {
        let kind = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta"});
        let mut object = json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec});
        object.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    fn describe_events(events: Vec<watcher::Event<Guard>>) -> Vec<String> {
        let mut listed = BTreeSet::new();
        let events = events.into_iter().filter_map(|event| convert_event(&mut listed, event));
        events
            .map(|event| match event {
                FeedEvent::Applied(object) => format!("applied {}", object.name_any()),
                FeedEvent::Deleted(name) => format!("gone {name}"),
                FeedEvent::Listed(names) => format!("listed {names:?}"),
            })
            .collect()
    }

    #[test]
    fn list_names_unreadable_objects_and_restarts_after_a_gap() {
        let (good, bad) = (json!({"moduleName": "a", "ocmComponentName": "x/a"}), json!({"moduleName": 7}));
        let events = vec![
            watcher::Event::Init,
            watcher::Event::InitApply(object("cut-off", &good)),
            watcher::Event::Init,
            watcher::Event::InitApply(object("a", &good)),
            watcher::Event::InitApply(object("b", &bad)),
            watcher::Event::InitDone,
            watcher::Event::Apply(object("b", &bad)),
            watcher::Event::Delete(object("b", &bad)),
            watcher::Event::Init,
            watcher::Event::InitDone,
        ];
        let expected = ["applied cut-off", "applied a", r#"listed {"a", "b"}"#, "gone b", "listed {}"]
            .map(str::to_owned);
        assert_eq!(describe_events(events), expected);
    }
}
