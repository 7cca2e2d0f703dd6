//! The watch of a kind on a hub that is restored to an earlier state.

use std::{pin::pin, time::Duration};

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
    runtime::watcher::{self, Event},
};
use kyma_controller::hub_watch;
use testbed::TestEnv;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Deadline of an event, longer than the longest pause of kube's back-off: half a minute, at random up to twice that.
const NEXT_EVENT: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_went_back_to_an_earlier_state_is_listed_anew() -> Result<()> {
    let test_env = TestEnv::start().await?;
    let hub = test_env.cluster("hub").with_own_etcd().await?;
    // Connects as operators do: kube's own retries would hide the interruption.
    let mut config = hub.admin().config()?;
    config.default_retry = false;
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config)?);
    create(hub.client()?, "before").await?;
    let mut events = listen(hub_watch(maps, watcher::Config::default()));
    assert_eq!(next(&mut events).await?, ["before"]);

    hub.save("backup")?;
    // Uses many more resourceVersions than the steps after the restore.
    for number in 0..50 {
        create(hub.client()?, &format!("later-{number}")).await?;
    }
    while until_applied(&mut events).await? != "later-49" {}

    hub.restore("backup").await?;
    assert_eq!(next(&mut events).await?, ["before"], "what came after the backup never was");
    create(hub.client()?, "after").await?;
    assert_eq!(until_applied(&mut events).await?, "after");
    Ok(())
}

async fn create(hub: Client, name: &str) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    Api::<ConfigMap>::default_namespaced(hub).create(&PostParams::default(), &map).await?;
    Ok(())
}

type MapEvent = watcher::Result<Event<ConfigMap>>;

/// Receives events all the time, as an operator does.
fn listen(events: impl Stream<Item = MapEvent> + Send + 'static) -> UnboundedReceiver<MapEvent> {
    let (send, told) = unbounded_channel();
    tokio::spawn(async move {
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            if send.send(event).is_err() {
                return;
            }
        }
    });
    told
}

/// Returns the names in the next complete list, without Kubernetes' own object.
async fn next(events: &mut UnboundedReceiver<MapEvent>) -> Result<Vec<String>> {
    let mut names = vec![];
    loop {
        match next_event(events).await? {
            Event::Init => names.clear(),
            Event::InitApply(map) if map.name_any() != "kube-root-ca.crt" => names.push(map.name_any()),
            Event::InitDone => return Ok(names),
            _ => {}
        }
    }
}

async fn until_applied(events: &mut UnboundedReceiver<MapEvent>) -> Result<String> {
    loop {
        if let Event::Apply(map) = next_event(events).await? {
            return Ok(map.name_any());
        }
    }
}

/// Returns the next event. Errors are skipped, since the stream recovers from them.
async fn next_event(events: &mut UnboundedReceiver<MapEvent>) -> Result<Event<ConfigMap>> {
    let mut last = None;
    let next = tokio::time::timeout(NEXT_EVENT, async {
        loop {
            match events.recv().await.context("a watch never ends")? {
                Ok(event) => return anyhow::Ok(event),
                Err(error) => last = Some(error),
            }
        }
    });
    next.await.with_context(|| format!("the watch is mute: {last:?}"))?
}
