//! The watch of a kind on the hub.

use futures::{Stream, StreamExt, stream};
use kube::{Api, Resource};
use kube_runtime::{
    utils::Backoff,
    watcher::{self, DefaultBackoff, Event, watcher},
};
use serde::de::DeserializeOwned;

use crate::failure::cause::describe_watch_cause;

/// Watches without end like kube's watcher, but lists again after every break, which it logs. After a break the API
/// server may have been restored from a backup: a watch from a future resourceVersion would receive no event until
/// the hub reaches that version (kubernetes/kubernetes#107457).
pub fn hub_watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let begin = (None, DefaultBackoff::default(), None);
    stream::unfold(begin, move |(open, mut backoff, delay)| {
        let (api, config) = (api.clone(), config.clone());
        async move {
            if let Some(delay) = delay {
                // Back-off: a hub that is overloaded or down must not be flooded with new lists.
                tokio::time::sleep(delay).await;
            }
            let url = api.resource_url().to_owned();
            let mut events = open.unwrap_or_else(|| watcher(api, config).boxed());
            let event = events.next().await?;
            Some(match &event {
                Err(error) => {
                    let error = describe_watch_cause(error);
                    tracing::warn!(error, url, "a watch on the hub broke off and is restarted");
                    let delay = backoff.next();
                    (event, (None, backoff, delay))
                }
                Ok(told) => {
                    if got_through(told) {
                        backoff.reset();
                    }
                    (event, (Some(events), backoff, None))
                }
            })
        }
    })
}

/// Reports whether an event proves success and resets the back-off: the end of a list, or an event of a watch. `Init`
/// comes before the first call of a list (kube's `StreamBackoff` counts it as success), and `InitApply` before its
/// next page, which may fail.
const fn got_through<K>(event: &Event<K>) -> bool {
    !matches!(event, Event::Init | Event::InitApply(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_of_a_list_takes_no_back_off_back() {
        assert!(!got_through::<()>(&Event::Init) && !got_through(&Event::InitApply(())));
        assert!(got_through::<()>(&Event::InitDone));
        assert!(got_through(&Event::Apply(())) && got_through(&Event::Delete(())));
    }
}
