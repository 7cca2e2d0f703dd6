//! The watch of a kind on the hub.

use futures::{Stream, StreamExt, stream};
use kube::{Api, Resource};
use kube_runtime::{
    utils::Backoff,
    watcher::{self, DefaultBackoff, watcher},
};
use serde::de::DeserializeOwned;

/// Watches for ever, as kube's watcher does, but starts with a list after every break. What comes back after one may
/// be an apiserver that was restored from a backup: a watch that went on from a resourceVersion of its future would
/// hear nothing until the hub gets there (kubernetes/kubernetes#107457).
pub fn hub_watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let begin = (None, DefaultBackoff::default(), None);
    stream::unfold(begin, move |(events, mut backoff, delay)| {
        let (api, config) = (api.clone(), config.clone());
        async move {
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
            let mut events = events.unwrap_or_else(|| watcher(api, config).boxed());
            let event = events.next().await?;
            Some(match event {
                Err(error) => {
                    let delay = backoff.next();
                    (Err(error), (None, backoff, delay))
                }
                Ok(event) => {
                    if !matches!(event, watcher::Event::Init) {
                        backoff.reset();
                    }
                    (Ok(event), (Some(events), backoff, None))
                }
            })
        }
    })
}
