//! The watch of a kind on the hub.

use futures::{Stream, StreamExt, stream};
use kube::{Api, Resource};
use kube_runtime::{
    utils::Backoff,
    watcher::{self, DefaultBackoff, Event, watcher},
};
use serde::de::DeserializeOwned;

/// Watches for ever, as kube's watcher does, but starts with a list after every break; that one broke is logged here.
/// What comes back after a break may be an apiserver that was restored from a backup: a watch that went on from a
/// resourceVersion of its future would hear nothing until the hub gets there (kubernetes/kubernetes#107457).
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
                    tracing::warn!(%error, url, "watch on the hub broke off; it is opened again");
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

/// Whether a list is complete, or a watch at work. Init comes before the list was even tried, and kube's `StreamBackoff`
/// takes it for success; objects come with their page, of which the next one may fail each time.
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
